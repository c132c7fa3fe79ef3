"""Memory follows the limits for batches, however large single values are."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from process_boundary import sent
from random_seeds import cases, grid
from row_changes import set_to
from table_access import read_changes, write_table

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.format.field import Field
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

MIB = 1 << 20
BATCH = MIB
VERSIONS = ["0.1", "2.0", "2.1", "2.2"]


# Buffers may outlive the test that made them, their pool must not go before them.
POOLS = []


class Peak:
    """The most that Arrow held at a time inside of ``arrow_peak``."""

    num_bytes = 0


@contextlib.contextmanager
def arrow_peak():
    peak, before = Peak(), pa.default_memory_pool()
    pool = pa.proxy_memory_pool(before)
    POOLS.append(pool)
    pa.set_memory_pool(pool)
    try:
        yield peak
    finally:
        pa.set_memory_pool(before)
        peak.num_bytes = pool.max_memory()


def strings_of(sizes, *, kind="string", noise=False):
    """One value of each size; without noise they nearly vanish when compressed."""
    content = np.full(sum(sizes), ord("x"), np.uint8)
    if noise:
        content[:] = np.random.default_rng(1).integers(97, 123, len(content))
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    starts = offsets[:-1][np.array(sizes) >= 8]
    content[starts[:, None] + np.arange(8)] = np.arange(len(starts))[:, None] // 10 ** np.arange(
        8
    ) % 10 + ord("0")
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.type_for_alias(kind), len(sizes), buffers)


def lists_of(sizes):
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.arange(offsets[-1])))


def held_bytes(batch):
    """What a batch keeps alive: all of each buffer, also if it is a slice."""
    return batch.get_total_buffer_size()


def scan(path, **request):
    for task in plan_scan(Snapshot.open(Table(path)), ScanRequest(batch_bytes=BATCH, **request)):
        yield from sent(task).run()


def numbered(values):
    return pa.table({"n": pa.array(range(len(values)), pa.int64()), "x": values})


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("condition", [None, "n >= 0", "n % 50 = 1", "x < 'a'"])
def test_batches_of_long_compressible_strings_stay_small(tmp_path, version, condition):
    path = str(tmp_path / "t")
    write_table(path, numbered(strings_of([50_000] * 600)), file_version=version)
    predicate = None
    if condition is not None:
        predicate = parse_predicate(condition, Snapshot.open(Table(path)).schema.to_arrow())
    rows = []
    for batch in scan(path, predicate=predicate):
        assert batch.nbytes <= 3 * BATCH
        assert held_bytes(batch) <= 9 * BATCH
        rows += batch["n"].to_pylist()
        digits = pc.utf8_slice_codeunits(batch["x"], 0, 8).to_pylist()
        assert digits == [f"{n:08}"[::-1] for n in batch["n"].to_pylist()]
    expected = range(600) if condition != "n % 50 = 1" else range(1, 600, 50)
    assert rows == list(expected)


@pytest.mark.parametrize("writer", ["pylance", "ours"])
@pytest.mark.parametrize(
    ("kind", "version"), grid(["strings", "binaries", "lists", "structs"], ["2.0", "2.1", "2.2"])
)
def test_large_values_among_small_ones_are_returned_separately(tmp_path, writer, version, kind):
    path = str(tmp_path / "t")
    sizes = [20] * 3000
    for place in (1500, 1501, 1502, 1503, 1504, 1505, 2990):
        sizes[place] = 2 * MIB
    values = {
        "strings": lambda: strings_of(sizes, noise=True),
        "binaries": lambda: strings_of(sizes, kind="binary", noise=True),
        "lists": lambda: lists_of([size // 8 for size in sizes]),
        "structs": lambda: pa.StructArray.from_arrays([strings_of(sizes, noise=True)], ["s"]),
    }[kind]()
    table = numbered(values)
    if writer == "ours":
        write_table(path, table, file_version=version)
    else:
        lance = pytest.importorskip("lance")
        lance.write_dataset(table, path, data_storage_version=version)
    batches = list(scan(path))
    assert all(batch.nbytes <= 5 * MIB for batch in batches)
    assert pa.Table.from_batches(batches).equals(table)


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_long_dictionary_strings_are_decoded_lazily(tmp_path, version):
    lance = pytest.importorskip("lance")
    path = str(tmp_path / "t")
    items = strings_of([20_000] * 4, noise=True)
    values = items.take(pa.array(np.arange(4000) % 4))
    lance.write_dataset(numbered(values), path, data_storage_version=version)
    with arrow_peak() as peak:
        for batch in scan(path):
            assert batch.nbytes <= 3 * BATCH
    assert peak.num_bytes < 40 * MIB


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_moved_rows_are_read_in_parts(tmp_path, version):
    path = str(tmp_path / "t")
    write_table(path, numbered(strings_of([100_000] * 1000)), file_version=version)
    with arrow_peak() as peak:
        set_to(path, "n >= 0", n=7)
    assert peak.num_bytes < 120 * MIB
    assert sum(batch.num_rows for batch in scan(path)) == 1000


@pytest.mark.parametrize("version", cases(["2.0", "2.1", "2.2"], in_ci=["2.1"]))
def test_changes_of_large_rows_are_returned_in_parts(tmp_path, version):
    path = str(tmp_path / "t")
    sizes = [20] * 2000
    sizes[100:120] = [2 * MIB] * 20
    write_table(path, numbered(strings_of(sizes, noise=True)), file_version=version)
    set_to(path, "n >= 0", n=7)
    with arrow_peak() as peak:
        changes = read_changes(path, 2, 2, "none", batch_bytes=BATCH)
    assert changes.num_rows == 4000
    # All of the result is held here.
    assert peak.num_bytes < 2 * 40 * MIB + 15 * MIB


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_pages_of_large_batch_have_limited_size(tmp_path, version):
    path = str(tmp_path / "t")
    write_table(path, numbered(strings_of([50_000] * 2000)), file_version=version)
    (file,) = Snapshot.open(Table(path)).manifest.fragments[0].files
    reader = DataFileReader.open(open_store(path, {}), f"data/{file.path}")
    pages = reader._file.metadata.column(reader.num_columns - 1).pages
    assert max(page.num_rows for page in pages) * 50_000 <= 16 * MIB


@pytest.mark.parametrize("version", VERSIONS)
def test_narrow_columns_release_wide_columns_of_batch(tmp_path, version):
    path = str(tmp_path / "t")
    batch = pa.record_batch(
        {
            "n": pa.array(range(400)),
            "s": pa.StructArray.from_arrays([pa.array(range(400))], ["m"]),
            "x": strings_of([50_000] * 400),
        }
    )
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    message = sink.getvalue().to_pybytes()

    def batches():
        """Batches whose columns share one buffer, as Spark hands them over."""
        for _ in range(12):
            with pa.ipc.open_stream(pa.BufferReader(pa.array([message]).buffers()[2])) as stream:
                yield stream.read_next_batch()

    with arrow_peak() as peak:
        settings = WriteSettings(file_version=version)
        plan = plan_write(Table(path), batch.schema, settings, existing=None)
        commit_write(plan, write_rows(plan, batches()))
    assert peak.num_bytes < 150 * MIB
    assert sum(batch.num_rows for batch in scan(path)) == 4800


def test_unwritten_vectors_are_created_in_parts(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"n": range(3000)}))
    vector = Field(id=9, name="v", logical_type="fixed_size_list:float:65536", nullable=True)
    (number,) = Snapshot.open(Table(path)).schema.fields
    (task,) = plan_scan(Snapshot.open(Table(path)), ScanRequest(batch_bytes=BATCH))
    task = replace(task, fields=(number, vector))
    with arrow_peak() as peak:
        assert sum(batch.num_rows for batch in sent(task).run()) == 3000
    assert peak.num_bytes < 20 * MIB

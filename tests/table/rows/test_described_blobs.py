"""Blobs that are read as descriptors and written with their bytes."""

import os
import sys
import tracemalloc

import lance
import numpy as np
import pyarrow as pa
import pytest
from blob_tables import (
    BLOB,
    LISTS,
    OF_OURS,
    VALUES,
    blob_table,
    nested_bytes,
    nested_table,
    pylance_blobs,
    pylance_nested_bytes,
)
from managed_blobs import new_table
from s3_server import s3_server, s3_table_root  # noqa: F401

from pyspark_lance.datafile.blob_values import EXTERNAL
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    MissingFileError,
    StorageError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.logical_view import BLOB_FILE, logical_schema
from pyspark_lance.table.dml.change_stages import MIN_FILE_ROWS, Parts, sort_changes
from pyspark_lance.table.dml.moved_rows import (
    CHANGED_ADDRESS,
    CHANGED_ROW_ID,
    CLAUSE,
    Clause,
    write_changes,
)
from pyspark_lance.table.dml.row_change import RowAction, plan_change
from pyspark_lance.table.rows import described_blobs
from pyspark_lance.table.rows.described_blobs import DescribedBlobs
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

pytestmark = pytest.mark.interop

VERSIONS = ["2.0", "2.1", "2.2"]


def read_located(path, branch=None, storage=(), **shown):
    snapshot = Snapshot.open(Table(path, dict(storage), branch))
    schema = logical_schema(snapshot.schema, located=True, **shown)
    tasks = plan_scan(snapshot, ScanRequest(schema=schema, system_columns=()))
    return pa.Table.from_batches([batch for task in tasks for batch in task.run()])


def as_spark(table):
    """The rows in the types in which Spark hands them to writers."""
    fields = [pa.field(f.name, spark_type(f.type)) for f in table.schema]
    return table.cast(pa.schema(fields))


def spark_type(kind):
    types = {pa.uint64(): pa.decimal128(20, 0), pa.uint32(): pa.int64(), pa.uint8(): pa.int16()}
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(f.name, spark_type(f.type)) for f in kind])
    if pa.types.is_list(kind):
        return pa.list_(spark_type(kind.value_type))
    return types.get(kind, kind)


def write_located(path, rows, schema, storage=(), **settings):
    """Write rows that describe blobs as columns of ``schema``."""
    table = Table(path, dict(storage))
    plan = plan_write(table, schema, WriteSettings(**settings), existing=open_existing(table))
    return commit_write(plan, write_rows(plan, rows.to_batches()))


def with_member(rows, name, value):
    """The rows with another member of all descriptors."""
    located = rows["b"].combine_chunks()
    members, names = located.flatten(), located.type.names
    members[names.index(name)] = pa.repeat(value, len(located))
    forged = pa.StructArray.from_arrays(members, names, mask=located.is_null())
    return pa.table({"id": rows["id"], "b": forged})


BLOBS = blob_table().schema


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("target_version", VERSIONS)
def test_copied_blobs_keep_bytes_in_any_order(tmp_path, version, target_version):
    source, copy = str(tmp_path / "source"), str(tmp_path / "copy")
    lance.write_dataset(blob_table(), source, data_storage_version=version, max_rows_per_file=3)
    rows = as_spark(read_located(source))
    # As after a join: in another order, and some twice.
    order = [6, 3, 3, 0, 2, 5, 4, 1]
    write_located(copy, rows.take(order), BLOBS, file_version=target_version)
    assert pylance_blobs(copy) == [VALUES[i] for i in order]
    assert lance.dataset(copy).to_table(columns=["id"])["id"].to_pylist() == order


@pytest.mark.parametrize(("version", "name"), [case for case in OF_OURS if "large" not in case[1]])
def test_blobs_in_structs_and_lists_are_copied(tmp_path, monkeypatch, version, name):
    monkeypatch.setattr(described_blobs, "BATCH_BYTES", 1000)
    source, copy = str(tmp_path / "source"), str(tmp_path / "copy")
    table = nested_table(name, version)
    plan = plan_write(
        Table(source), table.schema, WriteSettings(file_version=version), existing=None
    )
    commit_write(plan, write_rows(plan, table.to_batches(17)))
    rows = as_spark(read_located(source))
    pieces = pa.concat_tables([rows.slice(5, 20), rows.slice(40)])
    write_located(copy, pieces, table.schema, file_version=version)
    expected = table["c"].to_pylist()
    assert nested_bytes(copy) == [*expected[5:25], *expected[40:]]
    if name not in LISTS or version == "2.2":
        assert pylance_nested_bytes(copy) == [*expected[5:25], *expected[40:]]


def test_blobs_in_maps_are_copied_as_values(tmp_path):
    path = str(tmp_path)
    lance.write_dataset(blob_table(), path, data_storage_version="2.2")
    located = as_spark(read_located(path))["b"].combine_chunks()
    offsets = pa.array([0, 2, 2, 7], pa.int32())
    keys = pa.array([f"k{i}" for i in range(7)])
    maps = pa.MapArray.from_arrays(offsets, keys, located)
    (batch,) = DescribedBlobs(Table(path)).with_bytes(pa.record_batch({"m": maps}).slice(1))
    assert batch["m"].to_pylist() == [[], [(f"k{i}", VALUES[i]) for i in range(2, 7)]]


@pytest.mark.parametrize("target_version", ["2.1", "2.2"])
def test_external_blobs_are_copied(tmp_path, target_version):
    outside = tmp_path / "outside" / "a folder"
    outside.mkdir(parents=True)
    content = bytes(range(100))
    (outside / "ö %20 #.bin").write_bytes(content)
    uri = (outside / "ö %20 #.bin").as_uri()
    blobs = [
        lance.Blob.from_uri(uri), lance.Blob.from_uri(uri, position=5, size=7), b"inline", None,
        lance.Blob.empty(), lance.Blob.from_uri(uri, position=0, size=3),
    ]  # fmt: skip
    table = pa.table({"b": lance.blob_array(blobs)}, schema=pa.schema([lance.blob_field("b")]))
    base = lance.DatasetBasePath(str(tmp_path / "outside"), name="ext", is_dataset_root=False)
    schema = pa.schema([pa.field("b", pa.large_binary(), metadata=BLOB)])
    for name, options in {
        "anywhere": {"allow_external_blob_outside_bases": True},
        "base": {"initial_bases": [base]},
    }.items():
        source, copy = str(tmp_path / name), str(tmp_path / f"{name}-copy")
        lance.write_dataset(table, source, data_storage_version="2.2", **options)
        rows = as_spark(read_located(source))
        assert rows["b"][0].as_py()["kind"] == EXTERNAL
        # A table must not hand on any file that its readers can open.
        with pytest.raises(UnsupportedFeatureError, match="outside of its table"):
            write_located(copy, rows, schema, file_version=target_version)
        storage = {"storage.allowed_base_paths": str(tmp_path / "outside")}
        write_located(copy, rows, schema, storage, file_version=target_version)
        expected = [content, content[5:12], b"inline", None, b"", content[:3]]
        assert pylance_blobs(copy) == expected


def test_forged_blob_objects_are_refused(tmp_path):
    source, copy = str(tmp_path / "source"), str(tmp_path / "copy")
    new_table(source, {1: b"a" * 100_000})
    rows = as_spark(read_located(source))
    for folder in ("", "/_blobs"):
        secret = tmp_path / f"other{folder}" / "secret.bin"
        secret.parent.mkdir(parents=True, exist_ok=True)
        secret.write_bytes(b"secret")
        for uri in (str(secret), secret.as_uri()):
            forged = with_member(rows, "blob_uri", uri)
            with pytest.raises(UnsupportedFeatureError, match="outside of its table"):
                write_located(copy, forged, BLOBS, file_version="2.2")


@pytest.mark.parametrize("branch", [None, "other"])
def test_managed_blobs_are_copied(tmp_path, branch):
    values = {1: b"a" * 9, 2: bytes(100_000), 3: None, 4: b"", 5: b"z" * 200_000}
    source, copy = str(tmp_path / "a #%20 b"), str(tmp_path / "copy")
    new_table(source, values)
    if branch is not None:
        # Rows of a branch refer to objects below the base path of the main line.
        lance.dataset(source).create_branch(branch)
    rows = as_spark(read_located(source, branch))
    schema = pa.schema([("id", pa.int64()), ("n", pa.int64()), BLOBS.field("b")])
    write_located(copy, rows, schema, file_version="2.2")
    assert pylance_blobs(copy) == list(values.values())


def test_copy_accepts_rows_of_several_tables(tmp_path):
    copy = str(tmp_path / "copy")
    rows = []
    for name in ("one", "two"):
        values = [name.encode(), None, name.encode() * 50_000]
        lance.write_dataset(blob_table(values), str(tmp_path / name), data_storage_version="2.2")
        rows.append(as_spark(read_located(str(tmp_path / name))))
    both = pa.concat_tables(rows).combine_chunks().take([0, 3, 1, 4, 2, 5])
    write_located(copy, both, BLOBS, file_version="2.1")
    assert pylance_blobs(copy) == [
        b"one", b"two", None, None, b"one" * 50_000, b"two" * 50_000,
    ]  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
def test_copy_holds_few_blobs_in_memory(tmp_path, monkeypatch, version):
    monkeypatch.setattr(described_blobs, "BATCH_BYTES", 1 << 20)
    source, copy = str(tmp_path / "source"), str(tmp_path / "copy")
    values = [bytes([i]) * (1 << 18) for i in range(200)]
    lance.write_dataset(blob_table(values), source, data_storage_version=version)
    rows = as_spark(read_located(source))
    own, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    tracemalloc.start()
    try:
        write_located(copy, rows, BLOBS, file_version=version)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        pa.set_memory_pool(own)
    # All blobs have 50 MiB; some copies of 1 MiB are there at a time.
    assert most + pool.max_memory() < 10 << 20
    assert [len(blob) for blob in pylance_blobs(copy)] == [1 << 18] * 200


_opened: list[str] | None = None


def _note_open(event, arguments):
    if event == "open" and _opened is not None:
        _opened.append(os.path.basename(str(arguments[0])))


sys.addaudithook(_note_open)


def as_changes(rows, clauses):
    """Rows that a merge inserts, or updates at their places, in batches of some."""
    numbers = pa.array([one % len(clauses) for one in range(rows.num_rows)], pa.int32())
    places = [
        None if clauses[one].action is RowAction.INSERT else one for one in numbers.to_pylist()
    ]
    columns = {CLAUSE: numbers, CHANGED_ROW_ID: pa.array(places, pa.int64())}
    columns |= {CHANGED_ADDRESS: pa.array(places, pa.int64()), "id": rows["id"], "b": rows["b"]}
    return pa.table(columns).to_batches(max_chunksize=rows.num_rows // 5)


@pytest.mark.parametrize("are_sorted", [False, True])
def test_blob_source_file_is_opened_once_per_task(tmp_path, are_sorted):
    global _opened
    source, path = str(tmp_path / "source"), str(tmp_path / "target")
    lance.write_dataset(blob_table([b"abc", b"", b"e"]), source, data_storage_version="2.1")
    lance.write_dataset(blob_table([b"old"] * 30), path, data_storage_version="2.1")
    rows = as_spark(read_located(source)).take(np.arange(30) % 3)
    plan = plan_change(Table(path))
    clauses = (Clause(RowAction.INSERT, ("id", "b")), Clause(RowAction.INSERT, ("b",)))
    files = os.listdir(f"{source}/data")
    _opened = []
    try:
        if are_sorted:
            many = as_changes(rows.take(np.arange(MIN_FILE_ROWS) % 30), clauses)
            *_, written = sort_changes(plan, clauses, Parts.of([]), many, task=0)
            assert written.new_fragments
        else:
            updates = (Clause(RowAction.UPDATE, ("b",)),)
            write_changes(plan, updates, as_changes(rows, updates))
            assert _opened.count(files[0]) == 1
            _opened.clear()
            write_changes(plan, clauses, as_changes(rows, clauses))
    finally:
        opened, _opened = _opened, None
    assert [opened.count(name) for name in files] == [1]


def test_missing_blob_file_raises_with_hint(tmp_path):
    source = str(tmp_path / "source")
    lance.write_dataset(blob_table(), source, data_storage_version="2.1")
    rows = as_spark(read_located(source))
    for file in (tmp_path / "source" / "data").iterdir():
        file.unlink()
    with pytest.raises(MissingFileError, match=r"(?s)are lost.*blobColumns"):
        write_located(str(tmp_path / "copy"), rows, BLOBS)
    assert not (tmp_path / "copy").exists() or not list((tmp_path / "copy").rglob("*.lance"))


def test_file_without_blobs_is_not_read(tmp_path):
    source, secret = str(tmp_path / "source"), tmp_path / "secret"
    lance.write_dataset(blob_table(), source, data_storage_version="2.1")
    secret.write_bytes(b"secret" * 100)
    rows = as_spark(read_located(source))
    for uri, error, text in (
        (str(secret), CorruptFileError, "secret"),
        ("", InvalidInputError, "not the URI of a data file"),
        ("nowhere://host/data/x.lance", UnsupportedFeatureError, "no file system is known"),
    ):
        forged = with_member(rows, BLOB_FILE, pa.scalar(uri))
        with pytest.raises(error, match=text):
            write_located(str(tmp_path / "copy"), forged, BLOBS)


def test_invalid_descriptors_are_refused(tmp_path):
    source = str(tmp_path / "source")
    lance.write_dataset(blob_table(VALUES[:2]), source, data_storage_version="2.1")
    rows = as_spark(read_located(source))
    for name, value, error in (
        ("position", pa.scalar(None, pa.decimal128(20, 0)), InvalidInputError),
        (BLOB_FILE, pa.scalar(None, pa.string()), InvalidInputError),
        ("size", pa.scalar(-1, pa.int64()), InvalidInputError),
        ("size", pa.scalar(1 << 40, pa.int64()), CorruptFileError),
    ):
        forged = with_member(rows, name, value)
        with pytest.raises(error):
            write_located(str(tmp_path / "copy"), forged, BLOBS)


def test_spans_hold_as_many_rows_as_fit(tmp_path):
    sizes = np.array([5, 5, 1, 20, 0, 0, 9, 2])
    assert list(described_blobs._spans(sizes, 10)) == [(0, 2), (2, 3), (3, 4), (4, 7), (7, 8)]
    assert list(described_blobs._spans(sizes[:0], 10)) == []


@pytest.mark.s3
def test_write_options_apply_to_blob_source(tmp_path, s3_server, s3_table_root):  # noqa: F811
    source, storage = f"{s3_table_root}/source", s3_server.options
    local = str(tmp_path / "local")
    write_located(source, blob_table(VALUES[:4]), BLOBS, storage, file_version="2.2")
    rows = as_spark(read_located(source, storage=storage))
    assert rows["b"][0].as_py()[BLOB_FILE].startswith(source)
    assert not any(secret in str(rows.to_pylist()) for secret in storage.values())
    for target, options in ((f"{s3_table_root}/copy", storage), (local, storage)):
        write_located(target, rows, BLOBS, options)
    assert pylance_blobs(local) == VALUES[:4]
    copied = read_located(f"{s3_table_root}/copy", storage=storage, binary_blobs={"b"})
    assert copied["b"].to_pylist() == VALUES[:4]
    with pytest.raises(StorageError, match=r"(?s)cannot be fetched.*storage options.*blobColumns"):
        write_located(str(tmp_path / "other"), rows, BLOBS)

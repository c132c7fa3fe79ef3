"""Rows of a distant file are the same, however much of it is asked for at once."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from data_file_writing import page_bytes

from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.datafile import read_plan
from pyspark_lance.datafile.read_plan import StoredPages
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.memory_store import MemoryStore

ROWS = 20_000
RNG = np.random.default_rng(3)
LENGTHS = np.where(np.arange(ROWS) % 1000 < 30, 900, 4)  # a few rows take most of the bytes
TABLE = pa.table(
    {
        "id": np.arange(ROWS),
        "skewed": pa.array(["x" * n + str(i) for i, n in enumerate(LENGTHS.tolist())]),
        "list": pa.array([[i] * (i % 5) if i % 7 else None for i in range(ROWS)]),
        "vector": pa.FixedSizeListArray.from_arrays(RNG.random(ROWS * 8), 8),
        "few": pa.array([["red", "green", None][i % 3] for i in range(ROWS)]),
        "pairs": pa.array(
            [[{"a": i}, {"a": -i}] for i in range(ROWS)],
            pa.list_(pa.struct([("a", pa.int64())]), 2),
        ),
    }
)


class CountingStore(MemoryStore):
    """Counts bulk requests and their bytes."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def get_ranges(self, path, ranges):
        if ranges:
            self.sizes.append(sum(wanted.num_bytes for wanted in ranges))
        return super().get_ranges(path, ranges)


@pytest.fixture(scope="module", params=["2.1", "2.2"])
def store(request):
    columns = [name for name in TABLE.column_names if request.param == "2.2" or name != "pairs"]
    table = TABLE.select(columns)
    store = CountingStore()
    with page_bytes(64 << 10):
        schema = LanceSchema.from_arrow(table.schema)
        writer = DataFileWriter(store, "x", schema, version=request.param)
        for batch in table.to_batches(max_chunksize=3000):
            writer.write(batch)
        writer.finish()
    return store


@pytest.fixture
def limits(monkeypatch):
    def set_limits(group, whole, slack=64 << 10, small=64 << 10):
        monkeypatch.setattr(read_plan, "GROUP_BYTES", group)
        monkeypatch.setattr(read_plan, "_WHOLE_BYTES", whole)
        monkeypatch.setattr(read_plan, "_SLACK_BYTES", slack)
        monkeypatch.setattr(read_plan, "_SMALL_BUFFER_BYTES", small)

    return set_limits


@pytest.mark.parametrize(
    ("group", "whole", "slack", "small"),
    [
        (32 << 20, 4 << 20, 64 << 10, 64 << 10),
        (200_000, 4 << 20, 64 << 10, 64 << 10),
        (200_000, 0, 100, 100),
        (20_000, 0, 0, 0),  # guesses are always short
        (20_000, 0, 0, 64 << 10),
    ],
)
def test_grouped_scan_returns_same_rows(store, limits, group, whole, slack, small):
    limits(group, whole, slack, small)
    reader = DataFileReader.open(store, "x")
    fields, columns = reader.schema.fields, reader.embedded_columns()
    expected = TABLE.select([field.name for field in fields])
    for ranges in (None, [(17, 18)], [(0, 5), (2999, 3001), (7000, 19_999)]):
        found = pa.Table.from_batches(
            reader.read_batches(fields, columns, ranges=ranges, batch_bytes=100_000)
        )
        parts = [expected.slice(a, b - a) for a, b in ranges or [(0, ROWS)]]
        assert found.equals(pa.concat_tables(parts).cast(found.schema))
    for rows in ([5], [0, 19_999], list(range(100, 9000, 7))):
        taken = reader.take(fields, columns, np.array(rows))
        assert pa.table(taken).equals(expected.take(rows).cast(taken.schema))


def test_small_scan_takes_one_request(store, limits):
    def requests():
        reader = DataFileReader.open(store, "x")
        store.sizes.clear()
        for _ in reader.read_batches(reader.schema.fields, reader.embedded_columns()):
            pass
        return len(store.sizes)

    size = store.size("x")
    assert requests() == 1
    assert sum(store.sizes) <= size
    limits(size // 4, 0)
    assert requests() <= 2 * 4
    # What is asked for to be safe is a little of a group as groups come; these are very small.
    assert sum(store.sizes) < 2.5 * size


def test_row_lookup_takes_one_request(store):
    reader = DataFileReader.open(store, "x")
    store.sizes.clear()
    reader.take(reader.schema.fields, reader.embedded_columns(), np.array([12_345]))
    assert len(store.sizes) == 1


def test_groups_hold_all_rows_and_similar_bytes(store, limits):
    limits(100_000, 0)
    metadata = DataFileReader.open(store, "x")._file.metadata
    pages = StoredPages(metadata, range(metadata.num_columns))
    wanted = RowRanges(np.array([10, 500, 9000]), np.array([400, 8000, 20_000]))
    groups = pages.groups(wanted)
    assert len(groups) > 5
    positions = np.concatenate([group.to_positions() for group in groups])
    assert np.array_equal(positions, wanted.to_positions())
    stored = [sum(place.num_bytes for place in pages.likely_ranges(group)) for group in groups]
    assert max(stored) < 3 * 100_000 + 2 * 64 * 1024 * metadata.num_columns


def test_small_slice_does_not_retain_large_response(store):
    """Descriptions of pages are kept for long; the pages were fetched with them."""
    reader = DataFileReader.open(store, "x")
    big = bytes(1 << 20)
    from pyspark_lance.store.object_store import ByteRange

    file = reader._file
    file.keep([ByteRange(0, len(big))], [big])
    (piece,) = file.fetch([ByteRange(10, 20)])
    assert piece == bytes(10)
    assert isinstance(piece, bytes)
    (most,) = file.fetch([ByteRange(10, len(big) - 10)])
    assert memoryview(most).obj is big

"""Which bytes are asked for: only those of the wanted columns and rows, in few requests."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from column_cases import lists_of
from pylance_files import assert_same_array

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.object_store import ByteRange

pytestmark = pytest.mark.interop

ROWS = 200_000
RNG = np.random.default_rng(0)
COLUMNS = {
    "number": pa.array(RNG.integers(0, 1 << 40, ROWS)),
    "packed": pa.array(RNG.integers(0, 1000, ROWS), mask=RNG.random(ROWS) < 0.1),
    "word": pa.array([f"word {v}" for v in range(50)]).take(pa.array(RNG.integers(0, 50, ROWS))),
    "id": pa.array([f"user-{v:x}" for v in RNG.integers(0, 1 << 50, ROWS).tolist()]),
    "list": lists_of(pa.array(RNG.integers(0, 1000, ROWS), pa.int32()), ROWS, 0, 3),
    "vector": pa.FixedSizeListArray.from_arrays(pa.array(RNG.random(ROWS * 2)), 2),
    "long": pa.array([f"{v} " * 60 for v in range(5000)]),
}


class CountingStore(MemoryStore):
    """Remembers what is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[ByteRange]] = []

    def get_ranges(self, path, ranges):
        self.requests.append(list(ranges))
        return super().get_ranges(path, ranges)

    @property
    def num_bytes(self) -> int:
        return sum(part.num_bytes for request in self.requests for part in request)


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> dict[str, bytes]:
    from lance.file import LanceFileWriter

    folder = tmp_path_factory.mktemp("files")
    contents = {}
    for version in ("2.1", "2.2"):
        for name, columns in {
            "table": {name: column for name, column in COLUMNS.items() if len(column) == ROWS},
            "long": {"long": COLUMNS["long"]},
        }.items():
            path = folder / f"{name}_{version}.lance"
            table = pa.table(columns)
            with LanceFileWriter(str(path), table.schema, version=version) as writer:
                writer.write_batch(table)
            contents[f"{name} {version}"] = path.read_bytes()
    return contents


def open_counting(content: bytes) -> tuple[CountingStore, DataFileReader]:
    store = CountingStore()
    store.put("x", content)
    return store, DataFileReader.open(store, "x")


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_small_ranges_read_few_chunks(files, version):
    store, reader = open_counting(files[f"table {version}"])
    columns = reader.embedded_columns()
    for field in reader.schema.fields:
        reader.read([field], columns, 0, 1)  # what a page needs to be known is read once
        store.requests.clear()
        start = 123_456
        found = reader.read([field], columns, start, start + 20).column(0)
        assert_same_array(found, COLUMNS[field.name][start : start + 20])
        data_requests = [request for request in store.requests if request]
        # Of a page that is touched for the first time some more is asked for, to save a request.
        assert store.num_bytes < 128 << 10, field.name
        # Lists and strings may lie in a page that is touched for the first time.
        assert len(data_requests) <= 2, field.name
        store.requests.clear()
        reader.read([field], columns, start + 5, start + 9)
        assert len(store.requests) == 1, field.name


def test_full_zip_row_reads_its_own_bytes(files):
    store, reader = open_counting(files["long 2.1"])
    columns = reader.embedded_columns()
    (field,) = reader.schema.fields
    reader.read([field], columns, 0, 1)
    store.requests.clear()
    found = reader.read([field], columns, 500, 501).column(0)
    assert found.to_pylist() == COLUMNS["long"][500:501].to_pylist()
    assert store.num_bytes <= 400


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_scattered_rows_take_one_bulk_request(files, version):
    store, reader = open_counting(files[f"table {version}"])
    columns = reader.embedded_columns()
    fields = reader.schema.fields
    offsets = np.random.default_rng(1).permutation(ROWS)[:300]
    reader.take(fields, columns, offsets)
    store.requests.clear()
    taken = reader.take(fields, columns, offsets)
    assert len(store.requests) == 1
    for column, field in zip(taken.columns, fields, strict=True):
        assert_same_array(column, COLUMNS[field.name].take(pa.array(offsets)))


@pytest.mark.parametrize("version", ["2.1", "2.2"])
def test_scan_reads_each_byte_about_once(files, version):
    content = files[f"table {version}"]
    store, reader = open_counting(content)
    columns = reader.embedded_columns()
    fields = reader.schema.fields
    rows = 0
    for batch in reader.read_batches(fields, columns, batch_rows=10_000, batch_bytes=1 << 20):
        rows += batch.num_rows
        assert batch.nbytes < 4 << 20
    assert rows == ROWS
    # A chunk at the boundary of two windows is read for both.
    assert store.num_bytes < 1.25 * len(content)


def test_projection_reads_only_wanted_column(files):
    store, reader = open_counting(files["table 2.1"])
    field = next(field for field in reader.schema.fields if field.name == "packed")
    list(reader.read_batches([field], reader.embedded_columns()))
    places = [part for request in store.requests for part in request]
    pages = reader._file.metadata.column(reader.embedded_columns()[field.id]).pages
    own = [place for page in pages for place in page.buffers]
    assert all(any(o.start <= p.start and p.end <= o.end for o in own) for p in places)


def test_scan_batches_are_bounded_by_rows_and_bytes(files):
    _, reader = open_counting(files["table 2.1"])
    columns = reader.embedded_columns()
    fields = reader.schema.fields
    sizes = [batch.num_rows for batch in reader.read_batches(fields, columns, batch_rows=777)]
    assert max(sizes) <= 777
    assert sum(sizes) == ROWS
    for batch in reader.read_batches(fields, columns, batch_bytes=200_000):
        assert batch.nbytes < 1_000_000

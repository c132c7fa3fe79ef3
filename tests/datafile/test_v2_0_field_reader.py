from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance.file import LanceFileWriter
from v2_0_files import leaf_arrays, nested_arrays, open_fields, same_values, with_nulls

from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.datafile.file_metadata import FileMetadata
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.datafile.v2_0 import field_reader as v2_0_scattered_rows
from pyspark_lance.datafile.v2_0.field_reader import make_v2_0_field_reader, v2_0_columns
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.open_store import open_store

pytestmark = pytest.mark.interop

SIZES = (1, 17, 700)


def write_by_pylance(folder, columns: dict[str, pa.Array], metadata=None) -> None:
    schema = pa.schema(
        [
            pa.field(name, array.type, metadata=(metadata or {}).get(name))
            for name, array in columns.items()
        ]
    )
    with LanceFileWriter(str(folder / "x.lance"), schema, version="2.0") as writer:
        writer.write_batch(pa.record_batch(list(columns.values()), schema=schema))


def assert_reads(folder, columns: dict[str, pa.Array]) -> None:
    """Everything and random ranges, column by column."""
    _, readers = open_fields(open_store(str(folder)), "x.lance")
    rng = np.random.default_rng(3)
    for (name, expected), reader in zip(columns.items(), readers, strict=True):
        count = len(expected)
        found = reader.read(0, count)
        found.validate(full=True)
        assert found.type == expected.type, name
        assert same_values(found, expected), name
        assert reader.average_row_bytes() >= 1
        for _ in range(6):
            start, end = sorted(rng.integers(0, count + 1, 2).tolist())
            part = reader.read(start, end)
            part.validate(full=True)
            assert same_values(part, expected[start:end]), (name, start, end)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("share", [0, 0.2, 1])
def test_pylance_leaf_types_are_read(tmp_path, count, share):
    columns = {name: with_nulls(array, share) for name, array in leaf_arrays(count).items()}
    write_by_pylance(tmp_path, columns)
    assert_reads(tmp_path, columns)


@pytest.mark.parametrize("count", SIZES)
@pytest.mark.parametrize("share", [0, 0.2, 1])
def test_pylance_nested_types_are_read(tmp_path, count, share):
    columns = {
        name: array if pa.types.is_struct(array.type) else with_nulls(array, share)
        for name, array in nested_arrays(count).items()
    }
    write_by_pylance(tmp_path, columns)
    assert_reads(tmp_path, columns)


def test_pylance_2_0_requested_encodings_are_read(tmp_path):
    count = 500
    leaves = leaf_arrays(count)
    texts = pa.array([f"some text that repeats {number % 50}" * 5 for number in range(count)])
    columns = {
        "zstd_text": texts,
        "zstd_int": leaves["int64"],
        "lz4_int": leaves["int64"],
        "lz4_null": with_nulls(texts, 0.3),
        "fsst": texts,
        "fsst_null": with_nulls(texts, 0.3),
        "packed": pa.StructArray.from_arrays([leaves["int32"], leaves["vector"]], ["a", "v"]),
        "blob": with_nulls(
            pa.array([b"x" * (n % 50) for n in range(count)], pa.large_binary()), 0.2
        ),
    }
    compressions = {name: name.split("_")[0] for name in columns}
    metadata = {
        name: {"lance-encoding:compression": kind} for name, kind in compressions.items()
    } | {"packed": {"packed": "true"}, "blob": {"lance-encoding:blob": "true"}}
    write_by_pylance(tmp_path, columns, metadata)
    assert_reads(tmp_path, columns)


def test_packed_struct_children_are_read_selectively(tmp_path):
    leaves = leaf_arrays(50)
    packed = pa.StructArray.from_arrays([leaves["int32"], leaves["vector"]], ["a", "v"])
    write_by_pylance(tmp_path, {"p": packed}, {"p": {"packed": "true"}})
    metadata = FileMetadata.load(open_store(str(tmp_path)), "x.lance")
    file = OpenFile(open_store(str(tmp_path)), "x.lance", metadata)
    field = metadata.schema.fields[0]
    import dataclasses

    pruned = dataclasses.replace(field, children=field.children[1:])
    found = make_v2_0_field_reader(file, pruned, {field.id: 0}).read(7, 33)
    assert found.field("v").equals(leaves["vector"][7:33])
    assert found.type.num_fields == 1


def test_ranges_across_page_boundaries_are_read(tmp_path):
    schema = pa.schema([("s", pa.string()), ("l", pa.list_(pa.int64())), ("d", pa.string())])
    rng = np.random.default_rng(1)
    batches = []
    with LanceFileWriter(str(tmp_path / "x.lance"), schema, version="2.0") as writer:
        for _ in range(12):
            text = pa.array([rng.bytes(200).hex() for _ in range(3000)])
            offsets = np.concatenate([[0], np.cumsum(rng.integers(0, 120, 3000))])
            lists = pa.ListArray.from_arrays(
                pa.array(offsets, pa.int32()), pa.array(rng.integers(0, 1 << 60, offsets[-1]))
            )
            few = pa.array([f"{number % 9}" * 400 for number in range(3000)])
            batches.append(pa.record_batch([text, with_nulls(lists, 0.1), few], schema=schema))
            writer.write_batch(batches[-1])
    table = pa.Table.from_batches(batches).combine_chunks()
    file, readers = open_fields(open_store(str(tmp_path)), "x.lance")
    pages = [len(file.metadata.column(index).pages) for index in range(file.metadata.num_columns)]
    assert min(pages[0], pages[2]) > 1
    for name, reader in zip(table.column_names, readers, strict=True):
        expected = table.column(name).chunk(0)
        for start, end in [(0, len(expected)), *np.sort(rng.integers(0, 36_000, (10, 2))).tolist()]:
            assert reader.read(start, end).equals(expected[start:end]), (name, start, end)
        for share in (0.0005, 0.1):
            rows = scattered(len(expected), share, 2)
            found = pa.concat_arrays(reader.read_arrays(rows))
            assert found.equals(expected.take(pa.array(rows.to_positions()))), (name, share)


def test_flat_values_are_views_of_mapped_file(tmp_path):
    values = pa.array(np.arange(100_000))
    write_by_pylance(tmp_path, {"v": values, "f": leaf_arrays(100_000)["vector"]})
    _, readers = open_fields(open_store(str(tmp_path)), "x.lance")
    before = pa.total_allocated_bytes()
    kept = [reader.read(1000, 90_000) for reader in readers]
    assert pa.total_allocated_bytes() - before < 10_000
    assert kept[0].equals(values[1000:90_000])


def test_pylance_dataset_is_read_by_manifest(tmp_path):
    columns = nested_arrays(300) | leaf_arrays(300)
    table = pa.table(columns)
    dataset = lance.write_dataset(table, str(tmp_path / "t"), data_storage_version="2.0")
    data_file = dataset.get_fragments()[0].metadata.files[0]
    store = open_store(str(tmp_path / "t"))
    path = f"data/{data_file.path}"
    metadata = FileMetadata.load(store, path)
    file = OpenFile(store, path, metadata)
    column_of = dict(zip(data_file.fields, data_file.column_indices, strict=True))
    assert column_of == v2_0_columns(file, metadata.schema.fields)
    for field in metadata.schema.fields:
        found = make_v2_0_field_reader(file, field, column_of).read(100, 200)
        assert same_values(found, columns[field.name][100:200]), field.name


def test_file_without_rows_has_empty_arrays(tmp_path):
    columns = {name: array[:0] for name, array in (leaf_arrays(5) | nested_arrays(5)).items()}
    write_by_pylance(tmp_path, columns)
    assert_reads(tmp_path, columns)


def test_range_beyond_last_row_is_corrupt(tmp_path):
    write_by_pylance(tmp_path, {"v": pa.array([1, 2, 3])})
    _, (reader,) = open_fields(open_store(str(tmp_path)), "x.lance")
    with pytest.raises(CorruptFileError, match="3 values, 4 are expected"):
        reader.read(1, 4)


def test_small_range_requests_few_bytes(tmp_path):
    columns = {
        "v": pa.array(np.arange(100_000)),
        "s": pa.array([f"{n}" * 9 for n in range(100_000)]),
    }
    columns["l"] = pa.ListArray.from_arrays(pa.array(range(100_001), pa.int32()), columns["v"])
    write_by_pylance(tmp_path, columns)
    _, readers = open_fields(open_store(str(tmp_path)), "x.lance")
    for reader in readers:
        assert sum(place.num_bytes for place in reader.byte_ranges(500, 510)) < 500
        assert sum(place.num_bytes for place in reader.byte_ranges(0, 100_000)) >= 800_000


def scattered(count: int, share: float, seed: int) -> RowRanges:
    rng = np.random.default_rng(seed)
    return RowRanges.of_offsets(np.flatnonzero(rng.random(count) < share))


@pytest.mark.parametrize("share", [0.002, 0.05, 0.7, 1])
@pytest.mark.parametrize("gap_bytes", [0, 64 * 1024])
def test_scattered_rows_are_read_in_order(tmp_path, monkeypatch, share, gap_bytes):
    monkeypatch.setattr(v2_0_scattered_rows, "_MAX_GAP_BYTES", gap_bytes)
    columns = leaf_arrays(700) | nested_arrays(700)
    columns = {
        name: array if pa.types.is_struct(array.type) else with_nulls(array, 0.2)
        for name, array in columns.items()
    }
    write_by_pylance(tmp_path, columns)
    content = (tmp_path / "x.lance").read_bytes()
    memory = MemoryStore()
    memory.put("x.lance", content)
    rows = scattered(700, share, 11)
    for store in (open_store(str(tmp_path)), memory):
        _, readers = open_fields(store, "x.lance")
        for (name, expected), reader in zip(columns.items(), readers, strict=True):
            arrays = reader.read_arrays(rows)
            found = [value for array in arrays for value in array.to_pylist()]
            assert found == [expected[row].as_py() for row in rows.to_positions().tolist()], name


class RecordingStore(MemoryStore):
    """Remembers the ranges of every request."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[list[tuple[int, int]]] = []

    def get_ranges(self, path, ranges):
        self.requests.append(list(ranges))
        return [super(RecordingStore, self).get_range(path, *place) for place in ranges]

    def get_range(self, path, start, end):
        self.requests.append([(start, end)])
        return super().get_range(path, start, end)


def test_remote_scan_prefetches_and_reads_bytes_about_once(tmp_path):
    count = 40_000
    columns = {name: leaf_arrays(count)[name] for name in ("int64", "string", "vector", "bool")}
    offsets = np.arange(0, 2 * count + 1, 2, dtype=np.int32)
    columns["lists"] = pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.arange(2 * count)))
    write_by_pylance(tmp_path, columns)
    store = RecordingStore()
    store.put("x.lance", (tmp_path / "x.lance").read_bytes())
    reader = DataFileReader.open(store, "x.lance")
    fields = reader.schema.fields
    store.requests.clear()
    batches = list(reader.read_batches(fields, reader.embedded_columns(), batch_bytes=1 << 20))
    assert pa.Table.from_batches(batches).to_pydict() == pa.table(columns).to_pydict()
    windows = len(batches)
    # One for the offsets of strings and lists, one for everything else.
    assert 3 < len(store.requests) <= 2 * windows + 2
    num_bytes = sum(end - start for request in store.requests for start, end in request)
    assert num_bytes < 1.05 * store.size("x.lance")


def test_unaligned_values_are_copied(tmp_path):
    write_by_pylance(tmp_path, {"v": pa.array([1, 2, 3]), "s": pa.array(["x", "yy", "z"])})
    content = (tmp_path / "x.lance").read_bytes()

    class ShiftedStore(MemoryStore):
        def get_ranges(self, path, ranges):
            return [memoryview(b"\0" + bytes(self.get_range(path, *place)))[1:] for place in ranges]

    store = ShiftedStore()
    store.put("x.lance", content)
    _, (numbers, texts) = open_fields(store, "x.lance")
    found = numbers.read(0, 3)
    assert found.buffers()[1].address % 8 == 0
    assert found.to_pylist() == [1, 2, 3]
    assert texts.read(1, 3).to_pylist() == ["yy", "z"]

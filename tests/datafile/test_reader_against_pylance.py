"""Files of pylance in 2.1 and 2.2: every type, by scan, by range and by offset."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from column_cases import column_cases, lists_of, with_nulls
from pylance_files import OneColumn, assert_all_ways_of_reading, write_with_pylance
from random_seeds import grid

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.local_store import LocalStore

pytestmark = pytest.mark.interop

VERSIONS = ("2.1", "2.2")
SIZES = (10, 1024)
PREFIX = "lance-encoding:"


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("nulls", [0, 0.1])
def test_pylance_columns_of_every_type_are_read(tmp_path, version, size, nulls):
    refused = set()
    for name, column in column_cases(size).items():
        expected = with_nulls(column, nulls)
        path = tmp_path / f"{name}.lance"
        if write_with_pylance(path, expected, version):
            assert_all_ways_of_reading(OneColumn.of_file(path), expected)
        else:
            refused.add(name)
    assert refused == ({"map", "vector_struct"} if version == "2.1" else set())


_CHUNKED = (
    "int64_small", "string_many", "string_few", "list", "list_string", "list_list", "bool",
    "vector_item_nulls", "struct_list", "int64_runs", "dictionary_int8",
)  # fmt: skip


@pytest.mark.parametrize(("version", "name"), grid(VERSIONS, _CHUNKED))
def test_columns_with_many_chunks_and_pages_are_read(tmp_path, version, name):
    expected = with_nulls(column_cases(10_000)[name], 0.05)
    path = tmp_path / "x.lance"
    assert write_with_pylance(path, expected, version)
    assert_all_ways_of_reading(OneColumn.of_file(path), expected)


REQUESTS = {
    "zstd": {"compression": "zstd"},
    "lz4": {"compression": "lz4"},
    "none": {"compression": "none"},
    "fsst": {"compression": "fsst"},
    "split": {"compression": "zstd", "bss": "on"},
    "miniblock": {"structural-encoding": "miniblock"},
    "fullzip": {"structural-encoding": "fullzip"},
    "fullzip_zstd": {"structural-encoding": "fullzip", "compression": "zstd"},
    "fullzip_fsst": {"structural-encoding": "fullzip", "compression": "fsst"},
}
REQUESTED_TYPES = [
    "int64_any", "int64_small", "int64_runs", "float32", "float64", "bool", "string_many",
    "string_few", "string_unusual", "large_string_many", "string_300", "binary", "decimal128",
    "fixed_binary_7", "vector_4", "vector_item_nulls", "vector_vector", "list", "list_string",
    "list_list", "struct_list", "list_struct_list", "dictionary_string",
]  # fmt: skip


@pytest.mark.parametrize(("version", "request_name"), grid(VERSIONS, tuple(REQUESTS)))
def test_pylance_requested_encodings_are_read(tmp_path, version, request_name):
    metadata = {PREFIX + key: value for key, value in REQUESTS[request_name].items()}
    cases = column_cases(1024)
    read = 0
    for name in REQUESTED_TYPES:
        expected = with_nulls(cases[name], 0.1)
        path = tmp_path / f"{name}.lance"
        if write_with_pylance(path, expected, version, metadata):
            assert_all_ways_of_reading(OneColumn.of_file(path), expected)
            read += 1
    assert read > 15


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [10, 1024])
def test_packed_structs_are_read_whole_and_in_part(tmp_path, version, size):
    cases = column_cases(size)
    metadata = {PREFIX + "packed": "true"}
    fixed = pa.StructArray.from_arrays(
        [cases["int32_small"], cases["float64"], cases["fixed_binary_7"]], ["a", "b", "c"]
    )
    variable = pa.StructArray.from_arrays(
        [cases["int32_small"], cases["string_many"], cases["vector_4"], cases["string_tiny"]],
        ["a", "b", "c", "d"],
    )
    read = []
    for name, expected in (("fixed", fixed), ("variable", variable)):
        path = tmp_path / f"{name}.lance"
        if not write_with_pylance(path, expected, version, metadata):
            continue
        read.append(name)
        file = OneColumn.of_file(path)
        assert len(file.columns) == 1
        assert_all_ways_of_reading(file, expected)
        last = expected.type.num_fields - 1
        part = file.fields[0]
        part = type(part)(
            part.id, part.name, part.logical_type, part.nullable, (part.children[last],)
        )
        found = file.reader.read([part], file.columns, 2, 7).column(0)
        assert found.field(0).equals(expected.field(last)[2:7])
    assert read == (["fixed"] if version == "2.1" else ["fixed", "variable"])


@pytest.mark.parametrize("version", VERSIONS)
def test_blobs_are_read_through_file(tmp_path, version):
    rng = np.random.default_rng(0)
    values = [rng.bytes(int(size)) for size in rng.integers(0, 20_000, 150)]
    expected = with_nulls(pa.array([b"", *values], pa.large_binary()), 0.2)
    path = tmp_path / "x.lance"
    assert write_with_pylance(path, expected, version, {PREFIX + "blob": "true"})
    assert_all_ways_of_reading(OneColumn.of_file(path), expected)


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_spanning_many_chunks_are_read(tmp_path, version):
    lengths = (0, 5, 30_000, 3, 0, 20_000, 1)
    numbers = pa.array([list(range(length)) for length in lengths], pa.list_(pa.int64()))
    texts = pa.array([["x" * 300] * (length // 10) for length in lengths])
    nested = pa.array([[[1, 2]] * (length // 2) + [[], None] for length in lengths])
    for name, expected in (("numbers", numbers), ("texts", texts), ("nested", nested)):
        path = tmp_path / f"{name}.lance"
        assert write_with_pylance(path, expected, version)
        file = OneColumn.of_file(path)
        assert_all_ways_of_reading(file, expected)
        for row in range(len(lengths)):
            assert file.read(row, row + 1).to_pylist() == expected[row : row + 1].to_pylist()


@pytest.mark.parametrize("version", VERSIONS)
def test_table_of_all_types_is_projected(tmp_path, version):
    import lance
    from column_cases import nested, numbers, texts

    columns = {}
    for make in (numbers, texts, nested):
        columns.update(make(900, np.random.default_rng(1)))
    columns = {
        name: with_nulls(column, 0.1)
        for name, column in columns.items()
        if len(column) == 900 and (name != "map" or version != "2.1")
    }
    table = pa.table(columns)
    dataset = lance.write_dataset(table, str(tmp_path / "t"), data_storage_version=version)
    (fragment,) = dataset.get_fragments()
    (data_file,) = fragment.data_files()
    mapping = dict(zip(data_file.fields, data_file.column_indices, strict=True))
    reader = DataFileReader.open(LocalStore(str(tmp_path / "t" / "data")), data_file.path)
    assert reader.embedded_columns() == mapping
    fields = [reader.schema.fields[index] for index in (40, 3, 20, 11, len(columns) - 1)]
    found = pa.Table.from_batches(list(reader.read_batches(fields, mapping, batch_rows=123)))
    names = [field.name for field in fields]
    assert found.column_names == names
    assert found.to_pylist() == table.select(names).to_pylist()
    offsets = [800, 3, 3, 0, 899]
    taken = reader.take(fields, mapping, np.array(offsets))
    assert taken.to_pylist() == table.select(names).take(offsets).to_pylist()


def test_ranges_are_read_in_order(tmp_path):
    expected = with_nulls(lists_of(pa.array(range(1000)), 9000, 0, 4), 0.1)
    path = tmp_path / "x.lance"
    assert write_with_pylance(path, expected, "2.1")
    file = OneColumn.of_file(path)
    ranges = [(5, 9), (9, 9), (9, 10), (100, 3000), (8999, 9000)]
    found = [row for part in file.scan(ranges=ranges, batch_rows=700) for row in part.to_pylist()]
    assert found == [row for a, b in ranges for row in expected[a:b].to_pylist()]

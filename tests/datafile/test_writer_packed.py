"""Packed structs: one column for all fields, in every version, alone and in lists."""

from __future__ import annotations

import lance
import numpy as np
import pyarrow as pa
import pytest
from data_file_writing import as_dataset, assert_pylance_reads, write_table
from same_text import assert_same_text, rows_at

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

pytestmark = pytest.mark.interop

RNG = np.random.default_rng(11)
PACKED = {"lance-encoding:packed": "true"}


def fixed_structs(count: int) -> pa.Array:
    return pa.StructArray.from_arrays(
        [
            pa.array(RNG.integers(-1000, 1000, count)),
            pa.array(RNG.standard_normal(count).astype("f4")),
            pa.array(RNG.integers(0, 99, count)).cast(pa.decimal128(30, 2)),
            pa.array([RNG.bytes(3) for _ in range(count)], pa.binary(3)),
            pa.array(RNG.integers(0, 9, count), pa.timestamp("us")),
        ],
        ["a", "b", "d", "f", "t"],
    )


def vector_structs(count: int, dimension: int = 4) -> pa.Array:
    vectors = pa.FixedSizeListArray.from_arrays(
        pa.array(RNG.standard_normal(count * dimension)), dimension
    )
    return pa.StructArray.from_arrays(
        [pa.array(RNG.integers(0, 9, count), pa.int16()), vectors], ["a", "v"]
    )


def string_structs(count: int) -> pa.Array:
    text = pa.array([f"the text of row {n} " * (n % 5) for n in range(count)])
    return pa.StructArray.from_arrays(
        [
            pa.array(np.arange(count)),
            text,
            text.cast(pa.large_binary()),
            vector_structs(count).field("v"),
        ],
        ["i", "s", "b", "v"],
    )


def with_null_rows(array: pa.Array) -> pa.Array:
    children = [array.field(index) for index in range(array.type.num_fields)]
    mask = pa.array(np.arange(len(array)) % 4 == 2)
    return pa.StructArray.from_arrays(children, [f.name for f in array.type], mask=mask)


def in_lists(array: pa.Array) -> pa.Array:
    kind = pa.list_(pa.field("item", array.type, metadata=PACKED))
    return pa.array([array[n : n + n % 4].to_pylist() if n % 7 else None for n in range(300)], kind)


def packed_table(**arrays: pa.Array) -> pa.Table:
    fields = [pa.field(name, array.type, metadata=PACKED) for name, array in arrays.items()]
    return pa.table(list(arrays.values()), schema=pa.schema(fields))


def assert_both_read(folder, table: pa.Table, version: str, **options) -> None:
    write_table(folder, table, version, **options)
    assert_pylance_reads(folder, table)
    reader = DataFileReader.open(open_store(str(folder)), "data/x.lance")
    fields, columns = reader.schema.fields, reader.embedded_columns()
    batches = list(reader.read_batches(fields, columns))
    assert_same_text(pa.Table.from_batches(batches), table)
    rows = RNG.integers(0, len(table), 20)
    assert_same_text(reader.take(fields, columns, rows), rows_at(table, rows.tolist()))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("count", [1, 1500])
def test_fixed_width_structs_are_packed(tmp_path, version, count):
    structs = fixed_structs(count)
    table = packed_table(c=structs)
    assert_both_read(tmp_path, table, version, batch_rows=700)
    reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
    assert reader.num_columns == 1
    if version != "2.0":
        assert_both_read(tmp_path, packed_table(c=with_null_rows(structs)), version)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_packed_structs_in_lists_round_trip(tmp_path, version):
    assert_both_read(tmp_path, pa.table({"l": in_lists(fixed_structs(400))}), version)


@pytest.mark.parametrize("version", ["2.0", "2.2"])
@pytest.mark.parametrize("dimension", [4, 200])
def test_vectors_are_packed(tmp_path, version, dimension):
    structs = vector_structs(900, dimension)
    assert_both_read(tmp_path, packed_table(c=structs), version, batch_rows=400)
    if version == "2.2":
        assert_both_read(tmp_path, packed_table(c=with_null_rows(structs)), version)


def test_strings_are_packed_in_2_2(tmp_path):
    structs = string_structs(3000)
    table = packed_table(c=structs, n=with_null_rows(structs), s=structs)
    assert_both_read(tmp_path, table, "2.2", batch_rows=1300)
    assert_both_read(tmp_path, packed_table(c=structs[17:60]), "2.2")
    assert_both_read(tmp_path, pa.table({"l": in_lists(string_structs(310))}), "2.2")


def test_packed_structs_can_be_created_and_appended(tmp_path):
    table = packed_table(c=string_structs(40), f=fixed_structs(40))
    uri = str(tmp_path / "t")
    for _ in range(2):
        plan = plan_write(
            Table(uri), table.schema, WriteSettings(), existing=open_existing(Table(uri))
        )
        commit_write(plan, write_rows(plan, table.to_batches()))
    dataset = lance.dataset(uri)
    assert dataset.data_storage_version == "2.2"
    assert dataset.to_table().to_pylist() == table.to_pylist() * 2
    lance.write_dataset(table, uri, mode="append")
    tasks = plan_scan(Snapshot.open(Table(uri)), ScanRequest())
    found = [batch for task in tasks for batch in task.run()]
    assert pa.Table.from_batches(found).to_pylist() == table.to_pylist() * 3


def test_packed_struct_is_one_column_of_data_file(tmp_path):
    table = packed_table(c=fixed_structs(50)).append_column("x", pa.array(range(50)))
    data_file = write_table(tmp_path, table, "2.1")
    assert data_file.fields == (0, 6)
    assert data_file.column_indices == (0, 1)
    dataset = as_dataset(tmp_path, table, data_file)
    assert dataset.to_table().to_pylist() == table.to_pylist()


@pytest.mark.parametrize(
    ("array", "version", "message"),
    [
        (vector_structs(3), "2.1", "version 2.1, only of 2.0 and 2.2"),
        (string_structs(3), "2.1", "need file version 2.2"),
        (string_structs(3), "2.0", "need file version 2.2"),
        (pa.array([{"a": True}]), "2.2", "fields of type bool"),
        (pa.array([{"a": {"b": 1}}]), "2.2", "fields of type struct"),
        (pa.array([{"a": [1]}]), "2.2", "fields of type list"),
        (with_null_rows(fixed_structs(9)), "2.0", "a null struct"),
        (pa.array([{"a": 1}, {"a": None}]), "2.0", "a of a packed struct is null"),
        (pa.array([{"a": 1}, {"a": None}]), "2.1", "a of a packed struct is null"),
        (pa.array([{"a": "x"}, {"a": None}]), "2.2", "a of a packed struct is null"),
    ],
)
def test_unpackable_struct_error_names_column(tmp_path, array, version, message):
    with pytest.raises(UnsupportedFeatureError, match=message) as error:
        write_table(tmp_path, packed_table(c=array), version)
    assert "column c" in str(error.value)


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("rows", [[], [[]], [[], None]])
def test_empty_packed_structs_round_trip(tmp_path, version, rows):
    members = [("a", pa.int32()), ("f", pa.binary(3))]
    if version != "2.1":
        members.append(("v", pa.list_(pa.float32(), 3)))
    lists = pa.list_(pa.field("item", pa.struct(members), metadata=PACKED))
    table = pa.table({"c": pa.array(rows, lists)})
    write_table(tmp_path, table, version)
    assert_pylance_reads(tmp_path, table)
    reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
    columns = reader.embedded_columns()
    assert len(columns) == (2 if version == "2.0" else 1)
    found = reader.read(reader.schema.fields, columns, 0, len(rows))
    assert found.column(0).to_pylist() == rows


def test_null_vector_items_in_packed_structs_need_2_2(tmp_path):
    rows = [{"a": 1, "v": [1, None]}, None, {"a": 2, "v": [None, None]}, {"a": 3, "v": [5, 6]}]
    kind = pa.struct([("a", pa.int32()), ("v", pa.list_(pa.float32(), 2))])
    table = packed_table(c=pa.array(rows * 50, kind))
    write_table(tmp_path, table, "2.2")
    assert_pylance_reads(tmp_path, table)
    reader = DataFileReader.open(open_store(str(tmp_path)), "data/x.lance")
    found = reader.read(reader.schema.fields, reader.embedded_columns(), 3, 150)
    assert found.column(0).to_pylist() == (rows * 50)[3:150]
    with pytest.raises(UnsupportedFeatureError, match="the field v of a packed struct is null"):
        write_table(tmp_path, packed_table(c=pa.array(rows[2:3], kind)), "2.0")
    with pytest.raises(UnsupportedFeatureError, match="the field v of a packed struct is null"):
        write_table(tmp_path, packed_table(c=pa.array([{"a": 1}], kind)), "2.2")

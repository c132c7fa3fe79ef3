"""Columns in change feeds: followed at every depth, through types, restores and lost versions."""

import lance
import pyarrow as pa
import pytest
from local_changes import delete_rows
from table_access import append, forget_transactions, read_changes, remove_versions, write_table

from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.table.columns.change_columns import copy_column, widen_column
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def newest(path: str) -> int:
    return Snapshot.open(Table(path)).version


def changes(path: str, start: int, mode: str = "dropCarryovers") -> list[dict[str, object]]:
    """Changes up to the newest version, without the columns of the feed but kind and version."""
    rows = read_changes(path, start, newest(path), mode).to_pylist()
    for row in rows:
        del row["_rowid"], row["_commit_timestamp"]
    return rows


KINDS = {"int": (pa.int32(), 77), "string": (pa.string(), "new"), "list": (pa.list_(pa.int8()), [])}


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
@pytest.mark.parametrize("kind", list(KINDS))
def test_added_member_takes_no_values_of_dropped_one(path, version, kind):
    old = pa.table({"id": [1], "s": [{"a": 1, "c": 5}]})
    write_table(path, old, file_version=version)
    lance.dataset(path).drop_columns(["s.c"])
    delete_rows(path, "true")
    data_type, value = KINDS[kind]
    new = pa.struct([("a", pa.int64()), ("d", data_type)])
    added = pa.table({"id": [2], "s": pa.array([{"a": 2, "d": value}], new)})
    write_table(path, added, merge_schema=True)
    schemas = [Snapshot.open(Table(path), VersionSpec(version=n)).schema for n in (1, newest(path))]
    assert [schema.field_by_id(3).name for schema in schemas] == ["c", "d"]
    assert [row["s"] for row in changes(path, 1)] == [
        {"a": 1, "d": None},
        {"a": 1, "d": None},
        {"a": 2, "d": value},
    ]


def nested(member: str, kind: pa.DataType, value: object) -> pa.Table:
    """One row of structs with the members ``a`` and ``member``, in lists and in a map."""
    item = pa.struct([("a", pa.int64()), (member, kind)])
    row = {"l": [{"a": 1, member: value}, None]}
    kinds = pa.schema(
        [
            ("m", pa.map_(pa.string(), pa.struct([("l", pa.list_(item))]))),
            ("l", pa.large_list(item)),
            ("f", pa.list_(item, 1)),
        ]
    )
    one = [{"a": 3, member: value}]
    return pa.table({"m": [[("k", row), ("n", None)]], "l": [one], "f": [one]}, kinds)


def test_members_of_lists_and_maps_are_followed(path):
    write_table(path, nested("c", pa.int64(), 5), file_version="2.2")
    write_table(path, nested("d", pa.string(), "x"), overwrite=True)
    for row in changes(path, 1):
        value = "x" if row["_commit_version"] == 2 and row["_change_type"] == "insert" else None
        expected = nested("d", pa.string(), value).to_pylist()[0]
        assert {name: row[name] for name in expected} == expected


def test_struct_members_keep_values_after_rename_and_cast(path):
    rows = pa.table({"id": [1, 2], "s": [{"a": 1, "b": "x"}, {"a": 2**40, "b": None}]})
    write_table(path, rows)
    lance.dataset(path).alter_columns({"path": "s.a", "name": "first"})
    delete_rows(path, "id = 2")
    lance.dataset(path).alter_columns({"path": "s.first", "data_type": pa.int32()})
    assert [row["s"] for row in changes(path, 1)] == [
        {"first": 1, "b": "x"},
        {"first": None, "b": None},
        {"first": None, "b": None},
    ]


def test_narrowing_cast_nulls_only_unfitting_value(path):
    write_table(path, pa.table({"id": [1, 2, 3], "n": [5, 2**40, 7]}))
    delete_rows(path, "id = 2")
    lance.dataset(path).alter_columns({"path": "n", "data_type": pa.int32()})
    found = changes(path, 1)
    assert [(row["id"], row["n"]) for row in found] == [(1, 5), (2, None), (3, 7), (2, None)]
    assert changes(path, 2, "netChanges")[0]["n"] is None


def test_nested_narrowing_casts_null_only_unfitting_values(path):
    kinds = pa.map_(pa.string(), pa.int64())
    rows = {
        "id": [1, 2],
        "l": pa.array([[1, 2**40], [3]], pa.list_(pa.int64())),
        "t": ["12", "twelve"],
        "m": pa.array([[("a", 1)], [("b", 2**40)]], kinds),
    }
    write_table(path, pa.table(rows), file_version="2.2")
    narrow = pa.schema(
        [("id", pa.int64()), ("l", pa.list_(pa.int8())), ("t", pa.int16()),
         ("m", pa.map_(pa.string(), pa.int8()))]
    )  # fmt: skip
    write_table(path, narrow.empty_table(), overwrite=True)
    gone = [row for row in changes(path, 2) if row["_change_type"] == "delete"]
    assert [(row["l"], row["t"], row["m"]) for row in gone] == [
        ([1, None], 12, [("a", 1)]),
        ([3], None, [("b", None)]),
    ]


def test_dropped_restored_and_widened_column_is_unchanged(path):
    write_table(path, pa.table({"id": [1, 2], "x": pa.array([5, None], pa.int16())}))
    lance.dataset(path).drop_columns(["x"])
    lance.dataset(path, version=1).restore()
    widen_column(Table(path), "x", pa.int32(), copy_column("x"))
    assert changes(path, 2, "netChanges") == []
    shown = [(row["_commit_version"], row["_change_type"], row["x"]) for row in changes(path, 2)]
    assert shown == [
        (2, "update_preimage", 5),
        (2, "update_postimage", None),
        (3, "update_preimage", None),
        (3, "update_postimage", 5),
    ]


def test_column_after_restore_is_original_column(path):
    write_table(path, pa.table({"id": [1, 2], "x": [5, 6]}))
    lance.dataset(path).drop_columns(["x"])
    lance.dataset(path).add_columns({"x": "id * 10"})
    lance.dataset(path, version=1).restore()
    assert changes(path, 2, "netChanges") == []
    shown = [(row["_commit_version"], row["x"]) for row in changes(path, 2)]
    assert shown == [(2, 5), (2, 6), (2, None), (2, None), (4, None), (4, None), (4, 5), (4, 6)]


@pytest.mark.parametrize("first", [1, 2])
def test_renamed_columns_keep_values_with_transaction_files(path, first):
    append(path, 0)
    lance.dataset(path).update({"id": "id + 10"}, where="id = 1")
    lance.dataset(path).alter_columns({"path": "id", "name": "key"})
    delete_rows(path, "key = 11")
    forget_transactions(path, keep_files=True)
    shown = [(row["_change_type"], row["key"]) for row in changes(path, first)]
    expected = [("update_preimage", 1), ("update_postimage", 11), ("delete", 11)]
    inserted = [("insert", 0), ("insert", 1), ("insert", 2)]
    assert shown == [*(inserted if first == 1 else []), *expected]


def test_renamed_columns_keep_values_without_transactions(path):
    write_table(path, pa.table({"id": [1, 2, 3], "s": [{"a": 1}] * 3}))
    dataset = lance.dataset(path)
    dataset.alter_columns({"path": "id", "name": "key"})
    dataset.alter_columns({"path": "s.a", "name": "b"})
    delete_rows(path, "key = 2")
    forget_transactions(path, keep_files=False)
    assert [(row["key"], row["s"]) for row in changes(path, 2)] == [(2, {"b": 1})]
    assert [row["key"] for row in changes(path, 1)] == [1, 2, 3, 2]


@pytest.mark.parametrize("rewritten", [False, True])
def test_renamed_columns_keep_values_across_removed_versions(path, rewritten):
    write_table(path, pa.table({"id": [1, 2, 3], "x": [5, 6, 7], "y": [1, 1, 1]}))
    lance.dataset(path).alter_columns({"path": "x", "name": "z"})
    if rewritten:  # then no data file of the old version is left
        lance.dataset(path).update({"z": "z + 1"}, where="true")
        lance.dataset(path).optimize.compact_files()
    delete_rows(path, "id = 2")
    last = newest(path)
    remove_versions(path, range(2, last))
    gone = [row["z"] for row in changes(path, 2) if row["_change_type"] == "delete"]
    assert gone == [6]


def test_reused_field_id_shows_no_old_values(path):
    write_table(path, pa.table({"id": [1, 2], "x": [5, 6]}))
    lance.dataset(path).drop_columns(["x"])
    lance.dataset(path).optimize.compact_files()
    lance.dataset(path).add_columns({"y": "id * 10"})
    last = newest(path)
    remove_versions(path, range(2, last))
    found = changes(path, 2)
    assert {(row["_change_type"], row["y"]) for row in found} == {
        ("update_preimage", None), ("update_postimage", 10), ("update_postimage", 20),
    }  # fmt: skip


def test_blob_bytes_are_shown_after_column_id_changes(path):
    blob = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    write_table(path, pa.table({"b": [b"old"]}, schema=pa.schema([blob])))
    schema = pa.schema([("id", pa.int64()), blob])
    write_table(path, pa.table({"id": [1], "b": [b"new"]}, schema=schema), overwrite=True)
    columns = logical_schema(Snapshot.open(Table(path)).schema, binary_blobs={"b"}).fields
    found = read_changes(path, 1, 2, "dropCarryovers", columns=columns, shown=columns)
    assert found["b"].to_pylist() == [b"old", b"old", b"new"]

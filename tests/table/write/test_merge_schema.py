"""mergeSchema: an append that brings new columns, in one version, against pylance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import lance
import pyarrow as pa
import pytest
from commit_tables import commit
from table_access import LINEAGE, assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.errors import InvalidInputError, RetryableCommitError, SchemaMismatchError
from pyspark_lance.format.operation import Append, Merge, ReserveFragments
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.table.columns.schema_change import merge_schemas
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t.lance")


def ids(*values):
    return pa.array(values, pa.int64())


def planned(path, table, **settings):
    plan = plan_write(
        Table(path), table.schema, WriteSettings(**settings), existing=open_existing(Table(path))
    )
    return plan, write_rows(plan, table.to_batches())


def by_id(path):
    rows = read_ours(path, system_columns=()).to_pylist()
    return sorted(rows, key=lambda row: row["id"])


def check_both(path):
    lance.dataset(path).validate()
    assert_same_rows(read_ours(path), read_pylance(path))


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_merge_schema_adds_null_columns(path, version):
    write_table(path, pa.table({"id": ids(1, 2)}), file_version=version, max_rows_per_file=1)
    before = read_pylance(path)
    extra = pa.table({"tags": [["x"], None], "id": ids(3, 4), "name": ["c", "d"]})
    result = write_table(path, extra, merge_schema=True)
    assert result.version == 2
    assert lance.dataset(path).schema.names == ["id", "tags", "name"]
    assert by_id(path) == [
        {"id": 1, "tags": None, "name": None},
        {"id": 2, "tags": None, "name": None},
        {"id": 3, "tags": ["x"], "name": "c"},
        {"id": 4, "tags": None, "name": "d"},
    ]
    check_both(path)
    after = read_pylance(path).select(["id", *LINEAGE])
    assert after.slice(0, 2).equals(before.select(["id", *LINEAGE]))
    assert (
        after.slice(2).select(LINEAGE[2:]).to_pylist()
        == [{"_row_created_at_version": 2, "_row_last_updated_at_version": 2}] * 2
    )
    assert after["_rowid"].to_pylist() == [0, 1, 2, 3]
    # pylance goes on: its own conflict checks and compaction understand what we made.
    dataset = lance.dataset(path)
    dataset.update({"name": "'u'"}, where="id = 1")
    dataset.optimize.compact_files()
    assert by_id(path)[0] == {"id": 1, "tags": None, "name": "u"}
    check_both(path)


def test_new_struct_fields_follow_old_ones(path):
    inner = pa.struct([("a", pa.int32())])
    write_table(path, pa.table({"id": ids(1), "s": pa.array([{"a": 1}], inner)}))
    wider = pa.struct([("b", pa.struct([("c", pa.string())])), ("a", pa.int32())])
    rows = pa.table({"id": ids(2, 3), "s": pa.array([{"a": 2, "b": {"c": "x"}}, None], wider)})
    write_table(path, rows, merge_schema=True)
    assert [row["s"] for row in by_id(path)] == [
        {"a": 1, "b": None},
        {"a": 2, "b": {"c": "x"}},
        None,
    ]
    check_both(path)
    assert [one.name for one in Snapshot.open(Table(path)).schema.walk()] == [
        "id",
        "s",
        "a",
        "b",
        "c",
    ]


def test_empty_append_adds_columns(path):
    write_table(path, pa.table({"id": ids(1)}))
    empty = pa.schema([("id", pa.int64()), ("x", pa.float32())]).empty_table()
    assert write_table(path, empty, merge_schema=True).version == 2
    assert write_table(path, empty, merge_schema=True) is None
    assert by_id(path) == [{"id": 1, "x": None}]
    check_both(path)


def test_merge_schema_without_new_columns_is_plain_append(path):
    write_table(path, pa.table({"id": ids(1), "x": ["a"]}))
    write_table(path, pa.table({"id": ids(2)}), merge_schema=True)
    transaction = Snapshot.open(Table(path)).file.transaction()
    assert isinstance(transaction.operation, Append)
    check_both(path)


def test_type_changes_are_refused_with_hint(path):
    write_table(path, pa.table({"id": pa.array([1], pa.int32()), "x": ["a"]}))
    # What fits is converted, as for any append.
    write_table(path, pa.table({"id": ids(2), "new": ids(5)}), merge_schema=True)
    assert Snapshot.open(Table(path)).schema.field("id").logical_type == "int32"
    with pytest.raises(SchemaMismatchError, match="fit the table's int: "):
        write_table(path, pa.table({"id": ids(2**40)}), merge_schema=True)
    with pytest.raises(SchemaMismatchError, match="changeColumn"):
        write_table(path, pa.table({"id": ids(3), "x": ids(3)}), merge_schema=True)
    with pytest.raises(SchemaMismatchError, match="does not have"):
        write_table(path, pa.table({"id": ids(3), "y": ids(3)}))


def test_overwrite_merges_schema_on_request(path):
    write_table(path, pa.table({"id": ids(1), "x": ["a"]}))
    write_table(path, pa.table({"id": ids(2), "y": [1.5]}), overwrite=True, merge_schema=True)
    assert by_id(path) == [{"id": 2, "x": None, "y": 1.5}]
    check_both(path)
    with pytest.raises(InvalidInputError, match="contradict"):
        WriteSettings(overwrite=True, merge_schema=True, overwrite_schema=True)


def test_concurrent_new_columns_get_different_ids(path):
    """Both planned the same field id for different columns; the second gets new ids."""
    write_table(path, pa.table({"id": ids(1)}))
    one = planned(path, pa.table({"id": ids(2), "x": ["a"], "z": ids(0)}), merge_schema=True)
    two = planned(path, pa.table({"y": [2.5], "id": ids(3), "x": ["b"]}), merge_schema=True)
    write_table(path, pa.table({"id": ids(4)}))
    assert commit_write(*one).version == 3
    assert commit_write(*two).version == 4
    assert by_id(path) == [
        {"id": 1, "x": None, "z": None, "y": None},
        {"id": 2, "x": "a", "z": 0, "y": None},
        {"id": 3, "x": "b", "z": None, "y": 2.5},
        {"id": 4, "x": None, "z": None, "y": None},
    ]
    check_both(path)


def test_concurrent_writers_with_own_columns_lose_no_rows(path):
    write_table(path, pa.table({"id": ids(0)}))

    def work(writer):
        for number in range(3):
            rows = pa.table({"id": ids(10 * writer + number), f"w{writer}": ids(number)})
            write_table(path, rows, merge_schema=True, retries=100, timeout_s=120)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(1, 5)))
    found = {row["id"]: {k: v for k, v in row.items() if v is not None} for row in by_id(path)}
    assert found == {0: {"id": 0}} | {
        10 * writer + number: {"id": 10 * writer + number, f"w{writer}": number}
        for writer in range(1, 5)
        for number in range(3)
    }
    assert Snapshot.open(Table(path)).version == 13
    check_both(path)


def test_concurrent_column_of_other_type_raises(path):
    write_table(path, pa.table({"id": ids(1)}))
    plan, files = planned(path, pa.table({"id": ids(2), "x": ["a"]}), merge_schema=True)
    write_table(path, pa.table({"id": ids(3), "x": ids(7)}), merge_schema=True)
    with pytest.raises(SchemaMismatchError):
        commit_write(plan, files)
    assert Snapshot.open(Table(path)).version == 2


def test_reserved_fragment_ids_are_not_used(path):
    write_table(path, pa.table({"id": ids(1)}))
    snapshot = Snapshot.open(Table(path))
    plan, files = planned(path, pa.table({"id": ids(2), "x": ["a"]}), merge_schema=True)
    reserve = Transaction(snapshot.version, "reserve", ReserveFragments(3))
    commit(snapshot.store, reserve)
    stale = Merge(
        (*snapshot.manifest.fragments, files[0].__class__(1, files[0].files, 1)), plan.table_schema
    )
    with pytest.raises(RetryableCommitError, match="reserved"):
        commit(snapshot.store, Transaction(snapshot.version, "stale", stale))
    commit_write(plan, files)
    assert [one.id for one in Snapshot.open(Table(path)).manifest.fragments] == [0, 4]
    check_both(path)


def test_merged_schemas_keep_order_names_and_ids():
    table = LanceSchema.from_arrow(
        pa.schema([("A", pa.int8()), ("s", pa.struct([("k", pa.int8())]))])
    )
    data = pa.schema([("new", pa.int8()), ("a", pa.int8()), ("S", pa.struct([("K", pa.int8())]))])
    merged = merge_schemas(table, data, 10, file_version="2.1")
    assert [(one.id, one.name) for one in merged.walk()] == [
        (0, "A"),
        (1, "s"),
        (2, "k"),
        (10, "new"),
    ]
    assert merge_schemas(table, data.remove(0), 10, file_version="2.1") is table
    with pytest.raises(InvalidInputError, match="reserved"):
        merge_schemas(table, pa.schema([("_rowid", pa.int8())]), 10, file_version="2.1")

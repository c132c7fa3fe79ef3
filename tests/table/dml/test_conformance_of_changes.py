"""The conformance tables again, made by our own delete, update and merge.

pylance does what is not of this layer: compaction, restore, changes of columns.
"""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from conformance_tables import TABLE_A, TABLE_B, as_lines, in_any_order, parsed
from local_changes import delete_rows, merge_rows
from row_changes import insert, matched_delete, matched_update, set_to, upsert
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


def check(path, table, *, versions, with_files):
    """The versions of ``path`` are those of ``table``, number for number."""
    expected = parsed(table)
    for version in versions:
        snapshot = Snapshot.open(Table(path), VersionSpec(version=version))
        state = TableState(snapshot.manifest, snapshot.indices)
        heading, lines = as_lines(state, with_files=with_files)
        wanted_heading, wanted_lines = expected[version]
        assert heading == wanted_heading, version
        assert [in_any_order(one) for one in lines] == [in_any_order(one) for one in wanted_lines]
        from_pylance = read_pylance(path, version)
        if snapshot.num_rows():
            assert_same_rows(read_ours(path, VersionSpec(version=version)), from_pylance)
    lance.dataset(path).validate()


def rows(ids, values):
    return pa.table({"id": pa.array(ids, pa.int64()), "val": pa.array(values, pa.string())})


def test_changes_match_conformance_table_a(tmp_path):
    path = str(tmp_path / "a.lance")

    def compact(**options):
        lance.dataset(path, session=lance.Session()).optimize.compact_files(**options)

    write_table(path, rows([0, 1, 2, 3, 4], list("abcde")), max_rows_per_file=3)
    write_table(path, rows([5, 6], ["f", "g"]))
    assert set_to(path, "id = 2", val="UP").version == 3
    assert delete_rows(path, "id = 4").version == 4
    result = upsert(path, rows([1, 100, 6, 101], ["M1", "N100", "M6", "N101"]))
    assert (result.version, result.num_updated_rows, result.num_inserted_rows) == (5, 2, 2)
    assert set_to(path, "id IN (2, 100, 3)", val="UP2").version == 6
    compact(target_rows_per_fragment=4)
    assert delete_rows(path, "id IN (0, 101)").version == 9
    compact(materialize_deletions_threshold=0.0)
    write_table(path, rows([7, 8], ["x", "y"]), overwrite=True)
    write_table(path, rows([9], ["z"]))
    lance.dataset(path, version=11).restore()
    write_table(path, rows([10], ["q"]))
    check(path, TABLE_A, versions=parsed(TABLE_A), with_files=False)


def test_changes_match_conformance_table_b(tmp_path):
    path = str(tmp_path / "b.lance")

    def table():
        return lance.dataset(path, session=lance.Session())

    def part(ids, a):
        return pa.table({"id": pa.array(ids, pa.int64()), "a": a})

    columns = {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2", "b3"]}
    whole = pa.table({"id": pa.array([0, 1, 2, 3], pa.int64()), **columns})
    write_table(path, whole, max_rows_per_file=2)
    some = ["id", "a"]
    result = merge_rows(path, part([1, 2], ["A1", "A2"]), ["id"], [matched_update(some)])
    assert (result.version, result.num_updated_rows) == (2, 2)
    clauses = [matched_update(some), insert(some)]
    result = merge_rows(path, part([0, 9], ["AA0", "AA9"]), ["id"], clauses)
    assert (result.version, result.num_updated_rows, result.num_inserted_rows) == (3, 1, 1)
    in_place = table().merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    in_place.execute(part([3], ["RC3"]))
    table().add_columns({"c": "id*10"})
    table().add_columns(pa.field("n", pa.int32()))
    table().alter_columns({"path": "a", "name": "aa"})
    table().alter_columns({"path": "c", "data_type": pa.int32()})
    table().drop_columns(["b"])
    gone = pa.table({"id": pa.array([0], pa.int64())})
    result = merge_rows(path, gone, ["id"], [matched_delete()])
    assert (result.version, result.num_deleted_rows) == (10, 1)
    assert delete_rows(path, "true").version == 11
    check(path, TABLE_B, versions=parsed(TABLE_B), with_files=True)


def test_changes_work_without_stable_row_ids(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, rows([0, 1, 2, 3], list("abcd")), enable_stable_row_ids=False)
    assert set_to(path, "id = 1", val="B").num_updated_rows == 1
    assert upsert(path, rows([2, 7], ["C", "H"])).num_inserted_rows == 1
    assert delete_rows(path, "id = 0").num_deleted_rows == 1
    found = lance.dataset(path).to_table().sort_by("id")
    assert found["val"].to_pylist() == ["B", "C", "d", "H"]
    snapshot = Snapshot.open(Table(path))
    assert not snapshot.uses_stable_row_ids
    assert all(
        one.row_ids is None and one.created_at is None for one in snapshot.manifest.fragments
    )


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_lineage_survives_compaction_by_pylance(tmp_path, version):
    path = str(tmp_path / "t")
    table = rows(range(100), [str(i) for i in range(100)])
    write_table(path, table, max_rows_per_file=30, file_version=version)
    set_to(path, "id % 7 = 3", val="u")
    delete_rows(path, "id % 5 = 0")
    upsert(path, rows([3, 200, 50, 98], ["x", "y", "z", "w"]))
    names = ["id", "val", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]
    before = read_ours(path).sort_by("_rowid").select(names)
    lance.dataset(path).optimize.compact_files(target_rows_per_fragment=1000)
    assert len(lance.dataset(path).get_fragments()) == 1
    assert read_ours(path).sort_by("_rowid").select(names).equals(before)
    set_to(path, "id = 98", val="again")
    after = read_pylance(path).sort_by("_rowid").select(names).to_pylist()
    expected = before.to_pylist()
    for row in expected:
        if row["id"] == 98:
            row.update(val="again", _row_last_updated_at_version=lance.dataset(path).version)
    assert after == expected

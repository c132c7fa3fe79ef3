"""The conformance tables of the table format, appendix A, number for number.

pylance runs each step; our ``next_manifest`` is given the transaction that it committed, and must
arrive at the numbers below, which are those of the document.
"""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from commit_replay import check_replay, latest_pylance_version
from conformance_tables import TABLE_A, TABLE_B, as_lines, in_any_order, parsed

pytestmark = pytest.mark.interop


def check(root: str, table: str, *, with_files: bool) -> None:
    expected = parsed(table)
    for version in range(1, latest_pylance_version(root) + 1):
        heading, lines = as_lines(check_replay(root, version), with_files=with_files)
        if version in expected:
            wanted_heading, wanted_lines = expected[version]
            assert heading == wanted_heading
            assert [in_any_order(line) for line in lines] == [
                in_any_order(line) for line in wanted_lines
            ]
    assert expected.keys() <= set(range(1, latest_pylance_version(root) + 1))


def test_pylance_history_matches_conformance_table_a(tmp_path):
    root = str(tmp_path / "a.lance")

    def rows(ids, values):
        return pa.table({"id": pa.array(ids, pa.int64()), "val": pa.array(values, pa.string())})

    def table():
        return lance.dataset(root, session=lance.Session())

    lance.write_dataset(
        rows([0, 1, 2, 3, 4], list("abcde")), root, enable_stable_row_ids=True, max_rows_per_file=3
    )
    lance.write_dataset(rows([5, 6], ["f", "g"]), root, mode="append")
    table().update({"val": "'UP'"}, where="id=2")
    table().delete("id=4")
    upsert = table().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute(rows([1, 100, 6, 101], ["M1", "N100", "M6", "N101"]))
    table().update({"val": "'UP2'"}, where="id in (2,100,3)")
    table().optimize.compact_files(target_rows_per_fragment=4)
    table().delete("id in (0,101)")
    table().optimize.compact_files(materialize_deletions_threshold=0.0)
    lance.write_dataset(rows([7, 8], ["x", "y"]), root, mode="overwrite")
    lance.write_dataset(rows([9], ["z"]), root, mode="append")
    lance.dataset(root, version=11).restore()
    lance.write_dataset(rows([10], ["q"]), root, mode="append")
    check(root, TABLE_A, with_files=False)


def test_pylance_history_matches_conformance_table_b(tmp_path):
    root = str(tmp_path / "b.lance")

    def table():
        return lance.dataset(root, session=lance.Session())

    def part(ids, a):
        return pa.table({"id": pa.array(ids, pa.int64()), "a": a})

    columns = {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2", "b3"]}
    lance.write_dataset(
        pa.table({"id": pa.array([0, 1, 2, 3], pa.int64()), **columns}),
        root,
        enable_stable_row_ids=True,
        max_rows_per_file=2,
    )
    table().merge_insert("id").when_matched_update_all().execute(part([1, 2], ["A1", "A2"]))
    upsert = table().merge_insert("id").when_matched_update_all().when_not_matched_insert_all()
    upsert.execute(part([0, 9], ["AA0", "AA9"]))
    in_place = table().merge_insert("id").when_matched_update_all().write_mode("rewrite_columns")
    in_place.execute(part([3], ["RC3"]))
    table().add_columns({"c": "id*10"})
    table().add_columns(pa.field("n", pa.int32()))
    table().alter_columns({"path": "a", "name": "aa"})
    table().alter_columns({"path": "c", "data_type": pa.int32()})
    table().drop_columns(["b"])
    drop = table().merge_insert("id").when_matched_delete()
    drop.execute(pa.table({"id": pa.array([0], pa.int64())}))
    table().delete("true")
    check(root, TABLE_B, with_files=True)

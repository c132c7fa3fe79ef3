"""Rows that move in an update keep their ids, their history and the values not assigned."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from local_changes import commit_once, merge_rows
from row_changes import matched_update, set_to, upsert
from table_access import read_ours, write_table

from pyspark_lance.format.column_names import CREATED_AT, ROW_ADDRESS, ROW_ID
from pyspark_lance.table.dml.commit_changes import combine_results
from pyspark_lance.table.dml.deletions import write_deletions
from pyspark_lance.table.dml.moved_rows import Clause, as_changes, write_changes
from pyspark_lance.table.dml.row_change import ChangeSettings, RowAction, plan_change
from pyspark_lance.table.unit_of_work import set_properties
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table


def test_rows_of_several_clauses_keep_their_ids(tmp_path):
    path = str(tmp_path / "t")
    ids = range(6)
    write_table(path, pa.table({"id": ids, "v": ids, "w": ids}))
    source = pa.table({"id": ids, "v": range(100, 106), "w": range(200, 206)})

    def is_even(joined):
        return pc.equal(pc.bit_wise_and(joined["id"], 1), 0)

    clauses = [matched_update(["v"], is_even), matched_update(["w"])]
    merge_rows(path, source, ["id"], clauses)
    found = read_ours(path, system_columns=(ROW_ID,)).sort_by("id")
    assert found[ROW_ID].to_pylist() == list(ids)
    assert found["v"].to_pylist() == [100, 1, 102, 3, 104, 5]
    assert found["w"].to_pylist() == [0, 201, 2, 203, 4, 205]


def test_rows_of_each_file_keep_their_created_version(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(2), "v": [0, 0]}))
    write_table(path, pa.table({"id": range(2, 5), "v": [0, 0, 0]}))
    set_to(path, "id >= 0", v=9, _arguments={"settings": ChangeSettings(max_rows_per_file=2)})
    found = read_ours(path, system_columns=(CREATED_AT,)).sort_by("id")
    assert found[CREATED_AT].to_pylist() == [1, 1, 2, 2, 2]


def test_unsorted_updates_keep_values_of_their_rows(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(4), "v": range(4)}))
    plan = plan_change(Table(path))
    places = pa.array([2, 0, 3], pa.uint64())
    batch = pa.record_batch([places, places], [ROW_ID, ROW_ADDRESS])
    changes = as_changes(batch, 0, {"v": pa.array([12, 10, 13])})
    written = write_changes(plan, [Clause(RowAction.UPDATE, ("v",))], [changes])
    deletions = write_deletions(plan, written.touched, one_match_each=True)
    commit_once(plan, combine_results(plan, [written], deletions))
    found = read_ours(path, system_columns=(ROW_ID,)).sort_by("id")
    assert found.select(["id", "v", ROW_ID]).to_pylist() == [
        {"id": row, "v": v, ROW_ID: row} for row, v in enumerate([10, 1, 12, 13])
    ]


def test_inserted_rows_stay_apart_from_spilled_lineage(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(4), "v": range(4)}))
    spills = {"lance.row_lineage.spill": "true", "lance.row_lineage.inline_max_bytes": "1"}
    set_properties(Table(path), spills)
    upsert(path, pa.table({"id": [1, 3, 8, 9], "v": [11, 13, 18, 19]}))
    found = read_ours(path, system_columns=(ROW_ID, CREATED_AT)).sort_by("id")
    assert found["id"].to_pylist() == [0, 1, 2, 3, 8, 9]
    assert found[ROW_ID].to_pylist() == [0, 1, 2, 3, 4, 5]
    assert found[CREATED_AT].to_pylist() == [1, 1, 1, 1, 3, 3]
    assert verify(Table(path)).findings == ()

"""Appendix B of the table format, number for number, by our own column changes.

The two merges by rows (B2, B3) and what follows B9 are pylance's; the table is the document's.
"""

from __future__ import annotations

import lance
import pyarrow as pa
import pytest
from commit_tables import latest
from local_changes import commit_rewritten, delete_rows
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    compute_columns,
    copy_column,
    drop_columns,
    rename_column,
    widen_column,
)
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# The cast of the document narrows int64 to int32, which we refuse; ours widens int32.
EXPECTED = """
1 | flags 2 | max 1 | next 4
f0 2 del 0 ids 0,1 created 1,1 updated 1,1 files (0,1,2)(0,1,2)
f1 2 del 0 ids 2,3 created 1,1 updated 1,1 files (0,1,2)(0,1,2)
3 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 1,1 files (0,1,2)(0,1,2)
f2 2 del 0 ids 1,2 created 1,1 updated 2,2 files (0,1,2)(0,1,2)
f3 2 del 0 ids 0,4 created 1,3 updated 3,3 files (0,1,2)(0,1,2)
4 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 1,4 files (0,-2,2)(0,1,2) (1)(0)
f2 2 del 0 ids 1,2 created 1,1 updated 2,2 files (0,1,2)(0,1,2)
f3 2 del 0 ids 0,4 created 1,3 updated 3,3 files (0,1,2)(0,1,2)
5 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 5,5 files (0,-2,2)(0,1,2) (1)(0) (3)(0)
f2 2 del 0 ids 1,2 created 1,1 updated 5,5 files (0,1,2)(0,1,2) (3)(0)
f3 2 del 0 ids 0,4 created 1,3 updated 5,5 files (0,1,2)(0,1,2) (3)(0)
6 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 5,5 files (0,-2,2)(0,1,2) (1)(0) (3)(0)
f2 2 del 0 ids 1,2 created 1,1 updated 5,5 files (0,1,2)(0,1,2) (3)(0)
f3 2 del 0 ids 0,4 created 1,3 updated 5,5 files (0,1,2)(0,1,2) (3)(0)
7 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 5,5 files (0,-2,2)(0,1,2) (1)(0) (3)(0)
f2 2 del 0 ids 1,2 created 1,1 updated 5,5 files (0,1,2)(0,1,2) (3)(0)
f3 2 del 0 ids 0,4 created 1,3 updated 5,5 files (0,1,2)(0,1,2) (3)(0)
8 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 8,8 files (0,-2,2)(0,1,2) (1)(0) (5)(0)
f2 2 del 0 ids 1,2 created 1,1 updated 8,8 files (0,1,2)(0,1,2) (5)(0)
f3 2 del 0 ids 0,4 created 1,3 updated 8,8 files (0,1,2)(0,1,2) (5)(0)
9 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 8,8 files (0,-2,2)(0,1,2) (1)(0) (5)(0)
f2 2 del 0 ids 1,2 created 1,1 updated 8,8 files (0,1,2)(0,1,2) (5)(0)
f3 2 del 0 ids 0,4 created 1,3 updated 8,8 files (0,1,2)(0,1,2) (5)(0)
10 | flags 3 | max 3 | next 5
f1 2 del 1 ids 2,3 created 1,1 updated 8,8 files (0,-2,2)(0,1,2) (1)(0) (5)(0)
f2 2 del 0 ids 1,2 created 1,1 updated 8,8 files (0,1,2)(0,1,2) (5)(0)
f3 2 del 1 ids 0,4 created 1,3 updated 8,8 files (0,1,2)(0,1,2) (5)(0)
11 | flags 2 | max 3 | next 5
"""


def numbers(values):
    return ",".join(map(str, values))


def as_text(state: TableState) -> str:
    manifest = state.manifest
    assert manifest.reader_flags == manifest.writer_flags
    counters = f"max {manifest.max_fragment_id} | next {manifest.next_row_id}"
    lines = [f"{manifest.version} | flags {manifest.reader_flags} | {counters}"]
    for one in manifest.fragments:
        versions = [
            numbers(RowDatasetVersionSequence.from_bytes(source).to_array())
            for source in (one.created_at, one.last_updated_at)
        ]
        files = [f"({numbers(f.fields)})({numbers(f.column_indices)})" for f in one.files]
        lines.append(
            f"f{one.id} {one.physical_rows} del {one.num_deleted_rows} "
            f"ids {numbers(RowIdSequence.from_bytes(one.row_ids).to_array())} "
            f"created {versions[0]} updated {versions[1]} files {' '.join(files)}"
        )
    return "\n".join(lines)


def test_column_changes_match_conformance_table_b(tmp_path):
    path = str(tmp_path / "b.lance")
    seen = []

    def note(version=None):
        file = latest(Snapshot.open(Table(path)).store)
        assert version in (None, file.manifest.version)
        seen.append(as_text(TableState(file.manifest)))
        if file.manifest.fragments:
            lance.dataset(path).validate()
            assert_same_rows(read_ours(path), read_pylance(path))

    def part(ids, a):
        return pa.table({"id": pa.array(ids, pa.int64()), "a": a})

    columns = {"a": ["a0", "a1", "a2", "a3"], "b": ["b0", "b1", "b2", "b3"]}
    first = pa.table({"id": pa.array([0, 1, 2, 3], pa.int64()), **columns})
    write_table(path, first, max_rows_per_file=2)
    note(1)
    merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
    merge.execute(part([1, 2], ["A1", "A2"]))
    merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
    merge.when_not_matched_insert_all().execute(part([0, 9], ["AA0", "AA9"]))
    note(3)

    plan = plan_change(Table(path))
    request = plan_rewrite(plan.snapshot(), ["a"])
    new = pa.record_batch({"_rowaddr": pa.array([(1 << 32) + 1], pa.uint64()), "a": ["RC3"]})
    commit_rewritten(plan, request, list(rewrite_columns(request, [new])))
    note(4)
    times_ten = compute_columns(
        ["id"], lambda batch: [pa.compute.multiply(batch.column("id"), 10).cast(pa.int32())]
    )
    add_columns(Table(path), pa.schema([("c", pa.int32())]), times_ten)
    note(5)
    add_null_columns(Table(path), pa.schema([("n", pa.int32())]))
    note(6)
    rename_column(Table(path), "a", "aa")
    note(7)
    widen_column(Table(path), "c", pa.int64(), copy_column("c"))
    note(8)
    drop_columns(Table(path), ["b"])
    note(9)
    assert read_ours(path, system_columns=()).sort_by("id").to_pylist() == [
        {"id": 0, "aa": "AA0", "c": 0, "n": None},
        {"id": 1, "aa": "A1", "c": 10, "n": None},
        {"id": 2, "aa": "A2", "c": 20, "n": None},
        {"id": 3, "aa": "RC3", "c": 30, "n": None},
        {"id": 9, "aa": "AA9", "c": 90, "n": None},
    ]
    delete_rows(path, "id = 0")
    note(10)
    delete_rows(path)
    note(11)
    # The order in which pylance's merges write rows is not normative.
    text = "\n".join(seen).replace("ids 2,1 created 1,1", "ids 1,2 created 1,1")
    assert text == EXPECTED.strip()

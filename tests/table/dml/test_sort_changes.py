"""Changes in any order become pieces of neighbouring rows, new rows files of their own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from local_changes import commit_once
from table_access import read_ours, write_table

from pyspark_lance.errors import SchemaMismatchError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.table.dml.change_stages import (
    MIN_FILE_ROWS,
    Parts,
    SortedChanges,
    in_order,
    sort_changes,
)
from pyspark_lance.table.dml.commit_changes import combine_results
from pyspark_lance.table.dml.deletions import write_deletions
from pyspark_lance.table.dml.key_filter import pack_rows, split_rows, unpack_rows
from pyspark_lance.table.dml.moved_rows import (
    CHANGED_ADDRESS,
    CHANGED_ROW_ID,
    CLAUSE,
    Clause,
    WrittenChanges,
    write_changes,
)
from pyspark_lance.table.dml.row_change import ChangeResult, RowAction, plan_change
from pyspark_lance.table.version.table import Table

CLAUSES = (
    Clause(RowAction.UPDATE, ("v",)),
    Clause(RowAction.DELETE),
    Clause(RowAction.INSERT, ("id", "v")),
    Clause(RowAction.INSERT, ("id",)),
)


def changes(rows):
    """Rows of (clause, row id, address, id, v)."""
    names = (CLAUSE, CHANGED_ROW_ID, CHANGED_ADDRESS, "id", "v")
    types = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int64())
    columns = list(zip(*rows, strict=True)) if rows else [()] * 5
    return pa.RecordBatch.from_arrays(
        [pa.array(c, t) for c, t in zip(columns, types, strict=True)], names=names
    )


@pytest.fixture
def plan(tmp_path):
    ids = np.arange(40)
    write_table(str(tmp_path / "t"), pa.table({"id": ids, "v": ids * 10}), max_rows_per_file=10)
    return plan_change(Table(str(tmp_path / "t")))


def sorted_out(plan, batches, task=0):
    parts = Parts.of(plan.snapshot().manifest.fragments)
    found = list(sort_changes(plan, CLAUSES, parts, batches, task=task))
    assert isinstance(found[-1], SortedChanges)
    return found[:-1], found[-1]


def test_parts_group_neighbouring_fragments():
    def parts(ids):
        return Parts.of([Fragment(id=one, files=(), physical_rows=1) for one in ids])

    def of(found, ids):
        return found.of_rows(np.array(ids, dtype=np.uint64) << np.uint64(32)).tolist()

    assert of(parts([]), []) == []
    assert of(parts([7]), [7]) == [0]
    assert of(parts([5, 6, 9]), [5, 6, 9]) == [0, 1, 4]
    many = parts(range(1000, 101_000))
    numbers = of(many, range(1000, 101_000))
    assert numbers == sorted(numbers)
    assert 256 <= len(set(numbers)) <= 512
    assert max(numbers) < many.count


def test_sorted_changes_of_tasks_become_one_version(plan):
    frag = 1 << 32
    first = [
        changes([(0, 35, 3 * frag + 5, 0, 1), (2, None, None, 100, 7), (0, 3, 3, 0, 2)]),
        changes([]),
        changes([(1, 12, frag + 2, None, None), (3, None, None, 101, None)]),
    ]
    second = [changes([(0, 1, 1, 0, 3), (0, 31, 3 * frag + 1, 0, 4)])]
    pieces = []
    for task, batches in enumerate((first, second)):
        found, written = sorted_out(plan, batches, task)
        assert written == SortedChanges((), 0)
        pieces += [(part, pack_rows(rows)) for part, rows in found]
    pieces.sort(key=lambda piece: piece[0])
    assert [part for part, _ in pieces] == [0, 0, 1, 3, 3, 4]
    rows = list(in_order((part, unpack_rows(packed)) for part, packed in pieces))
    together = pa.Table.from_batches(rows)
    assert together[CHANGED_ADDRESS].to_pylist() == [
        1, 3, frag + 2, 3 * frag + 1, 3 * frag + 5, None, None,
    ]  # fmt: skip
    done = write_changes(plan, CLAUSES, rows)
    deletions = write_deletions(plan, done.touched, one_match_each=True)
    result = commit_once(plan, combine_results(plan, [done], deletions))
    assert result == ChangeResult(2, 2, 4, 1)
    now = {row["id"]: (row["v"], row["_rowid"]) for row in read_ours(plan.table.uri).to_pylist()}
    assert len(now) == 41
    assert [now[key] for key in (35, 3, 1, 31)] == [(1, 35), (2, 3), (3, 1), (4, 31)]
    assert 12 not in now
    assert (now[100][0], now[101][0]) == (7, None)


def test_new_rows_of_task_are_written_in_bulk(plan):
    def new(start, clause):
        return changes([(clause, None, None, i, i) for i in range(start, start + 20_000)])

    batches = [new(20_000 * i, 2 + i % 2) for i in range(4)]
    batches.append(changes([(0, 3, 3, 0, 2), (2, None, None, 80_000, 1)]))
    pieces, written = sorted_out(plan, batches)
    assert [part for part, _ in pieces] == [0]
    assert written.num_inserted_rows == 80_001 > MIN_FILE_ROWS
    assert sum(fragment.physical_rows for fragment in written.new_fragments) == 80_001
    commit_once(
        plan, combine_results(plan, [WrittenChanges(written.new_fragments, (), 80_001, 0)], [])
    )
    rows = read_ours(plan.table.uri)
    assert rows.num_rows == 80_041
    values = dict(zip(rows["id"].to_pylist(), rows["v"].to_pylist(), strict=True))
    assert (values[45], values[20_001], values[79_999]) == (45, None, None)


def test_unfitting_new_row_leaves_no_file(plan):
    folder = Path(plan.table.uri, "data")
    before = sorted(folder.iterdir())
    good = changes([(2, None, None, i, i) for i in range(MIN_FILE_ROWS)])
    bad = good.slice(0, 1).set_column(4, "v", pa.array(["no number"]))
    with pytest.raises(SchemaMismatchError, match="'v'"):
        sorted_out(plan, [good, bad])
    assert sorted(folder.iterdir()) == before


def test_split_rows_groups_rows_in_order():
    batch = pa.RecordBatch.from_pydict({"x": ["a", "b", "c", "d", "e"]})
    found = [
        (group, rows["x"].to_pylist())
        for group, rows in split_rows(batch, np.array([3, 1, 3, 2, 1]))
    ]
    assert found == [(1, ["b", "e"]), (2, ["d"]), (3, ["a", "c"])]
    assert [next(unpack_rows(pack_rows(batch.slice(1, 2))))["x"].to_pylist()] == [["b", "c"]]
    assert list(split_rows(batch.slice(0, 0), np.array([], dtype=np.int64))) == []

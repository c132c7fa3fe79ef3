"""Deletes rows in this process; the tasks of Spark do the same in parts (``spark/``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa

from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.change.commit_changes import (
    RowChanges,
    commit_changes,
    delete_everything,
    gathered,
)
from pyspark_lance.table.change.deletions import write_deletions
from pyspark_lance.table.change.moved_rows import (
    CHANGED_ADDRESS,
    CHANGED_ROW_ID,
    CLAUSE,
    Clause,
    write_changes,
)
from pyspark_lance.table.change.plan_again import plan_again_on_conflict
from pyspark_lance.table.change.reads import reads_where
from pyspark_lance.table.change.row_change import (
    ChangePlan,
    ChangeResult,
    ChangeSettings,
    RowAction,
    plan_change,
)
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_task import run

_DELETE = (Clause(RowAction.DELETE),)


def delete_rows(
    uri: str,
    condition: str | None = None,
    *,
    options: Mapping[str, str] | None = None,
    settings: ChangeSettings | None = None,
    environment: Environment | None = None,
) -> ChangeResult:
    """Deletes the rows for which ``condition`` is true; None deletes all.

    Raises:
        InvalidInputError: The condition cannot be read.
        RetryableCommitError: Other commits were in the way too often.
    """
    settings = settings or ChangeSettings()

    def attempt(left: Retries) -> ChangeResult:
        plan = plan_change(uri, options or {}, settings)
        if plan.is_done:
            return ChangeResult()
        if condition is None:
            return commit_changes(delete_everything(plan, "true"), left)
        rows = matching_rows(plan, condition, columns=(), system=(ROW_ID, ROW_ADDRESS))
        changes = run_changes(plan, _DELETE, (as_changes(batch, 0) for batch in rows))
        return commit_changes(
            RowChanges(
                plan,
                changes.losses,
                only_deletes=True,
                reads=reads_where(plan.snapshot(), condition),
                description=condition,
            ),
            left,
        )

    return plan_again_on_conflict(
        attempt, retries=settings.retries, timeout_s=settings.timeout_s, environment=environment
    )


def run_changes(
    plan: ChangePlan,
    clauses: Sequence[Clause],
    batches: Iterable[pa.RecordBatch],
    *,
    one_match_each: bool = False,
) -> RowChanges:
    """All that tasks do, in this process: data files, then deletion files."""
    written = write_changes(plan, clauses, batches)
    losses = write_deletions(plan, written.touched, one_match_each=one_match_each)
    return gathered(plan, [written], losses)


def matching_rows(
    plan: ChangePlan, condition: str | None, *, columns: Sequence[str], system: Sequence[str]
) -> Iterator[pa.RecordBatch]:
    """Rows of the pinned version, by address."""
    snapshot = plan.snapshot()
    every = predicate_schema(snapshot.schema)
    request = ScanRequest(
        schema=project(snapshot.schema, columns),
        system_columns=tuple(name for name in SYSTEM_COLUMNS if name in system),
        predicate=None if condition is None else parse_predicate(condition, every),
    )
    for task in plan_scan(snapshot, request):
        yield from run(task)


def as_changes(
    batch: pa.RecordBatch, clause: int, values: Mapping[str, pa.Array] | None = None
) -> pa.RecordBatch:
    """Rows of a scan with row ids and addresses as changes of one clause."""
    columns = {
        CLAUSE: pa.array([clause], pa.int32()).take(pa.array([0] * batch.num_rows, pa.int32())),
        CHANGED_ROW_ID: batch.column(ROW_ID),
        CHANGED_ADDRESS: batch.column(ROW_ADDRESS),
        **(values or {}),
    }
    return pa.RecordBatch.from_pydict(columns)

"""Updates rows in this process; the tasks of Spark do the same in parts (``spark/``)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

import pyarrow as pa

from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.table.change.commit_changes import commit_changes
from pyspark_lance.table.change.delete import as_changes, matching_rows, run_changes
from pyspark_lance.table.change.moved_rows import Clause
from pyspark_lance.table.change.plan_again import plan_again_on_conflict
from pyspark_lance.table.change.reads import reads_where
from pyspark_lance.table.change.row_change import (
    ChangeResult,
    ChangeSettings,
    RowAction,
    plan_change,
)
from pyspark_lance.table.scan.plan_scan import project

Values = Callable[[pa.RecordBatch], Mapping[str, pa.Array]]
"""The new values of some columns, given whole rows before the change."""


def update_rows(
    uri: str,
    condition: str | None,
    columns: Collection[str],
    values: Values,
    *,
    options: Mapping[str, str] | None = None,
    settings: ChangeSettings | None = None,
    environment: Environment | None = None,
) -> ChangeResult:
    """Gives ``columns`` other values in the rows for which ``condition`` is true.

    Args:
        uri: Root of the table.
        condition: None updates all rows.
        columns: Columns that get values.
        values: Called with batches of matching rows, all columns and lineage.
        options: Storage options.
        settings: How to commit.
        environment: Clock, sleep, chance and commit handler.

    Raises:
        InvalidInputError: The condition cannot be read, or there is no such column.
        SchemaMismatchError: A value does not fit its column.
        RetryableCommitError: Other commits were in the way too often.
    """
    settings = settings or ChangeSettings()

    def attempt(left: Retries) -> ChangeResult:
        plan = plan_change(uri, options or {}, settings)
        if plan.is_done:
            return ChangeResult()
        names = tuple(field.name for field in project(plan.schema, tuple(columns)).fields)
        every = tuple(field.name for field in plan.schema.fields)
        rows = matching_rows(plan, condition, columns=every, system=(ROW_ID, ROW_ADDRESS))
        changes = run_changes(
            plan,
            (Clause(RowAction.UPDATE, names),),
            (as_changes(batch, 0, values(batch)) for batch in rows),
        )
        return commit_changes(
            replace(
                changes,
                assigned=frozenset(names),
                reads=reads_where(plan.snapshot(), condition),
            ),
            left,
        )

    return plan_again_on_conflict(
        attempt, retries=settings.retries, timeout_s=settings.timeout_s, environment=environment
    )

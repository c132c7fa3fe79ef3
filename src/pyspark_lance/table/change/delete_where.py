"""Deletes the rows for which a typed condition holds, in this process.

For conditions that come as a tree and not as text: from the JVM companion.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.tree import TRUE
from pyspark_lance.table.change.change_stages import (
    gather,
    note_stage,
    payloads_of,
    settle_stage,
)
from pyspark_lance.table.change.commit_changes import commit_changes, delete_everything
from pyspark_lance.table.change.moved_rows import Clause, as_changes
from pyspark_lance.table.change.plan_again import plan_again_on_conflict
from pyspark_lance.table.change.reads import matching_rows, reads_by
from pyspark_lance.table.change.row_change import (
    ChangeResult,
    ChangeSettings,
    RowAction,
    plan_change,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_DELETE = (Clause(RowAction.DELETE),)


def delete_where(
    table: Table,
    condition: Callable[[Snapshot], Predicate],
    *,
    text: str = "",
    settings: ChangeSettings | None = None,
    environment: Environment | None = None,
) -> ChangeResult:
    """Deletes rows; a delete that matches none makes no version.

    Args:
        table: The table or branch.
        condition: Makes the condition for the columns of a snapshot.
        text: The condition for people; kept in the transaction.
        settings: How to change rows.
        environment: Clock, sleep and chance.

    Raises:
        RetryableCommitError: Other commits were in the way too often.
    """
    settings = settings or ChangeSettings()

    def attempt(left: Retries) -> ChangeResult:
        plan = plan_change(table, settings)
        snapshot = plan.snapshot()
        predicate = condition(snapshot)
        if predicate == TRUE:
            return commit_changes(delete_everything(plan, "true"), left)
        found = matching_rows(plan, predicate, system=(ROW_ID, ROW_ADDRESS))
        noted = note_stage(plan, _DELETE, (as_changes(batch, 0) for batch in found))
        settled = settle_stage(plan, one_match_each=False, batches=noted)
        return commit_changes(
            replace(
                gather(plan, payloads_of(settled)),
                only_deletes=True,
                reads=reads_by(snapshot, condition),
                description=text,
            ),
            left,
        )

    return plan_again_on_conflict(
        attempt, retries=settings.retries, timeout_s=settings.timeout_s, environment=environment
    )

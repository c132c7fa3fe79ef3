"""Delete the rows that match a typed predicate, in this process.

For predicates that arrive as a tree instead of SQL text, from the JVM plugin.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from pyspark_lance.commit.retries import Environment
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.tree import TRUE
from pyspark_lance.table.dml.change_stages import (
    apply_deletes,
    collect_deletes,
    gather,
    payloads_of,
)
from pyspark_lance.table.dml.commit_changes import RowChanges, commit_changes, delete_everything
from pyspark_lance.table.dml.moved_rows import Clause, as_changes
from pyspark_lance.table.dml.read_set import matching_rows, predicate_read_set
from pyspark_lance.table.dml.row_change import (
    ChangeResult,
    ChangeSettings,
    DmlPlan,
    RowAction,
    plan_change,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.unit_of_work import UnitOfWork

_DELETE = (Clause(RowAction.DELETE),)


def delete_where(
    table: Table,
    condition: Callable[[Snapshot], Predicate],
    *,
    text: str = "",
    settings: ChangeSettings | None = None,
    environment: Environment | None = None,
) -> ChangeResult:
    """Delete the matching rows; commit nothing if no row matches.

    ``text``: the condition as shown to users; stored in the transaction.
    """
    settings = settings or ChangeSettings()

    def attempt(work: UnitOfWork) -> ChangeResult:
        plan = plan_change(table, settings)
        snapshot = plan.snapshot()
        predicate = condition(snapshot)
        changes = rows_deleted(plan, predicate, text)
        if predicate != TRUE:
            changes = replace(changes, reads=predicate_read_set(snapshot, condition))
        return commit_changes(changes, work)

    return UnitOfWork(table, settings, environment=environment).run(attempt)


def rows_deleted(plan: DmlPlan, predicate: Predicate, text: str) -> RowChanges:
    """Write deletion files for the matching rows of the pinned version, without a commit."""
    if predicate == TRUE:
        return delete_everything(plan, "true")
    matching = matching_rows(plan, predicate, system=(ROW_ID, ROW_ADDRESS))
    collected = collect_deletes(plan, _DELETE, (as_changes(batch, 0) for batch in matching))
    applied = apply_deletes(plan, one_match_each=False, batches=collected)
    return replace(gather(plan, payloads_of(applied)), only_deletes=True, description=text)

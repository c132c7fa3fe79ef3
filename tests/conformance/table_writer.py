"""Apply steps to a table on disk with this package's writers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from conformance import steps
from conformance.model import Values
from support.local_runner import LocalRunner

from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.compaction.stable_row_ids import enable_stable_row_ids
from pyspark_lance.table.dml.change_stages import writes_rows
from pyspark_lance.table.dml.commit_changes import commit_changes
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, CHANGED_ROW_ID, CLAUSE, Clause
from pyspark_lance.table.dml.rewrite_columns import commit_rewrite, plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import ChangeSettings, RowAction, plan_change
from pyspark_lance.table.dml.run_changes import run_changes
from pyspark_lance.table.refs import create_branch
from pyspark_lance.table.unit_of_work import UnitOfWork, restore
from pyspark_lance.table.version.snapshot import VersionSpec, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int32()), ("s", pa.string())])


def write_history(path: str, history: Sequence[steps.Step]) -> None:
    """Create the table at ``path``, which must not exist."""
    table = Table(path)
    for step in history:
        match step:
            case steps.Write():
                _write(table, step)
            case steps.Change():
                _change(table, step)
            case steps.RewriteColumns(updated):
                _rewrite(table, updated)
            case steps.Compact():
                compact(table, CompactionRequest(materialize_deletions_threshold=0.0))
            case steps.Restore(version):
                restore(table, VersionSpec(version=version))
            case steps.GiveRowIds():
                enable_stable_row_ids(table)
            case steps.GoOnOnBranch(version):
                create_branch(table, steps.BRANCH, VersionSpec(version=version))
                table = table.on_branch(steps.BRANCH)
            case steps.CleanUp(retain):
                cleanup_old_versions(table, CleanupPolicy(retain_versions=retain))


def _write(table: Table, step: steps.Write) -> None:
    settings = WriteSettings(
        overwrite=step.overwrites,
        enable_stable_row_ids=step.stable_row_ids,
        max_rows_per_file=steps.FILE_ROWS,
    )
    plan = plan_write(table, SCHEMA, settings, existing=open_existing(table))
    commit_write(plan, write_rows(plan, as_table(step.rows).to_batches()))


def as_table(rows: Sequence[Values]) -> pa.Table:
    """Convert rows to an Arrow table."""
    columns = zip(*rows, strict=True) if rows else ((),) * len(SCHEMA)
    arrays = (
        pa.array(column, one.type) for column, one in zip(map(list, columns), SCHEMA, strict=True)
    )
    return pa.table(list(arrays), schema=SCHEMA)


def _change(table: Table, change: steps.Change) -> None:
    columns = tuple(SCHEMA.names)
    nothing: Values = (None, None, None)
    moved = [*change.updated, *change.deleted]
    rows = as_table([
        *change.updated.values(), *([nothing] * len(change.deleted)), *change.inserted,
    ])  # fmt: skip
    absent = [None] * len(change.inserted)
    sizes = {
        Clause(RowAction.UPDATE, columns): len(change.updated),
        Clause(RowAction.DELETE): len(change.deleted),
        Clause(RowAction.INSERT, columns): len(absent),
    }
    clauses = [clause for clause, size in sizes.items() if size]
    numbers = np.repeat(np.arange(len(clauses), dtype=np.int32), [sizes[one] for one in clauses])
    addresses = [*(change.addresses[row_id] for row_id in moved), *absent]
    rows = (
        rows.append_column(CLAUSE, pa.array(numbers))
        .append_column(CHANGED_ROW_ID, pa.array([*moved, *absent], pa.uint64()))
        .append_column(CHANGED_ADDRESS, pa.array(addresses, pa.uint64()))
    )
    settings = ChangeSettings()

    def attempt(work: UnitOfWork) -> object:
        plan = plan_change(table, settings)
        done = run_changes(LocalRunner(), plan, clauses, [rows.to_batches()], one_match_each=True)
        return commit_changes(replace(done, only_deletes=not writes_rows(clauses)), work)

    UnitOfWork(table, settings).run(attempt)


def _rewrite(table: Table, updated: Mapping[int, Values]) -> None:
    settings = ChangeSettings()
    values = as_table(list(updated.values())).select(["n"])
    rows = values.append_column("_rowaddr", pa.array(list(updated), pa.uint64()))

    def attempt(work: UnitOfWork) -> object:
        plan = plan_change(table, settings)
        request = plan_rewrite(plan.snapshot(), ["n"])
        rewritten = list(rewrite_columns(request, rows.to_batches()))
        return commit_rewrite(plan, request, rewritten, work)

    UnitOfWork(table, settings).run(attempt)

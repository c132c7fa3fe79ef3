"""Run the stages of DML statements in this process.

``delete_where`` deletes the rows that match a typed predicate, which the JVM plugin sends as a tree
instead of SQL text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa

from pyspark_lance.commit.retries import Environment
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.tree import TRUE
from pyspark_lance.table.dml.change_stages import (
    FRAGMENT,
    MESSAGE,
    PART,
    PAYLOAD,
    PIECE,
    Parts,
    apply_deletes,
    collect_deletes,
    finish_stage,
    gather,
    payloads_of,
    sort_stage,
    write_stage,
    writes_rows,
)
from pyspark_lance.table.dml.commit_changes import RowChanges, commit_changes, delete_everything
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.moved_rows import Clause, as_changes
from pyspark_lance.table.dml.plain_merge import (
    BUCKET,
    KIND,
    STAGED,
    PlainMerge,
    broadcast_limit,
    broadcast_parts,
    broadcast_target,
    collect_broadcast,
    match_stage,
    pack_source,
    split_source,
    split_target,
    target_tasks,
)
from pyspark_lance.table.dml.read_set import matching_rows, predicate_read_set
from pyspark_lance.table.dml.row_change import (
    ChangeResult,
    ChangeSettings,
    DmlPlan,
    RowAction,
    plan_change,
)
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_FRAGMENTS_PER_TASK = 64
_MAX_TASKS = 64

Stage = Callable[..., Iterator[pa.RecordBatch]]
Rows = TypeVar("Rows")


class StageRunner(Protocol[Rows]):
    """Runner of stages over rows that are distributed over tasks."""

    def run(
        self,
        rows: Rows,
        stage: Stage,
        schema: pa.Schema,
        *,
        numbered: bool = False,
        packed: bool = True,
    ) -> Rows:
        """Apply ``stage`` to the batches of each task.

        ``numbered``: ``stage`` also receives the number of its ``task``; ``packed``: ``rows`` come
        from another stage, so their columns have plain names.
        """

    def run_over(self, tasks: Sequence[Any], stage: Stage, schema: pa.Schema) -> Rows:
        """Apply ``stage`` to each of ``tasks`` in its own task."""

    def repartition(
        self, rows: Rows, column: str, *, order: str | None = None, tasks: int | None = None
    ) -> Rows:
        """Repartition rows by ``column``, sorted by ``order`` in each task."""

    def rebalance(self, rows: Rows, column: str) -> Rows:
        """Rebalance rows by ``column``, sorted by it; large groups may be split."""

    def union(self, rows: Rows, others: Rows) -> Rows:
        """Both."""

    def source_and_keys(self, staged: Rows) -> tuple[Rows, KeyFilter | None]:
        """Return the rows of ``pack_source``, evaluated once, and the union of its filters.

        The filter is None if it would not be selective.
        """

    def collect(self, rows: Rows, *columns: str) -> Iterable[tuple[Any, ...]]:
        """Collect some columns of all rows."""

    def num_buckets(self) -> int:
        """Number of tasks that match the two sides of a merge."""


def run_changes(
    runner: StageRunner[Rows],
    plan: DmlPlan,
    clauses: Sequence[Clause],
    changes: Rows,
    *,
    one_match_each: bool = False,
) -> RowChanges:
    """Run all stages without a commit.

    ``clauses``: referred to by number in ``changes``; ``changes``: in the layout of
    ``moved_rows.write_changes``, in any order; ``one_match_each``: report target rows that have
    several changes.
    """
    if not writes_rows(clauses):
        note = partial(collect_deletes, plan, tuple(clauses))
        collected = runner.run(changes, note, MESSAGE, packed=False)
        return _apply_deletes(runner, plan, collected, one_match_each)
    pieces = pack_changes(runner, plan, clauses, changes)
    return run_pieces(runner, plan, clauses, pieces, one_match_each=one_match_each)


def pack_changes(
    runner: StageRunner[Rows], plan: DmlPlan, clauses: Sequence[Clause], changes: Rows
) -> Rows:
    """Run the first stage: pack the changes as ``PIECE`` and write large inserts."""
    sort = partial(sort_stage, plan, tuple(clauses), Parts.of(plan.snapshot().manifest.fragments))
    return runner.run(changes, sort, PIECE, numbered=True, packed=False)


def run_pieces(
    runner: StageRunner[Rows],
    plan: DmlPlan,
    clauses: Sequence[Clause],
    pieces: Rows,
    *,
    one_match_each: bool,
    is_small: bool = False,
) -> RowChanges:
    """Run the remaining stages of packed changes.

    ``is_small``: so small that one task can process all rows of a part.
    """
    if is_small:
        # A task with all rows of a fragment can also write its deletion file.
        finish = partial(finish_stage, plan, tuple(clauses), one_match_each)
        arranged = runner.repartition(pieces, PART, order=PART)
        return _collect_messages(runner, plan, runner.run(arranged, finish, MESSAGE))
    write = partial(write_stage, plan, tuple(clauses))
    written = runner.run(runner.rebalance(pieces, PART), write, MESSAGE)
    return _apply_deletes(runner, plan, written, one_match_each)


def _apply_deletes(
    runner: StageRunner[Rows], plan: DmlPlan, written: Rows, one_match_each: bool
) -> RowChanges:
    num_fragments = len(plan.snapshot().manifest.fragments)
    tasks = min(_MAX_TASKS, 1 + num_fragments // _FRAGMENTS_PER_TASK)
    apply = partial(apply_deletes, plan, one_match_each)
    arranged = runner.repartition(written, FRAGMENT, tasks=tasks)
    return _collect_messages(runner, plan, runner.run(arranged, apply, MESSAGE))


def _collect_messages(runner: StageRunner[Rows], plan: DmlPlan, messages: Rows) -> RowChanges:
    return gather(plan, (bytes(payload) for (payload,) in runner.collect(messages, PAYLOAD)))


def plain_pieces(
    runner: StageRunner[Rows],
    plan: DmlPlan,
    merge: PlainMerge,
    source: Rows,
    target_filter: str | None = None,
    *,
    may_broadcast: bool = True,
) -> tuple[Rows, bool, KeyFilter | None]:
    """Return the changes of a plain merge as ``PIECE``, and whether the target was broadcast.

    The third result is the filter of source keys, if selective.

    Evaluates the source and reads keys of the target.

    ``target_filter``: only target rows that satisfy it can match; ``may_broadcast``: whether a
    small target may be broadcast.
    """
    # Evaluate a nondeterministic source once, so that all stages see the same rows.
    staged = runner.run(source, partial(pack_source, merge), STAGED)
    rows, keys = runner.source_and_keys(staged)
    fragments = plan.snapshot().manifest.fragments
    tasks = target_tasks(plan, merge, keys, target_filter)
    hashes = None if keys is None else keys.without_values()
    if may_broadcast:
        look = partial(collect_broadcast, merge, hashes, broadcast_limit(len(tasks)))
        found = runner.collect(runner.run_over(tasks, look, STAGED), KIND, PAYLOAD)
        packed_target = broadcast_target((kind, bytes(payload)) for kind, payload in found)
        if packed_target is not None:
            parts = broadcast_parts(fragments, packed_target)
            match = partial(match_stage, plan, merge, parts, packed_target)
            return runner.run(rows, match, PIECE, numbered=True), True, keys
    buckets = runner.num_buckets()
    both_sides = runner.union(
        runner.run_over(tasks, partial(split_target, merge, hashes, buckets), STAGED),
        runner.run(rows, partial(split_source, merge, buckets), STAGED),
    )
    # Target rows come first, because source rows are matched as a stream.
    arranged = runner.repartition(both_sides, BUCKET, order=KIND)
    match = partial(match_stage, plan, merge, Parts.of(fragments), ())
    return runner.run(arranged, match, PIECE, numbered=True), False, keys


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

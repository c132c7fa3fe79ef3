"""The stages of every change of rows in their order, by whoever can run one stage after another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, reduce
from typing import Any, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_lance.table.dml.change_stages import (
    FRAGMENT,
    MESSAGE,
    PART,
    PAYLOAD,
    PIECE,
    apply_deletes,
    collect_deletes,
    finish_stage,
    gather,
    sort_stage,
    write_stage,
    writes_rows,
)
from pyspark_lance.table.dml.commit_changes import RowChanges
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.moved_rows import Clause
from pyspark_lance.table.dml.plain_merge import PlainMerge
from pyspark_lance.table.dml.plain_merge_stages import (
    BUCKET,
    FILTER,
    KIND,
    SOURCE,
    STAGED,
    few_of_target,
    few_of_task,
    found_by_few,
    match_stage,
    pack_source,
    parts_of_few,
    split_source,
    split_target,
    target_tasks,
)
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.dml.sort_changes import Parts

_FRAGMENTS_PER_TASK = 64
_MAX_TASKS = 64

Stage = Callable[..., Iterator[pa.RecordBatch]]
Rows = TypeVar("Rows")
Tasks = list[list[pa.RecordBatch]]


class StageRunner(Protocol[Rows]):
    """Runs stages over rows that are spread over tasks, in whatever form it holds them."""

    def run(
        self,
        rows: Rows,
        stage: Stage,
        schema: pa.Schema,
        *,
        numbered: bool = False,
        packed: bool = True,
    ) -> Rows:
        """What ``stage`` makes of the batches of each task.

        ``numbered``: it is told the number of its ``task``, too; ``packed``: ``rows`` come from
        another stage, so that their columns have plain names.
        """

    def run_over(self, tasks: Sequence[Any], stage: Stage, schema: pa.Schema) -> Rows:
        """What ``stage`` makes of these, each in a task of its own."""

    def together(
        self, rows: Rows, column: str, *, order: str | None = None, tasks: int | None = None
    ) -> Rows:
        """Rows of equal numbers in one task, sorted by ``order`` in each."""

    def near(self, rows: Rows, column: str) -> Rows:
        """The same, sorted by the number; those of a number may be spread if they are many."""

    def union(self, rows: Rows, others: Rows) -> Rows:
        """Both."""

    def source_and_keys(self, staged: Rows) -> tuple[Rows, KeyFilter | None]:
        """The rows of ``pack_source``, made once, and the union of its filters.

        None in place of a filter that would let too much through.
        """

    def collect(self, rows: Rows, *columns: str) -> Iterable[tuple[Any, ...]]:
        """Some columns of all rows, in Python."""

    def num_buckets(self) -> int:
        """In how many tasks both sides of a merge meet."""


class LocalRunner:
    """Runs stages in this process, task after task; rows are one list of batches for each task."""

    def __init__(self, buckets: int = 1) -> None:
        self._buckets = buckets

    def run(
        self,
        rows: Tasks,
        stage: Stage,
        schema: pa.Schema,
        *,
        numbered: bool = False,
        packed: bool = True,
    ) -> Tasks:
        """See ``StageRunner.run``."""
        numbers = ({"task": task} if numbered else {} for task in range(len(rows)))
        return [list(stage(iter(one), **number)) for one, number in zip(rows, numbers, strict=True)]

    def run_over(self, tasks: Sequence[Any], stage: Stage, schema: pa.Schema) -> Tasks:
        """See ``StageRunner.run_over``."""
        return [list(stage([task])) for task in tasks]

    def together(
        self, rows: Tasks, column: str, *, order: str | None = None, tasks: int | None = None
    ) -> Tasks:
        """See ``StageRunner.together``."""
        count = tasks or self._buckets
        batches = [batch for one in rows for batch in one]
        if not batches:
            return [[] for _ in range(count)]
        together = pa.Table.from_batches(batches)
        together = together.take(np.argsort(together[order or column].to_numpy(), kind="stable"))
        task_of = together[column].to_numpy() % count
        return [together.filter(pa.array(task_of == task)).to_batches() for task in range(count)]

    def near(self, rows: Tasks, column: str) -> Tasks:
        """See ``StageRunner.near``."""
        return self.together(rows, column)

    def union(self, rows: Tasks, others: Tasks) -> Tasks:
        """See ``StageRunner.union``."""
        return [*rows, *others]

    def source_and_keys(self, staged: Tasks) -> tuple[Tasks, KeyFilter | None]:
        """See ``StageRunner.source_and_keys``; any filter will do."""
        rows = [[batch for batch in one if batch[KIND][0].as_py() == SOURCE] for one in staged]
        known = (data for kind, data in self.collect(staged, KIND, PAYLOAD) if kind == FILTER)
        return rows, reduce(KeyFilter.union, map(KeyFilter.of_bytes, known), KeyFilter.of([]))

    def collect(self, rows: Tasks, *columns: str) -> Iterable[tuple[Any, ...]]:
        """See ``StageRunner.collect``."""
        for batch in (batch for one in rows for batch in one):
            yield from zip(*(batch.column(name).to_pylist() for name in columns), strict=True)

    def num_buckets(self) -> int:
        """As many as were asked for."""
        return self._buckets


def run_changes(
    runner: StageRunner[Rows],
    plan: DmlPlan,
    clauses: Sequence[Clause],
    changes: Rows,
    *,
    one_match_each: bool = False,
) -> RowChanges:
    """Runs all stages; commits nothing.

    ``clauses``: what the numbers in ``changes`` mean; ``changes``: as ``moved_rows.write_changes``
    wants them, in any order; ``one_match_each``: report target rows that have more than one row
    here.
    """
    if not writes_rows(clauses):
        note = partial(collect_deletes, plan, tuple(clauses))
        noted = runner.run(changes, note, MESSAGE, packed=False)
        return _settled(runner, plan, noted, one_match_each)
    pieces = packed_changes(runner, plan, clauses, changes)
    return run_pieces(runner, plan, clauses, pieces, one_match_each=one_match_each)


def packed_changes(
    runner: StageRunner[Rows], plan: DmlPlan, clauses: Sequence[Clause], changes: Rows
) -> Rows:
    """The changes packed, as ``PIECE``; inserted rows are perhaps written already."""
    sort = partial(sort_stage, plan, tuple(clauses), Parts.of(plan.snapshot().manifest.fragments))
    return runner.run(changes, sort, PIECE, numbered=True, packed=False)


def run_pieces(
    runner: StageRunner[Rows],
    plan: DmlPlan,
    clauses: Sequence[Clause],
    pieces: Rows,
    *,
    one_match_each: bool,
    are_few: bool = False,
) -> RowChanges:
    """The same for changes that are packed already.

    ``are_few``: so few rows change that those of a part need not be spread over tasks.
    """
    if are_few:
        # Who has all rows of a fragment can write its deletion file as well.
        finish = partial(finish_stage, plan, tuple(clauses), one_match_each)
        together = runner.together(pieces, PART, order=PART)
        return _gathered(runner, plan, runner.run(together, finish, MESSAGE))
    write = partial(write_stage, plan, tuple(clauses))
    written = runner.run(runner.near(pieces, PART), write, MESSAGE)
    return _settled(runner, plan, written, one_match_each)


def _settled(
    runner: StageRunner[Rows], plan: DmlPlan, written: Rows, one_match_each: bool
) -> RowChanges:
    num_fragments = len(plan.snapshot().manifest.fragments)
    tasks = min(_MAX_TASKS, 1 + num_fragments // _FRAGMENTS_PER_TASK)
    settle = partial(apply_deletes, plan, one_match_each)
    together = runner.together(written, FRAGMENT, tasks=tasks)
    return _gathered(runner, plan, runner.run(together, settle, MESSAGE))


def _gathered(runner: StageRunner[Rows], plan: DmlPlan, settled: Rows) -> RowChanges:
    return gather(plan, (bytes(payload) for (payload,) in runner.collect(settled, PAYLOAD)))


def plain_pieces(
    runner: StageRunner[Rows],
    plan: DmlPlan,
    merge: PlainMerge,
    source: Rows,
    target_filter: str | None = None,
    *,
    may_be_few: bool = True,
) -> tuple[Rows, bool, KeyFilter | None]:
    """What a plain merge makes of rows, as ``PIECE``, and whether few rows of the target match.

    Third comes the filter of the source's keys, unless it would let too much through.

    The source is evaluated, and keys of the target are read.

    ``target_filter``: only target rows that fulfil it can match; ``may_be_few``: whether few of
    them are sent to every task, instead of meeting the source in buckets.
    """
    # Evaluated once: whatever the source is made of, all that follows must see the same rows.
    staged = runner.run(source, partial(pack_source, merge), STAGED)
    rows, keys = runner.source_and_keys(staged)
    fragments = plan.snapshot().manifest.fragments
    tasks = target_tasks(plan, merge, keys, target_filter)
    hashes = None if keys is None else keys.without_values()
    if may_be_few:
        look = partial(few_of_target, merge, hashes, few_of_task(len(tasks)))
        few = runner.collect(runner.run_over(tasks, look, STAGED), KIND, PAYLOAD)
        packed_target = found_by_few((kind, bytes(payload)) for kind, payload in few)
        if packed_target is not None:
            parts = parts_of_few(fragments, packed_target)
            match = partial(match_stage, plan, merge, parts, packed_target)
            return runner.run(rows, match, PIECE, numbered=True), True, keys
    buckets = runner.num_buckets()
    together = runner.union(
        runner.run_over(tasks, partial(split_target, merge, hashes, buckets), STAGED),
        runner.run(rows, partial(split_source, merge, buckets), STAGED),
    )
    # The rows of the target come first, since those of the source are matched as they come.
    arranged = runner.together(together, BUCKET, order=KIND)
    match = partial(match_stage, plan, merge, Parts.of(fragments), ())
    return runner.run(arranged, match, PIECE, numbered=True), False, keys

"""Rows that change, as a DataFrame, become one version: the distributed half of every change.

One Spark job, in which the changes are evaluated once.  The first stage writes inserted rows and
packs the others; the second gets rows of the same fragments together, writes those that move and
notes the addresses of those that go, as one bitmap for each fragment; the third gets all bitmaps
of a fragment and writes its deletion file.  The driver receives one description for each file.
Only the DataFrame API is used, so it is the same in Spark Connect.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.spark.expressions import quoted
from pyspark_lance.spark.options.option_table import STORAGE_PREFIX
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.table.change.commit_changes import RowChanges, gathered
from pyspark_lance.table.change.deletions import FragmentLoss, TouchedRows, write_deletions
from pyspark_lance.table.change.moved_rows import Clause, WrittenChanges, write_changes
from pyspark_lance.table.change.row_change import ChangePlan, RowAction
from pyspark_lance.table.change.sort_changes import Parts, SortedChanges, in_order, sort_changes
from pyspark_lance.table.rows.empty_parts import with_offsets
from pyspark_lance.table.rows.packed_rows import pack_rows, unpack_rows

_FRAGMENTS_PER_TASK = 64
_MOST_TASKS = 64
_NOT_OF_A_FRAGMENT = -1
_MESSAGE = pa.schema([pa.field("fragment", pa.int64()), pa.field("payload", pa.binary())])
_MESSAGE_TYPE = "fragment bigint, payload binary"
# In the place of a part: the payload says what was written.
_IS_WRITTEN = -1

PIECE_TYPE = "part bigint, payload binary"
"""Rows that change, packed, and the part of the table that they are in."""


def pinned_scan(
    spark: SparkSession, plan: ChangePlan, columns: Sequence[str], condition: str | None = None
) -> DataFrame:
    """Some columns (lineage columns among them) of the version that the plan pins.

    Args:
        spark: The session.
        plan: Pins the version.
        columns: At least one.
        condition: Rows that are surely not wanted are left out.
    """
    options = {f"{STORAGE_PREFIX}{name}": value for name, value in plan.options.items()}
    options["version"] = str(plan.read_version)
    options["columns"] = ",".join(quoted(name) for name in columns)
    if condition is not None:
        options["filter"] = condition
    return spark.read.format("lance").options(**options).load(plan.uri)


def run_change_job(
    plan: ChangePlan,
    clauses: Sequence[Clause],
    changes: DataFrame,
    *,
    one_match_each: bool = False,
) -> RowChanges:
    """Runs the job; commits nothing.

    Args:
        plan: Pins the version.
        clauses: What the numbers in ``changes`` mean.
        changes: As ``table.moved_rows.write_changes`` wants them, in any order.
        one_match_each: Report target rows that have more than one row here.
    """
    if not any(clause.action in (RowAction.UPDATE, RowAction.INSERT) for clause in clauses):
        noted = changes.mapInArrow(partial(_note, plan, tuple(clauses)), _MESSAGE_TYPE)
        return _settled(plan, noted, one_match_each=one_match_each)
    pieces = packed_changes(plan, clauses, changes)
    return run_pieces(plan, clauses, pieces, one_match_each=one_match_each)


def packed_changes(plan: ChangePlan, clauses: Sequence[Clause], changes: DataFrame) -> DataFrame:
    """The changes packed, as ``PIECE_TYPE``; inserted rows are perhaps written already."""
    parts = Parts.of(plan.snapshot().manifest.fragments)
    return changes.mapInArrow(partial(_sort, plan, tuple(clauses), parts), PIECE_TYPE)


def run_pieces(
    plan: ChangePlan,
    clauses: Sequence[Clause],
    pieces: DataFrame,
    *,
    one_match_each: bool,
    are_few: bool = False,
) -> RowChanges:
    """Runs the job for changes that are packed already; commits nothing.

    Args:
        plan: Pins the version.
        clauses: What the numbers in the pieces mean.
        pieces: What ``packed_pieces`` yields, as ``PIECE_TYPE``.
        one_match_each: Report target rows that have more than one row here.
        are_few: So few rows change that those of a part need not be spread over tasks.
    """
    if are_few:
        # Who has all rows of a fragment can write its deletion file as well.
        together = pieces.repartition("part").sortWithinPartitions("part")
        finish = partial(_finish, plan, tuple(clauses), one_match_each)
        return _gathered(plan, together.mapInArrow(finish, _MESSAGE_TYPE))
    together = pieces.hint("rebalance", sf.col("part")).sortWithinPartitions("part")
    written = together.mapInArrow(partial(_write, plan, tuple(clauses)), _MESSAGE_TYPE)
    return _settled(plan, written, one_match_each=one_match_each)


def _settled(plan: ChangePlan, written: DataFrame, *, one_match_each: bool) -> RowChanges:
    num_fragments = len(plan.snapshot().manifest.fragments)
    tasks = min(_MOST_TASKS, 1 + num_fragments // _FRAGMENTS_PER_TASK)
    settle = partial(_settle, plan, one_match_each)
    return _gathered(plan, written.repartition(tasks, "fragment").mapInArrow(settle, _MESSAGE_TYPE))


def _gathered(plan: ChangePlan, settled: DataFrame) -> RowChanges:
    messages = [pickle.loads(row["payload"]) for row in settled.collect()]
    return gathered(
        plan,
        [message for message in messages if isinstance(message, WrittenChanges)],
        [message for message in messages if isinstance(message, FragmentLoss)],
    )


def packed_pieces(
    plan: ChangePlan,
    clauses: Sequence[Clause],
    parts: Parts,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """In a task: sorts its changes out, and yields pieces as ``PIECE_TYPE``."""
    context = TaskContext.get()
    task = 0 if context is None else context.partitionId()
    for piece in sort_changes(plan, clauses, parts, map(with_offsets, batches), task=task):
        if not isinstance(piece, SortedChanges):
            part, rows = piece
            yield _piece(part, pack_rows(rows))
        elif piece.new_fragments:
            written = WrittenChanges(piece.new_fragments, (), piece.num_inserted_rows, 0)
            yield _piece(_IS_WRITTEN, pickle.dumps(written))


def _piece(part: int, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([part], pa.int64()), pa.array([payload], pa.binary())], names=["part", "payload"]
    )


@clean_iterator
def _sort(
    plan: ChangePlan,
    clauses: tuple[Clause, ...],
    parts: Parts,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The first stage."""
    gc.freeze()
    yield from packed_pieces(plan, clauses, parts, batches)


@clean_iterator
def _write(
    plan: ChangePlan, clauses: tuple[Clause, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The second stage; what the first stage wrote passes through."""
    gc.freeze()
    passed: list[tuple[int, object]] = []

    def pieces() -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        for batch in batches:
            for part, payload in zip(batch.column("part"), batch.column("payload"), strict=True):
                if part.as_py() == _IS_WRITTEN:
                    passed.append((_NOT_OF_A_FRAGMENT, pickle.loads(payload.as_py())))
                else:
                    yield part.as_py(), unpack_rows(payload.as_py())

    noted = _noted(write_changes(plan, clauses, in_order(pieces())))
    yield _messages([*passed, *noted])


@clean_iterator
def _note(
    plan: ChangePlan, clauses: tuple[Clause, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The first and the second stage, where nothing is written."""
    gc.freeze()
    yield _messages(_noted(write_changes(plan, clauses, batches)))


def _noted(written: WrittenChanges) -> list[tuple[int, object]]:
    own = WrittenChanges(written.fragments, (), written.num_inserted_rows, written.num_updated_rows)
    return [(_NOT_OF_A_FRAGMENT, own), *((rows.fragment_id, rows) for rows in written.touched)]


@clean_iterator
def _settle(
    plan: ChangePlan, one_match_each: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The third stage; what was written passes through."""
    gc.freeze()
    touched: list[TouchedRows] = []
    passed: list[tuple[int, object]] = []
    for batch in batches:
        for payload in batch.column("payload").to_pylist():
            message = pickle.loads(payload)
            if isinstance(message, TouchedRows):
                touched.append(message)
            elif message.fragments or message.num_updated_rows or message.num_inserted_rows:
                passed.append((_NOT_OF_A_FRAGMENT, message))
    losses = write_deletions(plan, touched, one_match_each=one_match_each)
    yield _messages([*passed, *((loss.fragment_id, loss) for loss in losses)])


@clean_iterator
def _finish(
    plan: ChangePlan,
    clauses: tuple[Clause, ...],
    one_match_each: bool,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """The second and the third stage at once, for a task that has all rows of its fragments."""
    yield from _settle(plan, one_match_each, _write(plan, clauses, batches))


def _messages(messages: Sequence[tuple[int, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([fragment for fragment, _ in messages], pa.int64()),
            pa.array([pickle.dumps(message) for _, message in messages], pa.binary()),
        ],
        schema=_MESSAGE,
    )

"""The stages of a DML statement; a ``StageRunner`` passes the output of one to the next.

The first stage writes inserted rows and packs the remaining ones. The second receives the rows of a
fragment together, writes the updated ones and collects the addresses of removed rows as one bitmap
per fragment. The third receives all bitmaps of a fragment and writes its deletion file. Between
stages, batches consist of a number and an opaque payload.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from pyspark_lance.plain_values import plain_values
from pyspark_lance.table.dml.commit_changes import RowChanges, combine_results
from pyspark_lance.table.dml.deletions import FragmentDeletions, TouchedRows, write_deletions
from pyspark_lance.table.dml.moved_rows import Clause, WrittenChanges, write_changes
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction
from pyspark_lance.table.dml.sort_changes import Parts, SortedChanges, in_order, sort_changes
from pyspark_lance.table.rows.empty_parts import with_offsets
from pyspark_lance.table.rows.packed_rows import pack_rows, unpack_rows

PART = "part"
"""Column of a piece: the part of the table that contains its rows."""
FRAGMENT = "fragment"
"""Column of a message: the fragment id."""
PAYLOAD = "payload"
"""Column of both: packed rows, or the pickled result."""

PIECE = pa.schema([pa.field(PART, pa.int64()), pa.field(PAYLOAD, pa.binary())])
"""Packed changed rows and the part of the table that contains them."""
MESSAGE = pa.schema([pa.field(FRAGMENT, pa.int64()), pa.field(PAYLOAD, pa.binary())])
"""A pickled result and the id of its fragment."""

_NOT_OF_A_FRAGMENT = -1
# Used as the part: the payload is a ``WrittenChanges``.
_IS_WRITTEN = -1


def writes_rows(clauses: Iterable[Clause]) -> bool:
    """Return whether rows are updated or inserted; otherwise ``collect_deletes`` suffices."""
    return any(clause.action in (RowAction.UPDATE, RowAction.INSERT) for clause in clauses)


def sort_stage(
    plan: DmlPlan,
    clauses: Sequence[Clause],
    parts: Parts,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int,
) -> Iterator[pa.RecordBatch]:
    """Run the first stage and yield pieces.

    ``batches``: in the layout of ``write_changes``, in any order.
    """
    for piece in sort_changes(plan, clauses, parts, map(with_offsets, batches), task=task):
        if not isinstance(piece, SortedChanges):
            part, rows = piece
            yield _batch(PIECE, [(part, pack_rows(rows))])
        elif piece.new_fragments:
            written = WrittenChanges(
                piece.new_fragments, (), piece.num_inserted_rows, 0, piece.new_keys
            )
            yield _batch(PIECE, [(_IS_WRITTEN, pickle.dumps(written))])


def write_stage(
    plan: DmlPlan, clauses: Sequence[Clause], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the second stage and yield messages; messages of the first stage pass through.

    ``batches``: pieces, sorted by part.
    """
    passed: list[tuple[int, object]] = []

    def pieces() -> Iterator[tuple[int, Iterator[pa.RecordBatch]]]:
        for batch in batches:
            for part, payload in zip(batch.column(PART), batch.column(PAYLOAD), strict=True):
                if part.as_py() == _IS_WRITTEN:
                    passed.append((_NOT_OF_A_FRAGMENT, pickle.loads(payload.as_py())))
                else:
                    yield part.as_py(), unpack_rows(payload.as_py())

    collected = _delete_messages(write_changes(plan, clauses, in_order(pieces())))
    yield _messages([*passed, *collected])


def collect_deletes(
    plan: DmlPlan, clauses: Sequence[Clause], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the first and second stage of a statement that only deletes."""
    yield _messages(_delete_messages(write_changes(plan, clauses, batches)))


def apply_deletes(
    plan: DmlPlan, one_match_each: bool, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Run the third stage; messages about written rows pass through.

    ``one_match_each``: report target rows that have more than one change; ``batches``: all messages
    about the same fragments.
    """
    touched: list[TouchedRows] = []
    passed: list[tuple[int, object]] = []
    for message in map(pickle.loads, payloads_of(batches)):
        if isinstance(message, TouchedRows):
            touched.append(message)
        elif message.fragments or message.num_updated_rows or message.num_inserted_rows:
            passed.append((_NOT_OF_A_FRAGMENT, message))
    deletions = write_deletions(plan, touched, one_match_each=one_match_each)
    yield _messages([*passed, *((deletion.fragment_id, deletion) for deletion in deletions)])


def finish_stage(
    plan: DmlPlan,
    clauses: Sequence[Clause],
    one_match_each: bool,
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Run the second and third stage together, for a task that has all rows of its fragments."""
    yield from apply_deletes(plan, one_match_each, write_stage(plan, clauses, batches))


def gather(plan: DmlPlan, payloads: Iterable[bytes]) -> RowChanges:
    """Combine the messages of the third stage."""
    messages = list(map(pickle.loads, payloads))
    return combine_results(
        plan,
        [message for message in messages if isinstance(message, WrittenChanges)],
        [message for message in messages if isinstance(message, FragmentDeletions)],
    )


def _delete_messages(written: WrittenChanges) -> list[tuple[int, object]]:
    return [
        (_NOT_OF_A_FRAGMENT, replace(written, touched=())),
        *((rows.fragment_id, rows) for rows in written.touched),
    ]


def _messages(messages: Iterable[tuple[int, object]]) -> pa.RecordBatch:
    return _batch(MESSAGE, [(fragment, pickle.dumps(what)) for fragment, what in messages])


def payloads_of(batches: Iterable[pa.RecordBatch]) -> Iterator[bytes]:
    """Yield the payloads of messages."""
    for batch in batches:
        yield from batch.column(PAYLOAD).to_pylist()


def _batch(schema: pa.Schema, rows: Sequence[tuple[int, bytes]]) -> pa.RecordBatch:
    arrays = [
        plain_values([row[place] for row in rows], field.type) for place, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

"""The stages of a DML statement; a ``StageRunner`` passes the output of one to the next.

The first stage writes inserted rows and packs the remaining ones: updated rows must be grouped by
fragment, so they are shuffled as packed pieces of adjacent fragments. Inserted rows need no
shuffle: a task with enough of them for a file writes it directly. The second stage receives the
rows of a fragment together, writes the updated ones and collects the addresses of removed rows as
one bitmap per fragment. The third receives all bitmaps of a fragment and writes its deletion file.
Between stages, batches consist of a number and an opaque payload.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import fewest_batches
from pyspark_lance.codec.row_selection import filter_rows, take_rows
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import fragment_ids
from pyspark_lance.plain_values import plain_numbers, plain_values
from pyspark_lance.table.dml.commit_changes import RowChanges, combine_results
from pyspark_lance.table.dml.deletions import FragmentDeletions, MatchedRows, write_deletions
from pyspark_lance.table.dml.key_filter import (
    NewKeys,
    RowBuffer,
    pack_rows,
    split_rows,
    stored_key,
    unpack_rows,
)
from pyspark_lance.table.dml.moved_rows import (
    CHANGED_ADDRESS,
    CLAUSE,
    Clause,
    WrittenChanges,
    inserted_rows,
    write_changes,
)
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction
from pyspark_lance.table.rows.blob_bytes import BlobBytes
from pyspark_lance.table.rows.conform import with_offsets
from pyspark_lance.table.rows.write_fragments import FragmentFiles

# Minimum new rows of a task for a separate file; smaller inserts are combined.
MIN_FILE_ROWS = 1 << 16
MIN_FILE_BYTES = 16 << 20
# Maximum rows that are sorted at a time.
_MAX_SORTED_ROWS = 1 << 20
_MAX_SORTED_BYTES = 64 << 20
_MAX_PARTS = 512
_OUTPUT_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Parts:
    """Partitions of a table: ranges of adjacent fragments, followed by parts for new rows."""

    first: int
    shift: int  # A part has ``2 ** shift`` fragment ids.
    count: int  # Number of parts; higher numbers are for new rows.

    @classmethod
    def of(cls, fragments: Sequence[Fragment]) -> Parts:
        """Return the parts of a table."""
        ids = [fragment.id for fragment in fragments]
        first, span = min(ids, default=0), max(ids, default=0) - min(ids, default=0) + 1
        shift = max(0, (span - 1).bit_length() - (_MAX_PARTS.bit_length() - 1))
        return cls(first, shift, ((span - 1) >> shift) + 1)

    @classmethod
    def all_in_one(cls) -> Parts:
        """Return one part for all rows, for statements too small to split."""
        return cls(0, 63, 1)

    def of_rows(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the part of each row, same shape."""
        return (fragment_ids(addresses).astype(np.int64) - self.first) >> self.shift


@dataclass(frozen=True, slots=True)
class SortedChanges:
    """The result of a task, apart from its pieces."""

    new_fragments: tuple[Fragment, ...]
    num_inserted_rows: int
    new_keys: bytes = b""  # See ``WrittenChanges``.


def sort_changes(
    plan: DmlPlan,
    clauses: Sequence[Clause],
    parts: Parts,
    batches: Iterable[pa.RecordBatch],
    *,
    task: int,
) -> Iterator[tuple[int, pa.RecordBatch] | SortedChanges]:
    """Yield pieces with their part, and last the written rows.

    Either all new rows of the task are written, or all are in pieces, so that a retried task
    decides the same even with another row order. On failure, the files written by this call are
    removed.

    ``batches``: in the layout of ``write_changes``, in any order.
    """
    actions = np.array([clause.action for clause in clauses], dtype=np.int8)
    others = RowBuffer(_MAX_SORTED_ROWS, _MAX_SORTED_BYTES)
    new = _NewRows(plan, clauses)
    try:
        for batch in batches:
            clause = plain_numbers(batch.column(CLAUSE))
            is_new = actions[clause] == RowAction.INSERT
            if is_new.all():
                new.add(batch)
                continue
            if is_new.any():
                new.add(filter_rows(batch, is_new))
                batch = filter_rows(batch, ~is_new)
            if others.add(batch):
                yield from _pieces(parts, others.take())
        yield from _pieces(parts, others.take())
        written, buffered = new.finish()
        for rows in buffered:
            yield parts.count + task, rows
        yield written
    except BaseException:
        new.remove()
        raise


def _pieces(
    parts: Parts, batches: Iterable[pa.RecordBatch]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    for rows in batches:
        yield from split_rows(rows, parts.of_rows(_addresses(rows)))


def in_order(pieces: Iterable[tuple[int, Iterable[pa.RecordBatch]]]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of pieces in the layout of ``write_changes``.

    Rows of a part are sorted by address as far as memory allows.

    ``pieces``: each with its part, ascending by part.
    """
    buffer = RowBuffer(_MAX_SORTED_ROWS, _MAX_SORTED_BYTES)
    last: int | None = None
    for part, batches in pieces:
        if last is not None and part != last:
            yield from _by_address(buffer.take())
        last = part
        for batch in batches:
            if buffer.add(batch):
                yield from _by_address(buffer.take())
    yield from _by_address(buffer.take())


def _by_address(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for rows in batches:
        if not rows.column(CHANGED_ADDRESS).null_count:
            addresses = _addresses(rows)
            if (addresses[1:] < addresses[:-1]).any():
                rows = take_rows(rows, np.argsort(addresses, kind="stable"))
        for start in range(0, rows.num_rows, _OUTPUT_ROWS):
            yield rows.slice(start, _OUTPUT_ROWS)


def _addresses(rows: pa.RecordBatch) -> NDArray[np.uint64]:
    addresses = pc.cast(rows.column(CHANGED_ADDRESS), pa.uint64())
    return plain_numbers(addresses)


class _NewRows:
    """Inserted rows, buffered until there are enough for a file."""

    def __init__(self, plan: DmlPlan, clauses: Sequence[Clause]) -> None:
        self._plan = plan
        self._clauses = clauses
        self._buffered: list[pa.RecordBatch] = []
        self._buffered_bytes = 0
        self._files: FragmentFiles | None = None
        self._count = 0
        self._new_keys = NewKeys(stored_key(plan.schema))
        self._blobs = BlobBytes(plan.table)

    def add(self, batch: pa.RecordBatch) -> None:
        self._count += batch.num_rows
        if self._files is not None:
            self._write(batch)
            return
        self._buffered.append(batch)
        self._buffered_bytes += batch.nbytes
        if self._count >= MIN_FILE_ROWS or self._buffered_bytes >= MIN_FILE_BYTES:
            self._files = FragmentFiles(self._plan.write_request())
            buffered, self._buffered = self._buffered, []
            for buffered_batch in buffered:
                self._write(buffered_batch)

    def finish(self) -> tuple[SortedChanges, list[pa.RecordBatch]]:
        """Return the written and the unwritten rows."""
        if self._files is None:
            return SortedChanges((), 0), fewest_batches(self._buffered)
        self._files.close_file()
        written = tuple(self._files.fragments)
        return SortedChanges(written, self._count, self._new_keys.to_bytes()), []

    def remove(self) -> None:
        if self._files is not None:
            self._files.remove()

    def _write(self, batch: pa.RecordBatch) -> None:
        files = self._files
        if files is None:
            raise AssertionError("no file is open")
        fields = self._plan.schema.fields
        numbers = plain_numbers(batch.column(CLAUSE)).astype(np.int64)
        for number, given in split_rows(batch, numbers):
            for rows in self._blobs.of(given):
                whole = inserted_rows(fields, rows, self._clauses[number].columns)
                self._new_keys.add(whole)
                files.write(whole)


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
    touched: list[MatchedRows] = []
    passed: list[tuple[int, object]] = []
    for message in map(pickle.loads, payloads_of(batches)):
        if isinstance(message, MatchedRows):
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
        plain_values([row[index] for row in rows], field.type) for index, field in enumerate(schema)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)

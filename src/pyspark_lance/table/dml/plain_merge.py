"""Plain merges: an equi-join whose assigned values are columns of the source.

Such a merge needs no expression evaluation, so rows stay in Arrow: each bucket of the source is
matched with the target keys of the same bucket, and yields changes.

It runs in stages, which exchange batches of bucket, kind and payload. The source is packed,
together with a small filter of its keys. Scans of the target yield keys and addresses of rows that
pass the filter. A small number of them is broadcast to every task, which matches its source rows;
otherwise both sides are shuffled by buckets of their keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.array_assembly import fewest_batches, join_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.dml.change_stages import PAYLOAD, Parts, sort_stage
from pyspark_lance.table.dml.key_cache import rows_with_keys
from pyspark_lance.table.dml.key_filter import (
    KeyCollector,
    KeyFilter,
    KeyTable,
    RowBuffer,
    key_buckets,
    keys_condition,
    pack_rows,
    split_rows,
    unpack_rows,
)
from pyspark_lance.table.dml.moved_rows import Clause, as_changes
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction
from pyspark_lance.table.rows.conform import with_offsets
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_task import ScanTask

# Rows of the source that are matched at a time.
_BATCH_ROWS = 1 << 18
_BATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class PlainMerge:
    """The assignments of a merge, by column positions in the source batches."""

    source_keys: tuple[int, ...]  # Position of each part of the key.
    target_keys: tuple[str, ...]  # The table columns that they must equal.
    matched: RowAction | None  # Delete or update; None if matched rows stay unchanged.
    updates: Mapping[str, int]  # Table column -> position of its new value.
    inserts: Mapping[str, int] | None  # The same for inserts; None if there are none.

    def __post_init__(self) -> None:
        """Reject a plain value."""
        if self.matched is not None:
            check_enum(self.matched, RowAction)

    @property
    def unchanged(self) -> frozenset[str]:
        """Target keys that are assigned the value that they already equal."""
        keys = zip(self.target_keys, self.source_keys, strict=True)
        return frozenset(name for name, index in keys if self.updates.get(name) == index)

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """The clauses that the changes refer to by number."""
        clauses = []
        if self.matched is not None:
            clauses.append(Clause(self.matched, tuple(self.updates), self.unchanged))
        if self.inserts is not None:
            clauses.append(Clause(RowAction.INSERT, tuple(self.inserts)))
        return tuple(clauses)


def keys_of(batch: pa.RecordBatch, merge: PlainMerge) -> list[pa.Array]:
    """Return the key columns of source rows."""
    return [batch.column(index) for index in merge.source_keys]


def target_keys_of(batch: pa.RecordBatch, merge: PlainMerge) -> list[pa.Array]:
    """Return the key columns of target rows."""
    return [batch.column(name) for name in merge.target_keys]


def plain_changes(
    merge: PlainMerge, target: Sequence[pa.RecordBatch], source: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Match the rows of one bucket and yield changes for ``write_changes``.

    ``target``: rows that may match: the key columns, ``_rowid`` and ``_rowaddr``.
    """
    matcher = _Matcher(merge, target)
    buffer = RowBuffer(_BATCH_ROWS, _BATCH_BYTES)
    for batch in source:
        if buffer.add(batch):
            yield from matcher.changes(buffer.take())
    yield from matcher.changes(buffer.take())


class _Matcher:
    """Join of source rows with the target rows of a bucket."""

    def __init__(self, merge: PlainMerge, target: Sequence[pa.RecordBatch]) -> None:
        self._merge = merge
        self._target: tuple[pa.RecordBatch, KeyTable] | None = None
        if target:
            rows = join_batches(target)
            self._target = rows, KeyTable(target_keys_of(rows, merge))

    def changes(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield from self._changes(batch)

    def _changes(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        is_new = np.ones(batch.num_rows, dtype=np.bool_)
        if self._target is not None:
            target, table = self._target
            rows, indices = table.pairs(keys_of(batch, self._merge))
            is_new[rows] = False
            if self._merge.matched is not None and len(rows):
                yield self._update_rows(take_rows(batch, rows), take_rows(target, indices))
        if self._merge.inserts is not None and is_new.any():
            new = batch if is_new.all() else take_rows(batch, np.flatnonzero(is_new))
            yield self._insert_rows(new, self._merge.inserts)

    def _update_rows(self, rows: pa.RecordBatch, target: pa.RecordBatch) -> pa.RecordBatch:
        updates = self._merge.updates
        return as_changes(target, 0, {name: rows.column(at) for name, at in updates.items()})

    def _insert_rows(self, rows: pa.RecordBatch, values: Mapping[str, int]) -> pa.RecordBatch:
        nothing = pa.nulls(rows.num_rows, pa.uint64())
        nowhere = pa.RecordBatch.from_pydict({ROW_ID: nothing, ROW_ADDRESS: nothing})
        number = len(self._merge.clauses) - 1
        return as_changes(nowhere, number, {name: rows.column(at) for name, at in values.items()})


BUCKET = "bucket"
"""Column of a batch between stages: rows with equal keys share a bucket."""
KIND = "kind"
"""Column of the same: one of the four kinds below."""
TARGET, SOURCE, FILTER, TOO_MANY = range(4)

# Rows that are packed at a time.
_STAGE_BATCH_ROWS = 1 << 17
_STAGE_BATCH_BYTES = 32 << 20

# Up to this many target rows, or the bytes of such rows with short keys, are broadcast to every
# matching task; more are shuffled.
_SMALL_ROW_COUNT = 250_000
# Fewer rows are processed in one task by the following stages.
_TINY_ROWS = 4096
# One scan task may have this multiple of its share of them.
_SMALL_SKEW = 4
_SMALL_ROW_BYTES = 64

STAGED = pa.schema(
    [pa.field(BUCKET, pa.int64()), pa.field(KIND, pa.int32()), pa.field(PAYLOAD, pa.binary())]
)
"""The schema of batches between stages."""


def target_tasks(
    plan: DmlPlan, merge: PlainMerge, keys: KeyFilter | None, target_filter: str | None
) -> tuple[ScanTask, ...]:
    """Plan the scan of target keys and addresses.

    ``keys``: those of the source, if they are known; ``target_filter``: only rows that satisfy it
    can match.
    """
    snapshot = plan.snapshot()
    every = predicate_schema(snapshot.schema)
    request = ScanRequest(
        schema=project(snapshot.schema, tuple(dict.fromkeys(merge.target_keys))),
        system_columns=(ROW_ID, ROW_ADDRESS),
        predicate=None if target_filter is None else parse_predicate(target_filter, every),
        narrowed_by=keys_condition(snapshot, merge.target_keys, keys),
    )
    return tuple(plan_scan(snapshot, request))


def pack_source(merge: PlainMerge, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Pack the source and build the filter of its keys."""
    collected = KeyCollector()
    for rows in _full_batches(map(with_offsets, batches)):
        collected.add(keys_of(rows, merge))
        yield _stage(0, SOURCE, pack_rows(rows))
    keys = collected.result()
    if keys is not None:
        yield _stage(0, FILTER, keys.to_bytes())


def split_source(
    merge: PlainMerge, buckets: int, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sort packed rows of the source into buckets."""
    for _, payload in _payloads(batches):
        for rows in unpack_rows(payload):
            for bucket, piece in split_rows(rows, key_buckets(keys_of(rows, merge), buckets)):
                yield _stage(bucket, SOURCE, pack_rows(piece))


def split_target(
    merge: PlainMerge, keys: KeyFilter | None, buckets: int, tasks: Iterable[ScanTask]
) -> Iterator[pa.RecordBatch]:
    """Yield the target rows that may match, packed by bucket."""
    for rows in _full_batches(_may_match(merge, keys, tasks)):
        for bucket, piece in split_rows(rows, key_buckets(target_keys_of(rows, merge), buckets)):
            yield _stage(bucket, TARGET, pack_rows(piece))


def broadcast_limit(num_tasks: int) -> int:
    """Return the row limit of each scan task for a broadcast."""
    return min(_SMALL_ROW_COUNT, _SMALL_SKEW * _SMALL_ROW_COUNT // max(1, num_tasks))


def collect_broadcast(
    merge: PlainMerge, keys: KeyFilter | None, limit: int, tasks: Iterable[ScanTask]
) -> Iterator[pa.RecordBatch]:
    """Yield the target rows that may match, packed, or a marker that they are too many."""
    batches, count, size = [], 0, 0
    for rows in _may_match(merge, keys, tasks):
        batches.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count > limit or size > limit * _SMALL_ROW_BYTES:
            yield _stage(0, TOO_MANY, b"")
            return
    for rows in fewest_batches(batches):
        yield _stage(0, TARGET, pack_rows(rows))


def broadcast_target(staged: Iterable[tuple[int, bytes]]) -> tuple[bytes, ...] | None:
    """Return the packed target rows that may match; None if they are too many to broadcast.

    ``staged``: kinds and payloads of ``collect_broadcast``.
    """
    packed = list(staged)
    is_small = sum(len(payload) for _, payload in packed) <= _SMALL_ROW_COUNT * _SMALL_ROW_BYTES
    if not is_small or any(kind == TOO_MANY for kind, _ in packed):
        return None
    return tuple(payload for _, payload in packed)


def broadcast_parts(fragments: Sequence[Fragment], packed_target: Sequence[bytes]) -> Parts:
    """Return the parts of a table whose rows in ``packed_target`` may change."""
    is_tiny = sum(map(len, packed_target)) <= _TINY_ROWS * _SMALL_ROW_BYTES
    return Parts.all_in_one() if is_tiny else Parts.of(fragments)


def match_stage(
    plan: DmlPlan,
    merge: PlainMerge,
    parts: Parts,
    packed_target: Sequence[bytes],
    batches: Iterable[pa.RecordBatch],
    *,
    task: int,
) -> Iterator[pa.RecordBatch]:
    """Match source rows and yield the changes as pieces.

    Target rows are those in ``packed_target``, and those that precede the source rows.
    """
    pieces = _payloads(batches)
    target = [rows for packed in packed_target for rows in unpack_rows(packed)]
    first: list[bytes] = []
    for kind, payload in pieces:
        if kind != TARGET:
            first.append(payload)
            break
        target += unpack_rows(payload)
    packed_source = chain(first, (payload for _, payload in pieces))
    source = (rows for payload in packed_source for rows in unpack_rows(payload))
    yield from sort_stage(
        plan, merge.clauses, parts, plain_changes(merge, target, source), task=task
    )


def _may_match(
    merge: PlainMerge, keys: KeyFilter | None, tasks: Iterable[ScanTask]
) -> Iterator[pa.RecordBatch]:
    for task in tasks:
        yield from task.run() if keys is None else rows_with_keys(task, merge.target_keys, keys)


def _full_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Regroup the rows into batches of the size of a piece."""
    buffer = RowBuffer(_STAGE_BATCH_ROWS, _STAGE_BATCH_BYTES)
    for batch in batches:
        if buffer.add(batch):
            yield from buffer.take()
    yield from buffer.take()


def _payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        for kind, payload in zip(batch.column(KIND), batch.column(PAYLOAD), strict=True):
            yield kind.as_py(), payload.as_py()


def _stage(bucket: int, kind: int, payload: bytes) -> pa.RecordBatch:
    columns = [[bucket], [kind], [payload]]
    arrays = [pa.array(column, field.type) for column, field in zip(columns, STAGED, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=STAGED)

"""Plain merges: an equi-join whose assigned values are columns of the source.

Such a merge needs no expression evaluation, so rows stay in Arrow: each bucket of the source is
matched with the target keys of the same bucket, and yields changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.join_rows import join_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.dml.key_match import KeyTable
from pyspark_lance.table.dml.moved_rows import Clause, as_changes
from pyspark_lance.table.dml.row_change import RowAction
from pyspark_lance.table.rows.packed_rows import RowBuffer

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
        return frozenset(name for name, place in keys if self.updates.get(name) == place)

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
    return [batch.column(place) for place in merge.source_keys]


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
    """Matches source rows with the target rows of a bucket."""

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
            rows, places = table.pairs(keys_of(batch, self._merge))
            is_new[rows] = False
            if self._merge.matched is not None and len(rows):
                yield self._matched(take_rows(batch, rows), take_rows(target, places))
        if self._merge.inserts is not None and is_new.any():
            new = batch if is_new.all() else take_rows(batch, np.flatnonzero(is_new))
            yield self._inserted(new, self._merge.inserts)

    def _matched(self, rows: pa.RecordBatch, target: pa.RecordBatch) -> pa.RecordBatch:
        updates = self._merge.updates
        return as_changes(target, 0, {name: rows.column(at) for name, at in updates.items()})

    def _inserted(self, rows: pa.RecordBatch, values: Mapping[str, int]) -> pa.RecordBatch:
        nothing = pa.nulls(rows.num_rows, pa.uint64())
        nowhere = pa.RecordBatch.from_pydict({ROW_ID: nothing, ROW_ADDRESS: nothing})
        number = len(self._merge.clauses) - 1
        return as_changes(nowhere, number, {name: rows.column(at) for name, at in values.items()})

"""Changes in Debezium's form: one row for each, with the row before and after it.

Old and new values of an update leave a task in two consecutive batches, so nothing has to be looked
up.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.codec.row_selection import filter_rows
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.predicate.conditions import Predicate, matching
from pyspark_lance.table.cdf.change_feed_task import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from pyspark_lance.table.cdf.changed_rows import ChangeType

BEFORE, AFTER, OPERATION, SOURCE, MILLISECONDS = "before", "after", "op", "source", "ts_ms"
_LETTERS: Final = {ChangeType.INSERT: "c", ChangeType.UPDATE_POSTIMAGE: "u", ChangeType.DELETE: "d"}
_FROM_SNAPSHOT: Final = "r"
_SOURCE_TYPE: Final = pa.struct(
    [
        pa.field("table", pa.string()),
        pa.field("version", pa.int64()),
        pa.field("rowId", pa.int64()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("snapshot", pa.bool_()),
    ]
)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Output format of changes."""

    table: str
    # Columns of the row before the change; None if they are not wanted.
    before: tuple[str, ...] | None
    after: tuple[str, ...] | None  # The same for the row after it.
    predicate: Predicate | None = None  # Rows of this form to return; None for all.
    is_snapshot: bool = False


def envelope_schema(columns: Sequence[pa.Field]) -> pa.Schema:
    """The columns of changes in this form."""
    # A row that is not there has no values.
    row = pa.struct([field.with_nullable(True) for field in columns])
    return pa.schema(
        [
            pa.field(BEFORE, row),
            pa.field(AFTER, row),
            pa.field(OPERATION, pa.string(), nullable=False),
            pa.field(SOURCE, _SOURCE_TYPE, nullable=False),
            pa.field(MILLISECONDS, pa.int64()),
        ]
    )


def wrap_batches(batches: Iterator[pa.RecordBatch], envelope: Envelope) -> Iterator[pa.RecordBatch]:
    """Convert changes to this form.

    ``batches``: the complete output of ``run_changes``.
    """
    old: pa.RecordBatch | None = None
    for batch in batches:
        kind = ChangeType(batch.column(CHANGE_TYPE)[0].as_py())
        if kind is ChangeType.UPDATE_PREIMAGE:
            old = batch
            continue
        if kind is not ChangeType.UPDATE_POSTIMAGE:
            old = batch if kind is ChangeType.DELETE else None
        elif old is None or not old.column(ROW_ID).equals(batch.column(ROW_ID)):
            raise CorruptFileError("old values without new ones", envelope.table)
        rows = _of_rows(envelope, kind, old, None if kind is ChangeType.DELETE else batch)
        old = None
        if envelope.predicate is not None:
            rows = filter_rows(rows, matching(envelope.predicate, rows))
        if rows.num_rows:
            yield rows


def _of_rows(
    envelope: Envelope,
    kind: ChangeType,
    before: pa.RecordBatch | None,
    after: pa.RecordBatch | None,
) -> pa.RecordBatch:
    """The changes of some rows, all of one kind."""
    known = after if after is not None else before
    assert known is not None
    count = known.num_rows
    times = known.column(COMMIT_TIMESTAMP)
    letter = _FROM_SNAPSHOT if envelope.is_snapshot else _LETTERS[kind]
    source = pa.StructArray.from_arrays(
        [
            pa.repeat(pa.scalar(envelope.table, pa.string()), count),
            known.column(COMMIT_VERSION).cast(pa.int64()),
            known.column(ROW_ID).cast(pa.int64()),
            times.cast(_SOURCE_TYPE.field("timestamp").type),
            pa.array(np.full(count, envelope.is_snapshot)),
        ],
        fields=list(_SOURCE_TYPE),
    )
    milliseconds = pc.divide(
        times.cast(_SOURCE_TYPE.field("timestamp").type).cast(pa.int64()), 1000
    )
    columns: dict[str, pa.Array] = {}
    for name, wanted, rows in ((BEFORE, envelope.before, before), (AFTER, envelope.after, after)):
        if wanted is not None:
            columns[name] = _nest_rows(wanted, rows, known)
    columns |= {
        OPERATION: pa.repeat(pa.scalar(letter, pa.string()), count),
        SOURCE: source,
        MILLISECONDS: milliseconds,
    }
    return pa.RecordBatch.from_pydict(columns)


def _nest_rows(
    names: Sequence[str], rows: pa.RecordBatch | None, like: pa.RecordBatch
) -> pa.StructArray:
    """Rows as one column; null if there are none."""
    fields = [like.schema.field(name).with_nullable(True) for name in names]
    if rows is None:
        return pa.nulls(like.num_rows, pa.struct(fields))
    return pa.StructArray.from_arrays([rows.column(name) for name in names], fields=fields)

"""RowSorter: values with the names of their rows, in the order of indices, in bounded memory.

What does not fit is sorted in runs that wait in temporary files, and the runs are merged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array
from pyspark_lance.table.index.value_order import begins_run, sort_order

VALUES: Final = "values"
IDS: Final = "ids"
MOST_ROWS: Final = 4 << 20
"""Rows that are sorted in memory."""
MOST_BYTES: Final = 128 << 20
"""Bytes of their values; while they are sorted there are three times as many."""
_BATCH_ROWS: Final = 64 << 10
# Of all runs together, while they are merged.
_MERGED_BYTES: Final = 64 << 20


class RowSorter:
    """Sorts rows; its temporary files go with it.

    ``most_bytes``: bytes of values to sort in memory.
    """

    def __init__(
        self, data_type: pa.DataType, most_rows: int = MOST_ROWS, most_bytes: int = MOST_BYTES
    ) -> None:
        self._schema = pa.schema([pa.field(VALUES, data_type), pa.field(IDS, pa.uint64())])
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._held: list[pa.RecordBatch] = []
        self._num_rows, self._num_bytes = 0, 0
        self._folder = tempfile.TemporaryDirectory(prefix="lance-index-")
        self._runs: list[str] = []
        self._longest_batch = 0

    def __enter__(self) -> RowSorter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def add(self, values: pa.Array, ids: NDArray[np.uint64]) -> None:
        """Takes rows, in any order."""
        batch = pa.RecordBatch.from_arrays([values, plain_array(ids)], schema=self._schema)
        if self._held and self._num_bytes + batch.nbytes > self._most_bytes:
            self._put_aside()
        self._held.append(batch)
        self._num_rows += len(ids)
        self._num_bytes += batch.nbytes
        if self._num_rows >= self._most_rows:
            self._put_aside()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, sorted: columns ``values`` and ``ids``; nulls first, in the order they came.

        Rows of equal values are in no order.
        """
        if not self._runs:
            yield from _in_batches(self._sorted_held(), _BATCH_ROWS)
            return
        self._put_aside()
        room = max(1, _MERGED_BYTES // max(1, self._longest_batch) // len(self._runs))
        yield from merged([_stored_batches(path) for path in self._runs], room)

    def _sorted_held(self) -> pa.RecordBatch:
        table = pa.Table.from_batches(self._held, self._schema).combine_chunks()
        self._held, self._num_rows, self._num_bytes = [], 0, 0
        if not table.num_rows:
            return _no_rows(self._schema)
        (batch,) = table.to_batches()
        del table
        return batch.take(plain_array(sort_order(batch.column(VALUES))))

    def _put_aside(self) -> None:
        if not self._held:
            return
        rows = self._sorted_held()
        # Runs of long values are cut finely, since some rows of each are in memory at a time.
        count = max(1, min(_BATCH_ROWS, rows.num_rows * (4 << 20) // max(1, rows.nbytes)))
        path = f"{self._folder.name}/{len(self._runs)}"
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, self._schema) as writer:
            for batch in _in_batches(rows, count):
                self._longest_batch = max(self._longest_batch, batch.nbytes)
                writer.write_batch(batch)
        self._runs.append(path)


def merged(streams: Sequence[Iterator[pa.RecordBatch]], room: int = 1) -> Iterator[pa.RecordBatch]:
    """The rows of sorted streams, sorted; ``room`` batches of each are in memory at a time."""
    yield from _merged([_Run(stream, room) for stream in streams])


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([pa.nulls(0, kind) for kind in schema.types], schema=schema)


def _in_batches(rows: pa.RecordBatch, count: int) -> Iterator[pa.RecordBatch]:
    return (rows.slice(start, count) for start in range(0, rows.num_rows, count))


def _stored_batches(path: str) -> Iterator[pa.RecordBatch]:
    with pa.OSFile(path, "rb") as file, pa.ipc.open_file(file) as reader:
        for number in range(reader.num_record_batches):
            yield reader.get_batch(number)


@dataclass(slots=True)
class _Run:
    """Sorted rows, of which some are in memory."""

    stored: Iterator[pa.RecordBatch]
    room: int
    held: pa.RecordBatch | None = field(default=None)  # The next rows; empty when all are gone.

    def fill(self) -> None:
        if self.held is not None and self.held.num_rows:
            return
        batches = list(islice(self.stored, self.room))
        table = pa.Table.from_batches(batches).combine_chunks() if batches else None
        self.held = None if table is None else table.to_batches()[0]

    def pop(self, count: int) -> None:
        assert self.held is not None
        self.held = self.held.slice(count)


def _merged(runs: Sequence[_Run]) -> Iterator[pa.RecordBatch]:
    while True:
        for run in runs:
            run.fill()
        left = [run for run in runs if run.held is not None]
        if not left:
            return
        yield from _in_batches(_next_rows(left), _BATCH_ROWS)


def _next_rows(runs: Sequence[_Run]) -> pa.RecordBatch:
    """The rows that come before all that are not in memory; one run at least ends with them."""
    held = [run.held for run in runs if run.held is not None]
    ranks = _ranks(pa.concat_arrays([_ends(part.column(VALUES)) for part in held]))
    first, last = ranks[::2], ranks[1::2]
    taken = np.flatnonzero(first <= last.min()).tolist()
    parts = [held[number] for number in taken]
    (rows,) = pa.Table.from_batches(parts).combine_chunks().to_batches()
    order = sort_order(rows.column(VALUES), stable=True)
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    stops = np.cumsum([part.num_rows for part in parts])
    chosen = order[: places[stops - 1].min() + 1]
    counts = np.bincount(np.searchsorted(stops, chosen, "right"), minlength=len(taken))
    for number, count in zip(taken, counts.tolist(), strict=True):
        runs[number].pop(count)
    return rows.take(plain_array(chosen))


def _ends(values: pa.Array) -> pa.Array:
    return values.take(plain_array(np.array([0, len(values) - 1])))


def _ranks(values: pa.Array) -> NDArray[np.int64]:
    """What place each value has among the others; equal ones have the same."""
    order = sort_order(values)
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.cumsum(begins_run(values.take(plain_array(order))))
    return ranks

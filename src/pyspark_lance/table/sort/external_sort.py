"""ExternalSorter: rows in an order, in bounded memory.

What does not fit is sorted in runs that wait in temporary files, and the runs are merged.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from types import TracebackType
from typing import Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.join_rows import join_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.table.sort.row_order import RowOrder

MAX_ROWS: Final = 4 << 20
"""Rows that are sorted in memory."""
MAX_BYTES: Final = 128 << 20
"""Their bytes; while they are sorted there are three times as many."""
_BATCH_ROWS: Final = 64 << 10
# Of all runs together, while they are merged.
_MERGED_BYTES: Final = 64 << 20

Places: TypeAlias = Callable[[pa.RecordBatch], NDArray[np.int64]]
"""Where the rows of a batch are that come first, second, …; equal ones stay as they are."""


class ExternalSorter:
    """Sorts rows; its temporary files go with it.

    ``most_bytes``: bytes of rows to sort in memory.
    """

    def __init__(
        self, places: Places, most_rows: int = MAX_ROWS, most_bytes: int = MAX_BYTES
    ) -> None:
        self._places = places
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._held: list[pa.RecordBatch] = []
        self._num_rows, self._num_bytes = 0, 0
        self._folder = tempfile.TemporaryDirectory(prefix="lance-sort-")
        self._runs: list[str] = []
        self._longest_batch = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Takes rows, in any order; all batches have one schema."""
        if self._held and self._num_bytes + batch.nbytes > self._most_bytes:
            self._put_aside()
        self._held.append(batch)
        self._num_rows += batch.num_rows
        self._num_bytes += batch.nbytes
        if self._num_rows >= self._most_rows:
            self._put_aside()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """All rows, sorted; equal ones in the order in which they came."""
        if not self._runs:
            if self._held:
                yield from self._sorted_held()
            return
        self._put_aside()
        room = max(1, _MERGED_BYTES // max(1, self._longest_batch) // len(self._runs))
        yield from merged([stored_batches(path) for path in self._runs], self._places, room)

    def _sorted_held(self, most_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        rows = join_batches(self._held)
        self._held, self._num_rows, self._num_bytes = [], 0, 0
        places = self._places(rows)
        for start in range(0, len(places), most_rows):
            yield take_rows(rows, places[start : start + most_rows])

    def _put_aside(self) -> None:
        if not self._held:
            return
        # Runs of long values are cut finely, since some rows of each are in memory at a time.
        schema = self._held[0].schema
        count = max(1, min(_BATCH_ROWS, self._num_rows * (4 << 20) // max(1, self._num_bytes)))
        path = f"{self._folder.name}/{len(self._runs)}"
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in self._sorted_held(count):
                self._longest_batch = max(self._longest_batch, batch.nbytes)
                writer.write_batch(batch)
        self._runs.append(path)


def sorted_batches(order: RowOrder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of batches of one schema, sorted; what does not fit into memory waits in files."""

    def places(rows: pa.RecordBatch) -> NDArray[np.int64]:
        return order.places(order.keys(order.values(rows)))

    with ExternalSorter(places) as sorter:
        for batch in batches:
            sorter.add_batch(batch)
        yield from sorter.batches()


def merged(
    streams: Sequence[Iterator[pa.RecordBatch]], places: Places, room: int = 1
) -> Iterator[pa.RecordBatch]:
    """The rows of sorted streams, sorted; ``room`` batches of each are in memory at a time."""
    runs = [_Run(stream, room) for stream in streams]
    while True:
        for run in runs:
            run.fill()
        left = [run for run in runs if run.held is not None]
        if not left:
            return
        rows = _next_rows(left, places)
        for start in range(0, rows.num_rows, _BATCH_ROWS):
            yield rows.slice(start, _BATCH_ROWS)


def stored_batches(path: str) -> Iterator[pa.RecordBatch]:
    """The batches of an Arrow file."""
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
        self.held = join_batches(batches) if batches else None

    def pop(self, count: int) -> None:
        assert self.held is not None
        self.held = self.held.slice(count)


def _next_rows(runs: Sequence[_Run], places: Places) -> pa.RecordBatch:
    """The rows that come before all that are not in memory; one run at least ends with them."""
    held = [run.held for run in runs if run.held is not None]
    ranks = _inverse(places(join_batches([take_rows(part, _ends(part)) for part in held])))
    first, last = ranks[::2], ranks[1::2]
    taken = np.flatnonzero(first <= last.min()).tolist()
    parts = [held[number] for number in taken]
    rows = join_batches(parts)
    order = places(rows)
    stops = np.cumsum([part.num_rows for part in parts])
    chosen = order[: _inverse(order)[stops - 1].min() + 1]
    counts = np.bincount(np.searchsorted(stops, chosen, "right"), minlength=len(taken))
    for number, count in zip(taken, counts.tolist(), strict=True):
        runs[number].pop(count)
    return take_rows(rows, chosen)


def _ends(rows: pa.RecordBatch) -> NDArray[np.int64]:
    return np.array([0, rows.num_rows - 1])


def _inverse(order: NDArray[np.int64]) -> NDArray[np.int64]:
    """What place each row has among the others."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places

"""ExternalSorter: sort rows in bounded memory.

Rows that do not fit are sorted as runs in temporary files, which are then merged.
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
"""Maximum rows sorted in memory."""
MAX_BYTES: Final = 128 << 20
"""Maximum bytes sorted in memory; sorting needs three times as much."""
_BATCH_ROWS: Final = 64 << 10
# Maximum memory of all runs during a merge.
_MERGED_BYTES: Final = 64 << 20

Places: TypeAlias = Callable[[pa.RecordBatch], NDArray[np.int64]]
"""Returns the permutation that sorts a batch stably."""


class SortedRuns:
    """Sorted batches in temporary files, one for each run, which are removed on exit."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lance-sort-")
        self.paths: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._folder.cleanup()

    def write_run(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write batches of one schema to a new file."""
        path = f"{self._folder.name}/{len(self.paths)}"
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self.paths.append(path)

    def streams(self) -> list[Iterator[pa.RecordBatch]]:
        """Return the batches of each run."""
        return [stored_batches(path) for path in self.paths]


class ExternalSorter(SortedRuns):
    """Sorts rows; its temporary files are removed on exit.

    ``most_bytes``: maximum bytes of rows to sort in memory.
    """

    def __init__(
        self, places: Places, most_rows: int = MAX_ROWS, most_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__()
        self._places = places
        self._most_rows, self._most_bytes = most_rows, most_bytes
        self._buffered: list[pa.RecordBatch] = []
        self._num_rows, self._num_bytes = 0, 0
        self._longest_batch = 0

    def add_batch(self, batch: pa.RecordBatch) -> None:
        """Add rows, in any order; all batches have one schema."""
        if self._buffered and self._num_bytes + batch.nbytes > self._most_bytes:
            self._spill()
        self._buffered.append(batch)
        self._num_rows += batch.num_rows
        self._num_bytes += batch.nbytes
        if self._num_rows >= self._most_rows:
            self._spill()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows, stably sorted."""
        if not self.paths:
            if self._buffered:
                yield from self._sorted_buffer()
            return
        self._spill()
        room = max(1, _MERGED_BYTES // max(1, self._longest_batch) // len(self.paths))
        yield from merged(self.streams(), self._places, room)

    def _sorted_buffer(self, most_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        rows = join_batches(self._buffered)
        self._buffered, self._num_rows, self._num_bytes = [], 0, 0
        places = self._places(rows)
        for start in range(0, len(places), most_rows):
            yield take_rows(rows, places[start : start + most_rows])

    def _spill(self) -> None:
        if not self._buffered:
            return
        # Runs of wide rows have small batches, since one batch of each run is in memory.
        schema = self._buffered[0].schema
        count = max(1, min(_BATCH_ROWS, self._num_rows * (4 << 20) // max(1, self._num_bytes)))
        self.write_run(schema, self._sorted_run(count))

    def _sorted_run(self, most_rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._sorted_buffer(most_rows):
            self._longest_batch = max(self._longest_batch, batch.nbytes)
            yield batch


def sorted_batches(order: RowOrder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches of one schema, sorted, spilling to files if needed."""

    def places(rows: pa.RecordBatch) -> NDArray[np.int64]:
        return order.places(order.keys(order.values(rows)))

    with ExternalSorter(places) as sorter:
        for batch in batches:
            sorter.add_batch(batch)
        yield from sorter.batches()


def merged(
    streams: Sequence[Iterator[pa.RecordBatch]], places: Places, room: int = 1
) -> Iterator[pa.RecordBatch]:
    """Merge sorted streams; ``room`` batches of each are in memory at a time."""
    runs = [_Run(stream, room) for stream in streams]
    while True:
        for run in runs:
            run.fill()
        left = [run for run in runs if run.buffered is not None]
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
    """A sorted run with a buffer of its next rows."""

    stored: Iterator[pa.RecordBatch]
    room: int
    buffered: pa.RecordBatch | None = field(default=None)  # The next rows; empty at the end.

    def fill(self) -> None:
        if self.buffered is not None and self.buffered.num_rows:
            return
        batches = list(islice(self.stored, self.room))
        self.buffered = join_batches(batches) if batches else None

    def pop(self, count: int) -> None:
        assert self.buffered is not None
        self.buffered = self.buffered.slice(count)


def _next_rows(runs: Sequence[_Run], places: Places) -> pa.RecordBatch:
    """Return the buffered rows that precede all unread ones; at least one buffer is used up."""
    buffered = [run.buffered for run in runs if run.buffered is not None]
    ranks = _inverse(places(join_batches([take_rows(part, _ends(part)) for part in buffered])))
    first, last = ranks[::2], ranks[1::2]
    taken = np.flatnonzero(first <= last.min()).tolist()
    parts = [buffered[number] for number in taken]
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
    """Return the inverse permutation."""
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    return places

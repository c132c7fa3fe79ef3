"""ExternalSorter: sort rows in bounded memory, into sorted runs of unreferenced data files.

Rows that do not fit are sorted as runs in temporary files, which are then merged.

Sorted runs: sorted rows in unreferenced data files. Boundaries from a sample split all runs into
the same ranges, so a task that merges some ranges reads adjacent rows of each run and has only a
few rows of each in memory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, pairwise
from types import TracebackType
from typing import Final, Self, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import join_batches, join_columns
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.column_names import ROW_ADDRESS, SYSTEM_COLUMNS
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_BYTES
from pyspark_lance.table.sort.row_order import RowOrder
from pyspark_lance.table.version.table_files import TableFiles

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
    """Sorted batches in temporary files, one for each run, which are removed on exit.

    Work that fits into memory needs no temporary folder.
    """

    def __init__(self) -> None:
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self.paths: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._folder is not None:
            self._folder.cleanup()

    def write_run(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        """Write batches of one schema to a new file."""
        self._folder = self._folder or tempfile.TemporaryDirectory(prefix="lance-sort-")
        path = f"{self._folder.name}/{len(self.paths)}"
        with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, schema) as writer:
            for batch in batches:
                writer.write_batch(batch)
        self.paths.append(path)

    def streams(self) -> list[Iterator[pa.RecordBatch]]:
        """Return the batches of each run."""
        return [read_batches(path) for path in self.paths]


class ExternalSorter(SortedRuns):
    """Sorter of rows; removes its temporary files on exit.

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
                yield from self._sort_buffer()
            return
        self._spill()
        room = max(1, _MERGED_BYTES // max(1, self._longest_batch) // len(self.paths))
        yield from merge_streams(self.streams(), self._places, room)

    def _sort_buffer(self, most_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
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
        self.write_run(schema, self._sort_run(count))

    def _sort_run(self, most_rows: int) -> Iterator[pa.RecordBatch]:
        for batch in self._sort_buffer(most_rows):
            self._longest_batch = max(self._longest_batch, batch.nbytes)
            yield batch


def sort_batches(order: RowOrder, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of batches of one schema, sorted, spilling to files if needed."""

    def places(rows: pa.RecordBatch) -> NDArray[np.int64]:
        return order.places(order.keys(order.values(rows)))

    with ExternalSorter(places) as sorter:
        for batch in batches:
            sorter.add_batch(batch)
        yield from sorter.batches()


def merge_streams(
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


def read_batches(path: str) -> Iterator[pa.RecordBatch]:
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


_WRITTEN_ROWS: Final = 16_384
_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class Boundaries:
    """The keys and addresses of the last rows of all ranges except the last one, in order."""

    keys: tuple[pa.Array, ...]
    addresses: NDArray[np.uint64]

    @classmethod
    def of_sample(
        cls,
        order: RowOrder,
        values: Sequence[pa.Array],
        addresses: NDArray[np.uint64],
        num_ranges: int,
    ) -> Boundaries:
        """Split a sample into ranges of about equally many rows.

        ``values``: of each order column. ``num_ranges``: at least one; fewer if the sample is too
        small.
        """
        keys = order.keys(values)
        places = order.places(keys, addresses)
        count = max(1, min(num_ranges, len(places)))
        chosen = places[np.arange(1, count) * len(places) // count]
        return cls(tuple(key.take(plain_array(chosen)) for key in keys), addresses[chosen])


@dataclass(frozen=True, slots=True)
class Run:
    """A file of sorted rows."""

    fragment: Fragment  # Without deleted rows; lineage is stored in columns.
    cuts: NDArray[np.int64]  # The rows of range r are [cuts[r], cuts[r + 1]).


class SortedRows:
    """Sorted rows in memory.

    ``batches``: the rows; the list is cleared, to release their memory. Ascending addresses, if
    any, are dropped by the sort.
    """

    def __init__(self, order: RowOrder, batches: list[pa.RecordBatch]) -> None:
        self._order = order
        joined = join_columns(batches)
        self._addresses: list[NDArray[np.uint64]] = []
        if joined and ROW_ADDRESS in joined[0].schema.names:
            self._addresses = [plain_numbers(batch.column(ROW_ADDRESS)) for batch in joined]
            joined = [batch.drop_columns([ROW_ADDRESS]) for batch in joined]
        self._batches = joined

    def cut_by(self, bounds: Boundaries) -> tuple[Iterator[pa.RecordBatch], NDArray[np.int64]]:
        """Return the sorted rows and the bounds of their ranges."""
        keys, own = self._keys(), len(bounds.addresses)
        both = [pa.concat_arrays(pair) for pair in zip(keys, bounds.keys, strict=True)]
        addresses = np.concatenate([*self._addresses, bounds.addresses])
        places = self._order.places(both, addresses)
        num_rows = len(places) - own
        is_bound = places >= num_rows
        cuts = np.flatnonzero(is_bound) - np.arange(own)
        return self._in(places[~is_bound]), np.concatenate([[0], cuts, [num_rows]])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the sorted rows."""
        return self._in(self._order.places(self._keys())) if self._batches else iter(())

    def _keys(self) -> list[pa.Array]:
        parts = [self._order.keys(self._order.values(batch)) for batch in self._batches]
        return [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]

    def _in(self, places: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        for first in range(0, len(places), _WRITTEN_ROWS):
            some = places[first : first + _WRITTEN_ROWS]
            # There are several batches only if the rows do not fit into one.
            number = starts.searchsorted(some, side="right") - 1
            turns = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(some)]
            for start, end in pairwise(turns):
                one = int(number[start])
                yield take_rows(self._batches[one], some[start:end] - starts[one])


def with_lineage_columns(schema: LanceSchema, names: Sequence[str]) -> LanceSchema:
    """Return the schema of runs: the table's columns, and system columns as data."""
    first = schema.max_field_id + 1
    added = [Field(first + i, name, "uint64", nullable=False) for i, name in enumerate(names)]
    return LanceSchema(fields=(*schema.fields, *added), metadata=schema.metadata)


def write_run(
    request: WriteFragmentsRequest, lineage: Sequence[str], rows: SortedRows, bounds: Boundaries
) -> Run:
    """Write rows as a run, without a commit.

    ``request``: how the table's files are written. ``lineage``: system columns to keep.
    """
    sorted_batches, cuts = rows.cut_by(bounds)
    whole = replace(
        request,
        schema=with_lineage_columns(request.schema, lineage),
        max_rows_per_file=_NO_LIMIT,
        max_bytes_per_file=_NO_LIMIT,
        max_items_per_file=_NO_LIMIT,
    )
    (fragment,) = write_fragments(whole, sorted_batches)
    return Run(fragment, cuts)


@dataclass(frozen=True, slots=True)
class RunReader:
    """Reader of ranges of runs, merged.

    ``fields``: of the runs, including lineage.
    """

    files: TableFiles
    fields: tuple[Field, ...]
    order: RowOrder
    runs: tuple[Run, ...]

    def rows(self, first: int, last: int, skipped: int, count: int) -> Iterator[pa.RecordBatch]:
        """Yield some rows of the ranges [first, last), in order.

        ``skipped``: rows to skip. ``count``: maximum rows.
        """
        readers = [
            FragmentReader(self.files, run.fragment, stable_row_ids=False) for run in self.runs
        ]
        for number in range(first, last):
            buffered: list[pa.RecordBatch] = []
            for run, reader in zip(self.runs, readers, strict=True):
                span = int(run.cuts[number]), int(run.cuts[number + 1])
                if span[0] < span[1]:
                    buffered += [
                        batch
                        for _, batch in reader.windows(self.fields, (), span, DEFAULT_BATCH_BYTES)
                    ]
            for batch in SortedRows(self.order, buffered).batches():
                part = batch.slice(skipped, count)
                skipped = max(0, skipped - batch.num_rows)
                count -= part.num_rows
                if part.num_rows:
                    yield part
                if not count:
                    return


def lineage_names(*, stable_row_ids: bool) -> tuple[str, ...]:
    """Return the system columns that rows keep when they move."""
    return tuple(name for name in SYSTEM_COLUMNS if name != ROW_ADDRESS) if stable_row_ids else ()

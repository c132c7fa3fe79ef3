"""Sort rows by columns or along a space-filling curve, in bounded memory.

Nulls come first and NaN last, as in Spark. On a curve, values are mapped to cells with about
equally many rows, whose boundaries come from a sample.

``ExternalSorter`` sorts rows that do not fit into memory as runs in temporary files, and merges
them. Sorted runs of a clustering are in unreferenced data files instead: boundaries from a sample
split all runs into the same ranges, so a task that merges some ranges reads adjacent rows of each
run and has only a few rows of each in memory.
"""

from __future__ import annotations

import enum
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
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS, SYSTEM_COLUMNS
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.logical_view import is_json_text
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.predicate.types import type_name
from pyspark_lance.table.index.btree import comparable, has_order, sort_order
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.scan.column_paths import named_path, values_at
from pyspark_lance.table.scan.plan_scan import DEFAULT_BATCH_BYTES
from pyspark_lance.table.version.table_files import TableFiles

_MAX_CELLS: Final = 4096
_MAX_BITS: Final = 16
_MAX_ON_A_CURVE: Final = 16


class Curve(enum.Enum):
    """Combination of several columns into one order."""

    LINEAR = "linear"
    """Lexicographic order."""
    ZORDER = "zorder"
    HILBERT = "hilbert"

    @classmethod
    def parse(cls, text: str) -> Curve:
        """Parse the name of an order, ignoring case."""
        for one in cls:
            if one.value == text.lower():
                return one
        known = ", ".join(one.value for one in cls)
        raise InvalidInputError(f"there is no order {text!r}", hint=f"there are {known}")


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column or struct field to sort by."""

    path: tuple[Field, ...]
    descending: bool = False  # Then nulls come last, as in Spark.

    @property
    def names(self) -> tuple[str, ...]:
        """The names on the path of the field."""
        return tuple(part.name for part in self.path)


@dataclass(frozen=True, slots=True)
class RowOrder:
    """An order of rows; picklable."""

    columns: tuple[SortColumn, ...]
    curve: Curve = Curve.LINEAR
    # For a curve, the ascending lower bounds of cells of each column.
    cells: tuple[pa.Array, ...] = ()
    # Rows that differ in this many leading columns are in different files.
    num_split: int = 0

    @classmethod
    def of(
        cls, schema: LanceSchema, names: Sequence[str], curve: Curve = Curve.LINEAR,
        descending: Sequence[bool] = (),
    ) -> RowOrder:  # fmt: skip
        """Build an order by columns of a table.

        ``names``: a struct field is ``struct.field``. ``descending``: for each name; empty for all
        ascending. Raises InvalidInputError: no such column, none at all, or one twice. Raises
        UnsupportedFeatureError: values of a column have no order.
        """
        if not names:
            raise InvalidInputError("rows are to be sorted by no column", hint="name one or more")
        paths = [named_path(schema, name) for name in names]
        for name, path in zip(names, paths, strict=True):
            _check_has_order(path[-1], name)
        if len({path[-1].id for path in paths}) < len(paths):
            raise InvalidInputError(f"a column is named twice in {', '.join(names)}")
        if len(paths) == 1:
            curve = Curve.LINEAR
        if curve is not Curve.LINEAR and len(paths) > _MAX_ON_A_CURVE:
            raise InvalidInputError(
                f"{len(paths)} columns are too many for the order {curve.value!r}",
                hint=f"name at most {_MAX_ON_A_CURVE}, or use the order 'linear'",
            )
        flags = descending or [False] * len(paths)
        return cls(tuple(map(SortColumn, paths, flags)), curve)

    @property
    def field_ids(self) -> tuple[int, ...]:
        """Field ids of the columns, in order."""
        return tuple(column.path[-1].id for column in self.columns)

    @property
    def fields(self) -> tuple[Field, ...]:
        """The distinct top-level columns of the order."""
        return tuple({column.path[0].id: column.path[0] for column in self.columns}.values())

    def with_file_split(self, names: Sequence[str]) -> RowOrder:
        """Return this order with separate files for each value of its leading columns.

        Raises InvalidInputError: these are not its leading columns, or the order is not linear.
        """
        own = [".".join(column.names) for column in self.columns]
        if not names or self.curve is not Curve.LINEAR or list(names) != own[: len(names)]:
            raise InvalidInputError(
                f"files cannot be split by {', '.join(names) or 'no column'}, where rows are "
                f"sorted by {', '.join(own)} in the order {self.curve.value!r}",
                hint="name the first of the columns that rows are sorted by, in the order 'linear'",
            )
        return replace(self, num_split=len(names))

    def by_file(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch | None]:
        """Yield sorted rows, with None between those of different files."""
        last: list[pa.Array] = []
        for batch in batches:
            if not self.num_split or not batch.num_rows:
                yield batch
                continue
            keys = self.values(batch)[: self.num_split]
            changes = np.zeros(batch.num_rows, bool)
            for key, before in zip(keys, last or [key[:1] for key in keys], strict=True):
                for numbers in comparable(pa.concat_arrays([before, key])):
                    changes |= numbers[1:] != numbers[:-1]
            last = [key[-1:] for key in keys]
            cuts = [0, *np.flatnonzero(changes).tolist(), batch.num_rows]
            for number, (start, end) in enumerate(pairwise(cuts)):
                if number:
                    yield None
                yield batch.slice(start, end - start)

    def learn_cells(self, values: Sequence[pa.Array]) -> RowOrder:
        """Return this order with cells from a sample; ``values``: of each column."""
        if self.curve is Curve.LINEAR:
            return self
        return replace(self, cells=tuple(map(_cells, values)))

    def values(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """Return the values of each order column of a batch of the table."""
        return [_plain(values_at(batch, column.names)) for column in self.columns]

    def keys(self, values: Sequence[pa.Array]) -> tuple[pa.Array, ...]:
        """Return the sort keys: the values, or the position on the curve."""
        if self.curve is Curve.LINEAR:
            return tuple(values)
        bits = min(_MAX_BITS, 64 // len(values))
        grid = [_cell_of(one, cells, bits) for one, cells in zip(values, self.cells, strict=True)]
        key = hilbert_key if self.curve is Curve.HILBERT else zorder_key
        return (plain_array(key(grid, bits)),)

    def sort_indices(
        self, keys: Sequence[pa.Array], ties: NDArray[np.uint64] | None = None
    ) -> NDArray[np.int64]:
        """Return the permutation that sorts the rows; shape (n,).

        ``keys``: of ``keys()``. ``ties``: tie breaker, shape (n,); None for a stable sort.
        """
        parts: list[NDArray[np.generic]] = []
        descends = [column.descending for column in self.columns]
        for key, reverse in zip(keys, descends, strict=False):
            numbers = comparable(key)
            parts += [~part for part in numbers] if reverse else numbers
        if ties is not None:
            parts.append(ties)
        if len(parts) == 1:
            return np.argsort(parts[0], kind="stable")
        return np.lexsort(parts[::-1])


def _check_has_order(field: Field, name: str) -> None:
    data_type = field.to_arrow().type
    if pa.types.is_dictionary(data_type):
        data_type = data_type.value_type
    if field.children or field.is_blob or is_json_text(field) or not has_order(data_type):
        raise UnsupportedFeatureError(
            f"rows cannot be sorted by the column {name!r} of type {type_name(data_type)}",
            hint="columns of numbers, decimals, text, bytes, days and times have an order",
        )


def _plain(values: pa.Array) -> pa.Array:
    return values.dictionary_decode() if pa.types.is_dictionary(values.type) else values


def _cells(sample: pa.Array) -> pa.Array:
    """Return the values that split a sample into cells of about equally many rows."""
    present = sample.drop_null()
    order = sort_order(present)
    count = min(_MAX_CELLS, len(order))
    chosen = order[np.arange(count) * len(order) // max(count, 1)]
    return present.take(plain_array(chosen)).unique()


def _cell_of(values: pa.Array, cells: pa.Array, bits: int) -> NDArray[np.uint64]:
    """Return the cell of each value, scaled to ``bits`` bits; nulls have the first one."""
    *present, numbers = comparable(pa.concat_arrays([values, cells]))
    own, begins = numbers[: len(values)], numbers[len(values) :]
    # Values below the first cell do not share the number of nulls.
    cell = begins.searchsorted(own, side="right").astype(np.uint64) + np.uint64(1)
    if present:
        cell[~present[0][: len(values)]] = 0
    return (cell << np.uint64(bits)) // np.uint64(len(cells) + 2)


def zorder_key(cells: Sequence[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Return positions on the z-order curve by interleaving bits; shape (n,).

    ``cells``: of each column, shape (n,), below ``2 ** bits``; the first column comes first.
    """
    key = np.zeros(len(cells[0]), np.uint64)
    for bit in reversed(range(bits)):
        for cell in cells:
            key <<= np.uint64(1)
            key |= (cell >> np.uint64(bit)) & np.uint64(1)
    return key


def hilbert_key(cells: Sequence[NDArray[np.uint64]], bits: int) -> NDArray[np.uint64]:
    """Return positions on the Hilbert curve, which is continuous; shape (n,).

    J. Skilling, Programming the Hilbert curve, 2004, vectorized.

    ``cells``: of each column, shape (n,), below ``2 ** bits``.
    """
    axes = [cell.copy() for cell in cells]
    nothing = np.uint64(0)
    for bit in reversed(range(1, bits)):
        mask, below = np.uint64(1 << bit), np.uint64((1 << bit) - 1)
        for axis in axes:
            is_set = (axis & mask) != 0
            swapped = np.where(is_set, nothing, (axes[0] ^ axis) & below)
            axes[0] ^= np.where(is_set, below, swapped)
            axis ^= swapped
    for before, axis in pairwise(axes):
        axis ^= before
    turned = np.zeros_like(axes[0])
    for bit in reversed(range(1, bits)):
        is_set = (axes[-1] & np.uint64(1 << bit)) != 0
        turned ^= np.where(is_set, np.uint64((1 << bit) - 1), nothing)
    return zorder_key([axis ^ turned for axis in axes], bits)


MAX_ROWS: Final = 4 << 20
"""Maximum rows sorted in memory."""
MAX_SORT_BYTES: Final = 128 << 20
"""Maximum bytes sorted in memory; sorting needs three times as much."""
_BATCH_ROWS: Final = 64 << 10
# Maximum memory of all runs during a merge.
_MERGED_BYTES: Final = 64 << 20

SortIndices: TypeAlias = Callable[[pa.RecordBatch], NDArray[np.int64]]
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
        self, sort_indices: SortIndices, most_rows: int = MAX_ROWS, most_bytes: int = MAX_SORT_BYTES
    ) -> None:
        super().__init__()
        self._sort_indices = sort_indices
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
        yield from merge_streams(self.streams(), self._sort_indices, room)

    def _sort_buffer(self, most_rows: int = _BATCH_ROWS) -> Iterator[pa.RecordBatch]:
        rows = join_batches(self._buffered)
        self._buffered, self._num_rows, self._num_bytes = [], 0, 0
        indices = self._sort_indices(rows)
        for start in range(0, len(indices), most_rows):
            yield take_rows(rows, indices[start : start + most_rows])

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

    def sort_indices(rows: pa.RecordBatch) -> NDArray[np.int64]:
        return order.sort_indices(order.keys(order.values(rows)))

    with ExternalSorter(sort_indices) as sorter:
        for batch in batches:
            sorter.add_batch(batch)
        yield from sorter.batches()


def merge_streams(
    streams: Sequence[Iterator[pa.RecordBatch]], sort_indices: SortIndices, room: int = 1
) -> Iterator[pa.RecordBatch]:
    """Merge sorted streams; ``room`` batches of each are in memory at a time."""
    runs = [_Run(stream, room) for stream in streams]
    while True:
        for run in runs:
            run.fill()
        left = [run for run in runs if run.buffered is not None]
        if not left:
            return
        rows = _next_rows(left, sort_indices)
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


def _next_rows(runs: Sequence[_Run], sort_indices: SortIndices) -> pa.RecordBatch:
    """Return the buffered rows that precede all unread ones; at least one buffer is used up."""
    buffered = [run.buffered for run in runs if run.buffered is not None]
    ranks = _inverse(
        sort_indices(join_batches([take_rows(part, _ends(part)) for part in buffered]))
    )
    first, last = ranks[::2], ranks[1::2]
    taken = np.flatnonzero(first <= last.min()).tolist()
    parts = [buffered[number] for number in taken]
    rows = join_batches(parts)
    order = sort_indices(rows)
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
    indices = np.empty(len(order), np.int64)
    indices[order] = np.arange(len(order))
    return indices


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
        indices = order.sort_indices(keys, addresses)
        count = max(1, min(num_ranges, len(indices)))
        chosen = indices[np.arange(1, count) * len(indices) // count]
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
        indices = self._order.sort_indices(both, addresses)
        num_rows = len(indices) - own
        is_bound = indices >= num_rows
        cuts = np.flatnonzero(is_bound) - np.arange(own)
        return self._in(indices[~is_bound]), np.concatenate([[0], cuts, [num_rows]])

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the sorted rows."""
        return self._in(self._order.sort_indices(self._keys())) if self._batches else iter(())

    def _keys(self) -> list[pa.Array]:
        parts = [self._order.keys(self._order.values(batch)) for batch in self._batches]
        return [pa.concat_arrays(columns) for columns in zip(*parts, strict=True)]

    def _in(self, indices: NDArray[np.int64]) -> Iterator[pa.RecordBatch]:
        starts = np.cumsum([0, *(batch.num_rows for batch in self._batches)])
        for first in range(0, len(indices), _WRITTEN_ROWS):
            some = indices[first : first + _WRITTEN_ROWS]
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

"""BTree: a segment of a B-tree index, read by page.

``page_data.lance`` has all rows as (value, row name), nulls first, then ascending, floats by the
total order; ``page_lookup.lance`` has the bounds of its pages. Visible corruption raises an error:
pages that are out of order, or values that contradict the bounds.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.codec.row_selection import expand_ranges
from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.predicate.conditions import Bounds
from pyspark_lance.predicate.prune import as_integers
from pyspark_lance.table.index.index_file import ColumnQuery, IndexFile, Limits
from pyspark_lance.table.index.segments import to_predicate_type
from pyspark_lance.table.version.table_files import TableFiles

DATA_FILE: Final = "page_data.lance"
LOOKUP_FILE: Final = "page_lookup.lance"
PAGE_ROWS_KEY: Final = "batch_size"
_RANGES: Final = "range_partitioned"
_SEARCHED_AT_ONCE: Final = 4 << 20


@dataclass(frozen=True, slots=True)
class BTree:
    """The pages of a segment; arrays of shape (num_pages,), in the order of the data file."""

    data: IndexFile
    field: Field
    page_rows: int  # Rows of a page, except for the last one.
    minimum: pa.Array  # First value of each page, as stored; null if it begins with nulls.
    maximum: pa.Array  # Last value of each page; null if there are only nulls.
    null_count: NDArray[np.uint32]  # Nulls of each page.
    bounds: Bounds  # Bounds of each page, in the type of predicates.

    @classmethod
    def open(cls, files: TableFiles, entry: IndexMetadata, field: Field) -> BTree:
        """Read the page bounds of the segment."""
        lookup = IndexFile.open(files, entry, LOOKUP_FILE, whole=True)
        kind = field.to_arrow().type
        lookup.expect_columns(
            [("min", kind), ("max", kind), ("null_count", pa.uint32()), ("page_idx", pa.uint32())]
        )
        page_rows = _page_rows(lookup)
        pages = lookup.read_all("min", "max", "null_count", "page_idx")
        data = IndexFile.open(files, entry, DATA_FILE)
        data.expect_columns([("values", kind), ("ids", pa.uint64())])
        return cls._of(data, field, page_rows, pages, lookup.where)

    @classmethod
    def _of(
        cls, data: IndexFile, field: Field, page_rows: int, pages: pa.RecordBatch, where: str
    ) -> BTree:
        if pages.column("null_count").null_count or pages.column("page_idx").null_count:
            raise CorruptFileError("a page of the B-tree index has no position", where)
        indices = plain_numbers(pages.column("page_idx"))
        order = np.argsort(indices, kind="stable")
        num_rows = data.reader.num_rows
        if not np.array_equal(indices[order], np.arange(-(-num_rows // page_rows))):
            raise CorruptFileError(
                f"the B-tree index lists {len(indices)} pages for {num_rows} rows", where
            )
        pages = pages.take(plain_array(order))
        minimum, maximum = pages.column("min"), pages.column("max")
        null_count = plain_numbers(pages.column("null_count"))
        bounds = _bounds(
            to_predicate_type(minimum, field), to_predicate_type(maximum, field), null_count
        )
        tree = cls(data, field, page_rows, minimum, maximum, null_count, bounds)
        tree._check_pages(where)
        return tree

    @property
    def num_rows(self) -> int:
        """Rows of the segment."""
        return self.data.reader.num_rows

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        ends = self.minimum.nbytes + self.maximum.nbytes
        return int(2 * ends + self.null_count.nbytes) + 4096

    def complete(self, fragments: BitMap, lengths: Mapping[int, int]) -> BitMap:
        """Return the given fragments whose rows are all indexed: all that its entry covers."""
        return fragments

    def rows_of(self, query: ColumnQuery, limits: Limits) -> NDArray[np.uint64] | None:
        """Return the names of matching rows; None if that costs too much."""
        pages = np.flatnonzero(query.can_match(self.bounds))
        num_rows = len(pages) * self.page_rows
        numbers = query.numbers(self.bounds.minimum.type)
        if numbers is not None and num_rows <= limits.most_searched and len(pages):
            return self._search(pages, numbers, limits.most_rows)
        if num_rows > max(limits.most_rows, self.page_rows):
            return None
        if not len(pages):
            return np.empty(0, np.uint64)
        values, ids = self.read_pages(pages)
        return np.asarray(plain_numbers(ids)[query.matches(to_predicate_type(values, self.field))])

    def _search(
        self, pages: NDArray[np.int64], numbers: NDArray[np.int64], most_rows: int
    ) -> NDArray[np.uint64] | None:
        """Return the names of rows with one of the ascending ``numbers``; None if too many.

        Values are read first, and then the names of matching rows.
        """
        found: list[NDArray[np.int64]] = []
        at_once = max(1, _SEARCHED_AT_ONCE // self.page_rows)
        for first in range(0, len(pages), at_once):
            some = pages[first : first + at_once]
            starts, ends = self._ends_of(some)
            (values,) = self._read_columns(("values",), starts, ends)
            self._check_values(some, ends - starts, values)
            indices = _indices_of(numbers, to_predicate_type(values, self.field))
            # The selected pages need not be adjacent.
            skipped = starts - (np.cumsum(ends - starts) - (ends - starts))
            found.append(indices + skipped[indices // self.page_rows])
            if sum(map(len, found)) > most_rows:
                return None
        return self._ids_at(np.concatenate(found))

    def count(self, query: ColumnQuery, most_pages: int) -> int | None:
        """Count matching rows; None if that requires reading more pages."""
        starts, ends = self._ends_of(np.arange(self.num_pages))
        is_certain = query.must_match(self.bounds)
        certain = int((ends - starts)[is_certain].sum())
        pages = np.flatnonzero(query.can_match(self.bounds) & ~is_certain)
        if len(pages) > most_pages:
            return None
        if not len(pages):
            return certain
        (values,) = self._read_columns(("values",), starts[pages], ends[pages])
        self._check_values(pages, (ends - starts)[pages], values)
        return certain + int(query.matches(to_predicate_type(values, self.field)).sum())

    @property
    def num_pages(self) -> int:
        """Number of pages."""
        return len(self.null_count)

    def read_pages(self, pages: NDArray[np.int64]) -> tuple[pa.Array, pa.Array]:
        """Read the stored values of some pages, ascending, and the names of their rows."""
        starts, ends = self._ends_of(pages)
        values, ids = self._read_columns(("values", "ids"), starts, ends)
        self._check_ids(ids)
        self._check_values(pages, ends - starts, values)
        return values, ids

    def _read_columns(
        self, names: Sequence[str], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[pa.Array, ...]:
        ranges = list(zip(starts.tolist(), ends.tolist(), strict=True))
        rows = self.data.read_ranges(ranges, names)
        return tuple(_one_chunk(rows.column(name)) for name in names)

    def _ids_at(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        ids = self.data.take("ids", rows)
        self._check_ids(ids)
        return np.asarray(plain_numbers(ids))

    def _check_ids(self, ids: pa.Array) -> None:
        if ids.null_count:
            raise CorruptFileError(
                "a page of the B-tree index has rows without an id", self.data.where
            )

    def _ends_of(self, pages: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        starts = pages * self.page_rows
        return starts, np.minimum(starts + self.page_rows, self.num_rows)

    def _check_pages(self, where: str) -> None:
        starts, ends = self._ends_of(np.arange(len(self.null_count)))
        all_null = np.asarray(self.maximum.is_null())
        has_null = np.asarray(self.minimum.is_null())
        lengths = ends - starts
        nulls_fit = (self.null_count <= lengths) & ((self.null_count == lengths) == all_null)
        if not (nulls_fit & ((self.null_count > 0) == has_null)).all():
            raise CorruptFileError(
                "the null counts of the B-tree index contradict its values", where
            )
        in_turns = np.arange(2 * len(lengths)).reshape(2, -1).T.ravel()
        ends_in_turns = pa.concat_arrays([self.minimum, self.maximum]).take(plain_array(in_turns))
        if not is_in_order(ends_in_turns):
            raise CorruptFileError("the pages of the B-tree index are not in order", where)

    def _check_values(
        self, pages: NDArray[np.int64], lengths: NDArray[np.int64], values: pa.Array
    ) -> None:
        """Reject pages that contradict the bounds or null counts of the lookup file."""
        ends = np.cumsum(lengths)
        of_pages = plain_array(pages)
        nulls = np.add.reduceat(np.asarray(values.is_null()), ends - lengths, dtype=np.int64)
        is_right = (
            np.array_equal(nulls, self.null_count[pages])
            and _same(values.take(plain_array(ends - lengths)), self.minimum.take(of_pages))
            and _same(values.take(plain_array(ends - 1)), self.maximum.take(of_pages))
        )
        if not is_right:
            raise CorruptFileError(
                "a page of the B-tree index holds other values than its entry says", self.data.where
            )


def _indices_of(numbers: NDArray[np.int64], values: pa.Array) -> NDArray[np.int64]:
    """Return the positions of ascending ``numbers`` in ascending values after nulls."""
    present = values.slice(values.null_count)
    stored = plain_numbers(as_integers(present)) if not present.null_count else np.empty(0)
    first = np.searchsorted(stored, numbers, side="left")
    last = np.searchsorted(stored, numbers, side="right")
    return expand_ranges(first + values.null_count, last - first)


def _page_rows(lookup: IndexFile) -> int:
    metadata = lookup.reader.schema.metadata
    if metadata.get(_RANGES, b"false") != b"false":
        raise UnsupportedFeatureError(
            "B-tree indices that are split into files by range are not supported",
            where=lookup.where,
        )
    if PAGE_ROWS_KEY not in metadata:
        raise UnsupportedFeatureError(
            "B-tree indices without a page size are not supported", where=lookup.where
        )
    try:
        page_rows = int(metadata[PAGE_ROWS_KEY])
    except ValueError as error:
        raise CorruptFileError(
            "the page size of the B-tree index is not a number", lookup.where
        ) from error
    if not 0 < page_rows < 1 << 32:
        raise CorruptFileError(
            f"the B-tree index has a page size of {page_rows} rows", lookup.where
        )
    return page_rows


def _bounds(minimum: pa.Array, maximum: pa.Array, null_count: NDArray[np.uint32]) -> Bounds:
    """Convert to bounds by Spark's order, in which all NaN are equal and greatest."""
    all_null = np.asarray(maximum.is_null())
    if pa.types.is_floating(minimum.type):
        # A negative NaN is first in the total order, may follow nulls, and hides the minimum.
        may_be_first = np.asarray(pc.fill_null(pc.is_nan(minimum), True)) & ~all_null
        nan, unknown = pa.scalar(float("nan"), minimum.type), pa.scalar(None, minimum.type)
        minimum = pc.if_else(plain_array(may_be_first), unknown, minimum)
        maximum = pc.if_else(plain_array(may_be_first), nan, maximum)
    return Bounds(minimum, maximum, null_count > 0, all_null)


def _as_integers(values: pa.Array) -> NDArray[np.signedinteger]:
    numbers = plain_numbers(values)
    return numbers.view(np.dtype(f"i{numbers.dtype.itemsize}"))


def _same(left: pa.Array, right: pa.Array) -> bool:
    """Return whether arrays are bitwise equal."""
    if not pa.types.is_floating(left.type):
        return bool(left.equals(right))
    if not left.is_null().equals(right.is_null()):
        return False
    return np.array_equal(_as_integers(left.drop_null()), _as_integers(right.drop_null()))


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def has_order(data_type: pa.DataType) -> bool:
    """Return whether an index can sort values of a type as Lance does."""
    types = pa.types
    return bool(
        types.is_integer(data_type)
        or types.is_floating(data_type)
        or types.is_boolean(data_type)
        or types.is_decimal128(data_type)
        or types.is_decimal256(data_type)
        or types.is_temporal(data_type)
        or types.is_fixed_size_binary(data_type)
        or is_variable_width(data_type)
    )


def sort_order(values: pa.Array, *, stable: bool = False) -> NDArray[np.int64]:
    """Return the permutation that sorts the values; shape (n,).

    ``stable``: whether equal values keep their order; nulls always do.
    """
    if not values.null_count:
        return _order_of(values, stable)
    is_null = np.asarray(values.is_null())
    indices = np.flatnonzero(~is_null)
    order = _order_of(values.drop_null(), stable)
    return np.concatenate([np.flatnonzero(is_null), indices[order]])


def comparable(values: pa.Array) -> list[NDArray[Any]]:
    """Return integer sort keys of the values, lexicographic, shape (n,) each.

    Values that are not numbers are ranked within this array.
    """
    missing = np.asarray(values.is_null()) if values.null_count else None
    if _is_numeric(values.type):
        bare = [None, *values.buffers()[1:]]
        present = pa.Array.from_buffers(values.type, len(values), bare, offset=values.offset)
        numbers = _as_numbers(present)
    else:
        encoded = values.dictionary_encode()
        indices = np.empty(len(encoded.dictionary), np.int64)
        indices[sort_order(encoded.dictionary)] = np.arange(len(indices))
        codes = encoded.indices if missing is None else pc.fill_null(encoded.indices, 0)
        numbers = indices[plain_numbers(codes)] if len(indices) else np.zeros(len(values), np.int64)
    assert numbers is not None, "values are numbers, or have become some"
    return [numbers] if missing is None else [~missing, np.where(missing, 0, numbers)]


def is_in_order(values: pa.Array) -> bool:
    """Return whether nulls come first, followed by ascending values, possibly repeated."""
    present = values.slice(values.null_count)
    if present.null_count:
        return False
    if len(present) < 2:
        return True
    numbers = _as_numbers(present)
    if numbers is not None:
        return bool((numbers[1:] >= numbers[:-1]).all())
    return bool(pc.all(pc.less_equal(present[:-1], present[1:])).as_py())


def begins_run(values: pa.Array) -> NDArray[np.bool_]:
    """Return whether each of sorted values differs from the previous one; shape (n,).

    Floats are compared bitwise; nulls are equal.
    """
    begins = np.ones(len(values), np.bool_)
    if len(values) < 2:
        return begins
    num_nulls = values.null_count
    begins[1:num_nulls] = False
    present = values.slice(num_nulls)
    if len(present) > 1:
        numbers = _as_numbers(present)
        if numbers is not None:
            begins[num_nulls + 1 :] = numbers[1:] != numbers[:-1]
        else:
            differ = pc.not_equal(present[1:], present[:-1])
            begins[num_nulls + 1 :] = np.asarray(differ)
    return begins


def total_order(values: pa.Array) -> NDArray[np.signedinteger[Any]]:
    """Map floats without nulls to integers in total order; shape (n,)."""
    numbers = plain_numbers(values)
    bits = numbers.view(np.dtype(f"i{numbers.dtype.itemsize}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _order_of(values: pa.Array, stable: bool) -> NDArray[np.int64]:
    numbers = _as_numbers(values)
    if numbers is not None:
        return np.argsort(numbers, kind="stable" if stable else None)
    return np.asarray(pc.sort_indices(values)).astype(np.int64)


def _is_numeric(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_temporal(data_type)
        or types.is_floating(data_type)
        or types.is_integer(data_type)
        or types.is_boolean(data_type)
    )


def _as_numbers(values: pa.Array) -> NDArray[Any] | None:
    """Return values without nulls as ordered numbers; None for other types."""
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    if pa.types.is_floating(values.type):
        return total_order(values)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return plain_numbers(values)
    return None

"""Selection of rows: ranges of a page, and filters and takes on record batches.

pyarrow (26, for example) gives wrong rows, or rows of foreign memory, when it filters
or takes from a fixed-size list of fixed-size lists that starts at an offset, as slices do, however
deep it is nested in other types.  Such columns are copied to offset 0 first.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array


@dataclass(frozen=True, slots=True)
class RowRanges:
    """Ascending, disjoint, non-empty ranges of positions.

    ``starts``: first position of each range, int64; ``ends``: one past the last position of each
    range, int64.
    """

    starts: NDArray[np.int64]
    ends: NDArray[np.int64]

    @classmethod
    def single(cls, start: int, end: int) -> RowRanges:
        """Create one range."""
        return cls(np.array([start], np.int64), np.array([end], np.int64))

    @classmethod
    def of_offsets(cls, offsets: NDArray[np.integer]) -> RowRanges:
        """Ranges that hold exactly the sorted, unique ``offsets``; neighbours share one."""
        rows = offsets.astype(np.int64, copy=False)
        breaks = np.flatnonzero(np.diff(rows) != 1) + 1
        first = np.concatenate(([0], breaks)) if len(rows) else breaks
        last = np.concatenate((breaks, [len(rows)])) if len(rows) else breaks
        return cls(rows[first], rows[last - 1] + 1)

    @property
    def is_single(self) -> bool:
        """Return whether it is one range, so that slices do."""
        return len(self.starts) == 1

    @property
    def start(self) -> int:
        """The first position."""
        return int(self.starts[0])

    @property
    def end(self) -> int:
        """One past the last position."""
        return int(self.ends[-1])

    @property
    def num_rows(self) -> int:
        """Number of positions."""
        return int((self.ends - self.starts).sum())

    def scale(self, factor: int) -> RowRanges:
        """The ranges of items if every position holds ``factor`` items."""
        return self if factor == 1 else RowRanges(self.starts * factor, self.ends * factor)

    def clip(self, start: int, end: int) -> RowRanges:
        """The part within [start, end), counted from ``start``; may have no ranges."""
        starts = np.maximum(self.starts, start) - start
        ends = np.minimum(self.ends, end) - start
        kept = starts < ends
        if kept.all():
            return RowRanges(starts, ends)
        return RowRanges(starts[kept], ends[kept])

    def to_positions(self) -> NDArray[np.int64]:
        """Return every position, ascending."""
        return expand_ranges(self.starts, self.ends - self.starts)


def expand_ranges(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``starts[i], starts[i] + 1, ...`` (``counts[i]`` of them) for every i, one after another."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)


def filter_rows(batch: pa.RecordBatch, mask: NDArray[np.bool_]) -> pa.RecordBatch:
    """The rows of ``batch`` where ``mask``, shape (num_rows,)."""
    return _safe(batch).filter(plain_array(mask))


def take_rows(batch: pa.RecordBatch, indices: NDArray[np.integer]) -> pa.RecordBatch:
    """The rows of ``batch`` at ``indices``, in that order."""
    return _safe(batch).take(plain_array(indices))


def take_values(array: pa.Array, indices: pa.Array) -> pa.Array:
    """The values of ``array`` at ``indices``, which are known to be inside."""
    import pyarrow.compute as pc  # noqa: PLC0415

    return pc.take(without_offset(array), indices, boundscheck=False)


def without_offset(array: pa.Array) -> pa.Array:
    """``array``, copied to offset 0 if its type is one that pyarrow selects wrongly from."""
    if _is_mishandled(array.type) and _has_offset(array):
        return pa.concat_arrays([array, array.slice(0, 0)])
    return array


def _safe(batch: pa.RecordBatch) -> pa.RecordBatch:
    if not any(_is_mishandled(field.type) for field in batch.schema):
        return batch
    columns = [without_offset(column) for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=batch.schema)


def _is_mishandled(data_type: pa.DataType) -> bool:
    """Return whether a fixed-size list of fixed-size lists is in ``data_type``."""
    if pa.types.is_fixed_size_list(data_type) and pa.types.is_fixed_size_list(data_type.value_type):
        return True
    return any(_is_mishandled(data_type.field(i).type) for i in range(data_type.num_fields))


def _has_offset(array: pa.Array) -> bool:
    """Return whether the array or a part of it starts inside of its buffers."""
    if array.offset:
        return True
    if isinstance(array, pa.ExtensionArray):
        return _has_offset(array.storage)
    if pa.types.is_struct(array.type):
        return any(_has_offset(array.field(i)) for i in range(array.type.num_fields))
    if pa.types.is_map(array.type):
        return _has_offset(array.keys) or _has_offset(array.items)
    return bool(array.type.num_fields) and _has_offset(array.values)

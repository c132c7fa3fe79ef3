"""Checks of values per physical row of a fragment; pure, no I/O."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionVector


def check_row_count(count: int, physical_rows: int, what: str) -> None:
    """Raise CorruptFileError unless there is one value per row."""
    if count != physical_rows:
        raise CorruptFileError(f"{count} {what} for {physical_rows} physical rows")


def check_rows(start: int, end: int, count: int) -> None:
    """Raise InvalidInputError when rows [start, end) are not inside [0, count)."""
    if not 0 <= start <= end <= count:
        raise InvalidInputError(f"rows [{start}, {end}) are not inside [0, {count})")


def check_deleted_offsets(deleted: DeletionVector, physical_rows: int) -> None:
    """Raise CorruptFileError when a deleted offset is not inside [0, physical_rows)."""
    largest = deleted.max_offset
    if largest is not None and largest >= physical_rows:
        raise CorruptFileError(f"deleted offset {largest} of a fragment with {physical_rows} rows")


def as_positions(offsets: ArrayLike, count: int) -> NDArray[np.int64]:
    """Return the offsets as numbers for indexing."""
    positions = np.asarray(offsets)
    if positions.size == 0:
        return np.empty(0, dtype=np.int64)
    if positions.min() < 0 or positions.max() >= count:
        raise InvalidInputError(f"a row offset is not inside [0, {count})")
    return positions.astype(np.int64, copy=False)

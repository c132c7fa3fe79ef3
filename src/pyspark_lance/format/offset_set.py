"""OffsetSet: rows of one fragment in a compressed set, whose memory depends on its runs.

A set of runs takes a few bytes per run, one of scattered rows about two bytes per row; the same is
true for the pickles of tasks that contain it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap, FrozenBitMap

from pyspark_lance.format.deletion_vector import DeletionVector

WINDOW_ROWS = 1 << 17
"""Number of rows processed at a time."""


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """An immutable set of offsets within one fragment.

    ``bitmap``: the offsets.
    """

    bitmap: BitMap

    @classmethod
    def of(cls, offsets: NDArray[np.integer]) -> OffsetSet:
        """The set of ascending ``offsets``."""
        builder = OffsetSetBuilder()
        builder.add(offsets)
        return builder.done()

    @classmethod
    def between(cls, start: int, end: int) -> OffsetSet:
        """The offsets of [start, end)."""
        return cls(BitMap(range(start, end)))

    @classmethod
    def live(cls, physical_rows: int, deleted: DeletionVector | None) -> OffsetSet:
        """All rows of a fragment except the deleted ones."""
        every = BitMap(range(physical_rows))
        return cls(every if deleted is None else every - deleted.bitmap)

    @classmethod
    def deleted(cls, vector: DeletionVector) -> OffsetSet:
        """The deleted rows of a fragment."""
        bitmap = BitMap(vector.bitmap)
        bitmap.run_optimize()
        return cls(bitmap)

    def __len__(self) -> int:
        return len(self.bitmap)

    def to_array(self) -> NDArray[np.uint32]:
        """The offsets, ascending."""
        return np.frombuffer(self.bitmap.to_array(), dtype=np.uint32)

    def windows(self) -> Iterator[NDArray[np.uint32]]:
        """Yield the offsets, ascending, a bounded number at a time."""
        for first in range(0, len(self.bitmap), WINDOW_ROWS):
            yield self.part(first, first + WINDOW_ROWS).to_array()

    def stretches(self, rows: int) -> Iterator[OffsetSet]:
        """Yield the offsets in ascending sets, each within ``rows`` consecutive rows."""
        if not self.bitmap:
            return
        first, last = self.bitmap.min(), self.bitmap.max()
        if last - first < rows:
            yield self
            return
        for start in range(first, last + 1, rows):
            part = self.bitmap & BitMap(range(start, min(start + rows, last + 1)))
            if part:
                yield OffsetSet(part)

    def part(self, first: int, last: int) -> OffsetSet:
        """Return the offsets from position ``first`` to ``last`` (exclusive), counted from zero."""
        count = len(self.bitmap)
        if first <= 0 and last >= count:
            return self
        if first >= min(last, count):
            return NO_OFFSETS
        start, end = self.bitmap[first], self.bitmap[min(last, count) - 1] + 1
        return OffsetSet(self.bitmap & BitMap(range(start, end)))

    def both(self, other: OffsetSet) -> OffsetSet:
        """Return the intersection."""
        return OffsetSet(self.bitmap & other.bitmap)

    def without(self, other: OffsetSet) -> OffsetSet:
        """Return the difference."""
        return OffsetSet(self.bitmap - other.bitmap)

    def contains_each(self, offsets: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return which of ``offsets``, ascending and unique, are in the set; same shape."""
        if not len(offsets) or not self.bitmap:
            return np.zeros(len(offsets), dtype=np.bool_)
        span = BitMap(range(int(offsets[0]), int(offsets[-1]) + 1))
        return np.isin(offsets, np.frombuffer((self.bitmap & span).to_array(), dtype=np.uint32))

    def complement(self, physical_rows: int) -> DeletionVector | None:
        """Return the other rows of the fragment as a deletion vector; None for none."""
        others = BitMap(range(physical_rows)) - self.bitmap
        return DeletionVector(FrozenBitMap(others)) if others else None


class OffsetSetBuilder:
    """Collects offsets."""

    def __init__(self) -> None:
        self._bitmap = BitMap()

    def add(self, offsets: NDArray[np.integer]) -> None:
        """Ascending offsets."""
        if not len(offsets):
            return
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first + 1 == len(offsets):
            self._bitmap.add_range(first, last + 1)
        else:
            self._bitmap |= DeletionVector.of(offsets).bitmap

    def done(self) -> OffsetSet:
        """Return the set of all added offsets."""
        self._bitmap.run_optimize()
        return OffsetSet(self._bitmap)


NO_OFFSETS = OffsetSet(BitMap())

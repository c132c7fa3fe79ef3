"""RowRanges: which rows of a page are wanted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
        """One range."""
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
        """How many positions there are."""
        return int((self.ends - self.starts).sum())

    def scaled(self, factor: int) -> RowRanges:
        """The ranges of items if every position holds ``factor`` items."""
        return self if factor == 1 else RowRanges(self.starts * factor, self.ends * factor)

    def clipped(self, start: int, end: int) -> RowRanges:
        """The part within [start, end), counted from ``start``; may have no ranges."""
        starts = np.maximum(self.starts, start) - start
        ends = np.minimum(self.ends, end) - start
        kept = starts < ends
        if kept.all():
            return RowRanges(starts, ends)
        return RowRanges(starts[kept], ends[kept])

    def to_positions(self) -> NDArray[np.int64]:
        """Every position, ascending."""
        return expand_ranges(self.starts, self.ends - self.starts)


def expand_ranges(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """``starts[i], starts[i] + 1, ...`` (``counts[i]`` of them) for every i, one after another."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) + np.repeat(starts - (ends - counts), counts)

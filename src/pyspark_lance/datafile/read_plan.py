"""Rows of a column, shared out to its pages. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class PageBorders:
    """Which rows of a file are in which page of a column.

    Attributes:
        starts: First row of each page, and the number of rows after the last one.
    """

    starts: NDArray[np.int64]

    @classmethod
    def of_lengths(cls, lengths: Sequence[int]) -> PageBorders:
        """Pages of ``lengths`` rows, one after another."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.array(lengths, np.int64), out=starts[1:])
        return cls(starts)

    @property
    def num_rows(self) -> int:
        """Rows of all pages."""
        return int(self.starts[-1])

    def split(self, rows: RowRanges) -> Iterator[tuple[int, RowRanges]]:
        """The pages that hold wanted rows, each with the rows counted from its own start."""
        if not len(rows.starts):
            return
        first = int(np.searchsorted(self.starts[1:], rows.start, side="right"))
        last = int(np.searchsorted(self.starts[1:], rows.end - 1, side="right"))
        pages: Sequence[int] = range(first, last + 1)
        if not rows.is_single:
            firsts = np.searchsorted(self.starts[1:], rows.starts, side="right")
            lasts = np.searchsorted(self.starts[1:], rows.ends - 1, side="right")
            pages = [page for page in pages if _any_covers(firsts, lasts, page)]
        for page in pages:
            clipped = rows.clipped(int(self.starts[page]), int(self.starts[page + 1]))
            if len(clipped.starts):
                yield page, clipped


def _any_covers(firsts: NDArray[np.intp], lasts: NDArray[np.intp], page: int) -> bool:
    """Whether a range whose first and last pages are given touches the page."""
    after = int(np.searchsorted(firsts, page, side="right"))
    return after > 0 and int(lasts[after - 1]) >= page


def row_windows(ranges: Sequence[tuple[int, int]], window_rows: int) -> Iterator[tuple[int, int]]:
    """The ranges cut into windows of at most ``window_rows`` rows."""
    for start, end in ranges:
        for first in range(start, end, window_rows):
            yield first, min(first + window_rows, end)

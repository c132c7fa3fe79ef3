"""Rows of a column, shared out to its pages. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.row_ranges import RowRanges


@dataclass(frozen=True, slots=True)
class PageStarts:
    """Which rows of a file are in which page of a column.

    ``starts``: first row of each page, and the end of the last one.
    """

    starts: NDArray[np.int64]

    @classmethod
    def of_lengths(cls, lengths: Sequence[int]) -> PageStarts:
        """Pages of ``lengths`` rows, one after another."""
        starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(np.array(lengths, np.int64), out=starts[1:])
        return cls(starts)

    @property
    def num_rows(self) -> int:
        """Rows of all pages."""
        return int(self.starts[-1])

    def at(self, pages: Sequence[int]) -> PageStarts:
        """Only some pages, ascending; those between count to the one before."""
        return PageStarts(self.starts[np.asarray(pages, np.int64)])

    def pages_of(self, rows: RowRanges) -> Iterable[int]:
        """The pages that hold wanted rows, ascending."""
        if not rows.is_single:
            return [page for page, _ in self.split(rows)]
        bounds = self.starts[1:]
        first, last = bounds.searchsorted((rows.start, rows.end - 1), side="right").tolist()
        return range(first, last + 1)

    def split(self, rows: RowRanges) -> Iterator[tuple[int, RowRanges]]:
        """The pages that hold wanted rows, each with the rows counted from its own start."""
        if not len(rows.starts):
            return
        if len(self.starts) == 2 and self.starts[0] == 0 and rows.end <= self.num_rows:
            yield 0, rows
            return
        if rows.is_single:
            bounds_of = self.starts.tolist()
            first, last = rows.start, rows.end
            for page in self.pages_of(rows):
                before, behind = bounds_of[page], bounds_of[page + 1]
                if before < behind:
                    yield (
                        page,
                        RowRanges.single(max(first, before) - before, min(last, behind) - before),
                    )
            return
        bounds = self.starts[1:]
        # The first and the last page of each range; both ascend.
        firsts = bounds.searchsorted(rows.starts, side="right")
        lasts = bounds.searchsorted(rows.ends - 1, side="right")
        pages = np.arange(int(firsts[0]), int(lasts[-1]) + 1)
        begins, ends = lasts.searchsorted(pages), firsts.searchsorted(pages, side="right")
        ranges_of_pages = zip(pages.tolist(), begins.tolist(), ends.tolist(), strict=True)
        for page, begin, end in ranges_of_pages:
            near = RowRanges(rows.starts[begin:end], rows.ends[begin:end])
            clipped = near.clipped(int(self.starts[page]), int(self.starts[page + 1]))
            if len(clipped.starts):
                yield page, clipped

"""Plans of reads: rows by page, windows of rows to decode, and their stored pages. Pure: no I/O.

Exact byte ranges in a distant file take a request for the metadata of its pages. Where pages are
small, or most of their rows are needed, it is faster to estimate the position of the pages
(``StoredPages``), fetch them at once and locate the rows later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.datafile.file_metadata import FileMetadata, PageInfo
from pyspark_lance.store.object_store import ByteRange


@dataclass(frozen=True, slots=True)
class PageStarts:
    """Mapping of the rows of a file to the pages of a column.

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
        """Select some pages, ascending; rows of skipped ones count to the page before."""
        return PageStarts(self.starts[np.asarray(pages, np.int64)])

    def pages_of(self, rows: RowRanges) -> Iterable[int]:
        """The pages that hold requested rows, ascending."""
        if not rows.is_single:
            pages: list[int] = self._ranges_of_pages(rows)[0].tolist()
            return pages
        bounds = self.starts[1:]
        first, last = bounds.searchsorted((rows.start, rows.end - 1), side="right").tolist()
        return range(first, last + 1)

    def split(self, rows: RowRanges) -> Iterator[tuple[int, RowRanges]]:
        """The pages that hold requested rows, each with the rows counted from its own start."""
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
        pages, begins, ends = (part.tolist() for part in self._ranges_of_pages(rows))
        for page, begin, end in zip(pages, begins, ends, strict=True):
            near = RowRanges(rows.starts[begin:end], rows.ends[begin:end])
            yield page, near.clip(int(self.starts[page]), int(self.starts[page + 1]))

    def _ranges_of_pages(self, rows: RowRanges) -> tuple[NDArray[np.int64], ...]:
        """The pages that hold requested rows; of each the first range of them, and the end.

        Pages are looked up in the ranges: there are few of them, and often a range for each row.
        """
        begins = rows.ends.searchsorted(self.starts[:-1], side="right")
        ends = rows.starts.searchsorted(self.starts[1:])
        pages = np.flatnonzero((begins < ends) & (self.starts[:-1] < self.starts[1:]))
        return pages, begins[pages], ends[pages]


MAX_WINDOW_ROWS: Final = 1 << 22
# A window that turns out to be so many times as large as it should be is read in halves.
_MAX_WINDOWS: Final = 4


class Windows:
    """Division of rows into windows of about ``window_bytes``, by the sizes seen so far.

    Windows that hold several batches hold whole ones.
    """

    def __init__(self, rows: RowRanges, row_bytes: int, window_bytes: int, batch_rows: int) -> None:
        self._rows = rows
        self._done = 0  # rows handed out
        self._total = rows.num_rows if len(rows.starts) else 0
        self._before = np.cumsum(rows.ends - rows.starts) - (rows.ends - rows.starts)
        self._window_bytes = window_bytes
        self._batch_rows = batch_rows
        # An estimate: the first window is a quarter of what it allows.
        self._row_bytes = 4.0 * row_bytes

    def begin(self, rows: RowRanges) -> None:
        """Continue with other rows; the sizes seen so far still apply."""
        self._rows, self._done = rows, 0
        self._total = rows.num_rows
        self._before = np.cumsum(rows.ends - rows.starts) - (rows.ends - rows.starts)

    def next_rows(self) -> RowRanges | None:
        """The next window, None after the last."""
        if self._done >= self._total:
            return None
        count = int(self._window_bytes / max(self._row_bytes, 0.01))
        if count > self._batch_rows:
            count -= count % self._batch_rows
        return self._hand_out(min(max(count, 1), MAX_WINDOW_ROWS))

    def half_of(self, rows: RowRanges) -> RowRanges:
        """The first half of the window that was handed out last; the other half comes next."""
        self._done -= rows.num_rows
        return self._hand_out(rows.num_rows // 2)

    def window_limit(self, rows: RowRanges) -> int | None:
        """The bytes that decoding a window may take; a single row is unlimited."""
        return _MAX_WINDOWS * self._window_bytes if rows.num_rows > 1 else None

    def _hand_out(self, count: int) -> RowRanges:
        begin, end = self._done, min(self._done + count, self._total)
        self._done = end
        counts = self._rows.ends - self._rows.starts
        first = np.clip(begin - self._before, 0, counts)
        last = np.clip(end - self._before, 0, counts)
        kept = first < last
        starts = self._rows.starts[kept]
        return RowRanges(starts + first[kept], starts + last[kept])

    def observe(self, num_rows: int, num_bytes: int) -> None:
        """Use the size of a decoded window to estimate the next ones."""
        self._row_bytes = max(num_bytes / num_rows, 0.01)


GROUP_BYTES: Final = 32 << 20
"""Rows that take about so much are fetched together, while those before are decoded."""
_WHOLE_BYTES: Final = 4 << 20  # takes no longer than a round trip
_MAX_OF_A_PAGE: Final = 0.9
# What describes a page is in buffers of no more than this, mostly.
_SMALL_BUFFER_BYTES: Final = 64 << 10
# Rows are not of one size: so much more is asked for at either end.
_SLACK_BYTES: Final = 64 << 10
# Which of many single rows share a page is for the readers of its columns to find out.
_MAX_RANGES: Final = 64


@dataclass(frozen=True, slots=True)
class _Column:
    pages: tuple[PageInfo, ...]
    starts: PageStarts
    slots_per_row: int

    def bytes_before(self, rows: NDArray[np.float64]) -> NDArray[np.float64]:
        """Estimate the stored bytes of the column before each of the rows."""
        sizes = np.cumsum([0, *(page.num_bytes for page in self.pages)])
        bounds = self.starts.starts / self.slots_per_row
        return np.interp(rows, bounds, sizes)


class StoredPages:
    """The pages of some columns of a 2.1 or 2.2 file."""

    def __init__(self, metadata: FileMetadata, columns: Sequence[int]) -> None:
        self._columns = []
        for index in columns:
            pages = metadata.column(index).pages
            starts = PageStarts.of_lengths([page.num_rows for page in pages])
            slots = starts.num_rows // metadata.num_rows if metadata.num_rows else 0
            if slots:
                self._columns.append(_Column(pages, starts, slots))

    def groups(self, rows: RowRanges) -> list[RowRanges]:
        """The rows in groups of about ``GROUP_BYTES``."""
        bounds = [column.starts.starts / column.slots_per_row for column in self._columns]
        inside = np.unique(np.concatenate([[rows.start, rows.end], *bounds]))
        inside = inside[(inside >= rows.start) & (inside <= rows.end)]
        stored = sum(
            (column.bytes_before(inside) for column in self._columns), np.zeros(len(inside))
        )
        stored = stored - stored[0]
        count = max(1, round(float(stored[-1]) / GROUP_BYTES))
        cuts = np.interp(np.arange(1, count) * (stored[-1] / count), stored, inside)
        edges = np.unique(np.concatenate([[rows.start], cuts.astype(np.int64), [rows.end]]))
        parts = (_between(rows, first, end) for first, end in itertools.pairwise(edges.tolist()))
        return [part for part in parts if len(part.starts)]

    def likely_ranges(self, rows: RowRanges, *, seen_to: int = 0) -> list[ByteRange]:
        """Estimate the byte ranges of the rows, and of the metadata that locate them.

        ``seen_to``: rows before this one were read, so the metadata of their pages are loaded.
        Returns nothing if the ranges are unknown.
        """
        if len(rows.starts) > _MAX_RANGES:
            return []
        parts = [
            (column, page, wanted)
            for column in self._columns
            for page, wanted in column.starts.split(rows.scale(column.slots_per_row))
        ]
        if sum(column.pages[page].num_bytes for column, page, _ in parts) <= _WHOLE_BYTES:
            return [
                byte_range for column, page, _ in parts for byte_range in column.pages[page].buffers
            ]
        return [
            byte_range
            for column, page, wanted in parts
            for byte_range in _of_page(
                column.pages[page],
                wanted,
                is_known=int(column.starts.starts[page]) < seen_to * column.slots_per_row,
            )
        ]


def _of_page(page: PageInfo, wanted: RowRanges, *, is_known: bool) -> Iterator[ByteRange]:
    if wanted.num_rows >= _MAX_OF_A_PAGE * page.num_rows:
        yield from page.buffers
        return
    for start, end in page.buffers:
        if end - start <= _SMALL_BUFFER_BYTES:
            if not is_known:
                yield ByteRange(start, end)
            continue
        per_row = (end - start) / page.num_rows
        first = start + int(wanted.start * per_row) - _SLACK_BYTES
        last = start + int(wanted.end * per_row) + _SLACK_BYTES
        yield ByteRange(max(start, first), min(end, last))


def _between(rows: RowRanges, first: int, end: int) -> RowRanges:
    part = rows.clip(first, end)
    return RowRanges(part.starts + first, part.ends + first)

"""StoredPages: where rows of some columns lie in a distant file, judged by its metadata.

Pure: no I/O.  To know exactly which bytes hold some rows takes a look into their pages, which is a
request of its own.  Where pages are small, or most of their rows are wanted, it is quicker to ask
for them at once and to find out later.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.datafile.file_metadata import FileMetadata, PageInfo
from pyspark_lance.datafile.read_plan import PageStarts
from pyspark_lance.store.byte_range import ByteRange

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
        """How much of the column is stored before each of the rows."""
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
        """Which bytes hold the rows, and what is needed to find these in them; roughly.

        ``seen_to``: rows before this one were read: what describes their pages is known. Returns
        nothing if that is unknown.
        """
        if len(rows.starts) > _MAX_RANGES:
            return []
        parts = [
            (column, page, wanted)
            for column in self._columns
            for page, wanted in column.starts.split(rows.scaled(column.slots_per_row))
        ]
        if sum(column.pages[page].num_bytes for column, page, _ in parts) <= _WHOLE_BYTES:
            return [place for column, page, _ in parts for place in column.pages[page].buffers]
        return [
            place
            for column, page, wanted in parts
            for place in _of_page(
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
    part = rows.clipped(first, end)
    return RowRanges(part.starts + first, part.ends + first)

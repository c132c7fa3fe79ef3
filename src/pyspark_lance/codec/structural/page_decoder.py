"""PageDecoder: the interface of every page layout of 2.1 and 2.2, and its values.

Reading goes in three steps, so that the caller can fetch bytes for many pages at once:
``state_buffers`` and ``load`` for what a page needs to find rows at all, ``plan`` for which bytes
hold the requested rows, ``decode`` for those bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.levels import Layers, LevelArray
from pyspark_lance.codec.row_selection import RowRanges, expand_ranges
from pyspark_lance.codec.values import Values

Selection: TypeAlias = slice | NDArray[np.int64]
"""Positions to keep: a slice with start and stop, or ascending positions."""


class BufferRange(NamedTuple):
    """Bytes ``start`` to ``end`` of buffer ``buffer`` of a page.

    ``page`` counts from the first of pages that were joined.
    """

    buffer: int
    start: int
    end: int
    page: int = 0


@dataclass(frozen=True, slots=True)
class ChunkRanges:
    """First and last chunk of each range of rows."""

    first: NDArray[np.int64]
    last: NDArray[np.int64]

    def chunks(self) -> NDArray[np.int64]:
        """Return every chunk of any range, ascending, once."""
        if len(self.first) == 1:
            return np.arange(int(self.first[0]), int(self.last[0]) + 1)
        chunks = expand_ranges(self.first, self.last - self.first + 1)
        is_new = np.empty(len(chunks), np.bool_)
        is_new[:1] = True
        np.not_equal(chunks[1:], chunks[:-1], out=is_new[1:])
        return chunks[is_new]


@dataclass(frozen=True, slots=True)
class PagePlan:
    """Buffers to fetch for some rows of a page."""

    rows: RowRanges  # The wanted rows, counted from the start of the page.
    ranges: tuple[BufferRange, ...]  # The bytes to fetch; one piece each is given to ``decode``.
    # For mini-block pages the numbers of the chunks, ascending.
    chunks: NDArray[np.int64] | None = None
    chunk_ranges: ChunkRanges | None = None  # And which of them each range of rows needs.


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """The requested rows, and perhaps adjacent ones that were decoded along with them."""

    values: Values  # One value per visible entry.
    repetition: LevelArray | None  # Level of each entry, or None without lists.
    definition: LevelArray | None  # Level of each entry, or None if all are 0.
    layers: Layers
    entries: Selection
    slots: Selection


class PageDecoder(Protocol):
    """Decoder of the rows of one page; does no I/O."""

    # Rows of the page; below fixed-size lists of structs their items, which are what ``RowRanges``
    # count then.
    num_rows: int
    state_buffers: tuple[int, ...]  # Buffers that ``load`` needs before the first ``plan``.

    @property
    def state_bytes(self) -> int:
        """Memory of the state that ``load`` built."""

    def load(self, buffers: Sequence[NDArray[np.uint8]]) -> None:
        """Parse the contents of ``state_buffers``."""

    def plan(self, rows: RowRanges) -> PagePlan:
        """Return the byte ranges that hold the rows; the row ranges must not be empty."""

    def decode(self, plan: PagePlan, pieces: Sequence[NDArray[np.uint8]]) -> DecodedRows:
        """The rows of a plan."""


def select_all(count: int) -> slice:
    """A selection that keeps everything."""
    return slice(0, count)


def select_ranges(ranges: RowRanges) -> Selection:
    """A slice for one range, positions for many."""
    if ranges.is_single:
        return slice(ranges.start, ranges.end)
    return ranges.to_positions()


def select_rows(
    rows_start: NDArray[np.int64], rows_end: NDArray[np.int64], visible: NDArray[np.bool_] | None
) -> tuple[Selection, Selection]:
    """Entries and slots of rows.

    ``rows_start``: first entry of each range of rows, ascending; ``rows_end``: one past the
    last entry of each range. ``visible``: which entries have a slot, as booleans; None for all.
    """
    entries = select_ranges(RowRanges(rows_start, rows_end))
    if visible is None:
        return entries, entries
    if isinstance(entries, slice):
        before = int(np.count_nonzero(visible[: entries.start]))
        count = int(np.count_nonzero(visible[entries]))
        return entries, slice(before, before + count)
    slot_of_entry: NDArray[np.int64] = visible.cumsum(dtype=np.int64) - 1
    return entries, slot_of_entry[entries[visible[entries]]]

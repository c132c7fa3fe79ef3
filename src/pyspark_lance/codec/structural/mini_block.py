"""Mini-block pages: small values in chunks of a few KiB, the unit of decoding.

A chunk is found by its row through the metadata words and, if there are lists, the repetition
index; only the chunks that hold requested rows are fetched, and all of them are decoded at once.

The buffers of a page::

    0  metadata words    uint16 or uint32 (num_chunks,)   (size / 8 - 1) << 4 | log2(values)
    1  chunks            bytes; each chunk begins at a multiple of 8
    2  dictionary        only if there is one
    -1 repetition index  uint64 (num_chunks, 2)           rows that end in it, levels left over

A chunk, in uint16 words (sizes of buffers take two in a page of large chunks), then blocks that
begin at multiples of 8::

    | levels | bytes of repetition | of definition | bytes of value buffers … | padding
    | repetition levels | definition levels | value buffer 0 | value buffer 1 | …

What a chunk lacks (levels without lists or nulls) has no word and no block.  In memory everything
that describes chunks is an array over them: where they start ``int64 (num_chunks + 1,)``, values
and rows before each, and for the chunks that are decoded together starts and sizes of each block,
``int64 (num_decoded,)``.

Source: docs/format/file-format.md, sections 6.2 and 6.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.dictionary import PageItems
from pyspark_lance.codec.decode_memory import require_decode_memory
from pyspark_lance.codec.encoding_tree import block_decoder, chunk_decoder, level_decoder
from pyspark_lance.codec.levels import Layers, LevelArray, check_levels
from pyspark_lance.codec.row_selection import RowRanges, expand_ranges
from pyspark_lance.codec.structural.page_decoder import (
    BufferRange,
    ChunkRanges,
    DecodedRows,
    PagePlan,
    Selection,
    select_all,
    select_rows,
)
from pyspark_lance.codec.values import bytes_of_values
from pyspark_lance.proto import encodings_v2_1_pb2

METADATA_BUFFER, CHUNK_BUFFER, DICTIONARY_BUFFER = 0, 1, 2
MAX_CHUNK_VALUES = 1 << 15
MAX_VALUE_BUFFERS = 64
_ALIGNMENT = 8
_SMALL_TABLE_BYTES = 64
_FIRST = np.zeros(1, np.int64)
_FIRST_CHUNK = ChunkRanges(_FIRST, _FIRST)


@dataclass(frozen=True, slots=True)
class ChunkTable:
    """Positions of the chunks of a page, or of several joined pages."""

    # Position of each chunk and the end of the last one, counted through all pages.
    starts: NDArray[np.int64]
    values_before: NDArray[np.int64]  # Value slots before each chunk, and their total.
    page_of: NDArray[np.int64]  # The page of each chunk.
    page_starts: NDArray[np.int64]  # Position of the first chunk of each page.

    @classmethod
    def from_words(
        cls, words: NDArray[np.unsignedinteger], num_values: int, num_bytes: int
    ) -> ChunkTable:
        """Parse the metadata words."""
        sizes = ((words >> 4).astype(np.int64) + 1) * _ALIGNMENT
        counts = np.left_shift(1, (words & 15).astype(np.int64))
        starts = np.zeros(len(words) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        require(
            int(starts[-1]) <= num_bytes, f"chunks of {starts[-1]} bytes, {num_bytes} are there"
        )
        if len(counts):
            # The last word does not say how many values its chunk has.
            rest = num_values - int(counts[:-1].sum())
            require(0 <= rest <= MAX_CHUNK_VALUES, f"the last chunk has {rest} values")
            counts[-1] = rest
        else:
            require(num_values == 0, f"{num_values} values in no chunks")
        values_before = np.zeros(len(words) + 1, np.int64)
        np.cumsum(counts, out=values_before[1:])
        return cls(starts, values_before, np.zeros(len(words), np.int64), _FIRST)

    @classmethod
    def join(cls, tables: Sequence[ChunkTable]) -> ChunkTable:
        """The chunks of several pages, each of which has a table."""
        num_chunks = np.array([len(table) for table in tables])
        return cls(
            _counted_on([table.starts for table in tables]),
            _counted_on([table.values_before for table in tables]),
            np.repeat(np.arange(len(tables)), num_chunks),
            _starts_of([int(table.starts[-1]) for table in tables]),
        )

    def ranges(self, chunks: NDArray[np.int64]) -> tuple[BufferRange, ...]:
        """Return the ranges of the chunks in the buffers of their pages, adjacent chunks as one."""
        page_of = self.page_of[chunks]
        apart = (chunks[1:] != chunks[:-1] + 1) | (page_of[1:] != page_of[:-1])
        breaks = apart.nonzero()[0] + 1
        first, last = np.concatenate(([0], breaks)), np.concatenate((breaks, [len(chunks)])) - 1
        pages = page_of[first]
        bases = self.page_starts[pages]
        starts, ends = self.starts[chunks[first]] - bases, self.starts[chunks[last] + 1] - bases
        if len(chunks) > 1:  # fewer rows would not make one chunk smaller
            require_decode_memory(int((ends - starts).sum()))
        return tuple(
            [
                BufferRange(CHUNK_BUFFER, start, end, page)
                for start, end, page in zip(
                    starts.tolist(), ends.tolist(), pages.tolist(), strict=True
                )
            ]
        )

    def __len__(self) -> int:
        return len(self.starts) - 1


@lru_cache(maxsize=1024)
def _small_table(words: bytes, word_bytes: int, num_values: int, num_bytes: int) -> ChunkTable:
    """The chunks of small pages, which are similar."""
    return ChunkTable.from_words(np.frombuffer(words, f"<u{word_bytes}"), num_values, num_bytes)


@dataclass(frozen=True, slots=True)
class RepetitionIndex:
    """Mapping of rows to chunks."""

    rows_before: NDArray[np.int64]  # Rows that start before each chunk, and their total.
    ends_later: NDArray[np.bool_]  # Whether the last row of the chunk goes on in the next one.
    # For each chunk the next chunk, itself included, in which a row ends.
    next_end: NDArray[np.int64]

    @classmethod
    def from_words(
        cls, words: NDArray[np.uint64], num_chunks: int, num_rows: int
    ) -> RepetitionIndex:
        """Parse the index: per chunk the rows that end in it and the levels left over."""
        require(len(words) == 2 * num_chunks, "the repetition index does not fit the chunks")
        pairs = words.reshape(-1, 2)
        sane = not len(pairs) or bool((pairs[:, 0] <= num_rows).all())
        require(sane, "the repetition index has too many rows")
        ends = pairs[:, 0].astype(np.int64)
        ends_later = pairs[:, 1] > 0
        goes_on = np.zeros(num_chunks, bool)
        goes_on[1:] = ends_later[:-1]
        starts = ends + ends_later - goes_on
        require(bool((starts >= 0).all()), "the repetition index ends rows that never start")
        rows_before = np.zeros(num_chunks + 1, np.int64)
        np.cumsum(starts, out=rows_before[1:])
        found = int(rows_before[-1])
        require(found == num_rows, f"the repetition index has {found} rows, the page {num_rows}")
        ending = np.where(ends > 0, np.arange(num_chunks), num_chunks - 1)
        next_end = np.minimum.accumulate(ending[::-1])[::-1] if num_chunks else ending
        return cls(rows_before, ends_later, next_end)

    @classmethod
    def join(cls, parts: Sequence[RepetitionIndex]) -> RepetitionIndex:
        """The rows of several pages."""
        num_chunks = [len(part.next_end) for part in parts]
        return cls(
            _counted_on([part.rows_before for part in parts]),
            np.concatenate([part.ends_later for part in parts]),
            np.concatenate([part.next_end for part in parts])
            + np.repeat(_starts_of(num_chunks), num_chunks),
        )

    def chunks_of(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> ChunkRanges:
        """Return first and last chunk of each range of rows."""
        bounds = self.rows_before[1:]
        first = bounds.searchsorted(starts, side="right")
        last = bounds.searchsorted(ends - 1, side="right")
        # The last row may be one that goes on.
        goes_on = (ends == self.rows_before[last + 1]) & self.ends_later[last]
        following = np.minimum(last + 1, len(self.next_end) - 1)
        return ChunkRanges(first, np.where(goes_on, self.next_end[following], last))


class MiniBlockForm:
    """Description of mini-block pages, apart from their numbers of values."""

    def __init__(self, layout: encodings_v2_1_pb2.MiniBlockLayout, num_buffers: int) -> None:
        self.layers = Layers.from_message(layout.layers)
        self.decode_values = chunk_decoder(layout.value_compression)
        has_rep = layout.HasField("rep_compression")
        has_def = layout.HasField("def_compression")
        self.decode_repetition = level_decoder(layout.rep_compression) if has_rep else None
        self.decode_definition = level_decoder(layout.def_compression) if has_def else None
        self.dictionary = layout.dictionary if layout.HasField("dictionary") else None
        self.has_index = layout.repetition_index_depth > 0
        self.has_large_chunk = layout.has_large_chunk
        self.num_value_buffers = int(layout.num_buffers)
        self.num_items = int(layout.num_items)
        self.num_dictionary_items = int(layout.num_dictionary_items)
        has_dictionary = self.dictionary is not None
        needed = 2 + has_dictionary + self.has_index
        require(
            num_buffers == needed, f"a mini-block page needs {needed} buffers, it has {num_buffers}"
        )
        require(layout.num_buffers <= MAX_VALUE_BUFFERS, f"{layout.num_buffers} buffers per chunk")
        require(has_rep == (self.layers.num_lists > 0), "lists and repetition levels disagree")
        require(not has_rep or self.has_index, "lists without a repetition index")
        state = [METADATA_BUFFER]
        state += [DICTIONARY_BUFFER] if has_dictionary else []
        state += [num_buffers - 1] if self.has_index else []
        self.state_buffers = tuple(state)
        kind = encodings_v2_1_pb2.MiniBlockLayout()
        kind.CopyFrom(layout)
        kind.ClearField("num_items")
        kind.ClearField("num_dictionary_items")
        self.kind = kind.SerializeToString()
        """Equal for pages that can be decoded together."""


class MiniBlockPage:
    """Decoder of one mini-block page, or of several that were joined.

    ``chunk_bytes``: bytes of its chunks.
    """

    def __init__(self, form: MiniBlockForm, num_rows: int, chunk_bytes: int) -> None:
        self.num_rows = num_rows
        self.state_buffers = form.state_buffers
        self._form = form
        self._chunk_bytes = chunk_bytes
        self._table: ChunkTable | None = None
        self._index: RepetitionIndex | None = None
        self._items: PageItems | None = None

    def load(self, buffers: Sequence[NDArray[np.uint8]]) -> None:
        """Parse metadata words, dictionary and repetition index."""
        form, rest = self._form, list(buffers)
        num_items = form.num_items
        if form.decode_repetition is None:
            same = num_items == self.num_rows
            require(same, f"{num_items} values in a page of {self.num_rows} rows")
        size = 4 if form.has_large_chunk else 2
        words = rest.pop(0)
        require(len(words) % size == 0, "the metadata words are cut short")
        if len(words) <= _SMALL_TABLE_BYTES:
            self._table = _small_table(words.tobytes(), size, num_items, self._chunk_bytes)
        else:
            self._table = ChunkTable.from_words(
                words.view(f"<u{size}"), num_items, self._chunk_bytes
            )
        if form.dictionary is not None:
            items = block_decoder(form.dictionary)(rest.pop(0), form.num_dictionary_items)
            self._items = PageItems.of_page(items)
        if form.has_index and form.decode_repetition is not None:
            index = rest.pop(0)
            require(len(index) % 16 == 0, "the repetition index is cut short")
            self._index = RepetitionIndex.from_words(
                index.view("<u8"), len(self._table), self.num_rows
            )

    @property
    def state_bytes(self) -> int:
        """Memory of the chunk table, the repetition index and the dictionary."""
        kept: list[NDArray[Any]] = []
        if self._table is not None:
            table = self._table
            kept += [table.starts, table.values_before, table.page_of, table.page_starts]
        if self._index is not None:
            index = self._index
            kept += [index.rows_before, index.ends_later, index.next_end]
        items = 0 if self._items is None else bytes_of_values(self._items.items)
        return sum(one.nbytes for one in kept) + items

    def plan(self, rows: RowRanges) -> PagePlan:
        """The chunks that hold the rows, neighbours as one range."""
        table = self._loaded_table()
        if len(table) == 1 and rows.is_single:
            place = BufferRange(CHUNK_BUFFER, 0, int(table.starts[1]))
            return PagePlan(rows, (place,), _FIRST_CHUNK.first, _FIRST_CHUNK)
        if self._index is not None:
            wanted = self._index.chunks_of(rows.starts, rows.ends)
        else:
            bounds = table.values_before[1:]
            first = bounds.searchsorted(rows.starts, side="right")
            wanted = ChunkRanges(first, bounds.searchsorted(rows.ends - 1, side="right"))
        chunks = wanted.chunks()
        return PagePlan(rows, table.ranges(chunks), chunks, wanted)

    def decode(self, plan: PagePlan, pieces: Sequence[NDArray[np.uint8]]) -> DecodedRows:
        """Decode the planned chunks together."""
        table, chunks = self._loaded_table(), plan.chunks
        assert chunks is not None
        data = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        counts = table.values_before[chunks + 1] - table.values_before[chunks]
        sizes = table.starts[chunks + 1] - table.starts[chunks]
        group = self._parse_headers(data, sizes.cumsum() - sizes, sizes, counts)
        repetition, definition = self._decode_levels(group, counts)
        values = self._form.decode_values(group.buffers)
        if self._items is not None:
            values = self._items.look_up(values, table.page_of[chunks], counts)
        if repetition is None:
            entries = slots = self._select_slots(plan.rows, chunks, counts)
        else:
            entries, slots = self._select_entries(
                plan, chunks, group.num_levels, repetition, definition, values.num_values
            )
        return DecodedRows(values, repetition, definition, self._form.layers, entries, slots)

    @property
    def kind(self) -> object:
        """Equal for pages that can be joined; the page itself if it must be alone."""
        is_joinable = self._items is None or self._items.is_joinable
        return self._form.kind if is_joinable else self

    @property
    def has_dictionary(self) -> bool:
        """Return whether values are indices into items of the page."""
        return self._items is not None

    @classmethod
    def join(cls, pages: Sequence[MiniBlockPage]) -> MiniBlockPage:
        """Join pages to one of their concatenated rows."""
        num_rows = [page.num_rows for page in pages]
        tables = [page._loaded_table() for page in pages]
        joined = cls(pages[0]._form, sum(num_rows), sum(page._chunk_bytes for page in pages))
        joined._table = ChunkTable.join(tables)
        items = [page._items for page in pages if page._items is not None]
        if items:
            joined._items = PageItems.join(items)
        indexes = [page._index for page in pages if page._index is not None]
        if indexes:
            joined._index = RepetitionIndex.join(indexes)
        return joined

    def _loaded_table(self) -> ChunkTable:
        assert self._table is not None, "load comes before plan"
        return self._table

    def _parse_headers(
        self,
        data: NDArray[np.uint8],
        starts: NDArray[np.int64],
        sizes: NDArray[np.int64],
        counts: NDArray[np.int64],
    ) -> _ChunkGroup:
        """Positions and sizes of everything in the chunks; checked to be inside of them."""
        words, places = data.view("<u2"), starts >> 1
        form = self._form
        levels = (form.decode_repetition is not None) + (form.decode_definition is not None)
        width = 2 if form.has_large_chunk else 1
        header = 1 + levels + form.num_value_buffers * width
        positions = starts + (2 * header + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        chunk_ends = starts + sizes
        require(bool((positions <= chunk_ends).all()), "a chunk is too small for its header")
        num_levels = words[places].astype(np.int64)
        block_sizes = [words[places + word].astype(np.int64) for word in range(1, 1 + levels)]
        for word in range(1 + levels, header, width):
            size = words[places + word].astype(np.int64)
            if width == 2:
                size |= words[places + word + 1].astype(np.int64) << 16
            block_sizes.append(size)
        block_starts = []
        block_ends = positions
        for size in block_sizes:
            block_starts.append(positions)
            block_ends = positions + size
            positions = (block_ends + (_ALIGNMENT - 1)) & -_ALIGNMENT
        # No block is smaller than nothing, so the last one ends behind all others.
        require(bool((block_ends <= chunk_ends).all()), "a chunk exceeds its size")
        buffers = ChunkBuffers(
            data, counts, tuple(block_starts[levels:]), tuple(block_sizes[levels:])
        )
        return _ChunkGroup(
            buffers, num_levels, tuple(block_starts[:levels]), tuple(block_sizes[:levels])
        )

    def _decode_levels(
        self, group: _ChunkGroup, counts: NDArray[np.int64]
    ) -> tuple[LevelArray | None, LevelArray | None]:
        decoders = (self._form.decode_repetition, self._form.decode_definition)
        levels: list[LevelArray | None] = []
        block = 0
        for decoder in decoders:
            if decoder is None:
                levels.append(None)
                continue
            levels.append(
                decoder(
                    group.buffers.data,
                    group.level_starts[block],
                    group.level_sizes[block],
                    group.num_levels,
                )
            )
            block += 1
        repetition, definition = levels
        if repetition is None and definition is not None:
            same = bool((group.num_levels == counts).all())
            require(same, "a chunk without lists has unequally many levels and values")
        check_levels(repetition, definition, self._form.layers)
        return repetition, definition

    def _select_slots(
        self, rows: RowRanges, chunks: NDArray[np.int64], counts: NDArray[np.int64]
    ) -> Selection:
        """Select the requested slots of the decoded chunks, without lists."""
        if rows.is_single:
            before = int(self._loaded_table().values_before[chunks[0]])
            return slice(rows.start - before, rows.end - before)
        values_before = self._loaded_table().values_before
        decoded_before = np.cumsum(counts) - counts
        # Neighbours are decoded next to each other, so a range stays one.
        first = np.searchsorted(values_before[1:], rows.starts, side="right")
        starts = rows.starts - values_before[first] + decoded_before[np.searchsorted(chunks, first)]
        lengths = rows.ends - rows.starts
        if (starts[1:] == starts[:-1] + lengths[:-1]).all():
            return slice(int(starts[0]), int(starts[-1] + lengths[-1]))
        return expand_ranges(starts, lengths)

    def _select_entries(
        self,
        plan: PagePlan,
        chunks: NDArray[np.int64],
        num_levels: NDArray[np.int64],
        repetition: LevelArray,
        definition: LevelArray | None,
        num_values: int,
    ) -> tuple[Selection, Selection]:
        """Select the entries between row starts, and their slots, with lists."""
        index, rows, ranges = self._index, plan.rows, plan.chunk_ranges
        assert index is not None
        assert ranges is not None
        max_visible = self._form.layers.max_visible
        all_visible = definition is None or self._form.layers.max_definition <= max_visible
        visible = None if all_visible or definition is None else definition <= max_visible
        num_entries = len(repetition)
        num_visible = num_entries if visible is None else int(np.count_nonzero(visible))
        require(num_visible == num_values, f"{num_visible} levels for {num_values} values")
        starts_row = repetition == self._form.layers.num_lists
        # How many of the row starts come before each decoded chunk.
        starting = index.rows_before[chunks + 1] - index.rows_before[chunks]
        starts_before = starting.cumsum() - starting
        found, expected = int(np.count_nonzero(starts_row)), int(starting.sum())
        require(found == expected, f"{found} rows start where the index says {expected}")
        if rows.is_single and rows.num_rows == self.num_rows and starts_row[0]:
            return select_all(num_entries), select_all(num_values)
        row_starts = starts_row.nonzero()[0]
        first, last = chunks.searchsorted(ranges.first), chunks.searchsorted(ranges.last)
        offset = starts_before[first] - index.rows_before[ranges.first]
        begin = row_starts[rows.starts + offset]
        # The end of the last chunk, unless another row starts in it.
        level_ends = num_levels.cumsum()
        following = rows.ends + offset
        next_start = np.append(row_starts, num_entries)[following]
        return select_rows(begin, np.minimum(next_start, level_ends[last]), visible)


def _counted_on(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """Running totals that continue from part to part; each starts at 0 and ends at its total."""
    inner = np.concatenate([part[1:] for part in parts])
    bases = np.repeat(_starts_of([int(part[-1]) for part in parts]), [len(p) - 1 for p in parts])
    totals = np.zeros(len(inner) + 1, np.int64)
    np.add(inner, bases, out=totals[1:])
    return totals


def _starts_of(sizes: Sequence[int]) -> NDArray[np.int64]:
    """Return the start offsets of consecutive items of these sizes."""
    ends = np.cumsum(sizes, dtype=np.int64)
    return ends - sizes


@dataclass(frozen=True, slots=True)
class _ChunkGroup:
    """Chunks that are decoded together, as their headers describe them."""

    buffers: ChunkBuffers
    num_levels: NDArray[np.int64]
    level_starts: tuple[NDArray[np.int64], ...]
    level_sizes: tuple[NDArray[np.int64], ...]

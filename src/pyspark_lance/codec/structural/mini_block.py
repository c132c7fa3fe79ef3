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

The writer cuts values and levels into chunks of a few kilobytes.

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
from pyspark_lance.codec.chunk_buffers import (
    ChunkBuffer,
    ChunkBuffers,
    DictionaryBlock,
    EncodedPage,
    Segments,
    ValueChunks,
    round_up,
)
from pyspark_lance.codec.compressive.dictionary import PageItems
from pyspark_lance.codec.compressive.fixed_width import pack_level_blocks
from pyspark_lance.codec.decode_memory import allocate, require_decode_memory
from pyspark_lance.codec.encoding_tree import block_decoder, chunk_decoder, level_decoder
from pyspark_lance.codec.leaf_column import LeafColumn, LeafValues
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
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

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
            _running_totals([table.starts for table in tables]),
            _running_totals([table.values_before for table in tables]),
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
        is_valid = not len(pairs) or bool((pairs[:, 0] <= num_rows).all())
        require(is_valid, "the repetition index has too many rows")
        ends = pairs[:, 0].astype(np.int64)
        ends_later = pairs[:, 1] > 0
        continues = np.zeros(num_chunks, bool)
        continues[1:] = ends_later[:-1]
        starts = ends + ends_later - continues
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
            _running_totals([part.rows_before for part in parts]),
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
        continues = (ends == self.rows_before[last + 1]) & self.ends_later[last]
        following = np.minimum(last + 1, len(self.next_end) - 1)
        return ChunkRanges(first, np.where(continues, self.next_end[following], last))


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
        table = self._load_table()
        if len(table) == 1 and rows.is_single:
            index = BufferRange(CHUNK_BUFFER, 0, int(table.starts[1]))
            return PagePlan(rows, (index,), _FIRST_CHUNK.first, _FIRST_CHUNK)
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
        table, chunks = self._load_table(), plan.chunks
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
        tables = [page._load_table() for page in pages]
        joined = cls(pages[0]._form, sum(num_rows), sum(page._chunk_bytes for page in pages))
        joined._table = ChunkTable.join(tables)
        items = [page._items for page in pages if page._items is not None]
        if items:
            joined._items = PageItems.join(items)
        indexes = [page._index for page in pages if page._index is not None]
        if indexes:
            joined._index = RepetitionIndex.join(indexes)
        return joined

    def _load_table(self) -> ChunkTable:
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
        words, indices = data.view("<u2"), starts >> 1
        form = self._form
        levels = (form.decode_repetition is not None) + (form.decode_definition is not None)
        width = 2 if form.has_large_chunk else 1
        header = 1 + levels + form.num_value_buffers * width
        positions = starts + (2 * header + _ALIGNMENT - 1) // _ALIGNMENT * _ALIGNMENT
        chunk_ends = starts + sizes
        require(bool((positions <= chunk_ends).all()), "a chunk is too small for its header")
        num_levels = words[indices].astype(np.int64)
        block_sizes = [words[indices + word].astype(np.int64) for word in range(1, 1 + levels)]
        for word in range(1 + levels, header, width):
            size = words[indices + word].astype(np.int64)
            if width == 2:
                size |= words[indices + word + 1].astype(np.int64) << 16
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
            before = int(self._load_table().values_before[chunks[0]])
            return slice(rows.start - before, rows.end - before)
        values_before = self._load_table().values_before
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


def _running_totals(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
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


_BLOCK = 1024


def entries_per_chunk(rows: LeafValues, value_ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one past the last level entry of each chunk.

    Entries without a value go with the value that follows, trailing ones with the last chunk.

    ``value_ends``: one past the last value of each chunk.
    """
    if rows.visible is None:
        return value_ends
    ends = rows.visible[value_ends - 1] + 1
    ends[-1] = rows.num_entries
    return ends


def encode_levels(
    levels: NDArray[np.uint8], ends: NDArray[np.int64]
) -> tuple[pb.CompressiveEncoding, ChunkBuffer]:
    """The level blocks of every chunk.

    ``levels``: one per entry of the page; ``ends``: one past the last entry of each chunk.
    """
    starts = np.concatenate(([0], ends[:-1]))
    if len(levels) < _BLOCK:
        raw = levels.astype("<u2").view(np.uint8)
        encoding = pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=16))
        return encoding, ChunkBuffer((Segments(raw, starts * 2, (ends - starts) * 2),))
    packed_bits = max(1, int(levels.max()).bit_length())
    encoding = pb.CompressiveEncoding(
        out_of_line_bitpacking=pb.OutOfLineBitpacking(
            uncompressed_bits_per_value=16,
            values=pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=packed_bits)),
        )
    )
    full, tails = np.divmod(ends - starts, _BLOCK)
    # A reader distinguishes a raw tail from a packed one by the length, so this rule is part of
    # the format.
    raw_tail = packed_bits * (_BLOCK - tails) >= (16 - packed_bits) * tails
    raw_sizes = np.where(raw_tail, tails, 0)
    blocks = full + ((tails > 0) & ~raw_tail)
    packed = _pack(levels, starts, ends - raw_sizes, blocks, packed_bits)
    if not raw_sizes.any():
        return encoding, ChunkBuffer((packed,))
    raw = levels.astype("<u2").view(np.uint8)
    return encoding, ChunkBuffer((packed, Segments(raw, (ends - raw_sizes) * 2, raw_sizes * 2)))


def _pack(
    levels: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    blocks: NDArray[np.int64],
    packed_bits: int,
) -> Segments:
    """Pack the levels of each chunk together, filled up to whole blocks."""
    first_blocks = np.cumsum(blocks) - blocks
    num_blocks = int(blocks.sum())
    if (starts == first_blocks * _BLOCK).all() and num_blocks * _BLOCK == len(levels):
        padded = levels
    else:
        padded = np.zeros(num_blocks * _BLOCK, np.uint8)
        Segments(levels, starts, ends - starts).copy_to(padded, first_blocks * _BLOCK)
    packed = pack_level_blocks(padded.reshape(num_blocks, _BLOCK), packed_bits)
    block_bytes = 128 * packed_bits
    return Segments(packed.reshape(-1), first_blocks * block_bytes, blocks * block_bytes)


def repetition_index(
    rows: LeafValues, column: LeafColumn, ends: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return, for every chunk, the rows that end in it and its trailing entries of a partial row.

    ``ends``: one past the last entry of each chunk. Returns shape (chunks, 2).
    """
    row_starts = rows.row_starts(column)
    row_ends = np.append(row_starts[1:], rows.num_entries)
    ended_before = np.searchsorted(row_ends, ends, side="right")
    ended = np.diff(ended_before, prepend=0)
    last_start = row_starts[np.searchsorted(row_starts, ends, side="left") - 1]
    chunk_starts = np.concatenate(([0], ends[:-1]))
    complete = row_ends[np.maximum(ended_before - 1, 0)] == ends
    left_over = np.where(complete, 0, ends - np.maximum(last_start, chunk_starts))
    return np.stack((ended, left_over), axis=1).astype("<u8")


_MAX_LEVELS = 65_535
_MAX_LEVEL_BITS = 131_072
_MAX_SMALL_CHUNK = 1 << 15


def encode_mini_block(
    column: LeafColumn,
    rows: LeafValues,
    values: ValueChunks,
    dictionary: DictionaryBlock | None,
    *,
    large_chunks: bool,
) -> EncodedPage | None:
    """A mini-block page; None if a chunk would be larger than the format allows.

    ``dictionary``: set if the values are indices; ``large_chunks``: whether sizes take 32 bits, as
    they do from 2.2 on.
    """
    has_levels = rows.repetition is not None or rows.definition is not None
    ends = entries_per_chunk(rows, values.value_ends())
    num_levels = np.diff(ends, prepend=0) if has_levels else np.zeros(len(ends), np.int64)
    if has_levels and int(num_levels.max()) > _max_levels(rows):
        return None
    layout = pb.MiniBlockLayout(
        value_compression=values.encoding,
        num_buffers=len(values.buffers),
        num_items=values.num_values,
        has_large_chunk=large_chunks,
        layers=column.page_layers(rows),
    )
    level_buffers: list[ChunkBuffer] = []
    if rows.repetition is not None:
        encoding, buffer = encode_levels(rows.repetition, ends)
        layout.rep_compression.CopyFrom(encoding)
        layout.repetition_index_depth = 1
        level_buffers.append(buffer)
    if rows.definition is not None:
        encoding, buffer = encode_levels(rows.definition, ends)
        layout.def_compression.CopyFrom(encoding)
        level_buffers.append(buffer)
    chunk_sizes, chunks = _lay_out(num_levels, level_buffers, values.buffers, large_chunks)
    if not large_chunks and int(chunk_sizes.max()) > _MAX_SMALL_CHUNK:
        return None
    buffers: list[object] = [_metadata(chunk_sizes, values.log2_values, large_chunks), chunks]
    if dictionary is not None:
        layout.dictionary.CopyFrom(dictionary.encoding)
        layout.num_dictionary_items = dictionary.num_items
        buffers.append(dictionary.content)
    if rows.repetition is not None:
        buffers.append(repetition_index(rows, column, ends))
    return EncodedPage(buffers, pb.PageLayout(mini_block_layout=layout), rows.num_rows)


def _max_levels(rows: LeafValues) -> int:
    """Levels a chunk may have, so that with its values it stays below 32 KiB."""
    bits = sum(
        max(1, int(levels.max()).bit_length())
        for levels in (rows.repetition, rows.definition)
        if levels is not None
    )
    return min(_MAX_LEVELS, _MAX_LEVEL_BITS // bits)


def _metadata(sizes: NDArray[np.int64], log2_values: int, large_chunks: bool) -> NDArray[np.uint8]:
    """Encode one word per chunk: its size and the number of its values."""
    words = (sizes // 8 - 1) << 4 | log2_values
    words[-1] &= ~0xF  # the last chunk has what is left
    return words.astype("<u4" if large_chunks else "<u2").view(np.uint8)


def _lay_out(
    num_levels: NDArray[np.int64],
    level_buffers: Sequence[ChunkBuffer],
    value_buffers: Sequence[ChunkBuffer],
    large_chunks: bool,
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The size of each chunk, and all chunks behind each other."""
    level_sizes = [buffer.sizes() for buffer in level_buffers]
    value_sizes = [buffer.sizes() for buffer in value_buffers]
    header = _headers(num_levels, level_sizes, value_sizes, large_chunks)
    offsets = [np.full(len(num_levels), header.shape[1], np.int64)]
    for sizes in level_sizes + value_sizes:
        offsets.append(offsets[-1] + round_up(sizes, 8))
    chunk_sizes = offsets[-1]
    starts = np.cumsum(chunk_sizes) - chunk_sizes
    out = allocate(int(chunk_sizes.sum()))
    words = out.view("<u8")
    header_words = header.view("<u8")
    # Each buffer may end within its last word; an empty one has none, so the header comes later.
    for offset in offsets[1:]:
        words[(starts + offset) // 8 - 1] = 0
    words[(starts // 8)[:, None] + np.arange(header_words.shape[1])] = header_words
    for buffer, offset in zip([*level_buffers, *value_buffers], offsets, strict=False):
        buffer.copy_to(out, starts + offset)
    return chunk_sizes, out


def _headers(
    num_levels: NDArray[np.int64],
    level_sizes: Sequence[NDArray[np.int64]],
    value_sizes: Sequence[NDArray[np.int64]],
    large_chunks: bool,
) -> NDArray[np.uint8]:
    """The headers of all chunks, shape (chunks, a multiple of 8)."""
    size_type = np.dtype("<u4" if large_chunks else "<u2")
    columns = [num_levels.astype("<u2"), *(sizes.astype("<u2") for sizes in level_sizes)]
    columns += [sizes.astype(size_type) for sizes in value_sizes]
    parts = [column.view(np.uint8).reshape(len(num_levels), -1) for column in columns]
    width = sum(part.shape[1] for part in parts)
    parts.append(np.zeros((len(num_levels), -width % 8), np.uint8))
    return np.concatenate(parts, axis=1)

"""Writer of mini-block pages: values and levels, cut into chunks of a few kilobytes.

Source: docs/format/file-format.md, section 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.chunk_buffers import (
    ChunkBuffer,
    DictionaryBlock,
    EncodedPage,
    Segments,
    ValueChunks,
    round_up,
)
from pyspark_lance.codec.compressive.fixed_width import pack_level_blocks
from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.leaf_column import LeafColumn, LeafValues
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

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

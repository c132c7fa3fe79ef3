"""Levels of mini-block chunks: which entries go with which chunk, and their bytes.

Source: docs/format/file-format.md, section 6.2.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.chunk_segments import ChunkBuffer, Segments
from pyspark_lance.codec.compressive.pack_bits import pack_level_blocks
from pyspark_lance.codec.leaf_column import LeafColumn, LeafValues
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

_BLOCK = 1024


def entries_per_chunk(rows: LeafValues, value_ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """One past the last level entry of each chunk.

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
    """Each chunk's levels, filled up to whole blocks, packed together."""
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
    """For every chunk: rows that end in it, entries at its end of a row that goes on.

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

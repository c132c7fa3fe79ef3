"""InlineBitpacking and OutOfLineBitpacking: blocks of 1024 integers of reduced width.

Source: docs/format/file-format.md, sections 6.2 (levels), 6.4 and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import BLOCK_VALUES, WORD_TYPES, block_words, unpack_blocks
from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    LevelDecoder,
    flat_bits,
    require_level_bits,
)
from pyspark_lance.codec.decode_memory import allocate, as_words
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.levels import LEVEL_BITS, LevelArray, decode_packed_level_chunks
from pyspark_lance.codec.values import FixedWidthValues


def decode_inline_chunks(chunks: ChunkBuffers, word_bits: int) -> FixedWidthValues:
    """InlineBitpacking in mini-block chunks: each holds its width and one block."""
    require(word_bits in WORD_TYPES, f"bit packing of {word_bits}-bit values does not exist")
    chunks.require_buffers(1, "InlineBitpacking")
    counts, starts, sizes = chunks.num_values, chunks.starts[0], chunks.sizes[0]
    count = len(counts)
    total = chunks.total_values
    if count == 0:
        return FixedWidthValues(0, word_bits, allocate(0))
    size = word_bits // 8
    require(int(counts.max()) <= BLOCK_VALUES, f"a bit-packed chunk of {counts.max()} values")
    words = as_words(chunks.data, WORD_TYPES[word_bits])
    require(not (starts % size).any(), "a bit-packed chunk is not aligned")
    require(bool((sizes >= size).all()), "a bit-packed chunk is empty")
    first_words = starts // size
    widths = words[first_words].astype(np.int64)
    # The width itself is compared before it is multiplied: it may be any 64-bit number.
    sane = bool((widths >= 0).all() and (widths <= word_bits).all())
    require(sane, f"a bit-packed chunk of {word_bits}-bit values has an impossible width")
    require(bool(((widths * 128 + size) <= sizes).all()), "a bit-packed chunk is too small")
    # Every chunk is unpacked whole and cut afterwards.
    out = allocate(count * BLOCK_VALUES * size)
    blocks = out.view(WORD_TYPES[word_bits]).reshape(count, BLOCK_VALUES)
    _unpack_runs(words, first_words + 1, widths, blocks)
    if not (counts[:-1] == BLOCK_VALUES).all():
        out = gather(out, np.arange(count) * BLOCK_VALUES * size, counts * size)
    return FixedWidthValues(total, word_bits, out[: total * size])


def _unpack_runs(
    words: NDArray[np.unsignedinteger],
    starts: NDArray[np.int64],
    widths: NDArray[np.int64],
    out: NDArray[np.unsignedinteger],
) -> None:
    """Unpack block i, which begins at word ``starts[i]``, to ``out[i]``."""
    count = len(starts)
    breaks = np.flatnonzero(np.diff(widths) != 0) + 1
    if len(breaks) <= count // 16 + 2:
        for first, end in pairwise([0, *breaks.tolist(), count]):
            packed = _blocks_of_width(words, starts[first:end], int(widths[first]))
            unpack_blocks(packed, int(widths[first]), out[first:end])
        return
    # Widths change often: gather the blocks of each width and spread them out again.
    for width in np.unique(widths).tolist():
        chosen = np.flatnonzero(widths == width)
        packed = _blocks_of_width(words, starts[chosen], width)
        unpacked = np.empty((len(chosen), BLOCK_VALUES), words.dtype)
        unpack_blocks(packed, width, unpacked)
        out[chosen] = unpacked


def _blocks_of_width(
    words: NDArray[np.unsignedinteger], starts: NDArray[np.int64], width: int
) -> NDArray[np.unsignedinteger]:
    """The packed words of blocks of one width, shape (blocks, words per block)."""
    count, size = len(starts), words.itemsize
    length = block_words(size * 8, width)
    if count == 1:
        return words[int(starts[0]) : int(starts[0]) + length].reshape(1, length)
    strides = np.diff(starts)
    if (strides == strides[0]).all():
        first = words[int(starts[0]) :]
        return np.lib.stride_tricks.as_strided(
            first, (count, length), (int(strides[0]) * size, size)
        )
    pieces = gather(words.view(np.uint8), starts * size, np.full(count, length * size))
    return pieces.view(words.dtype).reshape(count, length)


def decode_inline_block(
    block: NDArray[np.uint8], word_bits: int, num_values: int
) -> FixedWidthValues:
    """InlineBitpacking outside of chunks: a width and one block of at most 1024 values."""
    require(num_values <= BLOCK_VALUES, f"one bit-packed block cannot hold {num_values} values")
    chunk = ChunkBuffers(
        block,
        np.array([num_values], np.int64),
        (np.zeros(1, np.int64),),
        (np.array([len(block)], np.int64),),
    )
    return decode_inline_chunks(chunk, word_bits)


def _decode_inline_levels(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> LevelArray:
    levels = decode_inline_chunks(ChunkBuffers(data, counts, (starts,), (sizes,)), LEVEL_BITS)
    return levels.buffer.view("<u2")


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    bits = int(message.uncompressed_bits_per_value)
    return lambda chunks: decode_inline_chunks(chunks, bits)


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    bits = int(message.uncompressed_bits_per_value)
    return lambda block, num_values: decode_inline_block(block, bits, num_values)


def _level_decoder(message: Any) -> LevelDecoder:
    require_level_bits(int(message.uncompressed_bits_per_value))
    return _decode_inline_levels


INLINE_BIT_PACKING = EncodingRecord(
    kind="inline_bitpacking",
    writer="compressive/fixed_width.py",
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
    level_decoder=_level_decoder,
)
"""The encoding of whole numbers that need few bits."""


def decode_out_of_line_block(
    block: NDArray[np.uint8], word_bits: int, packed_bits: int, num_values: int
) -> FixedWidthValues:
    """OutOfLineBitpacking: full blocks, then a tail that is raw or one more block.

    The tail is raw exactly if that explains the length.
    """
    require(word_bits in WORD_TYPES, f"bit packing of {word_bits}-bit values does not exist")
    require(packed_bits <= word_bits, f"{packed_bits} bits do not fit into {word_bits}")
    words = as_words(block, WORD_TYPES[word_bits])
    full, tail = divmod(num_values, BLOCK_VALUES)
    length = block_words(word_bits, packed_bits)
    raw = tail > 0 and len(words) == full * length + tail
    blocks = full + (tail > 0 and not raw)
    # Without this a width of zero would promise any number of values for no bytes.
    require(packed_bits > 0 or num_values <= 1 << 16, "bit packing with no bits per value")
    require(len(words) >= blocks * length + tail * raw, "a bit-packed block is too small")
    size = word_bits // 8
    out = allocate((blocks * BLOCK_VALUES + tail * raw) * size)
    values = out.view(WORD_TYPES[word_bits])
    unpack_blocks(
        words[: blocks * length].reshape(blocks, length),
        packed_bits,
        values[: blocks * BLOCK_VALUES].reshape(blocks, BLOCK_VALUES),
    )
    if raw:
        values[blocks * BLOCK_VALUES :] = words[full * length : full * length + tail]
    return FixedWidthValues(num_values, word_bits, out[: num_values * size])


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _out_of_line_block_decoder(
    message: Any, nested: Callable[[Encoding], BlockDecoder]
) -> BlockDecoder:
    bits = int(message.uncompressed_bits_per_value)
    packed = flat_bits(message.values, "packed values")
    return lambda block, num_values: decode_out_of_line_block(block, bits, packed, num_values)


def _out_of_line_level_decoder(message: Any) -> LevelDecoder:
    require_level_bits(int(message.uncompressed_bits_per_value))
    packed = flat_bits(message.values, "packed levels")
    return lambda data, starts, sizes, counts: decode_packed_level_chunks(
        data, starts, sizes, counts, packed
    )


OUT_OF_LINE_BIT_PACKING = EncodingRecord(
    kind="out_of_line_bitpacking",
    writer="structural/mini_block.py",
    parts=_parts,
    block_decoder=_out_of_line_block_decoder,
    level_decoder=_out_of_line_level_decoder,
)
"""The encoding of levels, and of blocks of whole numbers that need few bits."""

"""FastLanes bit packing: 1024 unsigned T-bit integers in 1024 W-bit ones.

A block is cut into ``1024 / T`` lanes of T rows. Each lane is a bit string of its own, stored in
T-bit words; word w of all lanes comes before word w + 1. Row r of all lanes holds neighbouring
elements, so every step below handles one row of many blocks at once.

Source: docs/format/file-format.md, sections 3.2, 6.2 (levels), 6.4 and 6.5.
"""

from __future__ import annotations

from functools import cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.decode_memory import allocate

BLOCK_VALUES = 1024
ROW_ORDER = (0, 4, 2, 6, 1, 5, 3, 7)
WORD_TYPES: Final[dict[int, np.dtype[np.unsignedinteger]]] = {
    8: np.dtype("u1"),
    16: np.dtype("<u2"),
    32: np.dtype("<u4"),
    64: np.dtype("<u8"),
}

# One row of all lanes of a block, whatever the words: numpy copies such elements as a whole.
_ROW = np.dtype("V128")
# Blocks per step, by bits of a word. With fewer, calls into numpy would cost more than their work;
# with more, the temporary arrays would leave the cache. Up to _SMALL_BLOCK_COUNT, see _unpack_few.
_SMALL_BLOCK_COUNT = 128
_STEP_BLOCKS = {8: 2048, 16: 1024, 32: 1024, 64: 512}


def block_words(word_bits: int, packed_bits: int) -> int:
    """Words of one packed block."""
    return BLOCK_VALUES * packed_bits // word_bits


def row_slot(word_bits: int, row: int) -> int:
    """Return the position of row ``row`` of all lanes in a block, counted in rows."""
    lanes = BLOCK_VALUES // word_bits
    return (row % 8) * (128 // lanes) + ROW_ORDER[row // 8] * 16 // lanes


def unpack_blocks(
    packed: NDArray[np.unsignedinteger], packed_bits: int, out: NDArray[np.unsignedinteger]
) -> None:
    """Unpack blocks of one width.

    ``packed``: shape (blocks, words per block), any stride between blocks; ``packed_bits``: bits
    per packed value, 0 to the bits of the words. ``out``: shape (blocks, 1024), same word type;
    filled. Rows must be contiguous.
    """
    blocks = len(packed)
    word_bits = packed.dtype.itemsize * 8
    lanes = BLOCK_VALUES // word_bits
    if packed_bits == 0:
        out[...] = 0
        return
    lane_words = np.lib.stride_tricks.as_strided(
        packed,
        (blocks, packed_bits, lanes),
        (packed.strides[0], lanes * packed.itemsize, packed.itemsize),
    )
    rows = out.reshape(blocks, word_bits, lanes)
    if blocks <= _SMALL_BLOCK_COUNT and packed_bits < word_bits:
        _unpack_few(lane_words, packed_bits, rows)
        return
    step = min(blocks, _STEP_BLOCKS[word_bits])
    # Pooled, like all larger memory: fresh pages would cost more than the work done in them.
    size = (packed_bits + word_bits + 1) * step * lanes * packed.itemsize
    scratch = allocate(size).view(packed.dtype)
    for first in range(0, blocks, step):
        part = slice(first, first + step)
        _unpack_step(lane_words[part], packed_bits, rows[part], scratch)


def _unpack_few(
    lane_words: NDArray[np.unsignedinteger], packed_bits: int, rows: NDArray[np.unsignedinteger]
) -> None:
    """Unpack all rows at once: more work per value, but few numpy calls instead of hundreds."""
    scalar = lane_words.dtype.type
    words, next_words, shifts, next_shifts = _row_shifts(lane_words.dtype.itemsize * 8, packed_bits)
    low = lane_words[:, words, :]
    np.right_shift(low, shifts, out=low)
    # Bits of a word the value does not reach into end above the mask; numpy shifts a value by its
    # whole width to zero.
    high = lane_words[:, next_words, :]
    np.left_shift(high, next_shifts, out=high)
    np.bitwise_or(low, high, out=low)
    np.bitwise_and(low, scalar((1 << packed_bits) - 1), out=rows)


@cache  # there are 124 combinations
def _row_shifts(word_bits: int, packed_bits: int) -> tuple[NDArray[np.generic], ...]:
    """Return the words of each row, in the order of elements, and the shifts to apply to them."""
    rows = np.empty(word_bits, np.int64)
    for row in range(word_bits):
        rows[row_slot(word_bits, row)] = row
    words, shifts = np.divmod(rows * packed_bits, word_bits)
    kind = WORD_TYPES[word_bits]
    return (
        words,
        np.minimum(words + 1, packed_bits - 1),
        shifts.astype(kind)[:, None],
        (word_bits - shifts).astype(kind)[:, None],
    )


def _unpack_step(
    lane_words: NDArray[np.unsignedinteger],
    packed_bits: int,
    rows: NDArray[np.unsignedinteger],
    scratch: NDArray[np.unsignedinteger],
) -> None:
    """Unpack one row of all blocks after the other.

    The words are first copied together, word 0 of all blocks, word 1 of all blocks and so on, and
    the rows of all blocks are computed together too, in the order of their elements. So arithmetic
    runs on long contiguous arrays; between them and the blocks whole rows are copied.
    """
    blocks, word_bits, lanes = rows.shape
    scalar = lane_words.dtype.type
    size = blocks * lanes
    words = scratch[: packed_bits * size].reshape(packed_bits, size)
    values = scratch[packed_bits * size :][: word_bits * size].reshape(word_bits, size)
    high = scratch[(packed_bits + word_bits) * size :][:size]
    np.copyto(words.view(_ROW), lane_words.view(_ROW)[..., 0].T)
    for row in range(word_bits):
        word, shift = divmod(row * packed_bits, word_bits)
        target = values[row_slot(word_bits, row)]
        np.right_shift(words[word], scalar(shift), out=target)
        if shift + packed_bits > word_bits:
            np.left_shift(words[word + 1], scalar(word_bits - shift), out=high)
            np.bitwise_or(target, high, out=target)
    np.bitwise_and(values, scalar((1 << packed_bits) - 1), out=values)
    np.copyto(rows.view(_ROW)[..., 0], values.view(_ROW).T)


def order_one_bit_blocks(packed: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """Put the bits of one-bit blocks in the order of their elements.

    By far the commonest level block. The low byte of lane l holds its rows 0 to 7, which are the
    elements ``128 * row + l``; the high byte rows 8 to 15, which are the elements
    ``64 + 128 * (row - 8) + l``. So eight neighbouring lanes are a matrix of 8 by 8 bits to be
    transposed.

    ``packed``: shape (blocks, 64). Returns bits, least significant first, shape (blocks, 128).
    """
    blocks = len(packed)
    lanes = np.ascontiguousarray(packed).view(np.uint8).reshape(blocks, 64, 2)
    halves = lanes.transpose(0, 2, 1).copy()
    matrices = halves.reshape(-1).view(np.uint64)
    for shift, mask in _TRANSPOSE_STEPS:
        swapped = matrices >> shift
        swapped ^= matrices
        swapped &= mask
        matrices ^= swapped
        swapped <<= shift
        matrices ^= swapped
    grid = halves.reshape(blocks, 2, 8, 8).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(grid).reshape(blocks, 128)


_TRANSPOSE_STEPS = (
    (np.uint64(7), np.uint64(0x00AA00AA00AA00AA)),
    (np.uint64(14), np.uint64(0x0000CCCC0000CCCC)),
    (np.uint64(28), np.uint64(0x00000000F0F0F0F0)),
)


def unpack_one_bit_blocks(packed: NDArray[np.uint16]) -> NDArray[np.uint8]:
    """The elements of one-bit blocks as zeros and ones.

    ``packed``: shape (blocks, 64). Returns shape (blocks, 1024).
    """
    bits = order_one_bit_blocks(packed)
    return np.unpackbits(bits.reshape(-1), bitorder="little").reshape(-1, BLOCK_VALUES)

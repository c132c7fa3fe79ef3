"""FastLanes bit packing, the writing half of ``bit_packing``.

The rows of a block are gathered first, so that each step works on one row of many blocks that lie
side by side: that is twice as fast as the steps of unpacking, turned round.

Source: docs/format/file-format.md, sections 3.2, 6.2 and 6.4.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import BLOCK_VALUES, ROW_ORDER

# Blocks per step, so that the scratch arrays stay in the cache while calls into numpy are few.
_STEP_BYTES = 1 << 21


def bit_widths(values: NDArray[np.unsignedinteger[Any]]) -> NDArray[np.int64]:
    """Bits that the largest value of each block of 1024 needs; the last block may be shorter."""
    full = len(values) // BLOCK_VALUES
    largest = np.zeros(-(-len(values) // BLOCK_VALUES), values.dtype)
    largest[:full] = values[: full * BLOCK_VALUES].reshape(full, BLOCK_VALUES).max(axis=1)
    if len(largest) > full:
        largest[full] = values[full * BLOCK_VALUES :].max()
    widths = np.frexp(largest.astype(np.float64))[1].astype(np.int64)
    # Large numbers may have been rounded up to the next power of two.
    rounded_up = (largest >> np.maximum(widths - 1, 0).astype(largest.dtype)) == 0
    return widths - (rounded_up & (widths > 0))


def pack_blocks(
    blocks: NDArray[np.unsignedinteger[Any]],
    packed_bits: int,
    out: NDArray[np.unsignedinteger[Any]],
) -> None:
    """Pack blocks to one width.

    ``blocks``: shape (blocks, 1024); no value needs more than ``packed_bits``. ``packed_bits``:
    bits per packed value, 1 to the bits of the words. ``out``: shape (blocks, words per block),
    same word type; filled. Rows must be contiguous.
    """
    count, word_type = len(blocks), blocks.dtype
    word_bits = word_type.itemsize * 8
    lanes = BLOCK_VALUES // word_bits
    source = blocks.reshape(count, 8, 128 // lanes, lanes)
    target = out.reshape(count, packed_bits, lanes)
    step = min(max(count, 1), max(1, _STEP_BYTES // (BLOCK_VALUES * word_type.itemsize)))
    rows = np.empty((8, 128 // lanes, step, lanes), word_type)
    packed = np.empty((packed_bits, step, lanes), word_type)
    shifted = np.empty((step, lanes), word_type)
    for first in range(0, count, step):
        used = min(step, count - first)
        rows[:, :, :used] = source[first : first + used].transpose(1, 2, 0, 3)
        _pack_step(rows[:, :, :used], packed[:, :used], shifted[:used])
        target[first : first + used] = packed[:, :used].transpose(1, 0, 2)


def _pack_step(
    rows: NDArray[np.unsignedinteger[Any]],
    packed: NDArray[np.unsignedinteger[Any]],
    shifted: NDArray[np.unsignedinteger[Any]],
) -> None:
    """One row of all blocks after the other; ``shifted`` is scratch."""
    scalar = rows.dtype.type
    word_bits, packed_bits = rows.dtype.itemsize * 8, len(packed)
    lanes = BLOCK_VALUES // word_bits
    for row in range(word_bits):
        word, shift = divmod(row * packed_bits, word_bits)
        values = rows[row % 8, ROW_ORDER[row // 8] * 16 // lanes]
        if shift == 0:
            packed[word] = values
            continue
        np.left_shift(values, scalar(shift), out=shifted)
        np.bitwise_or(packed[word], shifted, out=packed[word])
        if shift + packed_bits > word_bits:
            np.right_shift(values, scalar(word_bits - shift), out=packed[word + 1])


def pack_one_bit_blocks(blocks: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Zeros and ones as 16-bit values packed to one bit: by far the commonest level block.

    ``blocks``: shape (blocks, 1024). Returns the packed bytes, shape (blocks, 128); see
    ``bit_packing.unpack_one_bit_blocks``.
    """
    rows = blocks.reshape(-1, 8, 2, 64)
    halves = np.empty((len(rows), 2, 64), np.uint8)
    halves[...] = rows[:, 0]
    for row in range(1, 8):
        halves |= rows[:, row] << np.uint8(row)
    # The low byte of lane l is halves[0][l], the high byte halves[1][l].
    return np.ascontiguousarray(halves.transpose(0, 2, 1)).reshape(len(rows), 128)


def pack_level_blocks(blocks: NDArray[np.uint8], packed_bits: int) -> NDArray[np.uint8]:
    """Levels, widened to 16 bits and packed.

    ``blocks``: shape (blocks, 1024); ``packed_bits``: 1 to 8. Returns the packed bytes, shape
    (blocks, 128 * packed_bits).
    """
    if packed_bits == 1:
        return pack_one_bit_blocks(blocks)
    out = np.empty((len(blocks), 64 * packed_bits), np.uint16)
    pack_blocks(blocks.astype(np.uint16), packed_bits, out)
    return out.view(np.uint8)

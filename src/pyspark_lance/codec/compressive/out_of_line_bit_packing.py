"""OutOfLineBitpacking: blocks of 1024 integers, all of the width in the description.

Source: docs/format/file-format.md, sections 6.2 (levels) and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import BLOCK_VALUES, WORD_TYPES, block_words, unpack_blocks
from pyspark_lance.codec.checks import require
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    Encoding,
    EncodingRecord,
    LevelDecoder,
    flat_bits,
    require_level_bits,
)
from pyspark_lance.codec.levels import decode_packed_level_chunks
from pyspark_lance.codec.memory import allocate, as_words
from pyspark_lance.codec.values import FixedWidthValues


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


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    bits = int(message.uncompressed_bits_per_value)
    packed = flat_bits(message.values, "packed values")
    return lambda block, num_values: decode_out_of_line_block(block, bits, packed, num_values)


def _level_decoder(message: Any) -> LevelDecoder:
    require_level_bits(int(message.uncompressed_bits_per_value))
    packed = flat_bits(message.values, "packed levels")
    return lambda data, starts, sizes, counts: decode_packed_level_chunks(
        data, starts, sizes, counts, packed
    )


OUT_OF_LINE_BIT_PACKING = EncodingRecord(
    kind="out_of_line_bitpacking",
    writer="structural/level_writer.py",
    parts=_parts,
    block_decoder=_block_decoder,
    level_decoder=_level_decoder,
)
"""The encoding of levels, and of blocks of whole numbers that need few bits."""

"""Flat: values of equal width as they lie in Arrow's memory.

Source: docs/format/file-format.md, sections 6.4 (1) and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    LevelDecoder,
    plain_flat_bits,
    require_level_bits,
)
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.levels import LevelArray
from pyspark_lance.codec.values import FixedWidthValues


def require_width(bits_per_value: int) -> None:
    """Raise unless Arrow could have values of that width."""
    fine = bits_per_value == 1 or (bits_per_value % 8 == 0 and 0 < bits_per_value < 1 << 35)
    require(fine, f"values of {bits_per_value} bits do not exist")


def decode_flat_chunks(chunks: ChunkBuffers, bits_per_value: int) -> FixedWidthValues:
    """Flat in mini-block chunks: one buffer each."""
    require_width(bits_per_value)
    chunks.require_buffers(1, "Flat")
    joined = chunks.gather_bits(0, bits_per_value, f"{bits_per_value}-bit values")
    return FixedWidthValues(chunks.total_values, bits_per_value, joined)


def decode_flat_block(
    block: NDArray[np.uint8], bits_per_value: int, num_values: int
) -> FixedWidthValues:
    """Flat outside of chunks."""
    require_width(bits_per_value)
    size = (num_values * bits_per_value + 7) // 8
    require(len(block) >= size, f"{num_values} values need {size} bytes, found {len(block)}")
    return FixedWidthValues(num_values, bits_per_value, block[:size])


def _decode_flat_levels(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
) -> LevelArray:
    require(bool((sizes >= counts * 2).all()), "a chunk is too small for its levels")
    return gather(data, starts, counts * 2).view("<u2")


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    bits = plain_flat_bits(message)
    return lambda chunks: decode_flat_chunks(chunks, bits)


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    bits = plain_flat_bits(message)
    return lambda block, num_values: decode_flat_block(block, bits, num_values)


def _level_decoder(message: Any) -> LevelDecoder:
    require_level_bits(plain_flat_bits(message))
    return _decode_flat_levels


FLAT = EncodingRecord(
    kind="flat",
    writer="compressive/encode_fixed_width.py",
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
    level_decoder=_level_decoder,
)
"""The encoding of whatever no other makes smaller."""

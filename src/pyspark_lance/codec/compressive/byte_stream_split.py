"""ByteStreamSplit: all first bytes, all second bytes, and so on.

Source: docs/format/file-format.md, section 6.4 (4).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.encoding_record import (
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    flat_bits,
)
from pyspark_lance.codec.memory import allocate
from pyspark_lance.codec.values import FixedWidthValues


def decode_byte_stream_split_chunks(chunks: ChunkBuffers, value_bits: int) -> FixedWidthValues:
    """ByteStreamSplit in mini-block chunks: per chunk one plane for each byte of a value."""
    require(value_bits in (32, 64), f"byte stream split of {value_bits}-bit values")
    chunks.require_buffers(1, "ByteStreamSplit")
    planes = value_bits // 8
    split = chunks.gather_bits(0, value_bits, "byte planes")
    total = chunks.total_values
    values = allocate(total * planes)
    counts = chunks.num_values
    position = 0
    # Neighbouring chunks of one length are transposed together.
    breaks = (np.flatnonzero(np.diff(counts)) + 1).tolist()
    for first, end in pairwise([0, *breaks, len(counts)]):
        if first == end:
            continue
        count = int(counts[first])
        size = (end - first) * count * planes
        grid = split[position : position + size].reshape(end - first, planes, count)
        target = values[position : position + size].reshape(end - first, count, planes)
        target[...] = grid.transpose(0, 2, 1)
        position += size
    return FixedWidthValues(total, value_bits, values)


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    bits = flat_bits(message.values, "byte planes")
    return lambda chunks: decode_byte_stream_split_chunks(chunks, bits)


BYTE_STREAM_SPLIT = EncodingRecord(
    kind="byte_stream_split",
    writer="compressive/encode_fixed_width.py",
    parts=_parts,
    chunk_decoder=_chunk_decoder,
)
"""The encoding of floating-point numbers before general compression."""

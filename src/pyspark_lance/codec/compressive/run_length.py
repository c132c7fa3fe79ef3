"""RLE: run values and run lengths.

Source: docs/format/file-format.md, sections 6.4 (3), 6.2 (levels) and 6.5.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import WORD_TYPES
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
from pyspark_lance.codec.decode_memory import as_bytes
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.values import FixedWidthValues

LENGTH_BITS = 8


def decode_run_length_chunks(
    chunks: ChunkBuffers, value_bits: int, length_bits: int
) -> FixedWidthValues:
    """RLE in mini-block chunks: a buffer of run values, a buffer of run lengths."""
    data_type = _word_type(value_bits, length_bits)
    chunks.require_buffers(2, "RLE")
    counts = chunks.num_values
    runs = chunks.sizes[1]
    size = data_type.itemsize
    enough = bool((chunks.sizes[0] >= runs * size).all())
    require(enough, "a chunk has fewer run values than run lengths")
    values = gather(chunks.data, chunks.starts[0], runs * size).view(data_type)
    lengths = gather(chunks.data, chunks.starts[1], runs)
    lengths = _fit_to_chunks(lengths, runs, counts)
    return FixedWidthValues(chunks.total_values, value_bits, as_bytes(np.repeat(values, lengths)))


def _fit_to_chunks(
    lengths: NDArray[np.uint8], runs: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Run lengths that sum up to ``counts`` in each chunk.

    Some older writers let the last runs of a chunk reach over its end; the excess is cut.
    """
    ends = np.cumsum(lengths, dtype=np.int64)
    last = np.cumsum(runs)
    before = np.concatenate(([0], ends))
    sums = before[last] - before[last - runs]
    if (sums == counts).all():
        return lengths
    require(bool((sums >= counts).all()), "the runs of a chunk are fewer values than it holds")
    chunk_of_run = np.repeat(np.arange(len(runs)), runs)
    start_in_chunk = ends - lengths - before[last - runs][chunk_of_run]
    room = np.maximum(counts[chunk_of_run] - start_in_chunk, 0)
    return np.minimum(lengths, room).astype(np.uint8)


def decode_run_length_block(
    block: NDArray[np.uint8], value_bits: int, length_bits: int, num_values: int
) -> FixedWidthValues:
    """RLE outside of chunks: size of the run values, the values, the lengths."""
    return decode_run_length_blocks(
        block,
        np.zeros(1, np.int64),
        np.array([len(block)], np.int64),
        np.array([num_values], np.int64),
        value_bits=value_bits,
        length_bits=length_bits,
    )


def decode_run_length_blocks(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    sizes: NDArray[np.int64],
    counts: NDArray[np.int64],
    *,
    value_bits: int,
    length_bits: int,
) -> FixedWidthValues:
    """Decode consecutive blocks: block i is ``sizes[i]`` bytes at ``starts[i]``."""
    data_type = _word_type(value_bits, length_bits)
    require(bool((sizes >= 8).all()), "a run-length block has no header")
    headers = gather(data, starts, np.full(len(starts), 8)).view("<i8")
    inside = bool(((headers >= 0) & (headers <= sizes - 8)).all())
    require(inside, "a run-length block points outside of itself")
    runs = sizes - 8 - headers
    agree = bool((headers == runs * data_type.itemsize).all())
    require(agree, "a run-length block has more run values than run lengths, or fewer")
    values = gather(data, starts + 8, headers).view(data_type)
    lengths = _fit_to_chunks(gather(data, starts + 8 + headers, runs), runs, counts)
    repeated = np.repeat(values, lengths)
    return FixedWidthValues(len(repeated), value_bits, as_bytes(repeated))


def _word_type(value_bits: int, length_bits: int) -> np.dtype[np.unsignedinteger]:
    """The type of run values."""
    require(length_bits == LENGTH_BITS, f"run lengths of {length_bits} bits are not allowed")
    require(value_bits in WORD_TYPES, f"run values of {value_bits} bits are not allowed")
    return WORD_TYPES[value_bits]


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    bits, length_bits = _widths(message)
    return lambda chunks: decode_run_length_chunks(chunks, bits, length_bits)


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    bits, length_bits = _widths(message)
    return lambda block, num_values: decode_run_length_block(block, bits, length_bits, num_values)


def _level_decoder(message: Any) -> LevelDecoder:
    bits, length_bits = _widths(message)
    require_level_bits(bits)
    return lambda data, starts, sizes, counts: decode_run_length_blocks(
        data, starts, sizes, counts, value_bits=bits, length_bits=length_bits
    ).buffer.view("<u2")


def _widths(message: Any) -> tuple[int, int]:
    return flat_bits(message.values, "run values"), flat_bits(message.run_lengths, "run lengths")


RUN_LENGTH = EncodingRecord(
    kind="rle",
    writer="compressive/fixed_width.py",
    parts=_parts,
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
    level_decoder=_level_decoder,
)
"""The encoding of values that come many times one after another."""

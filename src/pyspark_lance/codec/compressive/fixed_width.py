"""Values of equal width: flat, byte-split, bit-packed or as runs; decoders and encoders.

Bit packing is the inverse of ``bit_packing``. The rows of a block are gathered first, so that each
step works on one row of many adjacent blocks; this is twice as fast as inverting the steps of
unpacking.

Source: docs/format/file-format.md, sections 3.2, 6.2, 6.4 (1, 4), 6.5 and 12.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import BLOCK_VALUES, ROW_ORDER
from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import (
    ChunkBuffer,
    ChunkBuffers,
    Segments,
    ValueChunks,
    fixed_size_segments,
)
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    LevelDecoder,
    flat_bits,
    plain_flat_bits,
    require_level_bits,
)
from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.levels import LevelArray
from pyspark_lance.codec.values import FixedWidthValues
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


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
    writer="compressive/fixed_width.py",
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
    level_decoder=_level_decoder,
)
"""The encoding of whatever no other makes smaller."""


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
    """Pack one row of all blocks after the other; ``shifted`` is scratch."""
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


CHUNK_BYTES = 8192
MAX_LOG2_VALUES = 12
_LOG2_RUN_VALUES = 11
_MAX_RUN = 255


def flat(bits: int) -> pb.CompressiveEncoding:
    """The description of plain values."""
    return pb.CompressiveEncoding(flat=pb.Flat(bits_per_value=bits))


def chunk_log2(bytes_per_value: float) -> int:
    """The largest power of two of values that stays within ``CHUNK_BYTES``, at least 1."""
    return max(
        1, min(MAX_LOG2_VALUES, int(CHUNK_BYTES / max(bytes_per_value, 0.125)).bit_length() - 1)
    )


def flat_chunks(values: NDArray[Any], bits: int) -> ValueChunks:
    """Plain values of whole bytes, shape (n,) or (n, bytes)."""
    log2_values = chunk_log2(bits // 8)
    buffer = ChunkBuffer(
        (fixed_size_segments(np.ascontiguousarray(values), bits // 8 << log2_values),)
    )
    return ValueChunks(flat(bits), log2_values, len(values), (buffer,))


def byte_stream_split_chunks(values: NDArray[np.unsignedinteger[Any]]) -> ValueChunks:
    """ByteStreamSplit: in every chunk all first bytes, all second bytes, and so on."""
    size = values.itemsize
    log2_values = chunk_log2(size)
    full = len(values) >> log2_values << log2_values
    planes = allocate(values.nbytes)
    grid = values.view(np.uint8).reshape(-1, size)
    chunks = (full >> log2_values, size, 1 << log2_values)
    planes[: full * size].reshape(chunks)[...] = (
        grid[:full].reshape(chunks[0], chunks[2], size).transpose(0, 2, 1)
    )
    planes[full * size :].reshape(size, -1)[...] = grid[full:].T
    encoding = pb.CompressiveEncoding(byte_stream_split=pb.ByteStreamSplit(values=flat(size * 8)))
    buffer = ChunkBuffer((fixed_size_segments(planes, size << log2_values),))
    return ValueChunks(encoding, log2_values, len(values), (buffer,))


def boolean_chunks(bits: NDArray[np.uint8], num_values: int) -> ValueChunks:
    """Booleans, as bits."""
    buffer = ChunkBuffer((fixed_size_segments(bits, (1 << MAX_LOG2_VALUES) // 8),))
    return ValueChunks(flat(1), MAX_LOG2_VALUES, num_values, (buffer,))


def bit_packed_chunks(
    values: NDArray[np.unsignedinteger[Any]], widths: NDArray[np.int64]
) -> ValueChunks:
    """InlineBitpacking: every chunk is its width and one packed block.

    ``values``: at least one; ``widths``: bits each block of 1024 needs, from ``bit_widths``.
    """
    word_bytes, num_full = values.itemsize, len(values) // BLOCK_VALUES
    sizes = word_bytes + 128 * widths
    starts = np.cumsum(sizes) - sizes
    out = allocate(int(sizes.sum())).view(values.dtype)
    firsts = starts // word_bytes
    out[firsts] = widths
    full = values[: num_full * BLOCK_VALUES].reshape(num_full, BLOCK_VALUES)
    _pack_by_width(full, widths[:num_full], firsts[:num_full] + 1, out)
    if num_full < len(widths):
        last = np.zeros((1, BLOCK_VALUES), values.dtype)
        last[0, : len(values) - num_full * BLOCK_VALUES] = values[num_full * BLOCK_VALUES :]
        _pack_by_width(last, widths[num_full:], firsts[num_full:] + 1, out)
    bits = pb.InlineBitpacking(uncompressed_bits_per_value=word_bytes * 8)
    buffer = ChunkBuffer((Segments(out.view(np.uint8), starts, sizes),))
    return ValueChunks(pb.CompressiveEncoding(inline_bitpacking=bits), 10, len(values), (buffer,))


def _pack_by_width(
    blocks: NDArray[np.unsignedinteger[Any]],
    widths: NDArray[np.int64],
    firsts: NDArray[np.int64],
    out: NDArray[np.unsignedinteger[Any]],
) -> None:
    """Pack block i to ``widths[i]`` bits and put it to ``out[firsts[i]:]``."""
    for width in np.flatnonzero(np.bincount(widths)).tolist():
        if width == 0:
            continue
        words = 128 * width // out.itemsize
        chosen = np.flatnonzero(widths == width)
        if len(chosen) == len(widths):
            rows = out[int(firsts[0]) - 1 : int(firsts[-1]) + words].reshape(-1, 1 + words)
            pack_blocks(blocks, width, rows[:, 1:])
            return
        packed = np.empty((len(chosen), words), out.dtype)
        pack_blocks(blocks[chosen], width, packed)
        out[firsts[chosen][:, None] + np.arange(words)] = packed


def count_runs(values: NDArray[np.unsignedinteger[Any]]) -> int:
    """Count runs of equal neighboring values."""
    return int(np.count_nonzero(values[1:] != values[:-1])) + 1


def run_length_chunks(values: NDArray[np.unsignedinteger[Any]]) -> ValueChunks:
    """RLE: the value and the length (up to 255) of every run; runs end with their chunk."""
    count, chunk_values = len(values), 1 << _LOG2_RUN_VALUES
    starts_run = np.empty(count, np.bool_)
    np.not_equal(values[1:], values[:-1], out=starts_run[1:])
    starts_run[::chunk_values] = True
    starts = np.flatnonzero(starts_run)
    lengths = np.diff(starts, append=count)
    pieces = -(-lengths // _MAX_RUN)
    run_values = np.repeat(values[starts], pieces)
    run_lengths = np.full(len(run_values), _MAX_RUN, np.uint8)
    run_lengths[np.cumsum(pieces) - 1] = lengths - (pieces - 1) * _MAX_RUN
    # Runs before each chunk: those of the starts before it, with their pieces.
    chunk_starts = np.arange(0, count, chunk_values)
    first_runs = np.append(np.searchsorted(starts, chunk_starts), len(starts))
    before = np.concatenate(([0], np.cumsum(pieces)))[first_runs]
    size, runs = values.itemsize, np.diff(before)
    encoding = pb.CompressiveEncoding(rle=pb.Rle(values=flat(size * 8), run_lengths=flat(8)))
    buffers = (
        ChunkBuffer((Segments(run_values.view(np.uint8), before[:-1] * size, runs * size),)),
        ChunkBuffer((Segments(run_lengths, before[:-1], runs),)),
    )
    return ValueChunks(encoding, _LOG2_RUN_VALUES, count, buffers)


def run_length_bytes(num_runs: int, num_values: int, bytes_per_value: int) -> int:
    """Estimate the size of ``run_length_chunks``."""
    pieces = num_runs + num_values // _MAX_RUN + (num_values >> _LOG2_RUN_VALUES)
    return pieces * (bytes_per_value + 1)


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


def _byte_stream_split_decoder(
    message: Any, nested: Callable[[Encoding], ChunkDecoder]
) -> ChunkDecoder:
    bits = flat_bits(message.values, "byte planes")
    return lambda chunks: decode_byte_stream_split_chunks(chunks, bits)


BYTE_STREAM_SPLIT = EncodingRecord(
    kind="byte_stream_split",
    writer="compressive/fixed_width.py",
    parts=_parts,
    chunk_decoder=_byte_stream_split_decoder,
)
"""The encoding of floating-point numbers before general compression."""

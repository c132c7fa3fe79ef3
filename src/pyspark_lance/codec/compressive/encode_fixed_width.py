"""Writing values of equal width into mini-block chunks: plain, bit-packed or as runs.

Source: docs/format/file-format.md, sections 6.4 and 12.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import BLOCK_VALUES
from pyspark_lance.codec.chunk_segments import ChunkBuffer, Segments, fixed_size_segments
from pyspark_lance.codec.compressive.pack_bits import pack_blocks
from pyspark_lance.codec.memory import allocate
from pyspark_lance.codec.value_chunks import ValueChunks
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

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
    """Pack block i to ``widths[i]`` bits and puts it to ``out[firsts[i]:]``."""
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
    """Runs of equal neighbours."""
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
    """About how large ``run_length_chunks`` would be."""
    pieces = num_runs + num_values // _MAX_RUN + (num_values >> _LOG2_RUN_VALUES)
    return pieces * (bytes_per_value + 1)

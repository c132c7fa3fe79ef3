"""Variable: offsets and the bytes they point into, of strings and binaries.

Source: docs/format/file-format.md, sections 6.4 (6) and 6.5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.chunk_buffers import ChunkBuffer, ChunkBuffers, Segments, ValueChunks
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    ValueDecoder,
    encoding_kind,
    flat_bits,
)
from pyspark_lance.codec.compressive.fixed_width import (
    CHUNK_BYTES,
    MAX_LOG2_VALUES,
    chunk_log2,
    flat,
)
from pyspark_lance.codec.decode_memory import allocate, as_words
from pyspark_lance.codec.gather import gather
from pyspark_lance.codec.values import VariableWidthValues
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

OFFSET_TYPES: Final[dict[int, np.dtype[np.signedinteger]]] = {
    32: np.dtype("<i4"),
    64: np.dtype("<i8"),
}
_MAX_INT32 = 2**31 - 1


def offset_type(offset_bits: int) -> np.dtype[np.signedinteger]:
    """The type of offsets of that width."""
    require(offset_bits in OFFSET_TYPES, f"offsets of {offset_bits} bits do not exist")
    return OFFSET_TYPES[offset_bits]


def require_ascending(offsets: NDArray[np.signedinteger], end: int) -> None:
    """Raise unless the offsets ascend from at least 0 to at most ``end``."""
    if len(offsets) == 0:
        return
    fine = offsets[0] >= 0 and offsets[-1] <= end and bool((offsets[1:] >= offsets[:-1]).all())
    require(fine, "string offsets are not ascending or point outside of their buffer")


def decode_variable_chunks(chunks: ChunkBuffers, offset_bits: int) -> VariableWidthValues:
    """Variable in mini-block chunks: offsets relative to the buffer, then the bytes.

    Returns offsets of the type of ``offset_bits``, wider if there are too many bytes for them.
    """
    kind = offset_type(offset_bits)
    chunks.require_buffers(1, "Variable")
    counts, starts, sizes = chunks.num_values, chunks.starts[0], chunks.sizes[0]
    header = (counts + 1) * kind.itemsize
    require(bool((sizes >= header).all()), "a chunk of strings is too small for its offsets")
    relative = gather(chunks.data, starts, header).view(kind)
    last = np.cumsum(counts + 1) - 1
    first = last - counts
    low, high = relative[first].astype(np.int64), relative[last].astype(np.int64)
    in_buffer = bool(((low >= 0) & (low <= high) & (high <= sizes)).all())
    require(in_buffer, "a chunk of strings has offsets that point outside of it")
    lengths = high - low
    data = gather(chunks.data, starts + low, lengths)
    ends = np.cumsum(lengths)
    total_bytes = int(ends[-1]) if len(ends) else 0
    kind = kind if total_bytes <= _MAX_INT32 else OFFSET_TYPES[64]
    offsets = _join_offsets(relative, counts, ends - lengths - low, kind)
    require_ascending(offsets, total_bytes)
    return VariableWidthValues(chunks.total_values, offsets, pa.py_buffer(data))


def _join_offsets(
    relative: NDArray[np.signedinteger],
    counts: NDArray[np.int64],
    shifts: NDArray[np.int64],
    kind: np.dtype[np.signedinteger],
) -> NDArray[np.signedinteger]:
    """Drop the first offset of each chunk and add the chunk's shift to the others."""
    total = int(counts.sum())
    offsets = allocate((total + 1) * kind.itemsize).view(kind)
    offsets[0] = 0
    # All chunks but the last usually hold the same number of values: a grid.
    same = len(counts) - 1 if len(counts) > 1 and (counts[:-1] == counts[0]).all() else 0
    if same:
        width = int(counts[0])
        grid = relative[: same * (width + 1)].reshape(same, width + 1)[:, 1:]
        target = offsets[1 : 1 + same * width].reshape(same, width)
        np.add(grid, shifts[:same, None].astype(kind), out=target, casting="unsafe")
        rest = relative[same * (width + 1) + 1 :]
        np.add(rest, shifts[-1].astype(kind), out=offsets[1 + same * width :], casting="unsafe")
        return offsets
    keep = np.ones(len(relative), bool)
    keep[np.cumsum(counts + 1) - (counts + 1)] = False
    offsets[1:] = relative[keep] + np.repeat(shifts, counts)
    return offsets


def decode_variable_block(block: NDArray[np.uint8], num_values: int) -> VariableWidthValues:
    """Variable outside of chunks: offset width, position of the bytes, offsets, bytes."""
    require(len(block) >= 8, "a block of strings has no header")
    offset_bits = int(block[:4].view("<u4")[0])
    if offset_bits not in OFFSET_TYPES:
        reject_unsupported(f"string blocks with offsets of {offset_bits} bits (a pre-release form)")
    kind = OFFSET_TYPES[offset_bits]
    header = 2 * kind.itemsize
    end = header + (num_values + 1) * kind.itemsize
    require(len(block) >= end, f"a block of {num_values} strings is too small for its offsets")
    position = int(as_words(block[:header], kind)[1])
    require(end <= position <= len(block), "a block of strings points outside of itself")
    offsets = block[header:end].view(kind)
    data = block[position:]
    require_ascending(offsets, len(data))
    return VariableWidthValues(num_values, offsets, pa.py_buffer(data))


def variable_bits(encoding: Encoding) -> int:
    """The offset width of an encoding that must be Variable."""
    kind = encoding_kind(encoding)
    require(kind == "variable", f"strings are {kind or 'not described'}, not variable")
    return _offset_bits(encoding.variable)


def _offset_bits(message: Any) -> int:
    if message.values.scheme:
        reject_unsupported("string buffers with compression of their own")
    return flat_bits(message.offsets, "string offsets")


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    bits = _offset_bits(message)
    return lambda chunks: decode_variable_chunks(chunks, bits)


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    return decode_variable_block


def _value_decoder(message: Any, nested: Callable[[Encoding], ValueDecoder]) -> ValueDecoder:
    _offset_bits(message)
    return lambda stored, valid: stored


VARIABLE = EncodingRecord(
    kind="variable",
    writer="compressive/variable_width.py",
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
    value_decoder=_value_decoder,
)
"""The encoding of strings and of bytes."""


Offsets = NDArray[np.signedinteger[Any]]

MAX_SMALL_CHUNK_BYTES = 24 << 10
"""Chunks of files of version 2.1 hold no more, so that there is room for levels."""


def variable(offset_bits: int) -> pb.CompressiveEncoding:
    """The description of values behind their offsets."""
    return pb.CompressiveEncoding(variable=pb.Variable(offsets=flat(offset_bits)))


def variable_chunks(
    offsets: Offsets,
    content: NDArray[np.uint8],
    encoding: pb.CompressiveEncoding,
    chunk_bytes: int | None = None,
) -> ValueChunks:
    """Chunks of offsets, counted from the start of their buffer, and bytes.

    ``offsets``: one more than values; ``content``: the bytes they count into; ``encoding``: what
    the bytes are; ``chunk_bytes``: about how large chunks are, None for the default.
    """
    count, width = len(offsets) - 1, offsets.itemsize
    log2_values = _log2_values(offsets, chunk_bytes or CHUNK_BYTES)
    firsts = np.arange(0, count, 1 << log2_values)
    lasts = np.minimum(firsts + (1 << log2_values), count)
    bases = offsets[firsts].astype(np.int64)
    relative = _relative_offsets(offsets, firsts, lasts, bases)
    offset_sizes = (lasts - firsts + 1) * width
    offset_segments = Segments(
        relative.view(np.uint8), np.cumsum(offset_sizes) - offset_sizes, offset_sizes
    )
    byte_segments = Segments(content, bases, offsets[lasts].astype(np.int64) - bases)
    buffer = ChunkBuffer((offset_segments, byte_segments), alignment=width)
    return ValueChunks(encoding, log2_values, count, (buffer,))


def _log2_values(offsets: Offsets, chunk_bytes: int) -> int:
    """Choose values per chunk by the average size, fewer if some chunk becomes far too large."""
    count, width = len(offsets) - 1, offsets.itemsize
    mean = (int(offsets[-1]) - int(offsets[0])) / count + width
    log2_values = chunk_log2(mean * CHUNK_BYTES / chunk_bytes)
    limit = 2 * chunk_bytes if chunk_bytes > MAX_SMALL_CHUNK_BYTES else MAX_SMALL_CHUNK_BYTES
    while log2_values > 1:
        chunk_starts = np.append(np.arange(0, count, 1 << log2_values), count)
        if int(np.diff(offsets[chunk_starts]).max()) + (width << log2_values) <= min(
            2 * chunk_bytes, limit
        ):
            break
        log2_values -= 1
    assert log2_values <= MAX_LOG2_VALUES
    return log2_values


def _relative_offsets(
    offsets: Offsets, firsts: NDArray[np.int64], lasts: NDArray[np.int64], bases: NDArray[np.int64]
) -> Offsets:
    """The offsets of all chunks, one list per chunk, the last one shorter."""
    size, width = int(lasts[0] - firsts[0]), offsets.itemsize
    full = len(firsts) - 1
    last = offsets[firsts[-1] : lasts[-1] + 1]
    out = np.empty(full * (size + 1) + len(last), offsets.dtype)
    if full:
        rows = np.lib.stride_tricks.as_strided(offsets, (full, size + 1), (size * width, width))
        shift = ((size + 1) * width - bases[:-1]).astype(offsets.dtype)
        np.add(rows, shift[:, None], out=out[: full * (size + 1)].reshape(full, size + 1))
    out[full * (size + 1) :] = last - last[0] + len(last) * width
    return out


def variable_block(offsets: Offsets, content: NDArray[np.uint8]) -> bytes:
    """Encode all values as one block: width, position of the bytes, offsets, bytes."""
    width = offsets.itemsize
    own = offsets - offsets[0]
    start = 2 * width + own.nbytes
    header = struct.pack("<QQ" if width == 8 else "<II", width * 8, start)
    return header + own.tobytes() + content[offsets[0] : offsets[-1]].tobytes()

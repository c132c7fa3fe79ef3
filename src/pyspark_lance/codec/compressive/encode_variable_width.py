"""Writing strings and binaries: into mini-block chunks, and as a dictionary block.

Source: docs/format/file-format.md, sections 6.4 and 6.5.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.chunk_segments import ChunkBuffer, Segments
from pyspark_lance.codec.compressive.encode_fixed_width import (
    CHUNK_BYTES,
    MAX_LOG2_VALUES,
    chunk_log2,
    flat,
)
from pyspark_lance.codec.value_chunks import ValueChunks
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

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
    """As many values per chunk as fit on average, fewer if some chunk becomes far too large."""
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
    """All values as one block: width, position of the bytes, offsets, bytes."""
    width = offsets.itemsize
    own = offsets - offsets[0]
    start = 2 * width + own.nbytes
    header = struct.pack("<QQ" if width == 8 else "<II", width * 8, start)
    return header + own.tobytes() + content[offsets[0] : offsets[-1]].tobytes()

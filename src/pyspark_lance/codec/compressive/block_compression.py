"""General compression of whole buffers by zstd or lz4.

Source: file-format.md section 3.1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require, unsupported
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.errors import CorruptFileError

NONE, LZ4, ZSTD = 0, 1, 2
SCHEME_NAMES = {NONE: "none", LZ4: "lz4", ZSTD: "zstd"}
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
# What the formats can reach at best: a zstd block of 128 KiB takes at least 4 bytes; a byte of
# lz4 stands for at most 255. More is a damaged length.
_ZSTD_BLOCK = 1 << 17
_LZ4_RATIO = 255
MAX_BUFFER_BYTES = (1 << 31) - 1
_PADDING = np.zeros(8, np.uint8)


def decompress(scheme: int, compressed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """The plain bytes of a buffer.

    Args:
        scheme: ``BufferCompression.scheme`` of the page's description.
        compressed: zstd: a u64 length and a frame, or a bare frame as old writers made them;
            lz4: a u32 length and a raw block.

    Raises:
        CorruptFileError: The bytes are no such buffer.
        UnsupportedFeatureError: The scheme is unknown.
    """
    if scheme == NONE:
        return compressed
    if scheme == LZ4:
        return _decompress_lz4(compressed)
    if scheme == ZSTD:
        return _decompress_zstd(compressed)
    return unsupported(f"compression scheme {scheme}")


def _decompress_lz4(compressed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    require(len(compressed) >= 4, "an lz4 buffer has no length")
    length = int(compressed[:4].view("<u4")[0])
    block = compressed[4:]
    require(length <= _LZ4_RATIO * (len(block) + 1), f"an lz4 buffer cannot hold {length} bytes")
    return _run_codec("lz4_raw", block, length)


def _decompress_zstd(compressed: NDArray[np.uint8]) -> NDArray[np.uint8]:
    if compressed[:4].tobytes() == _ZSTD_MAGIC:
        return _decompress_bare_frame(compressed)
    require(len(compressed) >= 8, "a zstd buffer has no length")
    length = int(compressed[:8].view("<u8")[0])
    frame = compressed[8:]
    bound = _ZSTD_BLOCK * (len(frame) // 4 + 1)
    require(length <= min(bound, MAX_BUFFER_BYTES), f"a zstd buffer cannot hold {length} bytes")
    return _run_codec("zstd", frame, length)


def _run_codec(name: str, block: NDArray[np.uint8], length: int) -> NDArray[np.uint8]:
    if length == 0:
        return block[:0]
    try:
        plain = pa.Codec(name).decompress(pa.py_buffer(np.ascontiguousarray(block)), length)
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(f"a {name} buffer cannot be decompressed: {error}") from error
    return np.frombuffer(plain, np.uint8)


def _decompress_bare_frame(frame: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """A frame without a length before it; it need not announce one itself."""
    source = pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(frame)), "zstd")
    bound = min(_ZSTD_BLOCK * (len(frame) // 4 + 1), MAX_BUFFER_BYTES)
    try:
        plain = source.read(bound + 1) if bound < 1 << 20 else source.read()
    except (OSError, pa.ArrowException) as error:
        raise CorruptFileError(f"a zstd frame cannot be decompressed: {error}") from error
    require(len(plain) <= bound, "a zstd frame is longer than it can be")
    return np.frombuffer(plain, np.uint8)


def decompress_first_buffers(chunks: ChunkBuffers, scheme: int) -> ChunkBuffers:
    """General in mini-block chunks: the first buffer of every chunk is compressed by itself.

    Raises:
        CorruptFileError: A buffer cannot be decompressed.
    """
    require(len(chunks.starts) > 0, "General needs a buffer per chunk")
    pieces: list[NDArray[np.uint8]] = []
    places: list[int] = []
    lengths: list[int] = []
    position = 0
    borders = zip(chunks.starts[0].tolist(), chunks.sizes[0].tolist(), strict=True)
    for start, size in borders:
        plain = decompress(scheme, chunks.data[start : start + size])
        padding = -len(plain) % 8
        places.append(position)
        lengths.append(len(plain))
        pieces += [plain, _PADDING[:padding]]
        position += len(plain) + padding
        require(position <= MAX_BUFFER_BYTES, "compressed chunks hold more than 2 GiB")
    plain_bytes = np.concatenate(pieces) if pieces else _PADDING[:0]
    return chunks.with_first_buffers(
        plain_bytes, np.array(places, np.int64), np.array(lengths, np.int64)
    )

"""General compression of mini-block chunks, written when the column's metadata ask for it.

Source: docs/format/file-format.md, sections 3.1 and 6.4.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.chunk_segments import ChunkBuffer, Segments
from pyspark_lance.codec.value_chunks import ValueChunks
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

Bytes: TypeAlias = memoryview | NDArray[np.uint8]
SCHEMES: Final = {"lz4": 1, "zstd": 2}


def general(
    scheme: str, level: int | None, values: pb.CompressiveEncoding
) -> pb.CompressiveEncoding:
    """The description of values that are compressed."""
    compression = pb.BufferCompression(scheme=SCHEMES[scheme], level=level)
    return pb.CompressiveEncoding(general=pb.General(compression=compression, values=values))


def block_compressor(scheme: str, level: int | None) -> Callable[[Bytes], bytes]:
    """A function that compresses a buffer; the plain length stands in front."""
    codec = pa.Codec("zstd", level) if scheme == "zstd" else pa.Codec("lz4_raw")
    prefix = struct.Struct("<Q" if scheme == "zstd" else "<I")

    def compress(plain: Bytes) -> bytes:
        return prefix.pack(len(plain)) + codec.compress(plain, asbytes=True)

    return compress


def compressed_chunks(values: ValueChunks, scheme: str, level: int | None) -> ValueChunks:
    """The chunks with their first buffers compressed; the same chunks if that saves nothing.

    ``scheme``: ``lz4`` or ``zstd``; ``level``: compression level, None for the default.
    """
    first, *others = values.buffers
    sizes = first.sizes()
    starts = np.cumsum(sizes) - sizes
    plain = np.zeros(int(sizes.sum()), np.uint8)
    first.copy_to(plain, starts)
    compress = block_compressor(scheme, level)
    view = plain.data
    pieces = [
        compress(view[start : start + size])
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]
    packed = b"".join(pieces)
    if len(packed) >= len(plain):
        return values
    new_sizes = np.array([len(piece) for piece in pieces], np.int64)
    segments = Segments(
        np.frombuffer(packed, np.uint8), np.cumsum(new_sizes) - new_sizes, new_sizes
    )
    encoding = general(scheme, level, values.encoding)
    buffers = (ChunkBuffer((segments,)), *others)
    return ValueChunks(encoding, values.log2_values, values.num_values, buffers)

"""General compression of mini-block chunks, written when the column's metadata ask for it.

Source: file-format.md sections 3.1 and 6.4.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.chunk_segments import ChunkBuffer, Segments
from pyspark_lance.codec.value_chunks import ValueChunks
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

SCHEMES: Final = {"lz4": 1, "zstd": 2}


def compressed_chunks(values: ValueChunks, scheme: str, level: int | None) -> ValueChunks:
    """The chunks with their first buffers compressed; the same chunks if that saves nothing.

    Args:
        values: The chunks.
        scheme: ``lz4`` or ``zstd``.
        level: Compression level, None for the default.
    """
    first, *others = values.buffers
    sizes = first.sizes()
    starts = np.cumsum(sizes) - sizes
    plain = np.zeros(int(sizes.sum()), np.uint8)
    first.copy_to(plain, starts)
    codec = pa.Codec("zstd", level) if scheme == "zstd" else pa.Codec("lz4_raw")
    prefix = struct.Struct("<Q" if scheme == "zstd" else "<I")
    view = plain.data
    pieces: list[bytes] = []
    for start, size in zip(starts.tolist(), sizes.tolist(), strict=True):
        content = codec.compress(view[start : start + size], asbytes=True)
        pieces.append(prefix.pack(size) + content)
    packed = b"".join(pieces)
    if len(packed) >= len(plain):
        return values
    new_sizes = np.array([len(piece) for piece in pieces], np.int64)
    segments = Segments(
        np.frombuffer(packed, np.uint8), np.cumsum(new_sizes) - new_sizes, new_sizes
    )
    encoding = pb.CompressiveEncoding(
        general=pb.General(
            compression=pb.BufferCompression(scheme=SCHEMES[scheme], level=level),
            values=values.encoding,
        )
    )
    buffers = (ChunkBuffer((segments,)), *others)
    return ValueChunks(encoding, values.log2_values, values.num_values, buffers)

"""Buffers of bytes, plain or compressed as a whole if the column's metadata ask for it.

Source: docs/format/file-format.md, sections 3.1 and 5.1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.encode_block_compression import block_compressor
from pyspark_lance.codec.encoding_requests import EncodingRequest
from pyspark_lance.codec.v2_0.page_buffers import BufferCollector
from pyspark_lance.proto import encodings_v2_0_pb2 as pb


def encode_buffer(
    data: NDArray[np.generic], bits: int, collector: BufferCollector, request: EncodingRequest
) -> pb.ArrayEncoding:
    """Flat of whole bytes; compressed only if that makes it smaller.

    ``bits``: bits of one; a multiple of 8.
    """
    flat = pb.Flat(bits_per_value=bits)
    stored: object = data
    if request.general is not None:
        content = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        packed = block_compressor(request.general, request.compression_level)(content)
        if len(packed) < len(content):
            stored = packed
            level = request.compression_level
            flat.compression.CopyFrom(pb.Compression(scheme=request.general, level=level))
    flat.buffer.buffer_index = collector.add(stored)
    return pb.ArrayEncoding(flat=flat)

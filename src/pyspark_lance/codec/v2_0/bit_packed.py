"""Bitpacked and BitpackedForNonNeg: integers in fewer bits; of experimental 2.0 writers only.

Source: docs/format/file-format.md, sections 3.2 and 5.1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.bit_packing import BLOCK_VALUES, WORD_TYPES, block_words, unpack_blocks
from pyspark_lance.codec.checks import require
from pyspark_lance.codec.memory import allocate
from pyspark_lance.codec.v2_0.array_decoder import bit_width_of
from pyspark_lance.codec.v2_0.page_buffers import BufferSlice, PageBuffers
from pyspark_lance.proto import encodings_v2_0_pb2 as pb


class BitpackedDecoder:
    """One bit stream, least significant bit first; signed values are extended."""

    def __init__(
        self, message: pb.Bitpacked, data_type: pa.DataType, num_values: int, buffers: PageBuffers
    ) -> None:
        self.data_type, self.num_values, self.has_bits = data_type, num_values, True
        self._bits = message.compressed_bits_per_value
        self._width = _check_widths(self._bits, message.uncompressed_bits_per_value, data_type)
        self._signed = message.signed
        self._index, self._buffers = message.buffer.buffer_index, buffers
        _check_size(buffers.size(self._index), -(-num_values * self._bits // 8))

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """The bytes that hold the bits; ``start`` is a multiple of 8."""
        return [BufferSlice(self._index, start * self._bits // 8, -(-end * self._bits // 8))]

    def decode(self, start: int, end: int) -> pa.Array:
        """The values in their full width."""
        count = end - start
        stored = np.frombuffer(self._buffers.read(self.slices(start, end)[0]), np.uint8)
        bits = np.unpackbits(stored, count=count * self._bits, bitorder="little")
        wide = np.zeros((count, self._width), np.uint8)
        wide[:, : self._bits] = bits.reshape(count, self._bits)
        if self._signed:
            wide[:, self._bits :] = wide[:, self._bits - 1 : self._bits]
        values = np.packbits(wide.reshape(-1), bitorder="little")
        return pa.Array.from_buffers(self.data_type, count, [None, pa.py_buffer(values)])


class BitpackedForNonNegDecoder:
    """FastLanes blocks of 1024 values, the last one padded."""

    def __init__(
        self,
        message: pb.BitpackedForNonNeg,
        data_type: pa.DataType,
        num_values: int,
        buffers: PageBuffers,
    ) -> None:
        self.data_type, self.num_values, self.has_bits = data_type, num_values, False
        self._bits = message.compressed_bits_per_value
        self._width = _check_widths(self._bits, message.uncompressed_bits_per_value, data_type)
        self._block_bytes = block_words(self._width, self._bits) * self._width // 8
        self._index, self._buffers = message.buffer.buffer_index, buffers
        blocks = -(-num_values // BLOCK_VALUES)
        _check_size(buffers.size(self._index), blocks * self._block_bytes)

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Whole blocks."""
        first, last = start // BLOCK_VALUES, -(-end // BLOCK_VALUES)
        return [BufferSlice(self._index, first * self._block_bytes, last * self._block_bytes)]

    def decode(self, start: int, end: int) -> pa.Array:
        """Unpack the blocks and cuts the range out of them."""
        place = self.slices(start, end)[0]
        blocks = (place.end - place.start) // self._block_bytes
        stored = np.frombuffer(self._buffers.read(place), np.uint8)
        word_type = WORD_TYPES[self._width]
        words = stored.copy().view(word_type)
        plain = allocate(blocks * BLOCK_VALUES * self._width // 8).view(word_type)
        unpack_blocks(words.reshape(blocks, -1), self._bits, plain.reshape(blocks, BLOCK_VALUES))
        skip = start % BLOCK_VALUES
        values = plain[skip : skip + end - start]
        return pa.Array.from_buffers(self.data_type, end - start, [None, pa.py_buffer(values)])


def _check_widths(packed: int, plain: int, data_type: pa.DataType) -> int:
    require(
        plain in WORD_TYPES and plain == bit_width_of(data_type) and 0 < packed <= plain,
        f"{plain}-bit values packed to {packed} bits are stored for the type {data_type}",
    )
    return plain


def _check_size(found: int, needed: int) -> None:
    require(found >= needed, f"{needed} bytes of packed values are expected, found {found}")

"""Buffers of the 2.0 encodings: flat, compressed as a whole, or bit-packed.

The whole buffer may be compressed; then it is decompressed once and kept.

Source: docs/format/file-format.md, sections 3.1 and 5.1.

Source: docs/format/file-format.md, sections 3.1, 5.1 and 5.2.

Source: docs/format/file-format.md, sections 3.2 and 5.1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import BLOCK_VALUES, WORD_TYPES, block_words, unpack_blocks
from pyspark_lance.codec.checks import require, unsupported
from pyspark_lance.codec.compressive.block_compression import (
    LZ4,
    ZSTD,
    block_compressor,
    decompress,
)
from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.encoding_requests import EncodingRequest
from pyspark_lance.codec.v2_0.array_decoder import (
    BufferCollector,
    BufferSlice,
    PageBuffers,
    bit_slice,
    bit_width_of,
)
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


_SCHEMES = {"": None, "none": None, "lz4": LZ4, "zstd": ZSTD}
_MAX_ARROW_ALIGNMENT = 8


class FlatBuffer:
    """The bytes of a Flat encoding, compressed or not.

    ``num_bytes``: how many bytes the values need; more is tolerated.

    ``stored_size``: bytes of the buffer in the file.
    """

    def __init__(self, message: pb.Flat, num_bytes: int, buffers: PageBuffers) -> None:
        require(
            message.buffer.buffer_type == 0,
            f"a page buffer is expected, found buffer type {message.buffer.buffer_type}",
        )
        self._index = message.buffer.buffer_index
        self._num_bytes = num_bytes or None
        self._buffers = buffers
        self.stored_size = buffers.size(self._index)
        scheme = message.compression.scheme
        if scheme not in _SCHEMES:
            unsupported(f"the compression {scheme!r} is not implemented")
        self._scheme = _SCHEMES[scheme]
        self._decompressed: pa.Buffer | None = None
        if self._scheme is None:
            require(
                self.stored_size >= num_bytes,
                f"buffer {self._index} has {self.stored_size} bytes, its values need {num_bytes}",
            )

    @property
    def known_size(self) -> int | None:
        """Bytes of all values; None while they are still compressed."""
        if self._scheme is None:
            return self.stored_size
        return None if self._decompressed is None else int(self._decompressed.size)

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices of the page to fetch before these bytes are read."""
        if self._scheme is None:
            return [BufferSlice(self._index, start, end)]
        if self._decompressed is None:
            return [BufferSlice(self._index, 0, self.stored_size)]
        return []

    def read(self, start: int, end: int) -> pa.Buffer:
        """The bytes ``start`` to ``end`` of the values; a view if they are not compressed."""
        if self._scheme is None:
            self._check_end(end, self.stored_size)
            return self._buffers.read(BufferSlice(self._index, start, end))
        if self._decompressed is None:
            stored = self._buffers.read(BufferSlice(self._index, 0, self.stored_size))
            plain = decompress(self._scheme, np.frombuffer(stored, np.uint8), self._num_bytes)
            self._decompressed = pa.py_buffer(plain)
        self._check_end(end, self._decompressed.size)
        return self._decompressed.slice(start, end - start)

    def _check_end(self, end: int, size: int) -> None:
        require(end <= size, f"buffer {self._index} holds {size} bytes, {end} are wanted")


class FlatDecoder:
    """Flat: any fixed width, 1 bit or whole bytes."""

    def __init__(
        self, message: pb.Flat, data_type: pa.DataType, num_values: int, buffers: PageBuffers
    ) -> None:
        bits = message.bits_per_value
        require(
            bits > 0 and bits == bit_width_of(data_type) and not pa.types.is_nested(data_type),
            f"values of {bits} bits are stored for the type {data_type}",
        )
        if bits != 1 and bits % 8:
            unsupported(f"flat values of {bits} bits are not implemented")
        self.data_type, self.num_values, self.has_bits = data_type, num_values, bits == 1
        self._bits = bits
        self._alignment = min(bits // 8 & -(bits // 8), _MAX_ARROW_ALIGNMENT)
        self._buffer = FlatBuffer(message, -(-num_values * bits // 8), buffers)

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return one slice."""
        return self._buffer.slices(*self._bytes(start, end))

    def decode(self, start: int, end: int) -> pa.Array:
        """An array on top of the stored bytes."""
        data = self.decode_buffer(start, end)
        return pa.Array.from_buffers(self.data_type, end - start, [None, data])

    def decode_buffer(self, start: int, end: int) -> pa.Buffer:
        """The values alone, aligned as Arrow wants it."""
        data = self._buffer.read(*self._bytes(start, end))
        if self._alignment > 1 and data.address % self._alignment:
            return pa.py_buffer(data.to_pybytes())
        return data

    def _bytes(self, start: int, end: int) -> tuple[int, int]:
        return start * self._bits // 8, -(-end * self._bits // 8)


def encode_flat(
    array: pa.Array,
    blank: NDArray[np.bool_] | None,
    collector: BufferCollector,
    request: EncodingRequest,
) -> pb.ArrayEncoding:
    """Flat of a fixed-width array.

    ``array``: any primitive, boolean, decimal or fixed size binary array; may be a slice.
    ``blank``: true for slots that are written as zeros, whatever they hold. ``collector``: takes
    the buffer; a view of the array unless something is blank. ``request``: what the column's
    metadata ask for; pylance knows no compressed booleans.
    """
    bits = bit_width_of(array.type)
    if bits != 1:
        return encode_buffer(_bytes_of(array, bits // 8, blank), bits, collector, request)
    buffer = pb.Buffer(buffer_index=collector.add(_bits_of(array, blank)))
    return pb.ArrayEncoding(flat=pb.Flat(bits_per_value=bits, buffer=buffer))


def encode_bitmap(bits: NDArray[np.bool_], collector: BufferCollector) -> pb.ArrayEncoding:
    """Flat of one bit per value."""
    index = collector.add(np.packbits(bits, bitorder="little"))
    return pb.ArrayEncoding(flat=pb.Flat(bits_per_value=1, buffer=pb.Buffer(buffer_index=index)))


def _bits_of(array: pa.Array, blank: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    data = bit_slice(array.buffers()[1], array.offset, len(array))
    if blank is None:
        return data
    return data & np.packbits(~blank, bitorder="little")


def _bytes_of(array: pa.Array, width: int, blank: NDArray[np.bool_] | None) -> NDArray[np.generic]:
    count = len(array)
    stored = array.buffers()[1]
    if stored is None or count == 0:
        return np.zeros(count * width, np.uint8)
    start = array.offset * width
    data = np.frombuffer(stored, np.uint8)[start : start + count * width]
    if blank is None:
        return data
    word = next(size for size in (8, 4, 2, 1) if width % size == 0)
    rows = data.view(f"<u{word}").reshape(count, width // word)
    return np.where(blank[:, np.newaxis], np.zeros(1, rows.dtype), rows).reshape(-1)


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

"""Buffers of the 2.0 encodings (flat, compressed as a whole, bit-packed), and their decoders.

An ``ArrayDecoder`` decodes a range of rows of one page. It names the byte ranges it needs and gets
them through ``PageBuffers``, so it does no I/O, and a part of a page costs only its bytes. A buffer
that is compressed as a whole is decompressed once and kept.

Checks that need no values run when a decoder is built, those of values when they are decoded.
Allocations are bounded by the requested range or by the buffers of the page.

Source: docs/format/file-format.md, sections 3.1, 3.2, 5.1 and 5.2.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import BLOCK_VALUES, WORD_TYPES, block_words, unpack_blocks
from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.compressive.block_compression import (
    LZ4,
    ZSTD,
    block_compressor,
    decompress,
)
from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.encoding_requests import EncodingRequest
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
            reject_unsupported(f"the compression {scheme!r} is not implemented")
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
            reject_unsupported(f"flat values of {bits} bits are not implemented")
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
        index = self.slices(start, end)[0]
        blocks = (index.end - index.start) // self._block_bytes
        stored = np.frombuffer(self._buffers.read(index), np.uint8)
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


class BufferSlice(NamedTuple):
    """Bytes ``start`` to ``end`` of the page buffer number ``buffer``."""

    buffer: int
    start: int
    end: int


class PageBuffers(Protocol):
    """The buffers of one page."""

    def size(self, index: int) -> int:
        """Length of a buffer in bytes."""

    def read(self, wanted: BufferSlice) -> pa.Buffer:
        """The bytes of a slice inside a buffer; a view where the store has one."""


class BufferCollector:
    """The buffers of a page being encoded, in the order in which they are numbered."""

    def __init__(self) -> None:
        self.buffers: list[object] = []

    def add(self, data: object) -> int:
        """Add a buffer; return its number."""
        self.buffers.append(data)
        return len(self.buffers) - 1


def bit_slice(buffer: pa.Buffer | None, offset: int, length: int) -> NDArray[np.uint8]:
    """``length`` bits from bit ``offset`` on, moved to bit 0; a missing bitmap is all ones."""
    num_bytes = -(-length // 8)
    if buffer is None:
        return np.packbits(np.ones(length, np.bool_), bitorder="little")
    data = np.frombuffer(buffer, np.uint8)
    first, shift = divmod(offset, 8)
    if shift == 0:
        return data[first : first + num_bytes]
    bits = np.unpackbits(data[first : first + num_bytes + 1], bitorder="little")
    return np.packbits(bits[shift : shift + length], bitorder="little")


def validity_of(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return true where a value is valid; None if there are no nulls."""
    if array.null_count == 0:
        return None
    if array.null_count == len(array):
        return np.zeros(len(array), np.bool_)
    bitmap = bit_slice(array.buffers()[0], array.offset, len(array))
    return np.unpackbits(bitmap, count=len(array), bitorder="little").view(np.bool_)


MAX_ARRAY_BYTES = (1 << 31) - 1
"""No decoded range may be larger; 32-bit offsets end here as well."""


class ArrayDecoder(Protocol):
    """One node of an encoding tree."""

    data_type: pa.DataType
    num_values: int
    has_bits: bool  # Whether some buffer holds bits; ranges must then start at a multiple of 8.

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices that ``decode(start, end)`` reads, as far as known before reading."""

    def decode(self, start: int, end: int) -> pa.Array:
        """The values ``start`` to ``end``, as an array of offset 0."""


class AllNullDecoder:
    """Nullable.all_nulls: no buffers."""

    def __init__(self, data_type: pa.DataType, num_values: int) -> None:
        self.data_type, self.num_values, self.has_bits = data_type, num_values, False

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return no slices."""
        return []

    def decode(self, start: int, end: int) -> pa.Array:
        """Nulls."""
        check_array_bytes(self.data_type, end - start)
        return pa.nulls(end - start, self.data_type)


def bit_width_of(data_type: pa.DataType) -> int:
    """Bits of one value of a fixed-width type; 0 for the types of variable width and null."""
    types = pa.types
    if isinstance(data_type, pa.BaseExtensionType):
        return bit_width_of(data_type.storage_type)
    if types.is_fixed_size_list(data_type):
        return int(data_type.list_size) * bit_width_of(data_type.value_type)
    if types.is_struct(data_type):
        return sum(bit_width_of(child.type) for child in data_type)
    if types.is_dictionary(data_type):
        return bit_width_of(data_type.index_type)
    has_width = (
        types.is_primitive(data_type)
        or types.is_fixed_size_binary(data_type)
        or types.is_decimal(data_type)
    )
    return int(data_type.bit_width) if has_width else 0


def check_array_bytes(data_type: pa.DataType, num_values: int) -> None:
    """Reject ranges whose size is from a damaged count and not from stored bytes."""
    num_bytes = num_values * max(bit_width_of(data_type), 1) // 8
    require(
        num_bytes <= MAX_ARRAY_BYTES,
        f"{num_values} values of {data_type} take {num_bytes} bytes, more than one array may have",
    )

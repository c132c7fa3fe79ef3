"""ArrayDecoder: decode a row range of one page, from the buffers of that page.

Interface of the 2.0 encodings to their context: the buffers of one page, and a place to put them.
Decoders name the byte slices they want and get them through ``PageBuffers``; so they do no I/O of
their own and a slice of a page costs only its bytes.

All checks that need no values run when a decoder is built; those on values when they are
decoded. Everything that is allocated is bounded by the requested range or by the page's buffers.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require


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

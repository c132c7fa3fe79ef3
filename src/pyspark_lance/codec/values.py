"""Decoded leaf values without validity, and the memory of Arrow leaf arrays as numpy arrays.

There is one slot per visible level entry. What lies at the slots of null values is arbitrary in
Arrow; here it is zero or empty, so that equal values give equal bytes and nulls cost little after
packing. Slices are respected.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar


@dataclass(frozen=True, slots=True)
class FixedWidthValues:
    """Values of equal width, as in Arrow's memory layout.

    ``bits_per_value``: 1 (bits, least significant first) or a multiple of 8; ``buffer``: at least
    ``ceil(num_values * bits_per_value / 8)`` bytes.
    """

    num_values: int
    bits_per_value: int
    buffer: NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class VariableWidthValues:
    """Strings or binaries.

    ``offsets``: int32 or int64, ``num_values + 1`` ascending positions in ``data``; ``data``: their
    bytes.
    """

    num_values: int
    offsets: NDArray[np.signedinteger]
    data: pa.Buffer


class StringDecoder(Protocol):
    """Decoder of stored strings."""

    def __call__(self, stored: VariableWidthValues) -> VariableWidthValues:
        """The strings; how one is stored does not depend on its neighbours."""


@dataclass(frozen=True, slots=True)
class EncodedStrings:
    """Strings that are decoded once the requested rows are known.

    ``stored``: the encoded form of each.
    """

    stored: VariableWidthValues
    decode: StringDecoder

    @property
    def num_values(self) -> int:
        """Number of values."""
        return self.stored.num_values


@dataclass(frozen=True, slots=True)
class FixedSizeListValues:
    """Lists of ``dimension`` items each."""

    num_values: int
    dimension: int  # Items per list.
    # Validity bitmap of the items, or None if all are valid.
    item_validity: NDArray[np.uint8] | None
    items: Values  # ``num_values * dimension`` items.


@dataclass(frozen=True, slots=True)
class StructValues:
    """Records of several children."""

    num_values: int
    children: tuple[Values, ...]  # One value per record that is present.
    # Which records the children have values for; None for all.
    present: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True)
class DictionaryValues:
    """Indices into ``items``; every index is checked to be in range."""

    num_values: int
    indices: FixedWidthValues
    items: Values


@dataclass(frozen=True, slots=True)
class ArrowBuffersValue:
    """One value, repeated ``num_values`` times: the Arrow buffers of an array of length one."""

    num_values: int
    buffers: tuple[NDArray[np.uint8], ...]


@dataclass(frozen=True, slots=True)
class ValuesByReference:
    """Values that are stored elsewhere in the file.

    ``positions``: of the values in the file, uint64; ``sizes``: bytes, uint64.
    """

    num_values: int
    positions: NDArray[np.uint64]
    sizes: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class NullValues:
    """No values at all; every slot is null."""

    num_values: int


@dataclass(frozen=True, slots=True)
class NullItems:
    """Fixed-size lists of nulls; the levels show which of the lists are null themselves."""

    num_values: int


Values: TypeAlias = (
    FixedWidthValues
    | VariableWidthValues
    | EncodedStrings
    | FixedSizeListValues
    | StructValues
    | DictionaryValues
    | ArrowBuffersValue
    | ValuesByReference
    | NullValues
    | NullItems
)


def bytes_of_values(values: object) -> int:
    """Return the memory of values, or of a part of them."""
    if isinstance(values, np.ndarray):
        return values.nbytes
    if isinstance(values, pa.Buffer):
        return int(values.size)
    if isinstance(values, tuple):
        return sum(map(bytes_of_values, values))
    if is_dataclass(values):
        return sum(bytes_of_values(getattr(values, one.name)) for one in fields(values))
    return 0


WORDS: Final[dict[int, Any]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def is_variable_width(data_type: pa.DataType) -> bool:
    """Strings and binaries, large or not."""
    return (
        pa.types.is_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_large_binary(data_type)
    )


def offset_bytes(data_type: pa.DataType) -> int:
    """Bytes of one offset of a string or binary type."""
    return 8 if pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type) else 4


def bits_per_value(data_type: pa.DataType) -> int:
    """Bits of a fixed-width type; 1 for booleans."""
    if pa.types.is_fixed_size_binary(data_type):
        return int(data_type.byte_width) * 8
    return int(data_type.bit_width)


def fixed_width_values(
    array: pa.Array, nulls: NDArray[np.bool_] | None
) -> NDArray[np.unsignedinteger[Any]]:
    """Values of a fixed-width type that is not boolean.

    ``nulls``: true where a value does not matter. Returns shape (n,), unsigned integers, for 8 to
    64 bits; bytes of shape (n, width) else. A view of the array unless there are nulls.
    """
    bits = bits_per_value(array.type)
    width, count = bits // 8, len(array)
    if count == 0 or width == 0:
        content = np.empty(0, np.uint8)
    else:
        content = np.frombuffer(array.buffers()[1], np.uint8)
        content = content[array.offset * width : (array.offset + count) * width]
    if bits in WORDS:
        values: NDArray[np.unsignedinteger[Any]] = content.view(WORDS[bits])
        return values if nulls is None else np.where(nulls, values.dtype.type(0), values)
    matrix = content.reshape(count, width)
    if nulls is not None:
        matrix = matrix.copy()
        matrix[nulls] = 0
    return matrix


def boolean_values(array: pa.Array, nulls: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """Zeros and ones."""
    values = bit_values(array.buffers()[1], array.offset, len(array))
    return values if nulls is None else values & ~nulls


def boolean_bits(array: pa.Array, nulls: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """The values as bits; the padding of the last byte is 0."""
    if nulls is not None or array.offset % 8 or len(array) % 8:
        return np.packbits(boolean_values(array, nulls), bitorder="little")
    return np.frombuffer(array.buffers()[1], np.uint8)[array.offset // 8 :][: len(array) // 8]


def bit_values(bitmap: pa.Buffer, offset: int, count: int) -> NDArray[np.uint8]:
    """Bits ``offset`` to ``offset + count`` of a bitmap, one byte each."""
    if count == 0:
        return np.empty(0, np.uint8)
    first, skip = divmod(offset, 8)
    content = np.frombuffer(bitmap, np.uint8)[first : (offset + count + 7) // 8]
    return np.unpackbits(content, count=skip + count, bitorder="little")[skip:]


def variable_width_values(
    array: pa.Array, nulls: NDArray[np.bool_] | None
) -> tuple[NDArray[np.signedinteger[Any]], NDArray[np.uint8]]:
    """Offsets (int32 or int64, one more than values) and the bytes they count into."""
    width, count = offset_bytes(array.type), len(array)
    kind = np.dtype("<i8" if width == 8 else "<i4")
    if count == 0:
        return np.zeros(1, kind), np.empty(0, np.uint8)
    offsets = np.frombuffer(array.buffers()[1], kind)[array.offset : array.offset + count + 1]
    if nulls is not None and (np.diff(offsets)[nulls] != 0).any():
        # if_else knows no null slots when its inputs have none.
        empty = plain_scalar("" if pa.types.is_unicode(array.type) else b"", array.type)
        plain = pa.Array.from_buffers(
            array.type, count, [None, *array.buffers()[1:]], 0, array.offset
        )
        # Callers that need only types avoid half of the time that importing Arrow takes.
        import pyarrow.compute as pc  # noqa: PLC0415

        return variable_width_values(pc.if_else(plain_array(nulls), empty, plain), None)
    content = array.buffers()[2]
    return offsets, np.empty(0, np.uint8) if content is None else np.frombuffer(content, np.uint8)


def without_null_items(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """The same values with the nulls in the indices and none in the dictionary."""
    items = array.dictionary
    if items.null_count == 0:
        return array
    kept = np.flatnonzero(plain_numbers(items.is_valid()))
    moved = np.full(len(items), -1, np.int64)
    moved[kept] = np.arange(len(kept))
    position_of = plain_array(moved, moved < 0).cast(array.indices.type)
    return pa.DictionaryArray.from_arrays(
        position_of.take(array.indices), items.take(plain_array(kept))
    )

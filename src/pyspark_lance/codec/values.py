"""Decoded leaf values, before they get their validity and their Arrow type.

One slot per visible level entry; what a slot holds where the value is null is arbitrary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


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
    """Turns what is stored of strings into the strings."""

    def __call__(self, stored: VariableWidthValues) -> VariableWidthValues:
        """The strings; how one is stored does not depend on its neighbours."""


@dataclass(frozen=True, slots=True)
class EncodedStrings:
    """Strings that are decoded when it is known which of them are wanted.

    ``stored``: what is stored of each.
    """

    stored: VariableWidthValues
    decode: StringDecoder

    @property
    def num_values(self) -> int:
        """How many there are."""
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
class PlacedValues:
    """Values that lie elsewhere in the file.

    ``places``: position in the file, uint64; ``sizes``: bytes, uint64.
    """

    num_values: int
    places: NDArray[np.uint64]
    sizes: NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class NullValues:
    """No values at all; every slot is null."""

    num_values: int


@dataclass(frozen=True, slots=True)
class NullItems:
    """Fixed-size lists of nulls; the levels say which of the lists are null themselves."""

    num_values: int


Values: TypeAlias = (
    FixedWidthValues
    | VariableWidthValues
    | EncodedStrings
    | FixedSizeListValues
    | StructValues
    | DictionaryValues
    | ArrowBuffersValue
    | PlacedValues
    | NullValues
    | NullItems
)

"""Dictionary: indices into items that are stored once per page.

Source: docs/format/file-format.md, section 6.2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import WORD_TYPES
from pyspark_lance.codec.checks import require
from pyspark_lance.codec.values import (
    DictionaryValues,
    FixedWidthValues,
    Values,
    VariableWidthValues,
)

_JOINED_INDEX = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class PageItems:
    """What the indices of a page, or of pages that were joined, refer to.

    ``items``: the items of all pages, one page behind another; ``counts``: how many items each page
    has.
    """

    items: Values
    counts: NDArray[np.int64]

    @classmethod
    def of_page(cls, items: Values) -> PageItems:
        """The items of one page."""
        return cls(items, np.array([items.num_values]))

    @property
    def is_joinable(self) -> bool:
        """Return whether the items can be put behind those of other pages."""
        if isinstance(self.items, FixedWidthValues):
            return self.items.bits_per_value % 8 == 0
        return isinstance(self.items, VariableWidthValues)

    @classmethod
    def join(cls, parts: Sequence[PageItems]) -> PageItems:
        """The items of several pages of one kind; all are joinable."""
        items = [part.items for part in parts]
        return cls(_joined_items(items), np.concatenate([part.counts for part in parts]))

    def look_up(
        self, indices: Values, page_of: NDArray[np.int64], num_values: NDArray[np.int64]
    ) -> DictionaryValues:
        """Indices with their items, every index checked.

        An index at a null slot must be in range as well; writers put 0 there.

        ``page_of``: the page of each chunk; ``num_values``: how many indices each chunk has.
        """
        require(isinstance(indices, FixedWidthValues), "dictionary indices are not integers")
        assert isinstance(indices, FixedWidthValues)
        bits = indices.bits_per_value
        require(bits in WORD_TYPES, f"dictionary indices of {bits} bits are not allowed")
        numbers = indices.buffer.view(WORD_TYPES[bits])[: indices.num_values]
        if len(self.counts) == 1:
            if len(numbers):
                _require_in_range(int(numbers.max()), int(self.counts[0]))
            return DictionaryValues(indices.num_values, indices, self.items)
        page_of, num_values = page_of[num_values > 0], num_values[num_values > 0]
        if len(num_values):
            highest = np.maximum.reduceat(numbers, num_values.cumsum() - num_values)
            counts = self.counts[page_of]
            worst = int((highest >= counts).argmax())
            _require_in_range(int(highest[worst]), int(counts[worst]))
        first_items = (self.counts.cumsum() - self.counts).astype(_JOINED_INDEX)
        moved = numbers.astype(_JOINED_INDEX)
        moved += np.repeat(first_items[page_of], num_values)
        joined = FixedWidthValues(len(moved), _JOINED_INDEX.itemsize * 8, moved.view(np.uint8))
        return DictionaryValues(len(moved), joined, self.items)


def _require_in_range(highest: int, count: int) -> None:
    require(highest < count, f"a dictionary index is {highest}, there are {count} items")


def _joined_items(parts: Sequence[Values]) -> Values:
    fixed = [part for part in parts if isinstance(part, FixedWidthValues)]
    if fixed:
        bits = fixed[0].bits_per_value
        buffers = [part.buffer[: part.num_values * bits // 8] for part in fixed]
        return FixedWidthValues(
            sum(part.num_values for part in fixed), bits, np.concatenate(buffers)
        )
    strings = [part for part in parts if isinstance(part, VariableWidthValues)]
    counts = [part.num_values for part in strings]
    first = np.array([part.offsets[0] for part in strings], np.int64)
    sizes = np.array([part.offsets[-1] for part in strings], np.int64) - first
    pieces = zip(strings, first.tolist(), sizes.tolist(), strict=True)
    data = b"".join([part.data.slice(start, size) for part, start, size in pieces])
    ends = np.concatenate([part.offsets[1:] for part in strings]).astype(np.int64)
    offsets = np.zeros(len(ends) + 1, np.int64)
    np.add(ends, np.repeat(sizes.cumsum() - sizes - first, counts), out=offsets[1:])
    return VariableWidthValues(len(ends), offsets, pa.py_buffer(data))

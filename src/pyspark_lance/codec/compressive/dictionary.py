"""Dictionary: indices into items that are stored once per page.

Source: docs/format/file-format.md, sections 6.2, 6.5, 11 and 12.4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.bit_packing import WORD_TYPES
from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import DictionaryBlock
from pyspark_lance.codec.compressive.block_compression import block_compressor, general
from pyspark_lance.codec.compressive.fixed_width import flat
from pyspark_lance.codec.compressive.variable_width import variable, variable_block
from pyspark_lance.codec.encoding_requests import DictionaryRequest
from pyspark_lance.codec.values import (
    DictionaryValues,
    FixedWidthValues,
    Values,
    VariableWidthValues,
    bits_per_value,
    boolean_bits,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)
from pyspark_lance.plain_values import plain_array, plain_numbers

_JOINED_INDEX = np.dtype("<u4")


@dataclass(frozen=True, slots=True)
class PageItems:
    """Dictionary items of a page, or of several joined pages, that the indices refer to.

    ``items``: the concatenated items of all pages; ``counts``: the number of items of each page.
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
        return cls(_join_items(items), np.concatenate([part.counts for part in parts]))

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


def _join_items(parts: Sequence[Values]) -> Values:
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


MIN_VALUES = 100
MAX_ITEMS = 1 << 16
_FIRST_SAMPLE = 1 << 10
_SAMPLES = (1 << 12, 1 << 16)
_NEARLY_ALL = 0.95
_USUAL = DictionaryRequest()
# Items are compressed unasked only if that saves this much of so many bytes.
_MIN_COMPRESSED_BYTES = 1 << 10
_COMPRESSION_GAIN = 0.9


def dictionary_block(items: pa.Array) -> DictionaryBlock:
    """The values of a dictionary, none of them null."""
    data_type = items.type
    if is_variable_width(data_type):
        offsets, content = variable_width_values(items, None)
        encoding = variable(offsets.itemsize * 8)
        return DictionaryBlock(encoding, variable_block(offsets, content), len(items))
    if pa.types.is_boolean(data_type):
        bits = boolean_bits(items, None)
        return DictionaryBlock(flat(1), bits.tobytes(), len(items))
    values = fixed_width_values(items, None)
    return DictionaryBlock(flat(bits_per_value(data_type)), values.tobytes(), len(items))


def compress_block(
    block: DictionaryBlock, request: DictionaryRequest, *, by_default: bool
) -> DictionaryBlock:
    """The block with its content compressed.

    ``request``: whether and how; ``by_default``: whether to compress with lz4 what shrinks much, if
    nothing is requested.
    """
    scheme = request.compression
    if scheme is None and by_default and len(block.content) >= _MIN_COMPRESSED_BYTES:
        scheme = "lz4"
    if scheme in (None, "none"):
        return block
    content = block_compressor(scheme, request.compression_level)(memoryview(block.content))
    if request.compression is None and len(content) > _COMPRESSION_GAIN * len(block.content):
        return block
    encoding = general(scheme, request.compression_level, block.encoding)
    return DictionaryBlock(encoding, content, block.num_items)


def few_items(
    values: pa.Array, plain_bytes: float, request: DictionaryRequest = _USUAL
) -> pa.DictionaryArray | None:
    """The values as a dictionary array, if at most every second valid one is new.

    Counting many distinct values is expensive, so samples are checked first.

    ``plain_bytes``: if bit-packed indices alone cannot be smaller, the result is None.
    """
    count, ratio = len(values), request.size_ratio
    limit = min(MAX_ITEMS, int((count - values.null_count) / request.divisor))
    if count < MIN_VALUES or limit == 0:
        return None
    if count > 2 * _FIRST_SAMPLE and limit <= _FIRST_SAMPLE**2 // 32:
        # Of so few distinct values as allowed, at least one would come twice: the chance that
        # none does is below e^-16. It spares hashing more of what may be long.
        seen, _ = _distinct_values(values, _FIRST_SAMPLE)
        if seen == _FIRST_SAMPLE:
            return None
    for sample_size in _SAMPLES:
        if count <= 2 * sample_size:
            break  # counting them all costs no more
        seen, estimate = _distinct_values(values, sample_size)
        if estimate > limit or not saves_enough(count * _index_bits(seen) / 8, plain_bytes, ratio):
            return None
        if estimate < limit / 4:
            break
    encoded = pc.dictionary_encode(values)
    items = encoded.dictionary
    return encoded if len(items) <= limit and items.nbytes <= request.max_bytes else None


def saves_enough(
    encoded_bytes: float, plain_bytes: float, ratio: float = _USUAL.size_ratio
) -> bool:
    """Return whether a dictionary page is enough smaller to be worth the detour."""
    return encoded_bytes < ratio * plain_bytes


def least_bytes(encoded: pa.DictionaryArray) -> float:
    """Bytes of the dictionary and of bit-packed indices."""
    bits = _index_bits(len(encoded.dictionary))
    return len(encoded) * bits / 8 + float(encoded.dictionary.nbytes)


def _index_bits(num_items: int) -> int:
    return max(1, (num_items - 1).bit_length())


def _distinct_values(values: pa.Array, sample_size: int) -> tuple[int, float]:
    """Distinct values in an evenly spaced sample, and how many there may be altogether."""
    positions = np.linspace(0, len(values) - 1, sample_size).astype(np.int64)
    counts = plain_numbers(pc.value_counts(values.take(plain_array(positions))).field("counts"))
    singles = int(np.count_nonzero(counts == 1))
    if singles > _NEARLY_ALL * sample_size:
        return len(counts), float(len(values))
    # Charikar's estimate: only values seen once stand for others that were not seen.
    unseen_factor = math.sqrt(len(values) / sample_size)
    return len(counts), unseen_factor * singles + len(counts) - singles


def compact(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Drop the items that no index names, if the dictionary is longer than the array."""
    if len(array.dictionary) <= max(len(array), MIN_VALUES):
        return array
    indices = array.indices
    used = pc.drop_null(pc.unique(indices))
    position_of = np.zeros(len(array.dictionary), np.int64)
    position_of[plain_numbers(used)] = np.arange(len(used))
    moved = plain_array(position_of).cast(indices.type).take(indices)
    return pa.DictionaryArray.from_arrays(moved, array.dictionary.take(used))


def index_values(
    array: pa.DictionaryArray, nulls: NDArray[np.bool_] | None
) -> NDArray[np.unsignedinteger]:
    """The indices as unsigned integers, 0 where the value does not matter."""
    return fixed_width_values(array.indices, nulls)

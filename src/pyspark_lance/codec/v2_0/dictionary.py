"""Dictionary, in both variants of the format.

For an Arrow dictionary column the indices have the column's index type, and a null is an index of
a null item. For a plain string column the indices are bytes, 0 is null and k is item k - 1.

Source: docs/format/file-format.md, sections 5.1 and 5.3.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.decode_memory import BatchTooLargeError, require_memory_for_items
from pyspark_lance.codec.v2_0.flat import ArrayDecoder, BufferSlice, validity_of
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.plain_values import (
    plain_array,
    plain_dtype,
    plain_numbers,
    plain_scalar,
    single_value,
)

MIN_PLAIN_ROWS = 100
MAX_PLAIN_ITEMS = 99
_SAMPLE_ROWS = 512


class DictionaryArrayDecoder:
    """A dictionary column; nulls among the items become null indices.

    ``indices``: decodes the indices, in the index type of ``data_type``.
    """

    def __init__(self, indices: ArrayDecoder, items: ArrayDecoder, data_type: pa.DataType) -> None:
        self.data_type, self.num_values = data_type, indices.num_values
        self.has_bits = indices.has_bits
        self._indices, self._items = indices, items
        self._dictionary: _Dictionary | None = None

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """The indices, and all items the first time."""
        return self._indices.slices(start, end) + _item_slices(self._items, self._dictionary)

    def decode(self, start: int, end: int) -> pa.Array:
        """Indices over the items of the page."""
        if self._dictionary is None:
            self._dictionary = _Dictionary(self._items)
        indices = self._dictionary.translate(self._indices.decode(start, end))
        return pa.DictionaryArray.from_arrays(indices, self._dictionary.values, safe=False)


class PlainDictionaryDecoder:
    """A plain column whose few distinct values are stored once."""

    def __init__(self, indices: ArrayDecoder, items: ArrayDecoder) -> None:
        self.data_type, self.num_values = items.data_type, indices.num_values
        self.has_bits = indices.has_bits
        self._indices, self._items = indices, items
        self._values: pa.Array | None = None

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """The indices, and all items the first time."""
        return self._indices.slices(start, end) + _item_slices(self._items, self._values)

    def decode(self, start: int, end: int) -> pa.Array:
        """The items that the indices name."""
        return self._items_of(self._decode_indices(start, end))

    def decode_rows(self, start: int, end: int, positions: NDArray[np.int64]) -> pa.Array:
        """Decode some of the values ``start`` to ``end``, by position in them."""
        indices = self._decode_indices(start, end)
        return self._items_of(pc.take(indices, plain_array(positions), boundscheck=False))

    def _decode_indices(self, start: int, end: int) -> pa.Array:
        """The indices, of which 0 is null."""
        indices = self._indices.decode(start, end)
        return indices.fill_null(plain_scalar(0, indices.type))

    def _items_of(self, indices: pa.Array) -> pa.Array:
        if self._values is None:
            items = self._items.decode(0, self._items.num_values)
            self._values = pa.concat_arrays([pa.nulls(1, items.type), items])
        stored = np.frombuffer(indices.buffers()[1], plain_dtype(indices.type), len(indices))
        largest = int(stored.max()) if len(stored) else 0
        require(
            largest < len(self._values),
            f"dictionary index {largest} is behind the {len(self._values) - 1} items",
        )
        require_memory_for_items(self._values, stored)
        try:
            if len(stored) and int(stored.min()) > 0:
                # Values without nulls are taken faster.
                return self._values[1:].take(plain_array(stored - stored.dtype.type(1)))
            return self._values.take(indices)
        except pa.ArrowInvalid as error:
            raise BatchTooLargeError from error


class _Dictionary:
    """The items of a page without its null items."""

    def __init__(self, items: ArrayDecoder) -> None:
        decoded = items.decode(0, items.num_values)
        self._num_items = len(decoded)
        self._valid = validity_of(decoded)
        self.values = decoded.drop_null() if self._valid is not None else decoded

    def translate(self, indices: pa.Array) -> pa.Array:
        """Indices of items as indices of ``values``, with null for the null items."""
        count = len(indices)
        stored = np.frombuffer(indices.buffers()[1], plain_dtype(indices.type), count)
        present = validity_of(indices)
        if present is not None:
            stored = np.where(present, stored, stored.dtype.type(0))
            if self._num_items == 0:
                require(not present.any(), "a dictionary without items has an index")
                return indices
        if count:
            low, high = int(stored.min()), int(stored.max())
            require(
                low >= 0 and high < self._num_items,
                f"dictionary indices {low} to {high} are not among the {self._num_items} items",
            )
        if self._valid is not None:
            valid = self._valid[stored]
            present = valid if present is None else present & valid
            new_index = np.maximum(np.cumsum(self._valid) - 1, 0).astype(stored.dtype)
            stored = np.where(valid, new_index[stored], stored.dtype.type(0))
        if present is None:
            return indices
        bitmap = pa.py_buffer(np.packbits(present, bitorder="little"))
        return pa.Array.from_buffers(indices.type, count, [bitmap, pa.py_buffer(stored)])


def plain_dictionary(array: pa.Array) -> tuple[NDArray[np.uint8], pa.Array] | None:
    """Indices and items of a string column with few distinct values; None if it has many.

    Returns the indices as stored (0 is null) and the items, of which there is at least one.
    """
    if len(array) < MIN_PLAIN_ROWS or not _looks_repetitive(array):
        return None
    encoded = pc.dictionary_encode(array)
    items = encoded.dictionary
    if len(items) > MAX_PLAIN_ITEMS:
        return None
    if len(items) == 0:
        items = single_value(b"", array.type)
    indices = encoded.indices
    numbers = plain_numbers(indices.fill_null(plain_scalar(-1, indices.type))) + 1
    return numbers.astype(np.uint8), items


def with_null_item(array: pa.DictionaryArray) -> tuple[pa.Array, pa.Array]:
    """Indices without nulls and items of which one is null, if the array has any null."""
    indices, items = array.indices, array.dictionary
    if items.offset or len(items) == 0:
        items = pa.concat_arrays([items])
    if indices.null_count == 0:
        return indices, items
    null_item = len(items)
    if items.null_count:
        null_item = int(np.flatnonzero(~_valid_items(items))[0])
    else:
        items = pa.concat_arrays([items, pa.nulls(1, items.type)])
    limit = int(np.iinfo(plain_dtype(indices.type)).max)
    if null_item > limit:
        raise UnsupportedFeatureError(
            f"a dictionary of {len(items) - 1} items with {indices.type} indices has no index "
            "left for null",
            hint="use a wider index type or file version 2.1",
        )
    return indices.fill_null(plain_scalar(null_item, indices.type)), items


def _valid_items(items: pa.Array) -> NDArray[np.bool_]:
    valid = validity_of(items)
    return np.ones(len(items), np.bool_) if valid is None else valid


def _looks_repetitive(array: pa.Array) -> bool:
    """Return whether a sample leaves hope; hashing a whole page for nothing is expensive."""
    step = max(len(array) // _SAMPLE_ROWS, 1)
    sample = array.take(plain_array(np.arange(0, len(array), step)))
    return len(sample.unique()) <= MAX_PLAIN_ITEMS + 1


def _item_slices(items: ArrayDecoder, decoded: object | None) -> list[BufferSlice]:
    return items.slices(0, items.num_values) if decoded is None else []

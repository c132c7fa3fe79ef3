"""Numbers of bytes and of list items in the rows of an array."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.leaf_column import is_listlike, storage_type
from pyspark_lance.codec.shred import list_items, list_offsets


def has_dictionaries(data_type: pa.DataType) -> bool:
    """Return whether the type is or holds a dictionary."""
    data_type = storage_type(data_type)
    if pa.types.is_dictionary(data_type):
        return True
    return any(
        has_dictionaries(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def is_counted_separately(data_type: pa.DataType) -> bool:
    """Return whether Arrow's own byte count of an array differs from ``data_bytes``."""
    data_type = storage_type(data_type)
    if pa.types.is_dictionary(data_type) or pa.types.is_null(data_type):
        return True
    return any(
        is_counted_separately(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def data_bytes(array: pa.Array) -> int:
    """Bytes of the rows of an array.

    Dictionaries do not count, slices share them.  Values of the type null, which have no bytes,
    count one each: flattening lists of them needs as much.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    if not is_counted_separately(data_type):
        return int(array.nbytes)
    if pa.types.is_null(data_type):
        return len(array)
    if pa.types.is_dictionary(data_type):
        return int(array.indices.nbytes)
    if pa.types.is_struct(data_type):
        return sum(data_bytes(array.field(index)) for index in range(data_type.num_fields))
    if is_listlike(data_type):
        offsets = list_offsets(array)
        first, end = int(offsets[0]), int(offsets[-1])
        return offsets.nbytes + data_bytes(list_items(array).slice(first, end - first))
    size = data_type.list_size
    return data_bytes(array.values.slice(array.offset * size, len(array) * size))


def item_counts(array: pa.Array) -> Iterator[NDArray[np.int64]]:
    """Yield, for every list at any depth, the number of items before each row, and in all.

    Each result has one number more than the array has rows: the items before each row, and the
    total. Items below a null list count, too.
    """
    yield from _item_counts(array, np.arange(len(array) + 1))


def _item_counts(array: pa.Array, bounds: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The same for values between ``bounds``, which ascend."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    if is_listlike(data_type):
        inside = list_offsets(array)[bounds]
        yield inside - inside[0]
        yield from _item_counts(list_items(array), inside)
    elif pa.types.is_struct(data_type):
        for index in range(data_type.num_fields):
            yield from _item_counts(array.field(index), bounds)
    elif pa.types.is_fixed_size_list(data_type):
        yield from _item_counts(array.values, (bounds + array.offset) * data_type.list_size)


def has_lists(data_type: pa.DataType) -> bool:
    """Return whether the type is or holds a list of any length."""
    data_type = storage_type(data_type)
    return is_listlike(data_type) or any(
        has_lists(data_type.field(index).type) for index in range(data_type.num_fields)
    )

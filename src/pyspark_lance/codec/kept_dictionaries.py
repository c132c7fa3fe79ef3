"""Strings that are handed on as the dictionary that they are stored as.

Looking up the items of a dictionary for every row costs much more than decoding its indices, and
a consumer of dictionaries (the JVM plugin) copies less.  Other pages of a column may hold
the strings themselves, so that its arrays are not all of one type.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.codec.arrow_values import is_variable_width
from pyspark_lance.codec.decode_memory import BatchTooLargeError, require_memory_for_items
from pyspark_lance.codec.take_items import take_items
from pyspark_lance.codec.values import ArrowBuffersValue, DictionaryValues, Values
from pyspark_lance.plain_values import plain_numbers

# With more items, or with fewer rows for each of them, rows without a dictionary are no larger.
_MAX_ITEMS = 4096
_ROWS_PER_ITEM = 4
# Every batch has all items.
_MAX_BYTES = 1 << 20
# A batch with the items of all rows, which some conditions need, must not be too large.
_LONGEST_ITEM = 1 << 10
_INDEX_TYPES = {8: pa.uint8(), 16: pa.uint16(), 32: pa.int32()}


def can_be_kept(data_type: pa.DataType) -> bool:
    """Return whether values of the type, which is not that of a dictionary, may come as one."""
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def kept_type(values: Values, data_type: pa.DataType) -> pa.DataType:
    """The type of a dictionary of ``data_type`` if ``values`` are one worth keeping."""
    if not can_be_kept(data_type):
        return data_type
    if isinstance(values, ArrowBuffersValue):
        return pa.dictionary(pa.int32(), data_type)
    if not isinstance(values, DictionaryValues):
        return data_type
    index_type = _INDEX_TYPES.get(values.indices.bits_per_value)
    most = min(_MAX_ITEMS, values.num_values // _ROWS_PER_ITEM)
    if index_type is None or values.items.num_values > most:
        return data_type
    return pa.dictionary(index_type, data_type)


def is_small_dictionary(array: pa.Array) -> bool:
    """Whether ``array`` is a dictionary of so few items that every batch may have them all."""
    return (
        pa.types.is_dictionary(array.type)
        and len(array.dictionary) <= _MAX_ITEMS
        and array.dictionary.nbytes <= _MAX_BYTES
        and _longest(array.dictionary) <= _LONGEST_ITEM
    )


def _longest(items: pa.Array) -> int:
    """Bytes of the longest string; 0 if there is none."""
    return pc.max(pc.binary_length(items)).as_py() or 0 if is_variable_width(items.type) else 0


def of_one_type(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """The same values, without dictionaries unless all arrays have such and of one type."""
    if len({array.type for array in arrays}) < 2:
        return arrays
    return [spread_out(array) if pa.types.is_dictionary(array.type) else array for array in arrays]


def spread_out(array: pa.DictionaryArray) -> pa.Array:
    """The items that the indices of ``array`` name."""
    used = array.indices.drop_null() if array.null_count else array.indices
    require_memory_for_items(array.dictionary, plain_numbers(used))
    try:
        return take_items(array.dictionary, array.indices)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise BatchTooLargeError from error

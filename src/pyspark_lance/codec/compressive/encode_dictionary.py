"""Writing dictionaries: the distinct values of a page as a block, the values as indices.

Source: file-format.md sections 6.2, 6.5, 11 and 12.4.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.arrow_values import (
    bits_per_value,
    boolean_values,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)
from pyspark_lance.codec.compressive.encode_fixed_width import flat
from pyspark_lance.codec.compressive.encode_variable_width import variable, variable_block
from pyspark_lance.codec.structural.mini_block_writer import DictionaryBlock

MIN_VALUES = 100
MAX_ITEMS = 1 << 16
_SAMPLE = 4096
_GAIN = 0.8


def dictionary_block(items: pa.Array) -> DictionaryBlock:
    """The values of a dictionary, none of them null."""
    kind = items.type
    if is_variable_width(kind):
        offsets, content = variable_width_values(items, None)
        encoding = variable(offsets.itemsize * 8)
        return DictionaryBlock(encoding, variable_block(offsets, content), len(items))
    if pa.types.is_boolean(kind):
        bits = np.packbits(boolean_values(items, None), bitorder="little")
        return DictionaryBlock(flat(1), bits.tobytes(), len(items))
    values = fixed_width_values(items, None)
    return DictionaryBlock(flat(bits_per_value(kind)), values.tobytes(), len(items))


def worth_a_dictionary(values: pa.Array, plain_bytes: float) -> pa.DictionaryArray | None:
    """The values as a dictionary array if that saves a fifth, judged by a sample first.

    Args:
        values: None of them null, or the nulls do not matter.
        plain_bytes: What the page would take otherwise.
    """
    count = len(values)
    if count < MIN_VALUES or _estimated_items(values) > min(MAX_ITEMS, count // 2):
        return None
    encoded = pc.dictionary_encode(values)
    num_items = len(encoded.dictionary)
    if num_items > min(MAX_ITEMS, count // 2):
        return None
    index_bytes = count * max(1, (num_items - 1).bit_length()) / 8
    if index_bytes + encoded.dictionary.nbytes >= _GAIN * plain_bytes:
        return None
    return encoded


def _estimated_items(values: pa.Array) -> float:
    """How many distinct values there may be, from evenly spaced ones."""
    count = len(values)
    if count <= 2 * _SAMPLE:
        return 0  # counting them all costs no more
    positions = np.linspace(0, count - 1, _SAMPLE).astype(np.int64)
    distinct = len(pc.unique(values.take(pa.array(positions))))
    repeated = _SAMPLE - distinct
    # Of n draws from d equal chances about n * n / 2d repeat an earlier one.
    return max(distinct, _SAMPLE * _SAMPLE / (2 * repeated)) if repeated else float(count)


def compact(array: pa.DictionaryArray) -> pa.DictionaryArray:
    """Drops the items that no index names, if the dictionary is longer than the array."""
    if len(array.dictionary) <= max(len(array), MIN_VALUES):
        return array
    indices = array.indices
    used = pc.drop_null(pc.unique(indices))
    position_of = np.zeros(len(array.dictionary), np.int64)
    position_of[used.to_numpy()] = np.arange(len(used))
    moved = pa.array(position_of).cast(indices.type).take(indices)
    return pa.DictionaryArray.from_arrays(moved, array.dictionary.take(used))


def index_values(
    array: pa.DictionaryArray, nulls: NDArray[np.bool_] | None
) -> NDArray[np.unsignedinteger]:
    """The indices as unsigned integers, 0 where the value does not matter."""
    return fixed_width_values(array.indices, nulls)

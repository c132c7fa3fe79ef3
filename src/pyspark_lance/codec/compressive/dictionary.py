"""Dictionary: indices into items that are stored once per page.

Source: docs/format/file-format.md, section 6.2.
"""

from __future__ import annotations

import numpy as np

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.compressive.bit_packing import WORD_TYPES
from pyspark_lance.codec.values import DictionaryValues, FixedWidthValues, Values


def combine_dictionary(indices: Values, items: Values) -> DictionaryValues:
    """Indices with their items, every index checked.

    An index at a null slot must be in range as well; writers put 0 there.

    Raises:
        CorruptFileError: An index is out of range or no integer.
    """
    require(isinstance(indices, FixedWidthValues), "dictionary indices are not integers")
    assert isinstance(indices, FixedWidthValues)
    bits = indices.bits_per_value
    require(bits in WORD_TYPES, f"dictionary indices of {bits} bits are not allowed")
    numbers = indices.buffer.view(WORD_TYPES[bits])[: indices.num_values]
    if len(numbers):
        highest = int(np.max(numbers))
        count = items.num_values
        require(highest < count, f"a dictionary index is {highest}, there are {count} items")
    return DictionaryValues(indices.num_values, indices, items)

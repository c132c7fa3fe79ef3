"""Membership tests of values in a set.

Join keys are often many and close to each other.  A bitmap over the range of the numbers is 6 to
14 times as fast as Arrow's hash table.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.plain_values import numbers_with_default, plain_array, plain_numbers

# A flag takes a byte; all are initialized again for each batch.
_FLAGS_PER_VALUE = 8
_FEWEST_VALUES = 256


def is_in(values: pa.Array, wanted: pa.Array) -> pa.BooleanArray:
    """Return whether each of ``values`` is one of ``wanted``, which has no null; false for null.

    Both are of one type; floats are compared by their bits.
    """
    flags = _bitmap(len(values), wanted)
    if flags is None:
        return pc.is_in(values, value_set=wanted, skip_nulls=True)
    least, is_wanted = flags
    numbers = numbers_with_default(least, values.view(_INTEGERS.get(values.type, values.type)))
    # Values outside of the range and nulls map to an end, which no wanted value has.
    places = np.clip(numbers, least, least + len(is_wanted) - 1) - least
    return plain_array(is_wanted[places])


_INTEGERS = {pa.date32(): pa.int32()}


def _bitmap(num_values: int, wanted: pa.Array) -> tuple[int, NDArray[np.bool_]] | None:
    """Return the number of the first flag, and the flags; None if a bitmap is unsuitable.

    The first and the last flag are of numbers that are not wanted.
    """
    kind = _INTEGERS.get(wanted.type, wanted.type)
    if not len(wanted) or num_values < _FEWEST_VALUES or kind not in (pa.int32(), pa.int64()):
        return None
    numbers = plain_numbers(wanted.view(kind))
    least, largest = int(numbers.min()) - 1, int(numbers.max()) + 1
    limits = np.iinfo(numbers.dtype)
    if least < limits.min or largest > limits.max:
        return None
    if largest - least >= _FLAGS_PER_VALUE * num_values:
        return None
    flags = np.zeros(largest - least + 1, np.bool_)
    flags[numbers - least] = True
    return least, flags

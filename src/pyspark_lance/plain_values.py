"""Scalars and arrays of plain values without ``pa.scalar`` and ``pa.array``.

Those make Arrow import pandas, to see whether they were given something of it. That takes a worker
longer than all its other imports, and Spark starts workers for each step of a query.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def plain_array(numbers: NDArray[Any]) -> pa.Array:
    """Zero-copy array over integers or floats that lie next to each other."""
    buffer = pa.py_buffer(np.ascontiguousarray(numbers))
    return pa.Array.from_buffers(pa.from_numpy_dtype(numbers.dtype), len(numbers), [None, buffer])


def plain_scalar(value: Any, data_type: pa.DataType) -> pa.Scalar:
    """As ``pa.scalar(value, data_type)``, which it calls for what is not plain.

    Raises:
        pa.ArrowInvalid, pa.ArrowTypeError, OverflowError: The type does not hold the value.
        UnicodeEncodeError: A string is not valid Unicode.
    """
    if value is None:
        return pa.nulls(1, data_type)[0]
    if isinstance(value, bool) and data_type == pa.bool_():
        return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(bytes([value]))])[0]
    if isinstance(value, str) and data_type == pa.string():
        return single_value(value.encode(), data_type)[0]
    if type(value) is int and pa.types.is_integer(data_type):
        dtype = np.dtype(str(data_type))
        if np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:
            return plain_array(np.array([value], dtype))[0]
    if type(value) is float and data_type == pa.float64():
        return plain_array(np.array([value]))[0]
    if isinstance(value, Decimal) and pa.types.is_decimal128(data_type):
        return _decimal(value, data_type)
    return pa.scalar(value, data_type)


def _decimal(value: Decimal, data_type: pa.DataType) -> pa.Scalar:
    sign, digits, exponent = value.as_tuple()
    zeros = exponent + data_type.scale if isinstance(exponent, int) else -1
    if zeros < 0 or len(digits) + zeros > data_type.precision:
        return pa.scalar(value, data_type)
    number = int("".join(map(str, digits))) * 10**zeros * (-1 if sign else 1)
    words = number.to_bytes(16, "little", signed=True)
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(words)])[0]


def single_value(content: bytes | pa.Buffer | None, data_type: pa.DataType) -> pa.Array:
    """One string or binary value, or null, of a type with offsets of 32 bits."""
    validity = pa.py_buffer(b"\0") if content is None else None
    held = content if content is not None else b""
    ends = pa.py_buffer(np.array([0, len(held)], np.int32))
    return pa.Array.from_buffers(data_type, 1, [validity, ends, pa.py_buffer(held)])

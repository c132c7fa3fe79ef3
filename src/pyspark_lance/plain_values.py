"""Conversion of plain values to and from Arrow without ``pa.scalar`` and ``pa.array``.

Those functions import pandas to check whether an argument is a pandas object. That takes longer
than all other imports of a worker, and Spark starts workers for each stage of a query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

_FLOATS: dict[pa.DataType, np.dtype[Any]] = {
    pa.float16(): np.dtype(np.float16),
    pa.float32(): np.dtype(np.float32),
    pa.float64(): np.dtype(np.float64),
}
# Types supported by ``single_value``.
_SINGLE_VALUES = frozenset((pa.string(), pa.binary(), pa.large_string(), pa.large_binary()))


def plain_dtype(data_type: pa.DataType) -> np.dtype[Any]:
    """Return the dtype of an integer, float or boolean type.

    ``to_pandas_dtype`` of Arrow 18 and 19 imports pandas for any type.
    """
    return _FLOATS.get(data_type) or np.dtype(str(data_type))


def plain_array(numbers: NDArray[Any], missing: NDArray[np.bool_] | None = None) -> pa.Array:
    """Return an array of integers, floats or booleans, zero-copy except for booleans.

    ``numbers``: shape (n,). ``missing``: where the array is null, shape (n,); None for no nulls.
    """
    if numbers.dtype == np.bool_:
        data_type, values = pa.bool_(), _bits(numbers)
    else:
        data_type = pa.from_numpy_dtype(numbers.dtype)
        values = pa.py_buffer(np.ascontiguousarray(numbers))
    validity = None if missing is None or not missing.any() else _bits(~missing)
    return pa.Array.from_buffers(data_type, len(numbers), [validity, values])


def _bits(flags: NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(flags, bitorder="little"))


def plain_numbers(array: pa.Array) -> NDArray[Any]:
    """Return the values of an array of integers, floats or booleans without nulls; shape (n,).

    Zero-copy and read-only, except for booleans.
    """
    assert not array.null_count
    values = array.buffers()[1]
    end = array.offset + len(array)
    if pa.types.is_boolean(array.type):
        bits = np.frombuffer(values, np.uint8) if values else np.empty(0, np.uint8)
        return np.unpackbits(bits, count=end, bitorder="little")[array.offset :].view(np.bool_)
    dtype = plain_dtype(array.type)
    numbers = np.frombuffer(values, dtype, count=end) if values else np.empty(0, dtype)
    return numbers[array.offset :]


def numbers_with_default(missing: int | bool, array: pa.Array) -> NDArray[Any]:
    """Return the values of an integer or boolean array, with ``missing`` for nulls; shape (n,)."""
    if array.null_count:
        array = array.fill_null(plain_scalar(missing, array.type))
    return plain_numbers(array)


def plain_values(values: Sequence[Any], data_type: pa.DataType) -> pa.Array:
    """Return ``pa.array(values, data_type)`` for the non-null constants of a list."""
    if not values:
        return pa.nulls(0, data_type)
    kinds = set(map(type, values))
    if kinds == {int} and pa.types.is_integer(data_type):
        limits = np.iinfo(plain_dtype(data_type))
        if limits.min <= min(values) and max(values) <= limits.max:
            return plain_array(np.array(values, limits.dtype))
    if kinds == {float} and data_type == pa.float64():
        return plain_array(np.array(values))
    if (kinds, data_type) in (({str}, pa.string()), ({bytes}, pa.binary())):
        texts = [value.encode() if isinstance(value, str) else value for value in values]
        ends = np.cumsum([0, *map(len, texts)])
        if ends[-1] < 1 << 31:
            parts = (ends.astype(np.int32), b"".join(texts))
            return pa.Array.from_buffers(
                data_type, len(texts), [None, *(pa.py_buffer(part) for part in parts)]
            )
    return pa.array(values, data_type)


def plain_scalar(value: Any, data_type: pa.DataType) -> pa.Scalar:
    """Return ``pa.scalar(value, data_type)``, which it calls only if necessary."""
    if value is None:
        return pa.nulls(1, data_type)[0]
    if isinstance(value, bool) and data_type == pa.bool_():
        return plain_array(np.array([value]))[0]
    if isinstance(value, str) and data_type in (pa.string(), pa.large_string()):
        return single_value(value.encode(), data_type)[0]
    if isinstance(value, bytes) and data_type in (pa.binary(), pa.large_binary()):
        return single_value(value, data_type)[0]
    if type(value) is int and pa.types.is_integer(data_type):
        dtype = plain_dtype(data_type)
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
    """Return an array of one string or binary value, or null; not of a view type."""
    validity = pa.py_buffer(b"\0") if content is None else None
    held = content if content is not None else b""
    is_large = data_type in (pa.large_string(), pa.large_binary())
    ends = pa.py_buffer(np.array([0, len(held)], np.int64 if is_large else np.int32))
    return pa.Array.from_buffers(data_type, 1, [validity, ends, pa.py_buffer(held)])


def pack_scalar(scalar: pa.Scalar) -> tuple[pa.DataType, Any]:
    """Return the type of a scalar and its bytes, the arguments of ``unpack_scalar``.

    Arrow pickles a scalar as a Python value, which supports neither years beyond 1 to 9999 nor
    nanoseconds.
    """
    kind, types = scalar.type, pa.types
    if not scalar.is_valid:
        return kind, None
    array = pa.repeat(scalar, 1)
    if types.is_primitive(kind) or types.is_decimal(kind) or kind in _SINGLE_VALUES:
        return kind, array.buffers()[-1].to_pybytes()
    return kind, array


def unpack_scalar(data_type: pa.DataType, content: Any) -> pa.Scalar:
    """Return the scalar that ``pack_scalar`` packed."""
    if content is None:
        return pa.nulls(1, data_type)[0]
    if isinstance(content, pa.Array):
        return content[0]
    if data_type in _SINGLE_VALUES:
        return single_value(content, data_type)[0]
    return pa.Array.from_buffers(data_type, 1, [None, pa.py_buffer(content)])[0]


def python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """Return the rows of a batch as Python values for display.

    Times outside of Python's range, or with nanoseconds, are returned as text.
    """
    columns = [_python_values(column) for column in batch.columns]
    names = batch.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _python_values(column: pa.Array) -> list[Any]:
    try:
        if column.type != pa.time64("ns"):
            values: list[Any] = column.to_pylist()
            return values
    except (OverflowError, ValueError):
        pass
    return list(map(_python_value, column))


def _python_value(scalar: pa.Scalar) -> Any:
    """Return a value for display, from a column that may exceed Python's range."""
    if not scalar.is_valid:
        return None
    if isinstance(scalar, pa.MapScalar):
        return [(_python_value(key), _python_value(item)) for key, item in _entries(scalar)]
    if isinstance(scalar, pa.StructScalar):
        return {name: _python_value(value) for name, value in scalar.items()}
    if isinstance(scalar, pa.ListScalar | pa.LargeListScalar | pa.FixedSizeListScalar):
        return list(map(_python_value, scalar.values))
    if scalar.type == pa.time64("ns"):
        return str(scalar.cast(pa.string()))
    try:
        return scalar.as_py()
    except (OverflowError, ValueError):
        if not isinstance(scalar, pa.Date32Scalar | pa.TimestampScalar):
            raise
    if isinstance(scalar, pa.Date32Scalar):
        return str(np.datetime64(scalar.value, "D"))
    digits = {"s": 0, "ms": 3, "us": 6, "ns": 9}[scalar.type.unit]
    second, part = divmod(scalar.value, 10**digits)
    text = str(np.datetime64(second, "s")).replace("T", " ")
    return f"{text}{f'.{part:0{digits}d}' if digits else ''}{'Z' if scalar.type.tz else ''}"


def _entries(scalar: pa.MapScalar) -> Iterator[tuple[pa.Scalar, pa.Scalar]]:
    entries = scalar.values
    return zip(entries.field(0), entries.field(1), strict=True)

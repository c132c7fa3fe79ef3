"""The order of values in index files: nulls first, floats by total order.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.plain_values import plain_numbers


def has_order(data_type: pa.DataType) -> bool:
    """Return whether an index can sort values of a type as Lance does."""
    types = pa.types
    return bool(
        types.is_integer(data_type)
        or types.is_floating(data_type)
        or types.is_boolean(data_type)
        or types.is_decimal128(data_type)
        or types.is_decimal256(data_type)
        or types.is_temporal(data_type)
        or types.is_fixed_size_binary(data_type)
        or is_variable_width(data_type)
    )


def sort_order(values: pa.Array, *, stable: bool = False) -> NDArray[np.int64]:
    """Return the permutation that sorts the values; shape (n,).

    ``stable``: whether equal values keep their order; nulls always do.
    """
    if not values.null_count:
        return _order_of(values, stable)
    is_null = np.asarray(values.is_null())
    places = np.flatnonzero(~is_null)
    order = _order_of(values.drop_null(), stable)
    return np.concatenate([np.flatnonzero(is_null), places[order]])


def comparable(values: pa.Array) -> list[NDArray[Any]]:
    """Return integer sort keys of the values, lexicographic, shape (n,) each.

    Values that are not numbers are ranked within this array.
    """
    missing = np.asarray(values.is_null()) if values.null_count else None
    if _is_numeric(values.type):
        bare = [None, *values.buffers()[1:]]
        present = pa.Array.from_buffers(values.type, len(values), bare, offset=values.offset)
        numbers = _as_numbers(present)
    else:
        encoded = values.dictionary_encode()
        places = np.empty(len(encoded.dictionary), np.int64)
        places[sort_order(encoded.dictionary)] = np.arange(len(places))
        codes = encoded.indices if missing is None else pc.fill_null(encoded.indices, 0)
        numbers = places[plain_numbers(codes)] if len(places) else np.zeros(len(values), np.int64)
    assert numbers is not None, "values are numbers, or have become some"
    return [numbers] if missing is None else [~missing, np.where(missing, 0, numbers)]


def is_in_order(values: pa.Array) -> bool:
    """Return whether nulls come first, followed by ascending values, possibly repeated."""
    present = values.slice(values.null_count)
    if present.null_count:
        return False
    if len(present) < 2:
        return True
    numbers = _as_numbers(present)
    if numbers is not None:
        return bool((numbers[1:] >= numbers[:-1]).all())
    return bool(pc.all(pc.less_equal(present[:-1], present[1:])).as_py())


def begins_run(values: pa.Array) -> NDArray[np.bool_]:
    """Return whether each of sorted values differs from the previous one; shape (n,).

    Floats are compared bitwise; nulls are equal.
    """
    begins = np.ones(len(values), np.bool_)
    if len(values) < 2:
        return begins
    num_nulls = values.null_count
    begins[1:num_nulls] = False
    present = values.slice(num_nulls)
    if len(present) > 1:
        numbers = _as_numbers(present)
        if numbers is not None:
            begins[num_nulls + 1 :] = numbers[1:] != numbers[:-1]
        else:
            differ = pc.not_equal(present[1:], present[:-1])
            begins[num_nulls + 1 :] = np.asarray(differ)
    return begins


def total_order(values: pa.Array) -> NDArray[np.signedinteger[Any]]:
    """Map floats without nulls to integers in total order; shape (n,)."""
    numbers = plain_numbers(values)
    bits = numbers.view(np.dtype(f"i{numbers.dtype.itemsize}"))
    return np.where(bits < 0, bits ^ np.iinfo(bits.dtype).max, bits)


def _order_of(values: pa.Array, stable: bool) -> NDArray[np.int64]:
    numbers = _as_numbers(values)
    if numbers is not None:
        return np.argsort(numbers, kind="stable" if stable else None)
    return np.asarray(pc.sort_indices(values)).astype(np.int64)


def _is_numeric(data_type: pa.DataType) -> bool:
    types = pa.types
    return bool(
        types.is_temporal(data_type)
        or types.is_floating(data_type)
        or types.is_integer(data_type)
        or types.is_boolean(data_type)
    )


def _as_numbers(values: pa.Array) -> NDArray[Any] | None:
    """Return values without nulls as ordered numbers; None for other types."""
    if pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    if pa.types.is_floating(values.type):
        return total_order(values)
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        return plain_numbers(values)
    return None

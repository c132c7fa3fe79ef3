"""Safe casts of Arrow arrays of any type.

pyarrow (26 and others) crashes the process when it casts all-null lists whose items have no buffer,
as Spark sends them, to a fixed-size list. With dictionary items it creates invalid indices, and it
rejects a slice because of a value outside of the slice or below a null. So nested arrays are cast
recursively, restricted to their valid values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.row_selection import take_values
from pyspark_lance.format.plain_types import rebase_offsets
from pyspark_lance.plain_values import numbers_with_default, plain_numbers

_ConvertPart = Callable[[pa.Array, pa.DataType, str], pa.Array]
"""Converts a child array to a type; the name is its path in the column."""


def arrow_cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return ``array.cast(target)`` without the risk of a crash."""
    if array.type.equals(target):
        return array
    if not _are_of_one_kind(array.type, target):
        return array.cast(target)
    return cast_parts(array, target, lambda part, kind, _: arrow_cast(part, kind))


def cast_parts(array: pa.Array, target: pa.DataType, convert: _ConvertPart) -> pa.Array:
    """Convert each child of ``array`` to its type in ``target``, which has the same nesting.

    Struct fields are matched by name; missing ones are null.
    """
    if pa.types.is_fixed_size_list(target):
        return _fixed_size_lists(array, target, convert)
    if pa.types.is_struct(target):
        return _structs(array, target, convert)
    return (
        _maps(array, target, convert) if pa.types.is_map(target) else _lists(array, target, convert)
    )


def is_list(data_type: pa.DataType) -> bool:
    """Return whether values are lists, of variable or fixed size."""
    return (
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )


def _are_of_one_kind(left: pa.DataType, right: pa.DataType) -> bool:
    return any(
        is_kind(left) and is_kind(right)
        for is_kind in (is_list, pa.types.is_map, pa.types.is_struct)
    )


def _lists(array: pa.Array, target: pa.DataType, convert: _ConvertPart) -> pa.Array:
    wide = pa.types.is_large_list(target)
    lengths = numbers_with_default(0, array.value_lengths())
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = np.zeros(len(array) + 1, dtype=np.int64 if wide else np.int32)
    if not wide and len(ends) and ends[-1] >= 1 << 31:
        raise pa.ArrowInvalid(f"{ends[-1]} items are more than one array of {target} holds")
    offsets[1:] = ends
    items = convert(array.flatten(), target.value_type, "item")
    return pa.Array.from_buffers(
        target, len(array), [_validity(array), pa.py_buffer(offsets)],
        null_count=array.null_count, children=[items],
    )  # fmt: skip


def _fixed_size_lists(
    array: pa.Array, target: pa.FixedSizeListType, convert: _ConvertPart
) -> pa.Array:
    size = target.list_size
    valid = plain_numbers(array.is_valid())
    lengths = numbers_with_default(size, array.value_lengths())
    unlike = np.flatnonzero(valid & (lengths != size))
    if len(unlike):
        raise pa.ArrowInvalid(f"a list has {lengths[unlike[0]]} items, not {size}")
    items = convert(array.flatten(), target.value_type, "item")
    if array.null_count:
        items = _scatter(items, np.repeat(valid, size))
    return pa.Array.from_buffers(
        target, len(array), [_validity(array)], null_count=array.null_count, children=[items]
    )


def _scatter(values: pa.Array, is_there: NDArray[np.bool_]) -> pa.Array:
    """Return an array with ``values`` at the true positions, in order, and null elsewhere."""
    if not len(values):
        return pa.nulls(len(is_there), values.type)
    places = np.maximum(np.cumsum(is_there) - 1, 0)
    return take_values(values, pa.array(places, mask=~is_there))


def _maps(array: pa.MapArray, target: pa.MapType, convert: _ConvertPart) -> pa.Array:
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    keys = convert(array.keys.slice(first, last - first), target.key_type, "key")
    values = convert(array.items.slice(first, last - first), target.item_type, "value")
    entries = pa.StructArray.from_arrays(
        [keys, values], fields=[target.key_field, target.item_field]
    )
    return pa.Array.from_buffers(
        target, len(array), [_validity(array), rebase_offsets(offsets, first)],
        null_count=array.null_count, children=[entries],
    )  # fmt: skip


def _structs(array: pa.StructArray, target: pa.StructType, convert: _ConvertPart) -> pa.Array:
    children, parts = [], array.flatten()  # null where the struct is
    for member in target:
        position = array.type.get_field_index(member.name)
        children.append(
            pa.nulls(len(array), member.type)
            if position < 0
            else convert(parts[position], member.type, member.name)
        )
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of ``array``, starting at bit 0."""
    return array.is_valid().buffers()[1] if array.null_count else None

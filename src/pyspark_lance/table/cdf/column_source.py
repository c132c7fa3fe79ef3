"""Columns of an earlier version, converted to the type of a later one.

Columns and their parts, at any depth, are paired by identity; what a version lacks
reads as null, and so does every single value that the requested type cannot represent.

Source: docs/format/table-format.md, section 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_located, logical_field
from pyspark_lance.plain_values import numbers_with_default, plain_dtype, plain_numbers
from pyspark_lance.table.rows.conform import arrow_cast

# What the texts of numbers are made of: all that can be read as one is among these.
_INTEGER_TEXT = r"^[-+]?(0[xX][0-9a-fA-F]+|[0-9]+)$"
_NUMBER_TEXT = r"^\s*[-+]?([0-9.]+([eE][-+]?[0-9]+)?|(?i:nan|inf|infinity))\s*$"
_TIME_TEXT = r"^[-+]?[0-9]"
_FLAG_TEXT = r"^(?i:true|false|[01])$"


def cast_values(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """``values`` as ``data_type``; those that it does not hold exactly are null."""
    if values.type.equals(data_type):
        return values
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_struct(data_type) and pa.types.is_struct(values.type):
        return _cast_struct(values, data_type)
    try:
        return arrow_cast(values, data_type)
    except (pa.ArrowNotImplementedError, pa.ArrowTypeError):
        return pa.nulls(len(values), data_type)
    except pa.ArrowInvalid:
        if isinstance(values, pa.DictionaryArray):
            values = values.dictionary_decode()
        return _cast_distinct(_null_uncastable(values, data_type), data_type)


def _cast_struct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Members by name."""
    names = [member.name for member in values.type]
    members = [
        cast_values(values.field(names.index(member.name)), member.type)
        if member.name in names
        else pa.nulls(len(values), member.type)
        for member in data_type
    ]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(data_type), mask=mask)


def _null_uncastable(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Set values to null that the type cannot represent, as far as one check shows."""
    types, own = pa.types, values.type
    if types.is_string(own) or types.is_large_string(own):
        if types.is_integer(data_type):
            hopeful = pc.match_substring_regex(values, _INTEGER_TEXT)
        elif types.is_floating(data_type) or types.is_decimal(data_type):
            hopeful = pc.match_substring_regex(values, _NUMBER_TEXT)
        elif types.is_boolean(data_type):
            hopeful = pc.match_substring_regex(values, _FLAG_TEXT)
        elif types.is_temporal(data_type):
            hopeful = pc.match_substring_regex(values, _TIME_TEXT)
        else:
            return values
    elif types.is_integer(data_type) and (types.is_integer(own) or types.is_floating(own)):
        bounds = np.iinfo(plain_dtype(data_type))
        low, high = (_bound(int(bound), own) for bound in (bounds.min, bounds.max))
        hopeful = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
        if types.is_floating(own):
            hopeful = pc.and_(hopeful, pc.equal(pc.trunc(values), values))
    elif (types.is_integer(own) and types.is_floating(data_type) and data_type != pa.float16()) or (
        types.is_timestamp(own) and types.is_timestamp(data_type)
    ):
        back = values.cast(data_type, safe=False).cast(own, safe=False)
        hopeful = pc.equal(back, values)
    else:
        return values
    return pc.if_else(hopeful, values, pa.scalar(None, own))


def _bound(number: int, data_type: pa.DataType) -> pa.Scalar:
    """The number in the type, or the nearest one that it has on the way to 0."""
    if pa.types.is_floating(data_type):
        nearest = np.array([number]).astype(plain_dtype(data_type))[0]
        if abs(int(nearest)) > abs(number):
            nearest = np.nextafter(nearest, nearest.dtype.type(0))
        return pa.scalar(nearest, data_type)
    bounds = np.iinfo(plain_dtype(data_type))
    return pa.scalar(max(int(bounds.min), min(int(bounds.max), number)), data_type)


def _cast_distinct(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast each value once, however often it occurs."""
    if values.type.num_fields:
        return _cast_some(values, data_type)
    encoded = values.dictionary_encode()
    return _cast_some(encoded.dictionary, data_type).take(encoded.indices)


def _cast_some(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Cast by halves, so that only values that cannot be cast become null."""
    try:
        return arrow_cast(values, data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
        if len(values) <= 1:
            return pa.nulls(len(values), data_type)
    half = len(values) // 2
    parts = [_cast_some(part, data_type) for part in (values.slice(0, half), values.slice(half))]
    return pa.concat_arrays(parts)


Find = Callable[[Field, Sequence[Field]], Field | None]
"""Which of some stored fields is the column that is shown."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Source of the values of a column, or of a part of one."""

    shown: Field
    read: Field | None  # What is read for it, in a logical view too; None if there is nothing.
    # For each child of ``shown`` where it comes from; empty where there is nothing to distinguish
    # below.
    parts: tuple[ColumnSource, ...] = ()

    def column(self, array: pa.Array | None, num_rows: int) -> pa.Array:
        """The column, from the array that was read for ``read``."""
        if array is None:
            return pa.nulls(num_rows, self.shown.to_arrow().type)
        return array if self.read is self.shown else _as_shown(array, self)

    def with_blobs(self) -> ColumnSource:
        """The same with the bytes of blobs instead of where they are."""
        return ColumnSource(
            logical_field(self.shown, binary_blobs=True),
            None if self.read is None else logical_field(self.read, binary_blobs=True),
            tuple(part.with_blobs() for part in self.parts),
        )


def column_source(shown: Field, stored: Sequence[Field], find: Find) -> ColumnSource:
    """Return the source of a column.

    ``find``: returns the stored field of a column, and the stored part of each of its parts.
    """
    return _source(shown, stored, find, whole=False)


def _source(shown: Field, stored: Sequence[Field], find: Find, *, whole: bool) -> ColumnSource:
    own = find(shown, stored)
    if own is None:
        return ColumnSource(shown, None)
    as_bytes = shown.is_blob and not shown.children
    read = logical_field(own, binary_blobs=as_bytes, located=is_located(shown))
    if not _have_equal_types(shown, own):
        return ColumnSource(shown, shown if read == shown else read)
    # Not every file gives single members of these.
    whole = whole or own.is_packed or not (own.is_struct or own.is_list)
    parts = tuple(_source(child, own.children, find, whole=whole) for child in shown.children)
    there = tuple(part.read for part in parts if part.read is not None)
    others = (_source(child, own.children, find, whole=whole) for child in shown.left_out)
    left_out = tuple(other.read for other in others if other.read is not None)
    if not there and not left_out:
        # The members that the feed has say whether there is a struct.
        return ColumnSource(shown, None)
    if not whole:
        read = replace(own, children=there or left_out[:1], left_out=left_out)
    if read == shown:
        return ColumnSource(shown, shown)
    return ColumnSource(shown, read, parts)


def _have_equal_types(left: Field, right: Field) -> bool:
    """Return whether both have parts of one kind that can be distinguished."""
    if left.is_blob or right.is_blob or not left.children or not right.children:
        return False
    kinds = [(f.is_struct, f.is_list, f.is_map, f.is_fixed_size_list) for f in (left, right)]
    return kinds[0] == kinds[1] and (
        not left.is_fixed_size_list or left.logical_type == right.logical_type
    )


def _as_shown(values: pa.Array, source: ColumnSource) -> pa.Array:
    data_type = source.shown.to_arrow().type
    if not source.parts:
        return cast_values(values, data_type)
    if source.shown.is_struct:
        return _struct(values, source, data_type)
    if source.shown.is_map:
        return _map(values, source.parts[0], data_type)
    if source.shown.is_fixed_size_list:
        size = data_type.list_size
        items = values.values.slice(values.offset * size, len(values) * size)
        items = source.parts[0].column(items, len(items))
        mask = pc.is_null(values) if values.null_count else None
        return pa.FixedSizeListArray.from_arrays(items, type=data_type, mask=mask)
    lengths = numbers_with_default(0, pc.list_value_length(values))
    items = values.flatten()
    return _lists(data_type, lengths, _validity(values), source.parts[0].column(items, len(items)))


def _struct(values: pa.Array, source: ColumnSource, data_type: pa.DataType) -> pa.Array:
    assert source.read is not None
    place = {child.id: index for index, child in enumerate(source.read.children)}
    members = [
        part.column(None if part.read is None else values.field(place[part.read.id]), len(values))
        for part in source.parts
    ]
    mask = pc.is_null(values) if values.null_count else None
    return pa.StructArray.from_arrays(members, fields=list(data_type), mask=mask)


def _map(values: pa.Array, entries: ColumnSource, data_type: pa.DataType) -> pa.Array:
    offsets = plain_numbers(values.offsets).astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    pairs = [values.keys.slice(first, last - first), values.items.slice(first, last - first)]
    shown = entries.column(pa.StructArray.from_arrays(pairs, names=["key", "value"]), last - first)
    valid = np.asarray(values.is_valid())
    untold = np.flatnonzero(np.asarray(shown.field(0).is_null()))
    # A key is never null: a map with an unknown key is unknown.
    valid[np.searchsorted(offsets - first, untold, side="right") - 1] = False
    return _lists(data_type, np.diff(offsets), valid, shown)


def _lists(
    data_type: pa.DataType, lengths: NDArray[np.integer], valid: NDArray[np.bool_], items: pa.Array
) -> pa.Array:
    """Lists or maps of ``data_type`` with these items, end to end."""
    wide = pa.types.is_large_list(data_type)
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64 if wide else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(
        data_type, len(lengths), [bits, pa.py_buffer(offsets)], children=[items]
    )


def _validity(array: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(array.is_valid())

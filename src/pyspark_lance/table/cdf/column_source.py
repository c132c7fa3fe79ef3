"""Where a version has the values of a column that a later one shows, and how they become its own.

Columns and their parts, at any depth, are paired by what they are; what a version does not have
reads as null, and so does every single value that the wanted type does not hold.

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
from pyspark_lance.plain_values import numbers_with_default, plain_numbers
from pyspark_lance.table.cdf.cast_values import cast_values

Find = Callable[[Field, Sequence[Field]], Field | None]
"""Which of some stored fields is the column that is shown."""


@dataclass(frozen=True, slots=True)
class ColumnSource:
    """Where the values of a column, or of a part of one, come from."""

    shown: Field
    read: Field | None  # What is read for it, in a logical view too; None if there is nothing.
    # For each child of ``shown`` where it comes from; empty where there is nothing to distinguish
    # below.
    parts: tuple[ColumnSource, ...] = ()

    def column(self, array: pa.Array | None, num_rows: int) -> pa.Array:
        """The column, from what was read for ``read``."""
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
    """Where the column comes from.

    ``find``: returns which of them it is, and which part of that each part is.
    """
    return _source(shown, stored, find, whole=False)


def _source(shown: Field, stored: Sequence[Field], find: Find, *, whole: bool) -> ColumnSource:
    own = find(shown, stored)
    if own is None:
        return ColumnSource(shown, None)
    as_bytes = shown.is_blob and not shown.children
    read = logical_field(own, binary_blobs=as_bytes, located=is_located(shown))
    if not _are_alike(shown, own):
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


def _are_alike(left: Field, right: Field) -> bool:
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

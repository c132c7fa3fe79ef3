"""Rows of two batches with different values, also of blobs; vectorised, pure.

Null equals null and NaN equals NaN, as when asking whether a row has changed; 0.0 and -0.0 differ.

A blob may be given by a descriptor of where its bytes are. A descriptor says nothing beyond its
file: other bytes may be at the same offset of another file, and the same bytes at another offset.
So bytes are compared, of the rows whose other columns are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.row_selection import take_values
from pyspark_lance.datafile.blob_values import EXTERNAL
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_blob_descriptor
from pyspark_lance.plain_values import numbers_with_default, plain_array, plain_numbers
from pyspark_lance.table.rows.convert_parts import convert_parts, holds_part

_BITS_OF_FLOAT: dict[pa.DataType, type[np.unsignedinteger[Any]]] = {
    pa.float16(): np.uint16,
    pa.float32(): np.uint32,
    pa.float64(): np.uint64,
}
_Mask = NDArray[np.bool_]


def differing_values(old: pa.Array, new: pa.Array) -> _Mask:
    """Return which values differ, shape (len(old),); the arrays have one type and length."""
    if not len(old) or pa.types.is_null(old.type):
        return np.zeros(len(old), dtype=np.bool_)
    if isinstance(old, pa.ExtensionArray):
        old, new = old.storage, new.storage
    if isinstance(old, pa.DictionaryArray):
        old, new = old.dictionary_decode(), new.dictionary_decode()
    old_valid, new_valid = _validity(old), _validity(new)
    if old_valid is None and new_valid is None:
        return _differing_contents(old, new)
    every = np.ones(len(old), dtype=np.bool_)
    old_valid = every if old_valid is None else old_valid
    new_valid = every if new_valid is None else new_valid
    return (old_valid != new_valid) | (old_valid & new_valid & _differing_contents(old, new))


def _differing_contents(old: pa.Array, new: pa.Array) -> _Mask:
    """Compare as ``differing_values``; the result is undefined where a value is null."""
    data_type = old.type
    if pa.types.is_struct(data_type):
        rows_differ = np.zeros(len(old), dtype=np.bool_)
        for index in range(data_type.num_fields):
            rows_differ |= differing_values(old.field(index), new.field(index))
        return rows_differ
    if pa.types.is_fixed_size_list(data_type):
        size = data_type.list_size
        items = [part.values.slice(part.offset * size, len(part) * size) for part in (old, new)]
        by_list = differing_values(*items).reshape(len(old), size)
        return np.asarray(by_list.any(axis=1), dtype=np.bool_)
    if (
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_map(data_type)
    ):
        return _differing_lists(old, new)
    if data_type in _BITS_OF_FLOAT:
        left, right = (_numbers(part, _BITS_OF_FLOAT[data_type]) for part in (old, new))
        return np.asarray(left != right, dtype=np.bool_)
    return numbers_with_default(False, pc.not_equal(old, new))


def _differing_lists(old: pa.Array, new: pa.Array) -> _Mask:
    lengths, new_lengths = _lengths(old), _lengths(new)
    differs = lengths != new_lengths
    # Only lists of one length, and not of none, are compared item by item.
    chosen = np.flatnonzero(~differs & (lengths > 0))
    if len(chosen):
        indices = plain_array(chosen)
        items = [_items(take_values(part, indices)) for part in (old, new)]
        starts = np.concatenate(([0], np.cumsum(lengths[chosen])[:-1]))
        differs[chosen] = np.logical_or.reduceat(differing_values(*items), starts)
    return differs


def _lengths(lists: pa.Array) -> NDArray[np.int64]:
    """Items of each list; none of a null."""
    if pa.types.is_map(lists.type):
        offsets = plain_numbers(lists.offsets).astype(np.int64)
        lengths = np.diff(offsets)
        valid = _validity(lists)
        return lengths if valid is None else np.where(valid, lengths, 0)
    return numbers_with_default(0, pc.list_value_length(lists)).astype(np.int64)


def _items(lists: pa.Array) -> pa.Array:
    """The items of all lists, none of which is null, one after the other."""
    if not pa.types.is_map(lists.type):
        return lists.flatten()
    first, last = lists.offsets[0].as_py(), lists.offsets[-1].as_py()
    pairs = [lists.keys.slice(first, last - first), lists.items.slice(first, last - first)]
    return pa.StructArray.from_arrays(pairs, names=["key", "value"])


def _numbers(floats: pa.Array, bits: type[np.unsignedinteger[Any]]) -> NDArray[Any]:
    """The bits of each value, equal for every NaN."""
    # A null's bytes are anything; its answer is not looked at.
    width = np.dtype(bits).itemsize
    data = floats.buffers()[1]
    values = np.frombuffer(data, dtype=f"f{width}", count=len(floats), offset=floats.offset * width)
    is_nan = np.isnan(values)
    numbers = values.view(bits)
    return np.where(is_nan, bits(~bits(0)), numbers) if is_nan.any() else numbers


def _validity(array: pa.Array) -> _Mask | None:
    """Return which values are not null; None for all."""
    if not array.null_count:
        return None
    return plain_numbers(pc.is_valid(array))


InOneFile = Callable[[int], _Mask]
"""Of which rows the blobs of a column, given by its number, are in the same file on both sides."""

ReadBytes = Callable[[int, NDArray[np.intp]], tuple[pa.Array, pa.Array]]
"""Both sides of some rows of a column, with the bytes of its blobs."""


def differing_rows(
    old: pa.RecordBatch,
    new: pa.RecordBatch,
    fields: Sequence[Field],
    in_one_file: InOneFile,
    read_bytes: ReadBytes,
    batch_bytes: int,
) -> _Mask:
    """Return which rows differ in some column, shape (num_rows,).

    ``new``: as many, with the same schema; ``batch_bytes``: about as many bytes of one side are
    read at a time.
    """
    differs = np.zeros(old.num_rows, dtype=np.bool_)
    blobs = [n for n, field in enumerate(fields) if holds_part(field, is_blob_descriptor)]
    size_of: dict[int, float] = {}
    for index, field in enumerate(fields):
        sides = [old.column(index), new.column(index)]
        if index in blobs:
            sizes = _Sizes()
            sides = [convert_parts(side, field, is_blob_descriptor, sizes) for side in sides]
            size_of[index] = sizes.total / max(1, 2 * len(differs))
            if not sizes.are_known:
                continue
        differs |= differing_values(*sides)
    for index in blobs:
        left, right = old.column(index), new.column(index)
        same = in_one_file(index) & ~differing_values(left, right)
        keys = [
            convert_parts(side, fields[index], is_blob_descriptor, _Reference(number))
            for number, side in enumerate((left, right))
        ]
        same |= ~differing_values(*keys)
        undecided = np.flatnonzero(~differs & ~same)
        step = max(1, int(batch_bytes / max(1.0, size_of[index])))
        for first in range(0, len(undecided), step):
            rows = undecided[first : first + step]
            differs[rows] = differing_values(*read_bytes(index, rows))
    return differs


class _Sizes:
    """Descriptors as the number of bytes that they refer to."""

    def __init__(self) -> None:
        self.total = 0
        self.are_known = True

    def __call__(self, descriptors: pa.Array, path: str) -> pa.Array:
        del path
        sizes = pc.struct_field(descriptors, "size")
        self.total += pc.sum(sizes).as_py() or 0
        if _is_of_second_kind(descriptors):
            # A reference without a size is to all that the object holds.
            is_open = pc.and_(_is_external(descriptors), pc.equal(sizes, 0))
            self.are_known &= not pc.any(is_open).as_py()
        return sizes


class _Reference:
    """Descriptors as references outside of the table; all others differ from the other side."""

    def __init__(self, side: int) -> None:
        self._own = pa.scalar(str(side))

    def __call__(self, descriptors: pa.Array, path: str) -> pa.Array:
        del path
        own = pc.if_else(descriptors.is_valid(), self._own, pa.scalar(None, pa.string()))
        if not _is_of_second_kind(descriptors):
            return own
        parts = [
            pc.struct_field(descriptors, name).cast(pa.string())
            for name in ("blob_id", "position", "size", "blob_uri")
        ]
        reference = pc.binary_join_element_wise(*parts, " ")
        return pc.if_else(pc.fill_null(_is_external(descriptors), False), reference, own)


def _is_of_second_kind(descriptors: pa.Array) -> bool:
    return bool(descriptors.type.get_field_index("kind") >= 0)


def _is_external(descriptors: pa.Array) -> pa.Array:
    return pc.equal(pc.struct_field(descriptors, "kind"), EXTERNAL)

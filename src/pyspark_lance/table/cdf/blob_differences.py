"""Which rows of two batches hold other values, where blobs are shown as where their bytes are.

A descriptor says nothing beyond its file: other bytes may lie at the same place of another one, and
the same bytes at another place.  So bytes are compared, of the rows that nothing else decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.datafile.blob_values import EXTERNAL
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_blob_descriptor
from pyspark_lance.table.cdf.row_differences import differing_values
from pyspark_lance.table.rows.convert_parts import convert_parts, holds_part

_Mask = NDArray[np.bool_]
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
    """Which rows differ in some column, shape (num_rows,).

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
    """Descriptors as the number of bytes that they stand for."""

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
    """Descriptors as what they refer to outside of the table; others equal none of another side."""

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

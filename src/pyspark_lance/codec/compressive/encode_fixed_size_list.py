"""Writing fixed-size lists of primitive values: vectors.

Source: docs/format/file-format.md, sections 6.3 and 6.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.arrow_values import bit_values, bits_per_value, fixed_width_values
from pyspark_lance.codec.chunk_segments import ChunkBuffer, fixed_size_segments
from pyspark_lance.codec.compressive.encode_fixed_width import chunk_log2, flat
from pyspark_lance.codec.value_chunks import ValueChunks
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


@dataclass(frozen=True, slots=True, eq=False)
class FixedSizeLists:
    """Lists of lists of values, taken apart."""

    num_rows: int
    bits_per_row: int  # Bits of the values of one outermost list.
    encoding: pb.CompressiveEncoding
    # For every level with null items, outermost first: one byte (0 or 1) per item, shape (rows,
    # items per row).
    validity: tuple[NDArray[np.uint8], ...]
    # The values: bytes, or zeros and ones if they are booleans; shape (rows, …).
    content: NDArray[np.uint8]
    is_boolean: bool


def take_apart(array: pa.Array, nulls: NDArray[np.bool_] | None) -> FixedSizeLists:
    """The parts of a fixed-size list array.

    ``array``: fixed-size lists, nested or not, of fixed-width values; ``nulls``: true where an
    outermost list does not matter.
    """
    num_rows, items_per_row, level = len(array), 1, array
    dimensions: list[int] = []
    validity: list[NDArray[np.uint8] | None] = []
    while pa.types.is_fixed_size_list(level.type):
        size = level.type.list_size
        level = level.values.slice(level.offset * size, len(level) * size)
        items_per_row *= size
        dimensions.append(size)
        validity.append(_validity(level, num_rows, nulls))
    encoding = flat(bits_per_value(level.type))
    for size, valid in zip(reversed(dimensions), reversed(validity), strict=True):
        encoding = pb.CompressiveEncoding(
            fixed_size_list=pb.FixedSizeList(
                items_per_value=size, values=encoding, has_validity=valid is not None
            )
        )
    is_boolean = pa.types.is_boolean(level.type)
    if is_boolean:
        content = bit_values(level.buffers()[1], level.offset, len(level))
    else:
        content = fixed_width_values(level, None).reshape(-1).view(np.uint8)
    bits_per_row = items_per_row * bits_per_value(level.type)
    return FixedSizeLists(
        num_rows=num_rows,
        bits_per_row=bits_per_row,
        encoding=encoding,
        validity=tuple(valid for valid in validity if valid is not None),
        content=content.reshape(num_rows, items_per_row if is_boolean else bits_per_row // 8),
        is_boolean=is_boolean,
    )


def _validity(
    items: pa.Array, num_rows: int, nulls: NDArray[np.bool_] | None
) -> NDArray[np.uint8] | None:
    """Which items are valid; None if all that matter are."""
    if items.null_count == 0 or num_rows == 0:
        return None
    valid = bit_values(items.buffers()[0], items.offset, len(items)).reshape(num_rows, -1)
    relevant = valid if nulls is None else valid[~nulls]
    return None if relevant.all() else valid


def list_chunks(lists: FixedSizeLists) -> ValueChunks:
    """Mini-block chunks: a validity bitmap per level that has nulls, then the values."""
    by_bit = bool(lists.validity) or lists.is_boolean
    # Eight rows are whole bytes, however many bits one has.
    log2_values = max(3 if by_bit else 1, chunk_log2(lists.bits_per_row / 8))
    buffers = [_bitmap_buffer(valid, log2_values) for valid in lists.validity]
    if lists.is_boolean:
        buffers.append(_bitmap_buffer(lists.content, log2_values))
    else:
        row_bytes = lists.content.shape[1]
        buffers.append(ChunkBuffer((fixed_size_segments(lists.content, row_bytes << log2_values),)))
    return ValueChunks(lists.encoding, log2_values, lists.num_rows, tuple(buffers))


def _bitmap_buffer(flags: NDArray[np.uint8], log2_values: int) -> ChunkBuffer:
    bits = np.packbits(flags.reshape(-1), bitorder="little")
    return ChunkBuffer((fixed_size_segments(bits, (flags.shape[1] << log2_values) // 8),))


def list_rows(lists: FixedSizeLists) -> NDArray[Any]:
    """Full-zip values, one row each: the validity of every level in whole bytes, the values."""
    content = lists.content
    if lists.is_boolean:
        content = np.packbits(content, axis=1, bitorder="little")
    if not lists.validity:
        return content
    bitmaps = [np.packbits(valid, axis=1, bitorder="little") for valid in lists.validity]
    return np.concatenate([*bitmaps, content], axis=1)

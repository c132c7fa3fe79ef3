"""FixedSizeList: every value is ``dimension`` items; lists of lists nest.

In chunks there is one validity bitmap per layer that has nulls, outermost first, then the items. In
full-zip pages every row carries its own bitmaps before its items.

Source: docs/format/file-format.md, sections 6.3 and 6.4 (8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import (
    ChunkBuffer,
    ChunkBuffers,
    ValueChunks,
    fixed_size_segments,
)
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    encoding_kind,
    flat_bits,
)
from pyspark_lance.codec.compressive.fixed_width import chunk_log2, flat, require_width
from pyspark_lance.codec.decode_memory import as_bytes
from pyspark_lance.codec.values import (
    FixedSizeListValues,
    FixedWidthValues,
    NullItems,
    NullValues,
    Values,
    bit_values,
    bits_per_value,
    fixed_width_values,
)
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

MAX_ITEMS = 1 << 31


@dataclass(frozen=True, slots=True)
class ListLayer:
    """One level of lists.

    ``dimension``: items per list; ``has_validity``: whether a bitmap has the validity of items.
    """

    dimension: int
    has_validity: bool


def items_per_row(layers: Sequence[ListLayer]) -> int:
    """Items of the innermost lists in one row."""
    items = 1
    for layer in layers:
        require(0 < layer.dimension < MAX_ITEMS, f"lists of {layer.dimension} items")
        items *= layer.dimension
        require(items < MAX_ITEMS, "lists of lists of impossibly many items")
    return items


def row_bytes(layers: Sequence[ListLayer], item_bits: int) -> tuple[int, int]:
    """Bytes of the bitmaps and of the items of one row of a full-zip page."""
    items_per_row(layers)
    validity, items = 0, 1
    for layer in layers:
        items *= layer.dimension
        validity += (items + 7) // 8 if layer.has_validity else 0
    # A boolean takes a byte there (file-format.md 14.18).
    width = 8 if item_bits == 1 else item_bits
    return validity, items * width // 8


def nest(
    layers: Sequence[ListLayer],
    validities: Sequence[NDArray[np.uint8] | None],
    num_rows: int,
    items: Values,
) -> Values:
    """Lists of lists around ``items``; one validity bitmap or None per layer."""
    values = items
    count = items.num_values
    for layer, validity in zip(reversed(layers), reversed(validities), strict=True):
        count //= layer.dimension
        values = FixedSizeListValues(count, layer.dimension, validity, values)
    assert count == num_rows
    return values


def decode_list_chunks(chunks: ChunkBuffers, layers: Sequence[ListLayer], item_bits: int) -> Values:
    """FixedSizeList over Flat in mini-block chunks."""
    require_width(item_bits)
    total = items_per_row(layers)
    chunks.require_buffers(1 + sum(layer.has_validity for layer in layers), "FixedSizeList")
    validities: list[NDArray[np.uint8] | None] = []
    index, items = 0, 1
    for layer in layers:
        items *= layer.dimension
        if not layer.has_validity:
            validities.append(None)
            continue
        validities.append(chunks.gather_bits(index, items, "list validity"))
        index += 1
    content = chunks.gather_bits(index, total * item_bits, "list items")
    rows = chunks.total_values
    return nest(layers, validities, rows, FixedWidthValues(rows * total, item_bits, content))


def decode_list_rows(
    rows: NDArray[np.uint8], layers: Sequence[ListLayer], item_bits: int
) -> Values:
    """FixedSizeList over Flat in a full-zip page.

    ``rows``: shape (rows, bytes per row), any stride between rows; ``layers``: outermost first.
    ``item_bits``: bits per item; 1 for booleans, although each takes a byte.
    """
    num_rows, items = len(rows), items_per_row(layers)
    validities, position = _row_validities(rows, layers)
    content = as_bytes(np.ascontiguousarray(rows[:, position:]).reshape(-1))
    width = 8 if item_bits == 1 else item_bits
    return nest(layers, validities, num_rows, FixedWidthValues(num_rows * items, width, content))


def decode_null_rows(rows: NDArray[np.uint8], layers: Sequence[ListLayer]) -> Values:
    """FixedSizeList over nothing in a full-zip page: every item is null.

    ``rows``: shape (rows, bytes of the bitmaps). ``layers``: outermost first; if there are none,
    the type of the column has them.
    """
    if not layers:
        return NullItems(len(rows))
    validities, _ = _row_validities(rows, layers)
    return nest(layers, validities, len(rows), NullValues(len(rows) * items_per_row(layers)))


def _row_validities(
    rows: NDArray[np.uint8], layers: Sequence[ListLayer]
) -> tuple[list[NDArray[np.uint8] | None], int]:
    """A bitmap or None per layer, and where in the rows the items begin."""
    validities: list[NDArray[np.uint8] | None] = []
    position, items = 0, 1
    for layer in layers:
        items *= layer.dimension
        if not layer.has_validity:
            validities.append(None)
            continue
        size = (items + 7) // 8
        bitmap = np.ascontiguousarray(rows[:, position : position + size])
        validities.append(_drop_padding(bitmap, items))
        position += size
    return validities, position


def _drop_padding(bitmaps: NDArray[np.uint8], bits: int) -> NDArray[np.uint8]:
    """Merge bitmaps that each begin at a byte into one of all rows."""
    if bits % 8 == 0:
        return bitmaps.reshape(-1)
    flags = np.unpackbits(bitmaps, axis=1, bitorder="little")[:, :bits]
    return np.packbits(flags.reshape(-1), bitorder="little")


def list_layers(encoding: Encoding) -> tuple[tuple[ListLayer, ...], Encoding]:
    """The lists around an encoding, outermost first, and the encoding of the items."""
    if encoding_kind(encoding) != "fixed_size_list":
        return (), encoding
    return _layers_of(encoding.fixed_size_list)


def _layers_of(message: Any) -> tuple[tuple[ListLayer, ...], Encoding]:
    layers = [ListLayer(int(message.items_per_value), message.has_validity)]
    while encoding_kind(message.values) == "fixed_size_list":
        message = message.values.fixed_size_list
        layers.append(ListLayer(int(message.items_per_value), message.has_validity))
        require(len(layers) <= 64, "fixed-size lists nested too deeply")
    return tuple(layers), message.values


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    layers, items = _layers_of(message)
    bits = flat_bits(items, "list items")
    return lambda chunks: decode_list_chunks(chunks, layers, bits)


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    layers, items = _layers_of(message)
    require(not any(layer.has_validity for layer in layers), "null items in a dictionary")
    inner, per_row = nested(items), items_per_row(layers)
    return lambda block, num_values: nest(
        layers, [None] * len(layers), num_values, inner(block, num_values * per_row)
    )


FIXED_SIZE_LIST = EncodingRecord(
    kind="fixed_size_list",
    writer="compressive/fixed_size_list.py",
    parts=_parts,
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
)
"""The encoding of vectors."""


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


def split_lists(array: pa.Array, nulls: NDArray[np.bool_] | None) -> FixedSizeLists:
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
    """Return which items are valid; None if all relevant ones are."""
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

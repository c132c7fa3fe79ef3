"""FixedSizeList: every value is ``dimension`` items; lists of lists nest.

In chunks there is one validity bitmap per layer that has nulls, outermost first, then the items.
In full-zip pages every row carries its own bitmaps before its items.

Source: docs/format/file-format.md, sections 6.3 and 6.4 (8).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    encoding_kind,
    flat_bits,
)
from pyspark_lance.codec.compressive.fixed_width import require_width
from pyspark_lance.codec.memory import as_bytes
from pyspark_lance.codec.values import (
    FixedSizeListValues,
    FixedWidthValues,
    NullItems,
    NullValues,
    Values,
)

MAX_ITEMS = 1 << 31


@dataclass(frozen=True, slots=True)
class ListLayer:
    """One level of lists.

    ``dimension``: items per list; ``has_validity``: whether a bitmap says which items are valid.
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
    """One bitmap of all rows, from bitmaps that each begin at a byte."""
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
    writer="compressive/encode_fixed_size_list.py",
    parts=_parts,
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
)
"""The encoding of vectors."""

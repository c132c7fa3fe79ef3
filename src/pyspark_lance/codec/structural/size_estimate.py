"""How large the rows of a page will be once decoded, judged by its description alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from pyspark_lance.codec.compressive.encoding_record import encoding_kind
from pyspark_lance.proto import encodings_v2_1_pb2

# Decoded bytes per stored byte of strings, roughly; a reader corrects itself by what it sees.
_GROWTH = {"variable": 1.0, "fsst": 2.5, "general": 4.0}
_OFFSET_BYTES = 4
_UNKNOWN_WIDTH = 32


def estimate_row_bytes(
    layout: encodings_v2_1_pb2.PageLayout,
    data_type: pa.DataType,
    num_rows: int,
    buffer_sizes: Sequence[int],
) -> float:
    """Bytes of a decoded row of the page.

    ``buffer_sizes``: bytes of each buffer of the page.
    """
    rows = max(num_rows, 1)
    kind = layout.WhichOneof("layout")
    part: Any = getattr(layout, kind) if kind else None
    items = float(rows)
    if kind == "mini_block_layout":
        items = max(part.num_items, 1)
    elif kind == "full_zip_layout":
        items = max(part.num_visible_items, 1)
    width = _fixed_width(data_type)
    if width:
        return items / rows * width
    if kind == "mini_block_layout" and part.HasField("dictionary"):
        growth = 3.0 if encoding_kind(part.dictionary) == "general" else 1.0
        per_item = growth * buffer_sizes[2] / max(part.num_dictionary_items, 1)
        return items / rows * (per_item + _OFFSET_BYTES)
    if kind in ("mini_block_layout", "full_zip_layout"):
        growth = _GROWTH.get(encoding_kind(part.value_compression), 2.0)
        return growth * sum(buffer_sizes) / rows + _OFFSET_BYTES
    if kind == "blob_layout":
        return float(1 << 16)
    if len(buffer_sizes) > 1:  # levels of two bytes, of lists of nulls
        return sum(buffer_sizes) / rows + _OFFSET_BYTES
    return items / rows * (sum(buffer_sizes) or _OFFSET_BYTES)


def _fixed_width(data_type: pa.DataType) -> float:
    """Bytes of a value, 0 if they differ."""
    if pa.types.is_fixed_size_list(data_type):
        return float(data_type.list_size * _fixed_width(data_type.value_type))
    if pa.types.is_dictionary(data_type):
        return float(data_type.index_type.bit_width / 8)
    if pa.types.is_struct(data_type):
        widths = [_fixed_width(field.type) for field in data_type]
        return sum(width or _UNKNOWN_WIDTH for width in widths)
    if pa.types.is_null(data_type):
        return 0.125
    try:
        return max(float(data_type.bit_width / 8), 0.125)
    except ValueError:
        return 0.0

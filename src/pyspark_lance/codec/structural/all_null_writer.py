"""Constant pages: every value is null, there are no values at all, or all are equal.

Source: docs/format/file-format.md, section 6.6.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.encode_constant import MAX_INLINE_BYTES, value_block
from pyspark_lance.codec.leaf_column import NULLABLE_ITEM, LeafColumn, LeafValues
from pyspark_lance.codec.value_chunks import EncodedPage
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


def encode_all_null(column: LeafColumn, rows: LeafValues) -> EncodedPage:
    """The levels alone; not even those if every row is one null."""
    layout = pb.PageLayout(constant_layout=pb.ConstantLayout(layers=column.page_layers(rows)))
    if column.layers == (NULLABLE_ITEM,):
        return EncodedPage([], layout, rows.num_rows)
    levels = [
        b"" if part is None else part.astype("<u2").view(np.uint8)
        for part in (rows.repetition, rows.definition)
    ]
    return EncodedPage(levels, layout, rows.num_rows)


def encode_constant(
    column: LeafColumn, rows: LeafValues, value: tuple[NDArray[np.uint8], ...]
) -> EncodedPage:
    """One value for all rows; only files of version 2.2 have such pages.

    ``rows``: without any levels; ``value``: the Arrow buffers of the value, without validity.
    """
    layout = pb.ConstantLayout(layers=column.page_layers(rows))
    buffers: list[object] = []
    if len(value) == 1 and len(value[0]) <= MAX_INLINE_BYTES:
        layout.inline_value = value[0].tobytes()
    else:
        buffers.append(value_block(value))
    return EncodedPage(buffers, pb.PageLayout(constant_layout=layout), rows.num_rows)

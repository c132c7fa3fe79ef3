"""Constant pages without a value: every value is null, or there are no values at all.

Source: file-format.md section 6.6.
"""

from __future__ import annotations

import numpy as np

from pyspark_lance.codec.leaf_column import NULLABLE_ITEM, LeafColumn, LeafValues
from pyspark_lance.codec.structural.encoded_page import EncodedPage
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

"""FixedSizeList: the items of all rows behind each other; nests.

Source: docs/format/file-format.md, section 5.1.
"""

from __future__ import annotations

import pyarrow as pa

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.v2_0.array_decoder import ArrayDecoder, check_array_bytes
from pyspark_lance.codec.v2_0.page_buffers import BufferSlice


class FixedSizeListDecoder:
    """``dimension`` items per row.

    ``dimension``: according to the encoding; checked against the type. ``items``: decodes
    ``num_values * dimension`` items.
    """

    def __init__(
        self, dimension: int, data_type: pa.DataType, num_values: int, items: ArrayDecoder
    ) -> None:
        require(
            dimension == data_type.list_size,
            f"lists of {dimension} items are stored for the type {data_type}",
        )
        self.data_type, self.num_values, self.has_bits = data_type, num_values, items.has_bits
        self._items, self._dimension = items, dimension

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Those of the items."""
        return self._items.slices(start * self._dimension, end * self._dimension)

    def decode(self, start: int, end: int) -> pa.Array:
        """Lists over the decoded items."""
        check_array_bytes(self.data_type, end - start)
        items = self._items.decode(start * self._dimension, end * self._dimension)
        return pa.Array.from_buffers(self.data_type, end - start, [None], children=[items])

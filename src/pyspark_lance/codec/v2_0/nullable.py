"""Nullable: a validity bitmap beside values that have a slot for every null.

Source: docs/format/file-format.md, section 5.1.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.codec.row_selection import without_offset
from pyspark_lance.codec.v2_0.array_decoder import ArrayDecoder
from pyspark_lance.codec.v2_0.flat import FlatDecoder
from pyspark_lance.codec.v2_0.page_buffers import BufferSlice


class SomeNullsDecoder:
    """Nullable.some_nulls: bit i of ``validity`` is 1 where value i is valid."""

    def __init__(self, validity: FlatDecoder, values: ArrayDecoder) -> None:
        self.data_type, self.num_values = values.data_type, values.num_values
        self.has_bits = True
        self._validity, self._values = validity, values

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Bitmap and values."""
        return self._validity.slices(start, end) + self._values.slices(start, end)

    def decode(self, start: int, end: int) -> pa.Array:
        """The values with the bitmap on top; nothing is copied."""
        values = self._values.decode(start, end)
        return with_validity(values, self._validity.decode_buffer(start, end))


def with_validity(array: pa.Array, bitmap: pa.Buffer) -> pa.Array:
    """``array`` (of offset 0) where the slots of 0 bits become null."""
    count, data_type = len(array), array.type
    if array.null_count:
        valid = pa.Array.from_buffers(pa.bool_(), count, [None, bitmap])
        return without_offset(array).filter(
            pc.if_else(valid, True, None), null_selection_behavior="emit_null"
        )
    if pa.types.is_dictionary(data_type):
        indices = with_validity(array.indices, bitmap)
        return pa.DictionaryArray.from_arrays(indices, array.dictionary, safe=False)
    if pa.types.is_fixed_size_list(data_type):
        return pa.Array.from_buffers(data_type, count, [bitmap], children=[array.values])
    if pa.types.is_struct(data_type):
        children = [array.field(index) for index in range(data_type.num_fields)]
        return pa.Array.from_buffers(data_type, count, [bitmap], children=children)
    return pa.Array.from_buffers(data_type, count, [bitmap, *array.buffers()[1:]])

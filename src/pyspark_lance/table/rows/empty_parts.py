"""Add missing offsets buffers to empty Arrow arrays.

Arrow allows writers to omit the offsets of an empty array, which Arrow Java in Spark 4.1 does.
pyarrow still reads the first offset, past the end of the empty buffer, and then accesses an invalid
address.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` with complete offsets in all nested columns; usually ``batch`` itself."""
    columns = batch.columns
    whole = [array_with_offsets(column) for column in columns]
    if all(new is old for new, old in zip(whole, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(whole, schema=batch.schema)


def array_with_offsets(array: pa.Array) -> pa.Array:
    """Return ``array`` with complete offsets in all children; itself if none is missing."""
    if _lacks_offsets(array):
        return pa.nulls(0, array.type)
    parts = _parts(array)
    whole = [array_with_offsets(part) for part in parts]
    if all(new is old for new, old in zip(whole, parts, strict=True)):
        return array
    own = array.buffers()[: array.type.num_buffers]
    return pa.Array.from_buffers(
        array.type, len(array), own, array.null_count, array.offset, children=whole
    )


def _lacks_offsets(array: pa.Array) -> bool:
    data_type = array.type
    if len(array) or not (pa.types.is_list(data_type) or pa.types.is_map(data_type)):
        return False
    offsets = array.buffers()[1]
    return offsets is None or offsets.size == 0


def _parts(array: pa.Array) -> Sequence[pa.Array]:
    """Return the children of ``array``, with all of their rows; none for flat types."""
    data_type = array.type
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return [array.values]
    if pa.types.is_map(data_type):
        fields = [data_type.key_field, data_type.item_field]
        return [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    if pa.types.is_struct(data_type) and not array.offset:
        return [array.field(index) for index in range(data_type.num_fields)]
    return []

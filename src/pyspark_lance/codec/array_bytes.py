"""How many bytes the rows of an array take."""

from __future__ import annotations

import pyarrow as pa

from pyspark_lance.codec.leaf_column import is_listlike, storage_type
from pyspark_lance.codec.shred import list_items, list_offsets


def has_dictionaries(data_type: pa.DataType) -> bool:
    """Whether the type is or holds a dictionary."""
    data_type = storage_type(data_type)
    if pa.types.is_dictionary(data_type):
        return True
    return any(
        has_dictionaries(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def data_bytes(array: pa.Array) -> int:
    """Bytes of the rows of an array; dictionaries do not count, slices share them."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    if not has_dictionaries(data_type):
        return int(array.nbytes)
    if pa.types.is_dictionary(data_type):
        return int(array.indices.nbytes)
    if pa.types.is_struct(data_type):
        return sum(data_bytes(array.field(index)) for index in range(data_type.num_fields))
    if is_listlike(data_type):
        offsets = list_offsets(array)
        first, end = int(offsets[0]), int(offsets[-1])
        return offsets.nbytes + data_bytes(list_items(array).slice(first, end - first))
    size = data_type.list_size
    return data_bytes(array.values.slice(array.offset * size, len(array) * size))

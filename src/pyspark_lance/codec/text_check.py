"""Validation of strings as UTF-8, at any depth: other readers may crash on invalid ones.

Most text is ASCII, which one pass over the bytes of a whole array detects.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def holds_invalid_text(array: pa.Array) -> bool:
    """Return whether ``array``, or a child of it, has a valid slot that is not UTF-8."""
    data_type = array.type
    if isinstance(array, pa.ExtensionArray):
        return holds_invalid_text(array.storage)
    if pa.types.is_dictionary(data_type):
        # Bytes that no row refers to belong to no string.
        return holds_invalid_text(array.dictionary) and holds_invalid_text(
            array.dictionary.take(array.indices)
        )
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return not _is_ascii(array) and not _is_valid(array)
    return any(holds_invalid_text(part) for part in _parts(array))


def first_invalid_text(array: pa.Array) -> int:
    """The first row of ``array``, which holds an invalid text, that does."""
    start, end = 0, len(array)
    while end - start > 1:
        middle = (start + end) // 2
        if holds_invalid_text(array.slice(start, middle - start)):
            end = middle
        else:
            start = middle
    return start


def holds_text(data_type: pa.DataType) -> bool:
    """Return whether values of the type, or parts of them, are strings."""
    if isinstance(data_type, pa.BaseExtensionType):
        return holds_text(data_type.storage_type)
    if pa.types.is_dictionary(data_type):
        return holds_text(data_type.value_type)
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return True
    return any(holds_text(data_type.field(at).type) for at in range(data_type.num_fields))


def _parts(array: pa.Array) -> list[pa.Array]:
    """Return the children of ``array`` that may be text, without those of null slots."""
    data_type = array.type
    if not holds_text(data_type):
        return []
    if pa.types.is_struct(data_type):
        return list(array.flatten())
    if pa.types.is_map(data_type):
        entries = array.cast(pa.list_(pa.struct([data_type.key_field, data_type.item_field])))
        return [entries.flatten()]
    return [array.flatten()]


def _is_ascii(array: pa.Array) -> bool:
    wide = pa.types.is_large_string(array.type)
    _, offsets, data = array.buffers()
    if not len(array) or data is None:
        return True
    bounds = np.frombuffer(offsets, np.int64 if wide else np.int32)
    first, last = bounds[array.offset], bounds[array.offset + len(array)]
    values = np.frombuffer(data, np.uint8)[first:last]
    return not len(values) or int(values.max()) < 0x80


def _is_valid(array: pa.Array) -> bool:
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True

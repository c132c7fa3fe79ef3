"""Writing packed structs: the fields of a row side by side, in one column.

Fields of fixed width make records of fixed width. With strings, binaries or vectors among them
(2.2 only) every row is a value of variable width.

Source: docs/format/file-format.md, sections 6.3 and 6.4 (9).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.arrow_values import (
    bits_per_value,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)
from pyspark_lance.codec.compressive.encode_fixed_size_list import list_rows, take_apart
from pyspark_lance.codec.compressive.encode_fixed_width import flat, flat_chunks
from pyspark_lance.codec.compressive.string_compression import (
    FsstColumn,
    StoredStrings,
    plain_strings,
)
from pyspark_lance.codec.row_selection import without_offset
from pyspark_lance.codec.value_chunks import ValueChunks
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.plain_values import plain_array, plain_scalar
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


def packed_children(
    values: pa.Array, nulls: NDArray[np.bool_] | None, column: str, *, item_nulls: bool = False
) -> list[pa.Array]:
    """The fields of a struct array.

    ``nulls``: true where a struct does not matter; ``item_nulls``: whether items of fixed-size
    lists may be null.
    """
    children = []
    for index, field in enumerate(values.type):
        child = values.field(index)
        if isinstance(child, pa.ExtensionArray):
            child = child.storage
        kept = child if nulls is None else without_offset(child).filter(plain_array(~nulls))
        if _has_nulls(kept, items=not item_nulls):
            raise UnsupportedFeatureError(
                f"column {column}: the field {field.name} of a packed struct is null in some rows",
                hint="replace the nulls, or store the struct without packing it",
            )
        children.append(child)
    return children


def _has_nulls(array: pa.Array, *, items: bool) -> bool:
    is_list = items and pa.types.is_fixed_size_list(array.type)
    return array.null_count > 0 or (is_list and _has_nulls(array.flatten(), items=True))


def is_fixed_record(data_type: pa.DataType) -> bool:
    """Return whether all fields are plain values of fixed width."""
    return not any(
        is_variable_width(child.type) or pa.types.is_nested(child.type) for child in data_type
    )


def record_rows(children: list[pa.Array], nulls: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """The fields of every row side by side, shape (rows, bytes)."""
    return np.concatenate([_field_bytes(child, nulls) for child in children], axis=1)


def record_chunks(children: list[pa.Array], nulls: NDArray[np.bool_] | None) -> ValueChunks:
    """Mini-block chunks of records of fixed width."""
    rows = record_rows(children, nulls)
    bits = rows.shape[1] * 8
    chunks = flat_chunks(rows, bits)
    widths = [bits_per_value(child.type) for child in children]
    encoding = pb.CompressiveEncoding(
        packed_struct=pb.PackedStruct(bits_per_value=widths, values=flat(bits))
    )
    return ValueChunks(encoding, chunks.log2_values, chunks.num_values, chunks.buffers)


def packed_rows(children: list[pa.Array], nulls: NDArray[np.bool_] | None) -> StoredStrings:
    """Every row as one value of variable width: fixed fields, lengths and bytes of the others."""
    description = pb.VariablePackedStruct()
    pieces: list[pa.Array] = []
    for child in children:
        field = description.fields.add()
        if is_variable_width(child.type):
            strings = plain_strings(*variable_width_values(child, nulls))
            if pa.types.is_unicode(child.type):
                strings = FsstColumn().shrink_text(strings)
            width = strings.offsets.itemsize
            field.value.CopyFrom(strings.encoding)
            field.bits_per_length = width * 8
            lengths = np.diff(strings.offsets).view(np.uint8).reshape(-1, width)
            pieces += [_fixed_binaries(lengths), _binaries(strings.offsets, strings.content)]
            continue
        content = _field_bytes(child, nulls)
        field.value.CopyFrom(_fixed_encoding(child, nulls))
        field.bits_per_value = content.shape[1] * 8
        pieces.append(_fixed_binaries(content))
    rows = pc.binary_join_element_wise(*pieces, plain_scalar(b"", pa.large_binary()))
    if nulls is not None:
        rows = pc.if_else(plain_array(nulls), plain_scalar(b"", pa.large_binary()), rows)
    offsets, content = variable_width_values(rows, None)
    encoding = pb.CompressiveEncoding(variable_packed_struct=description)
    return StoredStrings((offsets - offsets[0]).astype("<i4"), content[offsets[0] :], encoding)


def _fixed_encoding(child: pa.Array, nulls: NDArray[np.bool_] | None) -> pb.CompressiveEncoding:
    if pa.types.is_fixed_size_list(child.type):
        return take_apart(child, nulls).encoding
    return flat(bits_per_value(child.type))


def _field_bytes(child: pa.Array, nulls: NDArray[np.bool_] | None) -> NDArray[np.uint8]:
    """The bytes of a field of fixed width, shape (rows, bytes); zeros where it does not matter."""
    if pa.types.is_fixed_size_list(child.type):
        rows = list_rows(take_apart(child, nulls))
        return rows if nulls is None else np.where(nulls[:, None], np.uint8(0), rows)
    values: NDArray[Any] = fixed_width_values(child, nulls)
    width = bits_per_value(child.type) // 8
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(child), width)


def _fixed_binaries(rows: NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(len(rows) + 1, dtype=np.int64) * rows.shape[1]
    return _binaries(offsets, np.ascontiguousarray(rows).reshape(-1))


def _binaries(offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(offsets.astype(np.int64)), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, buffers)

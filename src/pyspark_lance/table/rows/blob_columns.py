"""Blob columns of written data: choose their version and convert bytes to blobs.

Tables of file version 2.2 have blobs of version 2, older ones of version 1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pyarrow as pa

from pyspark_lance.format.arrow_extension import BLOB_V2
from pyspark_lance.format.field import BLOB_KEY, Field
from pyspark_lance.format.logical_type import EXTENSION_NAME_KEY
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.table.rows.convert_parts import convert_parts, holds_part

_BLOB_V2_TYPE: Final = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])


def table_schema(schema: pa.Schema, version: str, first_id: int = 0) -> LanceSchema:
    """Return the schema of new columns, with blobs of the version for file version ``version``.

    ``schema``: columns to store; the metadata key ``lance-encoding:blob`` marks blobs.
    ``first_id``: id of the first field.
    """
    if version < "2.2":
        return LanceSchema.from_arrow(schema, first_id)
    stored = pa.schema([_to_blob_v2(field) for field in schema], metadata=schema.metadata)
    made = LanceSchema.from_arrow(stored, first_id)
    fields = map(_as_lists_of_bytes, made.fields, schema)
    return LanceSchema(tuple(fields), made.metadata)


def _as_lists_of_bytes(field: Field, given: pa.Field) -> Field:
    """Return the field with lists named after the given items.

    In pylance, a list whose items became structs keeps its original logical type, and an append to
    a table with another one is rejected.
    """
    if field.is_blob or pa.types.is_map(given.type) or not field.children:
        return field
    parts = [given.type.field(index) for index in range(given.type.num_fields)]
    children = tuple(map(_as_lists_of_bytes, field.children, parts))
    logical = field.logical_type
    if field.is_list and _is_bytes(parts[0].type):
        logical = logical.removesuffix(".struct")
    return replace(field, logical_type=logical, children=children)


def _to_blob_v2(field: pa.Field) -> pa.Field:
    kind, types = field.type, pa.types
    if types.is_struct(kind):
        return field.with_type(pa.struct([_to_blob_v2(child) for child in kind]))
    if types.is_list(kind):
        return field.with_type(pa.list_(_to_blob_v2(kind.value_field)))
    if types.is_large_list(kind):
        return field.with_type(pa.large_list(_to_blob_v2(kind.value_field)))
    metadata = dict(field.metadata or {})
    marked = metadata.pop(BLOB_KEY.encode(), b"").lower() == b"true"
    if not marked or not _is_bytes(kind):
        return field
    metadata[EXTENSION_NAME_KEY.encode()] = BLOB_V2.encode()
    return pa.field(field.name, _BLOB_V2_TYPE, field.nullable, metadata)


def holds_blob_v2(field: Field) -> bool:
    """Return whether the field or one of its children is a blob of version 2."""
    return holds_part(field, _is_blob_v2)


def stored_blobs(array: pa.Array, field: Field) -> pa.Array:
    """Convert bytes to blobs of version 2; keep blobs that are descriptors."""
    return convert_parts(array, field, _is_blob_v2, _from_bytes)


def _is_blob_v2(part: Field) -> bool:
    return part.is_blob_v2


def _from_bytes(array: pa.Array, path: str) -> pa.Array:
    del path
    if not _is_bytes(array.type):
        return array.storage if isinstance(array, pa.ExtensionArray) else array
    data = array.cast(pa.large_binary())
    return pa.StructArray.from_arrays(
        [data, pa.nulls(len(array), pa.string())],
        fields=list(_BLOB_V2_TYPE),
        mask=array.is_null() if array.null_count else None,
    )


def _is_bytes(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_binary(data_type) or pa.types.is_large_binary(data_type))

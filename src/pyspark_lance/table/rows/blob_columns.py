"""Blob columns of data that are written: which kind a table gets, and bytes as blobs.

Tables of file version 2.2 have blobs of the second kind, older ones of the first. Pure: no I/O.
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
    """The schema of new columns, whose binary blobs, at any depth, are of the kind of ``version``.

    ``schema``: columns to store; the metadata key ``lance-encoding:blob`` marks blobs.
    ``first_id``: id of the first field.
    """
    if version < "2.2":
        return LanceSchema.from_arrow(schema, first_id)
    stored = pa.schema([_second_kind(field) for field in schema], metadata=schema.metadata)
    made = LanceSchema.from_arrow(stored, first_id)
    fields = map(_as_lists_of_bytes, made.fields, schema)
    return LanceSchema(tuple(fields), made.metadata)


def _as_lists_of_bytes(field: Field, given: pa.Field) -> Field:
    """The field with lists named by the items that were given.

    A list of what became structs still says that it holds none, in tables of pylance, which would
    refuse to append to a table that says otherwise.
    """
    if field.is_blob or pa.types.is_map(given.type) or not field.children:
        return field
    parts = [given.type.field(index) for index in range(given.type.num_fields)]
    children = tuple(map(_as_lists_of_bytes, field.children, parts))
    logical = field.logical_type
    if field.is_list and _is_bytes(parts[0].type):
        logical = logical.removesuffix(".struct")
    return replace(field, logical_type=logical, children=children)


def _second_kind(field: pa.Field) -> pa.Field:
    kind, types = field.type, pa.types
    if types.is_struct(kind):
        return field.with_type(pa.struct([_second_kind(child) for child in kind]))
    if types.is_list(kind):
        return field.with_type(pa.list_(_second_kind(kind.value_field)))
    if types.is_large_list(kind):
        return field.with_type(pa.large_list(_second_kind(kind.value_field)))
    metadata = dict(field.metadata or {})
    marked = metadata.pop(BLOB_KEY.encode(), b"").lower() == b"true"
    if not marked or not _is_bytes(kind):
        return field
    metadata[EXTENSION_NAME_KEY.encode()] = BLOB_V2.encode()
    return pa.field(field.name, _BLOB_V2_TYPE, field.nullable, metadata)


def holds_blob_v2(field: Field) -> bool:
    """Whether the field or a part of it is a blob of the second kind."""
    return holds_part(field, _is_blob_v2)


def stored_blobs(array: pa.Array, field: Field) -> pa.Array:
    """Bytes as blobs of the second kind; blobs that are no bytes stay as they are."""
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

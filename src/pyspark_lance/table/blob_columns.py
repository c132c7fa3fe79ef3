"""Blob columns of data that are written: which kind a table gets, and bytes as blobs.

Tables of file version 2.2 have blobs of the second kind, older ones of the first. Pure: no I/O.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from pyspark_lance.format.arrow_extension import BLOB_V2
from pyspark_lance.format.field import BLOB_KEY
from pyspark_lance.format.logical_type import EXTENSION_NAME_KEY

_BLOB_V2_TYPE: Final = pa.struct([("data", pa.large_binary()), ("uri", pa.string())])


def with_blob_version(schema: pa.Schema, version: str) -> pa.Schema:
    """The schema of a new table, in which binary blob columns are of the kind of ``version``.

    Args:
        schema: Columns to store; the metadata key ``lance-encoding:blob`` marks blobs.
        version: File version of the table.
    """
    if version < "2.2":
        return schema
    return pa.schema([_second_kind(field) for field in schema], metadata=schema.metadata)


def _second_kind(field: pa.Field) -> pa.Field:
    metadata = dict(field.metadata or {})
    marked = metadata.pop(BLOB_KEY.encode(), b"").lower() == b"true"
    if not marked or not _is_bytes(field.type):
        return field
    metadata[EXTENSION_NAME_KEY.encode()] = BLOB_V2.encode()
    return pa.field(field.name, _BLOB_V2_TYPE, field.nullable, metadata)


def stored_blobs(array: pa.Array) -> pa.Array:
    """Bytes as blobs of the second kind; what is no bytes stays as it is."""
    if not _is_bytes(array.type):
        return array.storage if isinstance(array, pa.ExtensionArray) else array
    data = array.cast(pa.large_binary())
    return pa.StructArray.from_arrays(
        [data, pa.nulls(len(array), pa.string())],
        fields=list(_BLOB_V2_TYPE),
        mask=array.is_null() if array.null_count else None,
    )


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))

"""Logical views of columns with another stored form: JSON as text, blobs by reference.

A logical view is a ``Field`` with the id of the stored field and another type. Readers return
values of that type on request; files and manifests never contain one. Pure, no I/O.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_type import EXTENSION_METADATA_KEY, EXTENSION_NAME_KEY
from pyspark_lance.format.schema import LanceSchema

_SHOWN_KEY: Final = "pyspark_lance.shown"
_JSON_TEXT: Final = b"json"
_LOCATED: Final = b"located"
# Members of a descriptor have no ids, as in the schema of a data file.
_NO_ID: Final = -1

BLOB_V1_DESCRIPTOR: Final = tuple(
    Field(_NO_ID, name, "uint64", nullable=False) for name in ("position", "size")
)
"""Location of the bytes of a blob in its data file."""

BLOB_V2_DESCRIPTOR: Final = tuple(
    Field(_NO_ID, name, logical_type, nullable=False)
    for name, logical_type in (
        ("kind", "uint8"),
        ("position", "uint64"),
        ("size", "uint64"),
        ("blob_id", "uint32"),
        ("blob_uri", "string"),
    )
)
"""Location of the bytes of a blob: in the data file, in a file beside it, or anywhere."""

BLOB_FILE: Final = "lance_blob_file"
"""The member of a located descriptor with the URI of its data file.

The other members depend on it, so only located descriptors can be copied to other tables. The name
is unlikely to occur in structs of users.
"""

LOCATED_BLOB: Final = (*BLOB_V2_DESCRIPTOR, Field(_NO_ID, BLOB_FILE, "string", nullable=False))
"""A located descriptor, of either kind: rows of tables of all versions can be combined."""

BLOB_DATA: Final = "lance_blob_data"
"""The member of a located descriptor with the bytes themselves, if loaded.

Readers return none; rows have it whose blobs come partly from a table and partly from elsewhere.
"""

_LOCATED_NAMES: Final = frozenset(member.name for member in LOCATED_BLOB)

_MOVING_BLOB: Final = tuple(
    Field(_NO_ID, name, logical_type, nullable=True)
    for name, logical_type in (
        ("data", "large_binary"),
        ("uri", "string"),
        ("position", "uint64"),
        ("size", "uint64"),
        ("kind", "uint8"),
        ("blob_id", "uint32"),
    )
)
# The bytes of a blob, or a reference of any kind.


def logical_schema(
    schema: LanceSchema, *, binary_blobs: Collection[str] = (), located: bool = False
) -> LanceSchema:
    """Return the columns as users see them.

    ``binary_blobs``: top-level columns whose blobs are returned as bytes instead of descriptors.
    ``located``: whether descriptors contain the URI of their data file.
    """
    return LanceSchema(
        tuple(
            logical_field(field, binary_blobs=field.name in binary_blobs, located=located)
            for field in schema.fields
        ),
        schema.metadata,
    )


def logical_field(field: Field, *, binary_blobs: bool = False, located: bool = False) -> Field:
    """Return the field as users see it; the field itself if it has no logical view."""
    if field.is_blob:
        as_bytes = replace(field, logical_type="large_binary", children=())
        return as_bytes if binary_blobs else blob_as_descriptor(field, located=located)
    if field.logical_type == "json":
        return replace(
            field,
            logical_type="string",
            extension_name="",
            metadata=_without_extension(field) | {_SHOWN_KEY: _JSON_TEXT},
        )
    children = tuple(
        logical_field(child, binary_blobs=binary_blobs, located=located) for child in field.children
    )
    if all(new is old for new, old in zip(children, field.children, strict=True)):
        return field
    return replace(field, children=children)


def stored_field(field: Field) -> Field:
    """Return the stored form that a logical view is read from: JSON text is converted from bytes.

    Blobs are unchanged, since file readers return them in any form.
    """
    if is_json_text(field):
        metadata = {key: value for key, value in field.metadata.items() if key != _SHOWN_KEY}
        return replace(field, logical_type="json", metadata=metadata)
    if field.is_blob:
        return field
    children = tuple(stored_field(child) for child in field.children)
    if all(new is old for new, old in zip(children, field.children, strict=True)):
        return field
    return replace(field, children=children)


def is_json_text(field: Field) -> bool:
    """Return whether the field is JSON as text."""
    return field.metadata.get(_SHOWN_KEY) == _JSON_TEXT


def blob_as_descriptor(field: Field, *, located: bool = False) -> Field:
    """Return a blob column as a descriptor of the location of its bytes.

    ``located``: whether it has the member ``BLOB_FILE``, and URIs that are independent of the
    table.
    """
    children = BLOB_V2_DESCRIPTOR if field.is_blob_v2 else BLOB_V1_DESCRIPTOR
    if not located:
        return replace(field, logical_type="struct", children=children)
    metadata = {**field.metadata, _SHOWN_KEY: _LOCATED}
    return replace(field, logical_type="struct", children=LOCATED_BLOB, metadata=metadata)


def moving_rows_schema(schema: LanceSchema) -> LanceSchema:
    """Return the columns for reading rows that move: blobs stay in the objects of the table."""
    return LanceSchema(tuple(map(_moving, schema.fields)), schema.metadata)


def _moving(field: Field) -> Field:
    if field.is_blob_v2:
        known = {child.name: child for child in field.children}
        return replace(field, children=tuple(known.get(one.name, one) for one in _MOVING_BLOB))
    return replace(field, children=tuple(map(_moving, field.children)))


def is_blob_descriptor(field: Field) -> bool:
    """Return whether the field is a blob column as a descriptor, or a part of one."""
    return (
        field.is_blob
        and bool(field.children)
        and field.children[0].name != _MOVING_BLOB[0].name
        and all(child.id == _NO_ID for child in field.children)
    )


def is_located(field: Field) -> bool:
    """Return whether a blob column is read as located descriptors, or as a part of them."""
    return is_blob_descriptor(field) and field.metadata.get(_SHOWN_KEY) == _LOCATED


def is_located_type(data_type: pa.DataType) -> bool:
    """Return whether values are located descriptors, which are recognized by their members."""
    return pa.types.is_struct(data_type) and are_located(data_type.names)


def are_located(names: Collection[str]) -> bool:
    """Return whether a struct with these members is a located descriptor.

    Members are preserved by all expressions, functions and other formats, unlike column metadata.
    """
    return _LOCATED_NAMES.issubset(names)


def holds_located(data_type: pa.DataType) -> bool:
    """Return whether values are located descriptors or contain some."""
    if not pa.types.is_nested(data_type):
        return False
    return is_located_type(data_type) or any(
        holds_located(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def _without_extension(field: Field) -> dict[str, bytes]:
    keys = (EXTENSION_NAME_KEY, EXTENSION_METADATA_KEY)
    return {key: value for key, value in field.metadata.items() if key not in keys}

"""Convert nested parts of a column, for blobs and JSON, and keep the rest.

Bytes that are written to blob columns become blobs of version 2 in tables of file version 2.2, of
version 1 in older ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import pyarrow as pa

from pyspark_lance.codec.jsonb import decode_jsonb, encode_jsonb
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.field import BLOB_KEY, BLOB_V2, Field
from pyspark_lance.format.logical_type import EXTENSION_NAME_KEY
from pyspark_lance.format.logical_view import is_json_text
from pyspark_lance.format.schema import LanceSchema

Wanted = Callable[[Field], bool]
Convert = Callable[[pa.Array, str], pa.Array]


def holds_part(field: Field, wanted: Wanted) -> bool:
    """Return whether the field or one of its children is requested."""
    return any(wanted(part) for part in field.walk())


def convert_parts(array: pa.Array, field: Field, wanted: Wanted, convert: Convert) -> pa.Array:
    """Convert the requested parts of ``array`` to values of any type.

    ``array``: its struct fields are matched by name, and some may be missing.
    """
    return _convert(array, field, field.name, wanted, convert)


def _convert(
    array: pa.Array, field: Field, path: str, wanted: Wanted, convert: Convert
) -> pa.Array:
    if wanted(field):
        return convert(array, path)
    if not holds_part(field, wanted) or pa.types.is_null(array.type):
        return array
    if pa.types.is_struct(array.type):
        return _convert_struct(array, field, path, wanted, convert)
    item = field.children[0]
    inner = f"{path}.{item.name}"
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        entries = _convert(entries, item, inner, wanted, convert)
        data_type = pa.map_(entries.type.field(0).type, entries.type.field(1).type)
        return _with_children(array, data_type, [entries])
    items = _convert(array.values, item, inner, wanted, convert)
    child = pa.field(array.type.value_field.name, items.type)
    if pa.types.is_fixed_size_list(array.type):
        return _with_children(array, pa.list_(child, array.type.list_size), [items])
    make = pa.large_list if pa.types.is_large_list(array.type) else pa.list_
    return _with_children(array, make(child), [items])


def _convert_struct(
    array: pa.Array, field: Field, path: str, wanted: Wanted, convert: Convert
) -> pa.Array:
    parts = {child.name: child for child in field.children}
    children = []
    for index in range(array.type.num_fields):
        part, values = parts.get(array.type.field(index).name), array.field(index)
        if part is not None:
            values = _convert(values, part, f"{path}.{part.name}", wanted, convert)
        children.append(values)
    members = [
        pa.field(member.name, child.type, member.nullable)
        for member, child in zip(array.type, children, strict=True)
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=members, mask=mask)


def _with_children(
    array: pa.Array, data_type: pa.DataType, children: Sequence[pa.Array]
) -> pa.Array:
    """Return the same lists with other items."""
    count = 1 if pa.types.is_fixed_size_list(data_type) else 2
    return pa.Array.from_buffers(
        data_type,
        len(array),
        array.buffers()[:count],
        null_count=array.null_count,
        offset=array.offset,
        children=list(children),
    )


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


def convert_blobs(array: pa.Array, field: Field) -> pa.Array:
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


def holds_json(field: Field) -> bool:
    """Return whether the field or one of its children is JSON, stored or shown."""
    return holds_part(field, _is_json)


def json_to_text(array: pa.Array, field: Field) -> pa.Array:
    """Convert stored JSON in ``array`` to text."""
    return convert_parts(array, field, _is_json, _to_text)


def json_from_text(array: pa.Array, field: Field) -> pa.Array:
    """Convert JSON text in ``array`` to its stored form.

    ``array``: values to write; struct fields
    are matched by name, and some may be missing.
    """
    return convert_parts(array, field, _is_json, _to_bytes)


def _is_json(part: Field) -> bool:
    return part.logical_type == "json" or is_json_text(part)


def _to_text(array: pa.Array, path: str) -> pa.Array:
    text = decode_jsonb(array)
    if not pa.types.is_string(text.type):
        raise UnsupportedFeatureError(
            f"column {path!r}: {len(array)} documents hold more than 2 GiB of text",
            hint="read fewer rows at a time with the option batchSize",
        )
    return text


def _to_bytes(array: pa.Array, path: str) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not (pa.types.is_string(array.type) or pa.types.is_large_string(array.type)):
        return array
    try:
        return encode_jsonb(array)
    except InvalidInputError as error:
        raise InvalidInputError(f"column {path!r}: {error.what}", hint=error.hint) from error

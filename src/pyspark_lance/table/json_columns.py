"""JSON columns between their stored bytes and the text that users see and write, at any depth.

Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.codec.jsonb import decode_jsonb, encode_jsonb
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.shown_form import is_json_text

_Convert = Callable[[pa.Array, str], pa.Array]


def holds_json(field: Field) -> bool:
    """Whether the field or a part of it is JSON, stored or shown."""
    return any(part.logical_type == "json" or is_json_text(part) for part in field.walk())


def shown_json(array: pa.Array, field: Field) -> pa.Array:
    """``array``, in which JSON is as stored, with JSON as text.

    Args:
        array: Values as files hold them.
        field: Their shown form.

    Raises:
        CorruptFileError: A document contradicts the format.
    """
    return _converted(array, field, field.name, _to_text)


def stored_json(array: pa.Array, field: Field) -> pa.Array:
    """``array``, in which JSON may be text, with JSON as it is stored.

    Args:
        array: Values to write; members of structs are found by name, and some may be missing.
        field: Their stored form.

    Raises:
        InvalidInputError: A text is not JSON; the column is named.
    """
    return _converted(array, field, field.name, _to_bytes)


def _to_text(array: pa.Array, path: str) -> pa.Array:
    text = decode_jsonb(array)
    if not pa.types.is_string(text.type):
        raise UnsupportedFeatureError(
            f"column {path!r}: {len(array)} documents hold more than 2 GiB of text",
            hint="read fewer rows at a time with the option batch_size",
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


def _converted(array: pa.Array, field: Field, path: str, convert: _Convert) -> pa.Array:
    if field.logical_type == "json" or is_json_text(field):
        return convert(array, path)
    if not holds_json(field) or pa.types.is_null(array.type):
        return array
    if pa.types.is_struct(array.type):
        return _converted_struct(array, field, path, convert)
    item = field.children[0]
    inner = f"{path}.{item.name}"
    if pa.types.is_map(array.type):
        entries = pa.StructArray.from_arrays([array.keys, array.items], ["key", "value"])
        entries = _converted(entries, item, inner, convert)
        kind = pa.map_(entries.type.field(0).type, entries.type.field(1).type)
        return _with_children(array, kind, [entries])
    items = _converted(array.values, item, inner, convert)
    child = pa.field(array.type.value_field.name, items.type)
    if pa.types.is_fixed_size_list(array.type):
        return _with_children(array, pa.list_(child, array.type.list_size), [items])
    make = pa.large_list if pa.types.is_large_list(array.type) else pa.list_
    return _with_children(array, make(child), [items])


def _converted_struct(array: pa.Array, field: Field, path: str, convert: _Convert) -> pa.Array:
    parts = {child.name: child for child in field.children}
    children = []
    for index in range(array.type.num_fields):
        part, values = parts.get(array.type.field(index).name), array.field(index)
        if part is not None:
            values = _converted(values, part, f"{path}.{part.name}", convert)
        children.append(values)
    members = [
        pa.field(one.name, child.type, one.nullable)
        for one, child in zip(array.type, children, strict=True)
    ]
    mask = pc.is_null(array) if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=members, mask=mask)


def _with_children(array: pa.Array, kind: pa.DataType, children: Sequence[pa.Array]) -> pa.Array:
    """The same lists with other items."""
    count = 1 if pa.types.is_fixed_size_list(kind) else 2
    return pa.Array.from_buffers(
        kind,
        len(array),
        array.buffers()[:count],
        null_count=array.null_count,
        offset=array.offset,
        children=list(children),
    )

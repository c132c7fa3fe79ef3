"""Convert JSON columns between stored bytes and text, at any depth."""

from __future__ import annotations

import pyarrow as pa

from pyspark_lance.codec.jsonb import decode_jsonb, encode_jsonb
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_json_text
from pyspark_lance.table.rows.convert_parts import convert_parts, holds_part


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

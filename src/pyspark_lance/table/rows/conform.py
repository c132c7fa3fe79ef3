"""Convert data to the exact Arrow types of a table's columns, or raise an error.

Only lossless conversions are allowed, checked on each value.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import pyarrow as pa

from pyspark_lance.codec.row_selection import without_offset
from pyspark_lance.codec.text_check import first_invalid_text, holds_invalid_text
from pyspark_lance.errors import InvalidInputError, SchemaMismatchError
from pyspark_lance.format.declared_type import SPARK_TYPE_KEY, longest_text
from pyspark_lance.format.field import Field
from pyspark_lance.predicate.types import type_name
from pyspark_lance.table.rows.arrow_casts import cast_parts, is_list
from pyspark_lance.table.rows.blob_columns import holds_blob_v2, stored_blobs
from pyspark_lance.table.rows.empty_parts import array_with_offsets
from pyspark_lance.table.rows.json_columns import holds_json, json_from_text

# Bytes of a rejected value that the message shows.
_SHOWN_BYTES = 40


def conform_batch(batch: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
    """Convert ``batch`` (columns matched by name) to the order and types of ``fields``."""
    columns = []
    for field in fields:
        target = field.to_arrow()
        column = array_with_offsets(batch.column(field.name))
        if holds_json(field):
            column = json_from_text(column, field)
        if holds_blob_v2(field):
            column = stored_blobs(column, field)
        column = conform_array(column, target.type, field.name)
        _check_nulls(column, target, field.name)
        _check_text(column, field.name)
        columns.append(column)
    return pa.RecordBatch.from_arrays(
        columns, schema=pa.schema([field.to_arrow() for field in fields])
    )


def conform_array(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    """Convert ``array`` to ``target``; ``name``: of the column, for messages."""
    if array.type.equals(target, check_metadata=False):
        return array
    if not storable(array.type, target):
        raise SchemaMismatchError(
            f"the column {name!r} is {type_name(array.type)}, which does not fit the table's "
            f"{type_name(target)}",
            hint="cast the column to the table's type",
        )
    try:
        return _convert(array, target, name)
    except pa.ArrowInvalid as error:
        raise SchemaMismatchError(
            f"a value of column {name!r} does not fit the table's {type_name(target)}: {error}"
        ) from error


def fits(source: pa.DataType, field: Field) -> bool:
    """Return whether ``source`` can be written to ``field``: JSON as strings, blobs as bytes."""
    return storable(_stored_form(source, field), field.to_arrow().type)


def _stored_form(source: pa.DataType, field: Field) -> pa.DataType:
    """Return the type that ``source`` is converted to before the comparison with the field."""
    types = pa.types
    if isinstance(source, pa.BaseExtensionType):
        source = source.storage_type
    if types.is_dictionary(source):
        return _stored_form(source.value_type, field)
    if field.logical_type == "json":
        # Users write JSON as strings; the binary form is internal.
        return pa.large_binary() if _is_text(source) or types.is_null(source) else pa.bool_()
    if field.is_blob_v2:
        return field.to_arrow().type if _is_bytes(source) else source
    parts = {child.name: child for child in field.children}
    if types.is_struct(source) and field.is_struct:
        return pa.struct(
            [
                pa.field(
                    member.name, _stored_form(member.type, parts[member.name]), member.nullable
                )
                if member.name in parts
                else member
                for member in source
            ]
        )
    if is_list(source) and field.is_list:
        return pa.list_(_stored_form(source.value_type, field.children[0]))
    if types.is_map(source) and field.is_map:
        key, value = field.children[0].children
        return pa.map_(_stored_form(source.key_type, key), _stored_form(source.item_type, value))
    return source


def storable(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether ``source`` can be stored as ``target`` with the same meaning."""
    if source.equals(target, check_metadata=False) or pa.types.is_null(source):
        return True
    if pa.types.is_dictionary(source):
        return storable(source.value_type, target)
    if pa.types.is_dictionary(target):
        return storable(source, target.value_type)
    if isinstance(target, pa.BaseExtensionType):
        return storable(source, target.storage_type)
    if is_list(source) and is_list(target):
        return storable(source.value_type, target.value_type)
    if pa.types.is_map(source) and pa.types.is_map(target):
        return storable(source.key_type, target.key_type) and storable(
            source.item_type, target.item_type
        )
    if pa.types.is_struct(source) and pa.types.is_struct(target):
        theirs = {target.field(i).name: target.field(i) for i in range(target.num_fields)}
        ours = [source.field(i) for i in range(source.num_fields)]
        if any(field.name not in theirs for field in ours):
            return False
        missing = theirs.keys() - {field.name for field in ours}
        return all(theirs[name].nullable for name in missing) and all(
            storable(field.type, theirs[field.name].type) for field in ours
        )
    return _scalar_storable(source, target)


def _is_text(data_type: pa.DataType) -> bool:
    return pa.types.is_string(data_type) or pa.types.is_large_string(data_type)


def _is_bytes(data_type: pa.DataType) -> bool:
    return (
        pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def _scalar_storable(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if _is_text(source):
        return _is_text(target)
    if _is_bytes(source):
        return _is_bytes(target)
    if types.is_integer(source):
        return (
            types.is_integer(target)
            or types.is_decimal(target)
            or types.is_floating(target)
            or types.is_time(target)  # times are bigint in Spark versions without a time type
        )
    if types.is_floating(source):
        return types.is_floating(target)
    if types.is_decimal(source):
        return types.is_decimal(target) or types.is_integer(target)
    if types.is_date(source):
        return types.is_date(target)
    if types.is_timestamp(source):
        return types.is_timestamp(target)
    if types.is_time(source):
        return types.is_time(target)
    return types.is_duration(source) and types.is_duration(target)


def _convert(array: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    types = pa.types
    if types.is_null(array.type):
        return pa.nulls(len(array), target)
    if isinstance(target, pa.BaseExtensionType):
        return target.wrap_array(conform_array(array, target.storage_type, name))
    if types.is_dictionary(array.type):
        return conform_array(array.cast(array.type.value_type), target, name)
    if types.is_dictionary(target):
        encoded = conform_array(array, target.value_type, name).dictionary_encode()
        return pa.DictionaryArray.from_arrays(
            encoded.indices.cast(target.index_type), encoded.dictionary
        )
    if target.num_fields:
        return cast_parts(array, target, partial(_convert_part, name))
    if types.is_integer(array.type) and types.is_time(target):
        return array.cast(pa.int64()).cast(pa.time64("ns")).cast(target)
    if types.is_integer(array.type) and types.is_decimal(target):
        return array.cast(pa.decimal128(20, 0)).cast(target)
    return array.cast(target)


def _convert_part(whole: str, part: pa.Array, target: pa.DataType, name: str) -> pa.Array:
    return conform_array(part, target, f"{whole}.{name}")


def _check_nulls(array: pa.Array, field: pa.Field, name: str) -> None:
    """Reject forbidden nulls and strings that are too long, at any depth."""
    if array.null_count and not field.nullable:
        raise SchemaMismatchError(
            f"the column {name!r} must not be null, but the data holds {array.null_count} null(s)"
        )
    arrow_type = array.type
    _check_length(array, field, name)
    if pa.types.is_struct(arrow_type):
        valid = array.is_valid() if array.null_count else None
        for index in range(arrow_type.num_fields):
            child = array.field(index)
            if valid is not None:
                child = without_offset(child).filter(valid)
            _check_nulls(child, arrow_type.field(index), f"{name}.{arrow_type.field(index).name}")
    elif is_list(arrow_type) and _is_limited(arrow_type.value_field):
        _check_nulls(array.flatten(), arrow_type.value_field, f"{name}.item")
    elif pa.types.is_map(arrow_type) and _is_limited(field):
        first, end = (array.offsets[at].as_py() for at in (0, -1))
        _check_nulls(array.keys[first:end], field.type.key_field, f"{name}.key")
        _check_nulls(array.items[first:end], field.type.item_field, f"{name}.value")


def _check_text(array: pa.Array, name: str) -> None:
    """Reject strings that are not UTF-8, which readers report as corruption, at any depth."""
    if not holds_invalid_text(array):
        return
    shown = ""
    if _is_text(array.type):
        one = array.slice(first_invalid_text(array), 1)
        kind = pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary()
        shown = f": {one.view(kind)[0].as_py()[:_SHOWN_BYTES]!r}"
    raise InvalidInputError(
        f"a string of column {name!r} is not UTF-8{shown}",
        hint="use a binary column for bytes, or convert them with make_valid_utf8",
    )


def _is_limited(field: pa.Field) -> bool:
    """Return whether a field or one of its children has constraints beyond its type."""
    kind = field.type
    parts = [kind.value_field] if is_list(kind) else []
    if pa.types.is_struct(kind):
        parts = [kind.field(index) for index in range(kind.num_fields)]
    if pa.types.is_map(kind):  # keys are never null
        parts = [kind.item_field, kind.key_field.with_nullable(True)]
    return (
        not field.nullable
        or longest_text(field.metadata) is not None
        or any(map(_is_limited, parts))
    )


def _check_length(array: pa.Array, field: pa.Field, name: str) -> None:
    """Reject strings longer than the declared length of the column."""
    import pyarrow.compute as pc  # noqa: PLC0415

    longest = longest_text(field.metadata)
    if longest is None or not len(array):
        return
    num_characters = pc.max(pc.utf8_length(array)).as_py()
    if num_characters is not None and num_characters > longest:
        kind = field.metadata[SPARK_TYPE_KEY.encode()].decode()
        raise SchemaMismatchError(
            f"a value of column {name!r} has {num_characters} characters, more than {kind} allows"
        )

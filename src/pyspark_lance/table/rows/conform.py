"""Convert data to the exact Arrow types of a table's columns, or raise an error.

Only lossless conversions are allowed, checked on each value.

Two defects of others are avoided. pyarrow (26, for example) crashes the process when it casts
all-null lists whose items have no buffer, as Spark sends them, to a fixed-size list. With
dictionary items it creates invalid indices, and it rejects a slice because of a value outside of
the slice or below a null. So nested arrays are cast recursively, restricted to their valid values.
And Arrow allows writers to omit the offsets of an empty array, which Arrow Java in Spark 4.1 does;
pyarrow still reads the first offset, past the end of the empty buffer, and then accesses an invalid
address. So missing offsets are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.row_selection import take_values, without_offset
from pyspark_lance.codec.text_check import first_invalid_text, holds_invalid_text
from pyspark_lance.errors import InvalidInputError, SchemaMismatchError
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_type import SPARK_TYPE_KEY, longest_text, rebase_offsets
from pyspark_lance.plain_values import numbers_with_default, plain_numbers
from pyspark_lance.predicate.types import type_name
from pyspark_lance.table.rows.convert_parts import (
    convert_blobs,
    holds_blob_v2,
    holds_json,
    json_from_text,
)

_ConvertPart = Callable[[pa.Array, pa.DataType, str], pa.Array]
"""Converts a child array to a type; the name is its path in the column."""


def arrow_cast(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return ``array.cast(target)`` without the risk of a crash."""
    if array.type.equals(target):
        return array
    if not _are_of_one_kind(array.type, target):
        return array.cast(target)
    return cast_parts(array, target, lambda part, kind, _: arrow_cast(part, kind))


def cast_parts(array: pa.Array, target: pa.DataType, convert: _ConvertPart) -> pa.Array:
    """Convert each child of ``array`` to its type in ``target``, which has the same nesting.

    Struct fields are matched by name; missing ones are null.
    """
    if pa.types.is_fixed_size_list(target):
        return _fixed_size_lists(array, target, convert)
    if pa.types.is_struct(target):
        return _structs(array, target, convert)
    return (
        _maps(array, target, convert) if pa.types.is_map(target) else _lists(array, target, convert)
    )


def is_list(data_type: pa.DataType) -> bool:
    """Return whether values are lists, of variable or fixed size."""
    return (
        pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )


def _are_of_one_kind(left: pa.DataType, right: pa.DataType) -> bool:
    return any(
        is_kind(left) and is_kind(right)
        for is_kind in (is_list, pa.types.is_map, pa.types.is_struct)
    )


def _lists(array: pa.Array, target: pa.DataType, convert: _ConvertPart) -> pa.Array:
    wide = pa.types.is_large_list(target)
    lengths = numbers_with_default(0, array.value_lengths())
    ends = np.cumsum(lengths, dtype=np.int64)
    offsets = np.zeros(len(array) + 1, dtype=np.int64 if wide else np.int32)
    if not wide and len(ends) and ends[-1] >= 1 << 31:
        raise pa.ArrowInvalid(f"{ends[-1]} items are more than one array of {target} holds")
    offsets[1:] = ends
    items = convert(array.flatten(), target.value_type, "item")
    return pa.Array.from_buffers(
        target, len(array), [_validity(array), pa.py_buffer(offsets)],
        null_count=array.null_count, children=[items],
    )  # fmt: skip


def _fixed_size_lists(
    array: pa.Array, target: pa.FixedSizeListType, convert: _ConvertPart
) -> pa.Array:
    size = target.list_size
    valid = plain_numbers(array.is_valid())
    lengths = numbers_with_default(size, array.value_lengths())
    unlike = np.flatnonzero(valid & (lengths != size))
    if len(unlike):
        raise pa.ArrowInvalid(f"the length of a list is {lengths[unlike[0]]}, not {size}")
    items = convert(array.flatten(), target.value_type, "item")
    if array.null_count:
        items = _scatter(items, np.repeat(valid, size))
    return pa.Array.from_buffers(
        target, len(array), [_validity(array)], null_count=array.null_count, children=[items]
    )


def _scatter(values: pa.Array, is_there: NDArray[np.bool_]) -> pa.Array:
    """Return an array with ``values`` at the true positions, in order, and null elsewhere."""
    if not len(values):
        return pa.nulls(len(is_there), values.type)
    indices = np.maximum(np.cumsum(is_there) - 1, 0)
    return take_values(values, pa.array(indices, mask=~is_there))


def _maps(array: pa.MapArray, target: pa.MapType, convert: _ConvertPart) -> pa.Array:
    offsets = array.offsets
    first, last = offsets[0].as_py(), offsets[-1].as_py()
    keys = convert(array.keys.slice(first, last - first), target.key_type, "key")
    values = convert(array.items.slice(first, last - first), target.item_type, "value")
    entries = pa.StructArray.from_arrays(
        [keys, values], fields=[target.key_field, target.item_field]
    )
    return pa.Array.from_buffers(
        target, len(array), [_validity(array), rebase_offsets(offsets, first)],
        null_count=array.null_count, children=[entries],
    )  # fmt: skip


def _structs(array: pa.StructArray, target: pa.StructType, convert: _ConvertPart) -> pa.Array:
    children, parts = [], array.flatten()  # null where the struct is
    for member in target:
        position = array.type.get_field_index(member.name)
        children.append(
            pa.nulls(len(array), member.type)
            if position < 0
            else convert(parts[position], member.type, member.name)
        )
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(target), mask=mask)


def _validity(array: pa.Array) -> pa.Buffer | None:
    """The validity bitmap of ``array``, starting at bit 0."""
    return array.is_valid().buffers()[1] if array.null_count else None


def with_offsets(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return ``batch`` with complete offsets in all nested columns; usually ``batch`` itself."""
    columns = batch.columns
    whole = [array_with_offsets(column) for column in columns]
    if all(new is old for new, old in zip(whole, columns, strict=True)):
        return batch
    return pa.RecordBatch.from_arrays(whole, schema=batch.schema)


def array_with_offsets(array: pa.Array) -> pa.Array:
    """Return ``array`` with complete offsets in all children; itself if none is missing."""
    if _lacks_offsets(array):
        return pa.nulls(0, array.type)
    parts = _parts(array)
    whole = [array_with_offsets(part) for part in parts]
    if all(new is old for new, old in zip(whole, parts, strict=True)):
        return array
    own = array.buffers()[: array.type.num_buffers]
    return pa.Array.from_buffers(
        array.type, len(array), own, array.null_count, array.offset, children=whole
    )


def _lacks_offsets(array: pa.Array) -> bool:
    data_type = array.type
    if len(array) or not (pa.types.is_list(data_type) or pa.types.is_map(data_type)):
        return False
    offsets = array.buffers()[1]
    return offsets is None or offsets.size == 0


def _parts(array: pa.Array) -> Sequence[pa.Array]:
    """Return the children of ``array``, with all of their rows; none for flat types."""
    data_type = array.type
    if pa.types.is_list(data_type) or pa.types.is_large_list(data_type):
        return [array.values]
    if pa.types.is_map(data_type):
        fields = [data_type.key_field, data_type.item_field]
        return [pa.StructArray.from_arrays([array.keys, array.items], fields=fields)]
    if pa.types.is_struct(data_type) and not array.offset:
        return [array.field(index) for index in range(data_type.num_fields)]
    return []


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
            column = convert_blobs(column, field)
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

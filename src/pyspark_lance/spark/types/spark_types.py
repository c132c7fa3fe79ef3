"""Convert between Spark types and Arrow types, through the plain types.

The metadata of the Spark column contains the name of a Lance type that Spark lacks, so that writing
the column again restores the Lance type. Written columns that have the type of blob descriptors
become blob columns again.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from operator import eq
from typing import cast

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql import types as spark_types
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    UserDefinedType,
)

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import (
    SYSTEM_COLUMNS,
    find_named,
    match_names,
    same_order,
    sources_of,
    spellings,
)
from pyspark_lance.format.field import BLOB_KEY, Field
from pyspark_lance.format.logical_type import logical_type_of, plain_type
from pyspark_lance.format.logical_view import BLOB_DATA, BLOB_FILE, are_located, is_json_text
from pyspark_lance.format.schema import LanceSchema

# Keys in the metadata of Spark columns that our reader sets.
LOGICAL_TYPE_KEY = "lance.logical_type"
SYSTEM_COLUMN_KEY = "lance.system_column"
# Values of that key for JSON, and for blobs that are read as binary.
JSON_TYPE = "json"
BLOB_TYPE = "blob"

HAS_TIME_TYPE = hasattr(spark_types, "TimeType")


def plain_type_of(field: Field) -> pa.DataType:
    """Return the Arrow type in which Spark sees a column, given in its logical view."""
    return plain_type(field.to_arrow().type, field.name, time_as_integer=not HAS_TIME_TYPE)


def spark_schema(schema: LanceSchema, system_columns: Sequence[str]) -> StructType:
    """Return the Spark schema of a Lance schema, lineage columns last.

    Every column of the table is nullable, as in all of Spark's file sources.
    """
    fields = [spark_field(field) for field in schema.fields]
    fields += [
        StructField(name, LongType(), nullable=False, metadata={SYSTEM_COLUMN_KEY: name})
        for name in SYSTEM_COLUMNS
        if name in system_columns
    ]
    return StructType(fields)


def spark_field(field: Field) -> StructField:
    """Return the Spark column of a top-level field."""
    plain = plain_type_of(field)
    metadata = {}
    if is_json_text(field) or (field.is_blob and not field.children):
        # Writing the column again restores its type.
        metadata[LOGICAL_TYPE_KEY] = JSON_TYPE if is_json_text(field) else BLOB_TYPE
    elif not field.children and logical_type_of(field.to_arrow().type) != _logical_or_none(plain):
        metadata[LOGICAL_TYPE_KEY] = field.logical_type
    return StructField(field.name, to_spark_type(plain), nullable=True, metadata=metadata)


def _logical_or_none(plain: pa.DataType) -> str | None:
    return None if pa.types.is_list(plain) else logical_type_of(plain)


def to_spark_type(plain: pa.DataType) -> DataType:
    """Return the Spark type of a plain Arrow type; nested fields are nullable."""
    if pa.types.is_list(plain):
        return ArrayType(to_spark_type(plain.value_type), containsNull=True)
    if pa.types.is_map(plain):
        return MapType(
            to_spark_type(plain.key_type), to_spark_type(plain.item_type), valueContainsNull=True
        )
    if pa.types.is_struct(plain):
        children = [plain.field(i) for i in range(plain.num_fields)]
        return StructType(
            [StructField(c.name, to_spark_type(c.type), nullable=True) for c in children]
        )
    return from_arrow_type(plain, prefer_timestamp_ntz=True)


def arrow_schema_of(schema: StructType) -> pa.Schema:
    """Return the Arrow schema that Spark requires of readers, and passes to writers."""
    schema = cast("StructType", _with_nullable_voids(schema))
    if _takes_time_zone():
        return to_arrow_schema(schema, timezone="UTC")
    return to_arrow_schema(schema)


@cache
def _takes_time_zone() -> bool:
    """Return whether ``to_arrow_schema`` of this Spark takes a time zone; cached, as it is slow."""
    return "timezone" in inspect.signature(to_arrow_schema).parameters


def _with_nullable_voids(kind: DataType) -> DataType:
    """Make void types nullable, and the keys of ``map()`` strings.

    Spark types ``array()`` and ``map()`` as void without nulls. In Arrow all values of the null
    type are null, and keys are never null.
    """
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(
                    part.name,
                    _with_nullable_voids(part.dataType),
                    part.nullable or isinstance(part.dataType, NullType),
                    part.metadata,
                )
                for part in kind.fields
            ]
        )
    if isinstance(kind, ArrayType):
        has_nulls = kind.containsNull or isinstance(kind.elementType, NullType)
        return ArrayType(_with_nullable_voids(kind.elementType), has_nulls)
    if isinstance(kind, MapType):
        has_nulls = kind.valueContainsNull or isinstance(kind.valueType, NullType)
        is_untyped = isinstance(kind.keyType, NullType)
        key = StringType() if is_untyped else _with_nullable_voids(kind.keyType)
        return MapType(key, _with_nullable_voids(kind.valueType), has_nulls)
    return kind


def narrow(schema: LanceSchema, requested: StructType) -> tuple[LanceSchema, tuple[str, ...]]:
    """Project a table to the columns and lineage columns of a Spark schema that the user gave.

    Fields of structs may be left out; types must be those of the table.
    """
    fields, system = [], []
    own = {field.name: field for field in schema.fields}
    pairs = match_names(requested.names, own)
    for column in requested.fields:
        name = column.name.lower()
        if name in SYSTEM_COLUMNS:
            if not isinstance(column.dataType, LongType):
                raise InvalidInputError(f"the lineage column {name} is bigint")
            system.append(name)
            continue
        field = own.get(pairs.get(column.name, ""))
        if field is None:
            raise InvalidInputError(
                f"the schema names the column {column.name!r}, which the table does not have",
                hint=f"the table's columns are {', '.join(f.name for f in schema.fields)}",
            )
        plain = to_spark_type(plain_type_of(field))
        fields.append(_narrow_field(field, plain, column.dataType, column.name))
    return LanceSchema(fields=tuple(fields), metadata=schema.metadata), tuple(system)


def _narrow_field(field: Field, own: DataType, requested: DataType, path: str) -> Field:
    if isinstance(requested, UserDefinedType):
        requested = requested.sqlType()
    if same_type(own, requested):
        return field
    if isinstance(own, StructType) and isinstance(requested, StructType):
        chosen = []
        pairs = match_names(requested.names, own.names)
        for column in requested.fields:
            child = find_named(field.children, pairs.get(column.name, ""))
            kind = find_named(own.fields, pairs.get(column.name, ""))
            if child is None or kind is None:
                raise InvalidInputError(f"the table has no sub-field {path}.{column.name}")
            chosen.append(
                _narrow_field(child, kind.dataType, column.dataType, f"{path}.{column.name}")
            )
        return field.with_only(chosen)
    if isinstance(own, ArrayType) and isinstance(requested, ArrayType) and field.children:
        item = _narrow_field(
            field.children[0], own.elementType, requested.elementType, f"{path}.element"
        )
        return dataclasses.replace(field, children=(item,))
    raise InvalidInputError(
        f"the schema says {requested.simpleString()} for the column {path!r}, which is "
        f"{own.simpleString()}",
        hint="use the table's type, and cast in the query",
    )


def same_type(left: DataType, right: DataType) -> bool:
    """Return whether types are equal up to nullability, metadata and user-defined types."""
    return same_shape(left, right, eq)


def same_shape(
    left: DataType, right: DataType, same_part: Callable[[DataType, DataType], bool]
) -> bool:
    """Return whether nested types have the same structure, and ``same_part`` holds for leaves."""
    if isinstance(left, UserDefinedType):
        return same_shape(left.sqlType(), right, same_part)
    if isinstance(right, UserDefinedType):
        return same_shape(left, right.sqlType(), same_part)
    if isinstance(left, StructType) and isinstance(right, StructType):
        return same_order(left.names, right.names) and all(
            same_shape(a.dataType, b.dataType, same_part)
            for a, b in zip(left.fields, right.fields, strict=True)
        )
    if isinstance(left, ArrayType) and isinstance(right, ArrayType):
        return same_shape(left.elementType, right.elementType, same_part)
    if isinstance(left, MapType) and isinstance(right, MapType):
        return same_shape(left.keyType, right.keyType, same_part) and same_shape(
            left.valueType, right.valueType, same_part
        )
    return same_part(left, right)


def physical_types(options: Mapping[str, str], schema: StructType) -> dict[str, dict[str, str]]:
    """Check options such as ``<column>.fixed_size_list = 768`` against the columns of the data.

    Returns column name -> kind in lower case -> value.
    """
    names = spellings(schema.names)
    requested: dict[str, dict[str, str]] = {}
    for word, value in options.items():
        column, _, kind = word.rpartition(".")
        name = names.find_name(column)
        if name is None:
            raise InvalidInputError(
                f"the option {word!r} names the column {column!r}, which the data do not have"
            )
        requested.setdefault(name, {})[kind.lower()] = value.strip()
    return requested


_ANY_BLOB = StructType(
    [
        StructField("kind", ShortType()),
        StructField("position", DecimalType(20)),
        StructField("size", DecimalType(20)),
        StructField("blob_id", LongType()),
        StructField("blob_uri", StringType()),
        StructField(BLOB_FILE, StringType()),
        StructField(BLOB_DATA, BinaryType()),
    ]
)


def is_descriptor(kind: DataType) -> bool:
    """Return whether a type is that of blob descriptors."""
    return isinstance(kind, StructType) and are_located(kind.names)


def has_descriptors(kind: DataType) -> bool:
    """Return whether a type is that of descriptors, or contains it."""
    if is_descriptor(kind):
        return True
    if isinstance(kind, StructType):
        return any(has_descriptors(part.dataType) for part in kind.fields)
    if isinstance(kind, ArrayType):
        return has_descriptors(kind.elementType)
    return isinstance(kind, MapType) and has_descriptors(kind.valueType)


def with_bytes(schema: StructType) -> StructType:
    """Replace descriptors by binary, as the option ``blobColumns`` does."""
    columns = []
    for column in schema.fields:
        metadata = dict(column.metadata or {})
        if is_descriptor(column.dataType):
            metadata[LOGICAL_TYPE_KEY] = BLOB_TYPE
        kind = as_bytes(column.dataType, column.name)
        columns.append(StructField(column.name, kind, column.nullable, metadata))
    return StructType(columns)


def as_bytes(kind: DataType, path: str) -> DataType:
    """Replace descriptors in a type by binary.

    Raises InvalidInputError: a struct has only some fields of a descriptor.
    """
    if is_descriptor(kind):
        return BinaryType()
    if isinstance(kind, StructType):
        if BLOB_FILE in kind.names:
            raise InvalidInputError(
                f"the column {path!r} has only some fields of blob descriptors, so that the bytes "
                "cannot be found",
                hint=f"read the source with the option blobColumns = {path.partition('.')[0]}, "
                f"or drop the field {BLOB_FILE} to store a plain struct",
            )
        return StructType(
            [
                StructField(
                    f.name, as_bytes(f.dataType, f"{path}.{f.name}"), f.nullable, f.metadata
                )
                for f in kind.fields
            ]
        )
    if isinstance(kind, ArrayType):
        return ArrayType(as_bytes(kind.elementType, f"{path}.element"), kind.containsNull)
    if isinstance(kind, MapType):
        value = as_bytes(kind.valueType, f"{path}.value")
        return MapType(kind.keyType, value, kind.valueContainsNull)
    return kind


def with_descriptors(wanted: DataType, given: DataType) -> DataType:
    """Replace binary in ``wanted`` by the descriptors of ``given``."""
    if is_descriptor(given) and isinstance(wanted, BinaryType):
        return given
    if isinstance(wanted, StructType) and isinstance(given, StructType):
        own = sources_of(wanted.names, given.names)
        return StructType(
            [
                StructField(
                    f.name,
                    with_descriptors(f.dataType, given[own[f.name]].dataType)
                    if f.name in own
                    else f.dataType,
                    f.nullable,
                )
                for f in wanted.fields
            ]
        )
    if isinstance(wanted, ArrayType) and isinstance(given, ArrayType):
        item = with_descriptors(wanted.elementType, given.elementType)
        return ArrayType(item, wanted.containsNull)
    return wanted


def as_any_blob(value: Column, kind: DataType) -> Column:
    """Convert bytes or a descriptor to a type for both."""
    given: dict[str, Column] = {}
    if is_descriptor(kind):
        assert isinstance(kind, StructType)
        given = {name: value.getField(name) for name in kind.names}
    else:
        given[BLOB_DATA] = value
    members = [
        given.get(part.name, sf.lit(None)).cast(part.dataType).alias(part.name)
        for part in _ANY_BLOB.fields
    ]
    return sf.when(value.isNotNull(), sf.struct(*members))


def mark_blobs(field: pa.Field, given: DataType) -> pa.Field:
    """Mark the binary fields as blobs for which ``given`` has descriptors.

    Lance has no blobs in maps, where the bytes become plain binary.
    """
    kind = field.type
    if is_descriptor(given):
        return pa.field(field.name, pa.large_binary(), field.nullable, {BLOB_KEY: "true"})
    if isinstance(given, StructType):
        parts = zip(kind, given.fields, strict=True)
        return field.with_type(pa.struct([mark_blobs(part, own.dataType) for part, own in parts]))
    if isinstance(given, ArrayType) and pa.types.is_list(kind):
        item = mark_blobs(kind.value_field, given.elementType)
        return field.with_type(pa.list_(item))
    return field

"""Blob descriptors in the types of written rows: their columns become blob columns again."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DecimalType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
)

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import sources_of
from pyspark_lance.format.field import BLOB_KEY
from pyspark_lance.format.logical_view import BLOB_DATA, BLOB_FILE, are_located
from pyspark_lance.spark.types.spark_types import BLOB_TYPE, LOGICAL_TYPE_KEY

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

"""Variants of Spark as JSON text, which is what JSON columns take.

A variant reaches Python as a struct of two binaries; Spark's own library makes JSON of it.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    VariantType,
)
from pyspark.sql.variant_utils import VariantUtils

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import Field
from pyspark_lance.table.rows.convert_parts import convert_parts, holds_part


def with_text_for_variants(kind: DataType) -> DataType:
    """The type with strings in place of variants, at any depth."""
    if isinstance(kind, VariantType):
        return StringType()
    if isinstance(kind, ArrayType):
        return ArrayType(with_text_for_variants(kind.elementType), kind.containsNull)
    if isinstance(kind, MapType):
        value = with_text_for_variants(kind.valueType)
        return MapType(kind.keyType, value, kind.valueContainsNull)
    if isinstance(kind, StructType):
        return StructType(
            [
                StructField(f.name, with_text_for_variants(f.dataType), f.nullable, f.metadata)
                for f in kind.fields
            ]
        )
    return kind


def holds_json(field: Field) -> bool:
    """Whether the field is JSON, or has some at any depth."""
    return holds_part(field, _is_json)


def variants_as_text(column: pa.Array, field: Field) -> pa.Array:
    """The column with JSON text in place of the variants that go to JSON."""
    if not holds_json(field):
        return column
    return convert_parts(column, field, _is_json, _as_text)


def _is_json(part: Field) -> bool:
    return part.logical_type == "json"


def _as_text(array: pa.Array, path: str) -> pa.Array:
    import pyarrow.compute as pc  # noqa: PLC0415

    if not pa.types.is_struct(array.type):
        return array
    values = pc.struct_field(array, "value").to_pylist()
    metadata = pc.struct_field(array, "metadata").to_pylist()
    texts: list[str | None] = []
    for row, (value, keys) in enumerate(zip(values, metadata, strict=True)):
        if value is None or keys is None:
            texts.append(None)
            continue
        try:
            texts.append(VariantUtils.to_json(value, keys))
        except Exception as error:
            raise InvalidInputError(
                f"column {path!r}: value {row} of a batch is a variant that cannot be read: {error}"
            ) from error
    return pa.array(texts, pa.large_string())

"""Convert Spark variants to JSON text for JSON columns.

Python gets a variant as a struct of two binaries; PySpark converts it to JSON.
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
    """Replace variants in a type by strings, at any depth."""
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
    """Return whether the field is JSON, or contains JSON at any depth."""
    return holds_part(field, _is_json)


def variants_as_text(column: pa.Array, field: Field) -> pa.Array:
    """Convert the variants of a column that are stored as JSON to text."""
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

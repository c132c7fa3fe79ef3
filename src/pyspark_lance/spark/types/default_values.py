"""Fill columns with a DEFAULT that a DataFrame lacks, as SQL does."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import pyarrow as pa
from pyspark.sql.types import StructField

from pyspark_lance.errors import LanceError, SchemaMismatchError
from pyspark_lance.format.column_names import sources_of
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_type import DEFAULT_KEY, declared_text
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.spark.types.spark_types import plain_type_of, spark_field


def default_texts(schema: LanceSchema) -> dict[str, str]:
    """Return the SQL texts of the defaults, by column, without those that are NULL."""
    texts = {field.name: declared_text(field.metadata, DEFAULT_KEY) for field in schema.fields}
    return {name: text for name, text in texts.items() if text and text.strip().upper() != "NULL"}


def defaults_for(
    schema: LanceSchema, given: Iterable[str], time_zone: str
) -> Mapping[str, pa.Array]:
    """Return the default values of columns that the rows lack, in their Spark types.

    Each is an array of one value, since a scalar is pickled as a Python value, which only supports
    the years 1 to 9999.

    ``time_zone``: the time zone of the session, which applies to times of defaults, as in SQL.
    """
    known = sources_of((field.name for field in schema.fields), given)
    texts = default_texts(schema)
    missing = [field for field in schema.fields if field.name in texts and field.name not in known]
    return {field.name: _value(field, texts[field.name], time_zone) for field in missing}


def default_columns(schema: LanceSchema, values: Collection[str]) -> list[StructField]:
    """Return the Spark columns of the table that ``values`` fill."""
    return [spark_field(logical_field(field)) for field in schema.fields if field.name in values]


def _value(field: Field, text: str, time_zone: str) -> pa.Array:
    from pyspark_lance.predicate.parse import parse_constant  # noqa: PLC0415

    try:
        kind = plain_type_of(logical_field(field))
        return pa.repeat(parse_constant(text, kind, time_zone=time_zone), 1)
    except LanceError as error:
        raise SchemaMismatchError(
            f"the rows lack the column {field.name!r}, whose default {text} is not a constant",
            hint="add the column to the rows, or use INSERT INTO or LanceTable.merge, where "
            "Spark evaluates the default",
        ) from error

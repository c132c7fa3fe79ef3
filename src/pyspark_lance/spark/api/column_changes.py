"""Columns that are added or changed: by a schema, expressions or a DataFrame."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from pyspark.errors import ParseException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.name_parts import unquote
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.jobs.column_jobs import (
    declared_columns,
    expression_columns,
    has_nulls,
    plan_converted_column,
    plan_joined_columns,
    stored_type,
)
from pyspark_lance.table.columns.change_columns import (
    ColumnResult,
    add_columns,
    add_null_columns,
    change_nullability,
    set_metadata,
    widen_column,
)
from pyspark_lance.table.columns.schema_change import find_field
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_FIELD_OF_STRUCT = re.compile(r"\s*((?:\w+|`[^`]+`)(?:\.(?:\w+|`[^`]+`))+)\s")


def add_any_columns(
    spark: SparkSession,
    table: Table,
    columns: str | StructType | Mapping[str, Expression] | DataFrame,
    settings: CommitSettings,
) -> ColumnResult:
    """Add columns of any kind; see ``LanceTable.addColumns``."""
    if not isinstance(columns, str | StructType | Mapping | DataFrame):
        raise InvalidInputError(
            f"addColumns takes a schema, expressions by name, or a DataFrame with _rowid, "
            f"not {type(columns).__name__}",
            hint="addColumns('a int, b string'), or addColumns({'a': 'x * 2', 'b': col('y')})",
        )
    if isinstance(columns, str | StructType):
        try:
            declared = declared_columns(spark, columns)
        except ParseException as error:
            if isinstance(columns, str) and (found := _FIELD_OF_STRUCT.match(columns)):
                raise _field_of_struct_error(found[1]) from error
            raise
        return add_null_columns(table, declared, settings)
    snapshot = Snapshot.open(table)
    if isinstance(columns, Mapping):
        values = {unquote(name): value for name, value in columns.items()}
        known = set(snapshot.schema.names)
        for name in values:
            if "." in name and name.split(".")[0] in known:
                raise _field_of_struct_error(name)
        with typed_errors(lambda: snapshot.schema.names):
            schema, run = expression_columns(spark, snapshot, values)
    else:
        schema, run = plan_joined_columns(spark, snapshot, columns)
    return add_columns(table, schema, run, settings)


def _field_of_struct_error(name: str) -> InvalidInputError:
    return InvalidInputError(
        f"addColumns adds whole columns, and {name!r} is a field of a struct",
        hint="SQL adds fields: ALTER TABLE … ADD COLUMNS (s.b int); so do appends with mergeSchema",
    )


def change_column(
    spark: SparkSession,
    table: Table,
    column: str,
    settings: CommitSettings,
    *,
    data_type: str | DataType | None,
    nullable: bool | None,
    comment: str | None,
) -> ColumnResult:
    """Change one property of a column; see ``LanceTable.changeColumn``."""
    if sum(given is not None for given in (data_type, nullable, comment)) != 1:
        raise InvalidInputError(
            "changeColumn changes one of dataType, nullable and comment",
            hint="each change is one version; call it for each",
        )
    if comment is not None:
        return set_metadata(
            table, columns={column: {"comment": comment or None}}, settings=settings
        )
    if nullable is not None:
        return change_nullability(
            table, column, nullable=nullable, has_nulls=partial(has_nulls, spark), settings=settings
        )
    assert data_type is not None  # one of the three is given
    snapshot = Snapshot.open(table)
    name = find_field(snapshot.schema, column)[-1].name
    wanted = stored_type(spark, data_type, name)
    return widen_column(
        table, column, wanted, plan_converted_column(spark, snapshot, name), settings
    )

"""Compute columns of a table on the executors: one new file for each fragment."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import DataType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, spellings
from pyspark_lance.format.field import Field
from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.expressions.expressions import (
    as_column,
    named_columns,
    quote_name,
    readable_columns,
    refuse_trailing_aliases,
)
from pyspark_lance.spark.jobs.stages import map_rows
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.spark.options.write_settings import is_case_sensitive
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.spark.types.write_schema import stored_schema
from pyspark_lance.table.columns.change_columns import RunColumns
from pyspark_lance.table.rows.column_files import ColumnFile, ColumnFilesRequest, write_column_files
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

_PAYLOAD = "payload binary"


def parse_schema(spark: SparkSession, columns: str | StructType) -> StructType:
    """Parse columns such as ``"a int, b string"``."""
    if isinstance(columns, StructType):
        return columns
    return spark.createDataFrame([], columns).schema


def stored_type(spark: SparkSession, kind: str | DataType, name: str) -> pa.DataType:
    """Return the Arrow type in which values of a Spark type are stored."""
    if isinstance(kind, str):
        schema = parse_schema(spark, f"{quote_name(name)} {kind}")
    else:
        schema = StructType([StructField(name, kind)])
    return stored_schema(schema, {}, existing=None, overwrite=False).field(0).type


def declared_columns(
    spark: SparkSession,
    columns: str | StructType,
    column_types: Mapping[str, str] = MappingProxyType({}),
) -> pa.Schema:
    """Return the Arrow schema of declared columns, with their metadata.

    ``columns``: ``"a int not null, b string"`` or a StructType; ``column_types``: options
    ``<column>.<kind>``.
    """
    schema = parse_schema(spark, columns)
    return stored_schema(
        schema,
        column_types,
        existing=None,
        overwrite=False,
        declared=True,
        case_sensitive=is_case_sensitive(spark),
    )


def expression_columns(
    spark: SparkSession, snapshot: Snapshot, expressions: Mapping[str, Expression]
) -> tuple[pa.Schema, RunColumns]:
    """Plan new columns whose values are expressions over the columns of the same row.

    Returns their Arrow schema, and the function that computes them.  Rows stay in the partition of
    their fragment, so there is no shuffle.
    """
    if not expressions:
        raise InvalidInputError("there is no column to add")
    named = named_columns(expressions.values(), readable_columns(snapshot.schema))
    columns = [*(name for name in named if name != ROW_ADDRESS), ROW_ADDRESS]
    values = [as_column(expression).alias(name) for name, expression in expressions.items()]

    source = _scan(spark, snapshot.table, snapshot.version, columns, None)
    refuse_trailing_aliases(source, expressions.values())
    computed = source.select(*values).schema
    schema = _new_columns(spark, computed)

    def run(request: ColumnFilesRequest) -> Iterable[ColumnFile]:
        rows = _scan(spark, snapshot.table, request.read_version, columns, _only(request))
        return _write_columns(request, rows.select(ROW_ADDRESS, *values))

    return schema, run


def _new_columns(spark: SparkSession, schema: StructType) -> pa.Schema:
    sensitive = is_case_sensitive(spark)
    return stored_schema(schema, {}, existing=None, overwrite=False, case_sensitive=sensitive)


def plan_joined_columns(
    spark: SparkSession, snapshot: Snapshot, frame: DataFrame
) -> tuple[pa.Schema, RunColumns]:
    """Plan new columns with values of another DataFrame, joined by ``_rowid``.

    Rows that it lacks get null; rows that the table lacks are ignored.
    """
    row_id = spellings(frame.columns).find_name(ROW_ID)
    if row_id is None:
        raise InvalidInputError(
            f"the DataFrame has no column {ROW_ID}",
            hint="read the table with the option metadataColumns, and keep that column",
        )
    key = "__lance_row_id"
    others = frame.drop(row_id)
    schema = _new_columns(spark, others.schema)
    source = frame.select(
        sf.col(quote_name(row_id)).cast("bigint").alias(key),
        *(quote_name(name) for name in schema.names),
    )

    def run(request: ColumnFilesRequest) -> Iterable[ColumnFile]:
        rows = _scan(
            spark, request.table, request.read_version, [ROW_ID, ROW_ADDRESS], _only(request)
        ).select(sf.col(ROW_ID).alias(f"{key}_target"), sf.col(ROW_ADDRESS).alias(f"{key}_address"))
        joined = rows.join(source, sf.col(f"{key}_target") == sf.col(key), "left").select(
            sf.col(f"{key}_address").alias(ROW_ADDRESS),
            *(quote_name(name) for name in schema.names),
        )
        together = joined.repartition(sf.shiftright(sf.col(ROW_ADDRESS), 32))
        return _write_columns(request, together.sortWithinPartitions(ROW_ADDRESS))

    return schema, run


def plan_converted_column(spark: SparkSession, snapshot: Snapshot, name: str) -> RunColumns:
    """Plan a column with the values of the column ``name`` in the requested type."""

    def run(request: ColumnFilesRequest) -> Iterable[ColumnFile]:
        rows = _scan(
            spark, request.table, request.read_version, [name, ROW_ADDRESS], _only(request)
        )
        return _write_columns(request, rows.select(ROW_ADDRESS, quote_name(name)))

    return run


def has_nulls(spark: SparkSession, snapshot: Snapshot, fields: tuple[Field, ...]) -> bool:
    """Return whether a row has a null in a column, or in a field of a struct that is not null."""
    names = [field.name for field in fields]
    rows = _scan(spark, snapshot.table, snapshot.version, names[:1], None)
    condition: Column = sf.col(quote_name(*names)).isNull()
    for depth in range(1, len(names)):
        condition &= sf.col(quote_name(*names[:depth])).isNotNull()
    return bool(rows.where(condition).limit(1).count())


def _scan(
    spark: SparkSession, table: Table, version: int, columns: Sequence[str], condition: str | None
) -> DataFrame:
    """Scan columns of a version with one partition per fragment."""
    options = storage_options_of(table)
    options["version"] = str(version)
    options["columns"] = ",".join(quote_name(name) for name in columns)
    options["fragmentsPerPartition"] = "1"
    if condition is not None:
        options["filter"] = condition
    return spark.read.format("lance").options(**options).load(table.uri)


def _only(request: ColumnFilesRequest) -> str | None:
    """Return the condition that selects the fragments of a request."""
    if not request.is_partial:
        return None
    terms = (
        f"({ROW_ADDRESS} >= {fragment_id << 32} AND {ROW_ADDRESS} < {(fragment_id + 1) << 32})"
        for fragment_id in sorted(request.fragments)
    )
    return " OR ".join(terms)


def _write_columns(request: ColumnFilesRequest, rows: DataFrame) -> list[ColumnFile]:
    """Run the job and return one description per fragment."""
    messages = map_rows(rows, partial(_write, request), _PAYLOAD).collect()
    return [column_file for message in messages for column_file in pickle.loads(message["payload"])]


@clean_iterator
def _write(
    request: ColumnFilesRequest, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the files of the fragments in ``batches``, in a task."""
    trim_worker_overhead()
    files = list(write_column_files(request, batches))
    yield pa.RecordBatch.from_pydict({"payload": single_value(pickle.dumps(files), pa.binary())})

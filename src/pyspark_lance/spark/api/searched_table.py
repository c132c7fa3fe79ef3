"""One version of a table, as searches read it: the columns of results, conditions, parallelism."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ID, find_named
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.options.times import is_ansi, session_zone_name
from pyspark_lance.spark.source.read_plan import spark_schema_of, visible_columns
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot

QUERY: Final = "_query"
"""The column with the numbers of queries that are no DataFrame."""


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """The columns of the table in the result of a search.

    Attributes:
        fields: As Spark shows them.
        schema: As they are read.
        system_columns: Lineage columns among them.
    """

    fields: tuple[StructField, ...]
    schema: LanceSchema
    system_columns: tuple[str, ...]

    def after(self, left: Sequence[StructField]) -> StructType:
        """Return all columns of the result: ``left``, then those of the table.

        Raises:
            InvalidInputError: Two columns have the same name.
        """
        taken = {field.name.lower() for field in self.fields}
        for field in left:
            if field.name.lower() in taken:
                raise InvalidInputError(
                    f"the column {field.name!r} would be in the result twice",
                    hint="choose columns of the table by columns=[…], or rename that of the "
                    "queries",
                )
            taken.add(field.name.lower())
        return StructType([*left, *self.fields])


@dataclass(frozen=True, slots=True)
class SearchedTable:
    """One version of a table to search.

    Attributes:
        spark: The session.
        snapshot: The version.
        read_options: The options of a read of this version, with its path.
    """

    spark: SparkSession
    snapshot: Snapshot
    read_options: Mapping[str, str]

    def result_columns(self, names: Sequence[str] | None) -> ResultColumns:
        """Return the columns of the table that follow ``_rowid`` in the result; None for all."""
        options = dict(self.read_options)
        chosen = None if names is None else [one for one in names if one.lower() != ROW_ID]
        if chosen:
            options["columns"] = ",".join(map(quote_name, chosen))
        read = ReadOptions.parse(options)
        shown = StructType([]) if chosen == [] else spark_schema_of(read, self.snapshot.pinned)
        schema, system_columns = narrow(visible_columns(read, self.snapshot), shown)
        return ResultColumns(tuple(shown.fields), schema, system_columns)

    def predicate(self, condition: str | None) -> Predicate | None:
        """Parse the condition of a search, with the time zone and the rules of the session."""
        if condition is None:
            return None
        return parse_predicate(
            condition,
            predicate_schema(self.snapshot.schema),
            time_zone=session_zone_name(self.spark),
            ansi=is_ansi(self.spark),
        )


def query_column(fields: Sequence[StructField], name: str, values: str) -> str:
    """Return the column of a DataFrame with the queries: the only one, or the one named ``name``.

    ``fields``: the columns whose type a query may have. ``values``: that type, in errors.

    Raises:
        InvalidInputError: There is none, or there are several of which none has this name.
    """
    own = find_named(fields, name) or (fields[0] if len(fields) == 1 else None)
    if own is None:
        shown = ", ".join(field.name for field in fields) or "none"
        raise InvalidInputError(
            f"the queries have no column {name!r} of {values}",
            hint=f"such columns are: {shown}; rename one to {name!r}",
        )
    return own.name


def default_parallelism(spark: SparkSession) -> int:
    """Return the default parallelism; on Connect, run a query to find it."""
    try:
        return spark.sparkContext.defaultParallelism
    except (PySparkException, AttributeError, NotImplementedError):
        partitions = spark.range(1 << 12).selectExpr("spark_partition_id() AS number")
        return partitions.distinct().count()

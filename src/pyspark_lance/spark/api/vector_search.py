"""Nearest rows: the queries of a user, and how they reach the executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    FractionalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
)

from pyspark_lance.plain_values import plain_array
from pyspark_lance.spark.api.searched_table import (
    QUERY,
    SearchedTable,
    default_parallelism,
    query_column,
)
from pyspark_lance.spark.jobs.nearest_job import (
    FOUND_COLUMNS,
    SearchOutput,
    search_broadcast_queries,
    search_partitioned_queries,
)
from pyspark_lance.table.nearest.ivf_search import metric_and_segments
from pyspark_lance.table.nearest.search_plan import NearestRequest, plan_nearest
from pyspark_lance.table.nearest.vectors import (
    Queries,
    parse_queries,
    queries_in,
    vector_column,
    width_of,
)

_VECTOR: Final = "_vector"
# Maximum numbers of queries to broadcast: with small columns beside the vector, with others, and
# of numbers in all vectors.
_SMALL_QUERY_COUNT: Final = 1 << 13
_SMALL_WIDE_QUERY_COUNT: Final = 1 << 8
_SMALL_NUMBER_COUNT: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class NearestOptions:
    """The arguments of ``LanceTable.nearest`` besides the queries and the version."""

    k: int
    column: str | None
    metric: str | None
    filter: str | None
    columns: Sequence[str] | None
    nprobes: int | None
    refine_factor: int | None
    use_index: bool


def nearest_rows(
    table: SearchedTable,
    queries: DataFrame | Sequence[object] | np.ndarray,
    options: NearestOptions,
) -> DataFrame:
    """Return the rows nearest to each query; see ``LanceTable.nearest``."""
    snapshot, spark = table.snapshot, table.spark
    vectors = vector_column(snapshot.schema, options.column)
    metric, segments = metric_and_segments(
        snapshot, vectors, options.metric, use_index=options.use_index
    )
    shown = table.result_columns(options.columns)
    request = NearestRequest(
        vectors,
        metric,
        options.k,
        table.predicate(options.filter),
        shown.schema,
        shown.system_columns,
        segments,
        options.nprobes,
        options.refine_factor,
    )
    plan = plan_nearest(snapshot, request)

    def output(own: Sequence[StructField]) -> SearchOutput:
        return SearchOutput(plan, shown.after([*own, *FOUND_COLUMNS]), len(own))

    if isinstance(queries, DataFrame):
        numeric = [field for field in queries.schema.fields if _holds_numbers(field)]
        name = query_column(numeric, vectors.name, "arrays of numbers")
        own = [field for field in queries.schema.fields if field.name != name]
        return _nearest_to_rows(spark, queries, name, request, output(own))
    given, is_one = parse_queries(queries, vectors, metric)
    numbered = [] if is_one else [StructField(QUERY, LongType(), nullable=False)]
    if len(given) > _max_broadcast_queries(request, own_is_small=True):
        rows = _rows_of(spark, given).repartition(default_parallelism(spark))
        return search_partitioned_queries(output(numbered), rows, _VECTOR)
    names = pa.RecordBatch.from_arrays([plain_array(given.numbers)], names=[QUERY])
    return search_broadcast_queries(spark, output(numbered), given, names)


def _nearest_to_rows(
    spark: SparkSession,
    queries: DataFrame,
    vector: str,
    request: NearestRequest,
    output: SearchOutput,
) -> DataFrame:
    if queries.isStreaming:
        return search_partitioned_queries(output, queries, vector)
    most = _max_broadcast_queries(
        request, own_is_small=_is_small(output.schema.fields[: output.num_own])
    )
    some = queries.limit(most + 1).toArrow()
    if some.num_rows > most:
        spread = queries.repartition(default_parallelism(spark))
        return search_partitioned_queries(output, spread, vector)
    position = some.column_names.index(vector)
    lists = some.column(position).combine_chunks()
    batches = some.remove_column(position).combine_chunks().to_batches()
    own = batches[0] if batches else some.remove_column(position).schema.empty_table()
    given = queries_in(lists, request.column, request.metric)
    return search_broadcast_queries(spark, output, given, own)


def _holds_numbers(field: StructField) -> bool:
    kind = field.dataType
    return isinstance(kind, ArrayType) and isinstance(
        kind.elementType, FractionalType | IntegralType
    )


def _is_small(fields: Sequence[StructField]) -> bool:
    """Return whether all columns have types of a small fixed size."""
    return not any(
        hasattr(field.dataType, "elementType")
        or hasattr(field.dataType, "keyType")
        or hasattr(field.dataType, "fields")
        or field.dataType.typeName() in ("binary", "variant")
        or isinstance(field.dataType, StringType)
        for field in fields
    )


def _max_broadcast_queries(request: NearestRequest, *, own_is_small: bool) -> int:
    """Return the maximum number of queries to broadcast."""
    most = _SMALL_QUERY_COUNT if own_is_small else _SMALL_WIDE_QUERY_COUNT
    return max(1, min(most, _SMALL_NUMBER_COUNT // (width_of(request.column) + 5 * request.k)))


def _rows_of(spark: SparkSession, queries: Queries) -> DataFrame:
    """Convert queries to a DataFrame."""
    vectors = queries.vectors.astype(np.promote_types(queries.vectors.dtype, np.float32))
    lists = pa.FixedSizeListArray.from_arrays(plain_array(vectors.reshape(-1)), vectors.shape[1])
    kind = pa.list_(lists.type.value_type)
    rows = pa.table({QUERY: plain_array(queries.numbers), _VECTOR: lists.cast(kind)})
    return spark.createDataFrame(rows)

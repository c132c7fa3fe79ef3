"""Searches of ``LanceTable``: nearest rows, full-text and hybrid search, near-duplicates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    FractionalType,
    IntegralType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ID, find_named
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_array, plain_values
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.jobs.nearest_job import (
    FOUND_COLUMNS,
    SearchOutput,
    search_broadcast_queries,
    search_partitioned_queries,
)
from pyspark_lance.spark.jobs.search_job import (
    HYBRID_COLUMNS,
    SEARCH_COLUMNS,
    BatchOutput,
    HybridOutput,
    NearDuplicatesOutput,
    TextOutput,
    search_both,
    search_duplicates,
    search_partitioned_duplicates,
    search_partitioned_texts,
    search_texts,
)
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.options.times import is_ansi, session_zone_name
from pyspark_lance.spark.source.read_plan import spark_schema_of, visible_columns
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.nearest.ivf_search import metric_and_segments
from pyspark_lance.table.nearest.search_plan import NearestRequest, plan_nearest
from pyspark_lance.table.nearest.vectors import (
    Queries,
    parse_queries,
    queries_in,
    vector_column,
    width_of,
)
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.text.hybrid import HybridOptions, plan_hybrid
from pyspark_lance.table.text.near_duplicates import (
    NearDuplicatesRequest,
    near_duplicates_column,
    plan_near_duplicates,
)
from pyspark_lance.table.text.queries import Operator, parse_query
from pyspark_lance.table.text.search_plan import SearchRequest, plan_batch, plan_search
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


_TEXT: Final = "_text"


@dataclass(frozen=True, slots=True)
class TextOptions:
    """The arguments of ``LanceTable.search`` besides the queries and the version.

    ``LanceTable.hybridSearch`` has them, too, for its words.
    """

    k: int | None
    column: str | Sequence[str] | None
    filter: str | None
    columns: Sequence[str] | None
    operator: str
    covered_only: bool = False

    @property
    def searched_columns(self) -> list[str]:
        """The columns to search; none for all with a full-text index."""
        return [self.column] if isinstance(self.column, str) else list(self.column or ())


@dataclass(frozen=True, slots=True)
class NearDuplicatesOptions:
    """The arguments of ``LanceTable.nearDuplicates`` besides the texts and the version."""

    k: int | None
    column: str | None
    filter: str | None
    columns: Sequence[str] | None
    max_distance: float | None


def rows_by_words(
    table: SearchedTable,
    query: str | Mapping[str, Any] | Sequence[str] | DataFrame,
    options: TextOptions,
) -> DataFrame:
    """Return the rows whose texts match each query best; see ``LanceTable.search``."""
    shown = table.result_columns(options.columns)
    several = _queries_of(table.spark, query)
    searched = options.searched_columns
    words = parse_query("" if several is not None else query, searched, options.operator)
    request = SearchRequest(
        words,
        options.k,
        table.predicate(options.filter),
        shown.schema,
        shown.system_columns,
        options.covered_only,
    )
    if several is None:
        plan = plan_search(table.snapshot, request)
        return search_texts(table.spark, TextOutput(plan, shown.after(SEARCH_COLUMNS)))
    own = several.shown_columns
    batch = plan_batch(table.snapshot, request, searched, Operator.parse(options.operator))
    output = BatchOutput(batch, shown.after([*own, *SEARCH_COLUMNS]), len(own), several.text)
    return search_partitioned_texts(output, several.rows)


def near_duplicate_rows(
    table: SearchedTable, queries: str | Sequence[str] | DataFrame, options: NearDuplicatesOptions
) -> DataFrame:
    """Return the rows whose texts are nearly the same; see ``LanceTable.nearDuplicates``."""
    searched = near_duplicates_column(table.snapshot, options.column)
    shown = table.result_columns(options.columns)
    request = NearDuplicatesRequest(
        searched,
        options.k,
        options.max_distance,
        table.predicate(options.filter),
        shown.schema,
        shown.system_columns,
    )
    plan = plan_near_duplicates(table.snapshot, request)
    if isinstance(queries, str):
        one = NearDuplicatesOutput(plan, shown.after(FOUND_COLUMNS), 0)
        return search_duplicates(table.spark, one, queries)
    several = _queries_of(table.spark, queries, searched.name)
    if several is None:
        raise InvalidInputError("the queries are neither texts nor a DataFrame")
    own = several.shown_columns
    output = NearDuplicatesOutput(plan, shown.after([*own, *FOUND_COLUMNS]), len(own))
    return search_partitioned_duplicates(output, several.rows, several.text)


def rows_by_words_and_vector(
    table: SearchedTable, text: str | Mapping[str, Any], words: TextOptions, options: HybridOptions
) -> DataFrame:
    """Return the rows that words and a vector find; see ``LanceTable.hybridSearch``."""
    shown = table.result_columns(words.columns)
    query = parse_query(text, words.searched_columns, words.operator)
    predicate = table.predicate(words.filter)
    request = SearchRequest(query, words.k, predicate, shown.schema, shown.system_columns)
    plan = plan_hybrid(table.snapshot, request, options)
    return search_both(table.spark, HybridOutput(plan, shown.after(HYBRID_COLUMNS)))


@dataclass(frozen=True, slots=True)
class _TextQueries:
    """Several queries, as rows with a column of texts."""

    rows: DataFrame
    text: str  # The column of texts.
    shown_columns: tuple[StructField, ...]  # The columns that the result begins with.


def _queries_of(spark: SparkSession, given: object, column: str = "query") -> _TextQueries | None:
    """Return several queries; None for one query.

    ``column``: which column of texts of a DataFrame that has several.
    """
    if isinstance(given, DataFrame):
        fields = given.schema.fields
        texts = [field for field in fields if isinstance(field.dataType, StringType)]
        name = query_column(texts, column, "strings")
        spread = given if given.isStreaming else given.repartition(default_parallelism(spark))
        return _TextQueries(spread, name, tuple(fields))
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        return None
    rows = pa.table(
        {QUERY: plain_array(np.arange(len(given))), _TEXT: plain_values(given, pa.string())}
    )
    number = StructField(QUERY, LongType(), nullable=False)
    frame = spark.createDataFrame(rows, StructType([number, StructField(_TEXT, StringType())]))
    return _TextQueries(frame.repartition(default_parallelism(spark)), _TEXT, (number,))

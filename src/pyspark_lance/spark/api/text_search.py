"""Rows by the words of their texts: full-text search, near-duplicates, words and a vector."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array, plain_values
from pyspark_lance.spark.api.searched_table import (
    QUERY,
    SearchedTable,
    default_parallelism,
    query_column,
)
from pyspark_lance.spark.jobs.nearest_job import FOUND_COLUMNS
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
from pyspark_lance.table.text.hybrid import HybridOptions, plan_hybrid
from pyspark_lance.table.text.near_duplicates import (
    NearDuplicatesRequest,
    near_duplicates_column,
    plan_near_duplicates,
)
from pyspark_lance.table.text.queries import Operator, parse_query
from pyspark_lance.table.text.search_plan import SearchRequest, plan_batch, plan_search

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

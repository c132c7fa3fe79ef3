"""The methods of ``LanceTable`` for full-text search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import named
from pyspark_lance.plain_values import plain_array, plain_values
from pyspark_lance.spark.api.table_search import (
    QUERY,
    output_schema,
    parallelism_of,
    search_filter,
    table_columns,
)
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.jobs.hybrid_job import HYBRID_COLUMNS, HybridOutput, search_both
from pyspark_lance.spark.jobs.search_job import (
    SEARCH_COLUMNS,
    BatchOutput,
    SearchAnswer,
    search_partitioned_texts,
    search_texts,
)
from pyspark_lance.spark.options.spellings import checks_keywords
from pyspark_lance.spark.source.read_plan import shown_columns
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.nearest.ivf_plan import metric_and_segments
from pyspark_lance.table.nearest.search_plan import NearestRequest, plan_nearest
from pyspark_lance.table.nearest.vectors import parse_queries, vector_column
from pyspark_lance.table.text.batch_search import plan_batch
from pyspark_lance.table.text.hybrid import Fusion
from pyspark_lance.table.text.queries import Operator, parse_query
from pyspark_lance.table.text.search_plan import SearchRequest, check_k, plan_search
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, suggest_paths
from pyspark_lance.table.version.time_travel import VersionSpec

_TEXT: Final = "_text"
_QUERY_COLUMN: Final = "query"


@checks_keywords
class TextSearch:
    """Searches rows by the words of their texts."""

    _spark: SparkSession
    _table: Table
    _version_of: Callable[..., VersionSpec]
    _read_options: Callable[[VersionSpec], dict[str, str]]

    @typed_errors()
    def search(  # noqa: PLR0913
        self,
        query: str | Mapping[str, Any] | Sequence[str] | DataFrame,
        k: int | None = 10,
        column: str | Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        operator: str = "or",
        coveredOnly: bool = False,  # noqa: N803
        version: int | str | None = None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """The rows whose texts match a query best, by BM25, as Lance scores them.

        The result has ``_rank`` from 1 on, ``_score`` and ``_rowid``, then the columns of the
        table; before them, for several queries, ``_query``, numbered from 0, and for those of a
        DataFrame its columns. Tasks search for some of the queries each. Ties are broken by
        ``_rowid``. The words of a column with a full-text index (INVERTED, also of pylance or
        lancedb) become tokens as those of the index: lower case, stems and so on; rows written
        later are read and scored, too. Without an index every row is read, and words are compared
        as they are.

        Args:
            query: Words; words in double quotes, which are a phrase; or a query as Lance writes it
                in JSON, as a string or a dict: ``match``, ``phrase``, ``boolean``, ``boost``,
                ``multi_match``. Or several of these as strings, or a DataFrame with a column of
                them, which is named ``query`` or is the only one of strings; NULL finds nothing.
            k: Rows to find, for each query; None for all that match.
            column: The column to search, or several, of which the best score counts; None for all
                with a full-text index.
            filter: SQL condition over columns of the table and lineage columns, applied before the
                search.
            columns: Columns of the table to return, which may be lineage columns; None for all.
            operator: ``or`` finds rows with one of the words, ``and`` rows with all of them.
            coveredOnly: Leaves out rows that the index does not cover, which have to be read.
            version: Version to read; None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            InvalidInputError: The query cannot be read; no such column, or no texts in it; a phrase
                in an index without positions.
            UnsupportedFeatureError: An index with a tokenizer that is not supported, such as
                ``icu`` or ``jieba``, or stems without the package ``snowballstemmer``.

        Examples:
            >>> notes = LanceTable.create(spark, f"{folder}/texts", "id bigint, body string")
            >>> rows = [(1, "a quick brown fox"), (2, "a lazy dog"), (3, "a dog and a fox")]
            >>> frame = spark.createDataFrame(rows, notes.toDF().schema)
            >>> frame.coalesce(1).write.format("lance").mode("append").save(f"{folder}/texts")
            >>> found = notes.search("fox dog", 2, "body", columns=["id"])
            >>> [(row._rank, row.id) for row in found.collect()]
            [(1, 3), (2, 2)]
        """
        at = self._version_of(version, tag, timestamp)
        with suggest_paths(self._table):
            snapshot = Snapshot.open(self._table, at)
        searched = [column] if isinstance(column, str) else list(column or ())
        options, shown = table_columns(self._read_options(at), self._table, snapshot, columns)
        read, system = narrow(shown_columns(options, snapshot), shown)
        several = _queries_of(self._spark, query)
        request = SearchRequest(
            parse_query("" if several is not None else query, searched, operator),
            k,
            search_filter(self._spark, snapshot, filter),
            read,
            system,
            coveredOnly,
        )
        if several is not None:
            rows, texts = several
            is_numbered = not isinstance(query, DataFrame)
            own = [one for one in rows.schema.fields if not is_numbered or one.name == QUERY]
            plan = plan_batch(snapshot, request, searched, Operator.parse(operator))
            of_rows = output_schema([*own, *SEARCH_COLUMNS], shown.fields)
            return search_partitioned_texts(BatchOutput(plan, of_rows, len(own), texts), rows)
        schema = output_schema(SEARCH_COLUMNS, shown.fields)
        answer = SearchAnswer(plan_search(snapshot, request), schema)
        return search_texts(self._spark, answer)

    @typed_errors()
    def hybridSearch(  # noqa: N802, PLR0913
        self,
        text: str | Mapping[str, Any],
        vector: Sequence[float] | np.ndarray,
        k: int = 10,
        fusion: str | Mapping[str, float] = "rrf",
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        column: str | Sequence[str] | None = None,
        vectorColumn: str | None = None,  # noqa: N803
        operator: str = "or",
        metric: str | None = None,
        candidates: int = 100,
        version: int | str | None = None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """The rows that words and a vector find, ranked together, in one job.

        The result has ``_rank`` from 1 on, the common ``_score``, ``_rowid``, ``_text_score`` and
        ``_distance`` (NULL where only the other search found the row), then the columns of the
        table. Ties are broken by ``_rowid``.

        Args:
            text: Words, or a query, as in ``search``.
            vector: One vector, as in ``nearest``.
            k: Rows to find.
            fusion: ``rrf`` adds 1 / (60 + rank) of both rankings; weights such as
                ``{"text": 0.3, "vector": 0.7}`` add the scores, each scaled to 0 to 1.
            filter: SQL condition over columns of the table and lineage columns, applied before both
                searches.
            columns: Columns of the table to return, which may be lineage columns; None for all.
            column: The column or columns of texts to search, as in ``search``.
            vectorColumn: The vector column; needed only if the table has several.
            operator: ``or`` or ``and``, for words.
            metric: ``l2``, ``cosine`` or ``dot``, as in ``nearest``.
            candidates: Rows of each search that are ranked, at least ``k``.
            version: Version to read; None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            InvalidInputError: As ``search`` and ``nearest``; no such fusion.

        Examples:
            >>> schema, sizes = "id bigint, body string, v array<float>", {"v.fixed_size_list": 2}
            >>> pages = LanceTable.create(spark, f"{folder}/pages", schema, options=sizes)
            >>> rows = [(1, "a red fox", [1.0, 0.0]), (2, "a blue dog", [0.0, 1.0])]
            >>> frame = spark.createDataFrame(rows, pages.toDF().schema)
            >>> frame.coalesce(1).write.format("lance").mode("append").save(f"{folder}/pages")
            >>> found = pages.hybridSearch("fox", [1.0, 0.0], 1, column="body", columns=["id"])
            >>> [row.id for row in found.collect()]
            [1]
        """
        at = self._version_of(version, tag, timestamp)
        with suggest_paths(self._table):
            snapshot = Snapshot.open(self._table, at)
        fused = Fusion.parse(fusion)
        vectors = vector_column(snapshot.schema, vectorColumn)
        kind, segments = metric_and_segments(snapshot, vectors, metric)
        queries, is_one = parse_queries(vector, vectors, kind)
        if not is_one:
            raise InvalidInputError("hybridSearch takes one vector", hint="call it for each")
        options, shown = table_columns(self._read_options(at), self._table, snapshot, columns)
        read, system = narrow(shown_columns(options, snapshot), shown)
        predicate = search_filter(self._spark, snapshot, filter)
        searched = [column] if isinstance(column, str) else list(column or ())
        query = parse_query(text, searched, operator)
        check_k(k)
        of_each = max(k, candidates)
        answer = HybridOutput(
            plan_search(snapshot, SearchRequest(query, of_each, predicate, read, system)),
            plan_nearest(
                snapshot, NearestRequest(vectors, kind, of_each, predicate, read, system, segments)
            ),
            queries,
            fused,
            k,
            output_schema(HYBRID_COLUMNS, shown.fields),
        )
        return search_both(self._spark, answer)


def _queries_of(spark: SparkSession, given: object) -> tuple[DataFrame, str] | None:
    """Return several queries as rows with a column of texts; None for one query."""
    if isinstance(given, DataFrame):
        name = _text_column_of(given.schema)
        return (given if given.isStreaming else given.repartition(parallelism_of(spark))), name
    if isinstance(given, str | Mapping) or not isinstance(given, Sequence):
        return None
    rows = pa.table(
        {QUERY: plain_array(np.arange(len(given))), _TEXT: plain_values(given, pa.string())}
    )
    schema = StructType(
        [StructField(QUERY, LongType(), nullable=False), StructField(_TEXT, StringType())]
    )
    return spark.createDataFrame(rows, schema).repartition(parallelism_of(spark)), _TEXT


def _text_column_of(schema: StructType) -> str:
    """Return the name of the column with the texts of queries.

    Raises:
        InvalidInputError: There is none, or there are several of which none is named ``query``.
    """
    known = [field for field in schema.fields if isinstance(field.dataType, StringType)]
    own = named(known, _QUERY_COLUMN) or (known[0] if len(known) == 1 else None)
    if own is None:
        shown = ", ".join(field.name for field in known) or "none"
        raise InvalidInputError(
            f"the queries have no column {_QUERY_COLUMN!r} of strings",
            hint=f"such columns are: {shown}; rename one to {_QUERY_COLUMN!r}",
        )
    return own.name

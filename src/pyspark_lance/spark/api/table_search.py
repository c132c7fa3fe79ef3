"""The methods of ``LanceTable`` for vector search, vector indices and full-text search."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
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
from pyspark_lance.format.column_names import ROW_ID, named
from pyspark_lance.plain_values import plain_array, plain_values
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.expressions.expressions import quoted
from pyspark_lance.spark.jobs.hybrid_job import HYBRID_COLUMNS, HybridOutput, search_both
from pyspark_lance.spark.jobs.near_duplicates_job import (
    NearDuplicatesOutput,
    search_duplicates,
    search_partitioned_duplicates,
)
from pyspark_lance.spark.jobs.nearest_job import (
    FOUND_COLUMNS,
    SearchOutput,
    search_broadcast_queries,
    search_partitioned_queries,
)
from pyspark_lance.spark.jobs.search_job import (
    SEARCH_COLUMNS,
    BatchOutput,
    SearchAnswer,
    search_partitioned_texts,
    search_texts,
)
from pyspark_lance.spark.jobs.stages import run_on_executors
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.options.spellings import COMMIT_OPTIONS, changes_table, checks_keywords
from pyspark_lance.spark.options.times import is_ansi, session_zone_name
from pyspark_lance.spark.options.write_settings import change_settings, options_of_change
from pyspark_lance.spark.source.read_plan import shown_columns, spark_schema_of
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.index_build.vector_build import (
    VectorIndexRequest,
    VectorIndexResult,
    parse_kind,
)
from pyspark_lance.table.index_build.vector_indices import (
    create_vector_index,
    refresh_vector_indices,
)
from pyspark_lance.table.nearest.ivf_plan import metric_and_segments
from pyspark_lance.table.nearest.search_plan import NearestRequest, plan_nearest
from pyspark_lance.table.nearest.vectors import (
    Metric,
    Queries,
    parse_queries,
    queries_in,
    vector_column,
    width_of,
)
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.text.batch_search import plan_batch
from pyspark_lance.table.text.hybrid import Fusion
from pyspark_lance.table.text.near_duplicates import (
    NearDuplicatesRequest,
    near_duplicates_column,
    plan_near_duplicates,
)
from pyspark_lance.table.text.queries import Operator, parse_query
from pyspark_lance.table.text.search_plan import SearchRequest, check_k, plan_search
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, suggest_paths
from pyspark_lance.table.version.time_travel import VersionSpec

QUERY: Final = "_query"
_VECTOR: Final = "_vector"
# Maximum numbers of queries to broadcast: with small columns beside the vector, with others, and
# of numbers in all vectors.
_SMALL_QUERY_COUNT: Final = 1 << 13
_SMALL_WIDE_QUERY_COUNT: Final = 1 << 8
_SMALL_NUMBER_COUNT: Final = 1 << 21


@checks_keywords
class TableSearch:
    """Searches rows by their vectors, and creates and refreshes vector indices."""

    _spark: SparkSession
    _table: Table
    _version_of: Callable[..., VersionSpec]
    _read_options: Callable[[VersionSpec], dict[str, str]]

    @typed_errors()
    def nearest(  # noqa: PLR0913
        self,
        queries: DataFrame | Sequence[object] | np.ndarray,
        k: int = 10,
        column: str | None = None,
        metric: str | None = None,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        nprobes: int | None = None,
        refineFactor: int | None = None,  # noqa: N803
        useIndex: bool = True,  # noqa: N803
        version: int | str | None = None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Return the rows nearest to one vector, to several, or to those of a DataFrame.

        The result has the columns of the queries (``_query``, numbered from 0, for an array; all
        but the vector for a DataFrame), then ``_rank`` from 1 on, ``_distance`` and ``_rowid``,
        then those of the table. Without a vector index the search is exact: the executors compare
        every row, and their memory does not depend on the number of rows or queries. Ties are
        broken by ``_rowid``. Rows whose vector is NULL or contains NaN are skipped, and so are such
        queries of a DataFrame. With an index (IVF_FLAT, IVF_PQ, IVF_SQ, also of pylance or lancedb)
        recall and ``_distance`` are those of the index.

        Args:
            queries: A vector, several vectors, or a DataFrame with a column of numeric arrays that
                has the name of the table's vector column, or is the only one. A small part of a
                DataFrame is run at once.
            k: Rows per query; fewer if the table has fewer.
            column: The vector column; needed only if the table has several.
            metric: ``l2`` (the square of the distance), ``cosine`` or ``dot``; the default is that
                of the index, or ``l2``.
            filter: SQL condition over columns of the table and lineage columns, applied before the
                search.
            columns: Columns of the table to return, which may be lineage columns; None for all.
            nprobes: Partitions of the index to search per query; None for those about as near as
                the nearest, as in Lance, and more if they have less than ``k`` rows.
            refineFactor: The index returns this many times ``k`` candidates, which are re-ranked by
                their vectors; ``_distance`` is then exact.
            useIndex: Whether an index is used, if there is one for the metric.
            version: Version to read; None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            InvalidInputError: A query has another length than the vectors, or no neighbours (NULL,
                NaN); no vector column, or several; a column name that both sides have.

        Examples:
            >>> schema, sizes = "id bigint, vec array<float>", {"vec.fixed_size_list": 2}
            >>> papers = LanceTable.create(spark, f"{folder}/papers", schema, options=sizes)
            >>> rows = [(1, [0.0, 1.0]), (2, [3.0, 4.0])]
            >>> frame = spark.createDataFrame(rows, papers.toDF().schema)
            >>> frame.write.format("lance").mode("append").save(f"{folder}/papers")
            >>> papers.nearest([3.0, 3.0], 1, columns=["id"]).collect()
            [Row(_rank=1, _distance=1.0, _rowid=1, id=2)]
        """
        at = self._version_of(version, tag, timestamp)
        with suggest_paths(self._table):
            snapshot = Snapshot.open(self._table, at)
        vectors = vector_column(snapshot.schema, column)
        kind, segments = metric_and_segments(snapshot, vectors, metric, use_index=useIndex)
        asked = table_columns(self._read_options(at), self._table, snapshot, columns)
        read, system = narrow(shown_columns(asked[0], snapshot), asked[1])
        predicate = search_filter(self._spark, snapshot, filter)
        request = NearestRequest(
            vectors, kind, k, predicate, read, system, segments, nprobes, refineFactor
        )
        plan = plan_nearest(snapshot, request)

        def output(own: Sequence[StructField]) -> SearchOutput:
            return SearchOutput(
                plan, output_schema([*own, *FOUND_COLUMNS], asked[1].fields), len(own)
            )

        if isinstance(queries, DataFrame):
            name = _vector_of(queries.schema, vectors.name)
            own = [field for field in queries.schema.fields if field.name != name]
            return self._nearest_to_rows(queries, name, request, output(own))
        given, is_one = parse_queries(queries, vectors, kind)
        numbered = [] if is_one else [StructField(QUERY, LongType(), nullable=False)]
        if len(given) > _max_broadcast_queries(request, own_is_small=True):
            rows = _rows_of(self._spark, given).repartition(parallelism_of(self._spark))
            return search_partitioned_queries(output(numbered), rows, _VECTOR)
        names = pa.RecordBatch.from_arrays([plain_array(given.numbers)], names=[QUERY])
        return search_broadcast_queries(self._spark, output(numbered), given, names)

    def _nearest_to_rows(
        self, queries: DataFrame, vector: str, request: NearestRequest, output: SearchOutput
    ) -> DataFrame:
        if queries.isStreaming:
            return search_partitioned_queries(output, queries, vector)
        most = _max_broadcast_queries(
            request, own_is_small=_is_small(output.schema.fields[: output.num_own])
        )
        some = queries.limit(most + 1).toArrow()
        if some.num_rows > most:
            spread = queries.repartition(parallelism_of(self._spark))
            return search_partitioned_queries(output, spread, vector)
        place = some.column_names.index(vector)
        lists = some.column(place).combine_chunks()
        batches = some.remove_column(place).combine_chunks().to_batches()
        own = batches[0] if batches else some.remove_column(place).schema.empty_table()
        given = queries_in(lists, request.column, request.metric)
        return search_broadcast_queries(self._spark, output, given, own)

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    def createVectorIndex(  # noqa: N802, PLR0913
        self,
        column: str | None = None,
        kind: str = "ivf_pq",
        metric: str = "l2",
        *,
        numPartitions: int | None = None,  # noqa: N803
        numSubVectors: int | None = None,  # noqa: N803
        sampleRate: int = 256,  # noqa: N803
        seed: int | None = None,
        name: str | None = None,
        replace: bool = False,
        **options: str,
    ) -> VectorIndexResult:
        """Create an index on a vector column, on the executors, for ``nearest`` and Lance.

        Vectors near to each other are grouped into partitions; a search reads the partitions near
        to its query. One task trains on a sample, all tasks encode the rows, one task writes them;
        none of them needs more memory for a larger table. Rows written later are compared one by
        one, until ``refreshVectorIndices``.

        Args:
            column: The vector column; needed only if the table has several.
            kind: What is stored per vector: ``ivf_flat`` (the whole vector), ``ivf_sq`` (one byte
                per number), ``ivf_pq`` (one byte per sub-vector).
            metric: ``l2``, ``cosine`` or ``dot``; only searches with this metric use the index.
            numPartitions: Number of partitions, at most 4096; by default one per 8192 rows (4096
                for ``ivf_flat``).
            numSubVectors: ``ivf_pq`` only: number of sub-vectors, which divides the length of the
                vectors; by default a 16th of it, or an 8th where 16 does not divide it.
            sampleRate: Vectors to train on, per partition and per each of the 256 codewords of
                ``ivf_pq``.
            seed: The same seed and table give the same index; None for random training.
            name: Name of the index; ``<column>_idx`` by default.
            replace: Whether it replaces a vector index of this name.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: No such column, or no vector in it; an index of that name exists;
                ``numSubVectors`` does not divide the length of the vectors.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> schema, sizes = "id bigint, vec array<float>", {"vec.fixed_size_list": 2}
            >>> notes = LanceTable.create(spark, f"{folder}/notes", schema, options=sizes)
            >>> rows = [(1, [0.0, 1.0]), (2, [3.0, 4.0])]
            >>> frame = spark.createDataFrame(rows, notes.toDF().schema)
            >>> frame.write.format("lance").mode("append").save(f"{folder}/notes")
            >>> notes.createVectorIndex("vec", "ivf_flat").numRows
            2
        """
        request = VectorIndexRequest(
            column,
            parse_kind(kind),
            Metric.parse(metric),
            numPartitions,
            numSubVectors,
            sampleRate,
            seed,
            name,
            replace,
        )
        return create_vector_index(
            self._table,
            request,
            change_settings(options_of_change(options, self._table, self._spark)),
            run=partial(run_on_executors, self._spark),
        )

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    def refreshVectorIndices(  # noqa: N802
        self, names: str | Sequence[str] | None = None, **options: str
    ) -> tuple[VectorIndexResult, ...]:
        """Add to vector indices the rows written, compacted or updated since the last refresh.

        Only fragments that an index does not cover are read; they become a new segment, with the
        partitions and codewords of the index. ``optimizeIndices`` merges segments, and so does
        Lance. An index with a graph (HNSW) stays as it is.

        Args:
            names: Name of an index, or several; None for all.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Returns:
            A result for each index that has a new segment; all in one version.

        Raises:
            InvalidInputError: There is no such index.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> table.refreshVectorIndices()
            ()
        """
        chosen = None if names is None else [names] if isinstance(names, str) else list(names)
        return refresh_vector_indices(
            self._table,
            chosen,
            change_settings(options_of_change(options, self._table, self._spark)),
            run=partial(run_on_executors, self._spark),
        )


def table_columns(
    options: dict[str, str], table: Table, snapshot: Snapshot, columns: Sequence[str] | None
) -> tuple[ReadOptions, StructType]:
    """Return the columns of the table that follow ``_rowid`` in the result."""
    names = None if columns is None else [one for one in columns if one.lower() != ROW_ID]
    if names:
        options["columns"] = ",".join(map(quoted, names))
    read = ReadOptions.parse({**options, "path": table.root})
    if names is not None and not names:
        return read, StructType([])
    return read, spark_schema_of(read, snapshot.pinned)


def search_filter(
    spark: SparkSession, snapshot: Snapshot, condition: str | None
) -> Predicate | None:
    """The condition of a search, with the time zone and the rules of the session."""
    if condition is None:
        return None
    return parse_predicate(
        condition,
        predicate_schema(snapshot.schema),
        time_zone=session_zone_name(spark),
        ansi=is_ansi(spark),
    )


def output_schema(left: Sequence[StructField], of_table: Sequence[StructField]) -> StructType:
    """All columns of the answer to a search.

    Raises:
        InvalidInputError: Two columns have the same name.
    """
    taken = {field.name.lower() for field in of_table}
    for field in left:
        if field.name.lower() in taken:
            raise InvalidInputError(
                f"the column {field.name!r} would be in the result twice",
                hint="choose columns of the table by columns=[…], or rename that of the queries",
            )
        taken.add(field.name.lower())
    return StructType([*left, *of_table])


def _vector_of(schema: StructType, name: str) -> str:
    """Return the name of the vector column of the queries.

    Raises:
        InvalidInputError: There is none, or there are several without the name of the table's.
    """
    known = [field for field in schema.fields if _holds_numbers(field)]
    own = named(known, name) or (known[0] if len(known) == 1 else None)
    if own is None:
        shown = ", ".join(field.name for field in known) or "none"
        raise InvalidInputError(
            f"the queries have no column {name!r} of arrays of numbers",
            hint=f"such columns are: {shown}; rename one to {name!r}",
        )
    return own.name


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


def parallelism_of(spark: SparkSession) -> int:
    """Return the default parallelism; on Connect, run a query to find it."""
    try:
        return spark.sparkContext.defaultParallelism
    except (PySparkException, AttributeError, NotImplementedError):
        places = spark.range(1 << 12).selectExpr("spark_partition_id() AS place")
        return places.distinct().count()


_TEXT: Final = "_text"


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
    def nearDuplicates(  # noqa: N802, PLR0913
        self,
        queries: str | Sequence[str] | DataFrame,
        k: int | None = 10,
        column: str | None = None,
        filter: str | None = None,  # noqa: A002
        columns: Sequence[str] | None = None,
        *,
        maxDistance: float | None = None,  # noqa: N803
        version: int | str | None = None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Return the rows whose texts are nearly those of the queries.

        The result has the columns of the queries (``_query``, numbered from 0, for several texts;
        those of a DataFrame), then ``_rank`` from 1 on, ``_distance`` and ``_rowid``, then the
        columns of the table. ``_distance`` is 1 minus the estimated share of runs of three words
        that both texts have: 0 for equal texts. Rows are compared if one of 16 parts of their
        signatures is equal, so pairs beyond a distance of about 0.5 are often not found. Without
        an index every row is read. Ties are broken by ``_rowid``.

        Args:
            queries: A text, several texts, or a DataFrame with a column of texts, which has the
                name of the table's, or is the only one of strings. NULL and texts without words
                find nothing.
            k: Rows to find, for each text; None for all.
            column: The column of texts; needed only if several have a MinHash index, or if none
                has one and several hold texts.
            filter: SQL condition over columns of the table and lineage columns, applied before the
                search.
            columns: Columns of the table to return, which may be lineage columns; None for all.
            maxDistance: Leaves out rows that are further away, 0 to 1.
            version: Version to read; None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            InvalidInputError: No such column, or no texts in it; ``k`` or ``maxDistance`` is out of
                range.

        Examples:
            >>> posts = LanceTable.create(spark, f"{folder}/posts", "id bigint, body string")
            >>> rows = [(1, "a quick brown fox jumps"), (2, "A quick brown fox jumps!"), (3, "no")]
            >>> frame = spark.createDataFrame(rows, posts.toDF().schema)
            >>> frame.coalesce(1).write.format("lance").mode("append").save(f"{folder}/posts")
            >>> found = posts.nearDuplicates("a quick brown fox jumps", columns=["id"])
            >>> [(row._distance, row.id) for row in found.collect()]
            [(0.0, 1), (0.0, 2)]
        """
        at = self._version_of(version, tag, timestamp)
        with suggest_paths(self._table):
            snapshot = Snapshot.open(self._table, at)
        searched = near_duplicates_column(snapshot, column)
        options, shown = table_columns(self._read_options(at), self._table, snapshot, columns)
        read, system = narrow(shown_columns(options, snapshot), shown)
        predicate = search_filter(self._spark, snapshot, filter)
        plan = plan_near_duplicates(
            snapshot, NearDuplicatesRequest(searched, k, maxDistance, predicate, read, system)
        )
        if isinstance(queries, str):
            one = NearDuplicatesOutput(plan, output_schema(FOUND_COLUMNS, shown.fields), 0)
            return search_duplicates(self._spark, one, queries)
        several = _queries_of(self._spark, queries, searched.name)
        if several is None:
            raise InvalidInputError("the queries are neither texts nor a DataFrame")
        rows, texts = several
        is_numbered = not isinstance(queries, DataFrame)
        own = [one for one in rows.schema.fields if not is_numbered or one.name == QUERY]
        schema = output_schema([*own, *FOUND_COLUMNS], shown.fields)
        return search_partitioned_duplicates(
            NearDuplicatesOutput(plan, schema, len(own)), rows, texts
        )

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


def _queries_of(
    spark: SparkSession, given: object, column: str = "query"
) -> tuple[DataFrame, str] | None:
    """Return several queries as rows with a column of texts; None for one query.

    ``column``: which column of texts of a DataFrame that has several.
    """
    if isinstance(given, DataFrame):
        name = _text_column_of(given.schema, column)
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


def _text_column_of(schema: StructType, name: str) -> str:
    """Return the name of the column with the texts of queries.

    Raises:
        InvalidInputError: There is none, or there are several of which none has this name.
    """
    known = [field for field in schema.fields if isinstance(field.dataType, StringType)]
    own = named(known, name) or (known[0] if len(known) == 1 else None)
    if own is None:
        shown = ", ".join(field.name for field in known) or "none"
        raise InvalidInputError(
            f"the queries have no column {name!r} of strings",
            hint=f"such columns are: {shown}; rename one to {name!r}",
        )
    return own.name

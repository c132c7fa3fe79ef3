"""LanceTable: a table as an object, in the style PySpark users know from Delta.

This class has the signatures, the documentation and one call for each method; the modules beside
it do the work. ``checks_calls`` checks the arguments and converts errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypeAlias, overload

import numpy as np
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, StructType

from pyspark_lance.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from pyspark_lance.format.clustering import DEFAULT_ORDER, ClusterBy
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ID
from pyspark_lance.format.schema import primary_key
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.metafile.refs_file import Branch, Tag
from pyspark_lance.predicate.name_parts import unquote
from pyspark_lance.spark.api.column_changes import add_any_columns, change_column
from pyspark_lance.spark.api.dml import LanceMergeBuilder, LanceOptimizeBuilder, RowChanges
from pyspark_lance.spark.api.public_methods import (
    COMMIT_OPTIONS,
    FILE_OPTIONS,
    changes_table,
    checks_calls,
    parameter_aliases,
)
from pyspark_lance.spark.api.row_lineage import row_condition, row_states, with_commits
from pyspark_lance.spark.api.searches import (
    NearDuplicatesOptions,
    NearestOptions,
    SearchedTable,
    TextOptions,
    near_duplicate_rows,
    nearest_rows,
    rows_by_words,
    rows_by_words_and_vector,
)
from pyspark_lance.spark.api.table_creation import (
    IfExists,
    LanceTableBuilder,
    NewTable,
    create_empty_table,
    table_exists,
)
from pyspark_lance.spark.api.table_html import show_detail, table_html
from pyspark_lance.spark.api.unsupported_attributes import (
    UnsupportedAttributes,
    UnsupportedClassAttributes,
    unsupported_attributes,
)
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.expressions.expressions import as_expression, quote_name
from pyspark_lance.spark.jobs.analyze_job import analyze_table
from pyspark_lance.spark.jobs.merge_job import DEFAULT_TARGET_ALIAS, MergeRequest
from pyspark_lance.spark.jobs.stages import run_on_executors
from pyspark_lance.spark.jobs.update_job import delete_once, update_once
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.hadoop_settings import session_table
from pyspark_lance.spark.options.option_table import check_properties, to_option_strings
from pyspark_lance.spark.options.parse_options import ReadOptions, storage_options_of
from pyspark_lance.spark.options.times import is_ansi, session_zone, session_zone_name, with_zone
from pyspark_lance.spark.options.version_arguments import parse_version_arguments
from pyspark_lance.spark.options.write_settings import (
    change_settings,
    commit_settings,
    options_of_change,
)
from pyspark_lance.spark.source.change_feed_reader import count_feed_changes
from pyspark_lance.spark.sql.metadata_tables import (
    BRANCHES,
    CONSUMERS,
    DETAIL,
    FRAGMENTS,
    HISTORY,
    INDICES,
    TAGS,
    Rows,
    branch_rows,
    consumer_rows,
    detail_rows,
    fragment_rows,
    history_rows,
    index_rows,
    rows_to_dataframe,
    tag_rows,
)
from pyspark_lance.table.cdf.change_feed import ChangeCounts
from pyspark_lance.table.cdf.change_window import Deduplication, Layout
from pyspark_lance.table.cleanup.auto_cleanup import parse_duration
from pyspark_lance.table.cleanup.cleanup import (
    CleanupPolicy,
    CleanupResult,
    OrphanFile,
    Progress,
    cleanup_old_versions,
    find_orphan_files,
    remove_orphan_files,
)
from pyspark_lance.table.columns.change_columns import (
    ColumnResult,
    drop_columns,
    rename_column,
    set_metadata,
    set_primary_key,
)
from pyspark_lance.table.columns.cluster_by import set_cluster_by
from pyspark_lance.table.compaction.compact import CompactionResult, compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.compaction.stable_row_ids import (
    CopyResult,
    copy_with_stable_row_ids,
    enable_stable_row_ids,
)
from pyspark_lance.table.dml.commit_changes import applied_version
from pyspark_lance.table.dml.row_change import ChangeResult, ChangeSettings, rewrite_mode
from pyspark_lance.table.index_build.column_indices import IndexResult, create_index, drop_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.index_build.text_build import index_kind, tokenizer_options
from pyspark_lance.table.index_build.vector_build import (
    VectorIndexRequest,
    VectorIndexResult,
    create_vector_index,
    parse_kind,
    refresh_all_indices,
    refresh_vector_indices,
)
from pyspark_lance.table.index_build.zone_maps import (
    ZoneMapResult,
    create_zone_maps,
    refresh_zone_maps,
)
from pyspark_lance.table.nearest.vectors import Metric
from pyspark_lance.table.refs import (
    Consumer,
    create_branch,
    register_consumer,
    remove_branch,
    remove_tag,
    set_tag,
    unregister_consumer,
)
from pyspark_lance.table.tasks import MaintenanceTask
from pyspark_lance.table.text.hybrid import Fusion, HybridOptions
from pyspark_lance.table.unit_of_work import CommitSettings, MetadataResult, restore, set_properties
from pyspark_lance.table.verify.find_value import FindValueResult, find_value
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.verify.verify_manifest import VerifyResult
from pyspark_lance.table.version.snapshot import (
    LATEST,
    Snapshot,
    VersionSpec,
    open_pinned,
    properties_of,
)
from pyspark_lance.table.version.table import main_branch_of, suggest_paths
from pyspark_lance.table.version.table_identity import PinnedVersion

Age: TypeAlias = timedelta | str | float
"""An age: a timedelta, ``"14days"``, or a number of hours."""

_PROVIDERS = ("lance", "org.pysparklance.lancesource")
_DEFAULT_SOURCE = "source"


@checks_calls
class LanceTable(UnsupportedAttributes, metaclass=UnsupportedClassAttributes):
    """A Lance table, either at its newest version or pinned to a version.

    Args:
        spark: The session (classic or Connect).
        path: Root of the table.
        storageOptions: The options ``storage.*`` of the data source, without the prefix.
        alias: Name of the table in conditions.
        branch: Branch to read and to write; None for main.
        version: Pins the table to a version, which makes it read-only.

    Examples:
        >>> LanceTable.forPath(spark, path).toDF().count()
        3
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str,
        storageOptions: Mapping[str, str] | None = None,  # noqa: N803
        alias: str = DEFAULT_TARGET_ALIAS,
        *,
        branch: str | None = None,
        version: int | str | None = None,
    ) -> None:
        self._spark = spark
        self._table = session_table(spark, path, storageOptions, branch)
        self._at = parse_version_arguments(spark, version)
        # Of the pinned version, once it was opened.
        self._stamp = ""
        self._alias = alias

    def __repr__(self) -> str:
        branch = "" if self._table.branch is None else f", branch={self._table.branch!r}"
        held = "" if self._at == LATEST else f", version={self._at.version}"
        return f"LanceTable({self._table.root!r}{branch}{held})"

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks: version, rows, columns, and the newest versions."""
        return table_html(self._table, self._held_version, repr(self))

    # Open and create tables -----------------------------------------------------------------------

    @classmethod
    def forPath(  # noqa: N802
        cls,
        spark: SparkSession,
        path: str,
        storageOptions: Mapping[str, str] | None = None,  # noqa: N803
        *,
        branch: str | None = None,
        version: int | str | None = None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> LanceTable:
        """Return the table at ``path``.

        Args:
            spark: The session.
            path: Root of the table.
            storageOptions: As for the class.
            branch: Branch to read and to write.
            version: Pins the table to a version, which makes it read-only.
            tag: Pins it to the version that the tag points at now.
            timestamp: Pins it to the version of that time; see ``restore``.

        Raises:
            TableNotFoundError: There is no table.
            VersionNotFoundError: There is no such branch, version or tag.

        Examples:
            >>> LanceTable.forPath(spark, path).toDF().columns
            ['id', 'kind', 'price']
            >>> _ = table.delete("id = 3")
            >>> LanceTable.forPath(spark, path, version=1).toDF().count()
            3
        """
        at = parse_version_arguments(spark, version, tag, timestamp)
        table = session_table(spark, path, storageOptions, branch)
        with suggest_paths(table):
            found = Snapshot.open(table, at)
        held = None if at == LATEST else found.version
        opened = cls(spark, path, storageOptions, branch=found.table.branch, version=held)
        opened._stamp = "" if held is None else found.identity.stamp
        return opened

    @classmethod
    def forName(  # noqa: N802
        cls,
        spark: SparkSession,
        name: str,
        storageOptions: Mapping[str, str] | None = None,  # noqa: N803
        *,
        branch: str | None = None,
        version: int | str | None = None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> LanceTable:
        """Return the table with this name in SQL: a table of a catalog, or ``lance.`/path` ``.

        Args:
            spark: The session.
            name: As in SQL.
            storageOptions: As for ``forPath``, like all that follow.
            branch: Branch to read and to write.
            version: Pins the table to a version, which makes it read-only.
            tag: Pins it to the version that the tag points at now.
            timestamp: Pins it to the version of that time.

        Raises:
            TableNotFoundError: There is no such table, or it is not a Lance table.

        Examples:
            >>> LanceTable.forName(spark, f"lance.`{path}`").toDF().count()  # doctest: +SKIP
            3
        """
        details = describe_table(spark, name)
        path = details.get("Location")
        if details.get("Provider", "").lower() not in _PROVIDERS or not path:
            raise TableNotFoundError(
                f"{name} is not a Lance table in a catalog",
                hint="LanceTable.forPath takes the path of a table",
            )
        return cls.forPath(
            spark,
            path,
            storageOptions,
            branch=branch,
            version=version,
            tag=tag,
            timestamp=timestamp,
        )

    @classmethod
    def isLanceTable(  # noqa: N802
        cls,
        spark: SparkSession,
        path: str,
        storageOptions: Mapping[str, str] | None = None,  # noqa: N803
    ) -> bool:
        """Return whether there is a Lance table at ``path``.

        Args:
            spark: The session.
            path: Root of the table, or of a branch.
            storageOptions: As for ``forPath``.

        Examples:
            >>> LanceTable.isLanceTable(spark, path)
            True
        """
        return table_exists(session_table(spark, path, storageOptions))

    @overload
    @classmethod
    def create(cls, spark: SparkSession) -> LanceTableBuilder[Self]: ...

    @overload
    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str,
        schema: str | StructType,
        *,
        ifNotExists: bool = ...,  # noqa: N803
        options: Mapping[str, object] | None = ...,
        storageOptions: Mapping[str, str] | None = ...,  # noqa: N803
    ) -> Self: ...

    @classmethod
    def create(
        cls,
        spark: SparkSession,
        path: str | None = None,
        schema: str | StructType | None = None,
        *,
        ifNotExists: bool = False,  # noqa: N803
        options: Mapping[str, object] | None = None,
        storageOptions: Mapping[str, str] | None = None,  # noqa: N803
    ) -> Self | LanceTableBuilder[Self]:
        """Create an empty table; with only a session, return a builder, as in Delta.

        Args:
            spark: The session.
            path: Root of the table; without path and schema, a builder is returned.
            schema: ``"id bigint not null, name string"`` or a StructType; ``NOT NULL`` is
                kept.
            ifNotExists: Keeps an existing table, whatever its schema.
            options: As for ``df.write``: ``enableStableRowIds``, ``fileFormatVersion``,
                ``<column>.fixed_size_list``, ``userMetadata``, …; options that do not apply to
                a new table are refused.
            storageOptions: As for ``forPath``.

        Raises:
            TableAlreadyExistsError: The table exists, and ``ifNotExists`` is false.
            InvalidInputError: An option does not apply here.

        Examples:
            >>> new = LanceTable.create(spark, f"{folder}/new", "id bigint NOT NULL, name string")
            >>> new.toDF().columns
            ['id', 'name']
        """
        if path is None and schema is None:
            return LanceTableBuilder(NewTable(spark, IfExists.FAIL), cls)
        if path is None or schema is None:
            raise InvalidInputError(
                f"create needs a {'path' if path is None else 'schema'}", path or ""
            )
        storage = create_empty_table(
            spark,
            path,
            schema,
            options=options or {},
            storage_options=storageOptions or {},
            if_not_exists=ifNotExists,
        )
        return cls(spark, path, storage)

    @classmethod
    def createIfNotExists(cls, spark: SparkSession) -> LanceTableBuilder[Self]:  # noqa: N802
        """Return a builder that keeps an existing table, as in Delta.

        Args:
            spark: The session.

        Examples:
            >>> builder = LanceTable.createIfNotExists(spark).location(f"{folder}/built")
            >>> builder.addColumn("id", "bigint").execute().toDF().columns
            ['id']
        """
        return LanceTableBuilder(NewTable(spark, IfExists.KEEP), cls)

    @classmethod
    def createOrReplace(cls, spark: SparkSession) -> LanceTableBuilder[Self]:  # noqa: N802
        """Return a builder that replaces an existing table with one new version, as in Delta.

        Args:
            spark: The session.

        Examples:
            >>> builder = LanceTable.createOrReplace(spark).location(path)
            >>> builder.addColumn("id", "bigint").execute().toDF().columns
            ['id']
            >>> spark.read.format("lance").option("version", 1).load(path).count()
            3
        """
        return LanceTableBuilder(NewTable(spark, IfExists.REPLACE), cls)

    @classmethod
    def replace(cls, spark: SparkSession) -> LanceTableBuilder[Self]:
        """Return a builder like ``createOrReplace``, but the table must exist.

        Args:
            spark: The session.

        Examples:
            >>> builder = LanceTable.replace(spark).location(path)
            >>> builder.addColumn("id", "bigint").execute().toDF().columns
            ['id']
        """
        return LanceTableBuilder(NewTable(spark, IfExists.NEEDED), cls)

    def alias(self, name: str) -> LanceTable:
        """Return the table with another name in conditions; the default is ``target``.

        Examples:
            >>> table.alias("t").delete("t.id = 3").numDeletedRows
            1
        """
        table, version = self._table, self._at.version
        renamed = LanceTable(
            self._spark, table.root, table.storage, name, branch=table.branch, version=version
        )
        renamed._stamp = self._stamp
        return renamed

    # Read rows ------------------------------------------------------------------------------------

    def toDF(self) -> DataFrame:  # noqa: N802
        """Return the newest or the pinned version as a DataFrame, without lineage columns.

        Examples:
            >>> table.toDF().count()
            3
        """
        return self.scan()

    def scan(
        self,
        columns: Sequence[str] | None = None,
        filter: str | None = None,  # noqa: A002
        *,
        metadataColumns: str | Sequence[str] = "none",  # noqa: N803
        version: int | str | None = None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Read some columns of the rows that match a condition, both pushed down to the reader.

        Args:
            columns: Names, which may be of lineage columns; None for all columns of the table.
            filter: SQL condition over columns of the table and lineage columns.
            metadataColumns: Lineage columns to add: ``all``, ``none`` or names.
            version: Version to read; None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Examples:
            >>> table.scan(["id", "_rowid"], "price > 1").orderBy("id").collect()
            [Row(id=2, _rowid=1), Row(id=3, _rowid=2)]
        """
        options = self._read_options(self._version_of(version, tag, timestamp))
        if columns is not None:
            if not columns:
                raise InvalidInputError("a scan needs at least one column")
            options["columns"] = ",".join(map(quote_name, columns))
        if filter is not None:
            options["filter"] = filter
            options[keys.TIME_ZONE] = session_zone_name(self._spark)
            options[keys.ANSI] = str(is_ansi(self._spark)).lower()
        options["metadataColumns"] = (
            metadataColumns if isinstance(metadataColumns, str) else ",".join(metadataColumns)
        )
        return self._load(options)

    def take(self, rowIds: Sequence[int], columns: Sequence[str] | None = None) -> DataFrame:  # noqa: N803
        """Return the rows with these row ids; ids without a row are ignored.

        The cost depends on the number of ids, not on the size of the table.

        Examples:
            >>> table.take([0, 2], ["id"]).orderBy("id").collect()
            [Row(id=1, _rowid=0), Row(id=3, _rowid=2)]
        """
        return self.scan(columns, row_condition(rowIds), metadataColumns=ROW_ID)

    def changes(
        self,
        startingVersion: int | str | None = None,  # noqa: N803
        endingVersion: int | str | None = None,  # noqa: N803
        *,
        startingTimestamp: str | datetime | None = None,  # noqa: N803
        endingTimestamp: str | datetime | None = None,  # noqa: N803
        branch: str | None = None,
        deduplicationMode: str = Deduplication.DROP_CARRYOVERS,  # noqa: N803
        layout: str = Layout.ROWS,
    ) -> DataFrame:
        """Return the change feed: rows that were inserted, updated (before and after) and deleted.

        The columns are those of the table in the last version, then ``_rowid``, ``_change_type``,
        ``_commit_version`` and ``_commit_timestamp``.

        Args:
            startingVersion: First version; 0 is the beginning.
            endingVersion: Last version; None for the newest, or the one that the table is pinned
                to.
            startingTimestamp: Instead of ``startingVersion``: versions committed from this time on.
                Strings without a zone use the session time zone, datetimes without one local
                time.
            endingTimestamp: Instead of ``endingVersion``: versions committed up to this time.
            branch: Name of the branch; None for that of the table.
            deduplicationMode: ``dropCarryovers`` leaves out rows that were rewritten without a
                change of value, ``none`` keeps them, ``netChanges`` gives one change per row.
            layout: ``debezium`` gives one row per change, with the columns ``before``, ``after``,
                ``op``, ``source`` and ``ts_ms``.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.changes(2).select("id", "_change_type", "_commit_version").collect()
            [Row(id=3, _change_type='delete', _commit_version=2)]
        """
        options = self._feed_options(
            startingVersion=startingVersion,
            endingVersion=endingVersion,
            startingTimestamp=startingTimestamp,
            endingTimestamp=endingTimestamp,
            branch=branch,
            deduplicationMode=deduplicationMode,
            layout=layout,
        )
        return self._load(options)

    def changeCounts(  # noqa: N802
        self,
        startingVersion: int | str | None = None,  # noqa: N803
        endingVersion: int | str | None = None,  # noqa: N803
        *,
        startingTimestamp: str | datetime | None = None,  # noqa: N803
        endingTimestamp: str | datetime | None = None,  # noqa: N803
        branch: str | None = None,
    ) -> tuple[ChangeCounts, ...]:
        """Return the number of changed rows per version, without versions that change none.

        No data file is opened, so an update counts even if it changed no value. The arguments are
        those of ``changes``.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> [(one.version, one.numDeletedRows) for one in table.changeCounts(2)]
            [(2, 1)]
        """
        options = self._feed_options(
            startingVersion=startingVersion,
            endingVersion=endingVersion,
            startingTimestamp=startingTimestamp,
            endingTimestamp=endingTimestamp,
            branch=branch,
        )
        return count_feed_changes(ReadOptions.parse({**options, "path": self._table.root}))

    # Search rows ----------------------------------------------------------------------------------

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
        options = NearestOptions(
            k, column, metric, filter, columns, nprobes, refineFactor, use_index=useIndex
        )
        return nearest_rows(self._searched_table(version, tag, timestamp), queries, options)

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
        options = TextOptions(k, column, filter, columns, operator, coveredOnly)
        return rows_by_words(self._searched_table(version, tag, timestamp), query, options)

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
        options = NearDuplicatesOptions(k, column, filter, columns, maxDistance)
        return near_duplicate_rows(self._searched_table(version, tag, timestamp), queries, options)

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
        table = self._searched_table(version, tag, timestamp)
        words = TextOptions(k, column, filter, columns, operator)
        options = HybridOptions(vector, k, Fusion.parse(fusion), vectorColumn, metric, candidates)
        return rows_by_words_and_vector(table, text, words, options)

    # Change rows ----------------------------------------------------------------------------------

    @changes_table(*COMMIT_OPTIONS, *FILE_OPTIONS)
    def delete(self, condition: Expression | None = None, **options: str) -> ChangeResult:
        """Delete the rows for which ``condition`` is true; without a condition, all rows.

        Args:
            condition: SQL text or Column.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``, ``txnAppId``,
                ``txnVersion``, ``maxRowsPerFile`` and ``maxBytesPerFile``, as for a write.

        Raises:
            RetryableCommitError: Other commits conflicted with this one too often.
            CommitConflictError: Another commit makes the delete pointless.

        Examples:
            >>> table.delete("id = 3")
            ChangeResult(version=2, numInsertedRows=0, numUpdatedRows=0, numDeletedRows=1)
        """
        return self._row_changes.run(
            lambda plan: delete_once(self._spark, plan, condition, self._alias), options
        )

    @changes_table(*COMMIT_OPTIONS, *FILE_OPTIONS)
    def update(
        self,
        condition: Expression | None = None,
        set: Mapping[str, object] | None = None,  # noqa: A002
        *,
        rewrite: str = "auto",
        **options: str,
    ) -> ChangeResult:
        """Update columns of the rows for which ``condition`` is true.

        Args:
            condition: SQL text or Column; without it all rows are updated.
            set: Maps a column, or a field of a struct, to its new value: a SQL string or Column,
                or a literal of any other type, such as ``5`` or ``None``.
            rewrite: ``rows`` writes the changed rows to new files; ``columns`` rewrites only the
                changed columns, for all rows of the affected fragments; ``auto`` takes the cheaper
                one. ``result.rewrite`` says which one it was, and why.
            options: As for ``delete``.

        Raises:
            RetryableCommitError: Other commits conflicted with this one too often.
            CommitConflictError: Another commit makes the update pointless.

        Examples:
            >>> table.update("kind = 'click'", {"price": "price * 2"}).numUpdatedRows
            2
        """
        assignments = {key: as_expression(value) for key, value in (set or {}).items()}
        mode = rewrite_mode(rewrite)
        return self._row_changes.run(
            lambda plan: update_once(
                self._spark, plan, condition, assignments, alias=self._alias, rewrite=mode
            ),
            options,
        )

    @changes_table(*COMMIT_OPTIONS, *FILE_OPTIONS, runs_jobs=False)
    def merge(
        self,
        source: DataFrame,
        condition: Expression | None = None,
        *,
        rewrite: str = "auto",
        **options: str,
    ) -> LanceMergeBuilder:
        """Merge ``source`` into the table; add clauses, then call ``execute()``.

        If two concurrent merges insert the same new key, the second one is planned again, and
        updates the row. Appends do not check for keys: with concurrent appends, only the
        table's unenforced primary key is kept unique.

        Args:
            source: The source rows; conditions call them by their alias, or ``source``.
            condition: Condition under which a source row matches a target row; None if they match
                by the table's primary key (see ``setPrimaryKey``).
            rewrite: As for ``update``; only merges that do nothing but update can rewrite columns.
            options: As for ``delete``.

        Examples:
            >>> rows = [(3, "view", 9.5), (4, "view", 4.5)]
            >>> source = spark.createDataFrame(rows, table.toDF().schema)
            >>> merge = table.merge(source, "target.id = source.id")
            >>> result = merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()
            >>> result.numUpdatedRows, result.numInsertedRows
            (1, 1)
        """
        mode, changes = rewrite_mode(rewrite), self._row_changes
        if condition is None:
            condition = changes.primary_key_condition(self.primaryKey(), repr(self))
        request = MergeRequest(source, condition, (), self._alias, mode)
        return LanceMergeBuilder(request, lambda merge: changes.merge(merge, options))

    @changes_table(*COMMIT_OPTIONS, *FILE_OPTIONS)
    def applyChanges(  # noqa: N802
        self,
        changes: DataFrame,
        keys: str | Sequence[str] | None = None,
        *,
        rowIdColumn: str | None = None,  # noqa: N803
        source: str = _DEFAULT_SOURCE,
        **options: str,
    ) -> ChangeResult:
        """Apply changes of another table: inserts, updates and deletes in one version.

        The last change of a row wins. The newest version among the changes is committed with the
        rows (see ``appliedVersion``), and changes up to it are skipped if they are applied again.
        With ``txnAppId`` and ``txnVersion``, as in ``foreachBatch``, that pair decides instead.

        Args:
            changes: From ``changes()`` or ``readChangeFeed``, of a batch or a stream. Columns that
                the table lacks are an error; columns that only the table has keep their values.
            keys: Key columns, in both tables; those of this table's primary key if neither these
                nor ``rowIdColumn`` are given. Do not filter out pre-images: they are needed for
                rows whose key changed.
            rowIdColumn: Instead of ``keys``: the column of this table that stores the ``_rowid``
                of the other one.
            source: Name of the other table, if this one applies changes of several.
            options: As for ``delete``.

        Raises:
            InvalidInputError: A key is null, or the table lacks a column.
            RetryableCommitError: Other commits conflicted with this one too often.
            TableReplacedError: The other table was dropped and created again since the changes that
                were applied last.

        Examples:
            >>> copy = LanceTable.create(spark, f"{folder}/copy", table.toDF().schema)
            >>> copy.applyChanges(table.changes(copy.appliedVersion() + 1), "id")
            ChangeResult(version=2, numInsertedRows=3, numUpdatedRows=0, numDeletedRows=0)
            >>> _ = table.delete("id = 3")
            >>> copy.applyChanges(table.changes(copy.appliedVersion() + 1), "id").numDeletedRows
            1
        """
        pairs = self._row_changes.resolve_keys(keys, rowIdColumn)
        return self._row_changes.apply(changes, pairs, source, options)

    def appliedVersion(self, source: str = _DEFAULT_SOURCE) -> int:  # noqa: N802
        """Return the version of the other table up to which changes were applied; 0 for none.

        Args:
            source: As given to ``applyChanges``.

        Examples:
            >>> copy = LanceTable.create(spark, f"{folder}/copy", table.toDF().schema)
            >>> _ = copy.applyChanges(table.changes(1), "id")
            >>> copy.appliedVersion()
            1
        """
        return applied_version(Snapshot.open(self._table, self._version_of(None)), source)

    # Columns --------------------------------------------------------------------------------------

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def addColumns(  # noqa: N802
        self, columns: str | StructType | Mapping[str, Expression] | DataFrame, **options: str
    ) -> ColumnResult:
        """Add columns at the end of the schema.

        Args:
            columns: ``"a int, b string"`` or a StructType: null columns, which write no data;
                ``{"a": "x * 2"}``: SQL strings or Columns over other columns of the same row; or
                a DataFrame with ``_rowid`` and the new columns, which is joined to the table
                (rows that it lacks get null).
            options: See the class.

        Raises:
            InvalidInputError: A name is in use, or a row would get two values.
            CommitConflictError: Another commit makes the change pointless.

        Examples:
            >>> table.addColumns({"double_price": "price * 2"}).version
            2
            >>> table.addColumns("note string").version
            3
        """
        return add_any_columns(self._spark, self._table, columns, self._commit_settings(options))

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def dropColumns(self, *columns: str, **options: str) -> ColumnResult:  # noqa: N802
        """Drop columns, or fields of structs (``a.b``); writes no data.

        Args:
            columns: Names; names with special characters may be in backquotes.
            options: See the class.

        Raises:
            InvalidInputError: There is no such column, or none would be left.

        Examples:
            >>> table.dropColumns("price").version
            2
            >>> table.toDF().columns
            ['id', 'kind']
        """
        settings = self._commit_settings(options)
        for column in columns:
            if not isinstance(column, str):
                raise InvalidInputError(
                    f"{column!r} is not a column name",
                    hint="name them one by one: dropColumns('a', 'b')",
                )
        return drop_columns(self._table, columns, settings)

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def renameColumn(self, existing: str, new: str, **options: str) -> ColumnResult:  # noqa: N802
        """Rename a column, or a field of a struct; writes no data and keeps indices.

        Args:
            existing: ``a``, or ``a.b`` for a field of a struct; names with special characters may
                be in backquotes.
            new: The new name, without the path.
            options: See the class.

        Raises:
            InvalidInputError: There is no such column, or the name is in use.

        Examples:
            >>> _ = table.renameColumn("price", "amount")
            >>> table.toDF().columns
            ['id', 'kind', 'amount']
        """
        settings = self._commit_settings(options)
        return rename_column(self._table, existing, unquote(new), settings)

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def changeColumn(  # noqa: N802
        self,
        column: str,
        dataType: str | DataType | None = None,  # noqa: N803
        *,
        nullable: bool | None = None,
        comment: str | None = None,
        **options: str,
    ) -> ColumnResult:
        """Change the type, the nullability or the comment of a column.

        Args:
            column: ``a``, or ``a.b`` for a field of a struct.
            dataType: A type that can hold all values of the current one; the data is rewritten.
            nullable: Whether nulls are allowed.
            comment: Comment in the metadata of the column; '' removes it.
            options: See the class.

        Raises:
            InvalidInputError: Not exactly one of the three is given, or the change is not possible.

        Examples:
            >>> table.changeColumn("kind", comment="what happened").version
            2
        """
        return change_column(
            self._spark,
            self._table,
            column,
            self._commit_settings(options),
            data_type=dataType,
            nullable=nullable,
            comment=comment,
        )

    @changes_table(*COMMIT_OPTIONS)
    def setMetadata(  # noqa: N802
        self,
        schema: Mapping[str, str | None] | None = None,
        columns: Mapping[str, Mapping[str, str | None]] | None = None,
        **options: str,
    ) -> ColumnResult:
        """Set metadata of the schema, and of columns by their path; None removes a key.

        Examples:
            >>> table.setMetadata(schema={"owner": "web team"}).version
            2
        """
        settings = self._commit_settings(options)
        return set_metadata(self._table, schema=schema, columns=columns, settings=settings)

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def setPrimaryKey(self, *columns: str, **options: str) -> ColumnResult:  # noqa: N802
        """Declare the columns whose values name a row; once set, the key cannot be changed.

        The key is not enforced: no write checks for rows with the same key. But merges that match
        by all of its columns never insert a key twice, even if they run concurrently, here or in
        Lance; ``merge`` without a condition matches by it, and ``applyChanges`` without ``keys``.

        Args:
            columns: Columns that are not nullable and not nested, in the order of the key.
            options: See the class.

        Raises:
            InvalidInputError: The table has another key, or a column does not exist, is nested,
                is nullable or is named twice.

        Examples:
            >>> _ = table.changeColumn("id", nullable=False)
            >>> table.setPrimaryKey("id").version
            3
            >>> table.primaryKey()
            ['id']
        """
        settings = self._commit_settings(options)
        return set_primary_key(self._table, columns, settings)

    def primaryKey(self) -> list[str]:  # noqa: N802
        """Return the columns of the primary key, in its order; none if the table has no key.

        Examples:
            >>> table.primaryKey()
            []
        """
        return list(primary_key(Snapshot.open(self._table, self._version_of(None)).schema))

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def clusterBy(  # noqa: N802
        self, *columns: str, order: str = DEFAULT_ORDER, **options: str
    ) -> MetadataResult:
        """Choose the columns that the table is clustered by: ``compact()`` sorts rows by them.

        As with Delta's ``ALTER TABLE … CLUSTER BY``, no row moves now; later compactions of any
        session sort unsorted rows. Without columns, clustering ends.

        Args:
            columns: Names; a field of a struct is ``struct.field``. They may be renamed, but not
                dropped.
            order: ``"hilbert"`` and ``"zorder"`` cluster rows that are similar in all columns;
                ``"linear"`` sorts by the first column, then by the next.
            options: See the class.

        Raises:
            InvalidInputError: There is no such column or order, or a column is named twice.
            UnsupportedFeatureError: Values of a column have no order: lists, structs, JSON, blobs.

        Examples:
            >>> table.clusterBy("kind", "price").version
            2
            >>> table.clusteringColumns()
            ['kind', 'price']
            >>> table.compact().numRows
            3
            >>> _ = table.clusterBy()
        """
        settings = self._commit_settings(options)
        return set_cluster_by(self._table, columns, order, settings)

    def clusteringColumns(self) -> list[str]:  # noqa: N802
        """Return the columns that the table is clustered by; none if it is not.

        Examples:
            >>> table.clusteringColumns()
            []
        """
        by = ClusterBy.of(Snapshot.open(self._table, self._version_of(None)).manifest.config)
        return [] if by is None else list(by.columns)

    # Indices --------------------------------------------------------------------------------------

    @changes_table(*COMMIT_OPTIONS)
    def createIndex(  # noqa: N802, PLR0913
        self,
        columns: str | Sequence[str],
        kind: str = "btree",
        *,
        name: str | None = None,
        replace: bool = False,
        rowsPerZone: int | None = None,  # noqa: N803
        withPosition: bool | None = None,  # noqa: N803
        baseTokenizer: str | None = None,  # noqa: N803
        language: str | None = None,
        maxTokenLength: int | None = None,  # noqa: N803
        lowerCase: bool | None = None,  # noqa: N803
        stem: bool | None = None,
        removeStopWords: bool | None = None,  # noqa: N803
        customStopWords: Sequence[str] | None = None,  # noqa: N803
        asciiFolding: bool | None = None,  # noqa: N803
        minNgramLength: int | None = None,  # noqa: N803
        maxNgramLength: int | None = None,  # noqa: N803
        prefixOnly: bool | None = None,  # noqa: N803
        **options: str,
    ) -> IndexResult:
        """Create an index on each column, on the executors, in one version.

        Scans, deletes, updates and merges then look up the rows that can match their condition, and
        so does Lance. Each task writes one segment of the index, for some of the fragments. Rows
        written later are read without the index, until ``refreshIndices``.

        Args:
            columns: A name, or several; a field of a struct is ``struct.field``.
            kind: ``btree``; ``bitmap``, for columns with few distinct values; ``label_list``, for
                lists; ``zonemap``, for rows roughly sorted by the column; ``bloomfilter``, a small
                index for lookups of single values only; ``ngram``, for parts of strings;
                ``inverted`` (or ``fts``), for full-text search; ``minhash_lsh``, for
                ``nearDuplicates``.
            name: Name of the index, if it is on one column; ``<column>_idx`` by default.
            replace: Whether an existing index is rebuilt.
            rowsPerZone: Live rows per zone of a ``zonemap`` or ``bloomfilter``; None for 8192.
            withPosition: Whether an ``inverted`` index stores where words are, for phrases; this
                and all below is for this kind, and has Lance's defaults.
            baseTokenizer: ``simple``: words of letters and digits; ``whitespace``; ``raw``: a text
                is one token; ``ngram``: runs of characters.
            language: Of stems and stop words; ``English`` by default.
            maxTokenLength: Tokens of so many bytes are left out; 40 by default, 0 for no limit.
            lowerCase: Whether tokens are in lower case; true by default.
            stem: Whether words become their stems, which needs the package ``snowballstemmer``;
                true by default, but for n-grams.
            removeStopWords: Whether frequent words are left out; true by default, but for n-grams.
            customStopWords: Words to leave out in place of those of the language.
            asciiFolding: Whether letters lose their accents; true by default.
            minNgramLength: Characters of an n-gram, at least; 3 by default.
            maxNgramLength: Characters of an n-gram, at most; 3 by default.
            prefixOnly: Whether n-grams are only those a text begins with; false by default.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: No such column or kind, or an index of this name exists.
            UnsupportedFeatureError: Values of the column cannot have such an index.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> result = table.createIndex("id")
            >>> result.names, result.numSegments, result.numRows
            (('id_idx',), 1, 3)
        """
        names = (columns,) if isinstance(columns, str) else tuple(columns)
        given = {
            "with_position": withPosition,
            "base_tokenizer": baseTokenizer,
            "language": language,
            "max_token_length": maxTokenLength,
            "lower_case": lowerCase,
            "stem": stem,
            "remove_stop_words": removeStopWords,
            "custom_stop_words": customStopWords,
            "ascii_folding": asciiFolding,
            "min_ngram_length": minNgramLength,
            "max_ngram_length": maxNgramLength,
            "prefix_only": prefixOnly,
        }
        kind = index_kind(kind)
        text = tokenizer_options(kind, given)
        return create_index(
            self._table,
            IndexRequest(names, kind, name, replace, rows_per_zone=rowsPerZone, text=text),
            self._change_settings(options),
            run=self._run_tasks,
        )

    @changes_table(*COMMIT_OPTIONS)
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
            self._table, request, self._change_settings(options), run=self._run_tasks
        )

    @changes_table(*COMMIT_OPTIONS)
    def createZonemap(  # noqa: N802
        self,
        columns: str | Sequence[str],
        *,
        rowsPerZone: int | None = None,  # noqa: N803
        **options: str,
    ) -> ZoneMapResult:
        """Create a zone map on each column, on the executors: minimum and maximum of each zone.

        Scans, deletes, updates and merges, and Lance too, then read only the zones that can contain
        matching rows. This helps if rows are roughly sorted by the column. An existing zone map of
        a column is replaced. Rows written later are read without it, until ``refreshZonemaps``.

        Args:
            columns: A name, or several; a field of a struct is ``struct.field``.
            rowsPerZone: Rows per zone; 8192 by default.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: No such column, or zones without rows.
            UnsupportedFeatureError: Values of the column have no order: lists, structs, JSON.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> result = table.createZonemap("id")
            >>> result.columns, result.numZones
            (('id',), 1)
        """
        return create_zone_maps(
            self._table,
            [columns] if isinstance(columns, str) else list(columns),
            rowsPerZone,
            self._change_settings(options),
            run=self._run_tasks,
        )

    @changes_table(*COMMIT_OPTIONS)
    def refreshIndices(  # noqa: N802
        self, name: str | None = None, **options: str
    ) -> IndexResult:
        """Add to indices the rows that were written, compacted or updated since the last refresh.

        Only fragments that an index does not cover are read, and those of segments that have old
        values or texts of updated rows. If there are none, no version is made. Vector indices get a
        version of their own, as with ``refreshVectorIndices``.

        Args:
            name: Name of an index; None for all indices that ``createIndex`` and
                ``createVectorIndex`` can make.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: There is no such index.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> _ = table.createIndex("id")
            >>> table.refreshIndices().names
            ()
        """
        return refresh_all_indices(
            self._table, name, self._change_settings(options), run=self._run_tasks
        )

    @changes_table(*COMMIT_OPTIONS)
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
            self._table, chosen, self._change_settings(options), run=self._run_tasks
        )

    @changes_table(*COMMIT_OPTIONS)
    def refreshZonemaps(self, **options: str) -> ZoneMapResult:  # noqa: N802
        """Add to all zone maps the rows written, compacted or updated since the last refresh.

        Only fragments that a zone map does not cover are read. If there are none, no version is
        made.

        Args:
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> created = table.createZonemap("id")
            >>> table.refreshZonemaps().columns
            ()
        """
        return refresh_zone_maps(self._table, self._change_settings(options), run=self._run_tasks)

    @changes_table(*COMMIT_OPTIONS)
    def optimizeIndices(  # noqa: N802
        self, name: str | None = None, **options: str
    ) -> IndexResult:
        """Refresh indices as ``refreshIndices`` does, and merge small segments.

        Each refresh adds a segment, and a query looks up all of them. Segments of a B-tree are
        merged, up to 64 million rows each, without reading the column. For other kinds, segments
        with less than 2 million rows are rebuilt as one; those of texts and vectors are merged
        without making tokens or codes again.

        Args:
            name: Name of an index; None for all indices that ``createIndex`` and
                ``createVectorIndex`` can make.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: There is no such index.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> _ = table.createIndex("id")
            >>> table.toDF().write.format("lance").mode("append").save(path)
            >>> table.optimizeIndices("id_idx").numRows
            6
        """
        return refresh_all_indices(
            self._table,
            name,
            self._change_settings(options),
            run=self._run_tasks,
            joins_segments=True,
        )

    @changes_table(*COMMIT_OPTIONS)
    def dropIndex(self, name: str, **options: str) -> MetadataResult:  # noqa: N802
        """Drop an index of any kind; a later cleanup removes its files.

        Args:
            name: Name of the index.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: There is no such index.

        Examples:
            >>> _ = table.createIndex("id")
            >>> table.dropIndex("id_idx").version
            3
        """
        return drop_index(self._table, name, self._change_settings(options))

    def indices(
        self,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Return the indices of a version: one row per segment, its coverage, whether it is used.

        Scans, deletes and updates look up the segments that are ``used``; for other segments,
        ``note`` gives the reason. ``numRowsUncovered`` is the number of rows of the table that no
        segment of the index covers: they are scanned until the next refresh. ``numRowsStale`` is
        the number of rows of a B-tree that were deleted, moved or updated since; they are ignored.

        Args:
            version: None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Examples:
            >>> table.indices().select("name", "kind", "numRows", "used").collect()
            []
        """
        return self._frame(
            index_rows(self._table, self._version_of(version, tag, timestamp)), INDICES
        )

    # Maintenance ----------------------------------------------------------------------------------

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def compact(  # noqa: PLR0913
        self,
        *,
        targetRowsPerFragment: int | None = None,  # noqa: N803
        materializeDeletions: bool | None = None,  # noqa: N803
        materializeDeletionsThreshold: float | None = None,  # noqa: N803
        maxBytesPerFile: int | None = None,  # noqa: N803
        maxSourceRows: int | None = None,  # noqa: N803
        maxSourceFragments: int | None = None,  # noqa: N803
        deferIndexRemap: bool | None = None,  # noqa: N803
        clusterBy: str | Sequence[str] | None = None,  # noqa: N803
        splitFilesBy: str | Sequence[str] | None = None,  # noqa: N803
        order: str | None = None,
        sortBytes: int | None = None,  # noqa: N803
        dryRun: bool = False,  # noqa: N803
        **options: str,
    ) -> CompactionResult:
        """Merge small fragments and rewrites those with many deleted rows, on the executors.

        Only the speed of reads changes: rows keep their values, ids and versions, and change feeds
        return the same as before. Appends, deletes and updates may run concurrently. The old files
        stay until a cleanup. If nothing has to be compacted, no version is made.

        With ``clusterBy``, or in a clustered table (``LanceTable.clusterBy``), rows are sorted
        across fragments, so that zone maps prune more. Fragments that were sorted by the same
        columns in the same order are kept, except small ones, which are sorted again with new rows.

        Args:
            targetRowsPerFragment: Smaller fragments are merged with their neighbours; by default
                1048576, unless the table is configured otherwise (``lance.compaction.*``), as for
                all of these.
            materializeDeletions: Whether fragments are rewritten because of deleted rows.
            materializeDeletionsThreshold: Share of deleted rows above which they are; 0.1.
            maxBytesPerFile: Size above which a new data file is started.
            maxSourceRows: Stops when this many rows are rewritten.
            maxSourceFragments: Stops when this many fragments are rewritten.
            deferIndexRemap: Writes a fragment reuse index, so that Lance can still use its
                indices; for tables without stable row ids.
            clusterBy: Columns to sort the rows by; a field of a struct is ``struct.field``. Nulls
                come first and NaN last. By default those that the table is clustered by, ``()`` for
                rows as they are.
            splitFilesBy: The first of these columns, whose values get separate files: joins and
                aggregates by them need no shuffle. By default as before, ``()`` for none.
            order: ``"linear"`` sorts by the first column, then by the next; ``"zorder"`` and
                ``"hilbert"`` cluster rows that are similar in all columns. By default the order of
                the clustered table, or ``"linear"`` with ``clusterBy``.
            sortBytes: Bytes of rows that a task sorts in memory, 128 MiB; a process that runs such
                tasks takes up to 0.45 GB, or 0.6 GB by default.
            dryRun: Only returns what would be done.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: A limit is invalid, there is no such column or order, or
                ``deferIndexRemap`` is set with ``clusterBy`` or for a table with stable row ids.
            UnsupportedFeatureError: Values of a column have no order: lists, structs, JSON, blobs.
            RetryableCommitError: Other commits conflicted with this one too often.

        Examples:
            >>> table.toDF().write.format("lance").mode("append").save(path)
            >>> result = table.compact()
            >>> result.fragmentsRemoved, result.fragmentsAdded, result.numRows
            (2, 1, 6)
            >>> table.compact(clusterBy="id").numRows
            6
            >>> table.compact(clusterBy="id").numRows  # sorted already
            0
        """
        request = CompactionRequest(
            target_rows_per_fragment=targetRowsPerFragment,
            materialize_deletions=materializeDeletions,
            materialize_deletions_threshold=materializeDeletionsThreshold,
            max_bytes_per_file=maxBytesPerFile,
            max_source_rows=maxSourceRows,
            max_source_fragments=maxSourceFragments,
            cluster_by=None if clusterBy is None else _names(clusterBy),
            split_files_by=None if splitFilesBy is None else _names(splitFilesBy),
            order=order,
            sort_bytes=sortBytes,
            defer_index_remap=deferIndexRemap,
        )
        settings = self._change_settings(options)
        return compact(self._table, request, settings, run=self._run_tasks, dry_run=dryRun)

    @unsupported_attributes(
        compact_files="table.compact()", optimize_indices="table.optimizeIndices()"
    )
    def optimize(self) -> LanceOptimizeBuilder:
        """Return a builder, as in Delta: ``optimize().executeCompaction()`` is ``compact()``.

        Examples:
            >>> table.optimize().executeCompaction().version  # nothing to do, so no version
        """
        return LanceOptimizeBuilder(self.compact)

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def analyze(self, columns: str | Sequence[str] = (), **options: str) -> MetadataResult:
        """Compute column statistics: numbers of nulls and distinct values, and bounds.

        Spark reads the columns, some at a time; the number of distinct values has an error of about
        5 %. One version stores the statistics in the configuration of the table. With the plugin,
        Spark's cost-based optimizer uses them (``spark.sql.cbo.enabled``), as after ``ANALYZE TABLE
        … FOR COLUMNS``. After changes of rows, counts are scaled to the number of rows, and bounds
        are no longer used; once the number of rows is a fourth or four times as large, nothing is.

        Args:
            columns: Names of columns of numbers, strings, dates or timestamps; by default all.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``, ``txnAppId`` and
                ``txnVersion``, as for a write.

        Raises:
            InvalidInputError: There is no such column, or it is nested.

        Examples:
            >>> table.analyze(["id", "kind"]).version
            2
        """
        names = [columns] if isinstance(columns, str) else list(columns)
        settings = self._commit_settings(options)
        return analyze_table(self._spark, self._table, names or None, settings)

    @changes_table()
    def cleanupOldVersions(  # noqa: N802
        self,
        olderThan: Age | None = None,  # noqa: N803
        *,
        beforeVersion: int | None = None,  # noqa: N803
        retainVersions: int | None = None,  # noqa: N803
        deleteUnverified: bool = False,  # noqa: N803
        errorIfTaggedOldVersions: bool = True,  # noqa: N803
        dryRun: bool = False,  # noqa: N803
        progress: Progress | None = None,
    ) -> CleanupResult:
        """Remove old versions, and the files that only these refer to.

        A version is old if it meets all given criteria; without any, if it is older than two weeks.
        The newest version is always kept, and so are versions that tags or branches refer to. Files
        that no version refers to may belong to a running write, so they are removed when they are a
        week old. Afterwards time travel and change feeds that need a removed version fail.

        Args:
            olderThan: Committed longer ago than this: a timedelta, ``"14days"``, ``"1day 12h"``, or
                a number of hours.
            beforeVersion: Have a smaller version number.
            retainVersions: Are not among this many newest versions.
            deleteUnverified: Also removes younger files; only safe if there are no writers.
            errorIfTaggedOldVersions: Whether tagged old versions are an error; False keeps them.
            dryRun: Only returns what would be removed.
            progress: Called with the number of files removed so far, and the number of all.

        Raises:
            InvalidInputError: Old versions are tagged, or a consumer has not read them.
            CorruptFileError: A manifest cannot be read, so it is unknown what it refers to.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.cleanupOldVersions(retainVersions=1).versions
            (1,)
        """
        policy = CleanupPolicy(
            older_than_s=None if olderThan is None else _seconds(olderThan),
            before_version=beforeVersion,
            retain_versions=retainVersions,
            delete_unverified=deleteUnverified,
            error_if_tagged=errorIfTaggedOldVersions,
        )
        return cleanup_old_versions(self._table, policy, dry_run=dryRun, progress=progress)

    @changes_table()
    def vacuum(self, retentionHours: float | None = None) -> CleanupResult:  # noqa: N803
        """Clean up versions older than this many hours, as in Delta; see ``cleanupOldVersions``.

        Unlike in Delta it removes versions, and only files that no remaining version refers to.
        Tagged old versions are an error.

        Args:
            retentionHours: None for two weeks, the default of ``cleanupOldVersions``.

        Raises:
            InvalidInputError: Old versions are tagged, or a consumer has not read them.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.vacuum(168).versions
            ()
        """
        return self.cleanupOldVersions(retentionHours)

    @parameter_aliases(retentionHours="olderThan")
    def leftoverFiles(self, olderThan: Age = 0.0) -> list[OrphanFile]:  # noqa: N802, N803
        """List files that no version refers to: of failed tasks, killed processes, conflicts.

        This includes files of running writes.

        Args:
            olderThan: Leaves out younger files: a timedelta, ``"7days"``, or a number of hours.

        Examples:
            >>> table.leftoverFiles()
            []
        """
        return find_orphan_files(self._table, older_than_s=_seconds(olderThan))

    @changes_table()
    @parameter_aliases(retentionHours="olderThan")
    def removeLeftoverFiles(  # noqa: N802
        self,
        olderThan: Age = SAFE_AGE_S / 3600,  # noqa: N803
        *,
        force: bool = False,
    ) -> list[OrphanFile]:
        """Remove files that no version refers to, and return them; this commits no version.

        Args:
            olderThan: Keeps younger files, which a running write may need: a timedelta,
                ``"7days"``, or a number of hours.
            force: Allows less than seven days; only safe if there are no writers.

        Raises:
            InvalidInputError: Less than seven days without ``force``.

        Examples:
            >>> table.removeLeftoverFiles()
            []
        """
        age_s = _seconds(olderThan)
        return remove_orphan_files(self._table, older_than_s=age_s, force=force)

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def enableStableRowIds(self, **options: str) -> MetadataResult:  # noqa: N802
        """Add stable row ids, in place, to a table that was created without them.

        This is one commit, which writes no data; every row counts as created by it. Lineage, change
        feeds and stable row ids begin with that version; older versions cannot be restored. A table
        that already has stable row ids stays as it is.

        Args:
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            UnsupportedFeatureError: The table has indices; drop them, or make a copy.
            InvalidInputError: The table has no rows.

        Examples:
            >>> plain = LanceTable.create(
            ...     spark, f"{folder}/plain", "id bigint", options={"enableStableRowIds": "false"}
            ... )
            >>> spark.range(3).write.format("lance").mode("append").save(f"{folder}/plain")
            >>> plain.enableStableRowIds().version
            3
            >>> plain.scan(["_row_created_at_version"]).distinct().collect()
            [Row(_row_created_at_version=3)]
        """
        settings = self._commit_settings(options)
        return enable_stable_row_ids(self._table, settings)

    @changes_table("userMetadata")
    def copyWithStableRowIds(self, target: str, **options: str) -> CopyResult:  # noqa: N802
        """Copy the newest version to a new table whose rows have stable ids.

        The copy has one version, the same columns and configuration, and no indices.

        Args:
            target: Path of the copy; it is opened with the storage options of this table.
            options: ``userMetadata``.

        Raises:
            TableAlreadyExistsError: There is a table at the target.

        Examples:
            >>> table.copyWithStableRowIds(f"{folder}/copy")
            CopyResult(version=1, numRows=3, numFragments=1)
        """
        return copy_with_stable_row_ids(
            self._table,
            session_table(self._spark, target, self._table.storage),
            self._change_settings(options),
            run=self._run_tasks,
        )

    def verify(
        self,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
        readData: bool = False,  # noqa: N803
    ) -> VerifyResult:
        """Check a version for damage and inconsistencies; each finding names the remedy.

        Checks the manifest, the size and the footer of every data file, the deleted rows, row ids
        and versions of every fragment, tags, branches, and unused files. Runs on the driver and
        changes nothing.

        Args:
            version: None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.
            readData: Also decodes every value, and compares indices with their columns.

        Raises:
            TableNotFoundError: There is no such version.

        Examples:
            >>> result = table.verify()
            >>> result.isSound, result.findings
            (True, ())
        """
        return verify(self._table, self._number_of(version, tag, timestamp), read_data=readData)

    def findValue(self, column: str, *values: object) -> FindValueResult:  # noqa: N802
        """Find the files that still hold a value, whether or not any version shows it.

        Shows that erased rows are gone. Searches every file below the folder of the table: data
        files of all versions, with deleted rows and dropped columns, files without a version,
        indices, blobs, transactions and manifests. Files of other folders, as clones have them, and
        hashes or parts of values in indices are not searched, which the result says. Runs on the
        driver, reads the column once from each file, and changes nothing. It does not see files
        that are written meanwhile.

        Args:
            column: Its name in any version; ``a.b`` for a field of a struct.
            values: One value or several: of the type of the column, or their text.

        Raises:
            InvalidInputError: No version has such a column, or it cannot have such a value.

        Examples:
            >>> table.delete("id = 2").numDeletedRows
            1
            >>> result = table.findValue("id", 2)
            >>> [(file.kind, file.numValues, file.versions) for file in result.files]
            [('transaction', None, (2,)), ('manifest', None, (2,)), ('data', 1, (1, 2))]
        """
        return find_value(self._table, column, values)

    # History, tags, branches, consumers -----------------------------------------------------------

    def history(self, limit: int | None = None) -> DataFrame:
        """Return the remaining versions, the newest first: their operation, time and author.

        Args:
            limit: Maximum number of versions; None for all.

        Examples:
            >>> _ = table.delete("id = 3", userMetadata="asked for by mail")
            >>> table.history().select("version", "operation", "userMetadata").collect()
            [Row(version=2, operation='Delete', userMetadata='asked for by mail'), ...]
        """
        return self._frame(history_rows(self._table, limit), HISTORY)

    def rowHistory(  # noqa: N802
        self,
        rowId: int,  # noqa: N803
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Return every state of a row, the newest first, with the commit that wrote it.

        This goes back from each version that changed the row to the one before, so that only the
        row itself is scanned. A restore that changed or re-created the row is a separate state; to
        find it, the manifests of the versions in between are read. On a branch, states from before
        the fork are included. For a deleted row, the history begins with the version before the
        delete.

        Args:
            rowId: Its stable row id.
            version: Version to begin with; None for the newest one that has the row.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            VersionNotFoundError: No remaining version has such a row.

        Examples:
            >>> _ = table.update("id = 2", {"price": "0"}, userMetadata="a gift")
            >>> states = table.rowHistory(1)
            >>> states.select("_version", "_userMetadata", "price").collect()
            [Row(_version=2, _userMetadata='a gift', price=0.0), Row(_version=1, ..., price=1.5)]
        """
        seen = self._number_of(version, tag, timestamp)
        return row_states(self._spark, self._table, rowId, seen)

    def lineageAudit(  # noqa: N802
        self,
        rowIds: Sequence[int] | None = None,  # noqa: N803
        condition: str | None = None,
        *,
        columns: Sequence[str] = (),
    ) -> DataFrame:
        """Return the commits that created and last updated each row: version, time, operation.

        They are null for versions that were cleaned up. On a branch the commits before the fork are
        those of its parent. A restore also restores the versions of rows, so the original commits
        are shown; ``rowHistory`` shows restores.

        Args:
            rowIds: Row ids; None for all rows.
            condition: SQL condition on the rows; None for all rows.
            columns: Columns of the table to add.

        Examples:
            >>> _ = table.update("id = 2", {"price": "0"}, userMetadata="a gift")
            >>> audit = table.lineageAudit(condition="id > 1", columns=["id"])
            >>> audit.select("id", "createdVersion", "updatedBy").orderBy("id").collect()
            [Row(id=2, createdVersion=1, updatedBy='a gift'), Row(id=3, createdVersion=1, ...)]
        """
        names = [ROW_ID, *columns, CREATED_AT, LAST_UPDATED_AT]
        return with_commits(
            self.scan(names, row_condition(rowIds, condition)), self._table, columns
        )

    def detail(self) -> DataFrame:
        """Return one row about the version: counts, sizes, properties, and advice on its layout.

        Examples:
            >>> table.detail().select("version", "numRows", "stableRowIds").collect()
            [Row(version=1, numRows=3, stableRowIds=True)]
        """
        rows = detail_rows(self._table, self._version_of(None))
        return show_detail(self._frame(rows, DETAIL), rows)

    def fragments(
        self,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> DataFrame:
        """Return the layout of a version: one row per fragment, with the lineage of its rows.

        Args:
            version: None for the newest, or the one that the table is pinned to.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Examples:
            >>> table.fragments().select("fragmentId", "numRows", "maxCreatedAtVersion").collect()
            [Row(fragmentId=0, numRows=3, maxCreatedAtVersion=1)]
        """
        return self._frame(
            fragment_rows(self._table, self._version_of(version, tag, timestamp)), FRAGMENTS
        )

    @changes_table(*COMMIT_OPTIONS, refreshes_cache=True)
    def restore(
        self,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
        **options: str,
    ) -> MetadataResult:
        """Restore an old version, as one new version; later versions stay in the history.

        Change feeds contain only the rows that really change by this.

        Args:
            version: Number of the version.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number: the newest version committed at
                or before it. Strings without a zone use the session time zone, datetimes without
                one local time.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            VersionNotFoundError: There is no such version, or it was cleaned up.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.restore(1)
            MetadataResult(version=3)
            >>> table.toDF().count()
            3
        """
        at = parse_version_arguments(self._spark, version, tag, timestamp)
        return restore(self._table, at, self._commit_settings(options))

    @changes_table(*COMMIT_OPTIONS)
    def restoreToVersion(self, version: int, **options: str) -> MetadataResult:  # noqa: N802
        """Restore a version, as in Delta; see ``restore``.

        Args:
            version: Number of the version.
            options: As for ``restore``.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.restoreToVersion(1).version
            3
        """
        return self.restore(version, **options)

    @changes_table(*COMMIT_OPTIONS)
    def restoreToTimestamp(  # noqa: N802
        self, timestamp: str | datetime, **options: str
    ) -> MetadataResult:
        """Restore the version of a timestamp, as in Delta; see ``restore``.

        Args:
            timestamp: As for ``restore``.
            options: As for ``restore``.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.restoreToTimestamp("2999-01-01")  # the newest is that version already
            MetadataResult(version=None)
        """
        return self.restore(timestamp=timestamp, **options)

    @changes_table()
    def createTag(  # noqa: N802
        self,
        name: str,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> Tag:
        """Tag a version, so that no cleanup removes it; read it with the option ``tag``.

        Args:
            name: Letters, digits, ``.``, ``_``, ``-``.
            version: None for the newest.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            InvalidInputError: The name is in use.

        Examples:
            >>> table.createTag("release-1").version
            1
            >>> spark.read.format("lance").option("tag", "release-1").load(path).count()
            3
        """
        at = parse_version_arguments(self._spark, version, tag, timestamp)
        return set_tag(self._table, name, at)

    @changes_table()
    def replaceTag(  # noqa: N802
        self,
        name: str,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> Tag:
        """Move a tag to another version.

        Args:
            name: Name of an existing tag.
            version: None for the newest.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            VersionNotFoundError: There is no such tag, or no such version.

        Examples:
            >>> _ = table.createTag("latest")
            >>> _ = table.delete("id = 3")
            >>> table.replaceTag("latest").version
            2
        """
        at = parse_version_arguments(self._spark, version, tag, timestamp)
        return set_tag(self._table, name, at, replaces=True)

    @changes_table()
    def deleteTag(self, name: str) -> None:  # noqa: N802
        """Delete a tag; its version stays until a cleanup.

        Raises:
            VersionNotFoundError: There is no such tag.

        Examples:
            >>> _ = table.createTag("old")
            >>> table.deleteTag("old")
            >>> table.tags().count()
            0
        """
        remove_tag(self._table, name)

    @unsupported_attributes(
        create="table.createTag(name, version)",
        delete="table.deleteTag(name)",
        list="table.tags()",
        update="table.replaceTag(name, version)",
    )
    def tags(self) -> DataFrame:
        """Return all tags, by name.

        Examples:
            >>> _ = table.createTag("release-1")
            >>> table.tags().select("name", "version").collect()
            [Row(name='release-1', version=1)]
        """
        return self._frame(tag_rows(self._table), TAGS)

    @changes_table()
    def createBranch(  # noqa: N802
        self,
        name: str,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> Branch:
        """Create a branch from a version; writes a manifest and copies no data.

        ``LanceTable.forPath`` and the option ``branch`` of reads and writes take its name.

        Args:
            name: Parts of letters, digits, ``.``, ``_``, ``-``, joined by ``/``.
            version: The version to fork from; None for the newest.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            InvalidInputError: The name is in use.

        Examples:
            >>> table.createBranch("trial").parentVersion
            1
            >>> trial = LanceTable.forPath(spark, path, branch="trial")
            >>> _ = trial.delete("id = 3")
            >>> trial.toDF().count(), table.toDF().count()
            (2, 3)
        """
        at = parse_version_arguments(self._spark, version, tag, timestamp)
        return create_branch(self._table, name, at)

    def branchPath(self, name: str) -> str:  # noqa: N802
        """Return the path by which a branch can be opened like a table.

        Examples:
            >>> _ = table.createBranch("trial")
            >>> table.branchPath("trial") == f"{path}/tree/trial"
            True
        """
        snapshot = Snapshot.open(self._table)
        return main_branch_of(snapshot.table, snapshot.manifest.branch).on_branch(name).uri

    @changes_table()
    def deleteBranch(self, name: str) -> None:  # noqa: N802
        """Delete a branch and everything that was written to it.

        Raises:
            InvalidInputError: Tags or other branches refer to it.
            VersionNotFoundError: There is no such branch.

        Examples:
            >>> _ = table.createBranch("trial")
            >>> table.deleteBranch("trial")
            >>> table.branches().count()
            0
        """
        remove_branch(self._table, name)

    @unsupported_attributes(
        create="table.createBranch(name, version)",
        delete="table.deleteBranch(name)",
        list="table.branches()",
    )
    def branches(self) -> DataFrame:
        """Return all branches but main, by name.

        Examples:
            >>> _ = table.createBranch("trial")
            >>> table.branches().select("name", "parentVersion").collect()
            [Row(name='trial', parentVersion=1)]
        """
        return self._frame(branch_rows(self._table), BRANCHES)

    @changes_table()
    def registerConsumer(  # noqa: N802
        self,
        name: str,
        version: int | str | None = None,
        *,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> Consumer:
        """Register a consumer, or move one, so that cleanups keep versions that it has not read.

        No cleanup removes the given version or a later one until the consumer advances. A stream
        with the option ``consumer`` advances its own.

        Args:
            name: Letters, digits, ``.``, ``_``, ``-``.
            version: The last version that it has read; None for the newest.
            tag: Tag of the version, instead of its number.
            timestamp: Time of the version, instead of its number; see ``restore``.

        Raises:
            VersionNotFoundError: There is no such version.

        Examples:
            >>> _ = table.delete("id = 3")
            >>> table.registerConsumer("mirror", 1).lag
            1
            >>> table.registerConsumer("mirror").lag
            0
        """
        return register_consumer(self._table, name, self._number_of(version, tag, timestamp))

    @changes_table()
    def unregisterConsumer(self, name: str) -> None:  # noqa: N802
        """Remove a consumer; cleanups no longer keep versions for it.

        Raises:
            VersionNotFoundError: There is no such consumer.

        Examples:
            >>> _ = table.registerConsumer("mirror")
            >>> table.unregisterConsumer("mirror")
            >>> table.consumers().count()
            0
        """
        unregister_consumer(self._table, name)

    def consumers(self) -> DataFrame:
        """Return the consumers: the last version that each has read, and how many it lags behind.

        Examples:
            >>> _ = table.registerConsumer("mirror")
            >>> table.consumers().select("name", "version", "lag").collect()
            [Row(name='mirror', version=1, lag=0)]
        """
        return self._frame(consumer_rows(self._table), CONSUMERS)

    # Properties -----------------------------------------------------------------------------------

    def properties(self) -> dict[str, str]:
        """Return the properties of the table, by key.

        Examples:
            >>> _ = table.setProperties({"owner": "web team"})
            >>> table.properties()
            {'owner': 'web team'}
        """
        return properties_of(Snapshot.open(self._table, self._version_of(None)))

    @changes_table(*COMMIT_OPTIONS)
    def setProperties(  # noqa: N802
        self, properties: Mapping[str, str | None], **options: str
    ) -> MetadataResult:
        """Set properties of the table; None removes one.

        Lance itself uses some that begin with ``lance.``, such as
        ``lance.auto_cleanup.interval``.

        Args:
            properties: By key.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: The name of an option, which would have no effect as a property, or
                a value that a property of Lance cannot have.

        Examples:
            >>> table.setProperties({"owner": "web team", "lance.compaction.max_source_rows": "9"})
            MetadataResult(version=2)
            >>> table.setProperties({"owner": None})
            MetadataResult(version=3)
        """
        check_properties(properties, Snapshot.open(self._table).schema.names, self._table.uri)
        return set_properties(self._table, properties, self._commit_settings(options))

    # Inside ---------------------------------------------------------------------------------------

    def _version_of(
        self,
        version: int | str | None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> VersionSpec:
        """Return the version in the arguments, else the version of the object."""
        requested = parse_version_arguments(self._spark, version, tag, timestamp)
        return self._held_version() if requested == LATEST else requested

    def _held_version(self) -> VersionSpec:
        """Return the version of the object, after checking that the table is still the same.

        Raises:
            TableReplacedError: The table was dropped and created again since it was pinned.
        """
        number = self._at.version
        if number is not None:
            pinned = PinnedVersion(self._table.uri, number, self._stamp)
            hint = "open it again: LanceTable.forPath(spark, path, version=…)"
            self._stamp = open_pinned(self._table, pinned, hint).identity.stamp
        return self._at

    def _number_of(
        self,
        version: int | str | None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> int | None:
        """Return the number of that version; None for the latest.

        Raises:
            VersionNotFoundError: No such tag, no version of that time, or a tag of another branch.
        """
        at = self._version_of(version, tag, timestamp)
        if at == LATEST or at.version is not None:
            return at.version
        found = Snapshot.open(self._table, at)
        if found.table.branch != self._table.branch:
            raise VersionNotFoundError(
                f"the tag {tag!r} belongs to branch {found.table.branch!r}",
                self._table.uri,
                "open that branch: LanceTable.forPath(spark, path, branch=…)",
            )
        return found.version

    def _read_options(self, at: VersionSpec) -> dict[str, str]:
        branch, number = self._table.branch, at.version
        if number is None and at != LATEST:
            found = Snapshot.open(self._table, at)
            branch, number = found.table.branch, found.version
        requested = {"branch": branch, "version": number}
        return {**storage_options_of(self._table), **to_option_strings(requested)}

    def _feed_options(self, **given: object) -> dict[str, str]:
        if all(given[name] is None for name in ("branch", "endingVersion", "endingTimestamp")):
            given["endingVersion"] = self._held_version().version
        options = self._read_options(LATEST)
        options["readChangeFeed"] = "true"
        for name, value in given.items():
            if isinstance(value, datetime):
                value = value.astimezone().isoformat()
            elif isinstance(value, str) and name.endswith("Timestamp"):
                value = with_zone(value, session_zone(self._spark))
            if value is not None:
                options[name] = str(value)
        return options

    def _check_newest(self, call: str) -> None:
        """Check that the table is not pinned to a version, for a call that changes it.

        Raises:
            InvalidInputError: The table is pinned.
        """
        if self._at != LATEST:
            raise InvalidInputError(
                f"{call} changes the table, but this LanceTable is pinned to a version",
                repr(self),
                "open the table without a version or tag to change it; restore(version) makes an "
                "old version the newest again",
            )

    def _searched_table(
        self, version: int | str | None, tag: str | None, timestamp: str | datetime | None
    ) -> SearchedTable:
        at = self._version_of(version, tag, timestamp)
        with suggest_paths(self._table):
            snapshot = Snapshot.open(self._table, at)
        options = {**self._read_options(at), "path": self._table.root}
        return SearchedTable(self._spark, snapshot, options)

    @property
    def _row_changes(self) -> RowChanges:
        return RowChanges(self._spark, self._table, self._alias)

    def _commit_settings(self, options: Mapping[str, str]) -> CommitSettings:
        return commit_settings(options_of_change(options, self._table, self._spark))

    def _change_settings(self, options: Mapping[str, str]) -> ChangeSettings:
        return change_settings(options_of_change(options, self._table, self._spark))

    def _run_tasks(self, tasks: Sequence[MaintenanceTask[Any]]) -> list[Any]:
        return run_on_executors(self._spark, tasks)

    def _load(self, options: Mapping[str, str]) -> DataFrame:
        return self._spark.read.format("lance").options(**options).load(self._table.root)

    def _frame(self, rows: Rows, schema: StructType) -> DataFrame:
        return rows_to_dataframe(self._spark, rows, schema)


def describe_table(spark: SparkSession, name: str) -> dict[str, str]:
    """Return the rows of DESCRIBE TABLE EXTENDED.

    This first checks that the table exists, since PySpark would log the error otherwise.
    """
    hint = "LanceTable.forPath takes the path of a table"
    try:
        if not spark.catalog.tableExists(name):
            raise TableNotFoundError(f"there is no table {name}", hint=hint)
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except AnalysisException as error:  # others, as of a catalog, say more than that
        raise TableNotFoundError(f"there is no table {name}", hint=hint) from error
    return {row["col_name"]: row["data_type"] for row in rows}


def _names(given: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names as a tuple."""
    return (given,) if isinstance(given, str) else tuple(given)


def _seconds(age: Age) -> float:
    """Convert a timedelta, ``"14days"`` or a number of hours to seconds.

    Raises:
        InvalidInputError: A text that is not a duration.
    """
    if isinstance(age, timedelta):
        return age.total_seconds()
    return parse_duration(age) if isinstance(age, str) else 3600 * age

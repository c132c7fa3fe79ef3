"""LanceTable: a table as an object, in the style PySpark users know from Delta."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from pyspark_lance.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from pyspark_lance.format.column_names import ROW_ID
from pyspark_lance.spark.api.cached_tables import refreshes_cached
from pyspark_lance.spark.api.delta_compatibility import DeltaCompatibility
from pyspark_lance.spark.api.merge_builder import LanceMergeBuilder
from pyspark_lance.spark.api.table_columns import TableColumns
from pyspark_lance.spark.api.table_creation import TableCreation
from pyspark_lance.spark.api.table_feed import TableFeed
from pyspark_lance.spark.api.table_html import table_html
from pyspark_lance.spark.api.table_indices import TableIndices
from pyspark_lance.spark.api.table_maintenance import TableMaintenance
from pyspark_lance.spark.api.table_search import TableSearch, TextSearch
from pyspark_lance.spark.api.table_versions import TableVersions
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.api.unsupported_attributes import NamesOfClass, UnsupportedAttributes
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.expressions.expressions import as_expression, quoted, readable_columns
from pyspark_lance.spark.jobs.merge_job import (
    DEFAULT_TARGET_ALIAS,
    MergeRequest,
    add_columns_of_source,
    merge_once,
)
from pyspark_lance.spark.jobs.update_job import delete_once, update_once
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.hadoop_settings import session_table
from pyspark_lance.spark.options.parse_options import ReadOptions, storage_options_of
from pyspark_lance.spark.options.spellings import (
    COMMIT_OPTIONS,
    FILE_OPTIONS,
    changes_table,
    checks_keywords,
    naming_table,
    to_option_strings,
)
from pyspark_lance.spark.options.times import is_ansi, session_zone, session_zone_name, with_zone
from pyspark_lance.spark.options.version_arguments import parse_version_arguments
from pyspark_lance.spark.options.write_settings import (
    change_settings,
    commit_settings,
    options_of_change,
)
from pyspark_lance.spark.sessions import check_session, describing_jobs
from pyspark_lance.spark.source.change_feed_plan import pin_feed
from pyspark_lance.table.cdf.change_feed import ChangeCounts, count_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication, Layout
from pyspark_lance.table.dml.choose_rewrite import rewrite_mode
from pyspark_lance.table.dml.commit_changes import PreparedCommit
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan, plan_change
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, suggest_paths
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec
from pyspark_lance.table.work.unit_of_work import UnitOfWork


def describe_table(spark: SparkSession, name: str) -> dict[str, str]:
    """Return the rows of DESCRIBE TABLE EXTENDED.

    This first checks that the table exists, since PySpark would log the error otherwise.
    """
    hint = "LanceTable.forPath takes the path of a table"
    try:
        if not spark.catalog.tableExists(name):
            raise TableNotFoundError(f"there is no table {name}", hint=hint)
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except PySparkException as error:
        raise TableNotFoundError(f"there is no table {name}", hint=hint) from error
    return {row["col_name"]: row["data_type"] for row in rows}


class TableAtVersion:
    """A table at its newest version, or pinned to a version."""

    _spark: SparkSession
    _table: Table
    _at: VersionSpec

    def _version_of(
        self,
        version: int | str | None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> VersionSpec:
        """Return the version in the arguments, else the version of the object."""
        asked = parse_version_arguments(self._spark, version, tag, timestamp)
        return self._at if asked == LATEST else asked

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
        asked = {"branch": branch, "version": number}
        return {**storage_options_of(self._table), **to_option_strings(asked)}


_PROVIDERS = ("lance", "org.pysparklance.lancesource")


@checks_keywords
class LanceTable(
    TableColumns,
    TableFeed,
    TableIndices,
    TableSearch,
    TextSearch,
    TableMaintenance,
    TableVersions,
    DeltaCompatibility,
    TableCreation,
    TableAtVersion,
    UnsupportedAttributes,
    metaclass=NamesOfClass,
):
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
        self._alias = alias

    def __repr__(self) -> str:
        held = "" if self._at == LATEST else f", version={self._at.version}"
        return f"LanceTable({self._table.uri!r}{held})"

    def _repr_html_(self) -> str:
        """Return the HTML for notebooks: version, rows, columns, and the newest versions."""
        return table_html(self._table, self._at, repr(self))

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
        return cls(spark, path, storageOptions, branch=found.table.branch, version=held)

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
            options["columns"] = ",".join(map(quoted, columns))
        if filter is not None:
            options["filter"] = filter
            options[keys.TIME_ZONE] = session_zone_name(self._spark)
            options[keys.ANSI] = str(is_ansi(self._spark)).lower()
        options["metadataColumns"] = (
            metadataColumns if isinstance(metadataColumns, str) else ",".join(metadataColumns)
        )
        with typed_errors():
            return self._spark.read.format("lance").options(**options).load(self._table.root)

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
        with typed_errors():
            return self._spark.read.format("lance").options(**options).load(self._table.root)

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
        window: ChangeWindow | None = None
        while True:
            feed = pin_feed(ReadOptions.parse({**options, "path": self._table.root}), None)
            try:
                return count_changes(feed.table, feed.window)
            except VersionNotFoundError:
                if feed.window == window:
                    raise
                window = feed.window  # there is a newer version now

    def _feed_options(self, **given: object) -> dict[str, str]:
        if all(given[name] is None for name in ("branch", "endingVersion", "endingTimestamp")):
            given["endingVersion"] = self._at.version
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

    def take(self, rowIds: Sequence[int], columns: Sequence[str] | None = None) -> DataFrame:  # noqa: N803
        """Return the rows with these row ids; ids without a row are ignored.

        The cost depends on the number of ids, not on the size of the table.

        Examples:
            >>> table.take([0, 2], ["id"]).orderBy("id").collect()
            [Row(id=1, _rowid=0), Row(id=3, _rowid=2)]
        """
        ids = sorted({int(row_id) for row_id in rowIds})
        condition = f"{ROW_ID} IN ({', '.join(map(str, ids))})" if ids else "false"
        return self.scan(columns, condition, metadataColumns=ROW_ID)

    def alias(self, name: str) -> LanceTable:
        """Return the table with another name in conditions; the default is ``target``.

        Examples:
            >>> table.alias("t").delete("t.id = 3").numDeletedRows
            1
        """
        table, version = self._table, self._at.version
        return LanceTable(
            self._spark, table.root, table.storage, name, branch=table.branch, version=version
        )

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
        return self._change(
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
        return self._change(
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
        mode = rewrite_mode(rewrite)
        if condition is None:
            condition = self._same_key()

        def run(merge: MergeRequest) -> ChangeResult:
            described = describing_jobs(self._spark, "merge", self._table.uri)
            with check_session(self, needs_session=True), described:
                if merge.evolves:
                    given = options_of_change(options, self._table, self._spark)
                    add_columns_of_source(self._table, merge, commit_settings(given))
                return self._change(
                    lambda plan: merge_once(self._spark, plan, merge), options, source
                )

        return LanceMergeBuilder(MergeRequest(source, condition, (), self._alias, mode), run)

    # Inside ----------------------------------------------------------------------------------

    def _same_key(self) -> str:
        """Return the condition that source and target rows have the same primary key."""
        key = self.primaryKey()
        if not key:
            raise InvalidInputError(
                "a merge without a condition matches by the primary key, and the table has none",
                repr(self),
                'give a condition, as "target.id = source.id", or setPrimaryKey("id") once',
            )
        return " AND ".join(f"{quoted(self._alias, name)} = source.{quoted(name)}" for name in key)

    def _check_newest(self, call: str) -> None:
        """Check that the table is not pinned to a version, for a call that changes it.

        Raises:
            InvalidInputError: The table is pinned.
        """
        if self._at != LATEST:
            raise InvalidInputError(
                f"{call} changes the table, but this LanceTable is pinned to a version",
                repr(self),
                "LanceTable.forPath without version and tag can be changed; restore(version) makes "
                "an old version the newest again",
            )

    @refreshes_cached
    def _change(
        self,
        attempt: Callable[[DmlPlan], PreparedCommit],
        options: Mapping[str, str],
        source: DataFrame | None = None,
        properties: Mapping[str, str] | None = None,
    ) -> ChangeResult:
        """Plan on the newest version, run and commit; retry after conflicts."""
        settings = change_settings(options_of_change(options, self._table, self._spark))
        if properties:
            settings = replace(settings, properties={**settings.properties, **properties})

        def plan_and_run(work: UnitOfWork) -> ChangeResult:
            plan = plan_change(self._table, settings)
            if plan.is_done:
                return ChangeResult()

            def columns() -> list[str]:
                more = () if source is None else source.columns
                return [*readable_columns(plan.schema), *more]

            with naming_table(self._table.uri), typed_errors(columns, self._alias):
                return attempt(plan)(work)

        return UnitOfWork(self._table, settings).run(plan_and_run)

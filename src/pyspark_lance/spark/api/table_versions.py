"""The methods of ``LanceTable`` about versions: history, restore, tags, branches, properties."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ID
from pyspark_lance.metafile.refs_file import Branch, Tag
from pyspark_lance.spark.api.cached_tables import refreshes_cached
from pyspark_lance.spark.api.table_html import shown_detail
from pyspark_lance.spark.api.unsupported_attributes import unsupported_attributes
from pyspark_lance.spark.expressions.expressions import quoted
from pyspark_lance.spark.options.option_table import check_properties
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.spark.options.spellings import COMMIT_OPTIONS, changes_table, checks_keywords
from pyspark_lance.spark.options.version_arguments import parse_version_arguments
from pyspark_lance.spark.options.write_settings import commit_settings, options_of_change
from pyspark_lance.spark.sql.metadata_tables import (
    BRANCHES,
    DETAIL,
    FRAGMENTS,
    HISTORY,
    INDICES,
    TAGS,
    Rows,
    branch_rows,
    detail_rows,
    fragment_rows,
    history_row,
    history_rows,
    index_rows,
    rows_to_dataframe,
    tag_rows,
)
from pyspark_lance.table.history.row_history import ancestor_history, row_history
from pyspark_lance.table.refs.branches import create_branch, remove_branch
from pyspark_lance.table.refs.tags import remove_tag, set_tag
from pyspark_lance.table.version.snapshot import Snapshot, properties_of
from pyspark_lance.table.version.table import Table, main_branch_of
from pyspark_lance.table.version.time_travel import VersionSpec
from pyspark_lance.table.work.commit_settings import CommitSettings
from pyspark_lance.table.work.metadata_commits import MetadataResult, restore, set_properties


@checks_keywords
class TableVersions:
    """History, restore, tags, branches and properties; these write no data files.

    History, tags and branches are those of the table, whatever version it is pinned to.
    """

    _spark: SparkSession
    _table: Table
    _version_of: Callable[..., VersionSpec]
    _number_of: Callable[..., int | None]
    scan: Callable[..., DataFrame]

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
        terms = [f"({condition})"] if condition is not None else []
        if rowIds is not None:
            ids = ", ".join(str(int(row_id)) for row_id in sorted(set(rowIds)))
            terms.append(f"{ROW_ID} IN ({ids})" if ids else "false")
        names = [ROW_ID, *columns, CREATED_AT, LAST_UPDATED_AT]
        rows = self.scan(names, " AND ".join(terms) or None)
        made = [history_row(entry) for entry in ancestor_history(self._table)]
        commits = self._frame(made, HISTORY)
        for name, key in (("created", CREATED_AT), ("updated", LAST_UPDATED_AT)):
            known = commits.select(
                sf.col("version").alias(key),
                sf.col("timestamp").alias(f"{name}Timestamp"),
                sf.col("operation").alias(f"{name}Operation"),
                sf.col("userMetadata").alias(f"{name}By"),
                sf.col("applicationId").alias(f"{name}Application"),
            )
            rows = rows.join(sf.broadcast(known), key, "left")
            rows = rows.withColumnRenamed(key, f"{name}Version")
        return rows.select(
            ROW_ID,
            *map(quoted, columns),
            *(
                f"{name}{what}"
                for name in ("created", "updated")
                for what in ("Version", "Timestamp", "Operation", "By", "Application")
            ),
        )

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
        states = row_history(self._table, rowId, self._number_of(version, tag, timestamp))
        frame: DataFrame | None = None
        for row_state in states:
            options = {
                **storage_options_of(self._table),
                "filter": f"{ROW_ID} = {int(rowId)}",
                "version": str(row_state.seen_at),
            }
            row = self._spark.read.format("lance").options(**options).load(row_state.uri)
            state = row.select(
                sf.lit(row_state.version).cast("bigint").alias("_version"),
                sf.lit(row_state.timestamp).alias("_timestamp"),
                sf.lit(row_state.operation).cast("string").alias("_operation"),
                sf.lit(row_state.user_metadata).cast("string").alias("_userMetadata"),
                sf.lit(row_state.application_id).cast("string").alias("_applicationId"),
                *map(quoted, row.columns),
            )
            frame = state if frame is None else frame.unionByName(state, allowMissingColumns=True)
        assert frame is not None  # there is at least one state
        return frame.coalesce(1)

    def detail(self) -> DataFrame:
        """Return one row about the version: counts, sizes, properties, and advice on its layout.

        Examples:
            >>> table.detail().select("version", "numRows", "stableRowIds").collect()
            [Row(version=1, numRows=3, stableRowIds=True)]
        """
        rows = detail_rows(self._table, self._version_of(None))
        return shown_detail(self._frame(rows, DETAIL), rows)

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

    @changes_table(*COMMIT_OPTIONS)
    @refreshes_cached
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
        return restore(self._table, at, self._settings(options))

    # Tags ------------------------------------------------------------------------------------

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

    # Branches --------------------------------------------------------------------------------

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

    # Properties ------------------------------------------------------------------------------

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
            InvalidInputError: The name of an option, which would have no effect as a property.

        Examples:
            >>> table.setProperties({"owner": "web team", "lance.compaction.max_source_rows": "9"})
            MetadataResult(version=2)
            >>> table.setProperties({"owner": None})
            MetadataResult(version=3)
        """
        given = [name for name, value in properties.items() if value is not None]
        check_properties(given, Snapshot.open(self._table).schema.names, self._table.uri)
        return set_properties(self._table, properties, self._settings(options))

    # Inside ----------------------------------------------------------------------------------

    def _settings(self, options: Mapping[str, str]) -> CommitSettings:
        return commit_settings(options_of_change(options, self._table, self._spark))

    def _frame(self, rows: Rows, schema: StructType) -> DataFrame:
        return rows_to_dataframe(self._spark, rows, schema)

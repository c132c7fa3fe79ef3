"""The methods of ``LanceTable`` for maintenance."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.spark.api.cached_tables import refreshes_cached
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.expressions.expressions import quoted
from pyspark_lance.spark.jobs.analyze_job import plan_analysis, store_statistics
from pyspark_lance.spark.jobs.stages import run_on_executors
from pyspark_lance.spark.options.hadoop_settings import session_table
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.spark.options.spellings import (
    COMMIT_OPTIONS,
    changes_table,
    checks_keywords,
    parameter_aliases,
)
from pyspark_lance.spark.options.write_settings import (
    change_settings,
    commit_settings,
    options_of_change,
)
from pyspark_lance.table.cleanup.auto_cleanup import parse_duration
from pyspark_lance.table.cleanup.cleanup import (
    CleanupPolicy,
    CleanupResult,
    Progress,
    cleanup_old_versions,
)
from pyspark_lance.table.cleanup.orphan_files import (
    OrphanFile,
    find_orphan_files,
    remove_orphan_files,
)
from pyspark_lance.table.compaction.compact import (
    CompactionResult,
    MaintenanceTask,
    compact,
    run_compaction_task,
)
from pyspark_lance.table.compaction.stable_row_ids import (
    CopyResult,
    copy_with_stable_row_ids,
    enable_stable_row_ids,
)
from pyspark_lance.table.index_build.zone_maps import (
    ZoneMapResult,
    build_zones,
    create_zone_maps,
    refresh_zone_maps,
)
from pyspark_lance.table.verify.find_value import FindValueResult, find_value
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.verify.verify_manifest import VerifyResult
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.metadata_commits import MetadataResult

Age: TypeAlias = timedelta | str | float
"""An age: a timedelta, ``"14days"``, or a number of hours."""


@checks_keywords
class TableMaintenance:
    """Analyses, compacts and verifies a table, and removes old versions and unused files."""

    _spark: SparkSession
    _table: Table
    _number_of: Callable[..., int | None]

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    @refreshes_cached
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
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        snapshot = Snapshot.open(self._table)
        read = {**storage_options_of(self._table), "version": str(snapshot.version)}
        if self._table.branch is not None:
            read["branch"] = self._table.branch
        names = [columns] if isinstance(columns, str) else list(columns)

        def rows(**options: str) -> DataFrame:
            reader = self._spark.read.format("lance").options(**read, **options)
            return reader.load(self._table.root)

        found = []
        for asked in plan_analysis(rows().schema, names or None):
            part = rows(columns=",".join(map(quoted, asked.columns))) if asked.columns else rows()
            found.append(part.selectExpr(asked.expression).collect()[0][0])
        return store_statistics(self._table, snapshot, found, settings)

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    @refreshes_cached
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
            sortBytes: Bytes of rows that a task sorts in memory, which takes about five times as
                much; 128 MiB.
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
        return compact(
            self._table,
            {
                "target_rows_per_fragment": targetRowsPerFragment,
                "materialize_deletions": materializeDeletions,
                "materialize_deletions_threshold": materializeDeletionsThreshold,
                "max_bytes_per_file": maxBytesPerFile,
                "max_source_rows": maxSourceRows,
                "max_source_fragments": maxSourceFragments,
                "defer_index_remap": deferIndexRemap,
                "cluster_by": None if clusterBy is None else _names(clusterBy),
                "split_files_by": None if splitFilesBy is None else _names(splitFilesBy),
                "order": order,
                "sort_bytes": sortBytes,
            },
            change_settings(options_of_change(options, self._table, self._spark)),
            rewrite=partial(rewrite_on_executors, self._spark),
            dry_run=dryRun,
        )

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
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
            change_settings(options_of_change(options, self._table, self._spark)),
            build=partial(run_on_executors, self._spark, build_zones),
        )

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
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
        return refresh_zone_maps(
            self._table,
            change_settings(options_of_change(options, self._table, self._spark)),
            build=partial(run_on_executors, self._spark, build_zones),
        )

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

    @changes_table(*COMMIT_OPTIONS)
    @refreshes_cached
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
        settings = commit_settings(options_of_change(options, self._table, self._spark))
        return enable_stable_row_ids(self._table, settings)

    @changes_table("userMetadata")
    @typed_errors()
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
            change_settings(options_of_change(options, self._table, self._spark)),
            rewrite=partial(rewrite_on_executors, self._spark),
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


def rewrite_on_executors(spark: SparkSession, tasks: Sequence[MaintenanceTask]) -> list[Any]:
    """Run tasks on the executors and return their results in order; commits nothing."""
    return run_on_executors(spark, run_compaction_task, tasks)

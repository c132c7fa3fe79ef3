"""The methods of ``LanceTable`` that keep a table in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TypeAlias

from pyspark.sql import SparkSession

from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.spark.api.cached_tables import refreshes_cached
from pyspark_lance.spark.api.typed_errors import typed_errors
from pyspark_lance.spark.jobs.compact_job import rewrite_on_executors
from pyspark_lance.spark.jobs.index_job import run_on_executors
from pyspark_lance.spark.options.spellings import (
    COMMIT_OPTIONS,
    also_spelled,
    changes_table,
    checks_keywords,
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
from pyspark_lance.table.compaction.compact import CompactionResult, compact
from pyspark_lance.table.compaction.stable_row_ids import (
    CopyResult,
    copy_with_stable_row_ids,
    enable_stable_row_ids,
)
from pyspark_lance.table.index_build.zone_map_task import build_zones
from pyspark_lance.table.index_build.zone_maps import (
    ZoneMapResult,
    create_zone_maps,
    refresh_zone_maps,
)
from pyspark_lance.table.verify.findings import VerifyResult
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.metadata_commits import MetadataResult

Age: TypeAlias = timedelta | str | float
"""How long ago: a timedelta, ``"14days"``, or a number of hours."""


@checks_keywords
class TableMaintenance:
    """Compacts and verifies a table, and removes what nobody needs any more."""

    _spark: SparkSession
    _table: Table
    _number_of: Callable[..., int | None]

    @changes_table(*COMMIT_OPTIONS)
    @typed_errors()
    @refreshes_cached
    def compact(
        self,
        *,
        targetRowsPerFragment: int | None = None,  # noqa: N803
        materializeDeletions: bool | None = None,  # noqa: N803
        materializeDeletionsThreshold: float | None = None,  # noqa: N803
        maxBytesPerFile: int | None = None,  # noqa: N803
        maxSourceRows: int | None = None,  # noqa: N803
        maxSourceFragments: int | None = None,  # noqa: N803
        deferIndexRemap: bool | None = None,  # noqa: N803
        dryRun: bool = False,  # noqa: N803
        **options: str,
    ) -> CompactionResult:
        """Joins small fragments and rewrites those with many deleted rows, on the executors.

        Nobody sees a difference but in speed: rows keep their values, ids and versions, and change
        feeds tell what they told before. Appends, deletes and updates go on meanwhile. The old
        files stay until a cleanup. A table in good shape gets no version.

        Args:
            targetRowsPerFragment: Smaller fragments are joined with their neighbours; 1048576
                unless the table is configured otherwise (``lance.compaction.*``), as all of these.
            materializeDeletions: Whether deleted rows are a reason to rewrite a fragment.
            materializeDeletionsThreshold: The share of deleted rows above which they are; 0.1.
            maxBytesPerFile: A new file ends when it has grown beyond this.
            maxSourceRows: Stop when so many rows are rewritten.
            maxSourceFragments: Stop when so many fragments are rewritten.
            deferIndexRemap: For tables without stable row ids: note where rows go, so that Lance
                goes on answering from its indices.
            dryRun: Only say what would be done.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: A limit that is none, or ``deferIndexRemap`` where rows have stable
                ids.
            RetryableCommitError: Other commits were in the way of everything, too often.

        Examples:
            >>> table.toDF().write.format("lance").mode("append").save(path)
            >>> result = table.compact()
            >>> result.fragmentsRemoved, result.fragmentsAdded, result.numRows
            (2, 1, 6)
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
        """Makes a zone map of each column, on the executors: least and greatest value of each zone.

        Scans, deletes, updates and merges then read only the zones that can hold a row of their
        condition, as long as rows lie in about the order of the column; so does Lance. A zone map
        that a column has is replaced. Rows that are written later are read as before, until
        ``refreshZonemaps``.

        Args:
            columns: A name, or several; a field of a struct is ``struct.field``.
            rowsPerZone: Rows of a zone; 8192 unless given.
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            InvalidInputError: No such column, or zones of no rows.
            UnsupportedFeatureError: A column whose values have no order: lists, structs, JSON.
            RetryableCommitError: Other commits were in the way too often.

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
        """Adds to all zone maps what was written, compacted or changed since they were made.

        Only fragments that a zone map does not cover are read. Without any there is no version.

        Args:
            options: ``commitRetries``, ``commitTimeout``, ``userMetadata``.

        Raises:
            RetryableCommitError: Other commits were in the way too often.

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
        """Removes old versions, and the files that nothing but them refers to.

        A version is old if all that is given holds; without anything, if it is older than two
        weeks. The newest version stays whatever is given, and so do versions that tags or branches
        stand on. Files that no version refers to, which may belong to a write that is under way,
        go when they are a week old. Time travel and change feeds that need a removed version fail
        from then on.

        Args:
            olderThan: Committed longer ago than this: a timedelta, ``"14days"``, ``"1day 12h"``, or
                a number of hours.
            beforeVersion: Have a smaller number.
            retainVersions: Are not among this many newest.
            deleteUnverified: Do not spare young files; only right when nobody writes.
            errorIfTaggedOldVersions: False keeps tagged old versions instead of refusing to work.
            dryRun: Only say what would be removed.
            progress: Called with the number of files that are removed and of all.

        Raises:
            InvalidInputError: Old versions are tagged, or a consumer has not read them.
            CorruptFileError: A manifest cannot be read, so that nobody knows what it refers to.

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
        """Gives the rows of a table that was made without them stable ids, in place.

        One commit that writes no data; every row counts as made by it. Lineage, change feeds and
        row ids that follow their rows begin with that version; older ones cannot be restored. A
        table that has stable row ids is left alone.

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
        """Copies the newest version to a new table whose rows have stable ids.

        The copy has one version, the same columns and configuration, and no indices.

        Args:
            target: Path of the copy, with the storage options of this table.
            options: ``userMetadata``.

        Raises:
            TableAlreadyExistsError: There is a table at the target.

        Examples:
            >>> table.copyWithStableRowIds(f"{folder}/copy")
            CopyResult(version=1, numRows=3, numFragments=1)
        """
        return copy_with_stable_row_ids(
            self._table,
            Table(target, self._table.storage),
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
        """Looks for everything that is wrong with a version; each finding names the remedy.

        Looks at the manifest, at the size and the footer of every data file, at the deleted rows,
        row ids and versions of every fragment, at tags, branches, and files without use. Runs on
        the driver and changes nothing.

        Args:
            version: None for the newest, or the one that the table is held at.
            tag: Or its tag.
            timestamp: Or a time, as for ``restore``.
            readData: Also decode every value, and compare indices with their columns.

        Raises:
            TableNotFoundError: There is no such version.

        Examples:
            >>> result = table.verify()
            >>> result.isSound, result.findings
            (True, ())
        """
        return verify(self._table, self._number_of(version, tag, timestamp), read_data=readData)

    @also_spelled(retentionHours="olderThan")
    def leftoverFiles(self, olderThan: Age = 0.0) -> list[OrphanFile]:  # noqa: N802, N803
        """Files that no version refers to: of failed tasks, killed processes, lost races.

        Files of writes that are under way are among them.

        Args:
            olderThan: Leaves out younger files: a timedelta, ``"7days"``, or a number of hours.

        Examples:
            >>> table.leftoverFiles()
            []
        """
        return find_orphan_files(self._table, older_than_s=_seconds(olderThan))

    @changes_table()
    @also_spelled(retentionHours="olderThan")
    def removeLeftoverFiles(  # noqa: N802
        self,
        olderThan: Age = SAFE_AGE_S / 3600,  # noqa: N803
        *,
        force: bool = False,
    ) -> list[OrphanFile]:
        """Removes the files that no version refers to, and says which; makes no version.

        Args:
            olderThan: Keeps younger files, which a write under way may need: a timedelta,
                ``"7days"``, or a number of hours.
            force: Allows less than seven days; only right when nobody writes to the table.

        Raises:
            InvalidInputError: Less than seven days without ``force``.

        Examples:
            >>> table.removeLeftoverFiles()
            []
        """
        age_s = _seconds(olderThan)
        return remove_orphan_files(self._table, older_than_s=age_s, force=force)


def _seconds(age: Age) -> float:
    """Seconds of a timedelta, of ``"14days"``, or of a number of hours.

    Raises:
        InvalidInputError: A text that is no duration.
    """
    if isinstance(age, timedelta):
        return age.total_seconds()
    return parse_duration(age) if isinstance(age, str) else 3600 * age

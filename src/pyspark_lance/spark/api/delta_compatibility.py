"""Aliases of methods of ``LanceTable`` that have the names of Delta Lake."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from pyspark_lance.spark.api.unsupported_attributes import (
    UnsupportedAttributes,
    unsupported_attributes,
)
from pyspark_lance.spark.options.spellings import COMMIT_OPTIONS, changes_table, checks_keywords
from pyspark_lance.table.cleanup.cleanup import CleanupResult
from pyspark_lance.table.compaction.compact import CompactionResult
from pyspark_lance.table.work.metadata_commits import MetadataResult


@checks_keywords
class LanceOptimizeBuilder(UnsupportedAttributes):
    """The result of ``optimize()``; ``executeCompaction()`` or ``executeZOrderBy()`` runs it.

    Args:
        compact: Compacts the table.

    Examples:
        >>> table.optimize().executeCompaction().numRows
        0
    """

    def __init__(self, compact: Callable[..., CompactionResult]) -> None:
        self._compact = compact

    def __repr__(self) -> str:
        return "LanceOptimizeBuilder(not run: call executeCompaction() or executeZOrderBy())"

    def executeCompaction(self) -> CompactionResult:  # noqa: N802
        """Run ``LanceTable.compact()``, which rewrites the fragments that need it.

        Rows of a table that is clustered are sorted, as in Delta.

        Examples:
            >>> table.toDF().write.format("lance").mode("append").save(path)
            >>> table.optimize().executeCompaction().numRows
            6
        """
        return self._compact()

    def executeZOrderBy(self, *columns: str) -> CompactionResult:  # noqa: N802
        """Run ``LanceTable.compact(clusterBy=columns, order="zorder")``, which sorts the rows.

        Args:
            columns: Names.

        Examples:
            >>> table.optimize().executeZOrderBy("id").numRows
            3
        """
        return self._compact(clusterBy=columns, order="zorder")


@checks_keywords
class DeltaCompatibility:
    """Methods with the names of Delta Lake."""

    cleanupOldVersions: Callable[..., CleanupResult]  # noqa: N815
    compact: Callable[..., CompactionResult]
    restore: Callable[..., MetadataResult]

    @unsupported_attributes(
        compact_files="table.compact()", optimize_indices="table.optimizeIndices()"
    )
    def optimize(self) -> LanceOptimizeBuilder:
        """Return a builder, as in Delta: ``optimize().executeCompaction()`` is ``compact()``.

        Examples:
            >>> table.optimize().executeCompaction().version  # nothing to do, so no version
        """
        return LanceOptimizeBuilder(self.compact)

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

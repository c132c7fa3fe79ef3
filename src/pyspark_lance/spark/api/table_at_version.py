"""Resolve the version that a method of ``LanceTable`` reads."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import SparkSession

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.spark.options.spellings import to_option_strings
from pyspark_lance.spark.options.version_arguments import parse_version_arguments
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec


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

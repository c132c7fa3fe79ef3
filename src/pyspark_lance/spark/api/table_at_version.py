"""Which version a method of ``LanceTable`` looks at: one that it is given, or the object's."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import SparkSession

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.spark.options.spellings import option_texts
from pyspark_lance.spark.options.version_arguments import version_asked
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec


class TableAtVersion:
    """A table that is read as it is, or as it was at one version."""

    _spark: SparkSession
    _table: Table
    _at: VersionSpec

    def _version_of(
        self,
        version: int | str | None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> VersionSpec:
        """The version that a method was given; if none, that of the object."""
        asked = version_asked(self._spark, version, tag, timestamp)
        return self._at if asked == LATEST else asked

    def _number_of(
        self,
        version: int | str | None,
        tag: str | None = None,
        timestamp: str | datetime | None = None,
    ) -> int | None:
        """The same as a number; None for the latest.

        Raises:
            VersionNotFoundError: No such tag, none of that time, or the tag of another branch.
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
        return {**storage_options_of(self._table), **option_texts(asked)}

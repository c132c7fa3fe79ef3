"""Arguments of methods that select a version: a number, a tag, or a timestamp."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import SparkSession

from pyspark_lance.spark.options.parse_options import parse_count, parse_option
from pyspark_lance.spark.options.times import parse_instant
from pyspark_lance.table.version.snapshot import VersionSpec


def parse_version_arguments(
    spark: SparkSession,
    version: int | str | None,
    tag: str | None = None,
    timestamp: str | datetime | None = None,
) -> VersionSpec:
    """Return the version that the arguments select; the latest without arguments.

    ``spark``: the session, for the default time zone. ``version``: the number, or its text.
    ``timestamp``: selects the newest version committed at or before it; a datetime without a zone
    is local time.
    """
    given = {} if version is None else {"version": str(version)}
    return VersionSpec(
        version=parse_option(given, "version", parse_count),
        tag=tag,
        timestamp_ns=parse_instant(spark, timestamp),
    )

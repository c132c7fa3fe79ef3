"""A version as methods are given it: its number, its tag, or a time."""

from __future__ import annotations

from datetime import datetime

from pyspark.sql import SparkSession

from pyspark_lance.spark.options.parse_options import parse_count, parsed
from pyspark_lance.spark.options.times import instant_of
from pyspark_lance.table.version.time_travel import VersionSpec


def version_asked(
    spark: SparkSession,
    version: int | str | None,
    tag: str | None = None,
    timestamp: str | datetime | None = None,
) -> VersionSpec:
    """The version that a method was asked for; the latest if nothing was said.

    ``spark``: The session, in whose time zone a time is that says none. ``version``: Its number, or
    the text of it. ``tag``: A tag. ``timestamp``: The newest version committed at or before it; a
    datetime without a zone is local time.
    """
    given = {} if version is None else {"version": str(version)}
    return VersionSpec(
        version=parsed(given, "version", parse_count),
        tag=tag,
        timestamp_ns=instant_of(spark, timestamp),
    )

"""The options of a write as the table layer wants them; apart, so that reads do not import it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.options.spellings import option_texts
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.commit_settings import CommitSettings
from pyspark_lance.table.write.write_plan import WriteSettings

if TYPE_CHECKING:
    from pyspark_lance.table.dml.row_change import ChangeSettings


def options_of_change(
    given: Mapping[str, object], table: Table, spark: SparkSession
) -> WriteOptions:
    """The options of a change, which are some of those of a write, as a method was given them."""
    return WriteOptions.parse({**option_texts(given), **session_options(spark), "path": table.root})


def session_options(spark: SparkSession) -> dict[str, str]:
    """The options that say which Spark application writes, and how its session compares names."""
    options = {keys.CASE_SENSITIVE: str(is_case_sensitive(spark)).lower()}
    application = spark.conf.get("spark.app.id", None)
    return options if application is None else {**options, keys.APPLICATION: application}


def is_case_sensitive(spark: SparkSession) -> bool:
    """Whether names of columns differ by case in a session."""
    return spark.conf.get("spark.sql.caseSensitive", "false") == "true"


def commit_settings(options: WriteOptions) -> CommitSettings:
    """How to commit, of whatever kind the work is."""
    return CommitSettings(
        properties=options.properties,
        retries=options.commit_retries,
        timeout_s=options.commit_timeout_s,
        case_sensitive=options.case_sensitive,
    )


def change_settings(options: WriteOptions) -> ChangeSettings:
    """How to change rows."""
    from pyspark_lance.table.dml.row_change import ChangeSettings  # noqa: PLC0415

    return ChangeSettings(
        properties=options.properties,
        retries=options.commit_retries,
        timeout_s=options.commit_timeout_s,
        max_rows_per_file=options.max_rows_per_file,
        max_bytes_per_file=options.max_bytes_per_file,
    )


def write_settings(
    options: WriteOptions, *, overwrite: bool, source_version: int | None = None
) -> WriteSettings:
    """How to write, without the path and the storage options.

    ``overwrite``: whether rows give way.
    """
    return WriteSettings(
        properties=options.properties,
        retries=options.commit_retries,
        timeout_s=options.commit_timeout_s,
        overwrite=overwrite,
        enable_stable_row_ids=options.enable_stable_row_ids,
        file_version=options.file_format_version,
        max_rows_per_file=options.max_rows_per_file,
        max_bytes_per_file=options.max_bytes_per_file,
        overwrite_schema=options.overwrite_schema,
        merge_schema=options.merge_schema,
        replace_where=options.replace_where,
        time_zone=options.time_zone,
        ansi=options.ansi,
        sort_by=options.sort_by,
        split_by=options.split_by,
        cluster_by=options.cluster_by,
        source_version=source_version,
        config=options.table_properties,
    )

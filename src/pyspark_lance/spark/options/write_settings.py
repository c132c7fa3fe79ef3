"""Convert write options to settings of the table layer, in a module that reads do not import."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.option_table import to_option_strings
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings

if TYPE_CHECKING:
    from pyspark_lance.table.dml.row_change import ChangeSettings


def options_of_change(
    given: Mapping[str, object], table: Table, spark: SparkSession
) -> WriteOptions:
    """Parse the options that a method of DML was called with, a subset of those of a write."""
    return WriteOptions.parse(
        {**to_option_strings(given), **session_options(spark), "path": table.root}
    )


def session_options(spark: SparkSession) -> dict[str, str]:
    """Return the options of a session: the Spark application, and how it compares names."""
    options = {keys.CASE_SENSITIVE: str(is_case_sensitive(spark)).lower()}
    application = spark.conf.get("spark.app.id", None)
    return options if application is None else {**options, keys.APPLICATION: application}


def is_case_sensitive(spark: SparkSession) -> bool:
    """Return whether column names are case sensitive in a session."""
    return spark.conf.get("spark.sql.caseSensitive", "false") == "true"


def commit_settings(options: WriteOptions) -> CommitSettings:
    """Return the settings of any commit."""
    return CommitSettings(
        properties=options.properties,
        retries=options.commit_retries,
        timeout_s=options.commit_timeout_s,
        case_sensitive=options.case_sensitive,
    )


def change_settings(options: WriteOptions) -> ChangeSettings:
    """Return the settings of DML."""
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
    """Return the settings of a write, without the path and the storage options.

    ``overwrite``: whether the write replaces existing rows.
    """
    return WriteSettings(
        properties=options.properties,
        retries=options.commit_retries,
        timeout_s=options.commit_timeout_s,
        overwrite=overwrite,
        must_create=options.must_create,
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

"""The options of a write that a change of rows has, too; apart, so that reads do not import it."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.table.change.row_change import ChangeSettings


def change_settings(options: Mapping[str, object]) -> ChangeSettings:
    """How to change rows, without the path and the storage options."""
    parsed = WriteOptions.parse({name: str(value) for name, value in options.items()})
    return ChangeSettings(
        max_rows_per_file=parsed.max_rows_per_file,
        max_bytes_per_file=parsed.max_bytes_per_file,
        properties=parsed.properties,
        retries=parsed.commit_retries,
        timeout_s=parsed.commit_timeout_s,
    )

"""The options of a write as the table layer wants them; apart, so that reads do not import it."""

from __future__ import annotations

from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.table.write.write_plan import WriteSettings


def write_settings(options: WriteOptions, *, overwrite: bool) -> WriteSettings:
    """How to write, without the path and the storage options."""
    return WriteSettings(
        overwrite=overwrite,
        enable_stable_row_ids=options.enable_stable_row_ids,
        file_version=options.file_format_version,
        max_rows_per_file=options.max_rows_per_file,
        max_bytes_per_file=options.max_bytes_per_file,
        overwrite_schema=options.overwrite_schema,
        merge_schema=options.merge_schema,
        replace_where=options.replace_where,
        properties=options.properties,
        retries=options.commit_retries,
        timeout_s=options.commit_timeout_s,
    )

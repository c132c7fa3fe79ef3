"""The commits that created and changed rows, as DataFrames."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT, ROW_ID
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.spark.sql.metadata_tables import HISTORY, history_row, rows_to_dataframe
from pyspark_lance.table.history.row_history import ancestor_history, row_history
from pyspark_lance.table.version.table import Table


def row_condition(row_ids: Sequence[int] | None, condition: str | None = None) -> str | None:
    """Return the condition for rows with these ids that also match ``condition``."""
    terms = [f"({condition})"] if condition is not None else []
    if row_ids is not None:
        ids = ", ".join(str(int(row_id)) for row_id in sorted(set(row_ids)))
        terms.append(f"{ROW_ID} IN ({ids})" if ids else "false")
    return " AND ".join(terms) or None


def with_commits(rows: DataFrame, table: Table, columns: Sequence[str]) -> DataFrame:
    """Join rows with the commits that created and last updated them.

    ``rows``: with ``_rowid``, ``columns`` and both version columns.
    """
    history = [history_row(entry) for entry in ancestor_history(table)]
    commits = rows_to_dataframe(rows.sparkSession, history, HISTORY)
    for name, key in (("created", CREATED_AT), ("updated", LAST_UPDATED_AT)):
        known = commits.select(
            sf.col("version").alias(key),
            sf.col("timestamp").alias(f"{name}Timestamp"),
            sf.col("operation").alias(f"{name}Operation"),
            sf.col("userMetadata").alias(f"{name}By"),
            sf.col("applicationId").alias(f"{name}Application"),
        )
        rows = rows.join(sf.broadcast(known), key, "left")
        rows = rows.withColumnRenamed(key, f"{name}Version")
    return rows.select(
        ROW_ID,
        *map(quote_name, columns),
        *(
            f"{name}{what}"
            for name in ("created", "updated")
            for what in ("Version", "Timestamp", "Operation", "By", "Application")
        ),
    )


def row_states(spark: SparkSession, table: Table, row_id: int, version: int | None) -> DataFrame:
    """Return every state of a row, the newest first; see ``LanceTable.rowHistory``."""
    frame: DataFrame | None = None
    for row_state in row_history(table, row_id, version):
        options = {
            **storage_options_of(table),
            "filter": f"{ROW_ID} = {int(row_id)}",
            "version": str(row_state.seen_at),
        }
        row = spark.read.format("lance").options(**options).load(row_state.uri)
        state = row.select(
            sf.lit(row_state.version).cast("bigint").alias("_version"),
            sf.lit(row_state.timestamp).alias("_timestamp"),
            sf.lit(row_state.operation).cast("string").alias("_operation"),
            sf.lit(row_state.user_metadata).cast("string").alias("_userMetadata"),
            sf.lit(row_state.application_id).cast("string").alias("_applicationId"),
            *map(quote_name, row.columns),
        )
        frame = state if frame is None else frame.unionByName(state, allowMissingColumns=True)
    assert frame is not None  # there is at least one state
    return frame.coalesce(1)

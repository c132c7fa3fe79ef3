"""Delete rows that match a condition that Spark evaluates."""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.spark.expressions.column_expressions import Expression, sql_text
from pyspark_lance.spark.expressions.expressions import (
    as_column,
    named_columns,
    pushable_filter,
    readable_columns,
    reads_of,
)
from pyspark_lance.spark.expressions.trailing_aliases import refuse_trailing_aliases
from pyspark_lance.spark.jobs.change_job import SparkStages, pinned_scan
from pyspark_lance.table.dml.commit_changes import PreparedCommit, delete_everything, prepare_commit
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, CLAUSE, Clause
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction
from pyspark_lance.table.dml.run_changes import run_changes


def delete_once(
    spark: SparkSession, plan: DmlPlan, condition: Expression | None, alias: str
) -> PreparedCommit:
    """One attempt, all but its commit; None deletes all rows."""
    if condition is None:
        return prepare_commit(delete_everything(plan, "true"))
    named = named_columns([condition], readable_columns(plan.schema))
    columns = [*(name for name in named if name != ROW_ADDRESS), ROW_ADDRESS]
    rows = pinned_scan(spark, plan, columns, pushable_filter(condition, plan.schema)).alias(alias)
    refuse_trailing_aliases(rows, [condition])
    changes = rows.where(as_column(condition)).select(
        sf.lit(0).alias(CLAUSE), sf.col(ROW_ADDRESS).alias(CHANGED_ADDRESS)
    )
    done = run_changes(SparkStages(spark), plan, (Clause(RowAction.DELETE),), changes)
    text = sql_text(condition) or str(condition)
    reads = reads_of(plan, condition)
    return prepare_commit(replace(done, only_deletes=True, reads=reads, description=text))

"""The distributed part of DML: write changed rows, given as a DataFrame.

One Spark job, which evaluates the changes once, runs the stages of ``table/dml/run_changes.py``.
The driver receives one description per file; for a plain merge also the filter of the keys and a
few rows of the target, both of a bounded size.  This only uses the DataFrame API, so it also works
on Spark Connect.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.spark.expressions.expressions import quoted
from pyspark_lance.spark.jobs.semi_join import collected_filter
from pyspark_lance.spark.jobs.stages import (
    map_in_arrow,
    map_rows,
    numbered_stage,
    over_tasks,
    stage,
)
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.table.dml.change_stages import PAYLOAD
from pyspark_lance.table.dml.key_filter import KeyFilter
from pyspark_lance.table.dml.plain_merge import FILTER, KIND, SOURCE
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.dml.run_changes import Stage

_MAX_BUCKETS = 512
# At most this many filters, of up to 2 MB each, are sent to the driver; executors merge more.
_SMALL_FILTER_COUNT = 8


def pinned_scan(
    spark: SparkSession, plan: DmlPlan, columns: Sequence[str], condition: str | None = None
) -> DataFrame:
    """Scan columns, which may be lineage columns, of the version that the plan pins.

    ``columns``: at least one; ``condition``: prunes rows; others may still be returned.
    """
    options = storage_options_of(plan.table)
    options["version"] = str(plan.read_version)
    options["columns"] = ",".join(quoted(name) for name in columns)
    if condition is not None:
        options["filter"] = condition
    return spark.read.format("lance").options(**options).load(plan.table.uri)


class SparkStages:
    """Runner of stages as Spark tasks; rows are a DataFrame."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark

    def run(
        self,
        rows: DataFrame,
        work: Stage,
        schema: pa.Schema,
        *,
        numbered: bool = False,
        packed: bool = True,
    ) -> DataFrame:
        """See ``StageRunner.run``."""
        task = numbered_stage(work) if numbered else stage(work)
        # The names of the columns would take a request on Spark Connect.
        mapped = map_in_arrow if packed else map_rows
        return mapped(rows, task, _ddl(schema))

    def run_over(self, tasks: Sequence[Any], work: Stage, schema: pa.Schema) -> DataFrame:
        """See ``StageRunner.run_over``."""
        return over_tasks(self._spark, tasks, work, _ddl(schema))

    def repartition(
        self, rows: DataFrame, column: str, *, order: str | None = None, tasks: int | None = None
    ) -> DataFrame:
        """See ``StageRunner.repartition``."""
        spread = rows.repartition(column) if tasks is None else rows.repartition(tasks, column)
        return spread if order is None else spread.sortWithinPartitions(order)

    def rebalance(self, rows: DataFrame, column: str) -> DataFrame:
        """See ``StageRunner.rebalance``."""
        if self._spark.conf.get("spark.sql.adaptive.enabled") != "true":
            # There Spark warns of the hint, and leaves the rows where they are.
            return self.repartition(rows, column, order=column)
        return rows.hint("rebalance", sf.col(column)).sortWithinPartitions(column)

    def union(self, rows: DataFrame, others: DataFrame) -> DataFrame:
        """See ``StageRunner.union``."""
        return rows.union(others)

    def source_and_keys(self, staged: DataFrame) -> tuple[DataFrame, KeyFilter | None]:
        """See ``StageRunner.source_and_keys``."""
        # The job that collects the filter fills the checkpoint.
        staged = staged.localCheckpoint(eager=False)
        parts = staged.where(sf.col(KIND) == FILTER).select(PAYLOAD)
        keys = collected_filter(parts, unite_first=_num_partitions(staged) > _SMALL_FILTER_COUNT)
        return staged.where(sf.col(KIND) == SOURCE), keys

    def collect(self, rows: DataFrame, *columns: str) -> Iterable[tuple[Any, ...]]:
        """See ``StageRunner.collect``."""
        return rows.select(*columns).collect()

    def num_buckets(self) -> int:
        """Return the number of shuffle partitions."""
        asked = self._spark.conf.get("spark.sql.shuffle.partitions") or "200"
        return max(1, min(_MAX_BUCKETS, int(asked)))


def _ddl(schema: pa.Schema) -> str:
    """Return the columns of a stage as DDL."""
    types = {pa.int64(): "bigint", pa.int32(): "int", pa.binary(): "binary"}
    return ", ".join(f"{field.name} {types[field.type]}" for field in schema)


def _num_partitions(frame: DataFrame) -> float:
    """Return the number of partitions; infinite if unknown, on Connect or without RDD access."""
    try:
        return frame.rdd.getNumPartitions()
    except Exception:  # noqa: BLE001 - each kind of session raises another error
        return math.inf

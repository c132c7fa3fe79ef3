"""Does the tasks of a compaction on the executors, one task of Spark for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import SparkSession

from pyspark_lance.spark.jobs.index_job import run_on_executors
from pyspark_lance.table.compaction.clustering_task import ClusteringTask
from pyspark_lance.table.compaction.compact import run_compaction_task
from pyspark_lance.table.compaction.compaction_task import CompactionTask
from pyspark_lance.table.index_build.zone_map_task import ZoneMapTask


def rewrite_on_executors(
    spark: SparkSession, tasks: Sequence[CompactionTask | ClusteringTask | ZoneMapTask]
) -> list[Any]:
    """What became of tasks, in their order; commits nothing."""
    return run_on_executors(spark, run_compaction_task, tasks)

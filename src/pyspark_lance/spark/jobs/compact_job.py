"""Rewrites the bins of a compaction on the executors, one task for each bin."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.spark.jobs.stages import Batches, over_tasks
from pyspark_lance.table.compaction.compaction_task import CompactionTask, rewrite_bin


def rewrite_on_executors(
    spark: SparkSession, tasks: Sequence[CompactionTask]
) -> list[RewriteGroup]:
    """Runs the job; commits nothing.

    ``tasks``: at least one.
    """
    done = over_tasks(spark, tasks, _rewrite, "payload binary")
    return [pickle.loads(bytes(row[0])) for row in done.collect()]


def _rewrite(tasks: Iterable[CompactionTask]) -> Batches:
    for task in tasks:
        group = pickle.dumps(rewrite_bin(task))
        yield pa.RecordBatch.from_pydict({"payload": pa.array([group], pa.binary())})

"""Rewrites the bins of a compaction on the executors, one task for each bin."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.spark.jobs.stages import Batches, stage
from pyspark_lance.table.upkeep.compaction_task import CompactionTask, rewrite_bin

_PAYLOAD = "payload binary"


def rewrite_on_executors(
    spark: SparkSession, tasks: Sequence[CompactionTask]
) -> list[RewriteGroup]:
    """Runs the job; commits nothing.

    Args:
        spark: The session.
        tasks: At least one.
    """
    # Each in bytes of its own: a worker unpacks only the one that it runs.
    packed = tuple(pickle.dumps(task) for task in tasks)
    numbers = spark.range(0, len(packed), 1, len(packed))
    done = numbers.mapInArrow(stage(partial(_rewrite, packed)), _PAYLOAD)
    return [pickle.loads(bytes(row[0])) for row in done.collect()]


def _rewrite(tasks: tuple[bytes, ...], batches: Batches) -> Batches:
    for batch in batches:
        for number in batch.column(0).to_pylist():
            group = rewrite_bin(pickle.loads(tasks[number]))
            yield pa.RecordBatch.from_pydict(
                {"payload": pa.array([pickle.dumps(group)], pa.binary())}
            )

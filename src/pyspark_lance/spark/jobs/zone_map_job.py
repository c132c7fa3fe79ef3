"""Makes the zones of zone maps on the executors, one task for some fragments."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_lance.spark.jobs.stages import Batches, over_tasks
from pyspark_lance.table.index_build.zone_map_task import BuiltZones, ZoneMapTask, build_zones


def build_on_executors(
    spark: SparkSession, tasks: Sequence[ZoneMapTask]
) -> list[tuple[BuiltZones, ...]]:
    """Runs the job; commits nothing.

    ``tasks``: may be none.
    """
    if not tasks:
        return []
    done = over_tasks(spark, tasks, _build, "payload binary")
    return [pickle.loads(bytes(row[0])) for row in done.collect()]


def _build(tasks: Iterable[ZoneMapTask]) -> Batches:
    for task in tasks:
        built = pickle.dumps(build_zones(task))
        yield pa.RecordBatch.from_pydict({"payload": pa.array([built], pa.binary())})

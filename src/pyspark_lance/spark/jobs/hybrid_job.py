"""Searches by words and by a vector on the executors, in one job."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import FloatType, StructField, StructType

from pyspark_lance.plain_values import plain_array
from pyspark_lance.spark.jobs.nearest_job import DISTANCE
from pyspark_lance.spark.jobs.search_job import (
    SEARCH_COLUMNS,
    load_payloads,
    payload_batch,
    ranked_batches,
)
from pyspark_lance.spark.jobs.stages import Batches, map_in_arrow, over_tasks, stage
from pyspark_lance.table.nearest.found_rows import Found
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.nearest.search_task import SearchTask, search
from pyspark_lance.table.nearest.search_task import merge_found as merge_nearest
from pyspark_lance.table.nearest.vectors import Queries
from pyspark_lance.table.text.hybrid import HybridPlan, fuse
from pyspark_lance.table.text.search_plan import TextFound, TextTask, merge_found, search_task

TEXT_SCORE: Final = "_text_score"
HYBRID_COLUMNS: Final = (
    *SEARCH_COLUMNS,
    StructField(TEXT_SCORE, FloatType(), nullable=True),
    StructField(DISTANCE, FloatType(), nullable=True),
)
"""Columns of the result before those of the table."""

_Task = SearchTask | SegmentTask | TextTask


@dataclass(frozen=True, slots=True)
class HybridOutput:
    """The plan of both searches, and the schema of the result."""

    plan: HybridPlan
    schema: StructType  # ``HYBRID_COLUMNS`` and columns of the table.


def search_both(spark: SparkSession, output: HybridOutput) -> DataFrame:
    """Return the rows that words and a vector find, the best first."""
    plan = output.plan
    tasks: tuple[_Task, ...] = (*plan.text.tasks, *plan.vector.tasks)
    found = over_tasks(spark, tasks, partial(_found, plan.queries), "payload binary")
    return map_in_arrow(found.repartition(1), stage(partial(_fused, output)), output.schema)


# On executors ----------------------------------------------------------------------------------


def _found(queries: Queries, tasks: Iterable[_Task]) -> Batches:
    for task in tasks:
        if isinstance(task, SearchTask | SegmentTask):
            found: Found | TextFound = search((task,), queries)
        else:
            found = search_task(task)
        yield payload_batch(found)


def _fused(output: HybridOutput, batches: Batches) -> Batches:
    plan = output.plan
    parts: list[Found | TextFound] = load_payloads(batches)
    words = merge_found(plan.text.merge, [one for one in parts if isinstance(one, TextFound)])
    near = [one for one in parts if isinstance(one, Found)]
    vector = merge_nearest(plan.vector.merge, near, plan.queries)
    found = fuse(words, vector, plan.fusion, plan.k)
    more = (_nullable(found.text_score), _nullable(found.distance))
    yield from ranked_batches(plan.text.fetch, output.schema, found.rows, more)


def _nullable(numbers: NDArray[np.float32]) -> pa.Array:
    return plain_array(numbers, np.isnan(numbers))

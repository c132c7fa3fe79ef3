"""Searches by words and by a vector on the executors, in one job."""

from __future__ import annotations

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
from pyspark_lance.spark.jobs.search_job import SEARCH_COLUMNS, ranked_batches
from pyspark_lance.spark.jobs.stages import (
    Batches,
    load_payloads,
    map_in_arrow,
    payloads_of_tasks,
    stage,
)
from pyspark_lance.table.nearest.found_rows import Found
from pyspark_lance.table.nearest.search_task import VectorSearch
from pyspark_lance.table.nearest.search_task import merge_found as merge_nearest
from pyspark_lance.table.text.hybrid import HybridPlan, fuse
from pyspark_lance.table.text.search_plan import merge_found
from pyspark_lance.table.text.segment_search import TextFound

TEXT_SCORE: Final = "_text_score"
HYBRID_COLUMNS: Final = (
    *SEARCH_COLUMNS,
    StructField(TEXT_SCORE, FloatType(), nullable=True),
    StructField(DISTANCE, FloatType(), nullable=True),
)
"""Columns of the result before those of the table."""


@dataclass(frozen=True, slots=True)
class HybridOutput:
    """The plan of both searches, and the schema of the result."""

    plan: HybridPlan
    schema: StructType  # ``HYBRID_COLUMNS`` and columns of the table.


def search_both(spark: SparkSession, output: HybridOutput) -> DataFrame:
    """Return the rows that words and a vector find, the best first."""
    plan = output.plan
    vectors = [VectorSearch((task,), plan.queries) for task in plan.vector.tasks]
    found = payloads_of_tasks(spark, [*plan.text.tasks, *vectors]).repartition(1)
    return map_in_arrow(found, stage(partial(_fused, output)), output.schema)


# On executors ----------------------------------------------------------------------------------


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

"""Searches by words and by a vector on the executors, in one job."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import FloatType, StructField, StructType

from pyspark_lance.format.system_columns import system_array
from pyspark_lance.plain_values import plain_array, single_value
from pyspark_lance.spark.jobs.map_in_arrow import map_in_arrow
from pyspark_lance.spark.jobs.nearest_job import DISTANCE
from pyspark_lance.spark.jobs.search_job import SEARCH_COLUMNS
from pyspark_lance.spark.jobs.stages import Batches, over_tasks, stage
from pyspark_lance.spark.source.scan_rows import to_spark_batch
from pyspark_lance.spark.types.spark_types import arrow_schema_of
from pyspark_lance.table.nearest.found_rows import Found
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.nearest.search_plan import NearestPlan
from pyspark_lance.table.nearest.search_task import SearchTask, read_found, search
from pyspark_lance.table.nearest.search_task import merge_found as merge_nearest
from pyspark_lance.table.nearest.vectors import Queries
from pyspark_lance.table.text.hybrid import Fusion, fuse
from pyspark_lance.table.text.search_plan import (
    TextFound,
    TextPlan,
    TextTask,
    merge_found,
    search_task,
)

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
    """The plans of both searches, and the schema of the result."""

    text: TextPlan
    vector: NearestPlan
    queries: Queries  # One vector.
    fusion: Fusion
    k: int
    schema: StructType  # ``HYBRID_COLUMNS`` and columns of the table.


def search_both(spark: SparkSession, output: HybridOutput) -> DataFrame:
    """Return the rows that words and a vector find, the best first."""
    tasks: tuple[_Task, ...] = (*output.text.tasks, *output.vector.tasks)
    found = over_tasks(spark, tasks, partial(_found, output.queries), "payload binary")
    return map_in_arrow(found.repartition(1), stage(partial(_fused, output)), output.schema)


# On executors ----------------------------------------------------------------------------------


def _found(queries: Queries, tasks: Iterable[_Task]) -> Batches:
    for task in tasks:
        if isinstance(task, SearchTask | SegmentTask):
            found: Found | TextFound = search((task,), queries)
        else:
            found = search_task(task)
        payload = single_value(pickle.dumps(found), pa.binary())
        yield pa.RecordBatch.from_pydict({"payload": payload})


def _fused(output: HybridOutput, batches: Batches) -> Batches:
    parts: list[Found | TextFound] = []
    for batch in batches:
        payloads = batch.column(0)
        parts += [pickle.loads(payloads[row].as_buffer()) for row in range(batch.num_rows)]
    words = merge_found(output.text.merge, [one for one in parts if isinstance(one, TextFound)])
    near = [one for one in parts if isinstance(one, Found)]
    vector = merge_nearest(output.vector.merge, near, output.queries)
    found = fuse(words, vector, output.fusion, output.k)
    target = arrow_schema_of(output.schema)
    table_fields = output.schema.fields[len(HYBRID_COLUMNS) :]
    of_table = arrow_schema_of(StructType(table_fields))
    ranks = np.arange(1, len(found) + 1, dtype=np.int32)
    for part, read in read_found(output.text.fetch, found):
        rows = found.rows.at(part)
        columns = [plain_array(ranks[part]), plain_array(rows.score), system_array(rows.row_id)]
        columns += [_nullable(found.text_score[part]), _nullable(found.distance[part])]
        columns += to_spark_batch(read, of_table).columns if table_fields else []
        columns = _cast(columns, target)
        yield pa.RecordBatch.from_arrays(columns, schema=target)


def _nullable(numbers: NDArray[np.float32]) -> pa.Array:
    return plain_array(numbers, np.isnan(numbers))


def _cast(columns: Sequence[pa.Array], target: pa.Schema) -> list[pa.Array]:
    return [column.cast(field.type) for column, field in zip(columns, target, strict=True)]

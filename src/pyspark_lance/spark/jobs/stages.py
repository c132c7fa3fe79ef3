"""Run stages of ``table/`` on the executors by ``mapInArrow``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.sessions import describing_stage
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.table.tasks import MaintenanceTask, Task


def map_in_arrow(
    rows: DataFrame,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    columns: str | StructType,
) -> DataFrame:
    """Call ``rows.mapInArrow(work, columns)`` without its check for pandas.

    PySpark's check fails without pandas and warns of pandas 3, though the method does not use it.
    Only Spark Connect clients need pandas.
    """
    java = getattr(rows, "_jdf", None)
    if java is None:
        return rows.mapInArrow(work, columns)
    function = UserDefinedFunction(work, columns, evalType=PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    every = function(*(rows[name] for name in rows.columns))
    return DataFrame(java.mapInArrow(every._jc, False, None), rows.sparkSession)


_T = TypeVar("_T")

Batches = Iterator[pa.RecordBatch]
Stage = Callable[[Batches], Batches]


class NumberedStage(Protocol):
    """A stage that takes the number of its task."""

    def __call__(self, batches: Batches, /, *, task: int) -> Batches:
        """Process the batches of one task."""


def stage(work: Stage) -> Stage:
    """Wrap ``work`` as the function of a Spark task."""
    return partial(_run, work)


def numbered_stage(work: NumberedStage) -> Stage:
    """Wrap ``work`` as the function of a Spark task, with the number of the task."""
    return partial(_run_numbered, work)


def map_rows(rows: DataFrame, work: Stage, columns: str | StructType) -> DataFrame:
    """Call ``rows.mapInArrow(work, columns)`` for columns with any names.

    Spark parses the names as expressions, which fails for names with backticks, and for ``*``.
    """
    names = rows.columns
    if all(name.isidentifier() for name in names):
        return map_in_arrow(rows, work, columns)
    numbered = rows.toDF(*(f"c{number}" for number in range(len(names))))
    return map_in_arrow(numbered, partial(_with_names, names, work), columns)


def _with_names(names: list[str], work: Stage, batches: Batches) -> Batches:
    return work(batch.rename_columns(names) for batch in batches)


def over_tasks(
    spark: SparkSession,
    tasks: Sequence[_T],
    work: Callable[[Iterable[_T]], Batches],
    columns: str | StructType,
) -> DataFrame:
    """Run ``work`` with one partition per task; without tasks, once with none.

    ``tasks``: pickled separately, since an executor unpickles only those that it runs.
    """
    packed = tuple(pickle.dumps(task) for task in tasks)
    count = max(1, len(packed))
    numbers = spark.range(0, count, 1, count)
    return map_in_arrow(numbers, stage(partial(_over_tasks, packed, work)), columns)


def _over_tasks(
    packed: Sequence[bytes], work: Callable[[Iterable[_T]], Batches], batches: Batches
) -> Batches:
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    yield from work(pickle.loads(packed[number]) for number in numbers if number < len(packed))


@clean_iterator
def _run(work: Stage, batches: Batches) -> Batches:
    trim_worker_overhead()
    yield from work(batches)


@clean_iterator
def _run_numbered(work: NumberedStage, batches: Batches) -> Batches:
    trim_worker_overhead()
    context = TaskContext.get()
    yield from work(batches, task=0 if context is None else context.partitionId())


def payloads_of_tasks(spark: SparkSession, tasks: Sequence[Task[Any]]) -> DataFrame:
    """Run tasks on the executors; return their pickled results as the column ``payload``."""
    return over_tasks(spark, tasks, _payloads, "payload binary")


def run_on_executors(spark: SparkSession, tasks: Sequence[MaintenanceTask[Any]]) -> list[Any]:
    """Run the tasks of a stage and return their results in order; there may be none."""
    if not tasks:
        return []
    results = payloads_of_tasks(spark, tasks)
    with describing_stage(spark, tasks[0].title, len(tasks)):
        return [pickle.loads(bytes(row[0])) for row in results.collect()]


def _payloads(tasks: Iterable[Task[Any]]) -> Batches:
    for task in tasks:
        yield payload_batch(task.run())


def payload_batch(result: object) -> pa.RecordBatch:
    """Pickle the result of a task, to be loaded by ``load_payloads``."""
    return pa.RecordBatch.from_pydict({"payload": single_value(pickle.dumps(result), pa.binary())})


def load_payloads(batches: Batches) -> list[Any]:
    """Load the results of tasks."""
    payloads = (payload for batch in batches for payload in batch.column(0))
    return [pickle.loads(payload.as_buffer()) for payload in payloads]

"""Run stages of ``table/`` on the executors by ``mapInArrow``."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType

from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead


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


_R = TypeVar("_R")


def run_on_executors(
    spark: SparkSession, work: Callable[[_T], _R], tasks: Sequence[_T], /
) -> list[_R]:
    """Run ``work`` for each task and return the results in order; commits nothing.

    ``work``: a function of a module that returns a small value. ``tasks``: may be empty.
    """
    if not tasks:
        return []
    done = over_tasks(spark, tasks, partial(_run_each, work), "payload binary")
    return [pickle.loads(bytes(row[0])) for row in done.collect()]


def _run_each(work: Callable[[_T], _R], tasks: Iterable[_T]) -> Batches:
    for task in tasks:
        done = pickle.dumps(work(task))
        yield pa.RecordBatch.from_pydict({"payload": single_value(done, pa.binary())})

"""Run the tasks that build an index on the executors, one partition per task."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
from pyspark.sql import SparkSession

from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.jobs.stages import Batches, over_tasks

_T = TypeVar("_T")
_R = TypeVar("_R")


def run_on_executors(
    spark: SparkSession, work: Callable[[_T], _R], tasks: Sequence[_T], /
) -> list[_R]:
    """Run ``work`` for each task and return the results in order; commits nothing.

    ``work``: a function of a module that returns a small value. ``tasks``: may be empty.
    """
    if not tasks:
        return []
    done = over_tasks(spark, tasks, partial(_run, work), "payload binary")
    return [pickle.loads(bytes(row[0])) for row in done.collect()]


def _run(work: Callable[[_T], _R], tasks: Iterable[_T]) -> Batches:
    for task in tasks:
        done = pickle.dumps(work(task))
        yield pa.RecordBatch.from_pydict({"payload": single_value(done, pa.binary())})

"""Stages of ``table/`` as functions for ``mapInArrow``."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

import pyarrow as pa
from pyspark import TaskContext

from pyspark_lance.spark.source.clean_errors import clean_iterator

Batches = Iterator[pa.RecordBatch]
Stage = Callable[[Batches], Batches]


class NumberedStage(Protocol):
    """A stage that wants to know the number of its task."""

    def __call__(self, batches: Batches, /, *, task: int) -> Batches:
        """What becomes of the batches of one task."""


def stage(work: Stage) -> Stage:
    """``work`` as a task of Spark."""
    return partial(_run, work)


def numbered_stage(work: NumberedStage) -> Stage:
    """``work`` as a task of Spark, which tells it the number of the task."""
    return partial(_run_numbered, work)


@clean_iterator
def _run(work: Stage, batches: Batches) -> Batches:
    gc.freeze()
    yield from work(batches)


@clean_iterator
def _run_numbered(work: NumberedStage, batches: Batches) -> Batches:
    gc.freeze()
    context = TaskContext.get()
    yield from work(batches, task=0 if context is None else context.partitionId())

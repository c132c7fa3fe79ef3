"""Imports in Spark's Python workers before their first task.

The JVM plugin starts workers while the driver still plans. It names these functions in a pickle;
they return a command of a worker: a function of batches and its row type. If our daemon forks the
workers, the first one signals it to import the modules for all of them, and exits.
"""

from __future__ import annotations

import importlib
import os
from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, StructField, StructType

from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead, warm_daemon

if TYPE_CHECKING:
    import pyarrow as pa

READS = (
    "pyspark_lance.spark.service.reads_and_writes",
    "pyspark_lance.spark.source.scan_rows",
    "pyspark_lance.spark.source.shared_batches",
    "pyspark_lance.datafile.reader",
    "pyspark_lance.datafile.v2_1.field_reader",
)
WRITES = (
    "pyspark_lance.spark.service.reads_and_writes",
    "pyspark_lance.spark.source.batch_writer",
    "pyspark_lance.datafile.writer",
    "pyspark_lance.datafile.v2_1.field_writer",
)
Command = tuple["EarlyImports", StructType]


class EarlyImports:
    """A function of batches that imports modules and returns no batch.

    ``modules``: names of the modules.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Import the modules and consume ``batches``."""
        deque(batches, maxlen=0)
        if warm_daemon():
            os._exit(0)  # the next worker that is forked is ready sooner than this one
        for name in self._modules:
            importlib.import_module(name)
        trim_worker_overhead()
        yield from ()


def reads() -> Command:
    """Return the command that imports the modules of a read of local files."""
    return EarlyImports(READS), _nothing()


def writes() -> Command:
    """Return the command that imports the modules of a write."""
    return EarlyImports(WRITES), _nothing()


def _nothing() -> StructType:
    return StructType([StructField("nothing", BooleanType())])

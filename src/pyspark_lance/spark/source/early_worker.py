"""What a worker of Spark does before its first task: the imports that this needs.

The JVM plugin has workers started while the driver still plans. It names these functions in a
pickle; what they return is a command of Spark's, a function of batches and the type of its rows.
Where our daemon forks the workers, one has it do the imports for all, and ends.
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
    """A function of batches that gives none.

    ``modules``: Names of what it imports.
    """

    def __init__(self, modules: tuple[str, ...]) -> None:
        self._modules = modules

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Imports, and hears ``batches`` to their end."""
        deque(batches, maxlen=0)
        if warm_daemon():
            os._exit(0)  # a worker that is forked from now on is ready sooner than this one
        for name in self._modules:
            importlib.import_module(name)
        trim_worker_overhead()
        yield from ()


def reads() -> Command:
    """What a worker needs to read local files in memory."""
    return EarlyImports(READS), _nothing()


def writes() -> Command:
    """What a worker needs to write."""
    return EarlyImports(WRITES), _nothing()


def _nothing() -> StructType:
    return StructType([StructField("nothing", BooleanType())])

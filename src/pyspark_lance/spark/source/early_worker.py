"""What a worker of Spark does before its first task: the imports that this needs.

The JVM companion has workers started while the driver still plans. It names these functions in a
pickle; what they return is a command of Spark's, a function of batches and the type of its rows.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pyspark.sql.types import BooleanType, StructField, StructType

from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead

if TYPE_CHECKING:
    import pyarrow as pa

_READS = (
    "pyspark_lance.spark.sql.driver_steps",
    "pyspark_lance.spark.source.batch_reader",
    "pyspark_lance.spark.source.shared_batches",
    "pyspark_lance.datafile.reader",
)
_WRITES = (
    "pyspark_lance.spark.sql.driver_steps",
    "pyspark_lance.spark.source.batch_writer",
    "pyspark_lance.datafile.writer",
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
        for name in self._modules:
            importlib.import_module(name)
        trim_worker_overhead()
        for _ in batches:
            pass
        yield from ()


def reads() -> Command:
    """What a worker needs to read local files in memory."""
    return EarlyImports(_READS), _nothing()


def writes() -> Command:
    """What a worker needs to write."""
    return EarlyImports(_WRITES), _nothing()


def _nothing() -> StructType:
    return StructType([StructField("nothing", BooleanType())])

"""Small searches in this process: their rows become a local relation, which needs no Spark job.

The same searches are small as those that SQL answers while it plans them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    NumericType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.spark.jobs.stages import Batches
from pyspark_lance.spark.types.spark_types import arrow_schema_of
from pyspark_lance.table.nearest.search_plan import SearchSize

_SMALL_SCAN_BYTES: Final = "spark.sql.lance.smallScanBytes"
_DEFAULT_BYTES: Final = "512k"
_UNITS: Final = "bkmgt"
_LOCAL_TYPES: Final = (
    NumericType, StringType, BinaryType, BooleanType, DateType, TimestampType, TimestampNTZType,
)  # fmt: skip


def search_locally(
    spark: SparkSession, size: SearchSize, schema: StructType, search: Callable[[], Batches]
) -> DataFrame | None:
    """Return the rows of a small search, found in this process; None if a job has to find them.

    If the search fails, None, too, as Spark shows the errors of tasks.

    ``size``: of the search; ``search``: finds its rows.
    """
    if not size.is_small or not _is_local(schema):
        return None
    left = small_scan_bytes(spark)
    if left <= 0:
        return None
    target = arrow_schema_of(schema)
    # Spark needs a batch to convert, also where nothing was found.
    batches = [pa.RecordBatch.from_pylist([], schema=target)]
    try:
        for batch in search():
            left -= batch.nbytes
            if left < 0:
                return None
            batches.append(batch)
    except (LanceError, OSError, pa.ArrowException):
        return None
    return spark.createDataFrame(pa.Table.from_batches(batches, schema=target), schema)


def small_scan_bytes(spark: SparkSession) -> int:
    """Return how many bytes the result of a small scan or search has, at most; 0 for none.

    Raises:
        InvalidInputError: The session has no size there.
    """
    try:
        text = spark.conf.get(_SMALL_SCAN_BYTES, _DEFAULT_BYTES) or _DEFAULT_BYTES
    except PySparkException:
        return 0
    match = re.fullmatch(r"\s*(\d+)\s*([kmgt]?)b?\s*", text.lower())
    if match is None:
        raise InvalidInputError(f"{_SMALL_SCAN_BYTES} is {text!r}", hint="512k or 1m, for example")
    return int(match[1]) << 10 * max(0, _UNITS.index(match[2] or "b"))


def _is_local(kind: DataType) -> bool:
    """Return whether Spark makes local rows of values of a type, equal to those of a task."""
    if isinstance(kind, StructType):
        return all(_is_local(field.dataType) for field in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_local(kind.elementType)
    return isinstance(kind, _LOCAL_TYPES)

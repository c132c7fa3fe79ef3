"""DataFrames of rows that the driver knows."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_lance.spark.sql.metadata_tables import Rows, rows_as_batch


def frame_of_rows(spark: SparkSession, rows: Rows, schema: StructType) -> DataFrame:
    """The rows as a DataFrame, which no Python process has to read.

    Rows that Spark is given as they are go through a task of Python, which writes a traceback on
    the console when a limit ends it.
    """
    return spark.createDataFrame(pa.Table.from_batches([rows_as_batch(rows, schema)]), schema)

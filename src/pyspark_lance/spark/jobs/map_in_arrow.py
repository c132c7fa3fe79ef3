"""``DataFrame.mapInArrow`` for installations without pandas."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType
from pyspark.sql.udf import UserDefinedFunction
from pyspark.util import PythonEvalType


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

"""What Spark says of a table by its name."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_lance.errors import TableNotFoundError


def described(spark: SparkSession, name: str) -> dict[str, str]:
    """What Spark says of the table of this name.

    It is asked first whether there is one, which is no error: PySpark would print that.
    """
    hint = "LanceTable.forPath takes the path of a table"
    try:
        if not spark.catalog.tableExists(name):
            raise TableNotFoundError(f"there is no table {name}", hint=hint)
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except PySparkException as error:
        raise TableNotFoundError(f"there is no table {name}", hint=hint) from error
    return {row["col_name"]: row["data_type"] for row in rows}

"""Look up a table by its name in Spark."""

from __future__ import annotations

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from pyspark_lance.errors import TableNotFoundError


def describe_table(spark: SparkSession, name: str) -> dict[str, str]:
    """Return the rows of DESCRIBE TABLE EXTENDED.

    This first checks that the table exists, since PySpark would log the error otherwise.
    """
    hint = "LanceTable.forPath takes the path of a table"
    try:
        if not spark.catalog.tableExists(name):
            raise TableNotFoundError(f"there is no table {name}", hint=hint)
        rows = spark.sql(f"DESCRIBE TABLE EXTENDED {name}").collect()
    except PySparkException as error:
        raise TableNotFoundError(f"there is no table {name}", hint=hint) from error
    return {row["col_name"]: row["data_type"] for row in rows}

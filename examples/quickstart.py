"""A year of flights out of New York, month by month, in one Lance table.

    python examples/quickstart.py [folder]

Writes real data with plain Spark, travels in time, and asks which rows are new or changed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time

from flights import airlines, flights
from pyspark.sql import DataFrame, SparkSession

from pyspark_lance import LanceTable

BOLD, DIM, GREEN, PLAIN = "\033[1m", "\033[2m", "\033[32m", "\033[0m"
MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]


def step(title: str) -> None:
    """Prints a heading."""
    print(f"\n{BOLD}{title}{PLAIN}")


def show(label: str, value: object) -> None:
    """Prints one figure."""
    print(f"  {label:<52} {GREEN}{value}{PLAIN}")


def rows(frame: DataFrame, limit: int = 5) -> None:
    """Prints a few rows, indented."""
    for row in frame.limit(limit).collect():
        print(f"  {DIM}{'  '.join(f'{k}={v}' for k, v in row.asDict().items())}{PLAIN}")


def main(folder: str) -> None:
    """Runs every step below ``folder``."""
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("quickstart")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    year = spark.createDataFrame(flights()).cache()
    path = f"{folder}/flights"

    step("1. Twelve months, twelve appends")
    start = time.perf_counter()
    for month in range(1, 13):
        part = year.where(f"month = {month}").drop("year").coalesce(1)
        part.write.format("lance").mode("append").save(path)
        print(f"  {MONTHS[month - 1]}", end="", flush=True)
    print()
    table = spark.read.format("lance").load(path)
    show("rows in the table", f"{table.count():,}")
    show("seconds for twelve commits", f"{time.perf_counter() - start:.1f}")

    step("2. Time travel")
    for version in (1, 6):
        past = spark.read.format("lance").option("version", version).load(path)
        show(f"rows in version {version} (up to {MONTHS[version - 1]})", f"{past.count():,}")

    step("3. Every row has an id that stays, and knows the version that wrote it")
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW flights USING lance "
        f"OPTIONS (path '{path}', metadataColumns 'all')"
    )
    rows(
        spark.sql(
            "SELECT carrier, flight, origin, dest, _rowid, _row_created_at_version "
            "FROM flights WHERE dep_delay > 1000 ORDER BY dep_delay DESC"
        )
    )

    step("4. What is new since version 10?  (no scan: fragments that are too old stay closed)")
    new = spark.sql(
        "SELECT month, count(*) AS flights FROM flights "
        "WHERE _row_created_at_version > 10 AND _row_created_at_version <= 12 GROUP BY month"
    )
    rows(new.orderBy("month"))

    step("5. Correct some rows: they keep their ids, and say which version changed them")
    result = LanceTable.forPath(spark, path).update(
        "carrier = 'HA' AND month = 1", {"dest": "'KOA'", "arr_delay": "arr_delay - 10"}
    )
    show(f"rows updated, in version {result.version}", result.num_updated_rows)
    spark.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW flights USING lance "
        f"OPTIONS (path '{path}', metadataColumns 'all')"
    )
    changed = spark.sql(
        "SELECT day, carrier, dest, _rowid, _row_created_at_version AS created, "
        "_row_last_updated_at_version AS updated FROM flights WHERE _row_created_at_version <= 12 "
        "AND _row_last_updated_at_version > 12 AND _row_last_updated_at_version <= 13"
    )
    show("rows changed since version 12", f"{changed.count():,}")
    rows(changed.orderBy("day"), 3)

    step("6. One row by its id")
    one = (
        spark.read.format("lance")
        .option("filter", "_rowid = 123456")
        .option("columns", "month,day,carrier,flight,dest,_rowid")
        .load(path)
    )
    rows(one)

    step("7. A second table, overwritten with another schema")
    names = spark.createDataFrame(airlines())
    small = f"{folder}/airlines"
    names.write.format("lance").mode("overwrite").save(small)
    counted = names.join(year.groupBy("carrier").count(), "carrier")
    counted.write.format("lance").mode("overwrite").save(small)
    rows(spark.read.format("lance").load(small).orderBy("count", ascending=False), 3)
    before = spark.read.format("lance").option("version", 1).load(small)
    show("columns before and after", f"{before.columns} -> {counted.columns}")
    print(f"\n{DIM}The tables are in {folder}{PLAIN}")
    spark.stop()


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else None
    root = given or tempfile.mkdtemp(prefix="pyspark-lance-")
    try:
        main(root)
    finally:
        if given is None:
            shutil.rmtree(root, ignore_errors=True)

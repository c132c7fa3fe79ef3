"""A year of flights out of New York, month by month, in one Lance table.

    python examples/quickstart.py [folder]      # or, without a clone: pyspark-lance quickstart

Writes real data, travels in time, changes rows by SQL, and asks which rows are new or changed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc
from flights import flights
from printing import rows, show, step
from pyspark.sql import SparkSession

import pyspark_lance
from pyspark_lance import LanceTable

MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
NEXT = """
What to try next:
  pyspark-lance info {flights} --plot flights.svg
                                    a picture of the versions
  python -m pyspark_lance.plugin install
                                    a faster start of Spark's Python processes"""
KEEP = """
  pyspark-lance quickstart FOLDER   run it again, and keep the table"""
# Where there is a clone.
CLONE = """
  python examples/change_feed.py    totals and vectors that follow a table by its changes alone
  python examples/follow_a_table.py a copy and a full history of a table, by a stream of changes
  docs/index.md                     everything else: indices, nearest rows, S3, streams"""


def main(folder: str, *, keep: bool) -> None:
    """Runs every step below ``folder``."""
    path = f"{folder}/flights"
    if Path(path).exists():
        raise SystemExit(f"{path} exists: name another folder, or none")
    year = flights()
    spark = (
        SparkSession.builder.master("local[2]")
        .appName("quickstart")
        # The fast way: a small jar of this package, for scans by columns and all of Spark SQL.
        .config("spark.jars", pyspark_lance.plugin_jar())
        .config("spark.sql.catalog.lance", "org.pysparklance.LanceCatalog")
        # For a session of seconds only: the JVM compiles quickly rather than well.
        .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    name = f"lance.`{path}`"

    step("1. Twelve months, twelve appends: twelve versions of one table")
    start = time.perf_counter()
    for month in range(1, 13):
        rows_of_month = year.filter(pc.field("month") == month).drop_columns("year")
        # Spark 4.3 takes a table whose first chunk is empty for an empty table.
        part = spark.createDataFrame(rows_of_month.combine_chunks()).coalesce(1)
        part.write.format("lance").mode("append").save(path)
        print(f"  {MONTHS[month - 1]}", end="", flush=True)
    print()
    show("rows in the table", f"{spark.read.format('lance').load(path).count():,}")
    show("seconds for twelve commits", f"{time.perf_counter() - start:.1f}")

    step("2. Time travel: every version can still be read")
    for version in (1, 6):
        past = spark.sql(f"SELECT count(*) FROM {name} VERSION AS OF {version}").first()[0]
        show(f"rows in version {version} (up to {MONTHS[version - 1]})", f"{past:,}")

    step("3. Every row has an id that stays, and knows the version that wrote it")
    rows(
        spark.sql(
            "SELECT carrier, flight, origin, dest, _rowid, _row_created_at_version AS created "
            f"FROM {name} WHERE dep_delay > 1000 ORDER BY dep_delay DESC"
        )
    )

    step("4. What is new since version 10?  (no scan: files of older versions stay closed)")
    new = spark.sql(
        f"SELECT month, count(*) AS flights FROM {name} "
        "WHERE _row_created_at_version > 10 GROUP BY month ORDER BY month"
    )
    rows(new)

    step("5. Correct some rows, delete others: each statement is one version")
    corrected = "carrier = 'HA' AND month = 1 AND day <= 2"
    spark.sql(f"UPDATE {name} SET dest = 'KOA', arr_delay = arr_delay - 10 WHERE {corrected}")
    spark.sql(f"DELETE FROM {name} WHERE carrier = 'OO' AND month = 1")
    table = LanceTable.forPath(spark, path)
    rows(table.history(2).select("version", "operation", "numRows"))

    step("6. What did these two versions change?  The change feed, with old and new values")
    changes = table.changes(13).select(
        "_commit_version", "_change_type", "_rowid", "carrier", "day", "dest", "arr_delay"
    )
    rows(changes.orderBy("_commit_version", "_rowid", "_change_type"), 6)
    show("rows in the table; the feed reads those that changed", f"{table.toDF().count():,}")

    step("7. The life of one row")
    row_id = changes.where("_change_type = 'update_postimage'").first()["_rowid"]
    rows(table.rowHistory(row_id).select("_version", "_operation", "dest", "arr_delay"))
    is_clone = Path(__file__).with_name("change_feed.py").exists()
    flights_path = path if keep else "FOLDER/flights"
    print(NEXT.format(flights=flights_path) + ("" if keep else KEEP) + (CLONE if is_clone else ""))
    spark.stop()


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else None
    root = given or tempfile.mkdtemp(prefix="pyspark-lance-")
    try:
        main(root, keep=given is not None)
    finally:
        if given is None:
            shutil.rmtree(root, ignore_errors=True)

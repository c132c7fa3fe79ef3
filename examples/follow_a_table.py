"""Keep a copy of a table, and a full history of its rows, up to date by a stream of its changes.

    python examples/follow_a_table.py [folder]

Each batch of the stream becomes one version of each table, even if it runs again after a crash.
"""

from __future__ import annotations

import shutil
import sys
import tempfile

from flights import flights as flights_of_the_year
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as sf

from pyspark_lance import LanceTable

COLUMNS = "carrier string, flight bigint, dest string, dep_delay double"
FLIGHTS = 2000


def apply_to_copy(copy: LanceTable, changes: DataFrame, number: int) -> None:
    """The copy has a column with the row ids of the table that it follows: flights have no key."""
    copy.applyChanges(changes, rowIdColumn="source_id", txnAppId="copy", txnVersion=str(number))


def add_to_history(history: LanceTable, changes: DataFrame, number: int) -> None:
    """A slowly changing dimension of type 2: every state of a row, from and to which version.

    A state ends where the next one of its row begins, or where the row is deleted; the last one
    before this batch is in the table, without an end.
    """
    events = changes.where("_change_type != 'update_preimage'").withColumnRenamed(
        "_rowid", "row_id"
    )
    next_event = Window.partitionBy("row_id").orderBy("_commit_version")
    began = (
        events.withColumn("valid_to", sf.lead("_commit_version").over(next_event))
        .where("_change_type != 'delete'")
        .withColumnRenamed("_commit_version", "valid_from")
        .drop("_change_type", "_commit_timestamp")
    )
    first = events.groupBy("row_id").agg(sf.min("_commit_version").alias("ends"))
    ended = (
        history.toDF()
        .where("valid_to IS NULL")
        .join(first, "row_id")
        .withColumn("valid_to", sf.col("ends"))
        .drop("ends")
    )
    states = began.unionByName(ended).withColumns(
        {"_change_type": sf.lit("insert"), "_commit_version": sf.col("valid_from")}
    )
    history.applyChanges(
        states, ["row_id", "valid_from"], txnAppId="history", txnVersion=str(number)
    )


def rows_apart(one: DataFrame, other: DataFrame) -> int:
    """How many rows only one of the two has."""
    sides = one.withColumn("side", sf.lit(1)).unionByName(other.withColumn("side", sf.lit(-1)))
    return sides.groupBy(*one.columns).agg(sf.sum("side").alias("more")).where("more != 0").count()


def main(spark: SparkSession, folder: str) -> dict[str, object]:
    """Follows a table through three rounds of changes.

    Returns:
        What was printed, by name.
    """
    names = ["carrier", "flight", "dest", "dep_delay"]
    frame = spark.createDataFrame(flights_of_the_year().select(names).slice(0, FLIGHTS))
    frame.coalesce(1).write.format("lance").mode("append").save(f"{folder}/flights")
    flights = LanceTable.forPath(spark, f"{folder}/flights")
    LanceTable.create(spark, f"{folder}/copy", f"{COLUMNS}, source_id bigint")
    LanceTable.create(
        spark, f"{folder}/history", f"{COLUMNS}, row_id bigint, valid_from bigint, valid_to bigint"
    )

    def apply(batch: DataFrame, number: int) -> None:
        session = batch.sparkSession
        apply_to_copy(LanceTable.forPath(session, f"{folder}/copy"), batch, number)
        add_to_history(LanceTable.forPath(session, f"{folder}/history"), batch, number)

    def follow() -> None:
        """Everything that is there now; a service would leave out the trigger."""
        changes = spark.readStream.format("lance").options(readChangeFeed="true", consumer="copy")
        query = changes.load(f"{folder}/flights").writeStream.foreachBatch(apply)
        query = query.option("checkpointLocation", f"{folder}/checkpoint")
        query.trigger(availableNow=True).start().awaitTermination()

    follow()
    flights.update("carrier = 'UA'", {"dep_delay": "dep_delay + 10"})
    flights.delete("dest = 'MIA'")
    follow()
    flights.update("carrier = 'UA'", {"dest": "lower(dest)"})
    frame.limit(10).coalesce(1).write.format("lance").mode("append").save(f"{folder}/flights")
    follow()

    copy = LanceTable.forPath(spark, f"{folder}/copy")
    history = LanceTable.forPath(spark, f"{folder}/history")
    there = flights.scan([*names, "_rowid"]).withColumnRenamed("_rowid", "source_id")
    seen: dict[str, object] = {
        "rows in the table": there.count(),
        "rows in which the copy differs": rows_apart(there, copy.toDF()),
        "versions of the copy": copy.detail().first()["version"],
        "states in the history": history.toDF().count(),
    }
    for version in range(1, flights.detail().first()["version"] + 1):
        valid = f"valid_from <= {version} AND (valid_to IS NULL OR valid_to > {version})"
        states = history.toDF().where(valid).select(*names, "row_id")
        then = flights.scan([*names, "_rowid"], version=version)
        then = then.withColumnRenamed("_rowid", "row_id")
        seen[f"rows apart from version {version}"] = rows_apart(then, states)
    seen["not read by the consumer"] = flights.consumers().first()["lag"]
    for name, value in seen.items():
        print(f"{name:<30} {value}")
    return seen


def _start() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("follow a table")
    builder = builder.config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    return builder.config("spark.sql.shuffle.partitions", "2").getOrCreate()


if __name__ == "__main__":
    given = sys.argv[1] if len(sys.argv) > 1 else None
    root = given or tempfile.mkdtemp(prefix="pyspark-lance-")
    try:
        main(_start(), root)
    finally:
        if given is None:
            shutil.rmtree(root, ignore_errors=True)

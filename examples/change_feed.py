"""Keep totals and vectors up to date by the change feed of a table, without reading all rows.

    python examples/change_feed.py [folder]

Flights out of New York are corrected and cancelled. The totals of each carrier are updated by the
changes alone, and vectors are computed again only for texts that changed.
"""

from __future__ import annotations

import shutil
import sys
import tempfile

from flights import flights as flights_of_the_year
from printing import rows, show, step
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance import LanceTable

FLIGHTS = 5000
TOTALS = "carrier string, flights bigint, delay double, least double, most double"


def refresh_totals(flights: LanceTable, totals: LanceTable) -> list[str]:
    """Update count, sum, minimum and maximum of each carrier's delays.

    Counts and sums change by the rows that were inserted and deleted. A minimum or maximum is
    looked up again only if the row that had it is gone. The same commit records how far the
    changes were read.

    Returns:
        The carriers whose flights were looked at again.
    """
    changes = flights.changes(totals.appliedVersion() + 1)
    sign = sf.when(sf.col("_change_type").isin("insert", "update_postimage"), 1).otherwise(-1)
    delay = sf.col("dep_delay")
    differences = (
        changes.withColumn("sign", sign)
        .groupBy("carrier")
        .agg(
            sf.sum("sign").alias("more"),
            sf.sum(sf.col("sign") * delay).alias("later"),
            sf.min(sf.when(sf.col("sign") > 0, delay)).alias("new_least"),
            sf.max(sf.when(sf.col("sign") > 0, delay)).alias("new_most"),
            sf.min(sf.when(sf.col("sign") < 0, delay)).alias("lost_least"),
            sf.max(sf.when(sf.col("sign") < 0, delay)).alias("lost_most"),
            sf.max("_commit_version").alias("_commit_version"),
        )
        .join(totals.toDF(), "carrier", "left")
        .cache()
    )
    again = differences.where("lost_least <= least OR lost_most >= most").select("carrier")
    names = [row["carrier"] for row in again.collect()]
    newest = differences.agg(sf.max("_commit_version")).first()[0]
    if newest is None:
        return []
    extremes = (
        flights.scan(["carrier", "dep_delay"], version=newest)
        .where(sf.col("carrier").isin(names))
        .groupBy("carrier")
        .agg(sf.min(delay).alias("found_least"), sf.max(delay).alias("found_most"))
    )
    is_found = sf.col("carrier").isin(names)
    now = differences.join(extremes, "carrier", "left").select(
        "carrier",
        (sf.coalesce("flights", sf.lit(0)) + sf.col("more")).alias("flights"),
        (sf.coalesce("delay", sf.lit(0)) + sf.coalesce("later", sf.lit(0))).alias("delay"),
        sf.when(is_found, sf.col("found_least"))
        .otherwise(sf.least("least", "new_least"))
        .alias("least"),
        sf.when(is_found, sf.col("found_most"))
        .otherwise(sf.greatest("most", "new_most"))
        .alias("most"),
        "_commit_version",
    )
    kind = sf.when(sf.col("flights") > 0, "insert").otherwise("delete")
    totals.applyChanges(now.withColumn("_change_type", kind), "carrier")
    differences.unpersist()
    return names


def embed(text: str) -> sf.Column:
    """Stands for a model: four numbers for each text."""
    return sf.transform(
        sf.sequence(sf.lit(1), sf.lit(4)),
        lambda place: (sf.hash(sf.col(text), place) / 2**31).cast("float"),
    )


def refresh_vectors(notes: LanceTable) -> int:
    """Makes the vectors of rows that are new or whose text changed; all other rows stay.

    How far the changes were read is what the consumer ``vectors`` keeps, so a cleanup keeps what
    was not, and a run that broke off is done again. The vectors that this very function wrote
    are changes too, but not of the text.

    Returns:
        How many vectors were made.
    """
    read = {row["name"]: row["version"] for row in notes.consumers().collect()}.get("vectors", 0)
    newest = notes.detail().first()["version"]
    changes = notes.changes(read + 1, newest, deduplicationMode="netChanges", layout="debezium")
    texts = changes.where("op != 'd' AND after.text IS DISTINCT FROM before.text")
    vectors = texts.select(
        sf.col("source.rowId").alias("row_id"), sf.col("after.text").alias("text")
    )
    vectors = vectors.select("row_id", embed("text").alias("vector"))
    merge = notes.merge(vectors, "target._rowid = source.row_id", rewrite="columns")
    done = merge.whenMatchedUpdate(set={"vector": "source.vector"}).execute()
    notes.registerConsumer("vectors", newest)
    return done.num_updated_rows


def totals_by_hand(flights: LanceTable) -> DataFrame:
    """The same totals out of all rows."""
    return (
        flights.toDF()
        .groupBy("carrier")
        .agg(
            sf.count("*").alias("flights"),
            sf.coalesce(sf.sum("dep_delay"), sf.lit(0.0)).alias("delay"),
            sf.min("dep_delay").alias("least"),
            sf.max("dep_delay").alias("most"),
        )
    )


def follow_totals(spark: SparkSession, folder: str) -> dict[str, object]:
    """Totals of a table of flights, which is then changed three times."""
    columns = ["carrier", "flight", "origin", "dest", "dep_delay"]
    frame = spark.createDataFrame(flights_of_the_year().select(columns).slice(0, FLIGHTS))
    frame.coalesce(1).write.format("lance").mode("append").save(f"{folder}/flights")
    flights = LanceTable.forPath(spark, f"{folder}/flights")
    totals = LanceTable.create(spark, f"{folder}/totals", TOTALS)

    step(f"1. Totals by carrier, out of the change feed of the first {FLIGHTS:,} flights")
    refresh_totals(flights, totals)
    affected = "carrier IN ('AA', 'HA', 'UA')"
    rows(totals.toDF().where(affected).orderBy("carrier"))

    step("2. Flights are deleted and corrected: what the feed says of these three versions")
    flights.delete("carrier = 'HA'")
    flights.update("carrier = 'UA' AND flight < 300", {"dep_delay": "dep_delay + 1"})
    flights.delete("carrier = 'AA' AND dep_delay > 300")
    changes = flights.changes(totals.appliedVersion() + 1)
    counts = changes.groupBy("_commit_version", "_change_type", "carrier").count()
    rows(counts.orderBy("_commit_version", "_change_type"))

    step("3. The totals follow by the differences alone")
    again = refresh_totals(flights, totals)
    rows(totals.toDF().where(affected).orderBy("carrier"))
    carriers = totals.toDF().count()
    show("carriers whose extreme value went, so it was looked for again", ", ".join(again))
    wrong = totals.toDF().exceptAll(totals_by_hand(flights).select(totals.toDF().columns)).count()
    show("totals that differ from those out of all rows", f"{wrong} of {carriers}")
    return {"looked at again": len(again), "carriers": carriers, "wrong totals": wrong}


def follow_vectors(spark: SparkSession, folder: str) -> dict[str, object]:
    """Vectors of texts, of which one changes."""
    notes = LanceTable.create(
        spark, f"{folder}/notes", "text string, stars int, vector array<float>",
        options={"vector.fixed_size_list": "4"},
    )  # fmt: skip
    written = [(f"{one} is late", 3) for one in ("UA 1", "AA 2", "B6 3")]
    spark.createDataFrame(written, "text string, stars int").write.format("lance").mode(
        "append"
    ).save(f"{folder}/notes")

    step("4. Vectors of new texts")
    first = refresh_vectors(notes)
    show("vectors made", first)
    rows(notes.toDF().orderBy("text"))

    step("5. One text changes, and the stars of every row")
    notes.update("text LIKE 'UA%'", {"text": "'UA 1 is on time'"})
    notes.update(None, {"stars": "stars + 1"})
    refreshed = refresh_vectors(notes)
    show("vectors computed again", refreshed)
    rows(notes.toDF().orderBy("text"))
    once_more = refresh_vectors(notes)
    show("vectors computed again when nothing changed", once_more)
    stale = notes.toDF().where(sf.col("vector") != embed("text")).count()
    show("vectors that do not fit their text", stale)
    return {
        "vectors at first": first,
        "vectors computed again": refreshed,
        "vectors made once more": once_more,
        "stale vectors": stale,
    }


def main(spark: SparkSession, folder: str) -> dict[str, object]:
    """Runs both below ``folder``.

    Returns:
        What came out, by name.
    """
    return {**follow_totals(spark, folder), **follow_vectors(spark, folder)}


def _start() -> SparkSession:
    builder = SparkSession.builder.master("local[2]").appName("change feed")
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

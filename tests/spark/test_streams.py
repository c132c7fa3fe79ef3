"""Streams in Spark: a table as a source, as a sink, and both over restarts."""

from __future__ import annotations

import json
from pathlib import Path

import lance
import pytest
from pyspark.errors import StreamingQueryException

from pyspark_lance import LanceTable
from pyspark_lance.metafile.transaction_file import transaction_of
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def write(spark, path, first, last):
    rows = spark.range(first, last, 1, 2).selectExpr("id", "id * 2 AS n")
    rows.write.format("lance").mode("append").save(path)


@pytest.fixture
def source(spark, tmp_path):
    path = str(tmp_path / "source")
    write(spark, path, 0, 1000)
    return path


def run(frame, tmp_path, name, **options):
    """Writes all there is to the table ``name``, by the checkpoint of that name."""
    query = (
        frame.writeStream.format("lance")
        .options(checkpointLocation=str(tmp_path / f"checkpoint-{name}"), **options)
        .trigger(availableNow=True)
        .start(str(tmp_path / name))
    )
    query.awaitTermination(120)
    return [one for one in query.recentProgress if one["numInputRows"]]


def stream(spark, path, **options):
    return spark.readStream.format("lance").options(**options).load(path)


def ids(path):
    return sorted(lance.dataset(path).to_table(columns=["id"])["id"].to_pylist())


def test_a_table_follows_another_over_restarts(spark, source, tmp_path):
    target = str(tmp_path / "target")

    def follow():
        return run(stream(spark, source, maxRowsPerTrigger=400), tmp_path, "target")

    assert [one["numInputRows"] for one in follow()] == [400, 400, 200]
    write(spark, source, 1000, 1100)
    (progress,) = follow()
    assert json.loads(progress["sources"][0]["endOffset"]) == {"f": 1, "v": 2}
    assert follow() == []
    assert ids(target) == list(range(1100))
    # Spark's note that the last batch is done is lost: the batch runs again, and is recognised.
    commits = sorted(Path(tmp_path, "checkpoint-target", "commits").glob("[0-9]*"))
    version = lance.dataset(target).version
    for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
        path.unlink(missing_ok=True)
    assert len(follow()) == 1
    assert ids(target) == list(range(1100)) and lance.dataset(target).version == version
    files = {one.name for one in Path(target, "data").iterdir()}
    assert files == {
        file.path
        for fragment in Snapshot.open(Table(target)).manifest.fragments
        for file in fragment.files
    }
    newest = Snapshot.open(Table(target))
    properties = transaction_of(newest.store, newest.file).properties
    assert properties["lance.streaming.epochId"] == commits[-1].name
    assert properties["lance.streaming.queryId"]


def test_changes_are_followed_and_applied_batch_by_batch(spark, source, tmp_path):
    path = str(tmp_path / "replica")
    LanceTable.create(spark, path, "id bigint, n bigint, source_id bigint")

    def apply(batch, number):
        rows = batch.where("_change_type != 'update_preimage'").withColumnRenamed(
            "_rowid", "source_id"
        )
        merge = LanceTable.forPath(spark, path).merge(
            rows, "target.source_id = source.source_id",
            txnAppId="replica", txnVersion=str(number),
        )  # fmt: skip
        values = {"id": "source.id", "n": "source.n"}
        (
            merge.whenMatchedDelete("source._change_type = 'delete'")
            .whenMatchedUpdate(set=values)
            .whenNotMatchedInsert(values={**values, "source_id": "source.source_id"})
            .execute()
        )

    def follow():
        changes = stream(spark, source, readChangeFeed=True, deduplicationMode="netChanges")
        query = changes.writeStream.foreachBatch(apply).option(
            "checkpointLocation", str(tmp_path / "checkpoint-replica")
        )
        query.trigger(availableNow=True).start().awaitTermination(120)

    follow()
    table = LanceTable.forPath(spark, source)
    table.update("id < 100", {"n": "n + 1"})
    table.delete("id >= 900")
    write(spark, source, 2000, 2010)
    follow()
    wanted = {row["id"]: row["n"] for row in table.toDF().collect()}
    found = LanceTable.forPath(spark, path).toDF().collect()
    assert {row["id"]: row["n"] for row in found} == wanted and len(found) == len(wanted)


def test_what_does_not_only_add_rows_is_refused_unless_it_is_asked_for(spark, source, tmp_path):
    LanceTable.forPath(spark, source).update("id = 1", {"n": "0"})
    plain = stream(spark, source, startingVersion=1)
    assert plain.columns == ["id", "n"]
    with pytest.raises(StreamingQueryException, match="version 2 changes rows"):
        run(plain, tmp_path, "plain")
    assert ids(str(tmp_path / "plain")) == list(range(1000))  # up to there all is delivered
    feed = stream(spark, source, startingVersion="latest", readChangeFeed=True)
    assert run(feed, tmp_path, "feed") == []
    LanceTable.forPath(spark, source).delete("id < 3")
    run(feed, tmp_path, "feed")
    rows = spark.read.format("lance").load(str(tmp_path / "feed")).select("id", "_change_type")
    assert sorted(map(tuple, rows.collect())) == [(0, "delete"), (1, "delete"), (2, "delete")]


def test_a_complete_result_replaces_the_one_before(spark, source, tmp_path):
    target = str(tmp_path / "counts")

    def count():
        counts = stream(spark, source).groupBy("n").count()
        query = counts.writeStream.format("lance").outputMode("complete")
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint-counts"))
        query.trigger(availableNow=True).start(target).awaitTermination(120)
        return lance.dataset(target).to_table()

    assert count().num_rows == 1000
    write(spark, source, 0, 5)
    assert sorted(count()["count"].to_pylist())[-6:] == [1, 2, 2, 2, 2, 2]

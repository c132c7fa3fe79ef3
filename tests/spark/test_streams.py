"""Streams in Spark: a table as a source, as a sink, and both over restarts."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import lance
import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from spark_releases import needs

from pyspark_lance import LanceTable
from pyspark_lance.metafile.manifest_file import load_transaction
from pyspark_lance.spark.source.stream_reader import HAS_LIMITS
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop]

limited = needs("limits of micro-batches")


def write(spark, path, first, last):
    rows = spark.range(first, last, 1, 2).selectExpr("id", "id * 2 AS n")
    rows.write.format("lance").mode("append").save(path)


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("written") / "source")
    write(spark, path, 0, 1000)
    return path


@pytest.fixture
def source(written, tmp_path):
    """A table for one test alone."""
    return shutil.copytree(written, str(tmp_path / "source"))


def run(frame, tmp_path, name, **options):
    """Write all there is to the table ``name``, by the checkpoint of that name."""
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


def forget_last_commit(checkpoint):
    """As after a crash: Spark's note that the last batch is done is lost, so that it runs again."""
    last = max(checkpoint.joinpath("commits").glob("[0-9]*"), key=lambda path: int(path.name))
    for path in (last, last.with_name(f".{last.name}.crc")):
        path.unlink(missing_ok=True)
    return last.name


def test_table_follows_source_across_restarts(spark, source, tmp_path):
    target = str(tmp_path / "target")

    def follow():
        limits = {"maxRowsPerTrigger": 400} if HAS_LIMITS else {}
        return run(stream(spark, source, **limits), tmp_path, "target")

    counts = [one["numInputRows"] for one in follow()]
    assert counts == ([400, 400, 200] if HAS_LIMITS else [1000])
    write(spark, source, 1000, 1100)
    (progress,) = follow()
    if HAS_LIMITS:
        assert json.loads(progress["sources"][0]["endOffset"])["v"] == 2
    assert follow() == []
    assert ids(target) == list(range(1100))
    version = lance.dataset(target).version
    last = forget_last_commit(tmp_path / "checkpoint-target")
    assert len(follow()) == 1
    assert ids(target) == list(range(1100)) and lance.dataset(target).version == version
    files = {one.name for one in Path(target, "data").iterdir()}
    assert files == {
        file.path
        for fragment in Snapshot.open(Table(target)).manifest.fragments
        for file in fragment.files
    }
    newest = Snapshot.open(Table(target))
    properties = load_transaction(newest.store, newest.file).properties
    assert properties["lance.streaming.epochId"] == last
    assert properties["lance.streaming.queryId"]


def test_followed_changes_are_applied_per_batch(spark, source, tmp_path):
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


def test_changed_rows_are_refused_unless_requested(spark, source, tmp_path):
    LanceTable.forPath(spark, source).update("id = 1", {"n": "0"})
    plain = stream(spark, source, startingVersion=1)
    assert plain.columns == ["id", "n"]
    with pytest.raises(StreamingQueryException, match="version 2 changes rows"):
        run(plain, tmp_path, "plain")
    if HAS_LIMITS:  # up to there all is delivered; Spark 4.1 took both versions at once
        assert ids(str(tmp_path / "plain")) == list(range(1000))
    feed = stream(spark, source, startingVersion="latest", readChangeFeed=True)
    assert run(feed, tmp_path, "feed") == []
    LanceTable.forPath(spark, source).delete("id < 3")
    run(feed, tmp_path, "feed")
    rows = spark.read.format("lance").load(str(tmp_path / "feed")).select("id", "_change_type")
    assert sorted(map(tuple, rows.collect())) == [(0, "delete"), (1, "delete"), (2, "delete")]


def test_complete_mode_replaces_result(spark, source, tmp_path):
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


@limited
def test_sink_compacts_every_n_batches(spark, source, tmp_path):
    target = str(tmp_path / "compacted")

    def follow(**options):
        return run(stream(spark, source, maxRowsPerTrigger=200), tmp_path, "compacted", **options)

    assert len(follow(compactEvery=2)) == 5
    history = LanceTable.forPath(spark, target).history().orderBy("version").collect()
    kinds = [row["operation"] for row in history]
    assert [kind for kind in kinds if kind not in ("Append", "Overwrite")] == ["Rewrite"] * 2
    assert [kinds.index("Rewrite"), len(kinds)] == [2, 7]
    assert ids(target) == list(range(1000))
    # A batch that runs again, since the crash came before the compaction, compacts as well.
    write(spark, source, 1000, 1100)
    follow()
    forget_last_commit(tmp_path / "checkpoint-compacted")
    assert len(follow(compactEvery=6)) == 1
    assert ids(target) == list(range(1100)) and len(lance.dataset(target).get_fragments()) == 1
    assert lance.dataset(target).version == 9


def test_two_queries_write_one_table_and_branch(spark, source, tmp_path):
    path = str(tmp_path / "both")
    write(spark, path, 0, 1)
    table = LanceTable.forPath(spark, path)
    table.createBranch("dev")
    queries = [
        frame.writeStream.format("lance")
        .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        .options(mergeSchema=True, branch="dev")
        .trigger(availableNow=True)
        .start(path)
        for number, frame in enumerate(
            [stream(spark, source), stream(spark, source).selectExpr("id", "n", "'x' AS extra")]
        )
    ]
    for query in queries:
        query.awaitTermination(120)
    assert spark.read.format("lance").load(path).count() == 1
    both = spark.read.format("lance").option("branch", "dev").load(path)
    assert both.count() == 2001 and both.where("extra = 'x'").count() == 1000
    assert both.where("extra IS NULL").count() == 1001
    # A batch write goes to the branch as well.
    one = spark.range(7, 8).selectExpr("id", "id AS n")
    one.write.format("lance").mode("append").option("branch", "dev").save(path)
    one.write.format("lance").mode("append").save(path)
    assert spark.read.format("lance").load(path).count() == 2
    assert spark.read.format("lance").option("branch", "dev").load(path).count() == 2002


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"writeMode": "overwrite"}, "writeMode is for single writes"),
        ({"txnAppId": "a", "txnVersion": "1"}, "a stream numbers its own batches"),
        ({"branch": "nowhere"}, "there is no branch 'nowhere'"),
        ({"compactEvery": "0"}, "compactEvery cannot be '0'"),
        ({}, "a column 'other', which the table does not have"),
    ],
)
def test_unsupported_sink_options_are_refused(spark, source, tmp_path, options, message):
    path = str(tmp_path / "refused")
    write(spark, path, 0, 1)
    frame = stream(spark, source)
    frame = frame if options else frame.withColumnRenamed("n", "other")
    with pytest.raises(StreamingQueryException, match=message):
        run(frame, tmp_path, "refused", **options)
    assert lance.dataset(path).version == 1


def test_stream_continues_after_removal_of_compacted_versions(spark, source, tmp_path):
    def follow():
        found = run(stream(spark, source), tmp_path, "caught-up")
        return [one["numInputRows"] for one in found]

    table = LanceTable.forPath(spark, source)
    assert follow() == [1000]
    table.setProperties({"owner": "1"})
    table.compact()
    table.setProperties({"owner": "2"})
    table.cleanupOldVersions(retainVersions=1)
    write(spark, source, 1000, 1010)
    assert follow() == [10]
    assert ids(str(tmp_path / "caught-up")) == list(range(1010))


def test_feed_shows_requested_columns_and_changes(spark, source, tmp_path):
    LanceTable.forPath(spark, source).update("id < 5", {"n": "-1"})
    options = {
        "columns": "n, _commit_version",
        "filter": "_change_type != 'update_preimage' AND id IN (4, 7)",
    }
    feed = stream(spark, source, startingVersion=1, readChangeFeed=True, **options)
    run(feed.where("_commit_version > 0"), tmp_path, "narrow")
    found = spark.read.format("lance").load(str(tmp_path / "narrow")).collect()
    assert sorted(map(tuple, found)) == [(-1, 2), (8, 1), (14, 1)]


@limited
def test_progress_shows_versions_behind(spark, source, tmp_path):
    for number in range(3):
        write(spark, source, 1000 + number, 1001 + number)
    limited = stream(spark, source, startingVersion=1, maxVersionsPerTrigger=2)
    first, second = run(limited, tmp_path, "behind")
    offsets = [
        tuple(json.loads(one["sources"][0][name])["v"] for name in ("endOffset", "latestOffset"))
        for one in (first, second)
    ]
    assert offsets == [(2, 4), (4, 4)]
    assert first["sources"][0]["description"] == f"lance {source}"


@pytest.mark.slow
def test_stream_begins_at_time_or_future_version(spark, source, tmp_path):
    write(spark, source, 2000, 2010)
    microseconds = Snapshot.open(Table(source)).manifest.timestamp_ns // 1000
    since = datetime.fromtimestamp(microseconds / 1e6, UTC).isoformat()
    run(stream(spark, source, startingTimestamp=since), tmp_path, "since")
    coming = stream(spark, source, startingVersion=3)
    assert run(coming, tmp_path, "coming") == []
    for first in (3000, 4000):
        write(spark, source, first, first + 10)
    for frame, name in (
        (coming, "coming"),
        (stream(spark, source, startingTimestamp=since), "since"),
    ):
        run(frame, tmp_path, name)
    assert ids(str(tmp_path / "since")) == [
        *range(2000, 2010),
        *range(3000, 3010),
        *range(4000, 4010),
    ]
    assert ids(str(tmp_path / "coming")) == [*range(3000, 3010), *range(4000, 4010)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": 3}, "start at version 3, but the newest is 1"),
        ({"startingVersion": 3, "readChangeFeed": True}, "start at version 3, but the newest"),
        ({"startingVersion": "x"}, "startingVersion cannot be 'x'"),
        ({"startingTimestamp": "soon"}, "startingTimestamp cannot be 'soon'"),
        ({"startingVersion": "latest", "startingTimestamp": "2020-01-01"}, "contradict"),
        ({"maxRowsPerTrigger": 0}, "maxRowsPerTrigger cannot be '0'"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss cannot be 'maybe'"),
        ({"readChangeFeed": True, "ignoreDeletes": True}, "leave out one of them"),
    ],
)
def test_invalid_stream_options_are_refused_on_load(spark, source, options, message):
    with pytest.raises(AnalysisException, match=message):
        stream(spark, source, **options)


def test_stream_continues_after_removal_of_read_versions(spark, source, tmp_path):
    write(spark, source, 1000, 1010)
    options = {"startingVersion": 2, "readChangeFeed": True}
    (progress,) = run(stream(spark, source, **options), tmp_path, "follows")
    assert progress["numInputRows"] == 10
    assert LanceTable.forPath(spark, source).cleanupOldVersions(olderThan=0).versions == (1,)
    write(spark, source, 2000, 2005)
    (progress,) = run(stream(spark, source, **options), tmp_path, "follows")
    assert progress["numInputRows"] == 5
    batch = spark.read.format("lance").options(**options)
    with pytest.raises(AnalysisException, match="need version 1, which is not there any more"):
        batch.load(source).collect()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"version": 1}, "streams do not take the option version"),
        pytest.param(
            {"maxRowsPerTrigger": 5},
            "this release of Spark cannot limit the batches of a stream",
            marks=pytest.mark.skipif(HAS_LIMITS, reason="it can be limited"),
        ),
    ],
)
def test_unsupported_stream_reads_are_refused(spark, source, tmp_path, options, message):
    with pytest.raises(StreamingQueryException, match=message):
        run(stream(spark, source, **options), tmp_path, "refused")


def test_catalog_table_is_followed(spark, source, tmp_path):
    spark.sql(f"CREATE TABLE followed_events USING lance OPTIONS (path '{source}')")
    try:
        run(spark.readStream.table("followed_events"), tmp_path, "events")
        feed = spark.readStream.option("readChangeFeed", "true").table("followed_events")
        assert feed.columns == ["id", "n"]
        with pytest.raises(StreamingQueryException, match="needs the path of a table"):
            run(feed, tmp_path, "feed")
    finally:
        spark.sql("DROP TABLE followed_events")
    assert ids(str(tmp_path / "events")) == list(range(1000))


def test_query_restarts_after_schema_change(spark, source, tmp_path):
    target = str(tmp_path / "wider")
    writer = stream(spark, source).writeStream.format("lance")
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint-wider")).start(target)
    try:
        query.processAllAvailable()
        wider = spark.range(1000, 1010).selectExpr("id", "id AS n", "'new' AS text")
        wider.write.format("lance").mode("append").option("mergeSchema", True).save(source)
        with pytest.raises(StreamingQueryException, match="version 2 has other columns"):
            query.processAllAvailable()
    finally:
        query.stop()
    assert ids(target) == list(range(1000))
    lance.dataset(source).optimize.compact_files()
    run(stream(spark, source), tmp_path, "wider", mergeSchema=True)
    found = lance.dataset(target).to_table()
    assert sorted(found["id"].to_pylist()) == list(range(1010))
    assert found["text"].null_count == 1000

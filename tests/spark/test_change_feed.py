"""The change feed in Spark: options, schemas, filters, LanceTable."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import lance
import pytest
from pyspark.sql import functions as F

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError, VersionNotFoundError
from pyspark_lance.table.cdf.change_feed import ChangeCounts
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = [pytest.mark.spark, pytest.mark.interop]

CHANGE_COLUMNS = ["_rowid", "_change_type", "_commit_version", "_commit_timestamp"]


@pytest.fixture(scope="module")
def path(spark, tmp_path_factory):
    """Ten rows; version 2 updates one, version 3 deletes two, version 4 changes no value."""
    path = str(tmp_path_factory.mktemp("feed") / "t")
    rows = spark.sql(
        "SELECT id, CAST(id AS STRING) AS s, NAMED_STRUCT('a', id, 'b', ARRAY(id)) AS n "
        "FROM RANGE(0, 10, 1, 2)"
    )
    rows.write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    table.update("id = 3", {"s": "'new'"})
    table.delete("id < 2")
    table.update("id = 5", {"s": "s"})
    return path


def feed(spark, path, **options):
    reader = spark.read.format("lance").option("readChangeFeed", True)
    return reader.options(**options).load(path)


def test_feed_has_table_columns_and_change_columns(spark, path):
    found = feed(spark, path, startingVersion=2)
    assert [(f.name, f.dataType.simpleString(), f.nullable) for f in found.schema] == [
        ("id", "bigint", True),
        ("s", "string", True),
        ("n", "struct<a:bigint,b:array<bigint>>", True),
        ("_rowid", "bigint", False),
        ("_change_type", "string", False),
        ("_commit_version", "bigint", False),
        ("_commit_timestamp", "timestamp", True),
    ]
    rows = found.select("_commit_version", "_change_type", "id", "s").collect()
    assert sorted(map(tuple, rows)) == [
        (2, "update_postimage", 3, "new"),
        (2, "update_preimage", 3, "3"),
        (3, "delete", 0, "0"),
        (3, "delete", 1, "1"),
    ]


def test_modes_columns_filters_and_schemas(spark, path):
    kinds = feed(spark, path, startingVersion=0, deduplicationMode="netchanges")
    counted = {
        (row[0], row[1]): row[2]
        for row in kinds.groupBy("_change_type", "_commit_version").count().collect()
    }
    assert counted == {("insert", 1): 6, ("insert", 2): 1, ("insert", 4): 1}
    every = feed(spark, path, startingVersion=4, deduplicationMode="none")
    assert [row["id"] for row in every.collect()] == [5, 5]
    narrow = feed(
        spark,
        path,
        startingVersion=2,
        columns="_change_type, s",
        filter="n.a = 3 OR _commit_version = 3",
    )
    assert narrow.columns == ["s", "_change_type"]
    assert narrow.count() == 4
    reader = spark.read.format("lance").options(readChangeFeed="true", startingVersion="2")
    part = reader.schema("n struct<a bigint>, _rowid bigint").load(path)
    assert sorted((row.n.a, row._rowid) for row in part.collect()) == [
        (0, 0),
        (1, 1),
        (3, 3),
        (3, 3),
    ]


def test_spark_filters_joins_and_aggregates_feed(spark, path):
    found = feed(spark, path, startingVersion=0)
    assert found.count() == 14
    assert found.where("_change_type = 'delete' AND id IN (0, 7)").count() == 1
    assert found.where(F.col("_commit_timestamp") < F.current_timestamp()).count() == 14
    assert found.alias("a").join(found.alias("b"), "_rowid").count() == 7 + 2 * 2**2 + 3**2
    assert found.limit(3).count() == 3
    assert found.agg(F.min("_rowid"), F.max("_commit_version")).first()[:] == (0, 3)


def test_feed_bounds_may_be_timestamps(spark, path):
    time = F.date_format("_commit_timestamp", "yyyy-MM-dd HH:mm:ss.SSSSSS").alias("time")
    every = feed(spark, path, startingVersion=1).select(time).distinct().sort("time")
    times = [row.time for row in every.collect()]
    between = feed(spark, path, startingTimestamp=times[1], endingTimestamp=times[1])
    assert {row._commit_version for row in between.collect()} == {2}


def test_lance_table_returns_changes_and_counts(spark, path):
    table = LanceTable.forPath(spark, path)
    assert table.changes(2, 2).count() == 2
    assert table.changes(4, deduplicationMode="none").count() == 2
    counts = table.changeCounts(1)
    assert [
        (c.version, c.num_inserted_rows, c.num_updated_rows, c.num_deleted_rows) for c in counts
    ] == [(1, 10, 0, 0), (2, 0, 1, 0), (3, 0, 0, 2), (4, 0, 1, 0)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readChangeFeed": "true"}, "needs a start"),
        ({"readChangeFeed": "true", "startingVersion": "9"}, "start at version 9"),
        ({"readChangeFeed": "true", "startingVersion": "1", "version": "2"}, "option version"),
        ({"readChangeFeed": "true", "startingVersion": "x"}, "startingVersion cannot be 'x'"),
        ({"startingVersion": "1"}, "add readChangeFeed"),
        (
            {"readChangeFeed": "true", "startingVersion": "1", "deduplicationMode": "some"},
            "dropCarryovers",
        ),
    ],
)
def test_invalid_feed_options_are_refused(spark, path, options, message):
    with pytest.raises(Exception, match=message):
        spark.read.format("lance").options(**options).load(path).count()


def test_missing_lineage_column_of_feed_is_named(spark, path):
    with pytest.raises(Exception, match="_rowaddr"):
        reader = spark.read.format("lance").options(readChangeFeed="true", startingVersion="2")
        reader.schema("_rowaddr bigint").load(path).collect()


def test_feed_after_newest_version_is_empty_until_commit(spark, tmp_path):
    path = str(tmp_path / "growing")
    spark.range(2).write.format("lance").mode("append").save(path)
    table = LanceTable.forPath(spark, path)
    after = datetime.now(UTC) + timedelta(days=1)
    for found in (
        feed(spark, path, startingVersion=2),
        table.changes(2),
        table.changes(startingTimestamp=after),
        table.changes(startingTimestamp=after, endingTimestamp="2999-01-01"),
    ):
        assert found.columns == ["id", *CHANGE_COLUMNS]
        assert found.count() == 0
        assert found.where("_change_type = 'insert'").select("id").collect() == []
    assert table.changeCounts(2) == table.changeCounts(startingTimestamp=after) == ()
    waiting = feed(spark, path, startingVersion=2)
    spark.range(5, 6).write.format("lance").mode("append").save(path)
    assert [row.id for row in table.changes(2).collect()] == [5]
    assert waiting.count() in (0, 1)  # in Connect, an action analyzes again


def test_changes_by_time_and_branch(spark, path, tmp_path):
    table = LanceTable.forPath(spark, path)
    times = {row[0]: row[1] for row in table.changes(1).select(*CHANGE_COLUMNS[2:]).collect()}
    assert table.changes(startingTimestamp=times[2], endingTimestamp=times[2]).count() == 2
    counts = table.changeCounts(startingTimestamp=times[2], endingTimestamp=times[3])
    assert [count.version for count in counts] == [2, 3]
    kept = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        moment = lance.dataset(path).versions()[1]["timestamp"].astimezone(UTC)
        text = (moment + timedelta(hours=9)).strftime("%Y-%m-%d %H:%M:%S.%f")
        assert table.changes(startingTimestamp=text, endingTimestamp=text).count() == 2
        assert [count.version for count in table.changeCounts(startingTimestamp=text)] == [2, 3, 4]
        assert [count.version for count in table.changeCounts(1, endingTimestamp=text)] == [1, 2]
        with pytest.raises(VersionNotFoundError):
            table.restore(timestamp=moment.strftime("%Y-%m-%d %H:%M:%S"))
    finally:
        spark.conf.set("spark.sql.session.timeZone", kept)
    other = str(tmp_path / "other")
    spark.range(2).write.format("lance").mode("append").save(other)
    lance.dataset(other).create_branch("side")
    branch = Snapshot.open(Table(other, branch="side")).uri
    spark.range(3).write.format("lance").mode("append").save(branch)
    table = LanceTable.forPath(spark, other)
    assert table.changes(2, branch="side").count() == 3
    assert table.changeCounts(2, branch="side") == (ChangeCounts(2, 3, 0, 0),)
    assert table.changeCounts(2) == ()


@pytest.mark.parametrize("version", ["abc", -3, 1.5])
def test_invalid_version_is_refused_by_name(spark, path, version):
    table = LanceTable.forPath(spark, path)
    for ask in (table.changes, table.changeCounts):
        with pytest.raises(
            InvalidInputError, match=rf"startingVersion( of \w+)? cannot be '?{version}"
        ):
            ask(version)


def test_feeds_and_lineage_are_saved_without_row_ids(spark, path, tmp_path):
    table = LanceTable.forPath(spark, path)
    kept = table.changes(2).withColumnRenamed("_rowid", "row")
    for number, (frame, columns) in enumerate(
        [
            (table.changes(2), ["id", "s", "n", *CHANGE_COLUMNS[1:]]),
            (kept, ["id", "s", "n", "row", *CHANGE_COLUMNS[1:]]),
            (table.scan(metadataColumns="all"), ["id", "s", "n"]),
        ]
    ):
        copy = str(tmp_path / str(number))
        frame.write.format("lance").mode("append").save(copy)
        saved = spark.read.format("lance").load(copy)
        assert saved.columns == columns
        assert sorted(saved.collect(), key=repr) == sorted(
            frame.select(*columns).collect(), key=repr
        )
    with pytest.raises(Exception, match="'_rowid' is reserved"):
        own = spark.range(3).withColumnRenamed("id", "_rowid")
        own.write.format("lance").mode("append").save(str(tmp_path / "own"))


def test_future_window_raises_typed_error(spark, path):
    with pytest.raises(InvalidInputError, match="newest is 4"):
        LanceTable.forPath(spark, path).changeCounts(1, 9)

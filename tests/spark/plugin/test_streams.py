"""Streams with the plugin: tables and their changes by name, and batches of ``foreachBatch``."""

from __future__ import annotations

import lance
import pytest
from spark_releases import needs

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def run(query):
    try:
        query.processAllAvailable()
    finally:
        query.stop()


def test_stream_is_written_in_batches(plugin, path, tmp_path):
    source = tmp_path / "in"
    for number in range(3):
        plugin.range(number * 10, number * 10 + 10, 1, 1).write.mode("append").parquet(str(source))
    stream = (
        plugin.readStream.schema("id bigint").option("maxFilesPerTrigger", 1).parquet(str(source))
    )

    def write(frame, number):
        frame.write.format("lance").mode("append").option("txnAppId", "stream").option(
            "txnVersion", number
        ).save(path)

    for _ in range(2):  # the second one finds nothing new
        run(
            stream.writeStream.foreachBatch(write)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
    assert plugin.read.format("lance").load(path).count() == 30
    assert lance.dataset(path).version == 3


def follow(frame, tmp_path, name):
    """Everything that a stream shows, and its columns."""
    query = (
        frame.withColumnRenamed("_rowid", "row_id")
        .writeStream.format("lance")
        .option("checkpointLocation", str(tmp_path / f"checkpoint-{name}"))
        .trigger(availableNow=True)
        .start(str(tmp_path / name))
    )
    query.awaitTermination(120)
    found = frame.sparkSession.read.format("lance").load(str(tmp_path / name))
    return found.columns, sorted(map(tuple, found.collect()), key=repr)


@pytest.fixture
def followed(plugin, path):
    """A table of three versions: its name."""
    rows = plugin.range(10).selectExpr("id", "id AS n")
    rows.coalesce(1).write.format("lance").mode("append").save(path)
    name = f"lance.`{path}`"
    plugin.sql(f"UPDATE {name} SET n = -1 WHERE id < 2")
    plugin.sql(f"DELETE FROM {name} WHERE id = 9")
    return name


@needs("CHANGES of tables")
def test_changes_stream_by_table_name(plugin, followed, path, tmp_path):
    for number, options in enumerate(({"startingVersion": "1"}, {})):
        reader = plugin.readStream.format("lance").options(readChangeFeed=True, **options)
        by_path = follow(reader.load(path), tmp_path, f"path-{number}")
        by_name = plugin.readStream.options(**options).changes(followed)
        assert follow(by_name, tmp_path, f"name-{number}") == by_path
        assert len(by_path[1]) == (10 + 4 + 1 if options else 9)


def test_streams_read_and_write_tables_by_name(plugin, followed, tmp_path):
    columns, rows = follow(plugin.readStream.table(followed), tmp_path, "rows")
    assert columns == ["id", "n"] and len(rows) == 9
    plugin.sql("CREATE TABLE folder.fed (id bigint, n bigint)")
    try:
        query = plugin.readStream.table(followed).writeStream
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint-fed"))
        query.trigger(availableNow=True).toTable("folder.fed").awaitTermination(120)
        assert sorted(map(tuple, plugin.table("folder.fed").collect())) == rows
    finally:
        plugin.sql("DROP TABLE folder.fed")


def test_stream_creates_table_of_catalog(plugin, followed, tmp_path):
    query = plugin.readStream.table(followed).writeStream.trigger(availableNow=True)
    try:
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).toTable(
            "folder.created"
        ).awaitTermination(120)
        assert plugin.table("folder.created").count() == 9
    finally:
        plugin.sql("DROP TABLE IF EXISTS folder.created")


def test_streams_read_declared_lengths_as_strings(plugin, tmp_path):
    plugin.sql("CREATE TABLE folder.lengths (c CHAR(3), a ARRAY<VARCHAR(2)>, n INT)")
    try:
        plugin.sql("INSERT INTO folder.lengths VALUES ('x', array('yz'), 1), ('y', null, 2)")
        frame = plugin.readStream.table("folder.lengths").where("n > 0 AND c < 'y'")
        frame = frame.selectExpr("c", "a[0] AS first")
        assert follow(frame, tmp_path, "lengths") == (["c", "first"], [("x  ", "yz")])
    finally:
        plugin.sql("DROP TABLE folder.lengths")


def test_stream_conditions_and_columns_apply(plugin, followed, tmp_path):
    frame = plugin.readStream.table(followed).where("id > 6 AND n > 0").select("n")
    assert follow(frame, tmp_path, "some") == (["n"], [(7,), (8,)])

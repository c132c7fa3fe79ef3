"""layout = debezium, in batches and in streams."""

from __future__ import annotations

import pytest

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("debezium") / "t")
    table = LanceTable.create(
        spark, path, "id bigint NOT NULL, text string, s struct<a: int, b: int>"
    )
    rows = [(1, "a", (1, 2)), (2, "b", None), (3, "c", (5, None))]
    frame = spark.createDataFrame(rows, table.toDF().schema)
    frame.write.format("lance").mode("append").save(path)
    table.update("id = 2", {"text": "'B'", "s": "named_struct('a', 7, 'b', 8)"})
    table.delete("id = 3")
    return table


def test_changes_are_debezium_envelopes(table):
    changes = table.changes(1, layout="debezium")
    assert changes.schema.simpleString() == (
        "struct<before:struct<id:bigint,text:string,s:struct<a:int,b:int>>,"
        "after:struct<id:bigint,text:string,s:struct<a:int,b:int>>,op:string,"
        "source:struct<table:string,version:bigint,rowId:bigint,timestamp:timestamp,"
        "snapshot:boolean>,ts_ms:bigint>"
    )
    found = changes.selectExpr("op", "before.id", "after.id", "before.s.b", "after.s.a")
    assert sorted(map(tuple, found.collect()), key=str) == [
        ("c", None, 1, None, 1),
        ("c", None, 2, None, None),
        ("c", None, 3, None, 5),
        ("d", 3, None, None, None),
        ("u", 2, 2, None, 7),
    ]
    assert changes.where("op = 'u' AND after.text = 'B'").select("before.text").first()[0] == "b"
    assert changes.count() == 5
    assert changes.select("source.version").distinct().count() == 3


def test_options_narrow_envelopes(spark, table):
    read = spark.read.format("lance").options(
        readChangeFeed=True, startingVersion=1, layout="Debezium", columns="id",
        filter="after.id > 1",
    )  # fmt: skip
    found = read.load(table._table.root)
    assert found.schema["after"].dataType.names == ["id"]
    assert sorted(row["after"]["id"] for row in found.collect()) == [2, 2, 3]
    with pytest.raises(InvalidInputError, match="use one of rows, debezium"):
        table.changes(1, layout="other")


def test_stream_begins_with_read_operations(spark, table, tmp_path):
    stream = spark.readStream.format("lance").options(readChangeFeed=True, layout="debezium")
    seen = []

    def collect(batch, _):
        seen.extend(map(tuple, batch.selectExpr("op", "before.id", "after.id").collect()))

    def follow():
        query = stream.load(table._table.root).writeStream.foreachBatch(collect)
        query = query.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(120)

    follow()
    assert sorted(seen) == [("r", None, 1), ("r", None, 2)]
    table.update("id = 1", {"text": "'again'"})
    follow()
    assert seen[2:] == [("u", 1, 1)]

"""Tables that are clustered, through Spark: options, ``LanceTable``, and its builder."""

from __future__ import annotations

import pytest
from table_access import assert_same_rows, read_ours, read_pylance

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError

pytestmark = [pytest.mark.spark, pytest.mark.interop]


def rows(spark, start=0, count=300):
    numbers = spark.range(start, start + count, 1, 2)
    return numbers.selectExpr("id", "id * 37 % 101 AS a", "named_struct('lat', id % 7) AS place")


def save(frame, path, mode="append", **options):
    frame.write.format("lance").mode(mode).options(**options).save(path)


def test_first_write_sets_clustering_columns(spark, tmp_path):
    path = str(tmp_path / "t")
    save(rows(spark), path, clusterBy="A, place.lat")
    save(rows(spark, 300), path)
    table = LanceTable.forPath(spark, path)
    assert table.clusteringColumns() == ["a", "place.lat"]
    assert table.detail().first().clusteringColumns == ["a", "place.lat"]
    before = read_ours(path).drop(["_rowaddr"]).sort_by("_rowid")
    assert table.optimize().executeCompaction().numRows == 600
    assert table.compact().numRows == 0
    assert read_ours(path).drop(["_rowaddr"]).sort_by("_rowid").equals(before)
    assert_same_rows(read_ours(path), read_pylance(path))
    with pytest.raises(Exception, match="an append does not change that"):
        save(rows(spark), path, clusterBy="a")
    with pytest.raises(Exception, match=r"there is no column 'aa'(?s:.*)did you mean 'a'"):
        save(rows(spark), path, "overwrite", clusterBy="aa")
    save(rows(spark), path, "overwrite", clusterBy="a")
    assert table.clusteringColumns() == ["a"]


def test_cluster_by_sets_columns_and_compaction_may_override(spark, tmp_path):
    path = str(tmp_path / "t")
    save(rows(spark).coalesce(1), path)
    table = LanceTable.forPath(spark, path)
    assert table.clusterBy("a", "id", order="linear", userMetadata="by a").version == 2
    assert table.history(1).first().userMetadata == "by a"
    assert table.compact(clusterBy=(), dryRun=True).numRows == 0
    assert table.compact(clusterBy="id").numRows == 300
    assert [row.id for row in table.toDF().collect()] == list(range(300))
    assert table.compact().numRows == 300
    found = [(row.a, row.id) for row in table.toDF().collect()]
    assert found == sorted(found)
    assert table.compact(splitFilesBy="a").fragmentsAdded == 101
    assert table.compact().numRows == 0  # files stay split
    old = LanceTable.forPath(spark, path, version=1)
    assert old.clusteringColumns() == []
    with pytest.raises(InvalidInputError, match="cannot be dropped: the table is clustered by a"):
        table.dropColumns("a")
    table.renameColumn("a", "b")
    assert table.clusteringColumns() == ["b", "id"]
    assert table.clusterBy().version is not None
    assert table.clusteringColumns() == []


def test_builder_sets_clustering_columns(spark, tmp_path):
    path = str(tmp_path / "t")
    new = LanceTable.create(spark).location(path).addColumn("id", "bigint").clusterBy("id")
    assert new.execute().clusteringColumns() == ["id"]
    other = LanceTable.replace(spark).location(path).addColumn("id", "bigint")
    assert other.execute().clusteringColumns() == []
    with pytest.raises(InvalidInputError, match="there is no column 'day'"):
        other.clusterBy("day").execute()
    options = {"clusterBy": "id"}
    made = LanceTable.create(spark, f"{path}2", "id bigint, v string", options=options)
    assert made.clusteringColumns() == ["id"]


@pytest.mark.slow
def test_stream_compacts_small_fragments_without_sorting(spark, tmp_path):
    source, path = str(tmp_path / "source"), str(tmp_path / "t")
    for first in (0, 300):  # Spark 4.1 cannot limit batches: each of these is one
        save(rows(spark, first).coalesce(1), source)
        frame = spark.readStream.format("lance").load(source)
        stream = frame.writeStream.format("lance").options(clusterBy="a", compactEvery="2")
        stream = stream.option("checkpointLocation", str(tmp_path / "c"))
        stream.trigger(availableNow=True).start(path).awaitTermination()
    table = LanceTable.forPath(spark, path)
    assert table.clusteringColumns() == ["a"]
    assert table.detail().first().numFragments == 1
    assert table.compact().numRows == 600

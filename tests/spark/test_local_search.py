"""Small searches of LanceTable: without a Spark job, with the rows that a job finds."""

from __future__ import annotations

import os

import lance
import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError

pytestmark = pytest.mark.spark

SMALL = "spark.sql.lance.smallScanBytes"
SEARCHES = {
    "words": lambda table, **more: table.search("fox dog", 5, "s", **more),
    "no words": lambda table, **more: table.search("nothing", 5, "s", **more),
    "vector": lambda table, **more: table.nearest([3.2, 0.0], 5, **more),
    "vectors": lambda table, **more: table.nearest([[3.2, 0.0], [9.9, 1.0]], 3, **more),
    "both": lambda table, **more: table.hybridSearch("fox", [3.2, 0.0], 5, column="s", **more),
}


@pytest.fixture(scope="module")
def table(spark, tmp_path_factory):
    """Columns of all kinds of types; texts that no index covers."""
    path = str(tmp_path_factory.mktemp("local") / "t")
    frame = spark.range(60).selectExpr(
        "id",
        "concat_ws(' ', 'a', if(id % 3 = 0, 'fox', 'cat'), if(id % 4 = 0, 'dog', NULL)) s",
        "array(float(id), 0f) v",
        "named_struct('day', date_add(DATE '2024-02-27', int(id)), 'n', int(id)) p",
        "timestamp_seconds(1700000000 + id) at",
        "cast(timestamp_seconds(1700000000 + id) AS timestamp_ntz) local",
        "cast(id AS decimal(20, 3)) d",
        "if(id % 2 = 0, NULL, binary(string(id))) b",
        "array(named_struct('x', smallint(id))) many",
        "id % 5 = 0 AS flag",
        "map('k', id) m",
    )
    options = {"v.fixed_size_list": 2}
    LanceTable.create(spark, path, frame.schema, options=options)
    frame.coalesce(2).write.format("lance").mode("append").save(path)
    return LanceTable.forPath(spark, path)


@pytest.fixture
def jobs(spark):
    """What a function returns, and the number of jobs that it ran."""

    def run(work):
        spark.sparkContext.setJobGroup(name := os.urandom(4).hex(), "")
        try:
            return work(), len(spark.sparkContext.statusTracker().getJobIdsForGroup(name))
        finally:
            spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    return run


@pytest.fixture
def setting(spark):
    yield lambda value: spark.conf.set(SMALL, value)
    spark.conf.unset(SMALL)


@pytest.mark.parametrize("kind", SEARCHES)
def test_small_search_needs_no_job(spark, table, jobs, setting, kind):
    columns = [name for name in table.toDF().columns if name != "m"]
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        found, count = jobs(lambda: SEARCHES[kind](table, columns=columns))
        rows, more = jobs(found.collect)
        assert count == more == 0
        assert "LocalTableScan" in found._jdf.queryExecution().executedPlan().toString()
        setting("0")
        other = SEARCHES[kind](table, columns=columns)
        expected, count = jobs(other.collect)
    finally:
        spark.conf.unset("spark.sql.session.timeZone")
    assert count > 0
    assert rows == expected
    assert found.schema == other.schema
    assert bool(rows) == (kind != "no words")


def test_other_searches_are_jobs(table, jobs, setting, monkeypatch):
    by_words = SEARCHES["words"]
    assert jobs(lambda: by_words(table, columns=["m"]).collect())[1] > 0
    setting("100b")
    assert jobs(lambda: by_words(table, columns=["id"]).collect())[1] > 0
    setting("64k")
    assert jobs(lambda: by_words(table, columns=["id"]).collect())[1] == 0
    monkeypatch.setattr("pyspark_lance.table.nearest.search_plan._SMALL_SEARCH_BYTES", 1)
    assert jobs(lambda: by_words(table, columns=["id"]).collect())[1] > 0
    monkeypatch.undo()
    setting("much")
    with pytest.raises(InvalidInputError, match=SMALL):
        by_words(table, columns=["id"])


def test_local_rows_are_those_of_planned_version(spark, table, tmp_path):
    path = str(tmp_path / "t")
    vectors = pa.array([[float(i), 0.0] for i in range(9)], pa.list_(pa.float32(), 2))
    lance.write_dataset(pa.table({"id": np.arange(9), "v": vectors}), path)
    found = LanceTable.forPath(spark, path).nearest([0.0, 0.0], 2)
    lance.dataset(path).delete("id = 0")
    assert [row.id for row in found.collect()] == [0, 1]
    assert found.filter("id > 0").count() == 1


def test_failing_local_search_is_left_to_tasks(spark, tmp_path):
    path = str(tmp_path / "t")
    vectors = pa.array([[1.0, 0.0]] * 9, pa.list_(pa.float32(), 2))
    lance.write_dataset(pa.table({"id": np.arange(9), "v": vectors}), path)
    table = LanceTable.forPath(spark, path)
    (name,) = os.listdir(f"{path}/data")
    os.remove(f"{path}/data/{name}")
    found = table.nearest([0.0, 0.0], 2)
    with pytest.raises(Exception, match="is missing"):
        found.collect()

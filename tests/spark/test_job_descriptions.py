"""Spark's web page names the method of ``LanceTable`` that runs a job."""

from __future__ import annotations

import pytest
from pyspark.sql import functions as sf

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError

pytestmark = pytest.mark.spark


@pytest.fixture
def path(spark, tmp_path):
    path = str(tmp_path / "t")
    spark.range(100).selectExpr("id", "id AS n").write.format("lance").mode("append").save(path)
    return path


def shown(spark):
    """What the page has told of queries so far, by their numbers."""
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    queries = (found.apply(at) for at in range(found.size()))
    return {query.executionId(): query.description() for query in queries}


def upsert(table, spark):
    source = spark.range(95, 105).selectExpr("id", "1L AS n")
    merge = table.merge(source, "target.id = source.id")
    merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


WORK = {
    "update": lambda table, _: table.update("id = 5", {"n": "1"}),
    "delete": lambda table, _: table.delete("id = 5"),
    "merge": upsert,
    "createIndex": lambda table, _: table.createIndex("id"),
}


@pytest.mark.parametrize("method", WORK)
def test_queries_are_called_as_the_method_that_runs_them(spark, path, method):
    table = LanceTable.forPath(spark, path)
    before = shown(spark)
    WORK[method](table, spark)
    after = shown(spark)
    assert {after[number] for number in after.keys() - before.keys()} == {
        f"LanceTable.{method} of {path}"
    }
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_a_description_of_the_user_stays(spark, path):
    before = shown(spark)
    spark.sparkContext.setJobDescription("nightly")
    try:
        LanceTable.forPath(spark, path).delete("id = 5")
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "nightly"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)
    after = shown(spark)
    assert {after[number] for number in after.keys() - before.keys()} == {"nightly"}


def test_a_failure_leaves_no_description_behind(spark, path):
    with pytest.raises(InvalidInputError, match="no column"):
        LanceTable.forPath(spark, path).update(sf.col("nonsense") == 1, {"n": "1"})
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None

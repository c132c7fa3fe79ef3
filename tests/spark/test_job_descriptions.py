"""Spark's web page names the method of ``LanceTable`` that runs a job."""

from __future__ import annotations

import shutil

import pytest
from directed_store import Director, directed, in_charge
from pyspark.sql import functions as sf

from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def written(spark, tmp_path_factory):
    """A table of which each test has a copy."""
    path = str(tmp_path_factory.mktemp("written") / "t")
    spark.range(100).selectExpr("id", "id AS n").write.format("lance").mode("append").save(path)
    return path


@pytest.fixture
def path(written, tmp_path):
    return shutil.copytree(written, str(tmp_path / "t"))


def newest(path):
    return Snapshot.open(Table(path)).version


def shown(spark):
    """The descriptions of queries so far, by their numbers."""
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
    "compact": lambda table, _: table.compact(maxBytesPerFile=1),
}
STAGES = {"createIndex": ": build index segments", "compact": ": rewrite fragments"}


@pytest.mark.parametrize("method", WORK)
def test_jobs_are_described_by_method(spark, path, method):
    table = LanceTable.forPath(spark, path)
    before = shown(spark)
    WORK[method](table, spark)
    after = shown(spark)
    assert {after[number] for number in after.keys() - before.keys()} == {
        f"LanceTable.{method} of {path}{STAGES.get(method, '')}"
    }
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


def test_user_job_description_is_kept(spark, path):
    before = shown(spark)
    spark.sparkContext.setJobDescription("nightly")
    try:
        LanceTable.forPath(spark, path).delete("id = 5")
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "nightly"
    finally:
        spark.sparkContext.setLocalProperty("spark.job.description", None)
    after = shown(spark)
    assert {after[number] for number in after.keys() - before.keys()} == {"nightly"}


def test_failure_resets_job_description(spark, path):
    with pytest.raises(InvalidInputError, match="no column"):
        LanceTable.forPath(spark, path).update(sf.col("nonsense") == 1, {"n": "1"})
    assert spark.sparkContext.getLocalProperty("spark.job.description") is None


class BreaksSession(Director):
    """Takes the JVM away from the session once a version is made."""

    def __init__(self, spark):
        super().__init__()
        self.spark, self.kept = spark, (spark._jsparkSession, spark._sc._jsc)

    def around(self, name, path, call):
        answer = super().around(name, path, call)
        if name == "put_if_absent" and path.startswith("_versions/"):
            self.spark._jsparkSession = self.spark._sc._jsc = None
        return answer

    def is_broken(self):
        """Whether it was taken away; from now on it is there again."""
        was_broken = self.spark._jsparkSession is None
        self.spark._jsparkSession, self.spark._sc._jsc = self.kept
        return was_broken


AFTER_COMMIT = {
    "update": lambda table, _: table.update("id = 5", {"n": "1"}).numUpdatedRows == 1,
    "delete": lambda table, _: table.delete("id = 5").numDeletedRows == 1,
    "merge": lambda table, spark: upsert(table, spark) is None,
    "compact": lambda table, _: table.compact().fragmentsRemoved > 1,
    "createIndex": lambda table, _: table.createIndex("id").numRows == 100,
    "addColumns": lambda table, _: table.addColumns({"m": "n + 1"}).numWrittenRows == 100,
    "dropColumns": lambda table, _: table.dropColumns("n").version == 2,
    "setProperties": lambda table, _: table.setProperties({"owner": "me"}).version == 2,
    "restore": lambda table, _: table.restore(1).version == 3,
}


@pytest.mark.parametrize("method", AFTER_COMMIT)
def test_broken_session_after_commit_does_not_fail_action(spark, path, method):
    table = LanceTable.forPath(spark, path)
    if method == "restore":
        table.dropColumns("n")
    before = newest(path)
    breaks = BreaksSession(spark)
    try:
        with directed(), in_charge(breaks):
            done = AFTER_COMMIT[method](table, spark)
    finally:
        was_broken = breaks.is_broken()
        spark.sparkContext.setLocalProperty("spark.job.description", None)
    assert done and was_broken and newest(path) == before + 1

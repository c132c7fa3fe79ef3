"""Tables of a session that was stopped say so, and leave room for the next session."""

from __future__ import annotations

import pytest
from script_process import run_script

pytestmark = pytest.mark.spark

_SCRIPT = """
import sys
from pyspark.errors import PySparkException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError

path, has_plugin = sys.argv[1], sys.argv[2] == "plugin"

def start():
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    return builder.getOrCreate()

def refused(call, kind=InvalidInputError):
    try:
        call()
    except kind as error:
        assert "was stopped" in str(error) and "with the active session" in str(error), error
    else:
        raise AssertionError(call)

def merge(table, rows):
    table.merge(rows, "target.id = source.id").whenMatchedUpdateAll().execute()

for number in range(2):
    spark = start()
    rows = spark.range(100).selectExpr("id", "id AS n")
    rows.write.format("lance").mode("append").save(path)
    if number:  # the table is that of a session before, and the rows are not
        refused(lambda: merge(table, rows))
    table = LanceTable.forPath(spark, path)
    assert table.update("id = 5", {"n": "7"}).numUpdatedRows == number + 1
    assert table.toDF().count() == 100 * (number + 1)
    spark.stop()
    refused(table.toDF)
    refused(table.history)
    refused(lambda: table.changes(1))
    refused(lambda: table.delete("id = 5"))
    refused(lambda: merge(table, rows))
    refused(lambda: table.createIndex("id"))
    refused(lambda: table.analyze())
    table.createTag(f"tag{number}")  # which needs no session
    if has_plugin:
        refused(lambda: spark.read.format("lance").load(path), UnsupportedOperationException)
        try:
            spark.sql(f"SELECT * FROM lance.`{path}`")
        except PySparkException:  # Spark 4.1 has another reason
            pass
        else:
            raise AssertionError("a query of a stopped session")
"""


@pytest.mark.parametrize("kind", ["plain", "plugin"])
def test_a_stopped_session_is_said_to_be_stopped_and_the_next_one_works(kind, tmp_path):
    run_script(_SCRIPT, tmp_path / "t", kind, jar=kind == "plugin")

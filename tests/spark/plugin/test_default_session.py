"""Sessions with the jar among those of Spark, where the wheel puts it.

They run one after the other in a JVM, since a start takes longer than all of them.
"""

from __future__ import annotations

import sys

import pytest
from script_process import SOCKET_OF_WORKERS, run_command

pytestmark = pytest.mark.spark

_START = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pyspark.errors import PySparkException, UnsupportedOperationException
from pyspark.sql import SparkSession
from pyspark_lance import LanceTable
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plugin import registered_class, enable

folder, kind = sys.argv[1:]

def start(**settings):
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.sql.warehouse.dir", folder + "/warehouse")
    return builder.config(map={name.replace("_", "."): settings[name] for name in settings})
"""
_DEFAULT = (
    SOCKET_OF_WORKERS
    + """
spark = start().getOrCreate()
spark.sparkContext.setLogLevel("OFF")
path = folder + "/default"
rows = spark.range(100).selectExpr("id", "id % 7 AS k")
# A worker without a task of ours prints a traceback when its Unix socket closes.
assert socket_of_workers(spark) == "false"
rows.write.format("lance").save(path)
with ThreadPoolExecutor(1) as threads:
    threads.submit(rows.write.format("lance").mode("append").save, path).result()
spark.sql(f"UPDATE lance.`{path}` SET k = 9 WHERE id < 2")
spark.sql(f"MERGE INTO lance.`{path}` t USING (SELECT 1000 AS id, 1 AS k) s ON t.id = s.id "
          "WHEN NOT MATCHED THEN INSERT *")
spark.sql(f"DELETE FROM lance.`{path}` WHERE id = 5")
assert spark.read.format("lance").load(path).count() == 199
plan = spark.read.format("lance").load(path).where("id < 3").select("id")
assert "filters: [id IS NOT NULL, id < 3]" in plan._jdf.queryExecution().toString()
assert socket_of_workers(spark) == UNIX_SOCKETS
try:
    spark.sql("CREATE TABLE checked (id INT, CHECK (id > 1)) USING lance")
except Exception as error:
    reason = "Lance tables have no CHECK constraints" if spark.version >= "4.1" else "SYNTAX_ERROR"
    assert reason in str(error), error
else:
    raise AssertionError("a constraint was taken and forgotten")
spark.sql("CREATE TABLE named (id INT, s STRING) USING lance")
spark.sql("INSERT INTO named VALUES (1, 'a'), (2, 'b')")
spark.sql("UPDATE named SET s = 'c' WHERE id = 2")
spark.sql("ALTER TABLE named ADD COLUMN more INT")
assert [tuple(row) for row in spark.table("named").orderBy("id").collect()] == [
    (1, "a", None), (2, "c", None)]
# Neither a setting nor a view keeps the name of our catalog, which other sessions may lack.
assert spark.conf.get("spark.sql.catalog.spark_catalog") == "builtin"
spark.sql("CREATE VIEW shown AS SELECT id FROM named")
named = spark._jvm.org.apache.spark.sql.catalyst.TableIdentifier("shown")
kept = spark._jsparkSession.sessionState().catalog().getTableMetadata(named).properties()
assert "pysparklance" not in kept.toString(), kept
assert [row.id for row in spark.newSession().table("shown").orderBy("id").collect()] == [1, 2]
spark.stop()
"""
)
_OFF = """
spark = start(spark_sql_lance_plugin="off").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
path = folder + "/off"
assert "Python" in registered_class(spark), registered_class(spark)
assert spark.conf.get("spark.sql.catalog.lance", None) is None
for _ in range(2):
    spark.range(100).write.format("lance").mode("append").save(path)
    assert spark.read.format("lance").load(path).where("id < 3").count() % 3 == 0
enable(spark)
assert registered_class(spark) == "org.pysparklance.LanceSource"
spark.sql(f"DELETE FROM lance.`{path}` WHERE id = 5")
assert spark.read.format("lance").load(path).count() == 198
spark.stop()
"""
_STOPPED = """
path, has_plugin = folder + "/stopped", kind == "plugin"

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
    spark = start().getOrCreate()
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


def test_sessions_with_jar_default_off_and_stopped(tmp_path):
    command = [sys.executable, "-c", _START + _DEFAULT + _OFF + _STOPPED, tmp_path, "plugin"]
    _, errors = run_command(*command)
    assert "pyspark-lance: the JVM plugin" not in errors


@pytest.mark.slow
def test_stopped_sessions_without_jar(tmp_path):
    """What LanceTable says is the same Python with the jar."""
    run_command(sys.executable, "-c", _START + _STOPPED, tmp_path, "plain", jar=False)

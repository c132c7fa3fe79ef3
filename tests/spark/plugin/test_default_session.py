"""Sessions with the jar among those of Spark, where the wheel puts it, and sessions without it."""

from __future__ import annotations

import sys

import pytest
from script_process import run_command, run_script

pytestmark = pytest.mark.spark

_START = """
import sys
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession
from pyspark_lance.plugin import registered_class, enable
folder, setting = sys.argv[1:]
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.sql.warehouse.dir", folder + "/warehouse")
if setting:
    builder = builder.config("spark.sql.lance.plugin", setting)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
path = folder + "/t"
rows = spark.range(100).selectExpr("id", "id % 7 AS k")
"""
_DEFAULT = """
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
try:
    spark.sql("CREATE TABLE checked (id INT, CHECK (id > 1)) USING lance")
except Exception as error:
    assert "Lance tables have no CHECK constraints" in str(error), error
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
"""
_WITHOUT = """
assert "Python" in registered_class(spark), registered_class(spark)
assert spark.conf.get("spark.sql.catalog.lance", None) is None
for _ in range(2):
    rows.write.format("lance").mode("append").save(path)
    assert spark.read.format("lance").load(path).where("id < 3").count() % 3 == 0
enable(spark)
assert registered_class(spark) == "org.pysparklance.LanceSource"
spark.sql(f"DELETE FROM lance.`{path}` WHERE id = 5")
assert spark.read.format("lance").load(path).count() == 198
"""


def test_a_session_without_any_setting_has_all_of_it(tmp_path):
    run_script(_START + _DEFAULT, tmp_path, "")


@pytest.mark.parametrize("has_jar", [False, True])
def test_where_it_is_missing_a_line_says_so_once_and_where_it_is_off_none(tmp_path, has_jar):
    setting = "off" if has_jar else ""
    command = [sys.executable, "-c", _START + _WITHOUT, tmp_path, setting]
    _, errors = run_command(*command, jar=has_jar)
    assert errors.count("pyspark-lance: the JVM plugin") == (0 if has_jar else 1)

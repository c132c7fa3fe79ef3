"""What is installed with the package is enough: pandas is neither needed nor asked for.

In every run, the script of ``test_hadoop_settings`` has no pandas: writes, reads, streams and SQL.
"""

from __future__ import annotations

import pytest
from script_process import hidden_pandas, run_script

pytestmark = [pytest.mark.spark, pytest.mark.slow]

EVERY_CHANGE = """
import sys
from pyspark.sql import SparkSession

path, reuse = sys.argv[1:]
session = SparkSession.builder.master("local[2]").config("spark.python.worker.reuse", reuse)
spark = session.config("spark.ui.enabled", "false").getOrCreate()
from pyspark_lance import LanceTable
from pyspark_lance.plugin import enable

rows = spark.range(1000).selectExpr("id", "concat('n', id % 50) s", "id * 1.5D d", "array(id) a")
rows.write.format("lance").mode("append").save(path)
table = LanceTable.forPath(spark, path)
table.update("id < 10", {"d": "d + 1", "a": "array(1L)"})
table.update(set={"d": "d * 2"}, rewrite="columns")
table.delete("id = 3")
changed = rows.where("id > 990").selectExpr("id + 5 AS id", "s", "d", "a")
merge = table.merge(changed, "target.id = source.id").whenMatchedUpdateAll()
merge.whenNotMatchedInsertAll().execute()
table.merge(changed, "target.id = source.id AND source.d > 0").whenMatchedUpdate(
    set={"d": "source.d + 1"}).execute()
table.compact()
table.createIndex("id")
feed = spark.read.format("lance").option("readChangeFeed", True).option("startingVersion", 1)
print(feed.load(path).count(), spark.read.format("lance").load(path).where("id = 7").count())
"""
# Where PySpark itself may ask for pandas, as far as it does without.
EVERYTHING_ELSE = """
vectors = "transform(sequence(1, 4), i -> cast(i * id AS float)) AS v"
rows.selectExpr("id", vectors).write.format("lance").mode("append").option(
    "v.fixed_size_list", 4).save(path + " vectors")
images = LanceTable.forPath(spark, path + " vectors")
ids = table.scan(columns=["id", "_rowid"]).where("id < 20").selectExpr("_rowid", "id % 3 AS third")
table.addColumns(ids)
near = images.nearest([[1.0, 2.0, 3.0, 4.0]], 2, "v")
queries = spark.range(3).selectExpr("array(1.0, 2.0, 3.0, id) AS q")
print(len(near.collect()), images.nearest(queries, 2, "v").count())
table.analyze()
table.clusterBy("s")
table.compact(clusterBy=["s"])
feed = table.changes(1)
copy = LanceTable.create(spark, path + " copy", table.toDF().schema)
copy.applyChanges(feed, keys=["id"])
print(copy.toDF().count() == table.toDF().count(), table.history().count() > 5)
print(table.detail().count(), table.verify().findings, table.toDF().limit(3).toArrow().num_rows)
stream = spark.readStream.format("lance").load(path).writeStream.format("lance")
stream = stream.option("checkpointLocation", path + " log").trigger(availableNow=True)
stream.start(path + " followed").awaitTermination()
enable(spark)
name = f"lance.`{path}`"
for text in (
    f"UPDATE {name} SET d = d + 1 WHERE id < 5",
    f"MERGE INTO {name} t USING (SELECT 5L AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    f"INSERT INTO {name} SELECT * FROM {name} WHERE id = 6",
    f"ANALYZE TABLE {name} COMPUTE STATISTICS FOR ALL COLUMNS",
):
    spark.sql(text).collect()
print(spark.sql(f"SELECT count(*), sum(d) > 0, max(s) FROM {name}").collect()[0])
"""


@pytest.fixture
def notes(tmp_path, monkeypatch):
    """The file that records imports of pandas."""
    for name, value in hidden_pandas(tmp_path).items():
        monkeypatch.setenv(name, value)
    return tmp_path / "notes"


def test_package_works_without_pandas(tmp_path, notes):
    printed = run_script(EVERY_CHANGE + EVERYTHING_ELSE, tmp_path / "table", "true", jar=False)
    assert printed.splitlines() == [
        "3052 1", "2 6", "True True", "1 () 3", "Row(count(1)=1004, (sum(d) > 0)=True, max(s)='n9')"
    ]  # fmt: skip


def test_changes_never_import_pandas_in_spark_processes(tmp_path, notes):
    printed = run_script(EVERY_CHANGE, tmp_path / "table", "false", jar=False)
    assert printed.split()[-1] == "1"
    assert not notes.exists(), notes.read_text()

"""Executors in processes of their own, without and with the plugin."""

from __future__ import annotations

import pytest
from script_process import run_script

pytestmark = [pytest.mark.spark, pytest.mark.slow]

_SCRIPT = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance import LanceTable
from pyspark_lance.plugin import enable
spark = (SparkSession.builder.master("local-cluster[2,1,1024]")
    .config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1").getOrCreate())
for number, switch_on in enumerate((lambda: None, lambda: enable(spark))):
    switch_on()
    path = f"{sys.argv[1]}/{number}"
    rows = spark.range(0, 1000, 1, 4).selectExpr("id", "cast(id as string) name")
    rows.write.format("lance").mode("append").save(path)
    assert spark.read.format("lance").load(path).where("id % 2 = 0").count() == 500
    table = LanceTable.forPath(spark, path)
    assert table.delete("id % 10 = 3").num_deleted_rows == 100
    source = spark.range(995, 1005).selectExpr("id", "'new' name")
    merge = table.merge(source, "target.id = source.id").whenMatchedUpdateAll()
    done = merge.whenNotMatchedInsertAll().execute()
    assert (done.num_updated_rows, done.num_inserted_rows) == (5, 5)
    assert table.changes(2).count() == 100 + 2 * 5 + 5
spark.sql(f"UPDATE lance.`{path}` SET name = 'x' WHERE id < 3")
spark.sql(
    f"MERGE INTO lance.`{path}` t USING (SELECT 5L id, 'y' name) s ON t.id = s.id "
    "WHEN MATCHED THEN UPDATE SET *"
)
assert spark.table(f"lance.`{path}`").where("name IN ('x', 'y')").count() == 4
assert spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 3
spark.stop()
"""


def test_local_cluster_writes_reads_deletes_and_merges(tmp_path):
    run_script(_SCRIPT, tmp_path, cwd=tmp_path, seconds=900, jar=False)

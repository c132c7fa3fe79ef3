"""The example that copies tables of other formats and takes over later changes."""

from __future__ import annotations

import subprocess
import sys

import pyspark
import pytest
from documents import ROOT
from migrate import checksum, main, migrate, read_source
from pyspark.sql import functions as sf
from script_process import environment

from pyspark_lance import LanceTable

COLUMNS = (
    "id",
    "id % 3 AS day",
    "IF(id % 5 = 0, NULL, concat('item ', id)) AS name",
    "map('a', id) AS parts",
    "named_struct('x', id, 'y', IF(id % 7 = 0, NULL, array(id))) AS detail",
)
RELEASE = ".".join(pyspark.__version__.split(".")[:2])
PACKAGES = {
    ("delta", "4.1"): "io.delta:delta-spark_4.1_2.13:4.4.0",
    ("delta", "4.2"): "io.delta:delta-spark_4.2_2.13:4.4.0",
    ("iceberg", "4.1"): "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
EXTENSIONS = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "iceberg": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}
CATALOGS = {
    "delta": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "iceberg": "org.apache.iceberg.spark.SparkCatalog",
}
WRITE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.getOrCreate()
kind, source, first, end, shift, *columns = sys.argv[1:]
first, end, shift = int(first), int(end), int(shift)
rows = spark.range(first, end).selectExpr(*columns)
rows = rows.withColumn("day", rows.day + shift)
if kind == "delta":
    rows.write.format("delta").partitionBy("day").mode("overwrite").save(source)
else:
    rows.writeTo(source).using("iceberg").createOrReplace()
"""


def test_later_run_changes_only_rows_that_differ(spark, tmp_path):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    made = spark.range(60).selectExpr(*COLUMNS)
    made.write.partitionBy("day").parquet(old)
    assert migrate(spark, read_source(spark, "parquet", old), new) == {"inserted": 60}

    names = sf.expr("IF(id = 10, 'no more null', IF(id = 11, NULL, name))")
    parts = sf.expr("IF(id = 12, map('b', id), parts)")
    changed = made.where("id != 3").withColumns({"name": names, "parts": parts})
    changed = changed.unionByName(spark.range(60, 62).selectExpr(*COLUMNS))
    changed.write.partitionBy("day").parquet(f"{old}er")
    later = read_source(spark, "parquet", f"{old}er")
    expected = {"inserted": 2, "updated": 3, "deleted": 1}
    assert migrate(spark, later, new, ["id"]) == expected
    table = LanceTable.forPath(spark, new)
    assert checksum(table.toDF()) == checksum(later) != checksum(made)
    feed = table.changes(startingVersion=2).groupBy("_change_type").count().collect()
    assert {row[0]: row[1] for row in feed} == {
        "insert": 2, "update_preimage": 3, "update_postimage": 3, "delete": 1,
    }  # fmt: skip
    assert migrate(spark, later, new, ["id"]) == dict.fromkeys(expected, 0)


def test_command_needs_key_for_existing_table(spark, tmp_path, capsys):
    old, new = str(tmp_path / "old"), str(tmp_path / "new")
    spark.range(9).selectExpr("id", "id % 2 AS half").write.parquet(old)
    assert main(["parquet", old, new, "--cluster-by", "half"]) == 0
    assert capsys.readouterr().out == "rows inserted: 9\nboth tables are equal\n"
    assert LanceTable.forPath(spark, new).detail().first().clusteringColumns == ["half"]
    assert main(["parquet", old, new]) == 2
    assert capsys.readouterr().err == f"{new} exists: name the key of its rows, as in --key id\n"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_of_other_formats_are_migrated(kind, tmp_path):
    package = PACKAGES.get((kind, RELEASE))
    if package is None:
        pytest.skip(f"{kind} has no release for Spark {RELEASE}")
    catalog = "spark_catalog" if kind == "delta" else "old"
    settings = {
        "spark.jars.packages": package,
        "spark.sql.extensions": EXTENSIONS[kind],
        f"spark.sql.catalog.{catalog}": CATALOGS[kind],
        "spark.sql.warehouse.dir": tmp_path / "warehouse",
    }
    if kind == "iceberg":
        settings |= {
            f"spark.sql.catalog.{catalog}.type": "hadoop",
            f"spark.sql.catalog.{catalog}.warehouse": tmp_path / "iceberg",
        }
    submit = " ".join(f"--conf {name}={value}" for name, value in settings.items())
    variables = environment() | {"PYSPARK_SUBMIT_ARGS": f"--master local[2] {submit} pyspark-shell"}
    source = str(tmp_path / "old") if kind == "delta" else f"{catalog}.db.t"
    new = str(tmp_path / "new")

    def run(*arguments):
        done = subprocess.run(
            [sys.executable, *map(str, arguments)],
            env=variables, capture_output=True, text=True, timeout=900, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    command = [ROOT / "examples" / "migrate.py", "delta" if kind == "delta" else "table"]
    run("-c", WRITE, kind, source, 0, 60, 0, *COLUMNS)
    printed = run(*command, source, new, "--key", "id")
    assert printed == "rows inserted: 60\nboth tables are equal\n"
    run("-c", WRITE, kind, source, 1, 61, 1, *COLUMNS)
    printed = run(*command, source, new, "--key", "id")
    assert printed == "rows inserted: 1, updated: 59, deleted: 1\nboth tables are equal\n"

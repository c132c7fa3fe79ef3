"""Storage options do not show in what Spark keeps, and writes work in threads.

Each script has its own process: the event log is a setting of the JVM's start.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.spark

_START = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession
folder = sys.argv[1]
builder = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", "file:" + folder + "/log")
    .config("spark.eventLog.compress", "false")
    .config("spark.sql.warehouse.dir", folder + "/warehouse")
    .config("spark.sql.redaction.string.regex", "users-own-[a-z]+"))
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
path = folder + "/table"
"""
_SECRETS = """
from pyspark_lance.spark.companion import enable
enable(spark)
enable(spark)
assert spark.conf.get("spark.sql.redaction.string.regex").startswith("(?:users-own-[a-z]+)|")
assert spark.conf.get("spark.sql.redaction.options.regex").startswith("(?:(?i)url)|")
names = ["account_key", "connection_string", "aws_access_key_id", "private_key", "unknown"]
secrets = {"storage." + name: "a=b;c, d) ]\\nMARKER" + name for name in names}
said = ", ".join(f"'{name}' '{value}'" for name, value in secrets.items()).replace("\\n", "\\\\n")
for mode in ("error", "append", "overwrite", "ignore"):
    spark.range(3).write.format("lance").mode(mode).options(**secrets).save(path)
spark.sql(f"CREATE TEMPORARY VIEW v USING lance OPTIONS (path '{path}', {said})")
shown = [spark.sql(f"EXPLAIN EXTENDED CREATE {kind} USING lance OPTIONS (path '{path}', {said})")
         .collect()[0][0] for kind in ("TABLE t", "TEMPORARY VIEW w")]
for frame in (spark.table("v"), spark.read.format("lance").options(**secrets).load(path)):
    assert frame.count() == 3
    shown.append(frame._jdf.queryExecution().toString())
assert "MARKER" not in "".join(shown), shown
assert "Relation" in shown[-1], shown[-1]
assert "users-own-" not in spark.sql("EXPLAIN SELECT 'users-own-word'").collect()[0][0]
spark.stop()
"""
_THREADS = """
from pyspark_lance import LanceTable
from pyspark_lance.spark.threads import use_session
spark.range(3).write.format("lance").mode("append").save(path)
def change():
    return LanceTable.forPath(spark, path).update("id = 1", {"id": "id + 10"}).version
def write():
    use_session(spark)
    spark.range(3).write.format("lance").mode("append").save(path)
    return spark.read.format("lance").load(path).count()
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(change).result() == 2
    assert pool.submit(write).result() == 6
spark.stop()
"""


def run(code, folder):
    (folder / "log").mkdir()
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    environment["PATH"] = os.path.dirname(sys.executable) + os.pathsep + environment["PATH"]
    command = [sys.executable, "-c", _START + code + "\nprint('all is well')", str(folder)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert "all is well" in done.stdout, done.stdout[-1000:] + done.stderr[-3000:]
    return done.stdout + done.stderr


def test_no_storage_option_is_in_the_event_log_plans_or_output(tmp_path):
    shown = run(_SECRETS, tmp_path)
    log = "".join(p.read_text() for p in (tmp_path / "log").rglob("*") if p.is_file())
    assert "SaveIntoDataSourceCommand" in log
    assert "CreateTempViewUsing" in log
    assert "MARKER" not in log + shown


def test_lance_table_works_in_threads_and_writes_do_after_one_call(tmp_path):
    run(_THREADS, tmp_path)

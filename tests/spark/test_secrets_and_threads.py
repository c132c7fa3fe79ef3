"""Storage options do not show in what Spark keeps, and writes work in threads.

Each script has its own process: the event log is a setting of the JVM's start. What needs no
process of its own is part of one of them, since a start takes longer than all the rest.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import lance
import pytest
from connect_script import start_connect
from s3_server import s3_server  # noqa: F401
from script_process import run_command

from pyspark_lance.plugin import plugin_jar

_CONF = Path(__file__).resolve().parents[2] / "spark_conf"
pytestmark = pytest.mark.spark

_START = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
from pyspark.sql import SparkSession
folder = sys.argv[1]
builder = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1").config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.dir", "file:" + folder + "/log")
    .config("spark.eventLog.compress", "false").config("spark.sql.shuffle.partitions", "2")
    .config("spark.sql.warehouse.dir", folder + "/warehouse")
    .config("spark.sql.redaction.string.regex", "users-own-[a-z]+"))
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
path = folder + "/table"
"""
_SECRETS = """
from pyspark_lance.plugin import enable
path = folder + "/secrets"
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
_CREATE(spark, folder, said, (0, 1))
spark.stop()
"""
# Statements that make, replace and change tables of the session's catalog (0), of paths (1) and of
# a folder (2); ``said`` are their options. Each kind of session has two of these places.
_STATEMENTS = """
def _REFUSED(spark, statement):
    try:
        spark.sql(statement).collect()
    except Exception as refused:
        assert "LANCE_INVALID_INPUT" in str(refused), refused
        assert "MARKER" not in str(refused), refused
    else:
        raise AssertionError("taken: " + statement)
def _CREATE(spark, folder, said, places):
    pairs = said.replace("' '", "' = '")
    properties = f"TBLPROPERTIES ({pairs})"
    spark.conf.set("spark.sql.catalog.cat", "org.pysparklance.LanceCatalog")
    spark.conf.set("spark.sql.catalog.cat.path", folder + "/cat")
    names = ("default.s", f"lance.`{folder}/l", "cat.c")
    for number in places:
        name = names[number]
        end, using = "`" if "`" in name else "", "" if number else "USING lance"
        for kind, given in enumerate((f"OPTIONS ({said})", properties)):
            made = [f"{name}{kind}{way}{end}" for way in range(3)]
            if kind:  # properties are visible to every reader of the table
                for columns, query in (("(id bigint)", ""), ("", "AS SELECT 1L AS id")):
                    _REFUSED(spark, f"CREATE TABLE {made[0]} {columns} {using} {given} {query}")
                continue
            spark.sql(f"CREATE TABLE {made[0]} (id bigint) {using} {given}").collect()
            spark.sql(f"CREATE TABLE {made[1]} {using} {given} AS SELECT 1L AS id").collect()
            spark.sql(f"INSERT INTO {made[0]} VALUES (1)").collect()
            for table in made[:2]:
                assert [tuple(row) for row in spark.table(table).collect()] == [(1,)]
            if number:
                for verb in ("REPLACE", "CREATE OR REPLACE"):
                    spark.sql(f"{verb} TABLE {made[1]} (id bigint) {given}").collect()
                    spark.sql(f"{verb} TABLE {made[1]} {given} AS SELECT 2L AS id").collect()
                    assert spark.table(made[1]).collect()[0].id == 2
            _REFUSED(spark, f"ALTER TABLE {made[1]} SET {properties}")
            spark.sql(f"SELECT * FROM {made[1]} WITH ({pairs})").collect()
"""
_THREADS = """
from pyspark_lance import LanceTable
from pyspark_lance.plugin import enable
from pyspark_lance.spark.threads import use_session
spark.range(3).write.format("lance").mode("append").save(path)
def change():
    return LanceTable.forPath(spark, path).update("id = 1", {"id": "id + 10"}).version
def write():
    use_session(spark)
    spark.range(3).write.format("lance").mode("append").save(path)
    return spark.read.format("lance").load(path).count()
def not_at_home():
    try:
        spark.range(3).write.format("lance").mode("append").save(path)
    except Exception as error:
        assert "DATA_SOURCE_NOT_FOUND" in str(error), error
    else:
        raise AssertionError("Spark finds the source in any thread by now: drop the advice")
def in_sql():
    enable(spark)
    spark.range(3).write.format("lance").save(path + "2")
    spark.sql(f"DELETE FROM lance.`{path}` WHERE id = 2")
    return spark.table(f"lance.`{path}`").count()
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(change).result() == 2
    pool.submit(not_at_home).result()
    assert pool.submit(write).result() == 6
enable(spark)
with ThreadPoolExecutor(1) as pool:
    pool.submit(not_at_home).result()
    assert pool.submit(write).result() == 9
with ThreadPoolExecutor(1) as pool:
    assert pool.submit(in_sql).result() == 6
"""


_SUBMITTED = """
import sys
from pyspark.sql import SparkSession
folder = sys.argv[1]
spark = SparkSession.builder.getOrCreate()
assert "pyspark_lance" not in sys.modules
for line in open(folder + "/recommended.conf"):
    if line.strip() and not line.startswith("#"):
        assert spark.conf.get(line.split()[0]) == line.split(None, 1)[1].strip(), line
spark.range(3).write.format("lance").mode("append").save(folder + "/table")
assert spark.read.format("lance").load(folder + "/table").count() == 3
said = "'storage.account_key' 'a MARKER', 'storage.unknown' 'MARKER, too'"
_CREATE(spark, folder, said, (1, 2))
spark.range(2).createOrReplaceTempView("two")
spark.sql("MERGE INTO cat.c01 t USING two s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
assert spark.table("cat.c01").count() == 3
spark.stop()
"""
_CONNECT = """
import sys
folder = sys.argv[1]
from pyspark_lance.plugin import enable
enable(spark)
said = "'storage.account_key' 'a MARKER', 'storage.unknown' 'MARKER, too'"
spark.range(3).write.format("lance").option("storage.key", "MARKER").save(folder + "/table")
spark.sql(f"CREATE TEMPORARY VIEW v USING lance OPTIONS (path '{folder}/table', {said})")
_CREATE(spark, folder, said, (0, 2))
# A client takes what the server shows it of Hadoop's settings, which are no secrets.
from pyspark_lance import LanceTable
stored, secrets = sys.argv[2], {"key": sys.argv[3], "secret": sys.argv[4]}
table = LanceTable.create(spark, stored, "id bigint", storageOptions=secrets)
spark.sql("SELECT 1L AS id").createOrReplaceTempView("one")
table.merge(spark.table("one"), "target.id = source.id").whenNotMatchedInsertAll().execute()
assert [row.id for row in table.toDF().collect()] == [1]
spark.stop()
"""


def run(command, folder, *arguments, jar=True):
    """Everything that a command printed."""
    return "".join(run_command(*command, folder, *arguments, cwd=folder, jar=jar))


def python(code):
    return [sys.executable, "-c", _STATEMENTS + code]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "log").mkdir()
    return tmp_path


def event_log(folder):
    log = "".join(p.read_text() for p in (folder / "log").rglob("*") if p.is_file())
    for command in ("CreateTable", "AtomicCreateTableAsSelect", "AtomicReplaceTable"):
        assert f'"nodeName":"{command}"' in log
    return log


def test_threaded_writes_hide_storage_options(folder):
    """Threads with the plugin on in another thread, and without it."""
    shown = run(python(_START + _THREADS + _SECRETS), folder, jar=False)
    log = event_log(folder)
    assert "SaveIntoDataSourceCommand" in log
    assert "CreateTempViewUsing" in log
    assert "MARKER" not in log + shown


@pytest.mark.slow
def test_submitted_script_hides_storage_options(folder):
    script = folder / "script.py"
    script.write_text(_STATEMENTS + _SUBMITTED)
    settings = {
        "spark.jars": plugin_jar(),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": f"file:{folder}/log",
        "spark.eventLog.compress": "false",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
        "spark.sql.catalog.cat.storage.account_key": "MARKER",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    command = [os.path.join(os.path.dirname(sys.executable), "spark-submit")]
    recommended = folder / "recommended.conf"
    recommended.write_text("\n".join(path.read_text() for path in sorted(_CONF.glob("*.conf"))))
    command += ["--master", "local[2]", "--properties-file", str(recommended)]
    command += [word for pair in settings.items() for word in ("--conf", "=".join(pair))]
    shown = run([*command, str(script)], folder)
    log = event_log(folder)
    assert "spark.sql.catalog.cat.storage.account_key" in log
    assert "MARKER" not in log + shown


@pytest.mark.slow
@pytest.mark.s3
@pytest.mark.interop
def test_connect_event_log_has_no_storage_option(folder, s3_server):  # noqa: F811
    """The server runs the statements of the two tests above, and redacts them by the same code."""
    path = f"s3a://{s3_server.new_bucket()}/warehouse/table"
    hadoop = {f"spark.hadoop.{name}": text for name, text in s3_server.hadoop_settings.items()}
    start = start_connect(
        {
            **hadoop,
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": f"file:{folder}/log",
            "spark.eventLog.compress": "false",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
        }
    )
    keys = (s3_server.access_key, s3_server.secret_key)
    shown = run(python(start + _CONNECT), folder, path, *keys)
    assert "MARKER" not in event_log(folder) + shown
    written = lance.dataset(path.replace("s3a:", "s3:"), storage_options=s3_server.options)
    assert written.to_table(columns=["id"])["id"].to_pylist() == [1]

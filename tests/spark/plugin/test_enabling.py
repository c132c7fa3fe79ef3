"""Switching the plugin on in running sessions, classic and Connect; each has its own process."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest
from connect_script import START_CONNECT
from script_process import SOCKET_OF_WORKERS, run_command, run_script

pytestmark = pytest.mark.spark

_CLASSIC = (
    SOCKET_OF_WORKERS
    + """
import sys
from pyspark.sql import SparkSession
from pyspark_lance.plugin import registered_class, enable
def start(**settings):
    return (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
            .config("spark.driver.host", "127.0.0.1").config(map=settings).getOrCreate())
spark = start()
spark.sparkContext.setLogLevel("OFF")
path = sys.argv[1]
# A worker without a task of ours prints a traceback when its Unix socket closes.
assert socket_of_workers(spark) == "false"
assert spark.conf.get("spark.sql.catalog.lance", None) is None
assert "Python" in registered_class(spark), registered_class(spark)
spark.range(10).write.format("lance").mode("append").save(path)
plain = spark.read.format("lance").load(path)
for times in (1, 2):
    spark.range(10).write.format("lance").mode("append").save(path + "-twice")
    assert spark.read.format("lance").load(path + "-twice").where("id < 3").count() == 3 * times
enable(spark)
enable(spark)
assert registered_class(spark) == "org.pysparklance.LanceSource"
assert spark.read.format("lance").load(path).where("id < 2").count() == 2
# Where Spark has a daemon already, workers come from ours as soon as a Lance table is used.
assert socket_of_workers(spark) == UNIX_SOCKETS
"""
)
_CONNECT = """
import sys
from pyspark_lance import LanceTable
from pyspark_lance.plugin import enable
path = sys.argv[1]
spark.range(10).write.format("lance").mode("append").save(path)
enable(spark)
"""
_CHECKS = """
frame = spark.read.format("lance").load(path)
assert frame.where("id < 3").count() == 3 and frame.count() == 10
assert frame.where("_rowid = 4").select("id").count() == 1
spark.range(10).write.format("lance").mode("ignore").save(path)
spark.sql(f"DELETE FROM lance.`{path}` WHERE id < 2")
assert spark.table(f"lance.`{path}`").count() == 8
assert spark.sql(f"SELECT * FROM lance.`{path}` VERSION AS OF 1").count() == 10
# What the parser and the rules of the analyzer add.
assert spark.sql(f"SELECT * FROM lance.`{path}` TIMESTAMP AS OF now()").count() == 8
assert spark.sql(f"OPTIMIZE '{path}'").first()["fragments_added"] >= 0
import io, contextlib
with contextlib.redirect_stdout(io.StringIO()) as shown:
    frame.where("id < 3").select("id").explain()
assert "filters: [id IS NOT NULL, id < 3]" in shown.getvalue(), shown.getvalue()
kept = "SELECT count(*) FROM {} WHERE (i16 > 32767) IS NULL"  # an assertion of Spark without us
rows = spark.range(10).selectExpr("CAST(IF(id % 4 = 0, NULL, id) AS smallint) AS i16")
rows.write.format("lance").save(path + "-kept")
assert spark.sql(kept.format(f"lance.`{path}-kept`")).first()[0] == 3
near = f"lance.`{path}-near`"
sizes = "TBLPROPERTIES (`v.fixed_size_list` = 2)"
spark.sql(f"CREATE TABLE {near} (id bigint, v array<float>) {sizes}")
spark.sql(f"INSERT INTO {near} SELECT id, array(float(id), 0F) FROM range(20)")
near_rows = f"SELECT id, _distance FROM vector_search('{path}-near', array(7, 0), 2)"
assert [tuple(row) for row in spark.sql(near_rows).collect()] == [(7, 0.0), (6, 1.0)]
joined = f"SELECT b.id FROM vector_search('{path}-near', array(3, 0), 1) a JOIN {near} b USING (id)"
assert spark.sql(joined).first().id == 3
"""
_FOREIGN = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance.errors import LanceError
from pyspark_lance.plugin import enable
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.jars", sys.argv[1]).getOrCreate())
spark.sparkContext.setLogLevel("OFF")
try:
    enable(spark)
except LanceError as error:
    assert "com.example.ForeignLance" in str(error), error
else:
    raise AssertionError("the plugin was switched on beside another source")
# Its jar is there by now; Spark does not choose between two, and says which they are.
try:
    spark.read.format("lance").load("/nowhere")
except Exception as error:
    for name in ("com.example.ForeignLance", "org.pysparklance.LanceSource"):
        assert name in str(error), error
else:
    raise AssertionError("Spark chose between two sources")
"""
# The rule that marks conditions comes to a session whose optimizer has run already.
_CONDITIONS = """
other = spark.newSession()
rows = spark.range(10).selectExpr("CAST(IF(id % 4 = 0, NULL, id) AS smallint) AS i16")
rows.write.format("lance").save(path + "-first")
for session in (spark, other, spark.newSession()):
    shown = session.read.format("lance").load(path + "-first").where("(i16 > 32767) IS NULL")
    assert shown.count() == 3 and len(shown.collect()) == 3
"""
_REFUSED_SOCKETS = """
spark.stop()
spark = start(**{"spark.python.unix.domain.socket.enabled": "false"})
spark.sparkContext.setLogLevel("OFF")
assert socket_of_workers(spark) == "false"
enable(spark)
spark.range(3).write.format("lance").mode("append").save(path + "-sockets")
assert spark.read.format("lance").load(path + "-sockets").where("id < 2").count() == 2
assert socket_of_workers(spark) == "false"
"""
# What Spark has cached of a table follows every write.
_CACHED = """
cached = path + "-cached"
row = spark.sql("SELECT 1L AS id, 'a' AS v").coalesce(1)
row.write.format("lance").mode("append").save(cached)
spark.sql(f"CREATE TEMPORARY VIEW seen USING lance OPTIONS (path '{cached}')").collect()
for name in ("seen", f"lance.`{cached}`"):
    spark.sql(f"CACHE TABLE {name}").collect()
def counts():
    return [spark.table(name).count() for name in ("seen", f"lance.`{cached}`")]
assert counts() == [1, 1]
row.write.format("lance").mode("append").save(cached)
assert counts() == [2, 2]
LanceTable.forPath(spark, cached).delete("id = 1")
assert counts() == [0, 0]
"""


@pytest.mark.slow
def test_enable_in_running_classic_session(jar, path):
    """Then in a session of the same JVM that refuses Unix sockets."""
    script = _CLASSIC + _CHECKS + _CONDITIONS + _REFUSED_SOCKETS
    _, errors = run_command(sys.executable, "-c", script, path, jar=False)
    assert errors.count("pyspark-lance: the JVM plugin") == 1


@pytest.mark.slow
def test_enable_in_connect_session(jar, path):
    pytest.importorskip("grpc")
    run_script(START_CONNECT + _CONNECT + _CHECKS + _CACHED, path, jar=False)


@pytest.mark.slow
def test_foreign_lance_jar_is_named(jar, tmp_path, plugin_build):
    source = tmp_path / "com" / "example" / "ForeignLance.java"
    source.parent.mkdir(parents=True)
    source.write_text(
        "package com.example;\n"
        "public class ForeignLance implements org.apache.spark.sql.sources.DataSourceRegister {\n"
        '  public String shortName() { return "lance"; }\n}\n'
    )
    try:
        javac, jars = plugin_build.find_javac(), plugin_build.find_spark_jars()
    except plugin_build.CannotBuildError as error:
        pytest.skip(str(error))
    subprocess.run([javac, "-cp", f"{jars}/*", "-d", tmp_path, source], check=True)
    with zipfile.ZipFile(tmp_path / "foreign.jar", "w") as archive:
        archive.write(tmp_path / "com/example/ForeignLance.class", "com/example/ForeignLance.class")
        archive.writestr(
            "META-INF/services/org.apache.spark.sql.sources.DataSourceRegister",
            "com.example.ForeignLance\n",
        )
    foreign = str(tmp_path / "foreign.jar")
    run_script(_FOREIGN, foreign, jar=False)

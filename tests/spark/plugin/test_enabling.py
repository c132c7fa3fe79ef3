"""Switching the plugin on in running sessions, classic and Connect; each has its own process."""

from __future__ import annotations

import subprocess
import zipfile

import pytest
from connect_script import START_CONNECT
from script_process import run_script

pytestmark = pytest.mark.spark

_CLASSIC = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance.plugin import registered_class, enable
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").getOrCreate())
spark.sparkContext.setLogLevel("OFF")
path = sys.argv[1]
spark.range(10).write.format("lance").mode("append").save(path)
assert "Python" in registered_class(spark), registered_class(spark)
plain = spark.read.format("lance").load(path)
enable(spark)
enable(spark)
"""
_CONNECT = """
import sys
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
"""
_BOTH = """
import sys
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.driver.host", "127.0.0.1").config("spark.jars", sys.argv[1]).getOrCreate())
spark.sparkContext.setLogLevel("OFF")
try:
    spark.read.format("lance").load("/nowhere")
except Exception as error:
    for name in ("com.example.ForeignLance", "org.pysparklance.LanceSource"):
        assert name in str(error), error
else:
    raise AssertionError("Spark chose between two sources")
"""


_KEPT_FIRST = """
other = spark.newSession()
rows = spark.range(10).selectExpr("CAST(IF(id % 4 = 0, NULL, id) AS smallint) AS i16")
rows.write.format("lance").save(path + "-first")
for session in (spark, other, spark.newSession()):
    shown = session.read.format("lance").load(path + "-first").where("(i16 > 32767) IS NULL")
    assert shown.count() == 3 and len(shown.collect()) == 3
"""


def test_one_call_on_a_running_classic_session(jar, path):
    run_script(_CLASSIC + _CHECKS, path, jar=False)


def test_conditions_stay_with_spark_in_sessions_that_ran_before(jar, path):
    """The rule that marks them comes to a session whose optimizer has run already."""
    run_script(_CLASSIC + _KEPT_FIRST, path, jar=False)


def test_one_call_on_a_connect_session(jar, path):
    pytest.importorskip("grpc")
    run_script(START_CONNECT + _CONNECT + _CHECKS, path, jar=False)


def test_a_foreign_jar_that_answers_to_lance_is_named(jar, tmp_path, plugin_build):
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
    # Spark does not choose between two, and says which they are.
    run_script(_BOTH, foreign)


_SOCKETS = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance.plugin import enable
def socket_of(batches):
    import os, pyarrow as pa
    for _ in batches:
        kind = os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED", "false")
        yield pa.RecordBatch.from_arrays([pa.array([kind.lower()])], names=["kind"])
def kind():
    return spark.range(1).mapInArrow(socket_of, "kind string").collect()[0].kind
builder = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
           .config("spark.driver.host", "127.0.0.1"))
if sys.argv[1] == "refused":
    builder = builder.config("spark.python.unix.domain.socket.enabled", "false")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("OFF")
sums = spark.sparkContext.accumulator(0)
def work():
    assert spark.sparkContext.parallelize(range(10), 2).foreach(lambda x: sums.add(x)) is None
    return kind()
# A worker without a task of ours prints a traceback when its Unix socket closes.
assert work() == "false"
if sys.argv[1] != "from the start":
    enable(spark)
spark.range(3).write.format("lance").mode("append").save(sys.argv[2])
assert spark.read.format("lance").load(sys.argv[2]).where("id < 2").count() == 2
print(work())
assert sums.value in (45, 90), sums
"""


@pytest.mark.parametrize(
    ("how", "kind"),
    [("from the start", "true"), ("enabled after work", "true"), ("refused", "false")],
)
def test_workers_of_local_sessions_use_unix_sockets_unless_refused(how, kind, tmp_path):
    """Where Spark has a daemon already, workers come from ours as soon as a Lance table is used."""
    has_jar = how == "from the start"
    shown = run_script(_SOCKETS, how, tmp_path / "table", seconds=900, jar=has_jar)
    assert shown.splitlines()[-1] == kind

"""Which Python processes the first queries of a session start, and which not."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from script_process import run_command

SOURCES = Path(__file__).parents[3] / "src"

SCRIPT = """
import json, os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark_lance import plugin_jar

path = sys.argv[1]
spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.jars", plugin_jar())
    .config("spark.sql.lance.smallScanBytes", "0")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("WARN")


def processes():
    "Numbers of the services, and of the daemons and workers of each module."
    found, parents = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = entry.joinpath("stat").read_text()
                parents[entry.name] = stat.rpartition(") ")[2].split()[1]
                words = entry.joinpath("cmdline").read_bytes().decode().split("\\0")
                if words[1:2] == ["-m"] and words[2].endswith(".service"):
                    found[entry.name] = "service"
                elif words[1:2] == ["-m"] and words[2].endswith(".daemon"):
                    found[entry.name] = words[3].rpartition(".")[2]
            except OSError:
                pass  # it has just ended
    mine = {str(os.getpid())}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    names = [name for pid, name in found.items() if pid in mine]
    return {name: names.count(name) for name in sorted(set(names))}


def write_and_read():
    rows = spark.range(0, 5000, 1, 2).selectExpr("id", "cast(id as string) s")
    rows.write.format("lance").mode("append").option("maxRowsPerFile", 1500).save(path)
    read = spark.read.format("lance").load(path)
    some = read.where("id % 5 < 4 and id >= 10")
    found = some.selectExpr("sum(id)", "max(s)", "count(*)").first()
    print(json.dumps([*found, processes()]), flush=True)
    try:
        rows.selectExpr("id", "raise_error('no') s").write.format("lance").mode("append").save(path)
    except Exception:
        pass
    try:
        rows.write.format("lance").save(path)
    except Exception as error:
        print("there is already a table here" in str(error), flush=True)


print(json.dumps(processes()), flush=True)
spark.sql("SHOW TABLES").collect()  # a session that has the plugin, and no table of ours
print(json.dumps(processes()), flush=True)
write_and_read()
print(spark.sparkContext._jsc.sc().conf().get("spark.python.daemon.module"))
spark.stop()
print(json.dumps(processes().get("service", 0)))
"""
ONE = '{"service": 1, "worker": 3}'


@pytest.mark.spark
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="counts processes by /proc")
def test_first_queries_use_early_processes(tmp_path):
    out, errors = run_command(sys.executable, "-c", SCRIPT, tmp_path / "t")
    assert out.splitlines() == [
        "{}", "{}", f'[9995968, "998", 3992, {ONE}]', "True", "pyspark_lance.spark.daemon", "0",
    ]  # fmt: skip
    assert "Traceback" not in errors and "Broken" not in errors


OTHERS = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance import plugin_jar

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.jars", plugin_jar()).getOrCreate()
spark.range(3).write.format("lance").save(sys.argv[1])
print(spark.read.format("lance").load(sys.argv[1]).where("hash(id) % 2 < 9").count())
print(spark.sparkContext.parallelize([1, 2], 1).map(lambda n: 2 * n).sum())
print(spark.sparkContext._jsc.sc().conf().get("spark.python.daemon.module", "none"))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_user_functions_run_in_python_without_package(tmp_path):
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without installed packages
    other.chmod(0o755)
    command = ["env", f"PYSPARK_PYTHON={other}", f"PYSPARK_DRIVER_PYTHON={sys.executable}"]
    out, errors = run_command(*command, sys.executable, "-c", OTHERS, tmp_path / "t")
    assert out.splitlines() == ["3", "6", "none"]
    assert "Traceback" not in errors


SENT = """
import sys
from pyspark.sql import SparkSession

path, package = sys.argv[1:]
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
try:
    spark.range(3).write.format("lance").mode("append").save(path)
except Exception as error:
    print("DATA_SOURCE_NOT_FOUND" in str(error))
spark.sparkContext.addPyFile(package)  # adds it to the paths of the driver, too
import pyspark_lance
spark.dataSource.register(pyspark_lance.DefaultSource)
spark.range(3).write.format("lance").mode("append").save(path)
print("sent.zip" in pyspark_lance.__file__, spark.read.format("lance").load(path).count())
spark.stop()
"""


@pytest.mark.slow
@pytest.mark.spark
def test_package_sent_to_workers_works_after_registration(tmp_path):
    package = shutil.make_archive(str(tmp_path / "sent"), "zip", SOURCES, "pyspark_lance")
    # The package that is installed here must not be visible.
    hidden = f"import sys\nsys.path[:] = [one for one in sys.path if one != {str(SOURCES)!r}]\n"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    command = ["env", f"PYTHONPATH={tmp_path}", sys.executable, "-c", SENT]
    out, _ = run_command(*command, tmp_path / "t", package)
    assert out.splitlines() == ["True", "True 3"]

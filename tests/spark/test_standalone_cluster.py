"""A packed environment, sent by ``spark-submit --archives`` to the two workers of a cluster."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Mapping
from pathlib import Path

import pyspark
import pytest
from script_process import environment, run_command

import pyspark_lance

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SPARK = Path(pyspark.__file__).parent
# What executors need beside the PySpark of their own Spark.
PACKAGES = ("numpy", "numpy.libs", "pyarrow", "pyarrow.libs", "google", "fsspec", "pyroaring*")

SCRIPT = """
import sys, threading
path, tests = sys.argv[1:]
sys.path.insert(0, tests)
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark_lance import LanceTable
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table
from table_files import files_of, used_files

spark = SparkSession.builder.getOrCreate()

def where(_):
    import pyspark_lance
    yield sys.executable, pyspark_lance.__file__

for python, package in spark.sparkContext.parallelize(range(8), 8).mapPartitions(where).collect():
    assert "/environment/" in python and "/environment/" in package, (python, package)

def late(number):
    # The first attempt of one task is so late that Spark starts another one.
    task = TaskContext.get()
    if task.partitionId() == 0 and task.attemptNumber() == 0 and number == 0:
        threading.Event().wait(20)
    return number

rows = spark.range(0, 4000, 1, 4).select(udf(late, "bigint")("id").alias("id"))
rows.selectExpr("id", "0 AS n").write.format("lance").save(path)
threading.Event().wait(5)  # idle executors are decommissioned
spark.sql(f"UPDATE lance.`{path}` SET n = 1 WHERE id % 10 = 3")
spark.sql(f"MERGE INTO lance.`{path}` t USING (SELECT id FROM range(3990, 4010)) s ON t.id = s.id "
          "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 2)")
found = {tuple(row) for row in spark.read.format("lance").load(path).repartition(4).collect()}
assert found == {(i, int(i % 10 == 3)) for i in range(3990)} | {(i, 2) for i in range(4000, 4010)}
assert LanceTable.forPath(spark, path).changes(2).count() == 2 * 400 + 10 + 10
assert verify(Table(path), read_data=True).findings == ()
for _ in range(200):
    if files_of(path) == used_files(path):
        break
    threading.Event().wait(0.1)
else:
    raise AssertionError(files_of(path) - used_files(path))
spark.stop()
print("done")
"""
# Statements whose tasks run twice, fail once, or lose their executor. A task of every statement
# leaves a file when its first attempt, and when its second one, meets an id.
DISTURBED = """
import os, sys, threading
path, tests, marks = sys.argv[1:]
sys.path.insert(0, tests)
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table
from table_files import files_of, used_files

spark = SparkSession.builder.getOrCreate()
table = f"lance.`{path}`"
jvm, context = spark._jvm, spark.sparkContext._jsc.sc()

def disturbed(what):
    def meet(number):
        task = TaskContext.get()
        if number is not None and number % 1000 == 500:
            mark = os.path.join(marks, f"{what}-{number}-{task.attemptNumber()}")
            open(mark, "w").close()
            if task.attemptNumber() == 0 and "fails" in what:
                raise ValueError("the first attempt fails")
            if task.attemptNumber() == 0 and number % 4000 == 500:
                threading.Event().wait(20 if "late" in what else 5)  # of one task
        return number
    return udf(meet, "bigint")

def lose_executor(what, lose):
    for _ in range(1000):
        if any(name.startswith(what) for name in os.listdir(marks)):
            break
        threading.Event().wait(0.05)
    lose(context.schedulerBackend().getExecutorIds().head())

def decommission(executor):
    info = jvm.org.apache.spark.scheduler.ExecutorDecommissionInfo("test", jvm.scala.Option.empty())
    context.schedulerBackend().decommissionExecutor(executor, info, False, False)

def kill(executor):
    context.killAndReplaceExecutor(executor)

def check(expected):
    found = {tuple(row) for row in spark.read.format("lance").load(path).collect()}
    assert found == expected, (found - expected, expected - found)
    assert verify(Table(path), read_data=True).findings == ()
    for _ in range(300):
        if files_of(path) == used_files(path):
            return
        threading.Event().wait(0.1)
    raise AssertionError(files_of(path) - used_files(path))

STATEMENTS = [
    ("INSERT OVERWRITE {table} SELECT f(id) AS id, 0 AS n FROM range(0, 4000, 1, 4)",
     lambda rows: {i: 0 for i in range(4000)}),
    ("MERGE INTO {table} t USING (SELECT f(id) AS id FROM range(2000, 6000, 1, 4)) s "
     "ON t.id = s.id WHEN MATCHED THEN UPDATE SET n = 2 "
     "WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 3)",
     lambda rows: rows | {i: 2 if i in rows else 3 for i in range(2000, 6000)}),
    ("UPDATE {table} SET n = 1 WHERE f(id) % 10 = 3",
     lambda rows: rows | {i: 1 for i in rows if i % 10 == 3}),
    ("DELETE FROM {table} WHERE f(id) % 10 = 4",
     lambda rows: {i: n for i, n in rows.items() if i % 10 != 4}),
]
losses = {"late": None, "fails": None, "decommissioned": decommission, "killed": kill}
spark.sql(f"CREATE TABLE {table} (id BIGINT, n INT)")
for name, loss in losses.items():
    rows, tried = {}, []
    for number, (statement, change) in enumerate(STATEMENTS[:4 if name == "fails" else 2]):
        what = f"{name}{number}"
        spark.udf.register("f", disturbed(what))
        loser = threading.Thread(target=lose_executor, args=(what, loss))
        if loss is not None:
            loser.start()
        spark.sql(statement.format(table=table))
        if loss is not None:
            loser.join()
        rows = change(rows)
        check(set(rows.items()))
        tried += [one for one in os.listdir(marks) if one.startswith(what)]
    print(tried, flush=True)
    # Some task met its rows twice; a decommissioned executor ends its tasks.
    assert name == "decommissioned" or any(one.endswith("-1") for one in tried), tried
spark.stop()
print("done")
"""
SETTINGS = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "1s",
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "true",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.dynamicAllocation.maxExecutors": "2",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.executor.memory": "600m",
    "spark.executor.cores": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
}


def pack(folder: Path) -> Path:
    """An environment as venv-pack packs it, without PySpark."""
    root = folder / "packed"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root], check=True)
    (target,) = (one.relative_to(root) for one in root.glob("lib/python*/site-packages"))
    archive = folder / "environment.tar.gz"
    with tarfile.open(archive, "w:gz", compresslevel=1) as packed:
        packed.add(root, arcname=".")
        packed.add(Path(pyspark_lance.__file__).parent, arcname=target / "pyspark_lance")
        for name in PACKAGES:
            for source in SPARK.parent.glob(name):
                packed.add(source, arcname=target / source.name)
    return archive


@contextlib.contextmanager
def cluster(folder: Path):
    """A master and two workers; yields the URL of the master."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"spark://127.0.0.1:{port}"
    deploy = "org.apache.spark.deploy"
    hosts = ["127.0.0.1", "127.0.0.1", "127.0.0.2"]  # speculation takes another host
    commands = [[f"{deploy}.master.Master", "--port", str(port)]]
    worker = [f"{deploy}.worker.Worker", "--cores", "2", "--memory", "1g", "--work-dir"]
    commands += [[*worker, folder / name] for name in ("one", "two")]
    settings = environment() | {"SPARK_WORKER_OPTS": "-Dspark.decommission.enabled=true"}
    processes = []
    with open(folder / "cluster.log", "w") as log:
        try:
            for host, command in zip(hosts, commands, strict=True):
                place = ["--host", host, "--webui-port", "0", *([url] if processes else [])]
                started = subprocess.Popen(
                    [SPARK / "bin" / "spark-class", *command, *place],
                    stdout=log,
                    stderr=log,
                    env=settings | {"SPARK_LOCAL_IP": host},
                )
                processes.append(started)
                wait_for_port(port)
            yield url
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.wait(60)


def wait_for_port(port: int) -> None:
    for _ in range(600):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        threading.Event().wait(0.1)
    raise AssertionError("the master did not start")


# Both executors are there from the start, and a slow machine has slow tasks.
FIXED_SETTINGS = {
    "spark.dynamicAllocation.minExecutors": "2",
    "spark.speculation.multiplier": "1.1",
}


def submit(
    folder: Path, script_text: str, *arguments: object, extra: Mapping[str, str] | None = None
) -> str:
    """What a script prints that a new cluster runs with a packed environment."""
    script = folder / "script.py"
    script.write_text(script_text)
    archive = pack(folder)
    settings = [
        part for one in (SETTINGS | dict(extra or {})).items() for part in ("--conf", "=".join(one))
    ]
    with cluster(folder) as url:
        out, _ = run_command(
            "env", f"PYSPARK_DRIVER_PYTHON={sys.executable}",
            "PYSPARK_PYTHON=./environment/bin/python", SPARK / "bin" / "spark-submit",
            "--master", url, "--archives", f"{archive}#environment", *settings, script,
            folder / "table", Path(__file__).parents[1] / "support", *arguments,
            cwd=folder, seconds=500,
        )  # fmt: skip
    return out


def test_packed_environment_works_on_changing_workers(tmp_path):
    out = submit(tmp_path, SCRIPT)
    assert out.splitlines()[-1] == "done"  # after warnings of PySpark about pandas


def test_statements_are_exact_despite_disturbed_tasks(tmp_path):
    marks = tmp_path / "marks"
    marks.mkdir()
    out = submit(tmp_path, DISTURBED, marks, extra=FIXED_SETTINGS)
    assert out.splitlines()[-1] == "done"

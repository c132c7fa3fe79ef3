"""Tasks that need no more rows return their Python worker, without logging broken pipes."""

from __future__ import annotations

import os
import sys

import pyarrow as pa
import pytest
from pyspark import TaskContext
from script_process import run_command
from table_access import write_table

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.source.scan_rows import has_enough
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

SCRIPT = """
import os, sys
from pathlib import Path
from pyspark.sql import SparkSession
from pyspark_lance import plugin_jar

folder = sys.argv[1]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1")
    .config("spark.jars", plugin_jar())
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.autoBroadcastJoinThreshold", "-1")
    .config("spark.sql.lance.smallScanBytes", "0")
    .getOrCreate()
)
spark.sparkContext.setLogLevel("OFF")
spark.range(0, 400_000, 1, 1).selectExpr(
    "id", "repeat(cast(id as string), 4) s", "id % 7 k"
).write.format("lance").save(folder)
frame = spark.read.format("lance").load(folder)
frame.createOrReplaceTempView("t")
few = spark.range(3).hint("merge")
actions = [
    lambda: frame._jdf.showString(20, 20, False),
    lambda: frame.take(3),
    lambda: frame.first(),
    lambda: frame.isEmpty(),
    lambda: frame.where("hash(s) % 3 = 1").head(5),
    lambda: frame.orderBy("k", "id").limit(5).collect(),
    lambda: spark.sql("SELECT 1 WHERE EXISTS (SELECT 1 FROM t WHERE hash(s) % 3 = 2)").collect(),
    lambda: frame.join(few, "id", "left_semi").count(),
]


def workers():
    found, parents = set(), {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = entry.joinpath("stat").read_text()
                parents[entry.name] = stat.rpartition(") ")[2].split()[1]
                if b".daemon\\0pyspark.worker" in entry.joinpath("cmdline").read_bytes():
                    found.add(entry.name)
            except OSError:
                pass  # it has just ended
    mine = {str(os.getpid())}
    while more := {pid for pid, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return found & mine


# Each action that ends early once took a worker with it.
times = int(sys.argv[2])
for way, times in (("shared", times), ("copied", min(times, 8)), ("off", min(times, 8))):
    spark.conf.set("spark.sql.lance.columnar", way)
    for action in actions:
        action()
    seen = before = workers()
    for turn in range(times):
        for action in actions if turn % 10 == 0 else actions[:1]:
            action()
            seen = seen | workers()
    print(way, len(before), len(seen - before), len(before - workers()), flush=True)
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.timeout(1000)  # as long as the script may take, and more
@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="counts processes by /proc")
@pytest.mark.parametrize("shows", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_early_ends_keep_workers(tmp_path, shows):
    out, errors = run_command(sys.executable, "-c", SCRIPT, tmp_path / "t", shows, seconds=900)
    # The daemon and its one worker; none came, none went.
    assert out.splitlines() == ["shared 2 0 0", "copied 2 0 0", "off 2 0 0"]
    assert "Traceback" not in errors and "Broken" not in errors and "Exception" not in errors


@pytest.fixture
def scan(tmp_path):
    """A scan in which no row matches, in twenty batches."""
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": pa.array(range(20_000))}))
    snapshot = Snapshot.open(Table(path))
    condition = parse_predicate("id * id = 3", predicate_schema(snapshot.schema))
    (task,) = plan_scan(snapshot, ScanRequest(predicate=condition, batch_rows=1000))
    return task


@pytest.mark.parametrize("after", [0, 1, 7])
def test_scan_checks_for_end_before_every_batch(scan, after):
    asked = []

    def enough():
        asked.append(1)
        return len(asked) > after

    assert list(scan.run(has_enough=enough)) == []
    assert len(asked) == after + 1


def test_unended_scan_checks_for_each_batch(scan):
    asked = []
    assert list(scan.run(has_enough=lambda: bool(asked.append(1)))) == []
    assert len(asked) >= 20


def test_end_marker_contains_task_id(tmp_path, monkeypatch):
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path},/another")
    assert not has_enough()()  # outside of tasks
    task = TaskContext._getOrCreate()
    try:
        task._taskAttemptId = 17
        is_enough = has_enough()
        tmp_path.joinpath("lance-enough-18").touch()
        assert not is_enough()
        tmp_path.joinpath("lance-enough-17").touch()
        assert is_enough()
        monkeypatch.delenv("SPARK_LOCAL_DIRS")
        assert not has_enough()()
    finally:
        TaskContext._setTaskContext(None)

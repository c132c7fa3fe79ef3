"""The service of a session is killed while statements run; ``tests/kills`` does so more often."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kills.killed_service import run, service_processes
from pyspark.errors import AnalysisException
from pyspark.sql.functions import udf
from script_process import run_command
from table_files import files_of

from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="finds processes by /proc"),
]


def test_statements_are_atomic_when_service_is_killed(plugin, tmp_path):
    outcome = run(plugin, str(tmp_path), kills=4, seed=1)
    assert outcome.problems == []
    assert outcome.succeeded >= 1


def test_sessions_share_one_service(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    (before,) = service_processes()
    assert plugin.newSession().read.format("lance").load(path).count() == 3
    assert service_processes() == [before]


def test_service_errors_begin_with_code(plugin, path):
    with pytest.raises(AnalysisException) as raised:
        plugin.read.format("lance").load(path)
    assert raised.value.getCondition() == "PYTHON_DATA_SOURCE_ERROR"
    assert "[LANCE_TABLE_NOT_FOUND] there is no Lance table here\n" in raised.value.getMessage()
    assert str(raised.value).startswith("[LANCE_TABLE_NOT_FOUND] there is no Lance table here\n")


def test_commit_error_is_raised_despite_failing_abort(plugin, path, settings):
    plugin.range(3).write.format("lance").save(path)
    (service,) = service_processes()

    def killing(number):
        with contextlib.suppress(ProcessLookupError):
            os.kill(service, signal.SIGKILL)
        return number

    rows = plugin.range(3, 6).select(udf(killing, "bigint")("id").alias("id"))
    # The service that would commit, and the one that would abort, cannot start.
    settings({"spark.sql.planner.pythonExecution.memory": "1m"})
    with pytest.raises(AnalysisException, match=r"^\[LANCE_STORAGE\].*\n *hint: "):
        rows.write.format("lance").mode("append").save(path)
    # The service that starts now serves the tests after this one, too.
    settings({"spark.sql.planner.pythonExecution.memory": "256g"})
    assert plugin.read.format("lance").load(path).count() == 3


def kill_idle(process, table, statement):
    os.kill(process, signal.SIGKILL)
    return statement()


def kill_planning(process, table, statement):
    """The process is stopped before it sees the request, so it dies with it."""
    os.kill(process, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        failure = pool.submit(statement)
        threading.Event().wait(0.5)
        os.kill(process, signal.SIGKILL)
        return failure.result()


def kill_before_the_put(process, table, statement):
    """The writer waits for the lock of this process, after its transaction file."""
    before = set(os.listdir(table / "_transactions"))
    lock = os.open(table / "_versions", os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with ThreadPoolExecutor(1) as pool:
            failure = pool.submit(statement)
            wait_until(lambda: set(os.listdir(table / "_transactions")) > before)
            os.kill(process, signal.SIGKILL)
            return failure.result()
    finally:
        os.close(lock)


def kill_after_the_put(process, table, statement):
    before = set(os.listdir(table / "_versions"))
    with ThreadPoolExecutor(1) as pool:
        failure = pool.submit(statement)
        wait_until(lambda: set(os.listdir(table / "_versions")) > before)
        os.kill(process, signal.SIGKILL)
        return failure.result()


def wait_until(is_so):
    for _ in range(6000):
        if is_so():
            return
        threading.Event().wait(0.005)
    raise AssertionError("it never came to that")


# What may come of an append of which the process dies in a state.
STATES = {
    kill_idle: {(None, 6)},
    kill_planning: {(None, 6)},
    kill_before_the_put: {("ended during commit", 3)},
    kill_after_the_put: {("ended during commit", 6), (None, 6)},
}


@pytest.mark.parametrize("kill", STATES, ids=lambda one: one.__name__)
def test_killed_service_leaves_table_and_next_statement_correct(plugin, path, kill):
    plugin.range(3).write.format("lance").save(path)
    (service,) = service_processes()

    def append():
        try:
            plugin.range(3, 6).coalesce(1).write.format("lance").mode("append").save(path)
        except AnalysisException as error:
            assert str(error).startswith("[LANCE_STORAGE] the Python process")
            return str(error)

    said = kill(service, Path(path), append)
    rows = sorted(row.id for row in plugin.read.format("lance").load(path).collect())
    assert rows == list(range(len(rows)))
    assert any(
        len(rows) == count and (said is None if part is None else part in (said or ""))
        for part, count in STATES[kill]
    ), (said, rows)
    assert verify(Table(path), read_data=True).findings == ()
    assert service not in service_processes()


def test_cancelled_job_leaves_no_rows_and_keeps_service(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    before, (service,) = files_of(path), service_processes()
    started = f"{path}-started"

    def endless(number):
        open(started, "a").close()
        while True:
            threading.Event().wait(0.01)

    rows = plugin.range(3, 6).select(udf(endless, "bigint")("id").alias("id"))
    with ThreadPoolExecutor(1) as pool:
        failed = pool.submit(rows.write.format("lance").mode("append").save, path)
        wait_until(lambda: os.path.exists(started))
        plugin.sparkContext.cancelAllJobs()
        with pytest.raises(Exception, match="SPARK_JOB_CANCELLED"):
            failed.result(60)
    assert plugin.read.format("lance").load(path).count() == 3
    assert files_of(path) == before
    assert service_processes() == [service]


LACKING = """
import sys
from pyspark.sql import SparkSession
from pyspark_lance import plugin_jar

builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
builder = builder.config("spark.pyspark.python", sys.argv[2])
spark = builder.config("spark.jars", plugin_jar()).getOrCreate()
try:
    spark.range(3).write.format("lance").save(sys.argv[1])
except Exception as error:
    print(str(error))
spark.stop()
"""


@pytest.mark.slow
def test_python_without_package_is_named(path, tmp_path):
    other = tmp_path / "python"
    other.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # without installed packages
    other.chmod(0o755)
    (tmp_path / "python3").symlink_to(other)  # found before others on PATH, which has bash and java
    searched = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    command = ["env", f"PATH={searched}", f"PYSPARK_PYTHON={other}"]
    command.append(f"PYSPARK_DRIVER_PYTHON={other}")
    out, _ = run_command(*command, sys.executable, "-c", LACKING, path, other)
    assert out.startswith("[LANCE_STORAGE] no Python of the driver can plan reads and writes")
    assert f"{other}: " in out and "No module named" in out
    assert "hint: activate the environment that has pyspark-lance" in out


PYTHONS = """
import json, os, sys
from pyspark.sql import SparkSession

path, driver, worker = sys.argv[1:]
builder = SparkSession.builder.master("local-cluster[1,1,1024]").config("spark.ui.enabled", "false")
builder = builder.config("spark.driver.host", "127.0.0.1")
builder = builder.config("spark.pyspark.driver.python", driver)
spark = builder.config("spark.pyspark.python", worker).getOrCreate()
spark.conf.set("spark.sql.lance.smallScanBytes", "0")
spark.range(3).write.format("lance").save(path)
assert spark.read.format("lance").load(path).where("hash(id) % 2 < 9").count() == 3
spark.stop()
"""


@pytest.mark.slow
def test_executors_use_their_own_python(path, tmp_path):
    pythons = []
    for name in ("driver", "worker"):
        python = tmp_path / name
        python.write_text(f'#!/bin/sh\necho "$@" >> {python}.log\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        pythons.append(python)
    run_command(sys.executable, "-c", PYTHONS, path, *pythons, cwd=tmp_path)
    driver, worker = ((tmp_path / f"{name}.log").read_text() for name in ("driver", "worker"))
    assert "-m pyspark_lance.spark.service" in driver and ".daemon" not in driver
    assert "-m pyspark.daemon pyspark.worker" in worker and ".service" not in worker


CONTEXTS = """
import os, signal, sys
sys.path[:0] = [sys.argv[2], sys.argv[3]]
from kills.killed_service import service_processes
from pyspark.sql import SparkSession

seen = []
for number in range(3):
    builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    spark = builder.getOrCreate()
    spark.range(3).write.format("lance").mode("append").save(sys.argv[1])
    assert spark.read.format("lance").load(sys.argv[1]).count() == 3 * (number + 1)
    (service,) = service_processes()
    seen.append(service)
    if number == 1:
        os.kill(service, signal.SIGKILL)  # and the context ends without another one
    spark.stop()
    assert service_processes() == []
assert len(set(seen)) == 3, seen
"""


@pytest.mark.slow
def test_each_context_in_jvm_has_own_service(path):
    tests = Path(__file__).parents[2]
    run_command(sys.executable, "-c", CONTEXTS, path, tests, tests / "support")

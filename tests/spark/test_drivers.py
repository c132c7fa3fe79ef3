"""Drivers that fork and that are interrupted by Ctrl-C, and sessions with settings of their own."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from script_process import run_command
from spark_releases import has

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="finds processes by /proc"),
]

TESTS = Path(__file__).parents[1]

_SCRIPT = """
import fcntl, multiprocessing, os, signal, sys, threading, time
path = sys.argv[1]
sys.path[:0] = sys.argv[2:]
from kills.killed_service import service_processes
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
from pyspark_lance import LanceTable
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table
from table_files import files_of

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.ui.showConsoleProgress", "false")
spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
spark.range(3).selectExpr("id", "0 AS n").write.format("lance").save(path)
(service,) = service_processes()

def rows():
    return sorted(tuple(row) for row in spark.read.format("lance").load(path).collect())

def change(number):
    table = LanceTable.forPath(spark, path)
    assert table.update(f"id = {number}", {"n": "n + 1"}).numUpdatedRows == 1
    assert spark.read.format("lance").load(path).count() == 3
    assert spark.sql(f"UPDATE lance.`{path}` SET n = n + 1 WHERE id = {number}") is not None

# Forked drivers, one after the other; the parent continues without Spark.
for number in range(2):
    process = multiprocessing.get_context("fork").Process(target=change, args=(number,))
    process.start()
    process.join(120)
    assert process.exitcode == 0, process.exitcode
    assert rows()[number] == (number, 2), rows()
child = os.fork()
if not child:
    try:
        change(2)
    finally:
        os._exit(0)
os.waitpid(child, 0)
assert rows() == [(0, 2), (1, 2), (2, 2)], rows()
assert service_processes() == [service]
print("forked")

# Sessions with settings of their own, whose requests run at the same time.
times = path + "-times"
first = spark.sql("SELECT TIMESTAMP '2024-01-01 00:00:00' AS at, 'x' AS s")
first.write.format("lance").save(times)
zones = {"UTC": "00:00", "America/New_York": "19:00", "Asia/Tokyo": "09:00"}
failures = []

def ask(zone, hour, ansi):
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", zone)
    session.conf.set("spark.sql.ansi.enabled", ansi)
    day = "2023-12-31" if hour == "19:00" else "2024-01-01"
    try:
        read = session.read.format("lance").option
        for _ in range(5):
            assert read("filter", f"at = '{day} {hour}:00'").load(times).count() == 1, zone
            assert read("filter", "at = '2020-01-01 00:00:00'").load(times).count() == 0, zone
            try:
                found = read("filter", "CAST(s AS int) IS NULL").load(times).count()
            except Exception:
                found = "refused"
            assert found == ("refused" if ansi == "true" else 1), (found, ansi)
    except BaseException as error:
        failures.append(error)

threads = [threading.Thread(target=ask, args=(zone, hour, ansi))
           for zone, hour in zones.items() for ansi in ("true", "false")]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert not failures, failures
print("sessions")
"""

_INTERRUPTIONS = """
# Ctrl-C in the shell reaches all processes of the driver.
def interrupted(statement, when):
    def press():
        while not when():
            time.sleep(0.01)
        os.killpg(0, signal.SIGINT)
    pressing = threading.Thread(target=press)
    pressing.start()
    try:
        statement()
    except KeyboardInterrupt:
        print("interrupted")
    pressing.join()

more = spark.range(3, 6).coalesce(1).selectExpr("id", "0 AS n")
def append(rows):
    rows.write.format("lance").mode("append").save(path)

started = path + "-started"
def endless(number):
    open(started, "a").close()
    while True:
        time.sleep(0.01)

before = files_of(path)
interrupted(lambda: append(more.withColumn("n", udf(endless, "int")("n"))),
            lambda: os.path.exists(started))
assert len(rows()) == 3
for _ in range(1000):
    if files_of(path) == before:
        break
    time.sleep(0.01)
else:
    raise AssertionError(files_of(path) - before)
folder = os.open(path + "/_versions", os.O_RDONLY)
fcntl.flock(folder, fcntl.LOCK_EX)
inode = f":{os.stat(folder).st_ino}"
def waits():
    lines = [line.split() for line in open("/proc/locks").read().splitlines()]
    return any(line[1] == "->" and line[6].endswith(inode) for line in lines)
interrupted(lambda: append(more), waits)
os.close(folder)
append(more)
assert len(rows()) in (6, 9), rows()  # the commit goes on where no job is left to cancel
"""

_END = """
assert verify(Table(path), read_data=True).findings == ()
assert service_processes() == [service]
spark.stop()
"""


@pytest.mark.slow
def test_forked_and_interrupted_drivers_and_sessions_keep_working(tmp_path):
    interruptions, printed = _INTERRUPTIONS, ["forked", "sessions", "interrupted", "interrupted"]
    if not has("Ctrl-C while the driver waits for the JVM"):
        interruptions, printed = "", printed[:2]
    code = _SCRIPT + interruptions + _END
    script = [sys.executable, "-c", code, tmp_path / "t", TESTS, TESTS / "support"]
    out, _ = run_command("setsid", "--wait", *script, seconds=300)
    assert out.splitlines() == printed

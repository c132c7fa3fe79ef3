"""Statements that are interrupted while the service plans or commits for them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from kills.killed_service import service_processes
from table_files import files_of

from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.table import Table

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="finds processes by /proc"),
]


class Statement:
    """A statement in a thread, whose thread in the JVM can be interrupted."""

    def __init__(self, spark, run) -> None:
        self._spark = spark
        self._run = run
        self._started = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self._thread = None
        self.result = self._pool.submit(self._in_thread)
        assert self._started.wait(60)

    def _in_thread(self):
        self._thread = self._spark._jvm.java.lang.Thread.currentThread()
        self._started.set()
        self._run()

    def state(self) -> str:
        """What the thread in the JVM does."""
        return self._thread.getState().toString()

    def interrupt(self) -> None:
        """As Spark Connect and the end of a streaming query interrupt the thread of a query."""
        self._thread.interrupt()


@contextlib.contextmanager
def locked(folder: Path):
    """Hold the lock that writers of a table wait for; yields a function that waits for them."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield lambda: wait_until(lambda: has_waiting(folder))
    finally:
        os.close(lock)


def has_waiting(folder: Path) -> bool:
    """Whether a writer waits for the lock of a folder."""
    inode = f":{folder.stat().st_ino}"
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(line[1] == "->" and line[6].endswith(inode) for line in lines)


def wait_until(is_so):
    for _ in range(6000):
        if is_so():
            return
        threading.Event().wait(0.01)
    raise AssertionError("it never came to that")


def lance_versions(path):
    return list_versions(Table(path).store())


def rows_of(spark, path) -> list[int]:
    return sorted(row.id for row in spark.read.format("lance").load(path).collect())


def append(spark, path):
    spark.range(3, 6).coalesce(1).write.format("lance").mode("append").save(path)


def overwrite(spark, path):
    spark.range(3, 6).coalesce(1).write.format("lance").mode("overwrite").save(path)


def update(spark, path):
    spark.sql(f"UPDATE lance.`{path}` SET id = id + 10")


def rename(spark, path):
    spark.sql(f"ALTER TABLE lance.`{path}` RENAME COLUMN id TO other")


# The lock that the commit of a statement waits for first, of writers of any table that exists.
COMMITS = {append: "_versions", overwrite: "_transactions", update: "_transactions",
           rename: "_versions"}  # fmt: skip


@pytest.mark.parametrize("statement", COMMITS, ids=lambda one: one.__name__)
def test_waiting_commit_is_cancelled_with_statement(plugin, path, statement):
    """Spark removes the files of the write at once, so the commit must not go on."""
    plugin.range(3).write.format("lance").save(path)
    (service,) = service_processes()
    before = files_of(path)
    with locked(Path(path) / COMMITS[statement]) as wait_for_writer:
        running = Statement(plugin, lambda: statement(plugin, path))
        wait_for_writer()
        running.interrupt()
        with pytest.raises(Exception, match="interrupted"):
            running.result.result(60)
    assert files_of(path) == before
    append(plugin, path)
    assert rows_of(plugin, path) == [0, 1, 2, 3, 4, 5]
    assert len(lance_versions(path)) == 2
    assert verify(Table(path), read_data=True).findings == ()
    assert service_processes() == [service]


def test_interrupted_statement_does_not_wait_for_plan(plugin, path):
    plugin.range(3).write.format("lance").save(path)
    (service,) = service_processes()
    os.kill(service, signal.SIGSTOP)
    try:
        running = Statement(plugin, lambda: append(plugin, path))
        wait_until(lambda: running.state() == "WAITING")
        running.interrupt()
        with pytest.raises(Exception, match="interrupted"):
            running.result.result(60)
    finally:
        os.kill(service, signal.SIGCONT)
    append(plugin, path)
    assert rows_of(plugin, path) == [0, 1, 2, 3, 4, 5]
    assert service_processes() == [service]


def test_commit_survives_cancellation_of_session_jobs(plugin, path):
    """They have ended before; a tag and an interrupt of the session concern jobs, too."""
    plugin.range(3).write.format("lance").save(path)

    def tagged():
        plugin.addTag("tagged")
        append(plugin, path)

    with locked(Path(path) / "_versions") as wait_for_writer:
        running = Statement(plugin, tagged)
        wait_for_writer()
        plugin.interruptTag("tagged")
        plugin.interruptAll()
        plugin.sparkContext.cancelAllJobs()
    running.result.result(60)
    assert rows_of(plugin, path) == [0, 1, 2, 3, 4, 5]

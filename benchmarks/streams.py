"""Streams at real size, and what a trigger costs: python benchmarks/streams.py [--rows 5000000].

Sizes: a table is followed from its first snapshot on, then through commits that change 100,000 rows
each.  Memory is the highest resident set, without memory mapped files, of the JVM (whose heap is
limited to 1 GB), of the larger of the processes that plan and commit for the driver, and of the
largest worker.

Triggers: a table of 1,000 fragments as source and as sink; each number is a median.  First what the
methods take that Spark calls, in this process, then what Spark reports of whole triggers, where a
source and a sink in Python that do nothing stand for what Spark itself takes.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import descendants, memory_mb, print_table, run, scratch, start_session, write
from pyspark.sql import SparkSession
from pyspark.sql.streaming.datasource import ReadAllAvailable
from sources import Idle

from pyspark_lance import LanceTable
from pyspark_lance.spark.data_source import LanceDataSource

CHANGES = 100_000
TRIGGERS = 12


def rows(first: int, count: int) -> pa.Table:
    """Five columns, some 60 bytes a row."""
    rng = np.random.default_rng(first)
    numbers = rng.integers(0, 1 << 40, count)
    texts = pa.array([f"user {value:x} of {value % 977}" for value in numbers.tolist()])
    ids = np.arange(first, first + count)
    return pa.table({"id": ids, "n": numbers, "x": rng.random(count), "day": ids % 365, "s": texts})


class Memory(threading.Thread):
    """Watches the processes that this one started."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.highest: dict[str, float] = defaultdict(float)
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.05):
            for process in descendants(os.getpid()):
                try:
                    kind = _kind(Path(f"/proc/{process}/cmdline").read_text())
                    now = memory_mb("RssAnon", process)
                except OSError:
                    continue  # it is gone
                self.highest[kind] = max(self.highest[kind], now)

    def __enter__(self) -> Memory:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()

    def cells(self) -> tuple[str, ...]:
        return tuple(f"{self.highest[kind]:,.0f}" for kind in ("jvm", "planner", "worker"))


def _kind(command: str) -> str:
    if "java" in command.split("\0")[0]:
        return "jvm"
    return "planner" if "_runner" in command else "worker"


# Real size ---------------------------------------------------------------------------------


def copied(spark: SparkSession, folder: str, number: int, name: str, **options) -> tuple:
    """Run a stream until it has all; return a row of the table."""
    source = spark.readStream.format("lance").options(readChangeFeed=True, **options)
    frame = source.load(f"{folder}/source").withColumnRenamed("_rowid", "source_id")
    started = time.perf_counter()
    with Memory() as memory:
        query = (
            frame.writeStream.format("lance")
            .option("checkpointLocation", f"{folder}/checkpoint-{number}")
            .trigger(availableNow=True)
            .start(f"{folder}/copy-{number}")
        )
        query.awaitTermination()
    seconds = time.perf_counter() - started
    batches = [one for one in query.recentProgress if one["numInputRows"]]
    count = sum(one["numInputRows"] for one in batches)
    return (
        name, str(len(batches)), f"{count:,}", f"{seconds:.1f}", f"{count / seconds:,.0f}",
        *memory.cells(),
    )  # fmt: skip


def measure_sizes(spark: SparkSession, folder: str, count: int) -> None:
    for first in range(0, count, 1_000_000):
        write(f"{folder}/source", rows(first, min(1_000_000, count - first)))
    found = [
        copied(spark, folder, 1, "snapshot, 1 million rows a batch", maxRowsPerTrigger=1_000_000),
        copied(spark, folder, 2, "snapshot, one batch"),
    ]
    table = LanceTable.forPath(spark, f"{folder}/source")
    changes = min(CHANGES, count // 10)
    step = count // changes
    for number in range(4):
        done = table.update(f"id % {step} = {number}", {"n": "n + 1"})
        assert done.num_updated_rows == changes
    table.delete(f"id % {step} = 7")
    found.append(
        copied(spark, folder, 1, "5 commits of 100,000 changes", maxRowsPerTrigger=changes)
    )
    found.append(copied(spark, folder, 2, "the same, one batch"))
    header = ("what", "batches", "rows", "s", "rows/s", "JVM MB", "planner MB", "worker MB")
    print_table(f"Streams from a table of {count:,} rows", header, found)


# Our own part of a trigger -----------------------------------------------------------------


def milliseconds(function: Callable[[], object], times: list[float]) -> object:
    started = time.perf_counter()
    result = function()
    times.append(1000 * (time.perf_counter() - started))
    return result


def measure_own(folder: str) -> None:
    """The reader and the writer as Spark has them, without Spark."""
    path = f"{folder}/own"
    few = rows(0, 100_000).select(["id", "n"])
    write(path, few, max_rows_per_file=100)
    source = LanceDataSource({"path": path, "readChangeFeed": "true"})
    reader = source.streamReader(source.schema())
    found: dict[str, list[float]] = defaultdict(list)
    start = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for number in range(TRIGGERS):
        milliseconds(partial(reader.latestOffset, start, ReadAllAvailable()), found["nothing new"])
        write(path, few.slice(10 * number, 10))
        ask = partial(reader.latestOffset, start, ReadAllAvailable())
        end = milliseconds(ask, found["10 rows: latestOffset"])
        plan = partial(reader.partitions, start, end)
        (partition,) = milliseconds(plan, found["10 rows: partitions"])
        batches = milliseconds(
            partial(lambda p: list(reader.read(p)), partition), found["10 rows: read"]
        )
        assert sum(batch.num_rows for batch in batches) == 10
        start = end
    sink = LanceDataSource({"path": path, "streamingQueryId": "own"})
    columns = LanceDataSource({"path": path}).schema()
    batch = few.slice(0, 10).to_batches()[0]
    for number in range(TRIGGERS):
        make = partial(sink.streamWriter, columns, False)
        writer = milliseconds(make, found["10 rows into the sink: a writer"])
        message = milliseconds(
            partial(writer.write, iter([batch])), found["10 rows into the sink: write"]
        )
        milliseconds(
            partial(writer.commit, [message], number), found["10 rows into the sink: commit"]
        )
    lines = [(what, f"{statistics.median(times):.1f}") for what, times in found.items()]
    print_table("Our part of a trigger, tables of 1,000 fragments", ("what", "ms"), lines)


# Triggers ----------------------------------------------------------------------------------


def durations(query) -> dict[str, float]:
    """Median milliseconds of each part of the triggers, without the first ones."""
    found = defaultdict(list)
    for one in query.recentProgress[2:]:
        for part, duration in one["durationMs"].items():
            found[part].append(duration)
    return {part: statistics.median(values) for part, values in found.items()}


def triggers(writer, folder: str, next_rows: Callable[[int], None]) -> dict[str, float]:
    """A query that runs for some triggers; ``next_rows`` gives each its rows."""
    query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=folder)).start()
    try:
        for number in range(TRIGGERS + 2):
            next_rows(number)
            query.processAllAvailable()
    finally:
        query.stop()
    return durations(query)


def rated(spark: SparkSession):
    return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()


def rated_triggers(writer, folder: str) -> dict[str, float]:
    """As many triggers of the rate source, which always has rows."""
    query = writer.option("checkpointLocation", tempfile.mkdtemp(dir=folder)).start()
    try:
        while len(query.recentProgress) < TRIGGERS + 2 and query.isActive:
            time.sleep(0.1)
    finally:
        query.stop()
    return durations(query)


PARTS = ("latestOffset", "queryPlanning", "addBatch", "triggerExecution")


def measure_triggers(spark: SparkSession, folder: str) -> None:
    source, sink = f"{folder}/fragments", f"{folder}/sink"
    few = rows(0, 100_000).select(["id", "n"])
    write(source, few, max_rows_per_file=100)
    values = pa.table({"value": few["id"], "timestamp": few["n"].cast(pa.timestamp("us", "UTC"))})
    write(sink, values, max_rows_per_file=100)

    def followed(**options):
        return spark.readStream.format("lance").options(**options).load(source)

    def add(number: int) -> None:
        write(source, few.slice(10 * number, 10))

    noop = lambda frame: frame.writeStream.format("noop")  # noqa: E731
    since = {"startingVersion": "latest", "readChangeFeed": "true"}
    to_sink = rated(spark).select("value", "timestamp").writeStream.format("lance")
    to_idle = rated(spark).writeStream.format("idle")
    from_idle = spark.readStream.format("idle").load()
    found = {
        "source, 10 rows": triggers(noop(followed(**since)), folder, add),
        "the same, maxRowsPerTrigger": triggers(
            noop(followed(**since, maxRowsPerTrigger="1000")), folder, add
        ),
        "a source in Python that reads nothing": rated_triggers(noop(from_idle), folder),
        "sink, 10 rows": rated_triggers(to_sink.option("path", sink), folder),
        "a sink in Python that writes nothing": rated_triggers(to_idle, folder),
    }
    lines = [
        (name, *(f"{parts[part]:.0f}" if part in parts else "" for part in PARTS))
        for name, parts in found.items()
    ]
    header = ("trigger, ms", *PARTS)
    print_table("Triggers, tables of 1,000 fragments", header, lines)


def main(*, rows: int = 5_000_000, only: str = "") -> None:
    spark = start_session({"spark.driver.memory": "1g", "spark.sql.shuffle.partitions": "2"})
    spark.dataSource.register(Idle)
    with scratch() as folder:
        if only != "sizes":
            measure_own(folder)
            measure_triggers(spark, folder)
        if only != "triggers":
            measure_sizes(spark, folder, rows)
        spark.stop()


if __name__ == "__main__":
    run(main)

"""What the first minute of a session costs, with the companion, without it, and with Parquet.

python benchmarks/first_query.py [--rows 2000000] [--sessions 3]
    [--kinds companion,plain,warm,nothing,parquet] [--work aggregate,write,script] [--installed]

Each session is a process of its own with Spark's default settings, and does one thing: the same
aggregate three times, the same write three times, or a script's whole work (100 rows written and
read, from the start of the process to its end).  The kinds take turns.  ``warm`` is ``plain`` with
our daemon, as ``spark_conf`` sets it; ``nothing`` is a source in Python that gives a hundred
numbers and keeps none: what Spark itself takes for ``plain``.  The table has the medians of the
sessions: seconds by the clock, and those of the processor for the first call, which a busy machine
changes less.  ``--installed``: the companion is among Spark's own jars.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator

from interactive import save_source
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType
from timing import print_table

KINDS = ("companion", "plain", "warm", "nothing", "parquet")
WORK = ("aggregate", "write", "script")
CALLS = 3


class Nothing(DataSource):
    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> str:
        return "price double"

    def reader(self, schema: StructType) -> DataSourceReader:
        return NothingReader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return NothingWriter()


class NothingReader(DataSourceReader):
    def partitions(self) -> list[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[object]:
        import pyarrow as pa

        # Arrow imports pandas for an array of a list, which is not the price of Spark's pipe.
        numbers = pa.py_buffer(bytes(8 * 50))
        column = pa.Array.from_buffers(pa.float64(), 50, [None, numbers])
        yield pa.RecordBatch.from_arrays([column], ["price"])


class NothingWriter(DataSourceArrowWriter):
    def write(self, iterator: Iterator[object]) -> WriterCommitMessage:
        deque(iterator, maxlen=0)
        return WriterCommitMessage()


def processor_seconds() -> float:
    """Of this process and of all that came of it and still run."""
    parents, seconds = {}, {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/stat") as file:
                fields = file.read().rpartition(") ")[2].split()
        except OSError:
            continue  # it has just ended
        parents[entry] = fields[1]
        seconds[entry] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    mine = {str(os.getpid())}
    while more := {one for one, parent in parents.items() if parent in mine} - mine:
        mine |= more
    return sum(seconds.get(one, 0.0) for one in mine)


def start(kind: str, *, installed: bool) -> SparkSession:
    """A session as a script or a notebook starts it."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
    if kind == "companion" and not installed:
        from pyspark_lance import companion_jar

        builder = builder.config("spark.jars", companion_jar())
    if kind == "warm":
        builder = builder.config("spark.python.daemon.module", "pyspark_lance.spark.daemon")
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if kind == "nothing":
        spark.dataSource.register(Nothing)
    return spark


def run_session(kind: str, work: str, folder: str, *, installed: bool) -> list[float]:
    """Seconds of the processor for the first call; by the clock, of the start and of each call."""
    times = []

    def timed(call: Callable[[], object]) -> object:
        before = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - before)
        return result

    spark = timed(lambda: start(kind, installed=installed))
    assert isinstance(spark, SparkSession)
    form = kind if kind in ("parquet", "nothing") else "lance"
    made = f"{folder}/made-{kind}-{work}-{time.time_ns()}"
    if work == "script":
        spark.range(100).write.format(form).mode("append").save(made)
        assert len(spark.read.format(form).load(made).collect()) == 100

    def aggregated() -> object:
        return spark.read.format(form).load(f"{folder}/{form}").agg({"price": "avg"}).collect()

    def written() -> None:
        path = f"{made}-{len(times)}"
        spark.read.parquet(f"{folder}/source").write.format(form).mode("append").save(path)

    before, spent = processor_seconds(), 0.0
    for call in range(CALLS if work != "script" else 0):
        timed(aggregated if work == "aggregate" else written)
        if call == 0:
            spent = processor_seconds() - before
    spark.stop()
    return [spent, *times]


def save_table(folder: str) -> None:
    """The source once more as a table of each format."""
    spark = start("plain", installed=False)
    rows = spark.read.parquet(f"{folder}/source")
    for form in ("parquet", "lance"):
        rows.write.format(form).mode("append").save(f"{folder}/{form}")
    spark.stop()


def main() -> None:
    """Runs the sessions, or one of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--sessions", type=int, default=3)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--work", default=",".join(WORK))
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        kind, work, folder = given.run
        print(json.dumps(run_session(kind, work, folder, installed=given.installed)))
        return
    kinds, works = given.kinds.split(","), given.work.split(",")
    with tempfile.TemporaryDirectory() as folder:
        save_source(folder, given.rows)
        own = [sys.executable, __file__, *(["--installed"] if given.installed else []), "--run"]
        subprocess.run(
            [sys.executable, "-c", f"import first_query; first_query.save_table({folder!r})"],
            check=True, stderr=subprocess.DEVNULL, cwd=__file__.rpartition("/")[0] or ".",
        )  # fmt: skip
        found: dict[tuple[str, str], list[list[float]]] = {}
        for _ in range(given.sessions):
            for work in works:
                for kind in kinds:
                    before = time.perf_counter()
                    done = subprocess.run(
                        [*own, kind, work, folder], check=True, stdout=subprocess.PIPE,
                        stderr=subprocess.DEVNULL, text=True,
                    )  # fmt: skip
                    whole = time.perf_counter() - before
                    times = [*json.loads(done.stdout.splitlines()[-1]), whole]
                    found.setdefault((work, kind), []).append(times)
    rows = []
    for work in works:
        labels = ["first call, processor", "start of the session"]
        if work != "script":
            labels += [f"{work} {call + 1}" for call in range(CALLS)]
        labels += ["whole process"]
        for i, label in enumerate(labels):
            if label == ("whole process" if work != "script" else "first call, processor"):
                continue
            medians = {
                kind: statistics.median(times[i] for times in found[work, kind]) for kind in kinds
            }
            cells = [f"{medians[kind]:.2f}" for kind in kinds]
            if "parquet" in kinds:
                cells += [f"{medians[kind] / medians['parquet']:.2f}" for kind in kinds[:-1]]
            rows.append((f"{work}: {label}", *cells))
    ratios = [f"{kind} / parquet" for kind in kinds[:-1]] if "parquet" in kinds else []
    print_table("The first minute of a session, seconds", ("", *kinds, *ratios), rows)


if __name__ == "__main__":
    main()

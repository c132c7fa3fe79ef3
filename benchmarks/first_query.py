"""What the first minute of a session costs, with the companion, without it, and with Parquet.

python benchmarks/first_query.py [--rows 2000000] [--sessions 3] [--kinds companion,plain,parquet]
    [--installed]

Each session is a process of its own with Spark's default settings, and does one thing: the same
aggregate three times, the same write three times, or a script's whole work (100 rows written and
read, from the start of the process to its end).  The kinds take turns.  The table has seconds by
the clock, the medians of the sessions.  ``--installed``: the companion is among Spark's own jars.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

from interactive import save_source
from pyspark.sql import SparkSession
from timing import print_table

KINDS = ("companion", "plain", "parquet")
WORK = ("aggregate", "write", "script")
CALLS = 3


def start(kind: str, *, installed: bool) -> SparkSession:
    """A session as a script or a notebook starts it."""
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "2g").config("spark.driver.host", "127.0.0.1")
    if kind == "companion" and not installed:
        from pyspark_lance import companion_jar

        builder = builder.config("spark.jars", companion_jar())
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def run_session(kind: str, work: str, folder: str, *, installed: bool) -> list[float]:
    """Seconds of the session's start and of each call."""
    times = []

    def timed(call: Callable[[], object]) -> object:
        before = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - before)
        return result

    spark = timed(lambda: start(kind, installed=installed))
    assert isinstance(spark, SparkSession)
    form = "parquet" if kind == "parquet" else "lance"
    made = f"{folder}/made-{kind}-{work}-{time.time_ns()}"
    if work == "script":
        spark.range(100).write.format(form).mode("append").save(made)
        assert len(spark.read.format(form).load(made).collect()) == 100

    def aggregated() -> object:
        return spark.read.format(form).load(f"{folder}/{form}").agg({"price": "avg"}).collect()

    def written() -> None:
        path = f"{made}-{len(times)}"
        spark.read.parquet(f"{folder}/source").write.format(form).mode("append").save(path)

    for _ in range(CALLS if work != "script" else 0):
        timed(aggregated if work == "aggregate" else written)
    spark.stop()
    return times


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
    parser.add_argument("--installed", action="store_true")
    parser.add_argument("--run", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.run:
        kind, work, folder = given.run
        print(json.dumps(run_session(kind, work, folder, installed=given.installed)))
        return
    kinds = given.kinds.split(",")
    with tempfile.TemporaryDirectory() as folder:
        save_source(folder, given.rows)
        own = [sys.executable, __file__, *(["--installed"] if given.installed else []), "--run"]
        subprocess.run(
            [sys.executable, "-c", f"import first_query; first_query.save_table({folder!r})"],
            check=True, stderr=subprocess.DEVNULL, cwd=__file__.rpartition("/")[0] or ".",
        )  # fmt: skip
        found: dict[tuple[str, str], list[list[float]]] = {}
        for _ in range(given.sessions):
            for work in WORK:
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
    for work in WORK:
        labels = ["start of the session"]
        if work != "script":
            labels += [f"{work} {call + 1}" for call in range(CALLS)]
        labels += ["whole process"]
        for i, label in enumerate(labels):
            if work != "script" and label == "whole process":
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

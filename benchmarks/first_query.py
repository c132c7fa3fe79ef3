"""What the first minute of a session costs, with the plugin, without it, and with Parquet.

python benchmarks/first_query.py [--rows 2000000] [--sessions 3]
    [--kinds plugin,plain,warm,nothing,parquet] [--work aggregate,write,script] [--installed]

Each session is a process of its own with Spark's default settings, and does one thing: the same
aggregate three times, the same write three times, or a script's whole work (100 rows written and
read by ``submitted.py``, from the start of ``spark-submit`` to its end).  The kinds take turns.
``warm`` is ``plain`` with our daemon, as ``spark_conf`` sets it.  What Spark itself takes for
``plain`` two sources in Python show: ``nothing`` gives a hundred numbers and keeps none, and
``canned``, which only reads, has all columns as batches that lie ready (``--kinds canned,plain
--work aggregate``).  The table has the medians of the sessions: seconds by the clock, and those of
the processor for the first call or the whole script, which a busy machine changes less.
``--installed``: the plugin is among Spark's own jars.

Modules should be compiled, as pip leaves them: ``uv`` does not by itself, and where
PYTHONDONTWRITEBYTECODE is set each process of Python compiles them again.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

from harness import in_child, jvm_of, print_table, processor_seconds, run, scratch, timed
from interactive import save_source
from pyspark.sql import SparkSession
from sources import Canned, Nothing, save_canned

KINDS = ("plugin", "plain", "warm", "nothing", "parquet")
WORK = ("aggregate", "write", "script")
CALLS = 3
COMMON = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
}


def settings(kind: str, *, installed: bool) -> dict[str, str]:
    """Of a session."""
    if kind == "plugin" and not installed:
        from pyspark_lance import plugin_jar

        return {**COMMON, "spark.jars": plugin_jar()}
    if kind == "plugin":
        return COMMON
    without = {**COMMON, "spark.sql.lance.plugin": "off"}
    if kind == "warm":
        return {**without, "spark.python.daemon.module": "pyspark_lance.spark.daemon"}
    return without


def format_of(kind: str) -> str:
    return kind if kind in ("parquet", "nothing", "canned") else "lance"


def submitted(kind: str, folder: str, *, installed: bool) -> list[float]:
    """Seconds of the processor, and by the clock, of the script."""
    given = [f"--conf={key}={value}" for key, value in settings(kind, installed=installed).items()]
    made = f"{folder}/made-{kind}-{time.time_ns()}"
    before = time.perf_counter()
    done = subprocess.run(
        [
            f"{Path(sys.executable).parent}/spark-submit", *given,
            f"{Path(__file__).parent}/submitted.py", format_of(kind), made,
        ],
        check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    whole = time.perf_counter() - before
    return [float(done.stdout.split()[-1]), whole]


def start(kind: str, *, installed: bool) -> SparkSession:
    """A session as a notebook starts it."""
    builder = SparkSession.builder
    for key, value in settings(kind, installed=installed).items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    if kind in ("nothing", "canned"):
        spark.dataSource.register(Nothing if kind == "nothing" else Canned)
    return spark


def run_session(kind: str, work: str, folder: str, installed: bool) -> list[float]:
    """Seconds of the processor for the first call; by the clock, of the start and of each call."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    cost, spark = timed(lambda: start(kind, installed=installed))
    times = [cost.clock]
    form, made = format_of(kind), f"{folder}/made-{kind}-{work}-{time.time_ns()}"
    jvm = jvm_of(spark)

    def aggregated() -> object:
        return spark.read.format(form).load(f"{folder}/{form}").agg({"price": "avg"}).collect()

    def written() -> None:
        path = f"{made}-{len(times)}"
        spark.read.parquet(f"{folder}/source").write.format(form).mode("append").save(path)

    before, spent = processor_seconds(jvm), 0.0
    for call in range(CALLS):
        cost, _ = timed(aggregated if work == "aggregate" else written)
        times.append(cost.clock)
        if call == 0:
            spent = processor_seconds(jvm) - before
    spark.stop()
    return [spent, *times]


def save_table(folder: str, kinds: tuple) -> None:
    """The source once more as a table of each format."""
    spark = start("plain", installed=False)
    rows = spark.read.parquet(f"{folder}/source")
    for form in ("parquet", "lance"):
        rows.write.format(form).mode("append").save(f"{folder}/{form}")
    if "canned" in kinds:
        save_canned(rows, f"{folder}/canned")
    spark.stop()


def main(
    *,
    rows: int = 2_000_000,
    sessions: int = 3,
    kinds: tuple = KINDS,
    work: tuple = WORK,
    installed: bool = False,
) -> None:
    found: dict[tuple[str, str], list[list[float]]] = {}
    with scratch() as folder:
        if work != ("script",):
            save_source(folder, rows)
            in_child(save_table, folder, kinds)
        for _ in range(sessions):
            for what in work:
                for kind in kinds:
                    if what == "script":
                        times = submitted(kind, folder, installed=installed)
                    else:
                        times = in_child(run_session, kind, what, folder, installed)
                    found.setdefault((what, kind), []).append(times)
    lines = []
    compared = kinds[:-1] if "parquet" in kinds else ()
    for what in work:
        labels = ["processor", "clock"]
        if what != "script":
            labels = ["first call, processor", "start of the session"]
            labels += [f"{what} {call + 1}" for call in range(CALLS)]
        for i, label in enumerate(labels):
            medians = {
                kind: statistics.median(times[i] for times in found[what, kind]) for kind in kinds
            }
            ratios = (medians[kind] / medians["parquet"] for kind in compared)
            lines.append((f"{what}: {label}", *medians.values(), *ratios))
    header = ("", *kinds, *(f"{kind} / parquet" for kind in compared))
    print_table("The first minute of a session, seconds", header, lines)


if __name__ == "__main__":
    run(main)

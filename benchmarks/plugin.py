"""The JVM plugin against plain Python and Parquet.

python benchmarks/plugin.py [rows [folder]]

Three million rows of 51 columns and 200,000 vectors (or as many rows as the argument says, and a
fifteenth as many vectors). The last row of the table is the time that planning takes on top; a
second table shows what 20 MERGE statements write.
Tables that a run left in the given folder are measured again; without one, they are removed.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from timing import best, print_table

import pyspark_lance
from pyspark_lance.spark.data_source import LanceDataSource

FILES = 8
TARGETS = {
    "one column": "<= 1.2",
    "count": "<= 1",
    "rows changed since version 1": "<= 0.05 of all",
}


class PlainLance(LanceDataSource):
    """The Python source under a name that no Java class answers to."""

    @classmethod
    def name(cls) -> str:
        return "plain_lance"


def session() -> SparkSession:
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .config("spark.jars", pyspark_lance.plugin_jar())
        .config("spark.sql.catalog.lance", "org.pysparklance.LanceCatalog")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(PlainLance)
    return spark


def wide(spark: SparkSession, rows: int) -> DataFrame:
    numbers = [sf.rand(i).alias(f"c{i}") for i in range(45)]
    words = [(sf.col("id") % (10 * i + 7)).cast("string").alias(f"s{i}") for i in range(5)]
    return spark.range(0, rows, 1, FILES).select("id", *numbers, *words)


def vectors(spark: SparkSession, rows: int) -> DataFrame:
    vector = sf.transform(
        sf.sequence(sf.lit(1), sf.lit(768)), lambda i: (sf.col("id") * i % 97).cast("float")
    )
    return spark.range(0, rows, 1, FILES).select(
        "id", vector.alias("v"), (sf.col("id") % 5).cast("string").alias("kind")
    )


def save(frame: DataFrame, folder: str, last: str, **options: str) -> None:
    """All rows as Parquet and Lance; the last ones are a second version of the Lance table."""
    if len(list(Path(f"{folder}.lance").glob("_versions/*.manifest"))) == 2:
        return
    frame.write.parquet(f"{folder}.parquet")
    writer = lambda: frame.sparkSession.read.parquet(f"{folder}.parquet")  # noqa: E731
    for mode, condition in (("error", f"NOT ({last})"), ("append", last)):
        writer().where(condition).write.format("lance").mode(mode).options(**options).save(
            f"{folder}.lance"
        )


def noop(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def readers(spark: SparkSession, folder: str) -> dict[str, Callable[[], DataFrame]]:
    return {
        "plugin": lambda: spark.read.format("lance").load(f"{folder}.lance"),
        "plain": lambda: (
            spark.read.format("plain_lance")
            .option("metadataColumns", "all")
            .load(f"{folder}.lance")
        ),
        "parquet": lambda: spark.read.parquet(f"{folder}.parquet"),
    }


def queries(rows: int, column: str) -> dict[str, Callable[[DataFrame], Callable[[], object]]]:
    def small_join(frame: DataFrame) -> Callable[[], object]:
        other = frame.sparkSession.range(0, rows, max(1, rows // 100)).withColumnRenamed("id", "k")
        return lambda: frame.join(other, frame["id"] == other["k"]).select(column).collect()

    return {
        "one column": lambda frame: noop(frame.select(column)),
        "count": lambda frame: frame.count,
        "point lookup": lambda frame: frame.where(f"id = {rows // 2}").select(column).collect,
        "small join": small_join,
        "all columns": noop,
    }


def measure(
    spark: SparkSession, folder: str, what: str, rows: int, column: str
) -> list[tuple[str, ...]]:
    found = []
    sources = {name: read() for name, read in readers(spark, folder).items()}
    sources["plain"] = sources["plain"].drop(
        *[c for c in sources["plain"].columns if c[:4] == "_row"]
    )
    for name, query in queries(rows, column).items():
        seconds = {source: best(query(frame), 3) for source, frame in sources.items()}
        found.append(line(f"{what}: {name}", seconds, TARGETS.get(name, "")))
    changed = "_row_last_updated_at_version > 1"
    with_lineage = {
        name: read() for name, read in readers(spark, folder).items() if name != "parquet"
    }
    seconds = {
        name: best(noop(frame.where(changed).select("id")), 3)
        for name, frame in with_lineage.items()
    }
    full = best(noop(sources["plugin"]), 3)
    label = f"{what}: rows changed since version 1"
    share = f"{seconds['plugin'] / full:.3f} of all"
    found.append((label, *line("", seconds, "")[1:3], "", share, "<= 0.05 of all"))
    return found


def line(label: str, seconds: dict[str, float], target: str) -> tuple[str, ...]:
    parquet = seconds.get("parquet")
    ratio = f"{seconds['plugin'] / parquet:.2f}" if parquet else ""
    cells = [
        f"{seconds[name]:.2f}" if name in seconds else "" for name in ("plugin", "plain", "parquet")
    ]
    return (label, *cells, ratio, target)


def planning(spark: SparkSession, folder: str) -> tuple[str, ...]:
    """Load, analyse and plan a filtered query, without running it."""

    def plan(read: Callable[[], DataFrame]) -> Callable[[], object]:
        return lambda: read().where("id = 5").select("id")._jdf.queryExecution().executedPlan()

    seconds = {name: best(plan(read), 5) for name, read in readers(spark, folder).items()}
    return line("planning a query", seconds, "<= 0.05 s more")


MERGES = 20
KINDS = {"data": "data files", "_deletions": "deletion files", "_versions": "manifests"}


def merges(spark: SparkSession, folder: str, rows: int) -> list[tuple[str, ...]]:
    """Bytes that MERGE statements write, each of which changes one row in a thousand."""
    path = f"{folder}/merged.lance"
    words = [sf.rand(i).alias(f"c{i}") for i in range(10)]
    spark.range(0, rows, 1, FILES).select("id", *words).write.format("lance").save(path)
    before = sizes(path)
    changed, started = 0, time.perf_counter()
    for turn in range(MERGES):
        news = spark.range(turn, rows, 1000, 1).select("id", *words).localCheckpoint()
        news.createOrReplaceTempView("news")
        changed += news.toArrow().nbytes
        spark.sql(
            f"MERGE INTO lance.`{path}` t USING news ON t.id = news.id "
            "WHEN MATCHED THEN UPDATE SET *"
        )
    seconds = time.perf_counter() - started
    written = {kind: size - before.get(kind, 0) for kind, size in sizes(path).items()}
    table = [("rows changed (as Arrow)", f"{changed / 1e6:.2f}", "1")]
    for kind, size in [*written.items(), ("all", sum(written.values()))]:
        table.append((KINDS.get(kind, kind), f"{size / 1e6:.2f}", f"{size / changed:.2f}"))
    table.append(("the whole table once", f"{sum(before.values()) / 1e6:.2f}", ""))
    table.append((f"seconds for a MERGE: {seconds / MERGES:.2f}", "", ""))
    return table


def sizes(path: str) -> dict[str, int]:
    return {
        folder.name: sum(one.stat().st_size for one in folder.iterdir())
        for folder in sorted(Path(path).iterdir())
        if folder.is_dir()
    }


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 3_000_000
    few = max(1000, rows // 15)
    kept = sys.argv[2] if len(sys.argv) > 2 else None
    folder = kept or tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    spark = session()
    try:
        save(wide(spark, rows), f"{folder}/wide", f"id >= {rows - 1000}")
        save(
            vectors(spark, few),
            f"{folder}/vectors",
            f"id >= {few - 100}",
            **{"v.fixed_size_list": "768"},
        )
        table = measure(spark, f"{folder}/wide", f"{rows:,} x 51", rows, "c7")
        table += measure(spark, f"{folder}/vectors", f"{few:,} vectors", few, "kind")
        table.append(planning(spark, f"{folder}/wide"))
        shutil.rmtree(f"{folder}/merged.lance", ignore_errors=True)
        merged = merges(spark, folder, max(1000, rows // 10))
        print_table(
            "The JVM plugin, local[2] (python benchmarks/plugin.py)",
            ("what", "plugin s", "plain s", "parquet s", "plugin / parquet", "target"),
            table,
        )
        print_table(
            f"{MERGES} MERGE statements, each changes 0.1 % of {max(1000, rows // 10):,} rows",
            ("written", "MB", "of the bytes changed"),
            merged,
        )
    finally:
        spark.stop()
        if kept is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""Lance through Spark, beside Spark's own Parquet reader on the same rows.

    python benchmarks/spark.py plugin [--rows 3000000] [--folder FOLDER]
    python benchmarks/spark.py columnar [--rows 3000000] [--repeats 7] [--folder FOLDER] [QUERY ...]
    python benchmarks/spark.py canned [--rows 4000000] [--repeats 9]

``plugin``: queries with the JVM plugin, without it, and over Parquet, on 51 columns and on a
fifteenth as many vectors; the time that planning takes on top; what 20 MERGE statements write.

``columnar``: queries take turns in one session: with batches by shared memory, copied through
Spark's socket, as rows, and over Parquet. The table has the medians of the seconds by the clock and
of the processor, of the JVM and all Python workers together. A QUERY is the start of a label.

``canned``: beside a data source in Python whose batches are already in memory, which is what the
pipe between Python and the JVM allows at best; the options of the source without the plugin.

Tables that a run left in the given folder are measured again; without one, they are removed.
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import (
    fastest,
    fastest_of_each,
    jvm_of,
    noop,
    print_table,
    run,
    save_parquet,
    scratch,
    size_of,
    start_session,
    timed_in_jvm,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from sources import Canned, save_canned

PARTS = 4
FILES = 8


def session() -> SparkSession:
    """Start a session with the plugin, and the source in Python as ``plain_lance``."""
    import pyspark_lance
    from pyspark_lance.spark.data_source import LanceDataSource

    class PlainLance(LanceDataSource):
        """The Python source under a name that no Java class answers to."""

        @classmethod
        def name(cls) -> str:
            return "plain_lance"

    settings = {
        "spark.jars": pyspark_lance.plugin_jar(),
        "spark.sql.catalog.lance": "org.pysparklance.LanceCatalog",
    }
    spark = start_session(settings)
    for source in (PlainLance, Canned):
        spark.dataSource.register(source)
    return spark


# Columns and rows ----------------------------------------------------------------------------


def numbers(rows: int, rng: np.random.Generator) -> pa.Table:
    ten = {f"f{i}": rng.standard_normal(rows) for i in range(5)}
    ten |= {f"i{i}": rng.integers(0, 2**60, rows) for i in range(5)}
    return pa.table(ten)


def strings(rows: int, rng: np.random.Generator) -> pa.Table:
    words = np.array([f"category {i}" for i in range(200)])
    distinct = [f"customer#{i:09d} of somewhere" for i in rng.integers(0, 10**9, rows)]
    return pa.table({"few": words[rng.integers(0, 200, rows)], "distinct": distinct})


def vectors(rows: int, rng: np.random.Generator) -> pa.Table:
    count = max(PARTS, rows // 20)
    values = rng.standard_normal(count * 768).astype(np.float32)
    offsets = np.arange(0, count + 1, dtype=np.int32) * 768
    return pa.table({"v": pa.ListArray.from_arrays(offsets, values)})


def lineitem(rows: int, rng: np.random.Generator) -> pa.Table:
    """Sixteen columns like those of TPC-H's largest table."""

    def words(*some: str) -> np.ndarray:
        return np.array(some)[rng.integers(0, len(some), rows)]

    def days() -> pa.Array:
        return pa.array(rng.integers(8000, 10500, rows).astype(np.int32)).cast(pa.date32())

    def money(most: int) -> np.ndarray:
        return rng.integers(100, most, rows) / 100

    text = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dogs", "carefully", "final"]
    comments = [" ".join(text[i] for i in some) for some in rng.integers(0, len(text), (10_000, 4))]
    return pa.table(
        {
            "orderkey": np.sort(rng.integers(0, rows * 4, rows)),
            "partkey": rng.integers(1, 600_000, rows),
            "suppkey": rng.integers(1, 30_000, rows),
            "linenumber": rng.integers(1, 8, rows).astype(np.int32),
            "quantity": rng.integers(1, 51, rows).astype(np.float64),
            "extendedprice": money(10_000_000),
            "discount": money(1000),
            "tax": money(800),
            "returnflag": words("R", "A", "N"),
            "linestatus": words("O", "F"),
            "shipdate": days(),
            "commitdate": days(),
            "receiptdate": days(),
            "shipinstruct": words("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"),
            "shipmode": words("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK"),
            "comment": np.array(comments)[rng.integers(0, len(comments), rows)],
        }
    )


MAKERS = {"numbers": numbers, "strings": strings, "vectors": vectors, "lineitem": lineitem}


def of(*values: str) -> Callable[[DataFrame], object]:
    return lambda frame: frame.agg(*map(sf.expr, values)).collect()


def grouped(frame: DataFrame) -> object:
    by = frame.groupBy("returnflag", "linestatus")
    return by.agg(sf.sum("quantity"), sf.avg("extendedprice"), sf.count("*")).collect()


def hashed(frame: DataFrame) -> object:
    return frame.agg(sf.sum(sf.hash(*frame.columns))).collect()


QUERIES: dict[str, Callable[[DataFrame], object]] = {
    "numbers: all to a sink of rows": noop,
    "numbers: averages of all": of(*(f"avg({kind}{i})" for kind in "fi" for i in range(5))),
    "numbers: sum of one": of("sum(f0)"),
    "lineitem: all to a sink of rows": noop,
    "lineitem: hash of all": hashed,
    "lineitem: grouped sums": grouped,
    "strings: all to a sink of rows": noop,
    "strings: longest of distinct": of("max(length(`distinct`))"),
    "strings: longest of few": of("max(length(few))"),
    "vectors: all to a sink of rows": noop,
    "vectors: sum of the first numbers": of("sum(v[0])"),
}
WAYS = ("shared", "copied", "off", "parquet")
WARM = 2


def save(spark: SparkSession, base: str, table: pa.Table) -> None:
    """Write the same rows as Parquet and Lance, unless they are there."""
    if os.path.exists(f"{base}.lance"):
        return
    save_parquet(table, f"{base}.parquet", PARTS)
    options = {"v.fixed_size_list": "768"} if table.column_names == ["v"] else {}
    writer = spark.read.parquet(f"{base}.parquet").write.format("lance").options(**options)
    writer.option("maxRowsPerFile", str(-(-table.num_rows // PARTS))).save(f"{base}.lance")


def measure(spark: SparkSession, folder: str, label: str, repeats: int) -> list[object]:
    base, query = f"{folder}/{label.partition(':')[0]}", QUERIES[label]
    lance = spark.read.format("lance").load(f"{base}.lance")
    parquet = spark.read.parquet(f"{base}.parquet")
    jvm = jvm_of(spark)
    found: dict[str, list[tuple]] = {way: [] for way in WAYS}
    for turn in range(repeats + WARM):
        for way in WAYS:
            if way != "parquet":
                spark.conf.set("spark.sql.lance.columnar", way)
            taken = timed_in_jvm(jvm, partial(query, parquet if way == "parquet" else lance))
            if turn >= WARM and taken is not None:
                found[way].append(taken)
    row: list[object] = [label]
    for column in (0, 1):
        medians = {
            way: statistics.median(one[column] for one in costs) for way, costs in found.items()
        }
        ratios = (f"{medians['parquet'] / max(medians[way], 0.01):.2f}" for way in WAYS[:3])
        row += [medians["shared"], medians["parquet"], " ".join(ratios)]
    return row


def columnar(*queries: str, rows: int = 3_000_000, repeats: int = 7, folder: str = "") -> None:
    """Scans as columns and as rows."""
    chosen = [label for label in QUERIES if label.startswith(tuple(queries) or "")]
    with scratch(folder or None) as place:
        spark = session()
        for name in dict.fromkeys(label.partition(":")[0] for label in chosen):
            save(spark, f"{place}/{name}", MAKERS[name](rows, np.random.default_rng(3)))
        found = [measure(spark, place, label, repeats) for label in chosen]
        spark.stop()
    header = (
        "what | columns s | parquet s | parquet / shared, copied, rows | columns processor s | "
        "parquet processor s | parquet / shared, copied, rows"
    )
    title = f"Columns through Spark, {rows:,} rows (vectors: a twentieth), local[2]"
    print_table(title, header, found)


# Queries with the plugin and without ---------------------------------------------------------


def wide(spark: SparkSession, rows: int) -> DataFrame:
    numbers = [sf.rand(i).alias(f"c{i}") for i in range(45)]
    words = [(sf.col("id") % (10 * i + 7)).cast("string").alias(f"s{i}") for i in range(5)]
    return spark.range(0, rows, 1, FILES).select("id", *numbers, *words)


def vectors_in_spark(spark: SparkSession, rows: int) -> DataFrame:
    vector = sf.transform(
        sf.sequence(sf.lit(1), sf.lit(768)), lambda i: (sf.col("id") * i % 97).cast("float")
    )
    return spark.range(0, rows, 1, FILES).select(
        "id", vector.alias("v"), (sf.col("id") % 5).cast("string").alias("kind")
    )


def save_twice(frame: DataFrame, path: str, last: str, **options: str) -> None:
    """Write Parquet, and Lance in two versions: the last rows are the second."""
    if len(list(Path(f"{path}.lance").glob("_versions/*.manifest"))) == 2:
        return
    frame.write.parquet(f"{path}.parquet")
    for mode, condition in (("error", f"NOT ({last})"), ("append", last)):
        rows = frame.sparkSession.read.parquet(f"{path}.parquet").where(condition)
        rows.write.format("lance").mode(mode).options(**options).save(f"{path}.lance")


def readers(spark: SparkSession, path: str) -> dict[str, Callable[[], DataFrame]]:
    plain = spark.read.format("plain_lance").option("metadataColumns", "all")
    return {
        "plugin": lambda: spark.read.format("lance").load(f"{path}.lance"),
        "plain": lambda: plain.load(f"{path}.lance"),
        "parquet": lambda: spark.read.parquet(f"{path}.parquet"),
    }


def plugin_queries(rows: int, column: str) -> dict[str, Callable[[DataFrame], object]]:
    def small_join(frame: DataFrame) -> object:
        keys = frame.sparkSession.range(0, rows, max(1, rows // 100)).withColumnRenamed("id", "k")
        return frame.join(keys, frame["id"] == keys["k"]).select(column).collect()

    return {
        "one column": lambda frame: noop(frame.select(column)),
        "count": lambda frame: frame.count(),
        "point lookup": lambda frame: frame.where(f"id = {rows // 2}").select(column).collect(),
        "small join": small_join,
        "all columns": noop,
    }


def line(label: str, seconds: dict[str, float]) -> list[object]:
    cells = [seconds.get(name) for name in ("plugin", "plain", "parquet")]
    return [label, *cells, cells[0] / cells[2] if cells[2] else ""]


def compare(spark: SparkSession, path: str, what: str, rows: int, column: str) -> list[list]:
    sources = {name: read() for name, read in readers(spark, path).items()}
    lineage = [name for name in sources["plain"].columns if name.startswith("_row")]
    changed = {
        name: frame.where("_row_last_updated_at_version > 1").select("id")
        for name, frame in sources.items()
        if name != "parquet"
    }
    sources["plain"] = sources["plain"].drop(*lineage)
    found = []
    for name, query in plugin_queries(rows, column).items():
        works = (partial(query, frame) for frame in sources.values())
        seconds = (fastest(work, 3).clock for work in works)
        found.append(line(f"{what}: {name}", dict(zip(sources, seconds, strict=True))))
    seconds = {name: fastest(partial(noop, frame), 3).clock for name, frame in changed.items()}
    full = fastest(partial(noop, sources["plugin"]), 3).clock
    row = line(f"{what}: rows changed since version 1", seconds)
    found.append([*row[:-1], f"{seconds['plugin'] / full:.3f} of all"])
    return found


def planning(spark: SparkSession, path: str) -> list[object]:
    """Load, analyse and plan a filtered query, without running it."""

    def plan(read: Callable[[], DataFrame]) -> object:
        return read().where("id = 5").select("id")._jdf.queryExecution().executedPlan()

    reads = readers(spark, path).items()
    return line("planning", {name: fastest(partial(plan, read)).clock for name, read in reads})


MERGES = 20
KINDS = {"data": "data files", "_deletions": "deletion files", "_versions": "manifests"}


def merges(spark: SparkSession, path: str, rows: int) -> list[tuple[object, ...]]:
    """Bytes that MERGE statements write, each of which changes one row in a thousand."""
    shutil.rmtree(path, ignore_errors=True)
    words = [sf.rand(i).alias(f"c{i}") for i in range(10)]
    spark.range(0, rows, 1, FILES).select("id", *words).write.format("lance").save(path)

    def sizes() -> dict[str, int]:
        return {one.name: size_of(str(one)) for one in sorted(Path(path).iterdir())}

    before = sizes()
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
    written = {kind: size - before.get(kind, 0) for kind, size in sizes().items()}
    table: list[tuple[object, ...]] = [("rows changed (as Arrow)", changed / 1e6, "1")]
    for kind, size in [*written.items(), ("all", sum(written.values()))]:
        table.append((KINDS.get(kind, kind), size / 1e6, size / changed))
    table.append(("the whole table once", sum(before.values()) / 1e6, ""))
    return [*table, (f"seconds for a MERGE: {seconds / MERGES:.2f}", "", "")]


def plugin(*, rows: int = 3_000_000, folder: str = "") -> None:
    """Queries with the plugin and without it."""
    few = max(1000, rows // 15)
    with scratch(folder or None) as place:
        spark = session()
        wide_path, vector_path = f"{place}/wide", f"{place}/vectors"
        save_twice(wide(spark, rows), wide_path, f"id >= {rows - 1000}")
        last, options = f"id >= {few - 100}", {"v.fixed_size_list": "768"}
        save_twice(vectors_in_spark(spark, few), vector_path, last, **options)
        table = compare(spark, wide_path, f"{rows:,} x 51", rows, "c7")
        table += compare(spark, vector_path, f"{few:,} vectors", few, "kind")
        table.append(planning(spark, wide_path))
        merged = merges(spark, f"{place}/merged.lance", max(1000, rows // 10))
        spark.stop()
    header = "what | plugin s | plain s | parquet s | plugin / parquet"
    print_table("The JVM plugin, local[2]", header, table)
    title = f"{MERGES} MERGE statements, each changes 0.1 % of {max(1000, rows // 10):,} rows"
    print_table(title, "written | MB | of the bytes changed", merged)


# Beside canned batches -----------------------------------------------------------------------


def canned(*, rows: int = 4_000_000, repeats: int = 9) -> None:
    """Scans by the source in Python beside canned batches."""
    words = np.array([f"category {i}" for i in range(200)])
    rng = np.random.default_rng(3)
    tables = {
        "ten numbers": numbers(rows, rng),
        "dictionary strings": pa.table({"s": words[rng.integers(0, 200, rows)]}),
        "vectors": vectors(rows // 2, rng),
    }
    found: list[tuple[object, ...]] = []

    def add(label: str, *frames: DataFrame) -> None:
        costs = fastest_of_each([partial(noop, one) for one in frames], repeats, repeats // 3)
        own, *others = (cost.clock for cost in costs)
        cells = [cell for other in others for cell in (other, other / own)]
        found.append((label, own, *cells, *[None] * (4 - len(cells))))

    with scratch() as folder:
        spark = session()
        for name, table in tables.items():
            base = f"{folder}/{name.replace(' ', '_')}"
            save(spark, base, table)
            parquet = spark.read.parquet(f"{base}.parquet")
            save_canned(parquet, f"{base}.canned")
            lance = spark.read.format("plain_lance").load(f"{base}.lance")
            batches = spark.read.format("canned").load(f"{base}.canned")
            add(f"full scan, {name}", lance, parquet, batches)

        def reader(**options: str) -> DataFrame:
            return spark.read.format("plain_lance").options(**options).load(ten + ".lance")

        ten = f"{folder}/ten_numbers"
        parquet = spark.read.parquet(f"{ten}.parquet")
        more = parquet.select("*", *(sf.col("i0").alias(f"more{i}") for i in range(4)))
        save_canned(more, f"{folder}/more.canned")
        add("one of ten columns (option columns)", reader(columns="f0"), parquet.select("f0"))
        add("lineage columns only", reader(columns="_rowid,_row_created_at_version"))
        lookup = reader(filter=f"_rowid = {rows // 4}", metadataColumns="_rowid")
        add("point lookup by _rowid (option filter)", lookup, parquet.where("i0 = 1234567"))
        add("change query, nothing new", reader(filter="_row_created_at_version > 1"))
        paths = (f"{ten}.canned", f"{folder}/more.canned")
        pipes = (spark.read.format("canned").load(path) for path in paths)
        frames = (reader(), reader(metadataColumns="all"), *pipes)
        costs = fastest_of_each([partial(noop, one) for one in frames], repeats, repeats // 3)
        plain, with_lineage, pipe, pipe_more = (cost.clock for cost in costs)
        spark.stop()
    header = "what | lance s | parquet s | parquet / lance | canned s | canned / lance"
    print_table("Through Spark without the plugin, local[2], noop sink", header, found)
    print(
        f"\nFour lineage columns add {100 * (with_lineage / plain - 1):.0f} % to ten numeric "
        f"columns; four columns of canned batches add {100 * (pipe_more / pipe - 1):.0f} %."
    )


if __name__ == "__main__":
    run(plugin, columnar, canned)

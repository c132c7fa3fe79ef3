"""Scans with the plugin as columns and as rows, against Spark's Parquet.

python benchmarks/columnar.py [--rows ROWS] [--repeats N] [--folder FOLDER] [QUERY ...]

Queries take turns in one session: by shared memory, copied through Spark's socket, as rows, and
over Parquet. The table has the medians of the seconds by the clock and of those of the processor,
which other work on the machine changes less: of the JVM and all Python workers together. Tables
that a run left in the given folder are measured again; without one, they are removed. A QUERY is
the start of a label.
"""

from __future__ import annotations

import argparse
import gc
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from timing import print_table, processor_seconds

PARTS = 4
WARM = 2
WAYS = ("shared", "copied", "off", "parquet")


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


def noop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


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


def save(spark: SparkSession, folder: str, name: str, rows: int) -> None:
    base = f"{folder}/{name}"
    if os.path.exists(f"{base}.lance"):
        return
    table = MAKERS[name](rows, np.random.default_rng(3))
    part = -(-table.num_rows // PARTS)
    os.makedirs(f"{base}.parquet")
    for i in range(PARTS):
        pq.write_table(table.slice(i * part, part), f"{base}.parquet/{i}.parquet")
    options = {"v.fixed_size_list": "768"} if name == "vectors" else {}
    frame = spark.read.parquet(f"{base}.parquet")
    frame.write.format("lance").options(maxRowsPerFile=str(part), **options).save(f"{base}.lance")


def measure(spark: SparkSession, folder: str, label: str, repeats: int) -> tuple[str, ...]:
    base, query = f"{folder}/{label.partition(':')[0]}", QUERIES[label]
    lance = spark.read.format("lance").load(f"{base}.lance")
    parquet = spark.read.parquet(f"{base}.parquet")
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    seconds: dict[str, list[float]] = {way: [] for way in WAYS}
    processor: dict[str, list[float]] = {way: [] for way in WAYS}
    for turn in range(repeats + WARM):
        for way in WAYS:
            if way != "parquet":
                spark.conf.set("spark.sql.lance.columnar", way)
            gc.collect()
            used, start = processor_seconds(jvm), time.perf_counter()
            query(parquet if way == "parquet" else lance)
            if turn >= WARM:
                seconds[way].append(time.perf_counter() - start)
                processor[way].append(processor_seconds(jvm) - used)
    return (label, *cells(seconds), *cells(processor))


def cells(times: dict[str, list[float]]) -> list[str]:
    medians = {way: statistics.median(found) for way, found in times.items()}
    ratios = [f"{medians['parquet'] / max(medians[way], 0.01):.2f}" for way in WAYS[:3]]
    return [f"{medians['shared']:.2f}", f"{medians['parquet']:.2f}", " ".join(ratios)]


def main() -> None:
    from plugin import session  # needs a Spark that others who import this module may not have

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rows", type=int, default=3_000_000)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--folder")
    parser.add_argument("queries", nargs="*")
    given = parser.parse_args()
    chosen = [q for q in QUERIES if not given.queries or q.startswith(tuple(given.queries))]
    folder = given.folder or tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    spark = session()
    try:
        for name in dict.fromkeys(label.partition(":")[0] for label in chosen):
            save(spark, folder, name, given.rows)
        rows = []
        for label in chosen:
            rows.append(measure(spark, folder, label, given.repeats))
            print(rows[-1], flush=True)
        load = os.getloadavg()[0]
        print_table(
            f"Columns through Spark, {given.rows:,} rows (vectors: a twentieth), local[2], load "
            f"{load:.1f} (python benchmarks/columnar.py)",
            (
                "what",
                "columns s",
                "parquet s",
                "parquet / shared, copied, rows",
                "columns processor s",
                "parquet processor s",
                "parquet / shared, copied, rows",
            ),
            rows,
        )
    finally:
        spark.stop()
        if given.folder is None:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

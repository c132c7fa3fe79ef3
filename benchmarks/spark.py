"""The same through Spark: python benchmarks/spark.py.

Each row compares with Spark's own Parquet reader on the same rows, and with a Python data source
that yields batches already in memory (what the pipe between Python and the JVM allows at best).
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from timing import best, print_table

ROWS = 4_000_000
PARTS = 4


class Canned(DataSource):
    """Yields one batch again and again."""

    @classmethod
    def name(cls) -> str:
        return "canned"

    def schema(self) -> str:
        return self.options["columns"]

    def reader(self, schema):
        return CannedReader(self.options["batch"], int(self.options["times"]))


class CannedReader(DataSourceReader):
    def __init__(self, path: str, times: int) -> None:
        self.path, self.times = path, times

    def partitions(self):
        return [InputPartition(i) for i in range(PARTS)]

    def read(self, partition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(self.path) as source:
            batch = pa.ipc.open_file(source).get_batch(0)
            for _ in range(self.times):
                yield batch


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    ten = {f"f{i}": rng.standard_normal(ROWS) for i in range(5)}
    ten |= {f"i{i}": rng.integers(0, 2**60, ROWS) for i in range(5)}
    words = np.array([f"category {i}" for i in range(200)])
    vectors = rng.standard_normal((100_000, 768)).astype(np.float32)
    offsets = np.arange(0, 100_001, dtype=np.int32) * 768
    return {
        "ten numbers": pa.table(ten),
        "dictionary strings": pa.table({"s": words[rng.integers(0, 200, ROWS)]}),
        "vectors": pa.table(
            {"v": pa.ListArray.from_arrays(offsets, pa.array(vectors.reshape(-1)))}
        ),
    }


def noop(frame: DataFrame) -> Callable[[], None]:
    return lambda: frame.write.format("noop").mode("overwrite").save()


def prepare(spark: SparkSession, folder: str, name: str, table: pa.Table) -> dict[str, DataFrame]:
    """The same rows as Lance, Parquet and canned batches."""
    base = f"{folder}/{name.replace(' ', '_')}"
    os.makedirs(f"{base}.parquet")
    part = table.num_rows // PARTS
    for i in range(PARTS):
        pq.write_table(table.slice(i * part, part), f"{base}.parquet/{i}.parquet")
    parquet = spark.read.parquet(f"{base}.parquet")
    options = {"max_row_per_file": str(part)}
    if name == "vectors":
        options["v.fixed_size_list"] = "768"
    parquet.write.format("lance").mode("append").options(**options).save(f"{base}.lance")
    rows = min(part, 65_536 if name != "vectors" else 2048)
    target = pa.schema([pa.field(f.name, f.type) for f in table.schema])
    with pa.ipc.new_file(f"{base}.arrow", target) as sink:
        sink.write_batch(table.slice(0, rows).combine_chunks().to_batches()[0])
    canned = (
        spark.read.format("canned")
        .options(
            batch=f"{base}.arrow",
            times=-(-part // rows),
            columns=parquet.schema.simpleString(),
        )
        .load()
    )
    return {
        "path": f"{base}.lance",
        "lance": spark.read.format("lance").load(f"{base}.lance"),
        "parquet": parquet,
        "canned": canned,
    }


def main() -> None:
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ["PATH"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.memory", "4g")
        .config("spark.python.unix.domain.socket.enabled", "true")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    spark.dataSource.register(Canned)
    rows = []

    def add(label: str, lance: DataFrame, parquet: DataFrame | None, canned: DataFrame | None):
        mine = best(noop(lance), 3)
        other = best(noop(parquet), 3) if parquet is not None else None
        pipe = best(noop(canned), 3) if canned is not None else None
        rows.append(
            (
                label,
                f"{mine:.2f}",
                f"{other:.2f}" if other else "",
                f"{other / mine:.2f}" if other else "",
                f"{pipe:.2f}" if pipe else "",
                f"{pipe / mine:.2f}" if pipe else "",
            )
        )
        return mine

    try:
        made = {n: prepare(spark, folder, n, t) for n, t in tables().items()}
        plain = 1.0
        for name, frames in made.items():
            seconds = add(
                f"full scan, {name}", frames["lance"], frames["parquet"], frames["canned"]
            )
            plain = seconds if name == "ten numbers" else plain
        ten = made["ten numbers"]
        path = ten["path"]
        reader = lambda **o: spark.read.format("lance").options(**o).load(path)  # noqa: E731
        with_lineage = add("ten numbers and lineage", reader(metadataColumns="all"), None, None)
        add(
            "one of ten columns (option columns)",
            reader(columns="f0"),
            ten["parquet"].select("f0"),
            None,
        )
        add("lineage columns only", reader(columns="_rowid,_row_created_at_version"), None, None)
        add(
            "point lookup by _rowid (option filter)",
            reader(filter="_rowid = 1234567", metadataColumns="_rowid"),
            ten["parquet"].where("i0 = 1234567"),
            None,
        )
        add("change query, nothing new", reader(filter="_row_created_at_version > 1"), None, None)
        print_table(
            "Through Spark, local[2], noop sink (python benchmarks/spark.py)",
            ("what", "lance s", "parquet s", "parquet / lance", "canned s", "canned / lance"),
            rows,
        )
        added = 100 * (with_lineage / plain - 1)
        print(f"\nFour lineage columns add {added:.0f} % to ten numeric columns.")
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

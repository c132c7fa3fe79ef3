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
from timing import best_of_each, print_table

ROWS = 4_000_000
PARTS = 4
REPEATS = 9


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


def numbers() -> pa.Table:
    """Ten numeric columns."""
    rng = np.random.default_rng(3)
    ten = {f"f{i}": rng.standard_normal(ROWS) for i in range(5)}
    ten |= {f"i{i}": rng.integers(0, 2**60, ROWS) for i in range(5)}
    return pa.table(ten)


def tables() -> dict[str, pa.Table]:
    rng = np.random.default_rng(3)
    words = np.array([f"category {i}" for i in range(200)])
    vectors = rng.standard_normal((100_000, 768)).astype(np.float32)
    offsets = np.arange(0, 100_001, dtype=np.int32) * 768
    return {
        "ten numbers": numbers(),
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
    canned = canned_frame(spark, f"{base}.arrow", table, parquet.schema.simpleString())
    return {
        "path": f"{base}.lance",
        "lance": spark.read.format("lance").load(f"{base}.lance"),
        "parquet": parquet,
        "canned": canned,
    }


def canned_frame(spark: SparkSession, path: str, table: pa.Table, columns: str) -> DataFrame:
    """About as many rows as the table has, all of them its first ones."""
    part = table.num_rows // PARTS
    rows = min(part, 2048 if pa.types.is_list(table.schema[0].type) else 65_536)
    plain = pa.schema([pa.field(f.name, f.type) for f in table.schema])
    with pa.ipc.new_file(path, plain) as sink:
        sink.write_batch(table.slice(0, rows).combine_chunks().to_batches()[0])
    canned = spark.read.format("canned")
    return canned.options(batch=path, times=-(-part // rows), columns=columns).load()


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

    def add(
        label: str,
        lance: DataFrame,
        parquet: DataFrame | None = None,
        canned: DataFrame | None = None,
    ) -> None:
        given = [frame for frame in (lance, parquet, canned) if frame is not None]
        times = best_of_each([noop(frame) for frame in given], REPEATS)
        mine = times.pop(0)
        other = times.pop(0) if parquet is not None else None
        pipe = times.pop(0) if canned is not None else None
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

    try:
        made = {n: prepare(spark, folder, n, t) for n, t in tables().items()}
        for name, frames in made.items():
            add(f"full scan, {name}", frames["lance"], frames["parquet"], frames["canned"])
        ten = made["ten numbers"]
        path = ten["path"]
        reader = lambda **o: spark.read.format("lance").options(**o).load(path)  # noqa: E731
        table = numbers()
        for i in range(4):
            table = table.append_column(f"more{i}", table["i0"])
        canned_more = canned_frame(
            spark,
            f"{folder}/more.arrow",
            table,
            ten["canned"]
            .schema.add("more0", "long")
            .add("more1", "long")
            .add("more2", "long")
            .add("more3", "long")
            .simpleString(),
        )
        plain, with_lineage, pipe, pipe_more = best_of_each(
            [
                noop(frame)
                for frame in (
                    ten["lance"],
                    reader(metadataColumns="all"),
                    ten["canned"],
                    canned_more,
                )
            ],
            REPEATS,
        )
        add(
            "one of ten columns (option columns)", reader(columns="f0"), ten["parquet"].select("f0")
        )
        add("lineage columns only", reader(columns="_rowid,_row_created_at_version"))
        add(
            "point lookup by _rowid (option filter)",
            reader(filter="_rowid = 1234567", metadataColumns="_rowid"),
            ten["parquet"].where("i0 = 1234567"),
        )
        add("change query, nothing new", reader(filter="_row_created_at_version > 1"))
        print_table(
            "Through Spark, local[2], noop sink (python benchmarks/spark.py)",
            ("what", "lance s", "parquet s", "parquet / lance", "canned s", "canned / lance"),
            rows,
        )
        added, pipe_added = 100 * (with_lineage / plain - 1), 100 * (pipe_more / pipe - 1)
        print(
            f"\nFour lineage columns add {added:.0f} % to ten numeric columns; any four columns of "
            f"canned batches add {pipe_added:.0f} %."
        )
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

"""A large merge, next to pylance's merge_insert: python benchmarks/merge.py [millions of rows].

1 million source rows go into 10 million target rows: 1 % of the target rows have a match and are
updated, and every other source row is inserted.  Also printed: by how much the Python process that
asks for the merge grows (for Spark, that is the driver; with pylance, it does the work), and all
bytes that a merge writes, against the bytes that the changed rows take in a file of pylance. The
same merge with conditions that are always true shows what a join of Spark takes in its place.

Every run is on a fresh copy of the table, in one Spark session; the JVM compiles what runs often,
so later runs are faster than the first.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from timing import print_table, processor_seconds

from pyspark_lance import LanceTable

MATCHED = 0.01
REPEATS = 5


def rows(ids: np.ndarray, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {"id": ids, "amount": rng.integers(0, 10**6, len(ids))}
    columns |= {f"f{i}": rng.standard_normal(len(ids)) for i in range(4)}
    columns["name"] = np.char.add("customer ", rng.integers(0, 10**6, len(ids)).astype("U7"))
    return pa.table(columns)


def make_target(path: str, count: int) -> None:
    pieces = 10
    for piece in range(pieces):
        ids = np.arange(piece * count // pieces, (piece + 1) * count // pieces)
        lance.write_dataset(
            rows(ids, piece),
            path,
            mode="append" if piece else "create",
            enable_stable_row_ids=True,
            data_storage_version="2.1",
        )


def make_source(count: int) -> pa.Table:
    """A tenth as many rows as the target, a tenth of which are in it: 1 % of the target."""
    matched = np.random.default_rng(7).choice(count, int(count * MATCHED), replace=False)
    new = np.arange(count, count + count // 10 - len(matched))
    ids = np.concatenate([matched, new])
    np.random.default_rng(8).shuffle(ids)
    return rows(ids, 99)


def stored_bytes(path: str) -> int:
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())


def memory(word: str) -> int:
    """Bytes of this process: VmRSS now, or VmHWM at most since ``forget_peak``."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(word):
            return int(line.split()[1]) * 1024
    return 0


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def session() -> SparkSession:
    folder = os.path.dirname(sys.executable)
    os.environ["PATH"] = folder + os.pathsep + os.environ["PATH"]
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.driver.memory", "3g")
    spark = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def upsert(table: LanceTable, source, condition: str | None = None) -> object:
    """With a condition, whatever it is, Spark joins; without one the rows meet in Python."""
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    updates = merge.whenMatchedUpdateAll(condition)
    return updates.whenNotMatchedInsertAll(condition).execute()


@dataclass(frozen=True, order=True)
class Measured:
    """One run."""

    seconds: float
    processor_seconds: float
    bytes_written: int
    bytes_grown: int


def measured(run: Callable[[str], object], folder: str, name: str, repeats: int) -> list[Measured]:
    """Runs on fresh tables, the fastest first."""
    runs = []
    for number in range(repeats):
        path = f"{folder}/{name}{number}"
        shutil.copytree(f"{folder}/target", path)
        before, used = stored_bytes(path), processor_seconds(os.getpid())
        forget_peak()
        held, start = memory("VmRSS"), time.perf_counter()
        run(path)
        one = Measured(
            time.perf_counter() - start,
            processor_seconds(os.getpid()) - used,
            stored_bytes(path) - before,
            memory("VmHWM") - held,
        )
        runs.append(one)
        rows_after = lance.dataset(path).count_rows()
        print(
            f"{name}: {one.seconds:.2f} s, {one.processor_seconds:.2f} processor seconds, "
            f"{rows_after:,} rows afterwards, load {os.getloadavg()[0]:.1f}",
            flush=True,
        )
        shutil.rmtree(path)
    return sorted(runs)


def main() -> None:
    count = int(float(sys.argv[1] if len(sys.argv) > 1 else 10) * 1_000_000)
    folder = tempfile.mkdtemp(prefix="pyspark-lance-merge-")
    try:
        lance.write_dataset(make_source(count), f"{folder}/source")
        make_target(f"{folder}/target", count)
        changed = stored_bytes(f"{folder}/source")

        def merge_by_pylance(path: str) -> None:
            merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
            source = lance.dataset(f"{folder}/source").to_table()
            merge.when_not_matched_insert_all().execute(source)

        theirs = measured(merge_by_pylance, folder, "pylance", 3)
        spark = session()
        source = spark.read.format("lance").load(f"{folder}/source")
        ours = measured(
            lambda path: upsert(LanceTable.forPath(spark, path), source), folder, "ours", REPEATS
        )
        always = "s.id >= 0"
        joined = measured(
            lambda path: upsert(LanceTable.forPath(spark, path), source, always),
            folder,
            "joined",
            REPEATS,
        )
        spark.stop()
        print_table(
            f"Merge of {count // 10:,} rows into {count:,}, fastest run",
            ("", "seconds", "processor seconds", "MB written", "written / changed", "grown MB"),
            [
                (
                    name,
                    f"{runs[0].seconds:.2f}",
                    f"{runs[0].processor_seconds:.2f}",
                    f"{runs[0].bytes_written / 1e6:.1f}",
                    f"{runs[0].bytes_written / changed:.2f}",
                    f"{max(run.bytes_grown for run in runs) / 1e6:.0f}",
                )
                for name, runs in (
                    ("pylance merge_insert", theirs),
                    ("LanceTable.merge", ours),
                    ("LanceTable.merge by a join", joined),
                )
            ],
        )
        print(
            f"\nRatio of the fastest runs {ours[0].seconds / theirs[0].seconds:.1f}, of their "
            f"processor seconds {ours[0].processor_seconds / theirs[0].processor_seconds:.1f}."
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

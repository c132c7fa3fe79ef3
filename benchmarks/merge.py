"""A large merge, next to pylance's merge_insert: python benchmarks/merge.py [millions of rows].

1 million source rows go into 10 million target rows: 1 % of the target rows have a match and are
updated, and every other source row is inserted.  Also printed: what the driver's Python process
holds at most, and bytes written against bytes of the changed rows.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from timing import print_table

from pyspark_lance import LanceTable

MATCHED = 0.01
REPEATS = 3


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


def data_bytes(path: str) -> int:
    return sum(file.stat().st_size for file in (Path(path) / "data").iterdir())


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


def upsert(table: LanceTable, source) -> object:
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    return merge.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def processor_seconds() -> float:
    """Of this process, the JVM and the Python workers: what a busy machine does not falsify."""
    ticks, tree = 0, {os.getpid()}
    stats = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                words = (entry / "stat").read_text().rpartition(")")[2].split()
                stats[int(entry.name)] = (int(words[1]), sum(map(int, words[11:15])))
    for _ in range(len(stats)):
        more = {pid for pid, (parent, _) in stats.items() if parent in tree} - tree
        if not more:
            break
        tree |= more
    ticks = sum(stats[pid][1] for pid in tree if pid in stats)
    return ticks / os.sysconf("SC_CLK_TCK")


def measured(run: Callable[[str], object], folder: str, name: str) -> tuple[float, float, int]:
    """Best seconds, processor seconds and bytes written of ``REPEATS`` runs on fresh tables."""
    best = (float("inf"), 0.0, 0)
    for number in range(REPEATS):
        path = f"{folder}/{name}{number}"
        shutil.copytree(f"{folder}/target", path)
        before, used, start = data_bytes(path), processor_seconds(), time.perf_counter()
        run(path)
        seconds = time.perf_counter() - start
        best = min(best, (seconds, processor_seconds() - used, data_bytes(path) - before))
        rows_after = lance.dataset(path).count_rows()
        print(f"{name}: {seconds:.1f} s, {rows_after:,} rows afterwards", flush=True)
        shutil.rmtree(path)
    return best


def main() -> None:
    count = int(float(sys.argv[1] if len(sys.argv) > 1 else 10) * 1_000_000)
    folder = tempfile.mkdtemp(prefix="pyspark-lance-merge-")
    try:
        lance.write_dataset(make_source(count), f"{folder}/source")
        make_target(f"{folder}/target", count)
        changed = data_bytes(f"{folder}/source")

        def merge_by_pylance(path: str) -> None:
            merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
            source = lance.dataset(f"{folder}/source").to_table()
            merge.when_not_matched_insert_all().execute(source)

        theirs = measured(merge_by_pylance, folder, "pylance")
        spark = session()
        source = spark.read.format("lance").load(f"{folder}/source")
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        ours = measured(
            lambda path: upsert(LanceTable.forPath(spark, path), source), folder, "ours"
        )
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
        spark.stop()
        print_table(
            f"Merge of {count // 10:,} rows into {count:,}",
            ("", "seconds", "processor seconds", "bytes written / bytes changed"),
            [
                (name, f"{seconds:.1f}", f"{used:.1f}", f"{written / changed:.2f}")
                for name, (seconds, used, written) in (
                    ("pylance merge_insert", theirs),
                    ("LanceTable.merge", ours),
                )
            ],
        )
        print(f"\nRatio {ours[0] / theirs[0]:.1f}; the driver's Python process grew by "
              f"{grown / 1024:.0f} MB.")  # fmt: skip
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

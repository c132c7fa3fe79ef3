"""A large merge, next to pylance's merge_insert: python benchmarks/merge.py [millions of rows].

1 million source rows go into 10 million target rows: 1 % of the target rows have a match and are
updated, and every other source row is inserted.  Also printed: what the driver's Python process
holds at most, and bytes written against bytes of the changed rows.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from timing import print_table

from pyspark_lance import LanceTable

MATCHED = 0.01


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


def main() -> None:
    count = int(float(sys.argv[1] if len(sys.argv) > 1 else 10) * 1_000_000)
    folder = tempfile.mkdtemp(prefix="pyspark-lance-merge-")
    try:
        source = make_source(count)
        make_target(f"{folder}/ours", count)
        shutil.copytree(f"{folder}/ours", f"{folder}/theirs")
        shutil.copytree(f"{folder}/ours", f"{folder}/warm")
        before = data_bytes(f"{folder}/ours")
        lance.write_dataset(source, f"{folder}/source")

        start = time.perf_counter()
        dataset = lance.dataset(f"{folder}/theirs")
        merge = dataset.merge_insert("id").when_matched_update_all()
        merge.when_not_matched_insert_all().execute(lance.dataset(f"{folder}/source").to_table())
        theirs = time.perf_counter() - start
        theirs_bytes = data_bytes(f"{folder}/theirs") - before

        spark = session()
        new = spark.read.format("lance").load(f"{folder}/source")
        few = new.limit(1000)
        upsert(LanceTable.forPath(spark, f"{folder}/warm"), few)  # starts the Python workers
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.perf_counter()
        result = upsert(LanceTable.forPath(spark, f"{folder}/ours"), new)
        ours = time.perf_counter() - start
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - held
        ours_bytes = data_bytes(f"{folder}/ours") - before
        expected = lance.dataset(f"{folder}/theirs").count_rows()
        if lance.dataset(f"{folder}/ours").count_rows() != expected:
            raise SystemExit("the two merges disagree")
        spark.stop()
        changed = data_bytes(f"{folder}/source")
        print_table(
            f"Merge of {source.num_rows:,} rows into {count:,}: {result}",
            ("", "seconds", "bytes written / bytes changed"),
            [
                ("pylance merge_insert", f"{theirs:.1f}", f"{theirs_bytes / changed:.2f}"),
                ("LanceTable.merge", f"{ours:.1f}", f"{ours_bytes / changed:.2f}"),
                ("ratio", f"{ours / theirs:.1f}", ""),
            ],
        )
        print(f"\nThe driver's Python process grew by {grown / 1024:.0f} MB.")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

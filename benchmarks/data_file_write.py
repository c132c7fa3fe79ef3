"""Writing data files: ours against pylance, one thread each, as ratios in one run.

    python benchmarks/data_file_write.py [--rows 4000000] [--versions 2.1,2.2] [--only int64]

MB/s are of Arrow data; speed above 1 means that we are faster, size below 1 that our file is
smaller. Both write to a local folder and are given the same batches.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

os.environ.setdefault("LANCE_CPU_THREADS", "1")
os.environ.setdefault("LANCE_LOG", "error")

import numpy as np
import pyarrow as pa
from lance.file import LanceFileWriter

from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.open_store import open_store

BATCH_ROWS = 1 << 16


def columns(rows: int):
    """Name -> array."""
    random = np.random.default_rng(7)
    few = max(1, rows // 100)
    masked = random.random(rows) < 0.1
    words = np.array([f"word-{number}" for number in range(1000)])
    names = pa.array(np.char.add("user-", random.integers(0, 1 << 40, rows // 4).astype(str)))
    offsets = np.concatenate(([0], np.cumsum(random.integers(0, 6, rows // 4)))).astype(np.int32)
    floats = random.standard_normal(rows)
    yield "int64 small", pa.array(random.integers(0, 1000, rows))
    yield "int64 sequence", pa.array(np.arange(rows))
    yield "int64 random", pa.array(random.integers(-(1 << 62), 1 << 62, rows))
    yield "int64 small with nulls", pa.array(random.integers(0, 1000, rows), mask=masked)
    yield "int64 negative", pa.array(random.integers(-100, 100, rows))
    yield "int64 runs", pa.array(np.repeat(random.integers(0, 1000, rows // 20 + 1), 20)[:rows])
    yield "int32 small", pa.array(random.integers(0, 1000, rows).astype(np.int32))
    yield "int16 random", pa.array(random.integers(-30000, 30000, rows).astype(np.int16))
    yield "timestamp", pa.array(1_600_000_000_000_000 + np.arange(rows) * 1000, pa.timestamp("us"))
    yield "float64", pa.array(floats)
    yield "float64 with nulls", pa.array(floats, mask=masked)
    yield "float64 few values", pa.array(random.integers(0, 1000, rows).astype(np.float64))
    yield "float32 uniform", pa.array(random.random(rows).astype(np.float32))
    yield "bool", pa.array(random.random(rows) < 0.5)
    vectors = pa.array(random.standard_normal(few * 768).astype(np.float32))
    yield "vectors 768 x float32", pa.FixedSizeListArray.from_arrays(vectors, 768)
    yield "vectors 8 x float32", pa.FixedSizeListArray.from_arrays(vectors, 8)
    yield "strings of 1000 words", pa.array(words[random.integers(0, 1000, rows)])
    yield (
        "dictionary of 1000 words",
        pa.DictionaryArray.from_arrays(
            pa.array(random.integers(0, 1000, rows).astype(np.int32)), pa.array(words)
        ),
    )
    yield "strings distinct", names
    yield "strings of 400 bytes", pa.array([f"{number:0400}" for number in range(few)])
    items = pa.array(random.integers(0, 1000, int(offsets[-1])).astype(np.int32))
    yield "list<int32>", pa.ListArray.from_arrays(pa.array(offsets), items)


def write_ours(folder: str, table: pa.Table, version: str) -> int:
    """Seconds are the caller's; returns the size of the file."""
    schema = LanceSchema.from_arrow(table.schema)
    writer = DataFileWriter(open_store(folder), "data/ours.lance", schema, version=version)
    for batch in table.to_batches(max_chunksize=BATCH_ROWS):
        writer.write(batch)
    return writer.finish().size_bytes


def write_theirs(folder: str, table: pa.Table, version: str) -> int:
    path = f"{folder}/data/theirs.lance"
    with LanceFileWriter(path, table.schema, version=version) as writer:
        for batch in table.to_batches(max_chunksize=BATCH_ROWS):
            writer.write_batch(batch)
    return os.path.getsize(path)


def fastest(write, folder: str, table: pa.Table, version: str, repeats: int) -> tuple[float, int]:
    best, size = float("inf"), 0
    for _ in range(repeats):
        start = time.perf_counter()
        size = write(folder, table, version)
        best = min(best, time.perf_counter() - start)
    return best, size


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--versions", default="2.1,2.2")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    print(f"{'column':28} version   ours  theirs MB/s  speed   size")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data").mkdir()
        for name, array in columns(arguments.rows):
            if arguments.only not in name:
                continue
            table = pa.table({"c": array})
            for version in arguments.versions.split(","):
                ours, our_size = fastest(write_ours, folder, table, version, arguments.repeats)
                theirs, size = fastest(write_theirs, folder, table, version, arguments.repeats)
                megabytes = array.nbytes / 1e6
                print(
                    f"{name:28} {version:>7} {megabytes / ours:6.0f} {megabytes / theirs:7.0f}"
                    f" {theirs / ours:11.2f} {our_size / size:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

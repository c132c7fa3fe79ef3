"""Writing data files: ours against pylance, one thread each, as ratios in one run.

    python benchmarks/data_file_write.py [--rows 4000000] [--versions 2.1,2.2] [--only int64]

MB/s are of Arrow data; speed above 1 means that we are faster, by the clock and by the time of the
processor, size below 1 that our file is smaller. Both write to a local folder, take turns and are
given the same batches.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
    yield "text of 400 bytes", _texts(random, few, 60)
    yield "text of 40 bytes", _texts(random, rows // 20, 6)
    yield "hexadecimals of 400 bytes", pa.array([random.bytes(200).hex() for _ in range(few)])
    items = pa.array(random.integers(0, 1000, int(offsets[-1])).astype(np.int32))
    yield "list<int32>", pa.ListArray.from_arrays(pa.array(offsets), items)


def _texts(random: np.random.Generator, count: int, length: int) -> pa.Array:
    """Texts of ``length`` made-up words; frequent letters are frequent."""
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxz"))
    weights = 1 / np.arange(1, len(letters) + 1)
    drawn = random.choice(letters, (5000, 10), p=weights / weights.sum())
    sizes = random.integers(2, 11, len(drawn))
    words = ["".join(word[:size]) for word, size in zip(drawn, sizes, strict=True)]
    return pa.array([" ".join(text) for text in random.choice(words, (count, length))])


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


class Best(NamedTuple):
    """The shortest times seen, in seconds, and the size of the file."""

    clock: float = float("inf")
    processor: float = float("inf")
    size: int = 0

    def after(self, write: Callable[[], int]) -> Best:
        clock, processor = time.perf_counter(), time.process_time()
        size = write()
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        return Best(min(self.clock, clock), min(self.processor, processor), size)


def measure(folder: str, table: pa.Table, version: str, repeats: int) -> tuple[Best, Best]:
    """Ours and pylance's."""
    ours, theirs = Best(), Best()
    for _ in range(repeats):
        ours = ours.after(lambda: write_ours(folder, table, version))
        theirs = theirs.after(lambda: write_theirs(folder, table, version))
    return ours, theirs


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--versions", default="2.1,2.2")
    parser.add_argument("--only", default="")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    print(f"{'column':28} version   ours  theirs MB/s  speed  by CPU   size")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "data").mkdir()
        for name, array in columns(arguments.rows):
            if arguments.only not in name:
                continue
            table = pa.table({"c": array})
            for version in arguments.versions.split(","):
                ours, theirs = measure(folder, table, version, arguments.repeats)
                megabytes = array.nbytes / 1e6
                print(
                    f"{name:28} {version:>7}"
                    f" {megabytes / ours.clock:6.0f} {megabytes / theirs.clock:7.0f}"
                    f" {theirs.clock / ours.clock:11.2f} {theirs.processor / ours.processor:7.2f}"
                    f" {ours.size / theirs.size:6.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()

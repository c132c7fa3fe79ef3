"""How fast data files are read, against pylance on the same files in the same process.

    python benchmarks/data_file_read.py [--rows 4000000] [--cases int64_small,...] [--versions 2.1]

The page cache is warm, one thread decodes, batches are dropped as they come. MB/s counts decoded
Arrow bytes. pylance is given the batch size it is fastest with. The ratio is pylance's time over
ours: above 1 we are faster.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

# pylance reads these when it is loaded.
os.environ.setdefault("LANCE_CPU_THREADS", "1")
os.environ.setdefault("LANCE_IO_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.local_store import LocalStore

PYLANCE_BATCH_ROWS = (8_192, 65_536, 1 << 20)
WRITE_ROWS = 1 << 20
WORDS = (
    "the quick brown fox jumps over lazy dog lorem ipsum dolor sit amet vector database column "
    "format encoding random access"
).split()


def make_case(name: str, rows: int) -> pa.Array:
    """The column of a case; about 8 bytes per row."""
    rng = np.random.default_rng(1)
    nulls = rng.random(rows) < 0.1
    few = rng.integers(0, 100, rows // 2)
    if name == "int64_small":
        return pa.array(rng.integers(0, 100_000, rows))
    if name == "int64_small_null":
        return pa.array(rng.integers(0, 100_000, rows), mask=nulls)
    if name == "int64_seq":
        return pa.array(np.arange(rows))
    if name == "int64_runs":
        return pa.array(np.repeat(rng.integers(0, 1 << 40, rows // 20 + 1), 20)[:rows])
    if name == "int32_small":
        return pa.array(rng.integers(0, 10_000, 2 * rows), pa.int32())
    if name == "timestamp":
        return pa.array(rng.integers(16 * 10**14, 17 * 10**14, rows), pa.timestamp("us"))
    if name == "float64":
        return pa.array(rng.standard_normal(rows))
    if name == "float64_null":
        return pa.array(rng.standard_normal(rows), mask=nulls)
    if name == "float64_unit":
        return pa.array(rng.random(rows))
    if name == "bool_null":
        return pa.array(rng.random(8 * rows) < 0.5, mask=np.repeat(nulls, 8))
    if name == "string_low":
        return pa.array([f"category-{i}" for i in range(100)]).take(pa.array(few))
    if name == "dictionary":
        words = pa.array([f"category-{i}" for i in range(100)])
        return pa.DictionaryArray.from_arrays(pa.array(few, pa.int32()), words)
    if name == "string_high":
        numbers = pa.array(rng.integers(0, 1 << 40, rows // 2)).cast(pa.string())
        return pc.binary_join_element_wise("user", numbers, "-")
    if name == "string_high_null":
        numbers = pa.array(rng.integers(0, 1 << 40, rows // 2), mask=nulls[: rows // 2])
        return pc.binary_join_element_wise("user", numbers.cast(pa.string()), "-")
    if name == "string_text":
        texts = [
            " ".join(rng.choice(WORDS, int(rng.integers(2, 8)))) + f" {i}" for i in range(50_000)
        ]
        return pa.array(texts).take(pa.array(rng.integers(0, 50_000, rows // 5)))
    if name == "vector_768":
        values = rng.standard_normal(rows // 50 * 768).astype("f4")
        return pa.FixedSizeListArray.from_arrays(pa.array(values), 768)
    if name in ("list", "list_empty"):
        lengths = rng.integers(0 if name == "list_empty" else 1, 6, rows // 5)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
        items = pa.array(rng.integers(0, 10_000, offsets[-1]), pa.int32())
        return pa.ListArray.from_arrays(pa.array(offsets), items)
    if name == "struct_null":
        parts = [make_case("int64_small", rows // 2), make_case("float64", rows // 2)]
        return pa.StructArray.from_arrays(parts, ["a", "b"], mask=pa.array(nulls[: rows // 2]))
    raise ValueError(name)


CASES = (
    "int64_small int64_small_null int64_seq int64_runs int32_small timestamp float64 float64_null "
    "float64_unit bool_null string_low dictionary string_high string_high_null string_text "
    "vector_768 list list_empty struct_null"
).split()


def write_file(path: Path, column: pa.Array, version: str) -> None:
    """One column, written by pylance in its default way."""
    from lance.file import LanceFileWriter

    schema = pa.schema([("c", column.type)])
    with LanceFileWriter(str(path), schema, version=version) as writer:
        for start in range(0, len(column), WRITE_ROWS):
            writer.write_batch(pa.record_batch([column.slice(start, WRITE_ROWS)], schema=schema))


def best_time(batches: Callable[[], Iterator[pa.RecordBatch]], runs: int) -> tuple[float, int]:
    """Seconds of the fastest run, and the bytes of its batches."""
    best, size = float("inf"), 0
    for _ in range(runs):
        gc.collect()
        start = time.perf_counter()
        size = sum(batch.nbytes for batch in batches())
        best = min(best, time.perf_counter() - start)
    return best, size


def measure(path: Path, runs: int) -> tuple[float, float]:
    """MB/s of ours and of pylance."""
    from lance.file import LanceFileReader

    def ours() -> Iterator[pa.RecordBatch]:
        reader = DataFileReader.open(LocalStore(str(path.parent)), path.name)
        return reader.read_batches(reader.schema.fields, reader.embedded_columns())

    def theirs(batch_rows: int) -> Iterator[pa.RecordBatch]:
        return LanceFileReader(str(path)).read_all(batch_size=batch_rows).to_batches()

    seconds, size = best_time(ours, runs)
    pylance = min(
        best_time(lambda rows=rows: theirs(rows), max(2, runs // 2))[0]
        for rows in PYLANCE_BATCH_ROWS
    )
    return size / seconds / 1e6, size / pylance / 1e6


def main() -> int:
    """Prints one line per case and version."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--versions", default="2.0,2.1,2.2")
    parser.add_argument("--folder", help="keeps the files here and reuses them")
    args = parser.parse_args()
    print(f"{'case':18}{'version':>8}{'ours MB/s':>12}{'pylance MB/s':>14}{'ratio':>8}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.cases.split(","):
            column: pa.Array | None = None
            for version in args.versions.split(","):
                path = folder / f"{name}_{args.rows}_{version}.lance"
                if not path.exists():
                    if column is None:
                        column = make_case(name, args.rows)
                    try:
                        write_file(path, column, version)
                    except OSError:  # structs with nulls do not fit into 2.0
                        path.unlink(missing_ok=True)
                        continue
                ours, pylance = measure(path, args.runs)
                ratio = ours / pylance
                print(f"{name:18}{version:>8}{ours:12.0f}{pylance:14.0f}{ratio:8.2f}", flush=True)
                if not args.folder:
                    path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())

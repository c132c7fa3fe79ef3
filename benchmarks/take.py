"""How fast single rows are read: random rows of one data file, against pylance on the same file.

    python benchmarks/take.py [--rows 10000000] [--take 1000] [--versions 2.1] [--cases int64]

Files are written by pylance in its default way, or with the compression that a case is named
after, and are warm; both readers are opened before, and have read once. Every run takes other rows,
in ascending order. The ratio is our time over pylance's: below 1 we are faster.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("LANCE_CPU_THREADS", "1")
os.environ.setdefault("LANCE_IO_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from lance.file import LanceFileReader, LanceFileWriter
from timing import print_table

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.local_store import LocalStore

WRITE_ROWS = 1 << 20


class Maker:
    """Makes columns of ``rows`` rows. Every public method is a case."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._rng = np.random.default_rng(1)
        self._nulls = self._rng.random(rows) < 0.1

    def int64(self) -> pa.Array:
        return pa.array(self._rng.integers(-(1 << 62), 1 << 62, self._rows))

    def int64_small(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100_000, self._rows))

    def int64_small_null(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100_000, self._rows), mask=self._nulls)

    def float64(self) -> pa.Array:
        return pa.array(self._rng.standard_normal(self._rows))

    def float64_null(self) -> pa.Array:
        return pa.array(self._rng.standard_normal(self._rows), mask=self._nulls)

    def string(self) -> pa.Array:
        return self._users(None)

    def string_null(self) -> pa.Array:
        return self._users(self._nulls)

    def string_low(self) -> pa.Array:
        words = pa.array([f"category-{number}" for number in range(100)])
        return words.take(pa.array(self._rng.integers(0, 100, self._rows), pa.int32()))

    def string_300(self) -> pa.Array:
        numbers = pa.array(np.arange(self._rows // 50)).cast(pa.string())
        return pc.binary_join_element_wise(numbers, "some words of text " * 15, "-")

    def string_zstd(self) -> pa.Array:
        return self._users(None)

    def string_lz4(self) -> pa.Array:
        return self._users(None)

    def string_300_zstd(self) -> pa.Array:
        return self.string_300()

    def int64_small_zstd(self) -> pa.Array:
        return self.int64_small()

    def vector(self) -> pa.Array:
        values = self._rng.standard_normal(self._rows // 100 * 768).astype("f4")
        return pa.FixedSizeListArray.from_arrays(pa.array(values), 768)

    def list(self) -> pa.Array:
        return self._lists(1)

    def list_empty(self) -> pa.Array:
        return self._lists(0)

    def struct(self) -> pa.Array:
        return pa.StructArray.from_arrays([self.int64_small(), self.float64()], ["a", "b"])

    def _users(self, missing: np.ndarray | None) -> pa.Array:
        numbers = pa.array(self._rng.integers(0, 1 << 40, self._rows), mask=missing)
        return pc.binary_join_element_wise("user", numbers.cast(pa.string()), "-")

    def _lists(self, shortest: int) -> pa.Array:
        lengths = self._rng.integers(shortest, 6, self._rows // 4)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
        items = pa.array(self._rng.integers(0, 10_000, offsets[-1]), pa.int32())
        return pa.ListArray.from_arrays(pa.array(offsets), items)


CASES = [name for name in vars(Maker) if not name.startswith("_")]
COMPRESSIONS = ("zstd", "lz4")


def write_file(path: Path, column: pa.Array, version: str, compression: str | None) -> None:
    """One column, written by pylance."""
    metadata = {"lance-encoding:compression": compression} if compression else None
    schema = pa.schema([pa.field("c", column.type, metadata=metadata)])
    with LanceFileWriter(str(path), schema, version=version) as writer:
        for start in range(0, len(column), WRITE_ROWS):
            writer.write_batch(pa.record_batch([column.slice(start, WRITE_ROWS)], schema=schema))


def measure(path: Path, rows: int, take: int, runs: int) -> tuple[float, float]:
    """Seconds of the fastest take of ours and of pylance; they take turns."""
    ours = DataFileReader.open(LocalStore(str(path.parent)), path.name)
    fields, columns = ours.schema.fields, ours.embedded_columns()
    theirs = LanceFileReader(str(path))
    rng = np.random.default_rng(2)
    best = [float("inf")] * 2
    for run in range(runs + 1):
        wanted = np.sort(rng.choice(rows, min(take, rows), replace=False))
        listed = wanted.tolist()
        seconds = [
            timed(lambda wanted=wanted: ours.take(fields, columns, wanted)),
            timed(lambda listed=listed: theirs.take_rows(listed).to_table()),
        ]
        if run:
            best = [min(pair) for pair in zip(best, seconds, strict=True)]
    return best[0], best[1]


def timed(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def main() -> int:
    """Prints one row per case, version and number of rows taken."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--take", default="1000,10000")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--versions", default="2.0,2.1,2.2")
    parser.add_argument("--folder", help="keeps the files here and reuses them")
    args = parser.parse_args()
    found: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(args.folder or scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name in args.cases.split(","):
            column: pa.Array | None = None
            for version in args.versions.split(","):
                path = folder / f"{name}_{args.rows}_{version}.lance"
                if not path.exists():
                    if column is None:
                        column = getattr(Maker(args.rows), name)()
                    compression = name.split("_")[-1]
                    asked = compression if compression in COMPRESSIONS else None
                    write_file(path, column, version, asked)
                rows = DataFileReader.open(LocalStore(str(folder)), path.name).num_rows
                for take in args.take.split(","):
                    ours, theirs = measure(path, rows, int(take), args.runs)
                    ratio = f"{ours / theirs:.2f}"
                    line = (name, version, f"{rows:,}", take, f"{ours * 1e3:.1f}",
                            f"{theirs * 1e3:.1f}", ratio)  # fmt: skip
                    found.append(line)
                if not args.folder:
                    path.unlink()
    header = ("column", "version", "rows", "taken", "ours ms", "pylance ms", "ratio")
    print_table("Random rows of one file", header, found)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""How fast data files are read, against pylance on the same files in the same process.

    python benchmarks/data_file_read.py [--rows 4000000] [--cases int64_small,...] [--versions 2.1]

The page cache is warm, one thread decodes, batches are dropped as they come. MB/s counts decoded
Arrow bytes. pylance is given the batch size it is fastest with. The ratios are pylance's time over
ours, above 1 we are faster: by the clock, and by the processor time of all threads (pylance reads
and hands over batches in others than the one that decodes).

    python benchmarks/data_file_read.py --defaults

gives pylance its default batch size and all the threads it asks for.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

# pylance reads these when it is loaded.
if "--defaults" not in sys.argv:
    os.environ.setdefault("LANCE_CPU_THREADS", "1")
    os.environ.setdefault("LANCE_IO_THREADS", "1")

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.store.local_store import LocalStore

PYLANCE_BATCH_ROWS = (8_192, 65_536, 1 << 20)
DEFAULT_BATCH_ROWS = (1_024,)
WRITE_ROWS = 1 << 20
WORDS = ["the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "lorem", "ipsum"]


class Maker:
    """Makes the column of a case; ``rows`` values of 8 bytes, or about as many bytes.

    Every public method is a case.
    """

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._rng = np.random.default_rng(1)
        self._nulls = self._rng.random(rows) < 0.1

    def int64_small(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100_000, self._rows))

    def int64_small_null(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100_000, self._rows), mask=self._nulls)

    def int64_seq(self) -> pa.Array:
        return pa.array(np.arange(self._rows))

    def int64_runs(self) -> pa.Array:
        values = self._rng.integers(0, 1 << 40, self._rows // 20 + 1)
        return pa.array(np.repeat(values, 20)[: self._rows])

    def int32_small(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 10_000, 2 * self._rows), pa.int32())

    def timestamp(self) -> pa.Array:
        return pa.array(
            self._rng.integers(16 * 10**14, 17 * 10**14, self._rows), pa.timestamp("us")
        )

    def float64(self) -> pa.Array:
        return pa.array(self._rng.standard_normal(self._rows))

    def float64_null(self) -> pa.Array:
        return pa.array(self._rng.standard_normal(self._rows), mask=self._nulls)

    def float64_unit(self) -> pa.Array:
        return pa.array(self._rng.random(self._rows))

    def bool_null(self) -> pa.Array:
        return pa.array(self._rng.random(8 * self._rows) < 0.5, mask=np.repeat(self._nulls, 8))

    def string_low(self) -> pa.Array:
        return self._few_words().take(self._few_indices())

    def dictionary(self) -> pa.Array:
        return pa.DictionaryArray.from_arrays(self._few_indices(), self._few_words())

    def string_high(self) -> pa.Array:
        return self._users(None)

    def string_high_null(self) -> pa.Array:
        return self._users(self._nulls[: self._rows // 2])

    def string_text(self) -> pa.Array:
        texts = [
            " ".join(self._rng.choice(WORDS, int(self._rng.integers(2, 8)))) + f" {number}"
            for number in range(50_000)
        ]
        return pa.array(texts).take(pa.array(self._rng.integers(0, 50_000, self._rows // 5)))

    def vector_768(self) -> pa.Array:
        values = self._rng.standard_normal(self._rows // 50 * 768).astype("f4")
        return pa.FixedSizeListArray.from_arrays(pa.array(values), 768)

    def list(self) -> pa.Array:
        return self._lists(1)

    def list_empty(self) -> pa.Array:
        return self._lists(0)

    def struct_null(self) -> pa.Array:
        parts = [self.int64_small()[: self._rows // 2], self.float64()[: self._rows // 2]]
        mask = pa.array(self._nulls[: self._rows // 2])
        return pa.StructArray.from_arrays(parts, ["a", "b"], mask=mask)

    def _few_words(self) -> pa.Array:
        return pa.array([f"category-{number}" for number in range(100)])

    def _few_indices(self) -> pa.Array:
        return pa.array(self._rng.integers(0, 100, self._rows // 2), pa.int32())

    def _users(self, missing: np.ndarray | None) -> pa.Array:
        numbers = pa.array(self._rng.integers(0, 1 << 40, self._rows // 2), mask=missing)
        return pc.binary_join_element_wise("user", numbers.cast(pa.string()), "-")

    def _lists(self, shortest: int) -> pa.Array:
        lengths = self._rng.integers(shortest, 6, self._rows // 5)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype("i4")
        items = pa.array(self._rng.integers(0, 10_000, offsets[-1]), pa.int32())
        return pa.ListArray.from_arrays(pa.array(offsets), items)


CASES = [name for name in vars(Maker) if not name.startswith("_")]


def write_file(path: Path, column: pa.Array, version: str) -> None:
    """One column, written by pylance in its default way."""
    from lance.file import LanceFileWriter

    schema = pa.schema([("c", column.type)])
    with LanceFileWriter(str(path), schema, version=version) as writer:
        for start in range(0, len(column), WRITE_ROWS):
            writer.write_batch(pa.record_batch([column.slice(start, WRITE_ROWS)], schema=schema))


class Best(NamedTuple):
    """The shortest times seen: by the clock and of the processor, in seconds."""

    clock: float = float("inf")
    processor: float = float("inf")

    def after(self, read: Callable[[], Iterator[pa.RecordBatch]]) -> tuple[Best, int]:
        """Opens a file and goes through its batches; also returns their bytes.

        Opening counts: pylance begins to fetch before the first batch is asked for.
        """
        gc.collect()
        clock, processor = time.perf_counter(), time.process_time()
        size = sum(batch.nbytes for batch in read())
        clock, processor = time.perf_counter() - clock, time.process_time() - processor
        return Best(min(self.clock, clock), min(self.processor, processor)), size


def measure(path: Path, runs: int, batch_rows: Sequence[int]) -> tuple[Best, Best, int]:
    """Ours, pylance's, and the decoded bytes; both take turns, so a busy machine slows both."""
    from lance.file import LanceFileReader

    def read_ours() -> Iterator[pa.RecordBatch]:
        reader = DataFileReader.open(LocalStore(str(path.parent)), path.name)
        return reader.read_batches(reader.schema.fields, reader.embedded_columns())

    ours, pylance, size = Best(), Best(), 0
    for run in range(runs):
        ours, size = ours.after(read_ours)
        rows_here = batch_rows[run % len(batch_rows)]
        pylance, _ = pylance.after(
            lambda rows=rows_here: LanceFileReader(str(path)).read_all(batch_size=rows).to_batches()
        )
    return ours, pylance, size


def main() -> int:
    """Prints one line per case and version."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=4_000_000)
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--versions", default="2.0,2.1,2.2")
    parser.add_argument("--folder", help="keeps the files here and reuses them")
    parser.add_argument("--defaults", action="store_true", help="both as they come")
    args = parser.parse_args()
    if not args.defaults:
        pa.set_cpu_count(1)  # as Spark's tasks have it
    batch_rows = DEFAULT_BATCH_ROWS if args.defaults else PYLANCE_BATCH_ROWS
    print(f"{'case':18}{'version':>8}{'ours MB/s':>11}{'pylance':>9}{'ratio':>7}{'by CPU':>8}")
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
                    try:
                        write_file(path, column, version)
                    except ValueError:  # structs with nulls do not fit into 2.0
                        path.unlink(missing_ok=True)
                        continue
                ours, pylance, size = measure(path, args.runs, batch_rows)
                rates = f"{size / ours.clock / 1e6:11.0f}{size / pylance.clock / 1e6:9.0f}"
                clock, processor = (b / a for a, b in zip(ours, pylance, strict=True))
                print(f"{name:18}{version:>8}{rates}{clock:7.2f}{processor:8.2f}", flush=True)
                if not args.folder:
                    path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())

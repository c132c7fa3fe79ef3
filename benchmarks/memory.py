"""Peak memory of scans and writes: python benchmarks/memory.py.

Each row is measured in a process of its own: how much its resident memory grows from after the
imports to the highest point.  "allocated" leaves out the pages of memory mapped files, which the
system takes back when it needs them; "resident" has them too, and "process" is the highest point
itself.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
from harness import in_child, memory_mb, plan, print_table, run, scratch, write

MIB = 1 << 20


def vectors(rows: int, width: int = 768) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(1)
    for start in range(0, rows, 5000):
        count = min(5000, rows - start)
        values = pa.array(rng.random(count * width, dtype=np.float32))
        vector = pa.FixedSizeListArray.from_arrays(values, width)
        yield pa.record_batch({"id": pa.array(np.arange(start, start + count)), "v": vector})


def narrow(rows: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(2)
    for start in range(0, rows, 10_000):
        ids = np.arange(start, start + 10_000)
        numbers = {f"f{i}": rng.random(10_000) for i in range(8)}
        texts = pa.array([f"user-{v:x}-{v % 977}" for v in rng.integers(0, 1 << 40, 10_000)])
        yield pa.record_batch({"id": ids, **numbers, "s": texts})


def wide(rows: int, size: int, kind: pa.DataType) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(3)
    for start in range(rows):
        value = rng.integers(97, 123, size, dtype=np.uint8).tobytes()
        array = pa.array([value.decode() if kind == pa.string() else value], kind)
        yield pa.record_batch({"id": [start], "x": array})


def long_strings(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    """Batches of 64 MB whose columns share one buffer, as Spark hands them over."""
    rng = np.random.default_rng(4)
    for start in range(0, rows, 1300):
        count = min(1300, rows - start)
        word = rng.integers(97, 123, (count, size // 50), dtype=np.uint8)
        offsets = pa.py_buffer(np.arange(count + 1, dtype=np.int32) * (size // 50 * 50))
        content = pa.py_buffer(np.tile(word, 50))
        texts = pa.StringArray.from_buffers(count, offsets, content)
        batch = pa.record_batch({"id": np.arange(start, start + count), "x": texts})
        message = batch.serialize()
        yield pa.ipc.read_record_batch(message, batch.schema)


def long_lists(rows: int, size: int) -> Iterator[pa.RecordBatch]:
    rng = np.random.default_rng(5)
    for start in range(rows):
        items = pa.array(rng.integers(0, 1 << 40, size))
        lists = pa.ListArray.from_arrays(pa.array([0, size], pa.int32()), items)
        yield pa.record_batch({"id": [start], "x": lists})


class Batches:
    """Batches that are made as they are written."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._first, self._rest = next(batches), batches
        self.schema = self._first.schema

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        yield self._first
        yield from self._rest


def scan(path: str) -> str:
    largest = most = count = 0
    for task in plan(path, parallelism=1):
        for batch in task.run():
            count += batch.num_rows
            most = max(most, batch.num_rows)
            largest = max(largest, batch.nbytes)
    return f"{count:,} rows, batches of up to {most:,} rows and {largest / MIB:.0f} MiB"


def grow(action: Callable[[], str | None]) -> tuple[str, ...]:
    """Return MiB allocated, resident and of the process, seconds and a note; runs in a child."""

    def memory() -> tuple[float, float]:
        return memory_mb("RssAnon"), memory_mb("VmRSS")

    start = peak = memory()
    done = threading.Event()

    def watch() -> None:
        nonlocal peak
        while not done.is_set():
            now = memory()
            peak = max(peak[0], now[0]), max(peak[1], now[1])
            time.sleep(0.003)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    note = action()
    seconds = time.perf_counter() - began
    done.set()
    watcher.join()
    sizes = (peak[0] - start[0], peak[1] - start[1], peak[1])
    return (*(f"{size:.0f}" for size in sizes), f"{seconds:.1f}", note or "")


TABLES: dict[str, Callable[[float], Iterator[pa.RecordBatch]]] = {
    "200,000 vectors of 768 float32": lambda scale: vectors(int(200_000 * scale)),
    "1,000,000 rows of 10 columns": lambda scale: narrow(int(1_000_000 * scale)),
    "3,000,000 rows of 10 columns": lambda scale: narrow(int(3_000_000 * scale)),
    "20 binaries of 16 MB": lambda scale: wide(20, int(16_000_000 * scale), pa.binary()),
    "20 strings of 16 MB": lambda scale: wide(20, int(16_000_000 * scale), pa.string()),
    "60,000 strings of 50 KB": lambda scale: long_strings(int(60_000 * scale), 50_000),
    "20 binaries of 100 MB": lambda scale: wide(20, int(100_000_000 * scale), pa.binary()),
    "20 lists of 10,000,000 items": lambda scale: long_lists(20, int(10_000_000 * scale)),
}


def main(*, versions: tuple = ("2.0", "2.1", "2.2"), only: str = "", scale: float = 1.0) -> None:
    rows = []
    for version in versions:
        for name in (name for name in TABLES if only in name):
            with scratch() as folder:
                # Made by the child that writes them.
                actions = {
                    "write": lambda: write(path, Batches(make(scale)), file_version=version),  # noqa: B023
                    "scan": lambda: scan(path),  # noqa: B023
                }
                path, make = f"{folder}/t", TABLES[name]
                for what, action in actions.items():
                    rows.append((version, what, name, *in_child(grow, action, start="fork")))
    header = "version | action | table | allocated MiB | resident MiB | process | s | batches"
    print_table("Peak growth of memory", header, rows)


if __name__ == "__main__":
    run(main)

"""Peak memory of scans and writes: python benchmarks/memory.py.

Each row is measured in a process of its own: how much its resident memory grows from after the
imports to the highest point.  "allocated" leaves out the pages of memory mapped files, which the
system takes back when it needs them; "resident" has them too, and "process" is the highest point
itself.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from timing import print_table

from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

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


def write(path: str, batches: Iterator[pa.RecordBatch], version: str) -> str:
    first = next(batches)

    def chained() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    settings = WriteSettings(file_version=version)
    plan = plan_write(Table(path), first.schema, settings, existing=open_existing(Table(path)))
    commit_write(plan, write_rows(plan, chained()))
    return ""


def scan(path: str) -> str:
    largest = most = count = 0
    for task in plan_scan(Snapshot.open(Table(path)), ScanRequest(parallelism=1)):
        for batch in task.run():
            count += batch.num_rows
            most = max(most, batch.num_rows)
            largest = max(largest, batch.nbytes)
    return f"{count:,} rows, batches of up to {most:,} rows and {largest / MIB:.0f} MiB"


def memory() -> tuple[int, int]:
    """Bytes that this process allocated, and those that are resident."""
    status = Path("/proc/self/status").read_text()
    allocated, resident = (
        int(status.split(name)[1].split()[0]) * 1024 for name in ("RssAnon:", "VmRSS:")
    )
    return allocated, resident


def measured(action: Callable[[], str], pipe) -> None:
    """Runs in a child: the growth of memory, sampled every few milliseconds."""
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
    pipe.send((peak[0] - start[0], peak[1] - start[1], peak[1], seconds, note))


def grow(action: Callable[[], str]) -> tuple[str, str, str, str, str]:
    """MiB allocated, resident and of the process, seconds and a note of ``action`` in a child."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=measured, args=(action, sender))
    child.start()
    allocated, resident, whole, seconds, note = receiver.recv()
    child.join()
    sizes = (f"{size / MIB:.0f}" for size in (allocated, resident, whole))
    return (*sizes, f"{seconds:.1f}", note)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="*", default=["2.0", "2.1", "2.2"])
    parser.add_argument("--only", default="", help="measure the tables whose name has this in it")
    arguments = parser.parse_args()
    versions = arguments.versions
    rows = []
    for version in versions:
        cases = {
            "200,000 vectors of 768 float32": lambda: vectors(200_000),
            "1,000,000 rows of 10 columns": lambda: narrow(1_000_000),
            "3,000,000 rows of 10 columns": lambda: narrow(3_000_000),
            "20 binaries of 16 MB": lambda: wide(20, 16_000_000, pa.binary()),
            "20 strings of 16 MB": lambda: wide(20, 16_000_000, pa.string()),
            "60,000 strings of 50 KB": lambda: long_strings(60_000, 50_000),
            "20 binaries of 100 MB": lambda: wide(20, 100_000_000, pa.binary()),
            "20 lists of 10,000,000 items": lambda: long_lists(20, 10_000_000),
        }
        for name, make in cases.items():
            if arguments.only not in name:
                continue
            folder = tempfile.mkdtemp(prefix="pyspark-lance-memory-")
            path = f"{folder}/t"
            # Made here, read by the child: the closures are run right away.
            found = grow(lambda: write(path, make(), version))  # noqa: B023
            rows.append((version, "write", name, *found))
            found = grow(lambda: scan(path))  # noqa: B023
            rows.append((version, "scan", name, *found))
            shutil.rmtree(folder)
    header = (
        "version",
        "action",
        "table",
        "allocated MiB",
        "resident MiB",
        "process",
        "s",
        "batches",
    )
    print_table("Peak growth of memory", header, rows)


if __name__ == "__main__":
    main()

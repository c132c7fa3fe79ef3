"""Peak memory of scans and writes: python benchmarks/memory.py.

Each row is measured in a process of its own: how much its resident memory grows from after the
imports to the highest point.  "allocated" leaves out the pages of memory mapped files, which the
system takes back when it needs them; "resident" has them too.
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

from pyspark_lance.table.scan import ScanRequest, plan_scan
from pyspark_lance.table.scan_task import run
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.write import (
    WriteSettings,
    commit_write,
    open_existing,
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


def write(path: str, batches: Iterator[pa.RecordBatch], version: str) -> str:
    first = next(batches)

    def chained() -> Iterator[pa.RecordBatch]:
        yield first
        yield from batches

    settings = WriteSettings(file_version=version)
    plan = plan_write(path, {}, first.schema, settings, existing=open_existing(path, {}))
    commit_write(plan, write_rows(plan, chained()))
    return ""


def scan(path: str) -> str:
    largest = most = count = 0
    for task in plan_scan(Snapshot.open(path), ScanRequest(parallelism=1)):
        for batch in run(task):
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
    pipe.send((peak[0] - start[0], peak[1] - start[1], seconds, note))


def grow(action: Callable[[], str]) -> tuple[str, str, str, str]:
    """MiB allocated and resident, seconds and a note of ``action`` in a process of its own."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=measured, args=(action, sender))
    child.start()
    allocated, resident, seconds, note = receiver.recv()
    child.join()
    return f"{allocated / MIB:.0f}", f"{resident / MIB:.0f}", f"{seconds:.1f}", note


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--versions", nargs="*", default=["2.0", "2.1", "2.2"])
    versions = parser.parse_args().versions
    rows = []
    for version in versions:
        cases = {
            "200,000 vectors of 768 float32": lambda: vectors(200_000),
            "1,000,000 rows of 10 columns": lambda: narrow(1_000_000),
            "3,000,000 rows of 10 columns": lambda: narrow(3_000_000),
            "20 binaries of 16 MB": lambda: wide(20, 16_000_000, pa.binary()),
            "20 strings of 16 MB": lambda: wide(20, 16_000_000, pa.string()),
        }
        for name, make in cases.items():
            folder = tempfile.mkdtemp(prefix="pyspark-lance-memory-")
            path = f"{folder}/t"
            # Made here, read by the child: the closures are run right away.
            found = grow(lambda: write(path, make(), version))  # noqa: B023
            rows.append((version, "write", name, *found))
            found = grow(lambda: scan(path))  # noqa: B023
            rows.append((version, "scan", name, *found))
            shutil.rmtree(folder)
    header = ("version", "action", "table", "allocated MiB", "resident MiB", "s", "batches")
    print_table("Peak growth of memory", header, rows)


if __name__ == "__main__":
    main()

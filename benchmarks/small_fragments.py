"""A scan of many small fragments, against pylance: python benchmarks/small_fragments.py.

Both plan and run in this process and take turns.  pylance is told to decode in one thread (it
still fetches in another), and given its best of two batch sizes.  Processor time is of all threads.
"""

from __future__ import annotations

import os

os.environ["LANCE_CPU_THREADS"] = "1"
os.environ["LANCE_IO_THREADS"] = "1"

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import lance
import numpy as np
import pyarrow as pa
from timing import print_table

from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS = 100
REPEATS = 4


def build(path: str, fragments: int) -> None:
    """A table by pylance, as most tables are; in a process of its own, which has more threads."""
    rows = ROWS * fragments
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "id": np.arange(rows),
            "x": rng.random(rows),
            "small": rng.integers(0, 1000, rows, dtype=np.int32),
            "name": [f"user-{i * 7919 % 1000003:06x}" for i in range(rows)],
            "kind": np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)],
            "flag": pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.1),
        }
    )
    lance.write_dataset(table, path, max_rows_per_file=ROWS, enable_stable_row_ids=True)


def ours(path: str) -> Callable[[], int]:
    """The whole table by this package."""

    def scan() -> int:
        tasks = plan_scan(Snapshot.open(Table(path)), ScanRequest())
        return sum(batch.num_rows for task in tasks for batch in task.run())

    return scan


def theirs(path: str, batch_size: int) -> Callable[[], int]:
    """The same by pylance."""

    def scan() -> int:
        batches = lance.dataset(path).scanner(batch_size=batch_size).to_batches()
        return sum(batch.num_rows for batch in batches)

    return scan


def measure(path: str, fragments: int) -> tuple[str, ...]:
    """One row of the table."""
    scans = [ours(path), theirs(path, 8192), theirs(path, 65_536)]
    found: list[list[tuple[float, float]]] = [[] for _ in scans]
    for turn in range(REPEATS):
        for scan, times in zip(scans, found, strict=True):
            wall, processor = time.perf_counter(), time.process_time()
            assert scan() == fragments * ROWS
            if turn:  # the first one warms up
                used = time.process_time() - processor
                times.append((time.perf_counter() - wall, used))
    best = [tuple(map(min, zip(*times, strict=True))) for times in found]
    (wall, processor), others = best[0], best[1:]
    wall_of, processor_of = (min(other[i] for other in others) for i in (0, 1))
    return (
        f"{fragments:,}",
        f"{wall:.2f}",
        f"{wall_of:.2f}",
        f"{wall / wall_of:.1f}",
        f"{processor:.2f}",
        f"{processor_of:.2f}",
        f"{processor / processor_of:.1f}",
    )


def main() -> None:
    """Prints the table."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="pyspark-lance-bench-") as folder:
        for fragments in (2_000, 10_000):
            path = f"{folder}/{fragments}"
            environment = {k: v for k, v in os.environ.items() if not k.startswith("LANCE_")}
            subprocess.run(
                [sys.executable, __file__, path, str(fragments)], check=True, env=environment
            )
            rows.append(measure(path, fragments))
    print_table(
        "Small fragments of 6 columns, 100 rows each (python benchmarks/small_fragments.py)",
        (
            "fragments",
            "ours, s",
            "pylance, s",
            "times pylance's (target 2)",
            "ours, s of processor",
            "pylance, s of processor",
            "times pylance's",
        ),
        rows,
    )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        build(sys.argv[1], int(sys.argv[2]))
    else:
        main()

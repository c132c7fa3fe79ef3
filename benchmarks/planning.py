"""Planning a table of 100,000 fragments: python benchmarks/planning.py."""

from __future__ import annotations

import dataclasses
import pickle
import resource
import shutil
import subprocess
import sys
import tempfile
import time

import numpy as np
import pyarrow as pa
from timing import print_table

from pyspark_lance.format.system_columns import SYSTEM_COLUMNS
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

FRAGMENTS = 100_000


def build(path: str) -> None:
    """One commit of 100,000 fragments, which share one small file."""
    data = pa.table({"id": np.arange(100), "x": np.random.default_rng(1).random(100)})
    plan = plan_write(
        Table(path), data.schema, WriteSettings(), existing=open_existing(Table(path))
    )
    (fragment,) = write_fragments(plan.request, data.to_batches())
    commit_write(plan, [dataclasses.replace(fragment) for _ in range(FRAGMENTS)])


def peak_mb() -> float:
    """Most memory of this process so far, MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def plan(path: str) -> None:
    """Plans in this process and prints figures for the parent."""
    before = peak_mb()
    start = time.perf_counter()
    snapshot = Snapshot.open(Table(path))
    opened = time.perf_counter()
    tasks = plan_scan(snapshot, ScanRequest(system_columns=SYSTEM_COLUMNS))
    planned = time.perf_counter()
    size = sum(len(pickle.dumps(task)) for task in tasks)
    pickled = time.perf_counter()
    print(
        opened - start, planned - opened, pickled - planned, len(tasks), size / 1e6,
        peak_mb(), before,
    )  # fmt: skip


def main() -> None:
    """Prints the table."""
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    try:
        path = f"{folder}/many"
        build(path)
        printed = subprocess.run(
            [sys.executable, __file__, path], check=True, capture_output=True, text=True
        ).stdout.split()
        opened, planned, pickled, tasks, size, peak, before = map(float, printed)
        print_table(
            f"Planning {FRAGMENTS:,} fragments (python benchmarks/planning.py)",
            ("what", "value"),
            [
                ("read the manifest, s", f"{opened:.2f}"),
                ("plan, s", f"{planned:.2f}"),
                ("pickle the plan, s", f"{pickled:.2f}"),
                ("together, s (target 2)", f"{opened + planned + pickled:.2f}"),
                ("tasks", f"{tasks:.0f}"),
                ("plan size, MB", f"{size:.1f}"),
                ("peak memory, MB (target 500)", f"{peak:.0f}"),
                ("memory of the imports alone, MB", f"{before:.0f}"),
            ],
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        plan(sys.argv[1])
    else:
        main()

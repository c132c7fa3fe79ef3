"""Few rows of a sorted column, with a zone map and without: python benchmarks/pruning.py [rows].

The same table for both readers, one core for pylance, file cache warm. Each time includes opening
the table and planning.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from functools import partial

os.environ.setdefault("LANCE_CPU_THREADS", "1")
os.environ.setdefault("LANCE_IO_THREADS", "1")

import lance
import numpy as np
import pyarrow as pa
from timing import best, print_table

from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS = 100_000_000
ROWS_PER_FILE = 5_000_000
WANTED = 100


def build(path: str, rows: int) -> None:
    """Rows by ascending id, with a number each."""
    rng = np.random.default_rng(1)

    def batches():
        for start in range(0, rows, 1 << 20):
            ids = np.arange(start, min(rows, start + (1 << 20)))
            yield pa.record_batch({"id": ids, "x": rng.random(len(ids))})

    schema = pa.schema({"id": pa.int64(), "x": pa.float64()})
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    lance.write_dataset(
        reader, path, max_rows_per_file=ROWS_PER_FILE, enable_stable_row_ids=True,
        data_storage_version="2.1",
    )  # fmt: skip


def planned(path: str, condition: str):
    """The tasks of a scan of the newest version."""
    snapshot = Snapshot.open(Table(path))
    predicate = parse_predicate(condition, snapshot.schema.to_arrow())
    return plan_scan(snapshot, ScanRequest(predicate=predicate))


def ours(path: str, condition: str) -> int:
    """How many rows we find."""
    return sum(batch.num_rows for task in planned(path, condition) for batch in task.run())


def theirs(path: str, condition: str) -> int:
    """How many rows pylance finds."""
    return lance.dataset(path).to_table(filter=condition).num_rows


def rows_read(path: str, condition: str) -> int:
    """How many rows our scan looks at."""
    slices = (part for task in planned(path, condition) for part in task.slices)
    return round(sum(part.read_share * part.fragment.physical_rows for part in slices))


def main() -> None:
    """Prints the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    conditions = {
        f"{WANTED} rows in a row": f"id >= {rows // 3} AND id < {rows // 3 + WANTED}",
        "one row": f"id = {rows // 2}",
        "none": f"id > {rows}",
    }
    table = []
    try:
        path = f"{folder}/sorted"
        build(path, rows)
        for state in ("no", "yes"):
            if state == "yes":
                start = time.process_time()
                zones = create_zone_maps(Table(path), ["id"]).num_zones
                took = time.process_time() - start
                table.append(
                    ("making the zone map", f"{zones:,} zones", f"{rows:,}", f"{took:.1f}", "")
                )
            for what, condition in conditions.items():
                assert ours(path, condition) == theirs(path, condition)
                repeats = 5 if state == "yes" else 1
                times = [best(partial(f, path, condition), repeats) for f in (ours, theirs)]
                read = f"{rows_read(path, condition):,}"
                table.append((what, state, read, *(f"{seconds:.4f}" for seconds in times)))
    finally:
        shutil.rmtree(folder)
    print_table(
        f"Few of {rows:,} sorted rows, seconds (python benchmarks/pruning.py)",
        ("what", "zone map", "rows we read", "ours", "pylance"),
        table,
    )


if __name__ == "__main__":
    main()

"""Rows sorted by two columns: what it takes, and how much is read afterwards.

python benchmarks/clustering.py [rows] [orders, such as linear,zorder]

A table of 16 columns whose rows lie in no order is sorted in each order, in a process of its own on
one core; both columns have a zone map.  Memory is looked at every 20 ms: the own one of the
process, and with the parts of files that are mapped.  What is read is counted by the zones of a
condition: on one hundredth of the values of both columns, and of either of them.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from pruning import ours, rows_read, theirs
from timing import print_table

from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS = 10_000_000
ROWS_PER_FILE = 1_000_000
_BATCH_ROWS = 1 << 18
_SORT = """
import resource, sys, threading, time
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.version.table import Table

def megabytes(name):
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    return int(status[name].split()[0]) // 1024

def watch():
    global most
    while True:
        most = max(most, megabytes("RssAnon"))
        time.sleep(0.02)

most = before = megabytes("RssAnon")
threading.Thread(target=watch, daemon=True).start()
result = compact(Table(sys.argv[1]), {"cluster_by": ("day", "place"), "order": sys.argv[2]})
used = resource.getrusage(resource.RUSAGE_SELF)
print(used.ru_utime + used.ru_stime, before, most, megabytes("VmHWM"), result.numRows)
"""


def build(path: str, rows: int) -> None:
    """Days, places, and 14 columns more: numbers, texts, times, decimals."""
    rng = np.random.default_rng(1)
    schema = pa.schema(
        [
            ("day", pa.int32()), ("place", pa.string()), ("at", pa.timestamp("us")),
            ("price", pa.decimal128(12, 2)), ("kind", pa.string()), ("user", pa.int64()),
            *((f"x{i}", pa.float64()) for i in range(6)),
            *((f"n{i}", pa.int32()) for i in range(4)),
        ]
    )  # fmt: skip
    kinds = pa.array(["red", "green", "blue", None])

    def batches():
        for start in range(0, rows, _BATCH_ROWS):
            count = min(_BATCH_ROWS, rows - start)
            places = pa.array(rng.integers(0, 50_000, count)).cast(pa.string())
            price = pa.array(rng.random(count) * 1e6).cast(pa.decimal128(12, 2))
            columns = [
                pa.array(rng.integers(0, 3000, count, dtype=np.int32)),
                pa.compute.utf8_lpad(places, 6, "0"),
                pa.array(rng.integers(0, 1 << 50, count)).cast(pa.timestamp("us")),
                price,
                kinds.take(pa.array(rng.integers(0, 4, count))),
                pa.array(rng.integers(0, 1 << 40, count)),
                *(pa.array(rng.random(count)) for _ in range(6)),
                *(pa.array(rng.integers(0, 1000, count, dtype=np.int32)) for _ in range(4)),
            ]
            yield pa.record_batch(columns, schema=schema)

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    lance.write_dataset(
        reader, path, max_rows_per_file=ROWS_PER_FILE, enable_stable_row_ids=True,
        data_storage_version="2.1",
    )  # fmt: skip


def read_shares(path: str, rows: int) -> list[str]:
    """For each condition the share of the rows that a scan looks at."""
    days, places = "day >= 1500 AND day < 1530", "place >= '025000' AND place < '025500'"
    shares = []
    for condition in (f"{days} AND {places}", days, places):
        assert ours(path, condition) == theirs(path, condition)
        shares.append(f"{100 * rows_read(path, condition) / rows:.2f}")
    return shares


def main() -> None:
    """Prints the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    orders = sys.argv[2].split(",") if len(sys.argv) > 2 else ["linear", "zorder", "hilbert"]
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    table = []
    try:
        first = f"{folder}/first"
        build(first, rows)
        for order in ["as written", *orders]:
            path, figures = f"{folder}/{order}", ("", "", "", "")
            shutil.copytree(first, path)
            if order != "as written":
                done = subprocess.run(
                    [sys.executable, "-c", _SORT, path, order],
                    check=True, capture_output=True, text=True,
                )  # fmt: skip
                seconds, before, own, peak, sorted_rows = done.stdout.split()
                assert int(sorted_rows) == rows
                figures = (f"{float(seconds):.0f}", before, own, peak)
            create_zone_maps(Table(path), ["day", "place"])
            manifest = Path(path, Snapshot.open(Table(path)).file.location.path).stat().st_size
            shares = read_shares(path, rows)
            table.append((order, *figures, f"{manifest / 1e6:.1f}", *shares))
            shutil.rmtree(path)
    finally:
        shutil.rmtree(folder)
    print_table(
        f"{rows:,} rows sorted by two columns (python benchmarks/clustering.py)",
        (
            "order", "seconds of the processor", "MB at the start", "MB at most", "with files",
            "MB of manifest",
            "% read: both columns", "% read: the first", "% read: the second",
        ),
        table,
    )  # fmt: skip


if __name__ == "__main__":
    main()

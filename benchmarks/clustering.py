"""Rows sorted by two columns: what it takes, and how much is read afterwards.

python benchmarks/clustering.py [rows] [--orders linear,zorder,hilbert]

A table of 16 columns whose rows lie in no order is sorted in each order, in a process of its own on
one core; both columns have a zone map.  Memory is looked at every 20 ms: the own one of the
process, and with the parts of files that are mapped.  What is read is counted by the zones of a
condition: on one hundredth of the values of both columns, and of either of them.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import (
    in_child,
    memory_mb,
    print_table,
    rows_read,
    run,
    scan,
    scan_by_pylance,
    scratch,
    write_by_pylance,
)

from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS_PER_FILE = 1_000_000
_BATCH_ROWS = 1 << 18


def sort(path: str, order: str, rows: int) -> tuple[str, ...]:
    """Sort in this process; return its processor seconds and memory."""
    most = before = memory_mb("RssAnon")

    def watch() -> None:
        nonlocal most
        while True:
            most = max(most, memory_mb("RssAnon"))
            time.sleep(0.02)

    threading.Thread(target=watch, daemon=True).start()
    used = time.process_time()
    result = compact(Table(path), CompactionRequest(cluster_by=("day", "place"), order=order))
    assert result.num_rows == rows
    figures = (time.process_time() - used, before, most, memory_mb("VmHWM"))
    return tuple(f"{figure:.0f}" for figure in figures)


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
    write_by_pylance(path, reader, max_rows_per_file=ROWS_PER_FILE)


def read_shares(path: str, rows: int) -> list[float]:
    """Return the percentage of the rows that a scan reads, for each condition."""
    days, places = "day >= 1500 AND day < 1530", "place >= '025000' AND place < '025500'"
    shares = []
    for condition in (f"{days} AND {places}", days, places):
        assert scan(path, condition) == scan_by_pylance(path, condition)
        shares.append(100 * rows_read(path, condition) / rows)
    return shares


def main(rows: int = 10_000_000, *, orders: tuple = ("linear", "zorder", "hilbert")) -> None:
    table = []
    with scratch() as folder:
        build(f"{folder}/first", rows)
        for order in ["as written", *orders]:
            path, figures = f"{folder}/{order}", ("", "", "", "")
            shutil.copytree(f"{folder}/first", path)
            if order != "as written":
                figures = in_child(sort, path, order, rows)
            create_zone_maps(Table(path), ["day", "place"])
            manifest = Path(path, Snapshot.open(Table(path)).file.location.path).stat().st_size
            table.append((order, *figures, f"{manifest / 1e6:.1f}", *read_shares(path, rows)))
            shutil.rmtree(path)
    header = (
        "order | seconds of the processor | MB at the start | MB at most | with files | "
        "MB of manifest | % read: both columns | % read: the first | % read: the second"
    )
    print_table(f"{rows:,} rows sorted by two columns", header, table)


if __name__ == "__main__":
    run(main)

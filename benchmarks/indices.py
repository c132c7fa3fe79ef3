"""Few rows by a random key, with indices and without: python benchmarks/indices.py [rows].

The same table for both readers, one core for pylance, file cache warm.  Each time includes opening
the table, planning and reading; "first" is of a version that this process has not looked at.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from functools import partial

os.environ.setdefault("LANCE_CPU_THREADS", "1")
os.environ.setdefault("LANCE_IO_THREADS", "1")

import lance
import numpy as np
import pyarrow as pa
from pruning import ours, rows_read
from timing import best, print_table

from pyspark_lance.table.version import snapshot as snapshots

ROWS = 1_000_000
ROWS_PER_FILE = 5_000_000


def build(path: str, rows: int) -> np.ndarray:
    """Rows in the random order of a unique id, with two texts each; returns the ids."""
    rng = np.random.default_rng(1)
    ids = rng.permutation(rows)
    table = pa.table(
        {
            "id": ids,
            "kind": pa.array(rng.integers(0, 500, rows)).cast(pa.string()),
            "text": pa.array(rng.integers(0, 1 << 60, rows)).cast(pa.string()),
        }
    )
    lance.write_dataset(
        table, path, max_rows_per_file=ROWS_PER_FILE, enable_stable_row_ids=True,
        data_storage_version="2.1",
    )  # fmt: skip
    return ids


def make_indices(path: str) -> None:
    """By pylance, in a process of its own: with one thread it would wait for itself for ever."""
    code = (
        f"import lance; dataset = lance.dataset({path!r}); "
        "dataset.create_scalar_index('id', 'BTREE'); dataset.create_scalar_index('kind', 'BITMAP')"
    )
    threads = ("LANCE_CPU_THREADS", "LANCE_IO_THREADS")
    others = {name: value for name, value in os.environ.items() if name not in threads}
    subprocess.run([sys.executable, "-c", code], check=True, env=others)


def conditions_of(ids: np.ndarray) -> dict[str, str]:
    """What is asked for."""
    some = ", ".join(map(str, ids[:: len(ids) // 1_000][:1_000].tolist()))
    return {
        "one id": f"id = {ids[7]}",
        "1,000 ids": f"id IN ({some})",
        "one kind of 500": "kind = '7'",
        "one id of a kind": f"kind = '7' AND id < {len(ids) // 1000}",
    }


def theirs(path: str, condition: str, columns: list[str] | None = None) -> int:
    """How many rows pylance finds in the table as it is now."""
    return lance.dataset(path).to_table(filter=condition, columns=columns).num_rows


def first(path: str, condition: str) -> float:
    """Seconds of our first scan of a version."""
    snapshots._cache.clear()
    start = time.perf_counter()
    ours(path, condition)
    return time.perf_counter() - start


def main() -> None:
    """Prints the table."""
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else ROWS
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    table = []
    try:
        path = f"{folder}/t"
        conditions = conditions_of(build(path, rows))
        for state in ("no", "yes"):
            if state == "yes":
                make_indices(path)
            for what, condition in conditions.items():
                assert ours(path, condition) == theirs(path, condition)
                once = min(first(path, condition) for _ in range(3))
                times = [best(partial(f, path, condition), 7) for f in (ours, theirs)]
                read = f"{rows_read(path, condition):,}"
                table.append((what, state, read, *(f"{one * 1e3:.1f}" for one in (once, *times))))
    finally:
        shutil.rmtree(folder)
    print_table(
        f"Few of {rows:,} rows in random order, milliseconds (python benchmarks/indices.py)",
        ("what", "indices", "rows we read", "ours, first", "ours", "pylance"),
        table,
    )


if __name__ == "__main__":
    main()

"""Few rows by a random key, with indices and without: python benchmarks/indices.py [rows] [--ids].

The same table and the same indices for both readers, one core for pylance, file cache warm.  Each
time includes opening the table, planning and reading; "first" is of a version that this process
has not looked at.  With ``--ids`` the table has no other column, as for 100 million rows.
Building is measured in processor time and memory of a process of its own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

os.environ.setdefault("LANCE_CPU_THREADS", "1")
os.environ.setdefault("LANCE_IO_THREADS", "1")

import lance
import numpy as np
import pyarrow as pa
from pruning import ours, rows_read
from timing import best, print_table

from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.dml.key_filter import KeyCollector, KeyFilter, hash_keys
from pyspark_lance.table.dml.plain_merge import PlainMerge, target_tasks
from pyspark_lance.table.dml.row_change import RowAction, plan_change
from pyspark_lance.table.index_build.column_indices import drop_index, optimize_indices
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.table import Table

ROWS = 1_000_000
ROWS_PER_FILE = 5_000_000
_BATCH_ROWS = 1 << 20
_MAX_ROWS_READ = 1 << 23
_BUILD = """
import resource, sys
path, column, kind = sys.argv[1:]
{make}
used = resource.getrusage(resource.RUSAGE_SELF)
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(used.ru_utime + used.ru_stime, int(status["VmHWM"].split()[0]) // 1024)
"""
_OURS = """
from pyspark_lance.table.index_build.column_indices import create_index
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.version.table import Table
create_index(Table(path), IndexRequest((column,), kind))
"""
_THEIRS = """
import lance
lance.dataset(path).create_scalar_index(column, kind.upper())
"""


def build(path: str, rows: int, ids_only: bool) -> np.ndarray:
    """Rows in the random order of a unique id, with two texts each; returns the ids."""
    rng = np.random.default_rng(1)
    ids = rng.permutation(rows)
    schema = pa.schema({"id": pa.int64(), "kind": pa.string(), "text": pa.string()})
    if ids_only:
        schema = pa.schema({"id": pa.int64()})

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, _BATCH_ROWS):
            columns = {"id": ids[start : start + _BATCH_ROWS]}
            count = len(columns["id"])
            if not ids_only:
                columns["kind"] = pa.array(rng.integers(0, 500, count)).cast(pa.string())
                columns["text"] = pa.array(rng.integers(0, 1 << 60, count)).cast(pa.string())
            yield pa.record_batch(columns, schema)

    lance.write_dataset(
        pa.RecordBatchReader.from_batches(schema, batches()), path,
        max_rows_per_file=ROWS_PER_FILE, enable_stable_row_ids=True, data_storage_version="2.1",
    )  # fmt: skip
    return ids


def built(path: str, column: str, kind: str, make: str) -> tuple[str, str]:
    """Processor seconds and megabytes of a process that makes an index."""
    threads = ("LANCE_CPU_THREADS", "LANCE_IO_THREADS")  # pylance waits for ever with one
    others = {name: value for name, value in os.environ.items() if name not in threads}
    code = _BUILD.format(make=make)
    done = subprocess.run(
        [sys.executable, "-c", code, path, column, kind],
        check=True, env=others, capture_output=True, text=True,
    )  # fmt: skip
    seconds, megabytes = done.stdout.split()[-2:]
    return f"{float(seconds):.1f}", megabytes


def compare_builds(path: str, kinds: dict[str, str]) -> list[tuple[str, ...]]:
    """Builds each index by pylance and by us; ours stay."""
    table = []
    for column, kind in kinds.items():
        theirs_used = built(path, column, kind, _THEIRS)
        drop_index(Table(path), f"{column}_idx")
        table.append((f"{kind} of {column}", *built(path, column, kind, _OURS), *theirs_used))
    return table


def joined(path: str) -> tuple[str, ...]:
    """Processor seconds of merging the segments of the B-tree."""
    start = time.process_time()
    done = optimize_indices(Table(path), "id_idx")
    return (f"{done.num_segments} segments of id_idx", f"{time.process_time() - start:.1f}")


def bytes_read(work: Callable[[], object]) -> Counter[str]:
    """Folder of the table -> bytes that our first look at a version asks for."""
    asked: Counter[str] = Counter()
    kept = {name: getattr(LocalStore, name) for name in ("get_tail", "get_range", "get_ranges")}

    def counting(name):
        def read(store, file, *rest):
            answer = kept[name](store, file, *rest)
            parts = {"get_tail": lambda: [answer[0]], "get_range": lambda: [answer]}
            asked[file.split("/")[0]] += sum(map(len, parts.get(name, lambda: answer)()))
            return answer

        return read

    for name in kept:
        setattr(LocalStore, name, counting(name))
    try:
        snapshots._cache.clear()
        work()
    finally:
        for name, method in kept.items():
            setattr(LocalStore, name, method)
    return asked


def merged(path: str, ids: np.ndarray, state: str) -> tuple[str, ...]:
    """What a merge of 1,000 keys reads of the target to find its rows, without Spark."""
    merge = PlainMerge((0,), ("id",), RowAction.DELETE, {}, None)
    source = KeyCollector()
    source.add([pa.array(ids[:: len(ids) // 1_000][:1_000])])

    def found(keys: KeyFilter) -> None:
        tasks = target_tasks(plan_change(Table(path)), merge, keys, None)
        batches = [unpacked for task in tasks for unpacked in task.run()]
        rows = sum(int(keys.may_contain(hash_keys([b.column("id")])).sum()) for b in batches)
        assert rows == 1_000

    keys = source.result()
    assert keys is not None
    whole = bytes_read(lambda: found(keys.without_values()))["data"]
    start = time.process_time()
    read = bytes_read(lambda: found(keys))
    seconds = f"{time.process_time() - start:.2f}"
    share = f"{100 * read['data'] / whole:.1f} %"
    return state, f"{whole:,}", f"{read['data']:,}", share, f"{read['_indices']:,}", seconds


def conditions_of(ids: np.ndarray, ids_only: bool) -> dict[str, str]:
    """What is asked for."""
    some = ", ".join(map(str, ids[:: len(ids) // 1_000][:1_000].tolist()))
    of_ids = {"one id": f"id = {ids[7]}", "1,000 ids": f"id IN ({some})"}
    if ids_only:
        return of_ids
    return of_ids | {
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


def compared(path: str, conditions: dict[str, str], state: str) -> list[tuple[str, ...]]:
    """A row for each condition."""
    table = []
    for what, condition in conditions.items():
        assert ours(path, condition) == theirs(path, condition)
        once = min(first(path, condition) for _ in range(3))
        times = [best(partial(f, path, condition), 7) for f in (ours, theirs)]
        read = f"{rows_read(path, condition):,}"
        opened = f"{bytes_read(partial(ours, path, condition))['_indices']:,}"
        seen = (f"{one * 1e3:.1f}" for one in (once, *times))
        table.append((what, state, read, opened, *seen))
    return table


def main() -> None:
    """Prints the tables."""
    numbers = [argument for argument in sys.argv[1:] if argument.isdigit()]
    rows, ids_only = int(numbers[0]) if numbers else ROWS, "--ids" in sys.argv
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    command = f"python benchmarks/indices.py {rows}{' --ids' * ids_only}"
    print(f"load {os.getloadavg()[0]:.1f}")
    try:
        path = f"{folder}/t"
        ids = build(path, rows, ids_only)
        conditions = conditions_of(ids, ids_only)
        # Without an index a table as large as that is read for seconds, again and again.
        table = [] if rows > _MAX_ROWS_READ else compared(path, conditions, "no")
        kinds = {"id": "btree"} if ids_only else {"id": "btree", "kind": "bitmap"}
        builds = compare_builds(path, kinds)
        print_table(
            f"Building indices of {rows:,} rows, processor seconds and MB ({command})",
            ("what", "ours", "MB", "pylance", "MB"),
            builds,
        )
        table += compared(path, conditions, "yes")
        merges = [merged(path, ids, "yes")]
        if rows > _MAX_ROWS_READ:
            print_table("Joining segments", ("what", "processor seconds"), [joined(path)])
            table += compared(path, conditions, "joined")
            merges.append(merged(path, ids, "joined"))
        print_table(
            f"Few of {rows:,} rows in random order, milliseconds ({command})",
            ("what", "indices", "rows we read", "index bytes", "ours, first", "ours", "pylance"),
            table,
        )
        print_table(
            f"Finding the rows of a merge of 1,000 keys among {rows:,} ({command})",
            ("indices", "bytes of the column", "bytes read", "share", "index bytes", "seconds"),
            merges,
        )
        print(f"load {os.getloadavg()[0]:.1f}")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()

"""Few rows by a condition, against pylance, with the file cache warm and one core for pylance.

    python benchmarks/indices.py [rows] [--ids]
    python benchmarks/indices.py sorted-rows [rows]

By a random key, with scalar indices and without; the same table and the same indices
for both. "first" is of a version that this process has not opened. With ``--ids`` the table
has no other column, as for 100 million rows. Building is measured in processor time and memory of a
process of its own. ``sorted-rows``: by a sorted column, with a zone map and without. Each
time includes opening the table, planning and reading.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

from harness import (
    fastest,
    in_child,
    limit_pylance_to_one_thread,
    memory_mb,
    print_table,
    rows_read,
    run,
    scan,
    scan_by_pylance,
    scratch,
    timed,
    write_by_pylance,
)

if __name__ == "__main__":
    limit_pylance_to_one_thread()

import lance
import numpy as np
import pyarrow as pa

from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.dml.key_filter import KeyCollector, KeyFilter, hash_keys
from pyspark_lance.table.dml.plain_merge import PlainMerge, target_tasks
from pyspark_lance.table.dml.row_change import RowAction, plan_change
from pyspark_lance.table.index_build.column_indices import (
    create_index,
    drop_index,
    optimize_indices,
)
from pyspark_lance.table.index_build.index_plan import IndexRequest
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.table import Table

ROWS_PER_FILE = 5_000_000
WANTED = 100
_BATCH_ROWS = 1 << 20
_MAX_ROWS_READ = 1 << 23


def write_sorted(path: str, rows: int) -> None:
    """Rows by ascending id, with a number each."""
    rng = np.random.default_rng(1)

    def batches() -> Iterator[pa.RecordBatch]:
        for start in range(0, rows, _BATCH_ROWS):
            ids = np.arange(start, min(rows, start + _BATCH_ROWS))
            yield pa.record_batch({"id": ids, "x": rng.random(len(ids))})

    schema = pa.schema({"id": pa.int64(), "x": pa.float64()})
    reader = pa.RecordBatchReader.from_batches(schema, batches())
    write_by_pylance(path, reader, max_rows_per_file=ROWS_PER_FILE)


def write_random(path: str, rows: int, ids_only: bool) -> np.ndarray:
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

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    write_by_pylance(path, reader, max_rows_per_file=ROWS_PER_FILE)
    return ids


def build(path: str, column: str, kind: str, is_ours: bool) -> tuple[str, str]:
    """Return processor seconds and megabytes of this process, after it made an index."""
    # pylance waits forever with one thread.
    os.environ.pop("LANCE_CPU_THREADS", None)
    os.environ.pop("LANCE_IO_THREADS", None)
    if is_ours:
        create_index(Table(path), IndexRequest((column,), kind))
    else:
        lance.dataset(path).create_scalar_index(column, kind.upper())
    return f"{time.process_time():.1f}", f"{memory_mb('VmHWM'):.0f}"


def compare_builds(path: str, kinds: dict[str, str]) -> list[tuple[object, ...]]:
    """Build each index by pylance and by this package, whose index stays."""
    table = []
    for column, kind in kinds.items():
        theirs = in_child(build, path, column, kind, False)
        drop_index(Table(path), f"{column}_idx")
        ours = in_child(build, path, column, kind, True)
        table.append((f"{kind} of {column}", *ours, *theirs))
    return table


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


def merged(path: str, ids: np.ndarray, state: str) -> tuple[object, ...]:
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
    cost, read = timed(bytes_read, lambda: found(keys))
    share = f"{100 * read['data'] / whole:.1f} %"
    return state, whole, read["data"], share, read["_indices"], cost.processor


def conditions_of(ids: np.ndarray, ids_only: bool) -> dict[str, str]:
    some = ", ".join(map(str, ids[:: len(ids) // 1_000][:1_000].tolist()))
    of_ids = {"one id": f"id = {ids[7]}", "1,000 ids": f"id IN ({some})"}
    if ids_only:
        return of_ids
    return of_ids | {
        "one kind of 500": "kind = '7'",
        "one id of a kind": f"kind = '7' AND id < {len(ids) // 1000}",
    }


def first(path: str, condition: str) -> float:
    """Return the seconds of the first scan of a version by this package."""
    snapshots._cache.clear()
    return timed(scan, path, condition)[0].clock


def compare(path: str, conditions: dict[str, str], state: str) -> list[tuple[object, ...]]:
    """Return a row for each condition."""
    table = []
    for what, condition in conditions.items():
        assert scan(path, condition) == scan_by_pylance(path, condition)
        once = min(first(path, condition) for _ in range(3))
        works = (partial(one, path, condition) for one in (scan, scan_by_pylance))
        seen = (f"{1e3 * one:.1f}" for one in (once, *(fastest(work, 7).clock for work in works)))
        opened = bytes_read(partial(scan, path, condition))["_indices"]
        table.append((what, state, rows_read(path, condition), opened, *seen))
    return table


def random(rows: int = 1_000_000, *, ids: bool = False) -> None:
    """Few rows by a random key, with scalar indices and without."""
    with scratch() as folder:
        path = f"{folder}/t"
        keys = write_random(path, rows, ids)
        conditions = conditions_of(keys, ids)
        # Without an index, scans of so large a table take seconds each.
        table = [] if rows > _MAX_ROWS_READ else compare(path, conditions, "no")
        kinds = {"id": "btree"} if ids else {"id": "btree", "kind": "bitmap"}
        title = f"Building indices of {rows:,} rows, processor seconds and MB"
        print_table(title, "what | ours | MB | pylance | MB", compare_builds(path, kinds))
        table += compare(path, conditions, "yes")
        merges = [merged(path, keys, "yes")]
        if rows > _MAX_ROWS_READ:
            cost, done = timed(optimize_indices, Table(path), "id_idx")
            joined = (f"{done.num_segments} segments of id_idx", cost.processor)
            print_table("Merging segments", "what | processor seconds", [joined])
            table += compare(path, conditions, "joined")
            merges.append(merged(path, keys, "joined"))
        title = f"Few of {rows:,} rows in random order, milliseconds"
        header = "what | indices | rows we read | index bytes | ours, first | ours | pylance"
        print_table(title, header, table)
        title = f"Finding the rows of a merge of 1,000 keys among {rows:,}"
        header = "indices | bytes of the column | bytes read | share | index bytes | seconds"
        print_table(title, header, merges)


def sorted_rows(rows: int = 100_000_000) -> None:
    """Few rows by a sorted column, with a zone map and without."""
    conditions = {
        f"{WANTED} rows in a row": f"id >= {rows // 3} AND id < {rows // 3 + WANTED}",
        "one row": f"id = {rows // 2}",
        "none": f"id > {rows}",
    }
    table: list[tuple[object, ...]] = []
    with scratch() as folder:
        path = f"{folder}/sorted"
        write_sorted(path, rows)
        for state, repeats in (("no", 1), ("yes", 5)):
            if state == "yes":
                cost, made = timed(create_zone_maps, Table(path), ["id"])
                zones = f"{made.num_zones:,} zones"
                table.append(("making the zone map", zones, rows, f"{cost.processor:.1f}", ""))
            for what, condition in conditions.items():
                assert scan(path, condition) == scan_by_pylance(path, condition)
                works = (partial(one, path, condition) for one in (scan, scan_by_pylance))
                times = (f"{fastest(work, repeats).clock:.4f}" for work in works)
                table.append((what, state, rows_read(path, condition), *times))
    header = "what | zone map | rows we read | ours | pylance"
    print_table(f"Few of {rows:,} sorted rows, seconds", header, table)


if __name__ == "__main__":
    run(random, sorted_rows)

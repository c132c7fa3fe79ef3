"""A large merge, next to pylance's merge_insert: python benchmarks/merge.py [rows].

1 million source rows go into 10 million target rows: 1 % of the target rows have a match and are
updated, and every other source row is inserted.  Also printed: by how much the Python process that
asks for the merge grows (for Spark, that is the driver; with pylance, it does the work), and all
bytes that a merge writes, against the bytes that the changed rows take in a file of pylance. The
same merge with conditions that are always true shows what a join of Spark takes in its place.

Every run is on a fresh copy of the table, in one Spark session; the JVM compiles what runs often,
so later runs are faster than the first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial

import lance
import numpy as np
import pyarrow as pa
from harness import (
    cost_with_memory,
    print_table,
    processor_seconds,
    run,
    scratch,
    size_of,
    start_session,
    write_by_pylance,
)

from pyspark_lance import LanceTable

MATCHED = 0.01
REPEATS = 5


def rows(ids: np.ndarray, seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    columns = {"id": ids, "amount": rng.integers(0, 10**6, len(ids))}
    columns |= {f"f{i}": rng.standard_normal(len(ids)) for i in range(4)}
    columns["name"] = np.char.add("customer ", rng.integers(0, 10**6, len(ids)).astype("U7"))
    return pa.table(columns)


def make_target(path: str, count: int) -> None:
    pieces = 10
    for piece in range(pieces):
        ids = np.arange(piece * count // pieces, (piece + 1) * count // pieces)
        mode = "append" if piece else "create"
        write_by_pylance(path, rows(ids, piece), mode=mode)


def make_source(count: int) -> pa.Table:
    """A tenth as many rows as the target, a tenth of which are in it: 1 % of the target."""
    matched = np.random.default_rng(7).choice(count, int(count * MATCHED), replace=False)
    new = np.arange(count, count + count // 10 - len(matched))
    ids = np.concatenate([matched, new])
    np.random.default_rng(8).shuffle(ids)
    return rows(ids, 99)


def upsert(table: LanceTable, source, condition: str | None = None) -> object:
    """Merge; with a condition, whatever it is, Spark joins, without one Python matches the rows."""
    merge = table.alias("t").merge(source.alias("s"), "t.id = s.id")
    updates = merge.whenMatchedUpdateAll(condition)
    return updates.whenNotMatchedInsertAll(condition).execute()


def measured(run: Callable[[str], object], folder: str, name: str, repeats: int) -> list[tuple]:
    """Return seconds, processor seconds, bytes written and MB grown, the fastest run first."""
    runs = []
    for number in range(repeats):
        path = f"{folder}/{name}{number}"
        shutil.copytree(f"{folder}/target", path)
        before, used = size_of(path), processor_seconds(os.getpid())
        cost, grown, _ = cost_with_memory(run, path)
        used = processor_seconds(os.getpid()) - used
        runs.append((cost.clock, used, size_of(path) - before, grown))
        after = lance.dataset(path).count_rows()
        print(f"{name}: {cost.clock:.2f} s, {used:.2f} processor s, {after:,} rows afterwards")
        shutil.rmtree(path)
    return sorted(runs)


def main(count: int = 10_000_000) -> None:
    with scratch() as folder:
        lance.write_dataset(make_source(count), f"{folder}/source")
        make_target(f"{folder}/target", count)
        changed = size_of(f"{folder}/source")

        def merge_by_pylance(path: str) -> None:
            merge = lance.dataset(path).merge_insert("id").when_matched_update_all()
            source = lance.dataset(f"{folder}/source").to_table()
            merge.when_not_matched_insert_all().execute(source)

        found = {"pylance merge_insert": measured(merge_by_pylance, folder, "pylance", 3)}
        spark = start_session({"spark.driver.memory": "3g"})
        source = spark.read.format("lance").load(f"{folder}/source")

        def merge(path: str, condition: str | None = None) -> None:
            upsert(LanceTable.forPath(spark, path), source, condition)

        joined = partial(merge, condition="s.id >= 0")
        found["LanceTable.merge"] = measured(merge, folder, "ours", REPEATS)
        found["LanceTable.merge by a join"] = measured(joined, folder, "joined", REPEATS)
        spark.stop()
    rows = []
    for name, runs in found.items():
        clock, used, written, _ = runs[0]
        grown = max(run[3] for run in runs)
        rows.append((name, clock, used, written / 1e6, written / changed, f"{grown:.0f}"))
    header = " | seconds | processor seconds | MB written | written / changed | grown MB"
    print_table(f"Merge of {count // 10:,} rows into {count:,}, fastest run", header, rows)
    clock, used = (found["LanceTable.merge"][0][i] / rows[0][1 + i] for i in (0, 1))
    print(f"\nRatio of the fastest runs {clock:.1f}, of their processor seconds {used:.1f}.")


if __name__ == "__main__":
    run(main)

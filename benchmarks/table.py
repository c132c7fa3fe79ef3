"""Tables without Spark, against pylance: python benchmarks/table.py [--rows 4000000].

Ratios are pylance's time divided by ours, on the same files; above 1 we are faster. pylance
decodes in one thread (it still fetches in another), and has its best of several batch sizes. The
second table has scans of very small fragments, whose processor time is of all threads.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial

from harness import (
    fastest_of_each,
    in_child,
    limit_pylance_to_one_thread,
    print_table,
    run,
    scan,
    scratch,
    write,
    write_by_pylance,
)

if __name__ == "__main__":
    limit_pylance_to_one_thread()

import lance
import numpy as np
import pyarrow as pa

from pyspark_lance.format.column_names import SYSTEM_COLUMNS
from pyspark_lance.table.scan.plan_scan import project
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

BATCH_ROWS = (8192, 65_536, 1_048_576)
FRAGMENT_ROWS = 100


def numbers(rows: int) -> pa.Table:
    """Ten numeric columns."""
    rng = np.random.default_rng(1)
    columns = {f"f{i}": rng.standard_normal(rows) for i in range(5)}
    columns |= {f"i{i}": rng.integers(-(2**62), 2**62, rows) for i in range(5)}
    return pa.table(columns)


def tables(rows: int) -> dict[str, pa.Table]:
    """Tables of several kinds."""
    rng = np.random.default_rng(2)
    words = np.array([f"category {i}" for i in range(200)])
    texts = [f"user-{i * 7919 % 1000003:06x}-{i % 97}" for i in range(rows)]
    values = pa.array(rng.standard_normal(rows // 40 * 768).astype(np.float32))
    return {
        "ten numbers": numbers(rows // 2),
        "small ints": pa.table({f"i{i}": rng.integers(0, 1000, rows) for i in range(4)}),
        "dictionary strings": pa.table({"s": words[rng.integers(0, 200, rows)]}),
        "distinct strings": pa.table({"s": texts}),
        "vectors": pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 768)}),
    }


def scan_in_batches(path: str, batch_size: int, **scan: object) -> int:
    """Return the rows of a scan by pylance."""
    scanner = lance.dataset(path).scanner(batch_size=batch_size, **scan)
    return sum(batch.num_rows for batch in scanner.to_batches())


def compare(
    label: str, path: str, repeats: int, ours: dict | None = None, theirs: dict | None = None
) -> tuple[object, ...]:
    """Return a row: milliseconds by the clock."""
    scans: list[Callable[[], int]] = [partial(scan, path, **(ours or {}))]
    scans += [partial(scan_in_batches, path, size, **(theirs or {})) for size in BATCH_ROWS]
    assert len({one() for one in scans}) == 1
    own, *other = (1e3 * one.clock for one in fastest_of_each(scans, repeats))
    return label, f"{own:.1f}", f"{min(other):.1f}", min(other) / own


def change_query_table(path: str) -> None:
    """1,000 fragments, and three that were appended later."""
    rows = 1_000_000
    columns = {f"x{i}": np.random.default_rng(i).random(rows) for i in range(5)}
    data = pa.table({"id": np.arange(rows), **columns})
    # Not by pylance: with one thread it waits for itself when it writes many files.
    for start, count in ((0, rows), (0, 1000), (1000, 1000), (2000, 1000)):
        write(path, data.slice(start, count), max_rows_per_file=1000)


def write_new(writes: Callable[[str, object], None], path: str, table: pa.Table) -> None:
    shutil.rmtree(path, ignore_errors=True)
    writes(path, table)


def compare_writes(label: str, folder: str, table: pa.Table) -> tuple[object, ...]:
    ways = (write, write_by_pylance)
    works = [partial(write_new, way, f"{folder}/{way.__name__}", table) for way in ways]
    own, other = (1e3 * one.clock for one in fastest_of_each(works, 3))
    return f"append, {label}", f"{own:.1f}", f"{other:.1f}", other / own


def write_small_fragments(path: str, fragments: int) -> None:
    """Write a table by pylance, in a process that lets it have more threads."""
    rows, rng = FRAGMENT_ROWS * fragments, np.random.default_rng(1)
    columns = {
        "id": np.arange(rows),
        "x": rng.random(rows),
        "small": rng.integers(0, 1000, rows, dtype=np.int32),
        "name": [f"user-{i * 7919 % 1000003:06x}" for i in range(rows)],
        "kind": np.array(["red", "green", "blue"])[rng.integers(0, 3, rows)],
        "flag": pa.array(rng.random(rows) < 0.5, mask=rng.random(rows) < 0.1),
    }
    write_by_pylance(path, pa.table(columns), max_rows_per_file=FRAGMENT_ROWS)


def compare_small_fragments(folder: str, fragments: int) -> tuple[object, ...]:
    path = f"{folder}/{fragments}"
    in_child(write_small_fragments, path, fragments)
    scans = [partial(scan, path), *(partial(scan_in_batches, path, n) for n in BATCH_ROWS[:2])]
    own, *others = fastest_of_each(scans, 3)
    (clock, processor), best = own, [min(one) for one in zip(*others, strict=True)]
    return (
        fragments, clock, best[0], clock / best[0], processor, best[1], processor / best[1],
    )  # fmt: skip


def main(*, rows: int = 4_000_000, repeats: int = 9, fragments: tuple = (2_000, 10_000)) -> None:
    every = {"system_columns": SYSTEM_COLUMNS}
    with scratch() as folder:
        found, made = [], tables(rows)
        for name, table in made.items():
            path = f"{folder}/{name}"
            write_by_pylance(path, table, max_rows_per_file=-(-table.num_rows // 2))
            found.append(compare(f"full scan, {name}", path, repeats))
        ten, lineage = f"{folder}/ten numbers", list(SYSTEM_COLUMNS)
        schema = Snapshot.open(Table(ten)).schema
        changed, one = "_row_created_at_version > 1", f"_rowid = {rows // 4}"
        names = {"columns": made["ten numbers"].column_names + lineage}
        change_query_table(many := f"{folder}/many")
        for label, path, ours, theirs in (
            ("one of ten columns", ten, {"schema": project(schema, ["f0"])}, {"columns": ["f0"]}),
            ("lineage columns only", ten, {"schema": project(schema, []), **every},
             {"columns": lineage}),
            ("ten numbers and lineage", ten, every, names),
            ("point lookup by _rowid", ten, {"condition": one}, {"filter": one}),
            ("change query, 3 of 1003 fragments", many, {"condition": changed},
             {"filter": changed}),
            ("full scan of the same table", many, {}, {}),
        ):  # fmt: skip
            found.append(compare(label, path, repeats, ours, theirs))
        found.append(compare_writes("ten numbers", folder, numbers(rows // 4)))
        found.append(compare_writes("vectors", folder, made["vectors"]))
        scans = [partial(scan, ten), partial(scan, ten, **every)]
        plain, with_lineage = fastest_of_each(scans, 4 * repeats)
        small = [compare_small_fragments(folder, count) for count in fragments]
    header = "what | ours ms | pylance ms | pylance / ours"
    print_table("Tables without Spark, version 2.1, one decoding thread", header, found)
    share = 100 * (with_lineage.clock / plain.clock - 1)
    print(f"\nFour lineage columns add {share:.0f} % to ten numbers.")
    header = "fragments | ours s | pylance s | ratio | ours processor | pylance processor | ratio"
    print_table("Scans of fragments of 100 rows and 6 columns", header, small)


if __name__ == "__main__":
    run(main)

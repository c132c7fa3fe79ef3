"""Compaction of many small fragments and cleanup of many versions, against pylance.

    python benchmarks/compaction.py [fragments] [rows of each]
    python benchmarks/compaction.py cleanup [versions] [files]

Each compaction runs in a process of its own, on one core, on a copy of the same table; both write
the same fragments. Memory is what the process grew by beyond the imports.
"""

from __future__ import annotations

import os
import shutil
import uuid
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from harness import cost_with_memory, in_child, plan, print_table, run, scratch, timed, write

from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

REPEATS = 3
LINKS = 50_000  # so many names a file may have


def build(path: str, fragments: int, rows: int) -> None:
    """A table by pylance, with some deleted rows."""
    rng = np.random.default_rng(1)
    total = fragments * rows
    table = pa.table(
        {
            "id": np.arange(total),
            "x": rng.random(total),
            "small": rng.integers(0, 1000, total, dtype=np.int32),
            "name": [f"user-{i * 7919 % 1000003:06x}" for i in range(total)],
            "kind": np.array(["red", "green", "blue"])[rng.integers(0, 3, total)],
        }
    )
    lance.write_dataset(table, path, max_rows_per_file=rows, enable_stable_row_ids=True)
    lance.dataset(path).delete("id % 50 = 7")


def compact_once(kind: str, path: str) -> tuple[float, float, float]:
    """Return seconds, processor seconds, and MB of one compaction on one core."""
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    work = partial(compact, Table(path))
    if kind == "pylance":
        dataset = lance.dataset(path)
        work = partial(dataset.optimize.compact_files, num_threads=1)
    cost, grown, _ = cost_with_memory(work)
    return *cost, grown


def planning(path: str) -> float:
    """Return the milliseconds to open the table and plan a scan."""
    seconds = []
    for _ in range(5):
        snapshots._cache.clear()
        seconds.append(timed(plan, path)[0].clock)
    return 1000 * min(seconds)


def compaction(fragments: int = 1000, rows: int = 10_000) -> None:
    """Compact a table of many small fragments."""
    found: dict[str, list[tuple[float, float, float]]] = {"pylance": [], "ours": []}
    with scratch() as folder:
        path, copy = f"{folder}/t", f"{folder}/copy"
        in_child(build, path, fragments, rows)
        for _ in range(REPEATS):
            for kind, runs in found.items():
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(path, copy)
                runs.append(in_child(compact_once, kind, copy))
        before, after = planning(path), planning(copy)
    best = {kind: min(runs) for kind, runs in found.items()}
    table = [
        (kind, *costs, f"{grown:.0f}", costs[1] / best["pylance"][1])
        for kind, (*costs, grown) in best.items()
    ]
    header = " | seconds | processor seconds | grown MB | times pylance's processor"
    print_table(f"Compaction of {fragments} fragments of {rows} rows, one core", header, table)
    print(f"\nopening and planning: {before:.1f} ms before, {after:.1f} ms after")


def build_versions(path: str, versions: int) -> None:
    """Many small commits, with a compaction now and then."""
    row = pa.table({"id": [1]})
    lance.write_dataset(row, path)
    for number in range(versions):
        if number % 50 == 49:
            lance.dataset(path).optimize.compact_files()
        lance.write_dataset(row, path, mode="append")


def build_files(path: str, files: int) -> None:
    """Two versions, of which the old one has many files: links to one of a row."""
    table, row = Table(path), pa.table({"id": [1]})
    plan = plan_write(table, row.schema, WriteSettings(), existing=None)
    (fragment,) = write_fragments(plan.request, row.to_batches())
    (file,) = fragment.files
    names = [f"{uuid.uuid4().hex}.lance" for _ in range(files)]
    linked = f"{path}/data/{file.path}"
    for number, name in enumerate(names):
        if number % LINKS:
            os.link(linked, f"{path}/data/{name}")
        else:
            linked = shutil.copy(linked, f"{path}/data/{name}")
    many = [replace(fragment, files=(replace(file, path=name),)) for name in names]
    commit_write(plan, [fragment, *many])
    write(path, row, overwrite=True)


def cleanup(versions: int = 1000, files: int = 100_000) -> None:
    """Clean up many versions, and a version of many files."""
    for build, count in ((build_versions, versions), (build_files, files)):
        rows = []
        for kind in ("pylance", "ours"):
            with scratch() as folder:
                path, steps = f"{folder}/t", list[int]()
                build(path, count)
                before = sum(one.is_file() for one in Path(path).rglob("*"))
                policy = CleanupPolicy(older_than_s=0)
                note = lambda done, total, steps=steps: steps.append(done)  # noqa: E731
                work = partial(cleanup_old_versions, Table(path), policy, progress=note)
                if kind == "pylance":
                    work = partial(lance.dataset(path).cleanup_old_versions, timedelta(0))
                cost, _ = timed(work)
                left = sum(one.is_file() for one in Path(path).rglob("*"))
            rows.append((kind, *cost, before, left, len(steps) or None))
        header = " | seconds | processor seconds | files | files left | reports of progress"
        what = "versions" if build is build_versions else "files of one version"
        print_table(f"Cleanup of {count:,} {what}", header, rows)


if __name__ == "__main__":
    run(compaction, cleanup)

"""Compaction of many small fragments and cleanup of many versions, against pylance.

python benchmarks/compaction.py [compaction | cleanup] [fragments] [rows of each]

Each compaction runs in a process of its own, on one core, on a copy of the same table; both write
the same fragments.  Memory is what the process grew by beyond the imports.
"""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
from timing import print_table

from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import WriteSettings, commit_write, plan_write

REPEATS = 3
VERSIONS = 1000
FILES = 100_000
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


def run_once(kind: str, path: str) -> None:
    """One compaction; prints seconds, processor seconds, and MB."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start, cpu = time.perf_counter(), time.process_time()
    if kind == "pylance":
        lance.dataset(path).optimize.compact_files(num_threads=1)
    else:
        compact(Table(path))
    seconds, busy = time.perf_counter() - start, time.process_time() - cpu
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(seconds, busy, grown)


def measured(kind: str, path: str, folder: str) -> tuple[float, float, float]:
    """Of one run on a copy of the table, on one core."""
    copy = f"{folder}/copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(path, copy)
    core = str(min(os.sched_getaffinity(0)))
    command = ["taskset", "-c", core, sys.executable, __file__, "--run", kind, copy]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    seconds, busy, grown = map(float, out.split())
    return seconds, busy, grown


def planning(path: str) -> float:
    """Milliseconds to open the table anew and plan a scan."""
    table = Table(path)
    best = float("inf")
    for _ in range(5):
        store = table.store()
        Snapshot.of_file(table, store, Snapshot.open(table).file)
        from pyspark_lance.table.version import snapshot

        snapshot._cache.clear()
        start = time.perf_counter()
        plan_scan(Snapshot.open(table), ScanRequest())
        best = min(best, time.perf_counter() - start)
    return 1000 * best


def compaction(folder: str, fragments: int, rows: int) -> None:
    """Prints the table of compactions."""
    path = f"{folder}/t"
    subprocess.run(
        [sys.executable, __file__, "--build", path, str(fragments), str(rows)], check=True
    )
    found: dict[str, list[tuple[float, float, float]]] = {"pylance": [], "ours": []}
    for _ in range(REPEATS):
        for kind, runs in found.items():
            runs.append(measured(kind, path, folder))
    before = planning(path)
    after = planning(f"{folder}/copy")
    theirs = min(found["pylance"])
    print_table(
        f"compaction of {fragments} fragments of {rows} rows, one core",
        ("", "seconds", "processor seconds", "grown MB", "times pylance's processor"),
        [
            (
                kind,
                f"{best[0]:.2f}",
                f"{best[1]:.2f}",
                f"{best[2]:.0f}",
                f"{best[1] / theirs[1]:.2f}",
            )
            for kind, best in ((kind, min(runs)) for kind, runs in found.items())
        ],
    )
    print(f"\nopening and planning: {before:.1f} ms before, {after:.1f} ms after")


def build_versions(path: str) -> None:
    """Many small commits, with a compaction now and then."""
    row = pa.table({"id": [1]})
    lance.write_dataset(row, path)
    for number in range(VERSIONS):
        if number % 50 == 49:
            lance.dataset(path).optimize.compact_files()
        lance.write_dataset(row, path, mode="append")


def build_files(path: str) -> None:
    """Two versions, of which the old one has many files: links to one of a row."""
    table, row = Table(path), pa.table({"id": [1]})
    plan = plan_write(table, row.schema, WriteSettings(), existing=None)
    (fragment,) = write_fragments(plan.request, row.to_batches())
    (file,) = fragment.files
    names = [f"{uuid.uuid4().hex}.lance" for _ in range(FILES)]
    linked = f"{path}/data/{file.path}"
    for number, name in enumerate(names):
        if number % LINKS:
            os.link(linked, f"{path}/data/{name}")
        else:
            linked = shutil.copy(linked, f"{path}/data/{name}")
    many = [replace(fragment, files=(replace(file, path=name),)) for name in names]
    commit_write(plan, [fragment, *many])
    existing = open_existing(table)
    plan = plan_write(table, row.schema, WriteSettings(overwrite=True), existing=existing)
    commit_write(plan, write_fragments(plan.request, row.to_batches()))


def _note(steps: list[int], done: int, total: int) -> None:
    steps.append(done)


def cleanup(folder: str, build: Callable[[str], None], title: str) -> None:
    """Prints how long it takes to clean up what ``build`` makes."""
    rows = []
    for kind in ("pylance", "ours"):
        path, steps = f"{folder}/{build.__name__}-{kind}", list[int]()
        build(path)
        before = sum(1 for one in Path(path).rglob("*") if one.is_file())
        start, cpu = time.perf_counter(), time.process_time()
        if kind == "pylance":
            lance.dataset(path).cleanup_old_versions(timedelta(0))
        else:
            cleanup_old_versions(
                Table(path), CleanupPolicy(older_than_s=0), progress=partial(_note, steps)
            )
        seconds, busy = time.perf_counter() - start, time.process_time() - cpu
        left = sum(1 for one in Path(path).rglob("*") if one.is_file())
        told = f"{len(steps)} times" if steps else ""
        rows.append((kind, f"{seconds:.2f}", f"{busy:.2f}", f"{before:,}", str(left), told))
        shutil.rmtree(path)
    header = ("", "seconds", "processor seconds", "files", "files left", "tells its progress")
    print_table(title, header, rows)


def main() -> None:
    """Runs all, or one part, or what a process of its own is started for."""
    first = sys.argv[1] if len(sys.argv) > 1 else ""
    if first == "--run":
        run_once(*sys.argv[2:])
        return
    if first == "--build":
        build(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
        return
    numbers = [int(one) for one in sys.argv[1:] if one.isdigit()]
    with tempfile.TemporaryDirectory() as folder:
        if first != "cleanup":
            compaction(folder, *(numbers or (1000, 10_000)))
        if first != "compaction":
            cleanup(folder, build_versions, f"cleanup of {VERSIONS:,} versions")
            cleanup(folder, build_files, f"cleanup of a version of {FILES:,} files")


if __name__ == "__main__":
    main()

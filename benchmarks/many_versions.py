"""What a commit and a look cost as a table keeps more versions, against pylance.

python benchmarks/many_versions.py [versions ...]

Tables with so many versions (10, 1,000 and 10,000) on a local disk, the same files for both.
Medians of 15 runs that take turns, in a process that goes on as a driver does.  pylance makes no
``fsync``; "without fsync" is ours with it left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
from timing import print_table

from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_to_write
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

RUNS = 15
ROWS = pa.table({"id": range(100), "text": [f"text {number}" for number in range(100)]})


def make_table(path: str, versions: int) -> None:
    """A table whose rows never changed, in so many versions."""
    lance.write_dataset(ROWS, path, enable_stable_row_ids=True)
    store = LocalStore(path)
    location = latest_version(store)
    assert location is not None
    file = read_manifest(store, location)
    for version in range(2, versions + 1):
        data = encode_manifest(replace(file.manifest, version=version), (), None)
        Path(path, manifest_path(version, NamingScheme.V2)).write_bytes(data)


def write_ours(path: str, *, overwrite: bool) -> None:
    table = Table(path)
    settings = WriteSettings(overwrite=overwrite)
    plan = plan_write(table, ROWS.schema, settings, existing=open_to_write(table))
    commit_write(plan, write_rows(plan, ROWS.to_batches()))


def scan_ours(path: str) -> None:
    tasks = plan_scan(Snapshot.open(Table(path)), ScanRequest())
    assert [batch for task in tasks for batch in task.run()]


def overwrite_theirs(path: str) -> None:
    lance.write_dataset(ROWS, path, mode="overwrite", enable_stable_row_ids=True)


def append_theirs(path: str) -> None:
    lance.write_dataset(ROWS, path, mode="append")


def scan_theirs(path: str) -> None:
    assert lance.dataset(path).to_table().num_rows


STEPS: dict[str, tuple[Callable[[str], None], Callable[[str], None]]] = {
    "open and scan": (scan_ours, scan_theirs),
    "append": (lambda path: write_ours(path, overwrite=False), append_theirs),
    "overwrite": (lambda path: write_ours(path, overwrite=True), overwrite_theirs),
}


@contextlib.contextmanager
def without_fsync() -> Iterator[None]:
    """Nothing is made to survive a power cut."""
    fsync = os.fsync
    os.fsync = lambda descriptor: None
    try:
        yield
    finally:
        os.fsync = fsync


def timed(function: Callable[[str], None], path: str) -> float:
    start = time.perf_counter()
    function(path)
    return time.perf_counter() - start


def measure(folder: str, versions: int) -> list[tuple[str, ...]]:
    """Rows of the table, for tables of that many versions."""
    paths = [f"{folder}/{versions}-{name}" for name in ("ours", "unsynced", "theirs")]
    make_table(paths[0], versions)
    for path in paths[1:]:
        shutil.copytree(paths[0], path)
    rows = []
    for name, (ours, theirs) in STEPS.items():
        found: list[list[float]] = [[], [], []]
        for _ in range(RUNS + 2):
            found[0].append(timed(ours, paths[0]))
            with without_fsync():
                found[1].append(timed(ours, paths[1]))
            found[2].append(timed(theirs, paths[2]))
        medians = [1000 * statistics.median(taken[2:]) for taken in found]
        rows.append((f"{versions:,}", name, *(f"{median:.1f}" for median in medians)))
    return rows


def main() -> None:
    counts = [int(text) for text in sys.argv[1:]] or [10, 1_000, 10_000]
    folder = tempfile.mkdtemp(prefix="pyspark-lance-bench-")
    try:
        rows = [row for count in counts for row in measure(folder, count)]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print_table(
        f"Tables that keep many versions, ms, load {os.getloadavg()[0]:.1f} "
        "(python benchmarks/many_versions.py)",
        ("versions", "step", "ours", "ours without fsync", "pylance"),
        rows,
    )


if __name__ == "__main__":
    main()

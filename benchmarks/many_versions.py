"""What commits and opens cost as a table keeps more versions, against pylance.

    python benchmarks/many_versions.py [versions ...]

Tables with so many versions (10, 1,000 and 10,000) on a local disk, the same files for both.
Medians of 15 runs that take turns, in a process that goes on as a driver does. pylance makes no
``fsync``; "without fsync" is ours with it left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import lance
import pyarrow as pa
from harness import print_table, run, scan, scan_by_pylance, scratch, timed, write

from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version, read_manifest
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.store.local_store import LocalStore

RUNS = 15
ROWS = pa.table({"id": range(100), "text": [f"text {number}" for number in range(100)]})
STEPS: dict[str, tuple[Callable[[str], object], Callable[[str], object]]] = {
    "open and scan": (scan, scan_by_pylance),
    "append": (
        lambda path: write(path, ROWS),
        lambda path: lance.write_dataset(ROWS, path, mode="append"),
    ),
    "overwrite": (
        lambda path: write(path, ROWS, overwrite=True),
        lambda path: lance.write_dataset(ROWS, path, mode="overwrite", enable_stable_row_ids=True),
    ),
}


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


@contextlib.contextmanager
def without_fsync() -> Iterator[None]:
    fsync = os.fsync
    os.fsync = lambda descriptor: None
    try:
        yield
    finally:
        os.fsync = fsync


def measure(folder: str, versions: int) -> Iterator[tuple[object, ...]]:
    """Yield a row for each step."""
    paths = [f"{folder}/{versions}-{name}" for name in ("ours", "unsynced", "pylance")]
    make_table(paths[0], versions)
    for path in paths[1:]:
        shutil.copytree(paths[0], path)
    for name, (ours, theirs) in STEPS.items():
        found: list[list[float]] = [[], [], []]
        for _ in range(RUNS + 2):
            found[0].append(timed(ours, paths[0])[0].clock)
            with without_fsync():
                found[1].append(timed(ours, paths[1])[0].clock)
            found[2].append(timed(theirs, paths[2])[0].clock)
        medians = (f"{1000 * statistics.median(taken[2:]):.1f}" for taken in found)
        yield versions, name, *medians


def main(*versions: str) -> None:
    with scratch() as folder:
        counts = map(int, versions or ("10", "1000", "10000"))
        rows = [row for count in counts for row in measure(folder, count)]
    header = "versions | step | ours | ours without fsync | pylance"
    print_table("Tables that keep many versions, ms", header, rows)


if __name__ == "__main__":
    run(main)

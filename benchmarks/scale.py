"""How costs grow with fragments, versions and files, and what they are for a table of 10 PB.

python benchmarks/scale.py [--fragments 50000,200000] [--versions 1000,10000] [--files 20000,80000]

Every cost is measured at two sizes; the line through both gives the slope, and the cost at the size
of the last column.  Seconds are those of the processor, memory is the growth of the peak, each in a
process of its own.  Of the data files only the names exist.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path

from harness import in_child, memory_mb, print_table, run, scratch, timed
from many_fragments import append_rows, build
from many_versions import make_table

from pyspark_lance.metafile.manifest_file import latest_version
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.cleanup.cleanup import cleanup_old_versions
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

# A table of 10 PB: fragments of 1 GB, of one data file each, and the versions of some months.
FRAGMENTS = 10_000_000
VERSIONS = 100_000
MB = 1e6

Costs = dict[str, float]


def open_table(path: str) -> Costs:
    """Open a version."""
    before = memory_mb("VmHWM")
    cost, snapshot = timed(lambda: Snapshot.open(Table(path)))
    return {
        "manifest, MB": Path(path, snapshot.file.location.path).stat().st_size / MB,
        "open, s": cost.processor,
        "open, MB of memory": memory_mb("VmHWM") - before,
    }


def plan(path: str) -> Costs:
    """Plan a scan of all rows, and pickle its tasks."""
    snapshot = Snapshot.open(Table(path))
    before = memory_mb("VmHWM")
    cost, tasks = timed(lambda: [pickle.dumps(one) for one in plan_scan(snapshot, ScanRequest())])
    return {
        "plan a full scan, s": cost.processor,
        "plan a full scan, MB of memory": memory_mb("VmHWM") - before,
        "tasks of a full scan, MB sent": sum(map(len, tasks)) / MB,
    }


def append(path: str) -> Costs:
    """Append in a process that has read the table, with the manifest in its cache."""
    before = memory_mb("VmHWM")
    append_rows(path)
    return {
        "append, s": min(timed(append_rows, path)[0].processor for _ in range(3)),
        "append, MB of memory": memory_mb("VmHWM") - before,
    }


def look_up(path: str) -> Costs:
    """Find the newest version of a folder."""
    store = LocalStore(path)
    seconds = min(timed(latest_version, store)[0].processor for _ in range(5))
    return {"find the newest version in a folder, s": seconds}


def clean_up(path: str) -> Costs:
    """List the files of a table, and find that there is nothing to remove."""
    before = memory_mb("VmHWM")
    cost, _ = timed(cleanup_old_versions, Table(path))
    return {"cleanup, s": cost.processor, "cleanup, MB of memory": memory_mb("VmHWM") - before}


def files(path: str, count: int) -> None:
    """Make a table of so many fragments whose data files are there, and empty."""
    build(path, count)
    for fragment in Snapshot.open(Table(path)).manifest.fragments:
        for file in fragment.files:
            Path(path, "data", file.path).touch()


# By option: builds a table, the steps, and the size that the last column is for.
SIZES: dict[str, tuple[Callable[[str, int], None], tuple[Callable[[str], Costs], ...], int]] = {
    "fragments": (build, (open_table, plan, append), FRAGMENTS),
    "versions": (make_table, (look_up,), VERSIONS),
    "files": (files, (clean_up,), FRAGMENTS),
}


def costs_at(kind: str, count: int) -> Costs:
    """Measure all steps of a kind on a table of this size, each in a process of its own."""
    make, steps, _ = SIZES[kind]
    with scratch() as folder:
        make(f"{folder}/table", count)
        costs = [in_child(step, f"{folder}/table") for step in steps]
    return {name: cost for one in costs for name, cost in one.items()}


def main(
    *,
    fragments: tuple = (50_000, 200_000),
    versions: tuple = (1_000, 10_000),
    files: tuple = (20_000, 80_000),
) -> None:
    rows = []
    for kind, sizes in (("fragments", fragments), ("versions", versions), ("files", files)):
        (small, large), target = sizes, SIZES[kind][2]
        low, high = costs_at(kind, small), costs_at(kind, large)
        for name in low:
            slope = (high[name] - low[name]) / (large - small)
            there = high[name] + slope * (target - large)
            rows.append((
                name, f"{low[name]:.3g} at {small:,} {kind}", f"{high[name]:.3g} at {large:,}",
                f"{slope * 1e6:,.3g}", f"{there:,.3g} at {target:,}",
            ))  # fmt: skip
    print_table("Growth of costs", "what | small | large | for each million | extrapolated", rows)


if __name__ == "__main__":
    run(main)

"""Planning and committing tables of very many fragments: python benchmarks/many_fragments.py.

python benchmarks/many_fragments.py [fragments ...]

The manifest is written directly; of the data files only the names exist, each with random bytes of
its own.  Seconds are those of the processor, in processes of their own.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from timing import print_table

from pyspark_lance.format.column_names import LAST_UPDATED_AT, SYSTEM_COLUMNS
from pyspark_lance.format.fragment import new_data_file_name
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.wire import length_delimited
from pyspark_lance.metafile.manifest_file import encode_manifest
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.index.zone_map_file import ZoneMap
from pyspark_lance.table.index_build.zone_maps import (
    Built,
    BuiltZones,
    ZoneMapTask,
    create_zone_maps,
)
from pyspark_lance.table.rows.scan_split import Slices
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

ROWS = 100

_T = TypeVar("_T")


def build(path: str, count: int) -> None:
    """A table of so many fragments, as if they had been appended one by one."""
    data = pa.table({"id": np.arange(ROWS), "x": np.random.default_rng(1).random(ROWS)})
    plan = plan_write(Table(path), data.schema, WriteSettings(), existing=None)
    commit_write(plan, write_rows(plan, data.to_batches()))
    file = Snapshot.open(Table(path)).file
    (first,) = file.manifest.fragments
    message, rng = first.to_proto(), np.random.default_rng(2)
    encoded = []
    for number in range(count):
        message.id = number
        message.inline_row_ids = RowIdSequence.consecutive(ROWS * number, ROWS).to_bytes()
        message.files[0].path = new_data_file_name(rng.bytes(16))
        encoded.append(length_delimited(2, message.SerializeToString()))
    fragments = Manifest.from_bytes(b"".join(encoded)).fragments
    manifest = replace(
        file.manifest,
        version=2,
        fragments=fragments,
        max_fragment_id=count - 1,
        next_row_id=ROWS * count,
    )
    name = manifest_path(2, NamingScheme.V2)
    Path(path, name).write_bytes(encode_manifest(manifest, (), None))


def peak_mb() -> float:
    """Most memory of this process so far, MB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no VmHWM")


def timed(work: Callable[[], _T]) -> tuple[float, _T]:
    """Seconds of the processor, and what came out."""
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def plan(path: str) -> dict[str, str]:
    """Opens, plans and pickles all rows, as Spark's planning does."""
    imports = peak_mb()
    opened, snapshot = timed(lambda: Snapshot.open(Table(path)))
    planned, tasks = timed(lambda: plan_scan(snapshot, ScanRequest()))
    pickled, plans = timed(lambda: [pickle.dumps(task) for task in tasks])
    peak = peak_mb()
    first, task = timed(lambda: pickle.loads(plans[0]))
    assert sum(len(one.slices) for one in tasks) == len(snapshot.manifest.fragments)
    lineage = plan_scan(snapshot, ScanRequest(system_columns=SYSTEM_COLUMNS))
    with_lineage = sum(len(pickle.dumps(one)) for one in lineage)
    return {
        "read the manifest, s": f"{opened:.2f}",
        "plan, s": f"{planned:.2f}",
        "pickle the plan, s": f"{pickled:.2f}",
        "together, s": f"{opened + planned + pickled:.2f}",
        "peak memory, MB": f"{peak:.0f} (imports {imports:.0f})",
        "tasks": f"{len(tasks)}",
        "plan, MB": f"{sum(map(len, plans)) / 1e6:.1f}",
        "plan with lineage columns, MB": f"{with_lineage / 1e6:.1f}",
        "unpickle one task, ms": f"{1000 * first:.1f} ({len(task.slices)} fragments)",
    }


def prune(path: str) -> dict[str, str]:
    """Conditions on lineage, each the first question of its process; then once more."""
    snapshot = Snapshot.open(Table(path))
    schema = predicate_schema(snapshot.schema)
    rows = ROWS * len(snapshot.manifest.fragments)
    found = {}
    for text, left in (
        (f"{LAST_UPDATED_AT} > 1", 0),
        (f"_rowid = {rows // 2}", 1),
        (f"_rowaddr < {1 << 34}", 4),
    ):
        condition = parse_predicate(text, schema)
        seconds = []
        for _ in range(2):
            took, tasks = timed(partial(plan_scan, snapshot, ScanRequest(predicate=condition)))
            assert sum(len(task.slices) for task in tasks) == left
            seconds.append(f"{took:.2f}")
        found[f"plan where {text}, first and second time, s"] = " and ".join(seconds)
    return found


def zones_as_written(tasks: Sequence[ZoneMapTask]) -> Iterator[Built]:
    """The zones that files would give in which each fragment goes on counting where one ended."""
    for task in tasks:
        ids = Slices.of(task.scan.slices).fragments.ids.astype(np.uint64)
        first = ids.astype(np.int64) * ROWS
        zones = ZoneMap(
            pa.array(first),
            pa.array(first + ROWS - 1),
            np.zeros(len(ids), np.uint32),
            np.zeros(len(ids), np.uint32),
            ids,
            np.zeros(len(ids), np.uint64),
            np.full(len(ids), ROWS, np.uint64),
        )
        yield (BuiltZones(zones.to_batch(), {}),)


def zones(path: str) -> dict[str, str]:
    """Gives the table a zone map."""
    took, _ = timed(partial(create_zone_maps, Table(path), ["id"], run=zones_as_written))
    return {"note the zones of all fragments, s": f"{took:.2f}"}


def prune_by_zones(path: str) -> dict[str, str]:
    """Conditions on the column with the zone map; the first is the first of its process."""
    snapshot = Snapshot.open(Table(path))
    schema, count = predicate_schema(snapshot.schema), len(snapshot.manifest.fragments)
    found = {}
    for text, left in (
        (f"id = {ROWS * count // 2}", 1),
        (f"id < {ROWS * count // 100}", count // 100),
    ):
        request = ScanRequest(predicate=parse_predicate(text, schema))
        seconds = []
        for _ in range(2):
            took, tasks = timed(partial(plan_scan, snapshot, request))
            assert sum(len(task.slices) for task in tasks) == left
            seconds.append(f"{took:.2f}")
        found[f"plan where {text} by a zone map, first and second time, s"] = " and ".join(seconds)
    return found | {"peak memory with a zone map, MB": f"{peak_mb():.0f}"}


def append_rows(path: str) -> None:
    """Appends a few rows."""
    data = pa.table({"id": np.arange(ROWS), "x": np.zeros(ROWS)})
    table = Table(path)
    done = plan_write(table, data.schema, WriteSettings(), existing=Snapshot.open(table))
    commit_write(done, write_rows(done, data.to_batches()))


def append(path: str) -> dict[str, str]:
    """An append to the table by a process that has read it, and one by a new process."""
    seconds = [timed(partial(append_rows, path))[0] for _ in range(3)]
    return {
        "first append, s": f"{seconds[0]:.2f}",
        "next appends, s": f"{min(seconds[1:]):.2f}",
        "peak memory of appends, MB": f"{peak_mb():.0f}",
    }


STEPS = {
    "plan": plan,
    "prune": prune,
    "zones": zones,
    "prune_by_zones": prune_by_zones,
    "append": append,
}


def measured(step: str, path: str, script: str = __file__) -> dict[str, Any]:
    """What a step of a script finds in a process of its own."""
    command = [sys.executable, script, step, path]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(printed)
    return found


def main() -> None:
    """Prints a table for each count."""
    for count in [int(text) for text in sys.argv[1:]] or [100_000, 1_000_000]:
        with tempfile.TemporaryDirectory(prefix="pyspark-lance-bench-") as folder:
            build(f"{folder}/many", count)
            found = {k: v for step in STEPS for k, v in measured(step, f"{folder}/many").items()}
        print_table(
            f"{count:,} fragments, load {os.getloadavg()[0]:.1f} "
            "(python benchmarks/many_fragments.py)",
            ("what", "value"),
            list(found.items()),
        )


if __name__ == "__main__":
    if len(sys.argv) > 2 and sys.argv[1] in STEPS:
        print(json.dumps(STEPS[sys.argv[1]](sys.argv[2])))
    else:
        main()

"""Planning and committing tables of very many fragments: python benchmarks/many_fragments.py.

python benchmarks/many_fragments.py [fragments ...]

The manifest is written directly; of the data files only the names exist, each with random bytes of
its own.  Seconds are those of the processor, in processes of their own.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
from harness import in_child, memory_mb, print_table, run, scratch, timed, write

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

ROWS = 100


def build(path: str, count: int) -> None:
    """A table of so many fragments, as if they had been appended one by one."""
    data = pa.table({"id": np.arange(ROWS), "x": np.random.default_rng(1).random(ROWS)})
    write(path, data)
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


def plan_rows(path: str) -> dict[str, str]:
    """Opens, plans and pickles all rows, as Spark's planning does."""
    imports = memory_mb("VmHWM")
    opened, snapshot = timed(lambda: Snapshot.open(Table(path)))
    planned, tasks = timed(lambda: plan_scan(snapshot, ScanRequest()))
    pickled, plans = timed(lambda: [pickle.dumps(task) for task in tasks])
    peak = memory_mb("VmHWM")
    first, task = timed(lambda: pickle.loads(plans[0]))
    assert sum(len(one.slices) for one in tasks) == len(snapshot.manifest.fragments)
    lineage = plan_scan(snapshot, ScanRequest(system_columns=SYSTEM_COLUMNS))
    with_lineage = sum(len(pickle.dumps(one)) for one in lineage)
    return {
        "read the manifest, s": f"{opened.processor:.2f}",
        "plan, s": f"{planned.processor:.2f}",
        "pickle the plan, s": f"{pickled.processor:.2f}",
        "together, s": f"{opened.processor + planned.processor + pickled.processor:.2f}",
        "peak memory, MB": f"{peak:.0f} (imports {imports:.0f})",
        "tasks": f"{len(tasks)}",
        "plan, MB": f"{sum(map(len, plans)) / 1e6:.1f}",
        "plan with lineage columns, MB": f"{with_lineage / 1e6:.1f}",
        "unpickle one task, ms": f"{1000 * first.processor:.1f} ({len(task.slices)} fragments)",
    }


def plan_twice(path: str, conditions: dict[str, int], note: str = "") -> dict[str, str]:
    """Plan conditions with the fragments that are left; the first is the first of its process."""
    snapshot = Snapshot.open(Table(path))
    schema, found = predicate_schema(snapshot.schema), {}
    for text, left in conditions.items():
        request = ScanRequest(predicate=parse_predicate(text, schema))
        seconds = []
        for _ in range(2):
            took, tasks = timed(plan_scan, snapshot, request)
            assert sum(len(task.slices) for task in tasks) == left
            seconds.append(f"{took.processor:.2f}")
        found[f"plan where {text}{note}, first and second time, s"] = " and ".join(seconds)
    return found


def prune(path: str) -> dict[str, str]:
    """Conditions on lineage."""
    rows = ROWS * len(Snapshot.open(Table(path)).manifest.fragments)
    conditions = {f"{LAST_UPDATED_AT} > 1": 0, f"_rowid = {rows // 2}": 1}
    return plan_twice(path, {**conditions, f"_rowaddr < {1 << 34}": min(4, rows // ROWS)})


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
    """Give the table a zone map."""
    work = partial(create_zone_maps, Table(path), ["id"], run=zones_as_written)
    took, _ = timed(work)
    return {"note the zones of all fragments, s": f"{took.processor:.2f}"}


def prune_by_zones(path: str) -> dict[str, str]:
    """Conditions on the column with the zone map."""
    count = len(Snapshot.open(Table(path)).manifest.fragments)
    conditions = {f"id = {ROWS * count // 2}": 1, f"id < {ROWS * count // 100}": count // 100}
    found = plan_twice(path, conditions, " by a zone map")
    return found | {"peak memory with a zone map, MB": f"{memory_mb('VmHWM'):.0f}"}


def append_rows(path: str) -> None:
    """Append a few rows."""
    write(path, pa.table({"id": np.arange(ROWS), "x": np.zeros(ROWS)}))


def append(path: str) -> dict[str, str]:
    """An append by a new process, and appends by one that has read the table."""
    seconds = [timed(append_rows, path)[0].processor for _ in range(3)]
    return {
        "first append, s": f"{seconds[0]:.2f}",
        "next appends, s": f"{min(seconds[1:]):.2f}",
        "peak memory of appends, MB": f"{memory_mb('VmHWM'):.0f}",
    }


def main(*fragments: str) -> None:
    steps = (plan_rows, prune, zones, prune_by_zones, append)
    for count in map(int, fragments or ("100000", "1000000")):
        with scratch() as folder:
            build(f"{folder}/many", count)
            found = [in_child(step, f"{folder}/many") for step in steps]
        rows = [row for one in found for row in one.items()]
        print_table(f"{count:,} fragments", "what | value", rows)


if __name__ == "__main__":
    run(main)

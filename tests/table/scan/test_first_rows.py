"""A scan with a limit: the first rows, and not many more are read than are asked for."""

from __future__ import annotations

from dataclasses import replace

import lance
import numpy as np
import pyarrow as pa
import pytest
from process_boundary import sent
from random_seeds import grid

from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema
from pyspark_lance.table.scan.scan_statistics import limit_tasks
from pyspark_lance.table.scan.scan_task import MAX_LIMIT, ScanTask
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> str:
    """Fragments of many sizes; one lost its first rows, one nearly all, one some everywhere."""
    folder = str(tmp_path_factory.mktemp("first") / "t")
    first = 0
    for rows in (9000, 40, 7000, 5000, 1, 3000):
        ids = range(first, first + rows)
        notes = [f"note {i}" for i in ids]
        lance.write_dataset(pa.table({"id": ids, "note": notes}), folder, mode="append")
        first += rows
    lance.dataset(folder).delete(
        "id < 3000 OR (id >= 9040 AND id < 16035) OR (id >= 16040 AND id % 5 = 0)"
    )
    return folder


def tasks_of(path: str, **request: object) -> list[ScanTask]:
    return list(plan_scan(Snapshot.open(Table(path)), ScanRequest(parallelism=3, **request)))


def ids_of(tasks: tuple[ScanTask, ...] | list[ScanTask]) -> list[int]:
    batches = [batch for task in tasks for batch in sent(task).run()]
    return [value for batch in batches for value in batch["id"].to_pylist()]


def rows_of(task: ScanTask) -> list[dict[str, object]]:
    return [row for batch in sent(task).run() for row in batch.to_pylist()]


def old_fragment(fragment: Fragment) -> Fragment:
    """The fragment as very old software wrote it."""
    file = fragment.deletion_file
    return replace(fragment, deletion_file=file and replace(file, num_deleted_rows=0))


def test_limited_tasks_return_first_rows(path):
    whole = ids_of(tasks_of(path))
    limits = {0, 1, 2, 41, 5999, 6000, 6001, len(whole), len(whole) + 1}
    for limit in sorted(limits | set(np.random.default_rng(3).integers(0, len(whole), 15))):
        found = ids_of(limit_tasks(tasks_of(path), limit))
        assert found == whole[: len(found)]
        assert len(found) >= min(limit, len(whole)), limit


def test_limited_tasks_read_only_needed_rows(path):
    (task,) = limit_tasks(tasks_of(path), 7)
    (only,) = task.slices
    assert (only.start, only.end) == (0, 3007)
    assert sum(task.num_rows for task in limit_tasks(tasks_of(path), 6001)) == 9000 + 1


CONDITIONS = (
    "id % 3 = 0", "id % 100 = 99", "id >= 12000", "id < 0", "_rowid % 7 = 1",
    "_rowaddr % 3 = 0 AND id IS NOT NULL", "note LIKE '%9'",
)  # fmt: skip


@pytest.mark.parametrize(("condition", "batch_rows"), grid(CONDITIONS, (100, 65_536)))
def test_filtered_tasks_return_first_matching_rows(path, condition, batch_rows):
    schema = predicate_schema(Snapshot.open(Table(path)).schema)
    tasks = tasks_of(path, predicate=parse_predicate(condition, schema), batch_rows=batch_rows)

    for limit in (1, 2, 41, 700, MAX_LIMIT):
        for whole, task in zip(tasks, limit_tasks(tasks, limit), strict=True):
            assert rows_of(task) == rows_of(whole)[:limit]
    assert limit_tasks(tasks, MAX_LIMIT + 1) == tuple(tasks)


def test_filtered_tasks_at_offsets_return_first_matching_rows(path):
    schema = predicate_schema(Snapshot.open(Table(path)).schema)
    predicate = parse_predicate("id % 2 = 0", schema)
    (task,) = tasks_of(path, predicate=predicate)[:1]
    (split,) = task.slices[:1]
    for offsets in (range(2000, 9000, 97), range(2000, 9000)):
        some = replace(split, offsets=OffsetSet.of(np.array(offsets)))
        task = replace(task, slices=(some,))
        assert ids_of(limit_tasks([task], 50)) == ids_of([task])[:50]


@pytest.mark.parametrize("condition", ["id % 2 = 0", "_rowid % 2 = 0"])
def test_limited_tasks_end_with_their_rows(path, condition):
    schema = predicate_schema(Snapshot.open(Table(path)).schema)
    tasks = tasks_of(path, predicate=parse_predicate(condition, schema), batch_rows=100)
    (split,) = (part for task in tasks for part in task.slices if part.fragment.id == 3)
    (task,) = limit_tasks([replace(tasks[0], slices=(split, split))], 2)
    calls: list[None] = []
    assert len(rows_of(replace(task, limit=None))) > 2
    list(task.run(has_enough=lambda: bool(calls.append(None))))
    assert len(calls) == 2  # before the split, and its first rows


def test_uncounted_deleted_rows_do_not_shorten_limited_tasks(path):
    def uncounted(task: ScanTask) -> ScanTask:
        slices = [replace(part, fragment=old_fragment(part.fragment)) for part in task.slices]
        return replace(task, slices=tuple(slices))

    whole = ids_of(tasks_of(path))
    for limit in (1, 6001, 6100):
        found = ids_of(limit_tasks(map(uncounted, tasks_of(path)), limit))
        assert found[:limit] == whole[:limit]

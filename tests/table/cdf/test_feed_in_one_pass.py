"""Feeds of many versions read each file once, and are what the versions themselves say.

Random histories of all that changes rows or files are compared with scans of every version, and
with the feeds of single versions, in which nothing is read for another one.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from interleaved_operations import update_in_place
from local_changes import delete_rows, update_rows
from random_seeds import seeds
from row_changes import upsert
from table_access import read_changes, read_ours, remove_versions, write_table

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.format.logical_view import logical_schema
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.cdf import changed_rows, version_changes
from pyspark_lance.table.cdf.change_feed import ChangeRequest, plan_changes
from pyspark_lance.table.cdf.change_feed_task import SideReader, UpdateChanges
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication
from pyspark_lance.table.cdf.changed_rows import in_passes
from pyspark_lance.table.columns.change_columns import (
    add_columns,
    add_null_columns,
    compute_columns,
)
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.scan import plan_scan
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

BLOB = pa.field("b", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
BLOBS = [b"one", b"two", None, b"1" * 5000, b"2" * 5000]
OLD = {"delete", "update_preimage"}


class History:
    """A table that changes at random."""

    def __init__(self, path: str, seed: int, rows: int = 60) -> None:
        self.path, self.rng, self.next_id, self.columns = path, np.random.default_rng(seed), 0, 0
        self.append(rows)

    def draw(self, most: int) -> int:
        return int(self.rng.integers(most))

    @property
    def names(self) -> list[str]:
        return [field.name for field in Snapshot.open(Table(self.path)).schema.fields]

    def some(self) -> str:
        return f"id % {2 + self.draw(6)} = {self.draw(2)} AND id >= {self.draw(30)}"

    def append(self, count: int = 9) -> None:
        ids = np.arange(self.next_id, self.next_id + count)
        self.next_id += count
        kinds = [("id", pa.int64()), ("n", pa.int64()), ("s", pa.string()), BLOB]
        rows = {"id": ids, "n": ids % 3, "s": [f"s{one % 4}" for one in ids]}
        rows["b"] = [BLOBS[self.draw(5)] for _ in ids]
        write_table(
            self.path, pa.table(rows, pa.schema(kinds)), merge_schema=True,
            max_rows_per_file=int(self.rng.choice([15, 40, 1000])),
        )  # fmt: skip

    def update(self) -> None:
        amount = self.draw(2)  # none is a row that is written again
        update_rows(self.path, self.some(), ["n"], lambda batch: {"n": pc.add(batch["n"], amount)})

    def update_blobs(self) -> None:
        blob = BLOBS[self.draw(5)]

        def values(batch):
            return {"b": pa.array([blob] * batch.num_rows, pa.large_binary())}

        update_rows(self.path, self.some(), ["b"], values)

    def update_in_place(self) -> None:
        update_in_place(self.path, self.some())

    def merge(self) -> None:
        ids = self.rng.permutation(self.next_id + 5)[:15]
        self.next_id += 5
        upsert(self.path, pa.table({"id": ids, "n": ids * 2, "s": ["merged"] * len(ids)}))

    def delete(self) -> None:
        delete_rows(self.path, self.some())

    def compact(self) -> None:
        compact(Table(self.path))

    def restore(self) -> None:
        version = 1 + self.draw(Snapshot.open(Table(self.path)).version)
        restore(Table(self.path), VersionSpec(version=version))

    def add_column(self) -> None:
        self.columns += 1
        name = f"x{self.columns}"
        if self.draw(2):
            add_null_columns(Table(self.path), pa.schema([(name, pa.int64())]))
        else:
            double = compute_columns(["id"], lambda batch: [pc.multiply(batch["id"], 2)])
            add_columns(Table(self.path), pa.schema([(name, pa.int64())]), double)

    def step(self) -> None:
        steps = [
            self.update, self.update, self.update, self.update_blobs, self.update_in_place,
            self.update_in_place, self.merge, self.merge, self.delete, self.delete, self.append,
            self.compact, self.restore, self.add_column,
        ]  # fmt: skip
        steps[self.draw(len(steps))]()


@pytest.fixture(params=["as it is", "small passes", "many tasks", "by version"])
def limits(request, monkeypatch):
    """What a request says besides."""
    if request.param == "as it is":
        return {}
    monkeypatch.setattr(changed_rows, "_IDS_OF_SMALL", 2)
    monkeypatch.setattr(version_changes, "_FEW_ROWS", 0)
    if request.param != "small passes":
        monkeypatch.setattr(plan_scan, "_MIN_TASK_BYTES", 1)
    if request.param == "by version":
        # Each file is expensive to open, so tasks and passes have few versions.
        return {"parallelism": 3, "batch_bytes": 2000}
    for name in ("OPEN_COST_BYTES", "_LOOKUP_BYTES"):
        monkeypatch.setattr(changed_rows, name, 1)
    if request.param == "many tasks":
        return {"parallelism": 7}
    return {"batch_bytes": 500, "batch_rows": 4}


def rows_at(path, version, schema):
    """Row id -> values in the columns of ``schema``, null for those that it does not have."""
    at = VersionSpec(version=version)
    own = logical_schema(Snapshot.open(Table(path), at).schema, binary_blobs={"b"})
    table = read_ours(path, at, schema=own, system_columns=("_rowid",))
    names = [field.name for field in schema.fields]
    return {row["_rowid"]: tuple(map(row.get, names)) for row in table.to_pylist()}


def difference(before, after):
    """What a feed says of two versions."""
    both = [row for row in before.keys() & after.keys() if before[row] != after[row]]
    return Counter(
        [(row, "delete", before[row]) for row in before.keys() - after.keys()]
        + [(row, "insert", after[row]) for row in after.keys() - before.keys()]
        + [(row, "update_preimage", before[row]) for row in both]
        + [(row, "update_postimage", after[row]) for row in both]
    )


def changes(path, window, mode, schema, **limits):
    """Version -> what changed."""
    end = Snapshot.open(Table(path), VersionSpec(version=window[1])).version
    fields = schema.fields
    found = read_changes(path, window[0], end, mode, shown=fields, columns=fields, **limits)
    names = [field.name for field in fields]
    versions: dict[int, Counter] = {}
    for row in found.to_pylist():
        of_version = versions.setdefault(row["_commit_version"], Counter())
        of_version[row["_rowid"], row["_change_type"], tuple(map(row.get, names))] += 1
    return versions


@pytest.mark.parametrize("seed", seeds(40, in_ci=1, first=1))
def test_feed_of_many_versions_equals_version_differences(tmp_path, limits, seed):
    path = str(tmp_path / "t")
    history = History(path, seed)
    for _ in range(9):
        history.step()
    last = Snapshot.open(Table(path)).version
    if seed % 3 == 2:
        remove_versions(path, [one for one in range(1, last) if history.draw(4) == 0])
    left = sorted(one.version for one in list_versions(open_store(path, {})))
    schema = logical_schema(Snapshot.open(Table(path)).schema, binary_blobs={"b"})
    states = {version: rows_at(path, version, schema) for version in left}
    window = left[0] + 1, last
    found: dict[int, Counter] = {}
    for version, counted in changes(path, window, "dropCarryovers", schema, **limits).items():
        found.setdefault(left[bisect_left(left, version)], Counter()).update(counted)
    steps = list(pairwise(left))
    expected = {new: difference(states[old], states[new]) for old, new in steps}
    assert found == {version: counted for version, counted in expected.items() if counted}
    net = changes(path, window, "netChanges", schema, **limits).values()
    assert sum(net, Counter()) == difference(states[left[0]], states[last])


@pytest.mark.parametrize("seed", seeds(40, in_ci=1))
def test_feed_of_many_versions_equals_single_version_feeds(tmp_path, limits, seed):
    path = str(tmp_path / "t")
    history = History(path, seed)
    kinds = [history.update, history.update_in_place, history.merge, history.delete,
             history.update_blobs, history.append]  # fmt: skip
    for _ in range(9):
        kinds[history.draw(len(kinds))]()
    last = Snapshot.open(Table(path)).version
    schema = logical_schema(Snapshot.open(Table(path)).schema, binary_blobs={"b"})
    single: dict[int, Counter] = {}
    for version in range(2, last + 1):
        single |= changes(path, (version, version), "none", schema)
    assert changes(path, (2, last), "none", schema, **limits) == single


# In one pass ------------------------------------------------------------------------------


@pytest.fixture
def taken(monkeypatch):
    """Path of a file -> how often rows were decoded, for all that reads rows by their place."""
    counts: Counter = Counter()
    take = DataFileReader.take

    def counted(self, fields, *args, **more):
        counts[self._file.path] += bool(fields)
        return take(self, fields, *args, **more)

    monkeypatch.setattr(DataFileReader, "take", counted)
    return counts


def plan(path, mode="none", parallelism=1, **more):
    snapshot = Snapshot.open(Table(path))
    fields = snapshot.schema.fields
    window = ChangeWindow(2, snapshot.version)
    request = ChangeRequest(window, Deduplication(mode), fields, parallelism=parallelism, **more)
    return plan_changes(Table(path), fields, request)


def add(path, amount, condition):
    update_rows(path, condition, ["x"], lambda batch: {"x": pc.add(batch["x"], amount)})


def add_one(path, condition):
    add(path, 1, condition)


def three_fragments(folder):
    path = str(folder / "t")
    rows = pa.table({"id": np.arange(3000), "x": np.zeros(3000, np.int64)})
    write_table(path, rows, max_rows_per_file=1000)
    return path


@pytest.fixture
def scattered(tmp_path):
    """Three fragments, of which each version changes every tenth row, or deletes some."""
    path = three_fragments(tmp_path)
    for version in range(6):
        add_one(path, f"id % 10 = {version}")
    delete_rows(path, "id % 10 = 7")
    delete_rows(path, "id % 10 = 8 OR id % 10 = 1")
    return path


@pytest.mark.parametrize("mode", ["none", "dropCarryovers", "netChanges"])
def test_files_are_read_in_one_pass(scattered, taken, mode):
    (task,) = plan(scattered, mode)
    batches = list(task.run())
    assert sum(batch.num_rows for batch in batches) in (6 * 600 + 900, 5 * 600 + 900)
    assert set(taken.values()) == {1}
    first = Snapshot.open(Table(scattered), VersionSpec(version=1)).manifest.fragments
    assert {f"data/{fragment.files[0].path}" for fragment in first} <= set(taken)


def test_kept_columns_are_read_once_despite_replaced_columns(tmp_path, taken):
    path = str(tmp_path / "t")
    ids = np.arange(1000)
    rows = {"id": ids, "n": ids.astype(np.int32), "s": [f"text {one}" for one in ids]}
    write_table(path, pa.table(rows))
    for version in range(5):
        update_in_place(path, f"id % 10 = {version}")
    taken.clear()
    (task,) = plan(path)
    assert sum(batch.num_rows for batch in task.run()) == 5 * 200
    (fragment,) = Snapshot.open(Table(path), VersionSpec(version=1)).manifest.fragments
    # Of the first file other columns are read once ``n`` is elsewhere.
    assert taken[f"data/{fragment.files[0].path}"] == 2
    assert max(taken.values()) == 2


def test_changes_of_one_fragment_share_task(scattered, monkeypatch):
    monkeypatch.setattr(changed_rows, "_IDS_OF_SMALL", 1)
    monkeypatch.setattr(plan_scan, "_MIN_TASK_BYTES", 1)
    tasks = plan(scattered, parallelism=1000)
    owners = [
        {rows.before[0].id for change in task.changes if isinstance(change, UpdateChanges)
         for rows in change.rows}
        for task in tasks
    ]  # fmt: skip
    assert len([one for one in owners if one]) >= 3
    assert all(
        one.isdisjoint(other) for place, one in enumerate(owners) for other in owners[:place]
    )


@pytest.fixture
def many_versions(tmp_path):
    """Three fragments, of which each of 30 versions writes a few scattered rows again."""
    path = three_fragments(tmp_path)
    for version in range(30):
        # Rows are updated by their lineage, whether their values change or not.
        add(path, version % 2, f"id % 100 = {version}")
    return path


def versions_of(task):
    return {change.commit.version for change in task.changes}


@pytest.mark.parametrize("are_large", [False, True])
def test_tasks_are_cut_by_version_for_small_files(many_versions, taken, are_large, monkeypatch):
    if are_large:  # each old file could have a task of its own
        monkeypatch.setattr(changed_rows, "_IDS_OF_SMALL", 1)
        monkeypatch.setattr(plan_scan, "_MIN_TASK_BYTES", 1)
    first, second = plan(many_versions, parallelism=2)
    assert versions_of(first) | versions_of(second) == set(range(2, 32))
    assert 13 <= len(versions_of(first)) <= 17
    assert max(versions_of(first)) < min(versions_of(second))
    for task in (first, second):
        assert sum(batch.num_rows for batch in task.run()) == 60 * len(versions_of(task))
        # The rows of a version that were in three old fragments are one part of its new one.
        assert all(len(change.rows) == 1 for change in task.changes)
    # Both tasks read the three old files, and one of them each new one.
    assert sorted(taken.values()) == [1] * 30 + [2] * 3


def test_passes_are_cut_by_version_for_small_files(many_versions, taken):
    (task,) = plan(many_versions)
    passes = [{change.commit.version for change in part} for part in in_passes(task.changes, 450)]
    assert passes == [set(range(2, 17)), set(range(17, 32))]
    (task,) = plan(many_versions, batch_bytes=6000)
    assert sum(batch.num_rows for batch in task.run()) == 60 * 30
    assert len(taken) == 33 and sorted(taken.values())[:30] == [1] * 30


def values_of(batches):
    """Version -> (type, id, x) of its changes."""
    found: dict[int, list[tuple]] = {}
    for batch in batches:
        rows = zip(batch["_change_type"].to_pylist(), batch["id"].to_pylist(),
                   batch["x"].to_pylist(), strict=True)  # fmt: skip
        (version,) = set(batch["_commit_version"].to_pylist())
        found.setdefault(version, []).extend(rows)
    return found


def test_rows_of_many_versions_are_assembled_together(many_versions, monkeypatch):
    (task,) = plan(many_versions)
    taken, take = [], SideReader.take

    def counted(self, addresses, *args):
        taken.append(len(addresses))
        return take(self, addresses, *args)

    monkeypatch.setattr(SideReader, "take", counted)
    found = values_of(task.run())
    assert taken == [900, 900]
    for version, rows in found.items():
        ids = [number for number in range(3000) if number % 100 == version - 2]
        assert rows[:30] == [("update_preimage", number, 0) for number in ids]
        assert rows[30:] == [("update_postimage", number, version % 2) for number in ids]
    assert sorted(found) == list(range(2, 32))


def test_row_is_read_for_each_updating_version(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": np.arange(100), "x": np.zeros(100, np.int64)}))
    add(path, 1, "id IN (5, 3)")
    restore(Table(path), VersionSpec(version=1))
    add(path, 2, "id IN (5, 7)")
    (task,) = plan(path)
    found = values_of(task.run())
    assert sorted(found[2]) == [
        ("update_postimage", 3, 1), ("update_postimage", 5, 1),
        ("update_preimage", 3, 0), ("update_preimage", 5, 0),
    ]  # fmt: skip
    assert sorted(found[4]) == [
        ("update_postimage", 5, 2), ("update_postimage", 7, 2),
        ("update_preimage", 5, 0), ("update_preimage", 7, 0),
    ]  # fmt: skip


def test_versions_with_other_files_are_read_separately(tmp_path):
    path = str(tmp_path / "t")
    rows = {"id": np.arange(100), "n": np.zeros(100, np.int32), "x": np.zeros(100, np.int64)}
    write_table(path, pa.table(rows))
    add(path, 1, "id % 10 = 1")
    update_in_place(path, "id % 10 = 2")
    add(path, 2, "id % 10 = 2")
    (task,) = plan(path, "dropCarryovers")
    found = {
        version: {row for batch in task.run() if batch["_commit_version"][0].as_py() == version
                  for row in zip(batch["_change_type"].to_pylist(), batch["n"].to_pylist(),
                                 batch["x"].to_pylist(), strict=True)}
        for version in (2, 3, 4)
    }  # fmt: skip
    in_place = found[3] - {("update_preimage", 0, 0)}
    assert len(in_place) == 1
    ((_, changed, _),) = in_place
    assert found[2] == {("update_preimage", 0, 0), ("update_postimage", 0, 1)}
    assert found[4] == {("update_preimage", changed, 0), ("update_postimage", changed, 2)}


def test_large_version_is_cut_by_file(many_versions):
    add_one(many_versions, "id % 10 < 9")
    (task,) = plan(many_versions)
    sizes = [
        [(change.commit.version, sum(map(len, change.rows))) for change in part]
        for part in in_passes(task.changes, 1050)
    ]
    assert [version for part in sizes for version, _ in part[:1]] == [2, 32, 32, 32]
    assert sum(rows for part in sizes for _, rows in part) == 30 * 30 + 2700


def test_combined_reads_keep_version_order(scattered):
    (task,) = plan(scattered)
    found = [
        (batch["_commit_version"][0].as_py(), batch["_change_type"][0].as_py() not in OLD)
        for batch in task.run()
    ]
    assert found == sorted(found)


@pytest.mark.parametrize("max_rows", [1, 7, 150, 310, 10_000])
def test_passes_are_small_and_cover_all_rows(scattered, max_rows):
    (task,) = plan(scattered)
    check_passes(task, max_rows)


@pytest.mark.parametrize("max_rows", [7, 310, 3000])
def test_passes_by_version_cover_all_rows(scattered, max_rows, monkeypatch):
    (task,) = plan(scattered)
    monkeypatch.setattr(changed_rows, "OPEN_COST_BYTES", 1 << 40)
    check_passes(task, max_rows)


def check_passes(task, max_rows):
    def places(changes):
        for change in changes:
            kind = getattr(change, "change_type", "update")
            if isinstance(change, UpdateChanges):
                parts = [(rows.after.id, rows.rows) for rows in change.rows]
            else:
                parts = [(one.fragment.id, one.offsets) for one in change.slices]
            for owner, offsets in parts:
                rows = [None] if offsets is None else offsets.to_array().tolist()
                yield from ((change.commit.version, kind, owner, row) for row in rows)

    found = [list(places(part)) for part in in_passes(task.changes, max_rows)]
    # Each part may have a row of each piece more than its share, and what is scanned.
    assert max(map(len, found)) <= max_rows + 3 * len(task.changes)
    assert sorted(place for part in found for place in part) == sorted(places(task.changes))


def test_large_rows_are_read_separately(tmp_path):
    path = str(tmp_path / "t")
    # By the average of all rows, these few are small.
    texts = [f"{one:04}" * (25_000 if one < 40 else 1) for one in range(4000)]
    rows = {"id": np.arange(4000), "x": np.zeros(4000, np.int64), "text": texts}
    write_table(path, pa.table(rows))
    for version in range(4):
        add_one(path, f"id < 40 AND id % 4 = {version}")
    (task,) = plan(path, batch_bytes=100_000)
    pool = pa.default_memory_pool()
    before, most, count = pool.bytes_allocated(), 0, 0
    for batch in task.run():
        count += batch.num_rows
        most = max(most, pool.bytes_allocated() - before)
    assert count == 2 * 40
    assert most < 1_500_000

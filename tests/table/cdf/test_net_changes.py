"""Net changes of rows that changed more than once: in bands of row ids, and in little memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows
from random_seeds import seeds
from row_changes import set_to
from table_access import read_changes, read_ours, write_table

from pyspark_lance.table.cdf import net_changes
from pyspark_lance.table.cdf.change_feed import ChangeRequest, plan_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow, Deduplication
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table


@pytest.fixture
def narrow_bands(monkeypatch):
    """Few rows make many bands, and hardly anything stays decoded."""
    monkeypatch.setattr(net_changes, "_BAND_ROWS", 5)
    monkeypatch.setattr(net_changes, "_KEPT_BYTES", 1)
    monkeypatch.setattr(net_changes, "WINDOW_ROWS", 7)


def change_at_random(path: str, seed: int) -> None:
    """Rows come, move, change and go, some of them many times."""
    rng = np.random.default_rng(seed)
    rows = pa.table({"id": np.arange(200), "x": np.zeros(200, np.int64)})
    write_table(path, rows, max_rows_per_file=int(rng.integers(20, 200)))
    for turn in range(1, 9):
        some = f"(id * 7919) % 100 < {int(rng.integers(1, 90))} and id >= {int(rng.integers(100))}"
        match int(rng.integers(4)):
            case 0:
                delete_rows(path, f"id % 10 = {int(rng.integers(10))}")
            case 1:
                new = pa.table({"id": np.arange(30) + 200 * turn, "x": np.zeros(30, np.int64)})
                write_table(path, new)
            case _:
                set_to(path, some, x=turn)


def rows_at(path: str, version: int) -> dict[int, tuple[int, int]]:
    """Row id to values."""
    if not version:
        return {}
    at = VersionSpec(version=version)
    table = read_ours(path, at, system_columns=("_rowid",))
    return {row["_rowid"]: (row["id"], row["x"]) for row in table.to_pylist()}


@pytest.mark.parametrize("seed", seeds(20, in_ci=1))
def test_row_id_bands_cover_each_change_once(tmp_path, narrow_bands, seed):
    path = str(tmp_path / "t")
    change_at_random(path, seed)
    newest = Snapshot.open(Table(path)).version
    for start in range(1, newest + 1):
        before, after = rows_at(path, start - 1), rows_at(path, newest)
        expected = [(row, "delete", v) for row, v in before.items() if row not in after]
        expected += [(row, "insert", v) for row, v in after.items() if row not in before]
        for row in before.keys() & after.keys():
            if before[row] != after[row]:
                expected.append((row, "update_preimage", before[row]))
                expected.append((row, "update_postimage", after[row]))
        found = read_changes(path, start, newest, "netChanges").to_pylist()
        assert sorted(
            (row["_rowid"], row["_change_type"], (row["id"], row["x"])) for row in found
        ) == sorted(expected)


def test_row_changed_across_overlapping_ranges_is_shown_once(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": range(101), "x": [0] * 101}))
    set_to(path, "id IN (0, 50, 100)", x=1)
    set_to(path, "id BETWEEN 10 AND 20", x=2)
    set_to(path, "id = 50", x=3)
    found = read_changes(path, 2, 4, "netChanges").to_pylist()
    rows = [(row["_change_type"], row["x"]) for row in found if row["id"] == 50]
    assert sorted(rows) == [("update_postimage", 3), ("update_preimage", 0)]


def test_planning_memory_is_independent_of_twice_changed_rows(tmp_path):
    path = str(tmp_path / "t")
    rows = 600_000
    write_table(path, pa.table({"id": np.arange(rows)}), max_rows_per_file=200_000)
    set_to(path, "id >= 0", id=1)
    set_to(path, "id >= 0", id=2)
    snapshot = Snapshot.open(Table(path))
    request = ChangeRequest(
        ChangeWindow(2, 3), Deduplication.NET_CHANGES, snapshot.schema.fields, parallelism=4
    )
    tracemalloc.start()
    try:
        tasks = plan_changes(Table(path), snapshot.schema.fields, request)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 40 * 10**6
    changes = [change for task in tasks for change in task.changes]
    assert sum(len(rows) for change in changes for rows in change.rows) == rows


def test_bands_have_similar_row_counts():
    window = 1 << 17
    low = np.arange(80, dtype=np.uint64) % np.uint64(40) * np.uint64(window)
    rows = np.full(80, window)
    edges = net_changes._edges(low, low + np.uint64(window - 1), rows)
    assert edges[-1] == 2**64 - 1
    assert len(edges) == 80
    assert np.ptp(np.diff([0, *edges[:-1]])) < 10
    mixed = np.zeros(80, dtype=np.uint64)
    high = np.full(80, 40 * window, dtype=np.uint64)
    assert 2 <= len(net_changes._edges(mixed, high, rows)) <= 8

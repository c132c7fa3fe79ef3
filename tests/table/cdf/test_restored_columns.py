"""Random histories of columns that go and come back: every window of the feed against a model.

The model knows of every version which column is which, for any ids, names and restores; so it
returns what each window must show in the columns of its last version.
"""

from __future__ import annotations

import dataclasses

import pyarrow as pa
import pytest
from known_history import History, add_times, expected
from table_access import read_changes, remove_versions, write_table

from pyspark_lance.table.cdf.change_feed import count_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow
from pyspark_lance.table.columns.change_columns import add_null_columns, drop_columns
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table


def feed_rows(history: History, start: int, end: int, mode: str = "dropCarryovers") -> list[tuple]:
    names = ["_commit_version", "_change_type", "_rowid", *history.versions[end - 1].columns]
    feed = read_changes(history.path, start, end, mode)
    return sorted(zip(*(feed[name].to_pylist() for name in names), strict=True), key=repr)


def check(path: str, seed: int, steps: int) -> int:
    """Every window of a random history; returns how many there were."""
    history = History(path, seed)
    for _ in range(steps):
        history.step()
    count, last = 0, len(history.versions)
    for start in range(1, last + 1):
        for end in range(start, last + 1):
            assert feed_rows(history, start, end) == expected(history, start, end), (start, end)
            count += 1
        check_counts(history, start)
    return count


def check_counts(history: History, version: int) -> None:
    """Count the rows of the feed, but a column that came back may hold what stands for nothing."""
    kinds = [row[1] for row in feed_rows(history, version, version, "none")]
    least = [kinds.count(kind) for kind in ("insert", "update_postimage", "delete")]
    counted = count_changes(Table(history.path), ChangeWindow(version, version))
    assert len(counted) <= 1
    inserted, updated, deleted = dataclasses.astuple(counted[0])[1:] if counted else (0, 0, 0)
    assert (inserted, deleted) == (least[0], least[2])
    now = history.versions[version - 1]
    past = history.versions[version - 2] if version > 1 else now
    come = set(now.columns.values()) - set(past.columns.values())
    blank = [
        row for row in now.rows.keys() & past.rows.keys()
        if come and all(now.rows[row][column] is None for column in come)
    ]  # fmt: skip
    assert least[1] <= updated <= least[1] + len(blank)


@pytest.mark.parametrize("seed", range(6))
def test_windows_show_history_of_final_columns(tmp_path, seed):
    check(str(tmp_path / "t"), seed, 6)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(10))
def test_windows_of_many_histories_show_final_columns(tmp_path, block):
    count = sum(
        check(str(tmp_path / str(seed)), seed, 10)
        for seed in range(100 + 30 * block, 130 + 30 * block)
    )
    assert count > 500


def test_version_before_window_restored_twice_is_same(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": [1, 2]}))
    add_times(Table(path), "x", 5)
    drop_columns(Table(path), ["x"])
    for _ in range(2):
        restore(Table(path), VersionSpec(version=2))
    for end in (4, 5):
        feed = read_changes(path, 4, end, "dropCarryovers")
        assert set(feed["_commit_version"].to_pylist()) == {4}
        assert feed["x"].to_pylist() == [None, None, 5, 10]


def test_versions_before_window_share_restored_column(tmp_path):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": [1, 2], "x": pa.array([5, 10], pa.int16())}))
    add_null_columns(Table(path), pa.schema([("y", pa.int16())]))
    drop_columns(Table(path), ["x"])
    for version in (2, 1, 2):
        restore(Table(path), VersionSpec(version=version))
    feed = read_changes(path, 4, 6, "dropCarryovers")
    assert feed["_commit_version"].to_pylist() == [4] * 4
    assert feed["x"].to_pylist() == [None, None, 5, 10]


@pytest.mark.parametrize("gone", [[1], [2], [1, 2]])
def test_column_restored_from_removed_version_is_same(tmp_path, gone):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": [1, 2], "x": pa.array([5, 10], pa.int16())}))
    add_null_columns(Table(path), pa.schema([("y", pa.int16())]))
    drop_columns(Table(path), ["x"])
    for version in (2, 1, 2):
        restore(Table(path), VersionSpec(version=version))
    remove_versions(path, gone)
    feed = read_changes(path, 4, 6, "dropCarryovers")
    assert feed["_commit_version"].to_pylist() == [4] * 4
    assert feed["x"].to_pylist() == [None, None, 5, 10]


@pytest.mark.parametrize("with_values", [False, True])
def test_column_replacing_same_name_and_id_is_different(tmp_path, with_values):
    history = History(str(tmp_path / "t"), 1)
    history.note()
    history.append()
    history.note()
    drop_columns(history.table, ["x"])
    del history.columns["x"]
    history.note()
    compact(history.table)  # no file has values under its id any more, so that it is given again
    history.note()
    if with_values:
        add_times(history.table, "x", 3)
    else:
        add_null_columns(history.table, pa.schema([("x", pa.int16())]))
    history.columns["x"] = 7
    history.note()
    history.append()
    history.note()
    restore(history.table, VersionSpec(version=1))
    history.columns = dict(history.versions[0].columns)
    history.note()
    last = len(history.versions)
    assert last == 7
    for start in range(1, last + 1):
        assert feed_rows(history, start, last) == expected(history, start, last), start

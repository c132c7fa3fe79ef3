"""Versions and files that are removed while a table is opened or read."""

from __future__ import annotations

import datetime
import shutil
from functools import partial
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from directed_store import Director, directed, in_charge, pause
from interleaving import sweep
from local_changes import delete_rows
from row_changes import add_to, upsert
from table_access import LINEAGE, append, read_ours

from pyspark_lance.errors import MissingFileError, VersionNotFoundError
from pyspark_lance.table.cdf.change_feed import count_changes
from pyspark_lance.table.cdf.change_window import ChangeWindow
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    append(path, 10)
    return path


def opened(path, at=LATEST):
    """The snapshot, when the table is swept after the version was found and before it is read."""
    snapshots._cache.clear()  # nothing is read of a version that is known
    with directed(), in_charge(Director({1: pause(lambda: sweep(path))})):
        return Snapshot.open(Table(path), at)


def test_newest_version_is_found_during_removal(path):
    assert opened(path).version == 4


def test_version_removed_during_open_is_not_found(path):
    with pytest.raises(VersionNotFoundError, match="no version 1"):
        opened(path, VersionSpec(version=1))


def copied(path, folder, name):
    """The path of a copy of a table."""
    return shutil.copytree(path, str(folder / name))


# Changes ------------------------------------------------------------------------------------


def compact_and_clean(path):
    """Other writers write all rows into other files, and remove the files that there were."""
    lance.dataset(path).optimize.compact_files()
    sweep(path)


@pytest.mark.parametrize(
    "change",
    [
        lambda path: delete_rows(path, "id = 11"),
        lambda path: add_to(path, "id = 11", "id", 100),
        lambda path: upsert(path, pa.table({"id": [11, 50]})),
    ],
    ids=["delete", "update", "merge"],
)
def test_change_retries_when_its_files_are_removed(tmp_path, change):
    original = str(tmp_path / "original")
    for first in (0, 10):
        append(original, first)
    delete_rows(original, "id = 12")  # a deletion file, too
    table = partial(copied, original, tmp_path)

    def director(path):
        found = Director()
        with directed(), in_charge(found):
            change(path)
        return found

    expected = str(tmp_path / "expected")
    calls = director(table("expected")).calls
    puts = [number for number, (name, _) in enumerate(calls) if name == "put_if_absent"]
    rows = sorted(map(repr, read_ours(expected).drop_columns(LINEAGE).to_pylist()))
    for number in range(1, puts[-1], 2):
        path = table(str(number))
        scene = pause(partial(compact_and_clean, path))
        snapshots._cache.clear()
        with directed(), in_charge(Director({number: scene})):
            change(path)
        found = read_ours(path).drop_columns(LINEAGE)
        assert sorted(map(repr, found.to_pylist())) == rows, calls[number]


def test_missing_file_of_newest_version_raises(path):
    delete_rows(path, "id = 1")
    for file in Path(path, "_deletions").iterdir():
        file.unlink()
    with pytest.raises(MissingFileError, match="deletion file of fragment 0 is missing"):
        delete_rows(path, "id = 2")


# The change feed ----------------------------------------------------------------------------


def test_versions_between_bounds_may_be_removed_during_planning(tmp_path):
    original = str(tmp_path / "original")
    append(original, 0, rows=10)
    lance.dataset(original).tags.create("begin", 1)
    for number in range(3):
        delete_rows(original, f"id = {number}")
        add_to(original, f"id = {number + 5}", "id", 100)
    table = partial(copied, original, tmp_path)

    def clean(path):
        lance.dataset(path).cleanup_old_versions(
            older_than=datetime.timedelta(0), error_if_tagged_old_versions=False
        )

    def counts(path):
        found = count_changes(Table(path), ChangeWindow(2, 7))
        return sum(one.num_deleted_rows for one in found), len(found)

    director = Director()
    with directed(), in_charge(director):
        assert counts(table("alone")) == (3, 6)
    ends = set()
    for number in range(len(director.calls)):
        path = table(str(number))
        snapshots._cache.clear()
        with directed(), in_charge(Director({number: pause(partial(clean, path))})):
            ends.add(counts(path))
    assert ends == {(3, 6), (3, 1)}


def test_bound_removed_during_planning_is_not_found(path):
    with (
        directed(),
        in_charge(Director({0: pause(lambda: sweep(path))})),
        pytest.raises(VersionNotFoundError, match="version 1 was removed"),
    ):
        count_changes(Table(path), ChangeWindow(2, 2))

"""Work on a table whose network mount finds handles stale, at each call to the system.

A commit that landed is never reported as failed: its files would be removed.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import replace

import pyarrow as pa
import pytest
from local_changes import delete_rows
from row_changes import upsert
from stale_mount import stale_mount
from table_access import append, read_ours, write_table
from temporary_folders import memory_folder

from pyspark_lance.commit.retries import Environment
from pyspark_lance.errors import LanceError, StorageError
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings

ONCE = WriteSettings(retries=2, timeout_s=2.0)
FAST = replace(Environment(), sleep=lambda seconds: None)
SOURCE = pa.table({"id": [1, 50]})


def overwrite(path):
    write_table(path, pa.table({"id": [7]}), overwrite=True, retries=2, timeout_s=2.0)


CHANGES = {
    "append": lambda path: append(path, 100, retries=2, timeout_s=2.0),
    "overwrite": overwrite,
    "delete": lambda path: delete_rows(path, "id = 1", settings=ONCE, environment=FAST),
    "upsert": lambda path: upsert(path, SOURCE, settings=ONCE, environment=FAST),
    "restore": lambda path: restore(Table(path), VersionSpec(version=1), ONCE),
    "cleanup": lambda path: cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0)),
}

# All calls take a minute.
EVERY = [5, pytest.param(1, marks=pytest.mark.slow)]


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    monkeypatch.setattr(time, "sleep", lambda seconds: None)


@pytest.fixture(scope="module")
def new_table():
    """Make copies of a table."""
    with memory_folder() as folder:
        original = str(folder / "original")
        append(original, 0)
        append(original, 10)
        delete_rows(original, "id = 12")
        yield lambda name: shutil.copytree(original, str(folder / name))


def ids(path):
    snapshots._cache.clear()
    return sorted(read_ours(path)["id"].to_pylist())


def error_of(change, path):
    """The error, if there is one."""
    snapshots._cache.clear()
    try:
        change(path)
    except LanceError as error:
        return error
    return None


def check_sound(path):
    kinds = {found.kind for found in verify(Table(path)).findings}
    assert kinds <= {"orphans"}


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", CHANGES)
def test_change_with_one_stale_handle_happens_once(new_table, name, every):
    change = CHANGES[name]
    path = new_table(f"once {name} {every}")
    before = ids(path)
    with stale_mount(path) as mount:
        assert error_of(change, path) is None
    after = ids(path)
    for number in range(0, len(mount.calls), every):
        path = new_table(f"once {name} {every} {number}")
        with stale_mount(path, {number}) as mount:
            error = error_of(change, path)
        call = mount.calls[number]
        check_sound(path)
        if error is None:
            assert ids(path) == after, call
        else:
            # What was written to a file is lost with the handle, and nothing of it stays.
            assert isinstance(error, StorageError)
            assert call in ("fsync", "fstat"), error
            assert ids(path) == before


@pytest.mark.parametrize("every", EVERY)
@pytest.mark.parametrize("name", CHANGES)
def test_change_losing_mount_reports_unknown_outcome(new_table, name, every):
    change = CHANGES[name]
    path = new_table(f"all {name} {every}")
    before = ids(path)
    with stale_mount(path) as mount:
        assert error_of(change, path) is None
    after = ids(path)
    ends = set()
    for number in range(0, len(mount.calls), every):
        path = new_table(f"all {name} {every} {number}")
        with stale_mount(path, since=number):
            error = error_of(change, path)
        check_sound(path)
        found = ids(path)
        assert found in (before, after)
        assert error is None or isinstance(error, StorageError), error
        if error is None:
            assert found == after
        ends.add((error is None, found == after))
    assert (False, before == after) in ends


@pytest.mark.parametrize("since", [False, True], ids=["once", "from then on"])
def test_table_with_stale_handles_is_never_reported_missing(new_table, since):
    def rows(path):
        Snapshot.open(Table(path))
        return ids(path)

    # Each time a table that this process has not seen: of another it keeps what it has read.
    path = new_table(f"reads {since}")
    with stale_mount(path) as mount:
        expected = rows(path)
    for number in range(len(mount.calls)):
        path = new_table(f"reads {since} {number}")
        with stale_mount(path, () if since else {number}, since=number if since else None):
            if since:
                with pytest.raises(StorageError, match="Stale file handle"):
                    rows(path)
            else:
                assert rows(path) == expected

"""Stores whose listings are late: commits, opens and cleanups lose nothing."""

from __future__ import annotations

import lance
import pytest
from faulty_store import LateStore
from local_changes import delete_rows
from table_access import append, read_ours

from pyspark_lance.errors import LanceError
from pyspark_lance.store import open_store as opening
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.cleanup import cleanup
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Three versions of which the oldest has rows and files that the newest has not."""
    monkeypatch.setattr(opening, "LocalStore", lambda root: LateStore(LocalStore(root)))
    path = str(tmp_path / "t")
    append(path, 0, 3)
    delete_rows(path, "id < 3")
    append(path, 3, 3)
    yield Table(path)
    LateStore.release_listings()


def ids(table, **at):
    return sorted(read_ours(table.root, VersionSpec(**at))["id"].to_pylist())


def test_writers_with_delayed_listings_lose_no_rows(table):
    table.store().hold_listings()
    committed = []
    for first in (10, 20, 30):
        try:
            append(table.root, first, 2)
        except LanceError:  # the writer knows that it failed
            continue
        committed += [first, first + 1]
    assert committed
    assert set(ids(table)) <= {3, 4, 5, *committed}
    LateStore.release_listings()
    assert ids(table) == [3, 4, 5, *committed]
    append(table.root, 40, 1)
    assert ids(table) == [3, 4, 5, *committed, 40]
    assert not verify(table).findings


def test_reader_with_delayed_listing_sees_whole_version(table):
    append(table.root, 10, 2)
    table.store().hold_listings()
    compact(table)
    assert ids(table) == [3, 4, 5, 10, 11]
    cleanup_old_versions(table, CleanupPolicy(before_version=2))
    assert ids(table) == [3, 4, 5, 10, 11]
    LateStore.release_listings()
    assert ids(table) == [3, 4, 5, 10, 11]


@pytest.mark.parametrize("change", ["append", "delete", "compact", "restore"])
@pytest.mark.parametrize("unverified", [False, True])
def test_cleanup_with_delayed_listing_keeps_needed_files(table, change, unverified):
    table.store().hold_listings()
    {
        "append": lambda: append(table.root, 10, 2),
        "delete": lambda: delete_rows(table.root, "id = 4"),
        "compact": lambda: compact(table),
        "restore": lambda: restore(table, VersionSpec(version=1)),
    }[change]()
    policy = CleanupPolicy(older_than_s=0, error_if_tagged=False, delete_unverified=unverified)
    cleanup_old_versions(table, policy)
    LateStore.release_listings()
    expected = {"append": [3, 4, 5, 10, 11], "delete": [3, 5], "restore": [0, 1, 2]}.get(
        change, [3, 4, 5]
    )
    assert ids(table) == expected
    assert not verify(table).errors


def test_cleanup_lists_again_for_delayed_versions(table, monkeypatch):
    table.store().hold_listings()
    real = cleanup.move_to_pending_removal

    def late(*arguments, **settings):
        lance.dataset(table.root, version=1).restore()
        real(*arguments, **settings)

    monkeypatch.setattr(cleanup, "move_to_pending_removal", late)
    cleanup.cleanup_old_versions(table, CleanupPolicy(older_than_s=0))
    LateStore.release_listings()
    assert ids(table) == [0, 1, 2]

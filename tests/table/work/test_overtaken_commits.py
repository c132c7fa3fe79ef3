"""Other writers commit, and clean up old versions, at any store call of an operation.

Nothing that was listed is there any more when it is looked at.  That says that there is something
newer, and nothing else: a table is there, a version that landed has landed, and its files stay.
"""

from __future__ import annotations

from pathlib import Path

import lance
import pytest
from directed_store import Director, directed, in_charge, pause, pause_after
from faulty_store import FaultyStore
from interleaved_operations import recreate_like
from interleaving import (
    OPERATIONS,
    Case,
    Setup,
    every_call,
    remove_workplace,
    run,
    sweep,
    sweep_by_ours,
)
from proofs.placed_operations import PLACED
from table_access import append

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.errors import (
    CommitConflictError,
    InvalidInputError,
    LanceError,
    MissingFileError,
    StorageError,
)
from pyspark_lance.metafile.manifest_file import latest_version, list_versions
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.metafile.refs_file import list_tags
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table import unit_of_work
from pyspark_lance.table.refs import create_branch, remove_tag, set_tag
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

SETUP = Setup(other_rows_first=True)


@pytest.fixture(autouse=True, scope="module")
def _operations():
    OPERATIONS.update(PLACED)
    yield
    remove_workplace()


def after_the_put(setup, first):
    """The points once the manifest is there."""
    points = list(every_call(setup, first))
    put = next(n for n, point in enumerate(points) if "put_if_absent _versions" in point)
    return points[put + 1 :]


FOLLOWED = (
    (SETUP, "append", "delete_fragment"),
    (SETUP, "merge @ same row", "delete_fragment"),
    (SETUP, "replace_where @ other fragment", "delete_fragment"),
    (SETUP, "restored", "delete_fragment"),
    (Setup(), "restored", "append"),  # no file of its own records it
    (SETUP, "properties", "delete_fragment"),
)


@pytest.mark.parametrize(("setup", "first", "second"), FOLLOWED)
def test_committed_version_stays_committed_after_cleanup(setup, first, second):
    ends = {run(Case(setup, first, (second,), point)) for point in after_the_put(setup, first)}
    assert ends <= {"after 0", "after 1"}


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    append(path, 10)
    return path


@pytest.mark.parametrize("scene", [pause, pause_after])
def test_table_is_found_though_listed_versions_are_removed(path, scene):
    snapshots._cache.clear()
    alone = Director()
    with directed(), in_charge(alone):
        Snapshot.open(Table(path))
    for number in range(len(alone.calls)):
        newest = Snapshot.open(Table(path)).version
        snapshots._cache.clear()
        with directed(), in_charge(Director({number: scene(lambda: sweep(path))})):
            found = Snapshot.open(Table(path)).version
        assert found in (newest, newest + 2)
        assert found == newest + 2 or scene is pause_after or number > 0


def removed_once_listed(path, *versions):
    """A store in which these are gone when they are looked at; the next listing has another."""
    store = FaultyStore(LocalStore(path))
    names = {one.version: one.path for one in list_versions(store)}

    def others(_):
        append(path, 20)
        for version in versions:
            LocalStore(path).delete(names[version])

    store.before("stat", others)
    return store


def test_listing_skips_removed_highest_version(path):
    """Version 1 is kept, as by a tag."""
    assert [one.version for one in list_versions(removed_once_listed(path, 2))] == [1, 3]


def test_newest_version_is_not_older_tagged_version(path):
    assert latest_version(removed_once_listed(path, 2)).version == 3


def test_inconsistent_listing_is_not_missing_table(path):
    store = LocalStore(path)
    (newest,) = (one.path for one in list_versions(store) if one.version == 2)

    class Ghosts(FaultyStore):
        def stat(self, path):
            if path == newest:
                raise FileNotFoundError(path)
            return super().stat(path)

    with pytest.raises(StorageError, match="removed faster"):
        latest_version(Ghosts(store))
    assert newest.startswith(VERSIONS)


# Recreated tables ---------------------------------------------------------------------------


def test_timestamp_resolution_refuses_replaced_table(path, monkeypatch):
    """And no other version of its number."""

    real = unit_of_work.change_metadata

    def late(*given):
        recreate_like(path, 0)
        return real(*given)

    first = Snapshot.open(Table(path), VersionSpec(version=1)).manifest.timestamp_ns
    monkeypatch.setattr(unit_of_work, "change_metadata", late)
    with pytest.raises(CommitConflictError, match="replaced"):
        restore(Table(path), VersionSpec(timestamp_ns=first))
    assert [one.version for one in list_versions(LocalStore(path))] == [1, 2, 3]


def test_version_without_files_is_not_restored(path):
    (file,) = files_of(Snapshot.open(Table(path), VersionSpec(version=1)).manifest.fragments)
    lance.dataset(path).delete("true")
    Path(path, file).unlink()
    with pytest.raises(MissingFileError, match="a file of version 1 is missing") as caught:
        restore(Table(path), VersionSpec(version=1))
    assert file in str(caught.value)
    assert latest_version(LocalStore(path)).version == 3


def test_branch_version_is_not_restored_on_main(path):
    create_branch(Table(path), "trial")
    append(f"{path}/tree/trial", 30)
    set_tag(Table(path).on_branch("trial"), "there")
    with pytest.raises(InvalidInputError, match="branch 'trial'"):
        restore(Table(path), VersionSpec(tag="there"))
    assert Snapshot.open(Table(path)).version == 2


@pytest.mark.parametrize("first", ["replace_where @ other fragment", "restored", "branch_oldest"])
def test_work_never_commits_to_replaced_table(first):
    """The folder goes and comes again at any look at versions: what was read is of the old one."""
    points = [one for one in every_call(SETUP, first, swept=False) if one.endswith("_versions")]
    assert len(points) > 5
    for point in points:
        if point.startswith("before"):
            run(Case(SETUP, first, ("recreate_like",), point))


# References -----------------------------------------------------------------------------------


def test_tag_moved_during_read_is_followed(path):
    """Another writer moves it and clean up what it stood on."""
    set_tag(Table(path), "here", VersionSpec(version=1))
    snapshots._cache.clear()

    def moved():
        set_tag(Table(path), "here", VersionSpec(version=2), replaces=True)
        sweep_by_ours(path)

    with directed(), in_charge(Director({1: pause(moved)})):
        assert Snapshot.open(Table(path), VersionSpec(tag="here")).version == 2


def test_tag_removed_during_listing_is_omitted(path):
    for name in ("a", "b"):
        set_tag(Table(path), name, VersionSpec(version=1))
    store = FaultyStore(LocalStore(path))
    store.before("get", lambda _: remove_tag(Table(path), "b"))
    store.before("get", lambda _: None)
    assert [tag.name for tag in list_tags(store)] == ["a"]


def test_timestamp_is_resolved_during_version_removal(path):
    newest = Snapshot.open(Table(path)).manifest.timestamp_ns
    for number in range(6):
        with directed(), in_charge(Director({number: pause(lambda: sweep(path))})):
            try:
                Snapshot.open(Table(path), VersionSpec(timestamp_ns=newest + 10**18))
            except LanceError as error:
                raise AssertionError(number) from error

"""Consumers: cleanups keep what they have not read, ours as well as pylance's."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import lance
import pytest
from table_access import append, read_changes

from pyspark_lance.errors import InvalidInputError, TableReplacedError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.history.history import detail
from pyspark_lance.table.refs import (
    consumers_of,
    create_branch,
    register_consumer,
    unregister_consumer,
)
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    """Six versions, each with three rows more."""
    path = str(tmp_path / "t")
    for version in range(6):
        append(path, 3 * version)
    return path


def versions(path):
    return [one.version for one in list_versions(Table(path).store())]


def clean_up(path, **rules):
    return cleanup_old_versions(Table(path), CleanupPolicy(older_than_s=0, **rules)).versions


def shown(path):
    return [(one.name, one.version, one.lag) for one in consumers_of(Table(path))]


def test_cleanup_keeps_versions_after_slowest_consumer(path):
    register_consumer(Table(path), "slow", 3)
    register_consumer(Table(path), "fast", 5)
    with pytest.raises(InvalidInputError, match="not yet read: consumer fast, consumer slow"):
        clean_up(path)
    assert clean_up(path, error_if_tagged=False) == (1, 2)
    assert read_changes(path, 4, 6, "dropCarryovers").num_rows == 9
    assert register_consumer(Table(path), "slow").lag == 0
    assert clean_up(path, error_if_tagged=False) == (3, 4)
    unregister_consumer(Table(path), "fast")
    assert clean_up(path) == (5,)
    assert shown(path) == [("slow", 6, 0)]


def test_consumer_moves_in_both_directions_and_shows_lag(path):
    register_consumer(Table(path), "a", 4)
    append(path, 100)
    assert shown(path) == [("a", 4, 3)]
    assert detail(Table(path)).consumers == consumers_of(Table(path))
    assert register_consumer(Table(path), "a", 2).lag == 5
    assert consumers_of(Table(path))[0].updated_at
    for version in (99, 0):
        with pytest.raises((VersionNotFoundError, InvalidInputError)):
            register_consumer(Table(path), "b", version)
    with pytest.raises(InvalidInputError, match="cannot be called"):
        register_consumer(Table(path), "no/name")
    with pytest.raises(VersionNotFoundError, match="no consumer 'b'"):
        unregister_consumer(Table(path), "b")
    assert shown(path) == [("a", 2, 5)]


def test_concurrent_consumers_do_not_conflict(path):
    def move(number):
        for version in (1, 3, 2, 5, 6):
            register_consumer(Table(path), f"c{number % 4}", version)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(move, range(8)))
    assert shown(path) == [(f"c{number}", 6, 0) for number in range(4)]
    assert versions(path) == [1, 2, 3, 4, 5, 6]  # nothing was committed


def test_pylance_cleanup_keeps_version_of_consumer(path):
    wanted = read_changes(path, 4, 6, "netChanges").drop_columns(["_commit_timestamp"])
    register_consumer(Table(path), "c", 3)
    dataset = lance.dataset(path)
    dataset.cleanup_old_versions(timedelta(0), error_if_tagged_old_versions=False)
    assert versions(path) == [3, 6]
    changes = read_changes(path, 4, 6, "netChanges").drop_columns(["_commit_timestamp"])
    assert changes.equals(wanted) and changes.num_rows == 9
    (tag,) = dataset.tags.list()
    dataset.tags.delete(tag)
    assert shown(path) == []


def test_branches_have_separate_consumers(path):
    create_branch(Table(path), "trial", VersionSpec(version=4))
    trial = Table(f"{path}/tree/trial")
    append(trial.root, 100)
    register_consumer(trial, "there")
    register_consumer(Table(path), "here", 5)
    assert [one.name for one in consumers_of(trial)] == ["there"]
    assert shown(path) == [("here", 5, 1)]
    assert clean_up(path, error_if_tagged=False) == (1, 2, 3)  # 4 is the root of the branch


@pytest.mark.parametrize("newest", [2, 9])
def test_consumer_of_replaced_table_has_read_nothing(path, newest):
    """Deleting only versions and data leaves the tags."""
    register_consumer(Table(path), "old", 3)
    register_consumer(Table(path), "moved", 3)
    known = Snapshot.open(Table(path), VersionSpec(version=3)).identity
    for folder in ("_versions", "data", "_transactions"):
        shutil.rmtree(f"{path}/{folder}")
    for version in range(newest):
        append(path, 100 + version)
    assert shown(path) == [("moved", 0, newest), ("old", 0, newest)]
    assert detail(Table(path)).consumers == consumers_of(Table(path))
    if newest > 3:
        with pytest.raises(TableReplacedError, match="replaced by another one"):
            register_consumer(Table(path), "old", 3, identity=known)
    register_consumer(Table(path), "moved", 2)
    assert shown(path) == [("moved", 2, newest - 2), ("old", 0, newest)]


def test_consumer_keeps_position_through_overwrite_and_cleanup(path):
    register_consumer(Table(path), "c", 3)
    append(path, 70, overwrite=True)
    assert clean_up(path, error_if_tagged=False) == (1, 2)
    assert shown(path) == [("c", 3, 4)]


def test_old_consumer_without_identity_is_read(path):
    register_consumer(Table(path), "c", 3)
    note = Path(path, "_refs", "tags", "pyspark_lance.consumer.c.json")
    content = json.loads(note.read_text())
    note.write_text(json.dumps({**content, "metadata": {}}))
    assert shown(path) == [("c", 3, 3)]
    assert lance.dataset(path).tags.list()["pyspark_lance.consumer.c"]["version"] == 3
    register_consumer(Table(path), "c", 4)
    assert json.loads(note.read_text())["metadata"]
    assert lance.dataset(path).tags.list()["pyspark_lance.consumer.c"]["version"] == 4

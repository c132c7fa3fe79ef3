"""Snapshots that a process opens one after the other are those that it would open alone."""

from __future__ import annotations

import pickle
import shutil
from collections import OrderedDict

import pytest
from table_access import append, remove_versions

from pyspark_lance.commit.base_version import stamp_of
from pyspark_lance.errors import TableReplacedError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import list_versions, read_manifest
from pyspark_lance.table.unit_of_work import restore
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec, open_pinned
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_identity import PinnedVersion, TableIdentity


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def assert_all_are_as_read_alone(path, order=1):
    store = Table(path).store()
    for location in list_versions(store)[::order]:
        snapshots._cache.clear()
        opened = Snapshot.open(Table(path), VersionSpec(version=location.version))
        alone = read_manifest(store, location)
        assert (opened.manifest, opened.indices) == (alone.manifest, alone.indices)


def test_shared_fragments_read_like_separate_versions(path):
    for number in range(6):
        append(path, 3 * number)
    assert_all_are_as_read_alone(path)
    assert_all_are_as_read_alone(path, -1)


def test_replaced_table_shares_no_cached_fragments(path, tmp_path):
    for number in range(3):
        append(path, 3 * number)
    assert_all_are_as_read_alone(path)
    (tmp_path / "t").rename(tmp_path / "old")
    for number in range(4):
        append(path, 100 + 3 * number)
    assert_all_are_as_read_alone(path)


def pin(path):
    """A version as the plan of a query keeps it."""
    return pickle.loads(pickle.dumps(Snapshot.open(Table(path)).pinned))


@pytest.mark.parametrize("versions", [1, 2, 5])
def test_pinned_version_of_replaced_table_is_refused(path, versions):
    for number in range(2):
        append(path, 3 * number)
    pinned = pin(path)
    assert open_pinned(Table(path), pinned).version == 2
    shutil.rmtree(path)
    for number in range(versions):
        append(path, 100 + 3 * number)
    with pytest.raises(TableReplacedError, match="replaced by another one since its version 2"):
        open_pinned(Table(path), pinned)
    assert open_pinned(Table(path), pin(path)).version == versions


def test_overwrite_and_restore_keep_pinned_versions(path):
    append(path, 0)
    pinned = pin(path)
    append(path, 10, overwrite=True)
    restore(Table(path), VersionSpec(version=1))
    assert open_pinned(Table(path), pinned).num_rows() == 3


def test_removed_pinned_version_does_not_mean_replaced_table(path):
    append(path, 0)
    pinned = pin(path)
    append(path, 10)
    remove_versions(path, [1])
    with pytest.raises(VersionNotFoundError, match="no version 1"):
        open_pinned(Table(path), pinned)


def test_pinned_version_without_stamp_is_opened_by_number(path):
    append(path, 0)
    assert open_pinned(Table(path), PinnedVersion(path, 1)).version == 1
    with pytest.raises(VersionNotFoundError, match="no version 7"):
        open_pinned(Table(path), PinnedVersion(path, 7))


def test_version_stamp_format_is_stable():
    """Checkpoints keep it."""
    uuid = "e09c862a-fd82-4ce3-9805-2466d0c4f519"
    assert stamp_of(1795792795668052911, f"6-{uuid}.txn") == f"1795792795668052911-{uuid}"
    assert stamp_of(0, "") == "0-"


def test_version_1_is_its_own_first_version(path):
    append(path, 0)
    first = Snapshot.open(Table(path)).identity
    append(path, 3)
    second = Snapshot.open(Table(path))
    assert first.first == first.stamp and second.identity.first == ""
    known = TableIdentity.of(second.manifest, first.first)
    known.check(Snapshot.open(Table(path), VersionSpec(version=1)).manifest, path)
    with pytest.raises(TableReplacedError):
        TableIdentity(2, "", "1-x").check(
            Snapshot.open(Table(path), VersionSpec(version=1)).manifest, path
        )


def test_caches_keep_fragments_up_to_a_limit():
    most = snapshots._MAX_CACHED_FRAGMENTS

    def kept(*sizes):
        cache = OrderedDict(enumerate(sizes))
        snapshots._evict(cache, int)
        return list(cache)

    assert kept(2 * most) == [0]
    assert kept(most // 2, most // 2) == [0, 1]
    assert kept(most // 2, most // 2, 1) == [1, 2]
    assert kept(1, 1, 2 * most) == [2]
    assert kept(*[1] * 10) == list(range(2, 10))

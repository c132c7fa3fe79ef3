"""Snapshots that a process opens one after the other are those that it would open alone."""

from __future__ import annotations

import pytest
from table_access import append

from pyspark_lance.metafile.manifest_file import list_versions, read_manifest
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec


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


def test_versions_that_share_fragments_are_read_one_beside_the_other(path):
    for number in range(6):
        append(path, 3 * number)
    assert_all_are_as_read_alone(path)
    assert_all_are_as_read_alone(path, -1)


def test_a_table_in_the_place_of_another_shares_nothing_with_it(path, tmp_path):
    for number in range(3):
        append(path, 3 * number)
    assert_all_are_as_read_alone(path)
    (tmp_path / "t").rename(tmp_path / "old")
    for number in range(4):
        append(path, 100 + 3 * number)
    assert_all_are_as_read_alone(path)

"""Versions and files that others remove while a table is opened or read."""

from __future__ import annotations

import pytest
from directed_store import Director, directed, in_charge, pause
from interleaving import sweep
from table_access import append

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.table.version import snapshot as snapshots
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec

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


def test_the_newest_version_is_found_when_the_one_that_was_listed_is_gone(path):
    assert opened(path).version == 4


def test_a_version_that_goes_while_it_is_opened_is_not_found(path):
    with pytest.raises(VersionNotFoundError, match="no version 1"):
        opened(path, VersionSpec(version=1))

"""Versions and files that others remove while a table is opened or read."""

from __future__ import annotations

import pytest
from directed_store import Director, directed, in_charge, pause
from interleaving import sweep
from table_access import append

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec

pytestmark = pytest.mark.interop


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    append(path, 10)
    return path


def opened(path, call, at=LATEST):
    """The snapshot, when the table is swept before one of the calls that open it."""
    with directed(), in_charge(Director({call: pause(lambda: sweep(path))})):
        return Snapshot.open(path, at=at)


@pytest.mark.parametrize("call", [1, 2])
def test_the_newest_version_is_found_when_the_one_that_was_listed_is_gone(path, call):
    assert opened(path, call).version == 4


def test_a_version_that_goes_while_it_is_opened_is_not_found(path):
    with pytest.raises(VersionNotFoundError, match="no version 1"):
        opened(path, 1, VersionSpec(version=1))

"""What fails once a version is made: the action returns what it returns otherwise."""

from __future__ import annotations

import contextlib
import os
import shutil

import interleaved_operations as operations
import numpy as np
import pyarrow as pa
import pytest
from directed_store import Director, directed, in_charge
from table_access import read_ours, write_table

from pyspark_lance.errors import StorageError
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.index_build.vector_build import VectorIndexRequest, create_vector_index
from pyspark_lance.table.index_build.zone_maps import create_zone_maps
from pyspark_lance.table.nearest.ivf_file import IvfKind
from pyspark_lance.table.unit_of_work import restore, set_properties
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

ERRORS = StorageError("the store is gone"), RuntimeError("of a client of the store")
LOOKS = "list", "get", "get_tail", "get_range", "get_ranges", "stat", "exists"


class BrokenAfterCommit(Director):
    """After the first manifest, a store in which only versions can still be read.

    Attributes:
        error: What every other call raises.
        failed: The calls that did.
        num_closed: The advisory locks whose descriptors were closed.
    """

    def __init__(self, error):
        super().__init__()
        self.error, self.failed = error, []
        self.is_committed, self.num_closed = False, 0

    def around(self, name, path, call):
        if self.is_committed and not (name in LOOKS and path.startswith(VERSIONS)):
            self.failed.append((name, path))
            raise self.error
        answer = super().around(name, path, call)
        if name == "put_if_absent" and path.startswith(f"{VERSIONS}/") and answer:
            self.is_committed = True
            self._close_locks()
        return answer

    def _close_locks(self):
        """The descriptors of advisory locks are no good any more, as on a mount that is gone."""
        for number in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if "/pyspark-lance-locks-" in os.readlink(f"/proc/self/fd/{number}"):
                    os.close(int(number))
                    self.num_closed += 1


def compact_all(path, who):
    return compact(Table(path), CompactionRequest(materialize_deletions_threshold=0.0))


def sort_all(path, who):
    """Zone maps follow, in a version of their own."""
    return compact(Table(path), CompactionRequest(cluster_by=("n",)))


def restore_before(path, who):
    return restore(Table(path), VersionSpec(version=Snapshot.open(Table(path)).version - 1))


def set_property(path, who):
    return set_properties(Table(path), {"owner": "me"})


OURS = [
    getattr(operations, name)
    for name in (
        "append", "append_once", "append_with_column", "overwrite", "overwrite_columns",
        "replace_some", "delete", "delete_all", "update", "update_columns", "merge", "merge_sync",
        "sql_update", "sql_delete", "sql_merge", "add_values", "add_nulls", "drop_column", "rename",
        "widen", "not_null", "make_index",
    )
]  # fmt: skip
ACTIONS = [*OURS, compact_all, sort_all, restore_before, set_property]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """Three versions; every commit that follows cleans up."""
    path = str(tmp_path_factory.mktemp("original") / "t")
    for first in range(0, 12, 4):
        rows = operations.rows(range(first, first + 4), 0)
        operations.write(path, rows)
    create_zone_maps(Table(path), ["id"])
    cleanup = {"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.retain_versions": "2"}
    set_properties(Table(path), cleanup)
    return path


def run_beside_failures(action, root, original, error):
    """What an action returns, and what it returns where all fails after its commit."""
    sound, broken = (shutil.copytree(original, f"{root}/{name}") for name in ("sound", "broken"))
    expected = action(sound, 0)
    director = BrokenAfterCommit(error)
    with directed(), in_charge(director):
        found = action(broken, 0)
    assert director.is_committed and director.failed and director.num_closed
    assert read_ours(broken).equals(read_ours(sound))
    return found, expected


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
def test_failures_after_commit_do_not_fail_action(original, tmp_path, action, error):
    found, expected = run_beside_failures(action, tmp_path, original, error)
    assert found == expected


@pytest.mark.parametrize("error", ERRORS)
def test_failures_after_commit_do_not_fail_vector_index(tmp_path, error):
    """Its tasks leave files to each other, which go at the end."""
    path = str(tmp_path / "original")
    values = pa.array(np.arange(128, dtype=np.float32))
    write_table(path, pa.table({"v": pa.FixedSizeListArray.from_arrays(values, 4)}))
    set_properties(Table(path), {"lance.auto_cleanup.interval": "1"})

    def build(path, who):
        request = VectorIndexRequest("v", IvfKind.FLAT, num_partitions=2, seed=1)
        return create_vector_index(Table(path), request)

    found, expected = run_beside_failures(build, tmp_path, path, error)
    assert found == expected and found.version == Snapshot.open(Table(f"{tmp_path}/broken")).version

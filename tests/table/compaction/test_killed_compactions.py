"""A compaction that is killed at any of its writes leaves the table before or after, never between.

What is killed is a process, by a signal that nothing can catch, before and after every call of the
store that writes: the files of each bin, the note for indices, the transaction, the version.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import lance
import pytest
from local_changes import delete_rows
from table_access import append, read_ours
from table_files import files_of, used_files

from pyspark_lance.table.cleanup.cleanup import CleanupPolicy, cleanup_old_versions
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

SCRIPT = """
import json, sys
sys.path.insert(0, sys.argv[1])
from killed_calls import kill_at_calls
from pyspark_lance.table.compaction import remap_indices
from pyspark_lance.table.compaction.compact import compact
from pyspark_lance.table.compaction.compaction_plan import CompactionRequest

root, given = sys.argv[2], json.loads(sys.argv[3])
remap_indices.MAX_INLINE_BYTES = 0
request = CompactionRequest(**given)
print(json.dumps(kill_at_calls(root, lambda table: compact(table, request))))
"""
OPTIONS = {"target_rows_per_fragment": 15, "materialize_deletions_threshold": 0.0}


def contents(path):
    """What a compaction must not change."""
    return read_ours(path, system_columns=()).sort_by("id").to_pylist()


def tidy_up(path, given):
    """Finishes what was begun, and removes what is left of it."""
    result = compact(Table(path), CompactionRequest(**{**given, "defer_index_remap": False}))
    policy = CleanupPolicy(older_than_s=0, delete_unverified=True)
    cleanup_old_versions(Table(path), policy)
    assert files_of(path) == used_files(path)
    indices = {str(index.uuid) for index in Snapshot.open(Table(path)).indices}
    assert {one.name for one in Path(path, "_indices").glob("*") if any(one.iterdir())} <= indices
    assert len(list(Path(path, "_versions").glob("*.manifest"))) == 1
    assert [one.name for one in Path(path).rglob(".tmp*")] == []
    return result


KINDS = [
    "rows keep their ids",
    "indices follow later",
    pytest.param("rows are sorted", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("kind", KINDS)
def test_killed_compaction_leaves_table_before_or_after(tmp_path, kind):
    before, deferred = str(tmp_path / "before"), kind == "indices follow later"
    for first, rows in ((0, 10), (10, 10), (20, 100), (120, 10), (130, 10)):
        append(before, first, rows, enable_stable_row_ids=not deferred)
    if deferred:
        lance.dataset(before).create_scalar_index("id", "BTREE")
    delete_rows(before, "id IN (3, 14, 133)")
    version, rows = Snapshot.open(Table(before)).version, contents(before)
    given = {**OPTIONS, "defer_index_remap": deferred}
    files = 2
    if kind == "rows are sorted":
        # Two sorted runs, and all rows in files of about 50.
        given |= {"cluster_by": ["id"], "sort_bytes": 1000, "target_rows_per_fragment": 60}
        files = 4
    tests = str(Path(__file__).parents[2] / "support")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, tests, str(tmp_path), json.dumps(given)],
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    died = json.loads(done.stdout)
    puts = [(call, folder) for _, call, folder in died]
    # Two bins, or what sorting takes; a version for the ids of fragments, and a file, where indices
    # follow later.
    commits = 2 if deferred else 1
    assert puts.count(("output.close", "data")) == 2 * files
    assert puts.count(("put_if_absent", "_versions")) == 2 * commits
    assert puts.count(("put", "_indices")) == 2 * (commits - 1)
    landed = 0
    for name, call, folder in died:
        path = str(tmp_path / name)
        now = Snapshot.open(Table(path)).version
        assert version <= now <= version + commits, (name, call, folder)
        landed += now == version + commits
        assert contents(path) == rows, (name, call, folder)
        assert verify(Table(path)).errors == ()
        lance.dataset(path).validate()
        again = tidy_up(path, given)
        assert (again.version is None) == (now == version + commits), (name, call, folder)
        assert contents(path) == rows
        if deferred:
            found = lance.dataset(path).to_table(filter="id >= 8 AND id < 15")["id"].to_pylist()
            assert sorted(found) == [8, 9, 10, 11, 12, 13]
    assert landed > 0

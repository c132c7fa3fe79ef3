"""A driver killed at a named point of a commit leaves the table before or after, never between."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from row_changes import upsert
from table_access import assert_same_rows, read_ours, read_theirs, write_table

from pyspark_lance.table.leftovers import leftover_files, remove_leftover_files

pytestmark = pytest.mark.interop

POINTS = {
    "inside a file": False,
    "before the transaction file": False,
    "before the manifest": False,
    "after the manifest": True,
}

SCRIPT = """
import os, sys, time
sys.path.insert(0, {tests!r})
import pyarrow as pa
from row_changes import add_to, upsert
from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.commit.commit_loop import Environment
from pyspark_lance.store.local_store import LocalOutput
from pyspark_lance.table.delete import delete_rows

path, kind, point = sys.argv[1:4]

class Deadly(ConditionalPutCommitHandler):
    def put(self, store, location, data, *, uuid):
        if point == "before the manifest":
            os._exit(7)
        outcome = super().put(store, location, data, uuid=uuid)
        os._exit(7)

def clock():
    if point == "before the transaction file":
        os._exit(7)
    return time.time_ns()

if point == "inside a file":
    LocalOutput.close = lambda self: os._exit(7)
deadly = Environment(handler=Deadly(), now_ns=clock)
if kind == "delete":
    delete_rows(path, "id = 1", environment=deadly)
elif kind == "update":
    add_to(path, "id = 1", "n", 5, environment=deadly)
else:
    upsert(path, pa.table({{"id": [1, 9], "n": [5, 9]}}), environment=deadly)
"""


def rows(path):
    ours = read_ours(path)
    assert_same_rows(ours, read_theirs(path))
    return ours.sort_by("id").to_pylist()


@pytest.mark.parametrize("point", POINTS)
def test_a_killed_driver_leaves_the_table_before_or_after(tmp_path, point):
    script = SCRIPT.format(tests=str(Path(__file__).parents[1]))
    started = []
    for kind in ("delete", "update", "merge"):
        path = str(tmp_path / kind)
        write_table(path, pa.table({"id": [0, 1, 2], "n": [0, 0, 0]}))
        command = [sys.executable, "-c", script, path, kind, point]
        started.append((kind, path, rows(path), subprocess.Popen(command)))
    for kind, path, before, process in started:
        assert process.wait(120) == 7
        after = rows(path)
        left = {
            folder: len(list((Path(path) / folder).glob("*")))
            for folder in ("_versions", "_transactions", "data", "_deletions")
        }
        # What a killed driver leaves behind is exactly what it had written, and in no version.
        is_staged = point == "inside a file"
        early = is_staged or point == "before the transaction file"
        assert left["_transactions"] == (1 if early else 2)
        assert left["data"] == (1 if kind == "delete" else 2)
        assert left["_deletions"] == (0 if is_staged and kind != "delete" else 1)
        found = leftover_files(path, {})
        names = sorted(one.path.partition("/")[0] for one in found)
        if POINTS[point]:
            assert names == []
        else:
            data = [] if kind == "delete" else ["data"]
            deletions = [] if is_staged and data else ["_deletions"]
            assert names == deletions + ([] if early else ["_transactions"]) + data
            assert is_staged == any("/.tmp" in one.path for one in found)
            assert remove_leftover_files(path, {}, older_than_s=0, force=True) == found
            assert leftover_files(path, {}) == []
        found = {row["id"]: row["n"] for row in after}
        if POINTS[point]:
            expected = {
                "delete": {0: 0, 2: 0},
                "update": {0: 0, 1: 5, 2: 0},
                "merge": {0: 0, 1: 5, 2: 0, 9: 9},
            }
            assert found == expected[kind]
            assert lance.dataset(path).version == 2
        else:
            assert after == before
            assert lance.dataset(path).version == 1
        upsert(path, pa.table({"id": [2, 4], "n": [7, 8]}))  # and the table goes on
        assert {row["id"]: row["n"] for row in rows(path)} == found | {2: 7, 4: 8}

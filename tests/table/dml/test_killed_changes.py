"""A driver killed at a named point of a commit leaves the table before or after, never between."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from random_seeds import cases
from row_changes import upsert
from table_access import assert_same_rows, read_ours, read_pylance, write_table
from table_files import files_of, used_files

from pyspark_lance.table.cleanup.cleanup import find_orphan_files, remove_orphan_files
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

# Whether the new version is there when the driver dies.
POINTS = {
    "inside a file": False,
    "before the transaction file": False,
    "before the manifest": False,
    "after the manifest": True,
}

SCRIPT = """
import functools, os, sys, time
sys.path.insert(0, {tests!r})
import pyarrow as pa
import pyarrow.compute as pc
from local_changes import commit_rewritten, delete_rows
from row_changes import add_to, upsert
from table_access import read_ours, write_table
from pyspark_lance.commit import commit_loop, retries
from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.store.local_store import LocalOutput
from pyspark_lance.table.columns.change_columns import add_columns, drop_columns
from pyspark_lance.table.columns.change_columns import compute_columns
from pyspark_lance.table.dml.rewrite_columns import plan_rewrite, rewrite_columns
from pyspark_lance.table.dml.row_change import plan_change
from pyspark_lance.table.version.table import Table

root, point = sys.argv[1:3]

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
make = functools.partial(retries.Environment, handler=Deadly(), now_ns=clock)
commit_loop.Environment = retries.Environment = make

def rewrite():
    plan = plan_change(Table(path))
    request = plan_rewrite(plan.snapshot(), ["n"])
    found = read_ours(path, system_columns=("_rowaddr",)).filter(pc.field("id") == 1)
    batches = pa.table({{"_rowaddr": found["_rowaddr"], "n": pa.array([5])}}).to_batches()
    commit_rewritten(plan, request, list(rewrite_columns(request, batches)))

def ids(*values):
    return pa.table({{"id": values, "n": [5] * len(values)}})

plus = compute_columns(["id"], lambda batch: [pc.add(batch.column("id"), 1)])
for name, work in {jobs!r}.items():
    path = os.path.join(root, name)
    driver = os.fork()  # a process of its own, without the time to start one
    if not driver:
        exec(work)
        os._exit(0)
    print(name, os.waitstatus_to_exitcode(os.waitpid(driver, 0)[1]))
"""


@dataclass(frozen=True)
class Job:
    """Work on rows (id, n): (0, 0), (1, 0), (2, 0).

    Attributes:
        work: A statement of the script.
        rows: What is there afterwards, without the columns that are null.
        folders: Where it writes files, in this order, before the transaction.
    """

    work: str
    rows: dict[int, dict[str, int]]
    folders: tuple[str, ...] = field(default=("data",))


def n(**values):
    return {int(key[1:]): {"n": value} for key, value in values.items()}


JOBS = {
    "delete": Job('delete_rows(path, "id = 1")', n(_0=0, _2=0), ("_deletions",)),
    "update": Job('add_to(path, "id = 1", "n", 5)', n(_0=0, _1=5, _2=0), ("data", "_deletions")),
    "merge": Job("upsert(path, ids(1, 9))", n(_0=0, _1=5, _2=0, _9=5), ("data", "_deletions")),
    "rewrite": Job("rewrite()", n(_0=0, _1=5, _2=0)),
    "append": Job("write_table(path, ids(9))", n(_0=0, _1=0, _2=0, _9=5)),
    "overwrite": Job("write_table(path, ids(9), overwrite=True)", n(_9=5)),
    "replace": Job(
        'write_table(path, ids(2, 9), overwrite=True, replace_where="id > 1")',
        n(_0=0, _1=0, _2=5, _9=5),
        ("data", "_deletions"),
    ),
    "add": Job(
        'add_columns(Table(path), pa.schema([("m", pa.int64())]), plus)',
        {row: {"n": 0, "m": row + 1} for row in range(3)},
    ),
    "drop": Job('drop_columns(Table(path), ["n"])', {row: {} for row in range(3)}, ()),
}


def contents(path):
    """Row id -> the columns that are not null, and everything pylance agrees on."""
    ours = read_ours(path)
    assert_same_rows(ours, read_pylance(path))
    return {
        row["id"]: {name: row[name] for name in ("n", "m") if row.get(name) is not None}
        for row in ours.to_pylist()
    }


@pytest.mark.parametrize("point", cases(POINTS, in_ci=["inside a file", "after the manifest"]))
def test_killed_driver_leaves_table_before_or_after(tmp_path, point):
    for name in JOBS:
        write_table(str(tmp_path / name), pa.table({"id": [0, 1, 2], "n": [0, 0, 0]}))
    helpers = str(Path(__file__).parents[2] / "support")
    script = SCRIPT.format(tests=helpers, jobs={name: job.work for name, job in JOBS.items()})
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), point],
        capture_output=True, text=True, timeout=200, check=True,
    )  # fmt: skip
    assert done.stdout.split("\n")[:-1] == [f"{name} 7" for name in JOBS], done.stderr
    for name, job in JOBS.items():
        path = str(tmp_path / name)
        before = {row: {"n": 0} for row in range(3)}
        found = contents(path)
        assert found == (job.rows if POINTS[point] else before)
        assert lance.dataset(path).version == (2 if POINTS[point] else 1)
        check_orphans(path, job, point)
        upsert(path, pa.table({"id": [2, 4]}))  # and the table goes on
        old = found.get(2, {})
        assert contents(path) == found | {2: old, 4: {}}


def check_orphans(path, job, point):
    """What a killed driver leaves is what it had written, and in no version; it is listed."""
    found = find_orphan_files(Table(path))
    names = [one.path for one in found]
    assert set(names) == files_of(path) - used_files(path)
    folders = [name.partition("/")[0] for name in names]
    if POINTS[point]:
        assert folders == []
    elif point == "inside a file":
        assert folders == [(*job.folders, "_transactions")[0]]
        assert "/.tmp" in names[0]
    else:
        written = "_transactions" if point == "before the manifest" else None
        assert sorted(folders) == sorted([*job.folders, *([written] if written else [])])
    assert remove_orphan_files(Table(path), older_than_s=0, force=True) == found
    assert find_orphan_files(Table(path)) == []
    lance.dataset(path).validate()

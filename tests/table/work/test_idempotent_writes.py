"""txnAppId and txnVersion: a batch that is written twice is in the table once."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from table_access import read_ours

from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    abort_write,
    commit_write,
    plan_write,
    write_rows,
)

SETTINGS = {
    "append": {},
    "overwrite": {"overwrite": True},
    "merge": {"merge_schema": True},
    "replace": {"overwrite": True, "replace_where": "id > 0"},
}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t.lance")


def batch(number, application="app"):
    return ApplicationVersion(application, number).properties()


def planned(path, values, **settings):
    table = pa.table({"id": pa.array(values, pa.int64())})
    plan = plan_write(
        Table(path), table.schema, WriteSettings(**settings), existing=open_existing(Table(path))
    )
    return plan, table


def write(path, values, **settings):
    plan, table = planned(path, values, **settings)
    return commit_write(plan, () if plan.is_done else write_rows(plan, table.to_batches()))


def ids(path):
    return sorted(read_ours(path, system_columns=())["id"].to_pylist())


def data_files(path):
    return len(list(Snapshot.open(Table(path)).store.list("data")))


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS.keys())
def test_repeated_batch_writes_nothing(path, settings):
    write(path, [1])
    assert write(path, [2], properties=batch(0), **settings).version == 2
    seen, files = ids(path), data_files(path)
    plan, _ = planned(path, [2], properties=batch(0), **settings)
    assert plan.is_done
    assert write(path, [2], properties=batch(0), **settings) is None
    # A job that was planned before the first one ended, as after a failover of the driver.
    stale, table = planned(path, [3], properties=batch(1), **settings)
    late = write_rows(stale, table.to_batches())
    write(path, [3], properties=batch(1), **settings)
    seen, files = ids(path), data_files(path)
    assert commit_write(stale, late) is None
    assert (ids(path), data_files(path)) == (seen, files - 1)
    assert Snapshot.open(Table(path)).version == 3
    # Other applications and later batches are not affected; an older batch is done, too.
    assert write(path, [4], properties=batch(0, "other"), **settings).version == 4
    assert write(path, [5], properties=batch(2), **settings).version == 5
    assert write(path, [6], properties=batch(1), **settings) is None


def test_batch_is_skipped_after_driver_dies_before_response(path):
    write(path, [1])
    plan, table = planned(path, [2], properties=batch(7))
    files = write_rows(plan, table.to_batches())
    commit_write(plan, files)  # and then the driver dies before it reads the response
    assert write(path, [2], properties=batch(7)) is None
    # Spark may also call abort for the very write that was committed.
    abort_write(plan, files)
    assert ids(path) == [1, 2]


KILLED = """
import os, sys
import pyarrow as pa
from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

path, point = sys.argv[1:3]
put = ConditionalPutCommitHandler.put

def deadly(*arguments, **more):
    if point == "after the manifest":
        put(*arguments, **more)
    os._exit(7)

ConditionalPutCommitHandler.put = deadly
rows = pa.table({{"id": [2]}})
settings = WriteSettings(properties={properties!r}, **{settings!r})
table = Table(path)
plan = plan_write(table, rows.schema, settings, existing=open_existing(table))
commit_write(plan, write_rows(plan, rows.to_batches()))
"""


@pytest.mark.parametrize("point", ["before the manifest", "after the manifest"])
def test_batch_of_killed_driver_is_written_once(tmp_path, point):
    started = []
    for kind in ("append", "replace"):
        path = str(tmp_path / kind)
        write(path, [1])
        script = KILLED.format(properties=batch(1), settings=SETTINGS[kind])
        command = [sys.executable, "-c", script, path, point]
        started.append((kind, path, subprocess.Popen(command)))
    for kind, path, process in started:
        assert process.wait(120) == 7
        again = write(path, [2], properties=batch(1), **SETTINGS[kind])
        assert (again is None) == (point == "after the manifest")
        assert write(path, [2], properties=batch(1), **SETTINGS[kind]) is None
        assert ids(path) == ([1, 2] if kind == "append" else [2])
        assert Snapshot.open(Table(path)).version == 2
        # What the killed driver wrote in vain stays until cleanup; nothing else does.
        assert data_files(path) == (2 if point == "after the manifest" else 3)


def test_concurrent_creates_with_same_batch_make_one_table(path):
    one, table = planned(path, [1], properties=batch(0))
    two, _ = planned(path, [1], properties=batch(0))
    first, second = (write_rows(plan, table.to_batches()) for plan in (one, two))
    assert commit_write(one, first).version == 1
    assert commit_write(two, second) is None
    assert (ids(path), data_files(path)) == ([1], 1)


def test_batch_stays_recorded_after_cleanup_and_restore(path):
    write(path, [1])
    write(path, [2], properties=batch(3))
    write(path, [3])
    config = Snapshot.open(Table(path)).manifest.config
    assert config == {"pyspark_lance.txn.app": "3"}
    assert write(path, [2], properties=batch(3)) is None

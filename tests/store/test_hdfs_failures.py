"""HDFS tables while name nodes take over from each other, and after killed writers."""

from __future__ import annotations

import itertools
import json
import multiprocessing
import os
import signal
import traceback
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pytest
from hdfs_cluster import run_cluster
from row_changes import upsert

from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.errors import StorageError
from pyspark_lance.store import hdfs_store
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.cleanup.cleanup import (
    CleanupPolicy,
    cleanup_old_versions,
    find_orphan_files,
)
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_table import (
    WriteSettings,
    commit_write,
    plan_write,
    write_rows,
)

# A cluster takes a JVM of its own.
pytestmark = pytest.mark.slow

NUMBERS = itertools.count()
KEY = ApplicationVersion("kills", 1).properties()
BEFORE = [[number, 0] for number in range(6)]
EVERYTHING = CleanupPolicy(older_than_s=0, delete_unverified=True)


@pytest.fixture(scope="module")
def cluster():
    """Two name nodes, of which one is active, and three data nodes."""
    with run_cluster(2, 3) as running:
        yield running


@pytest.fixture
def table(cluster):
    return new_table(cluster)


def new_table(cluster):
    options = {f"storage.{name}": text for name, text in cluster.settings().items()}
    return Table(f"{cluster.uri}/failures/{next(NUMBERS)}", options)


def rows_of(ids, n=0):
    return pa.table({"id": pa.array(ids, pa.int64()), "n": pa.array([n] * len(ids), pa.int64())})


def append(table, ids, **settings):
    data = rows_of(ids)
    settings = WriteSettings(**settings)
    plan = plan_write(table, data.schema, settings, existing=open_existing(table))
    return commit_write(plan, write_rows(plan, data.to_batches()))


def contents(table):
    tasks = plan_scan(Snapshot.open(table), ScanRequest())
    rows = [row for task in tasks for batch in task.run() for row in batch.to_pylist()]
    return sorted([row["id"], row["n"]] for row in rows)


# Name nodes ---------------------------------------------------------------------------------------


def start_in_safe_mode(cluster):
    """Let a name node take over that has just started, and does not know all blocks yet."""
    cluster.order("stop active")
    cluster.order("start standby")
    cluster.order("stop active")
    cluster.order("start standby")


def write_and_merge(table, number, times, done):
    """Append ten rows, then change one of these and insert ten more, and so on."""
    try:
        for first in range(number * times * 10, (number + 1) * times * 10, 20):
            append(table, range(first, first + 10))
            upsert(table.root, rows_of(range(first + 9, first + 20), 1), options=table.storage)
            done.put(first)
    finally:
        done.put(None)


@pytest.mark.parametrize("orders", [["hand over"], ["stop active", "start standby"]])
def test_failovers_lose_and_repeat_no_rows(cluster, table, orders):
    append(table, [-1])
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    writers = [
        context.Process(target=write_and_merge, args=(table, number, 8, done))
        for number in range(4)
    ]
    for writer in writers:
        writer.start()
    num_changes, num_ended = 0, 0
    while num_ended < 4:
        if done.get(timeout=300) is None:
            num_ended += 1
        else:
            num_changes += 1
            for order in orders if num_changes % 4 == 1 else ():
                cluster.order(order)
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert contents(table) == [[-1, 0], *([i, int(i % 20 >= 9)] for i in range(320))]
    assert Snapshot.open(table).version == 1 + 4 * 8
    assert verify(table, read_data=True).findings == ()
    assert find_orphan_files(table) == []


def test_requests_wait_for_name_node_that_starts(cluster, table):
    store = open_store(table.root, table.storage)
    store.put("a", b"first")
    start_in_safe_mode(cluster)
    assert bytes(store.get("a")) == b"first"
    start_in_safe_mode(cluster)
    assert store.put_if_absent("b", b"second") is True
    assert store.put_if_absent("b", b"third") is False
    assert sorted(one.path for one in store.list("")) == ["a", "b"]


@pytest.mark.parametrize("size", [5, 9 << 20])
def test_output_is_completed_by_next_name_node(cluster, table, size):
    store = open_store(table.root, table.storage)
    content = os.urandom(size)
    output = store.open_output("data/x")
    output.write(content[: size // 2])
    output.write(content[size // 2 :])
    start_in_safe_mode(cluster)
    output.close()
    assert bytes(store.get("data/x")) == content
    assert [one.path for one in store.list("")] == ["data/x"]


# Responses ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("request_name", ["create", "get_file_info", "rename", "delete"])
@pytest.mark.parametrize("is_done", [False, True])
def test_requests_without_response_are_repeated(table, monkeypatch, request_name, is_done):
    """Of a name node that ended before or after it carried one out."""
    store = open_store(table.root, table.storage)
    store.put("before", b"1")
    send, failed = getattr(store._client, request_name), []

    def lose_first(*arguments):
        if not failed:
            failed.append(arguments)
            if is_done:
                send(*arguments)
            raise OSError("RPC listener disconnected")
        return send(*arguments)

    monkeypatch.setattr(store._client, request_name, lose_first)
    assert store.put_if_absent("a", b"first") is True
    assert store.put_if_absent("a", b"second") is False
    assert bytes(store.get("a")) == b"first"
    store.delete("before")
    assert failed
    assert [one.path for one in store.list("")] == ["a"]


def test_blocks_without_data_nodes_are_read_again(table, monkeypatch):
    """As Hadoop's client does: a new name node has not had all reports yet."""
    store = open_store(table.root, table.storage)
    store.put("x", b"content")
    read, opened = store._bytes, []

    def read_later(reader, start, end):
        opened.append(reader)
        if len(opened) == 1:
            raise RuntimeError('DataTransferError("All DataNodes failed: []")')
        return read(reader, start, end)

    monkeypatch.setattr(store, "_bytes", read_later)
    assert bytes(store.get("x")) == b"content"
    first, second = opened
    assert first is not second  # which has the places of the blocks


@pytest.mark.parametrize("size", [5, 9 << 20])
def test_lost_response_of_output_rename_is_success(table, monkeypatch, size):
    store = open_store(table.root, table.storage)
    rename = store._client.rename

    def lose_response(*arguments):
        rename(*arguments)
        rename(*arguments)

    monkeypatch.setattr(store._client, "rename", lose_response)
    store.put("x", b"older")
    output = store.open_output("x")
    output.write(bytes(size))
    output.close()
    assert bytes(store.get("x")) == bytes(size)


def test_failed_rename_without_staging_file_is_an_error(table, monkeypatch):
    """The older object stays; a cleanup may have removed the staging file."""
    store = open_store(table.root, table.storage)
    store.put("x", b"older")
    client = store._client

    def fail(other, full, overwrite):
        client.delete(other, False)
        raise RuntimeError("no such file")

    monkeypatch.setattr(client, "rename", fail)
    with pytest.raises(StorageError, match="no such file"):
        store.put("x", b"newest")
    assert bytes(store.get("x")) == b"older"


def test_manifest_of_other_writer_is_no_success(table, monkeypatch):
    """Even if a cleanup has removed the temporary file meanwhile."""
    store = open_store(table.root, table.storage)
    client = store._client

    def be_late(other, full, overwrite):
        client.inner.rename(other, full, overwrite)
        client.delete(full, False)
        with client.create(full) as file:
            file.write(b"theirs")
        raise RuntimeError("exists")

    monkeypatch.setattr(client, "rename", be_late)
    assert store.put_if_absent("x", b"ours") is False


# Kills --------------------------------------------------------------------------------------------


@dataclass
class Death:
    """Requests that changed something, and after how many of them the process dies."""

    number: int = -1
    calls: list[str] = field(default_factory=list)


class DyingClient:
    """A client of HDFS, or a file that it writes."""

    def __init__(self, death, target):
        self._death, self._target = death, target

    def __getattr__(self, name):
        found = getattr(self._target, name)
        if name not in ("create", "write", "close", "rename", "delete"):
            return found

        def call(*arguments):
            result = found(*arguments)
            self._death.calls.append(name)
            if len(self._death.calls) == self._death.number:
                os.kill(os.getpid(), signal.SIGKILL)
            return DyingClient(self._death, result) if name == "create" else result

        return call

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def append_once(table):
    append(table, [10, 11], properties=KEY)


def merge_once(table):
    settings = ChangeSettings(properties=KEY)
    upsert(table.root, rows_of([1, 12], 1), options=table.storage, settings=settings)


def forked(action):
    """What an action returns, or its signal, in a process that has not used HDFS before."""
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        status = 1
        try:
            with os.fdopen(writer, "w") as file:
                json.dump(action(), file)
            status = 0
        except BaseException:  # noqa: BLE001 - shown, as its process ends
            traceback.print_exc()
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code or json.loads(text)


def work_until(table, work, number):
    """Work on a new table, and return the requests that changed something."""
    death = Death()
    connect = hdfs_store.HdfsStore._connect
    hdfs_store.HdfsStore._connect = lambda self: DyingClient(death, connect(self))
    append(table, [0, 1, 2])
    append(table, [3, 4, 5])
    death.calls, death.number = [], number
    work(table)
    return death.calls


def check_and_repeat(table, work, before, after):
    """Return whether the work was done: wholly or not at all; repeated, it has one effect."""
    found = contents(table)
    assert found in (before, after)
    assert verify(table, read_data=True).errors == ()
    work(table)
    cleanup_old_versions(table, EVERYTHING)
    assert contents(table) == after
    assert verify(table, read_data=True).findings == ()
    assert [one.path for one in table.store().list("") if ".tmp_" in one.path] == []
    return found == after


def kill_everywhere(tables, work, done):
    """Kill the work after each of its requests; each time a table of its own."""
    calls = forked(partial(work_until, tables[0], work, -1))
    after = forked(partial(contents, tables[0]))
    ends = []
    for number, table in enumerate(tables[1 : 1 + len(calls)], 1):
        assert forked(partial(work_until, table, work, number)) == -signal.SIGKILL
        ends.append(forked(partial(check_and_repeat, table, work, BEFORE, after)))
    done.put((calls, ends))


@pytest.mark.parametrize("work", [append_once, merge_once])
def test_killed_writers_leave_whole_tables(cluster, work):
    tables = [new_table(cluster) for _ in range(60)]
    context = multiprocessing.get_context("spawn")  # it forks, before it uses HDFS
    done = context.Queue()
    process = context.Process(target=kill_everywhere, args=(tables, work, done))
    process.start()
    process.join(550)
    assert process.exitcode == 0
    calls, ends = done.get(timeout=10)
    assert 10 < len(calls) == len(ends)
    assert ends == [False] * ends.index(True) + [True] * ends.count(True)
    assert calls[ends.index(True)] == "rename"  # of the manifest

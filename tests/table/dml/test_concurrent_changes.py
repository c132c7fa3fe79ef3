"""Two writers, row by row: what is united, what is planned again, what fails; nothing is lost."""

from __future__ import annotations

import concurrent.futures
import subprocess
import sys
import threading
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from local_changes import delete_rows, merge_rows
from row_changes import add_to, insert, interrupted_by, set_to, upsert
from table_access import assert_same_rows, read_ours, read_pylance, write_table

from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.commit.retries import Environment
from pyspark_lance.errors import CommitConflictError, RetryableCommitError
from pyspark_lance.format.operation import Delete, Update
from pyspark_lance.table.dml.row_change import ChangeSettings
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

pytestmark = pytest.mark.interop

KEY = "lance-schema:unenforced-primary-key"
PATIENT = ChangeSettings(retries=500, timeout_s=240)


def make(path, rows=10, **settings):
    ids = pa.array(range(rows), pa.int64())
    write_table(path, pa.table({"id": ids, "n": pa.array([0] * rows, pa.int64())}), **settings)


def values(path):
    ours = read_ours(path)
    assert_same_rows(ours, read_pylance(path))
    lance.dataset(path).validate()
    return {row["id"]: row["n"] for row in ours.to_pylist()}


def files(path, folder):
    return {one.name for one in (Path(path) / folder).iterdir()}


@pytest.fixture
def path(tmp_path):
    return str(tmp_path / "t")


def test_concurrent_changes_of_different_rows_are_rebased(path):
    make(path)
    concurrent = interrupted_by(
        lambda: set_to(path, "id = 2", n=2), lambda: delete_rows(path, "id = 3")
    )
    result = set_to(path, "id = 1", n=1, _arguments=concurrent)
    assert result.version == 4
    assert values(path) == {0: 0, 1: 1, 2: 2} | dict.fromkeys(range(4, 10), 0)
    transaction = Snapshot.open(Table(path)).file.transaction()
    assert isinstance(transaction.operation, Update)
    assert transaction.read_version == 3  # rebased, so the union was made on that version
    assert read_ours(path).sort_by("id")["_rowid"].to_pylist() == [0, 1, 2, *range(4, 10)]
    # The deletion file that the rebase replaced is gone: one for each version that has one.
    assert len(files(path, "_deletions")) == 3


def test_concurrent_deletes_are_rebased_and_may_empty_fragment(path):
    make(path, 4)
    concurrent = interrupted_by(lambda: delete_rows(path, "id < 2"))
    result = delete_rows(path, "id >= 2", **concurrent)
    assert (result.version, result.num_deleted_rows) == (3, 2)
    operation = Snapshot.open(Table(path)).file.transaction().operation
    assert isinstance(operation, Delete)
    assert operation.deleted_fragment_ids == (0,)
    assert Snapshot.open(Table(path)).manifest.fragments == ()


def test_concurrent_change_of_same_row_is_replanned(path):
    make(path)
    concurrent = interrupted_by(
        lambda: add_to(path, "id = 1", "n", 10), lambda: delete_rows(path, "id = 2")
    )
    result = add_to(path, "id <= 2", "n", 1, **concurrent)
    assert result.num_updated_rows == 2  # the second plan no longer found the deleted row
    assert values(path) == {0: 1, 1: 11} | dict.fromkeys(range(3, 10), 0)


def test_change_is_replanned_after_concurrent_compaction(path):
    make(path, 20, max_rows_per_file=5)
    delete_rows(path, "id = 0")
    concurrent = interrupted_by(lambda: lance.dataset(path).optimize.compact_files())
    assert add_to(path, "id < 8", "n", 1, **concurrent).num_updated_rows == 7
    assert values(path) == {i: int(i < 8) for i in range(1, 20)}
    rows = read_ours(path).sort_by("id")
    assert rows["_rowid"].to_pylist() == list(range(1, 20))


def test_update_is_not_replanned_after_concurrent_append(path):
    make(path)
    concurrent = interrupted_by(lambda: write_table(path, pa.table({"id": [77], "n": [7]})))
    upsert(path, pa.table({"id": [3, 88], "n": [3, 8]}), **concurrent)
    assert values(path) == dict.fromkeys(range(10), 0) | {3: 3, 77: 7, 88: 8}
    assert sorted(read_ours(path)["_rowid"].to_pylist()) == list(range(12))


def test_concurrent_overwrite_conflicts_and_leaves_no_files(path):
    make(path)
    other = pa.table({"id": [1], "n": [5]})
    concurrent = interrupted_by(lambda: write_table(path, other, overwrite=True))
    with pytest.raises(CommitConflictError) as caught:
        set_to(path, "id = 1", n=1, _arguments=concurrent)
    assert not isinstance(caught.value, RetryableCommitError)
    assert values(path) == {1: 5}
    assert len(files(path, "data")) == 2
    assert not Path(path, "_deletions").exists() or not files(path, "_deletions")


def test_exhausted_retries_raise_and_leave_no_files(path):
    make(path)
    concurrent = interrupted_by(*[lambda: add_to(path, "id = 1", "n", 10)] * 9)
    settings = ChangeSettings(retries=2, timeout_s=30)
    with pytest.raises(RetryableCommitError, match="conflicted 3 times"):
        add_to(path, "id = 1", "n", 1, settings=settings, **concurrent)
    assert values(path)[1] == 30
    assert len(files(path, "data")) == 4


@pytest.mark.parametrize("with_key", [True, False])
def test_concurrent_merges_insert_new_key_once(path, with_key):
    """The second merge looks again, whether the key is declared to be the table's or not."""
    metadata = {KEY: "true"} if with_key else None
    schema = pa.schema(
        [pa.field("id", pa.int64(), nullable=False, metadata=metadata), pa.field("n", pa.int64())]
    )
    write_table(path, pa.table({"id": [1], "n": [0]}, schema=schema))
    new = pa.table({"id": pa.array([7], pa.int64()), "n": pa.array([1], pa.int64())})
    concurrent = interrupted_by(lambda: upsert(path, new))
    result = upsert(path, new.set_column(1, "n", pa.array([2])), **concurrent)
    found = sorted((row["id"], row["n"]) for row in read_pylance(path).to_pylist())
    assert found == [(1, 0), (7, 2)]
    assert (result.num_inserted_rows, result.num_updated_rows) == (0, 1)


def test_merges_of_different_keys_are_not_replanned(path):
    make(path)
    concurrent = interrupted_by(lambda: upsert(path, pa.table({"id": [3, 20], "n": [1, 1]})))
    result = upsert(path, pa.table({"id": [4, 30], "n": [2, 2]}), **concurrent)
    assert Snapshot.open(Table(path)).file.transaction().uuid == result_uuid(path, result)
    assert values(path) == dict.fromkeys(range(10), 0) | {3: 1, 20: 1, 4: 2, 30: 2}
    assert len(files(path, "data")) == 3  # nothing was written twice


def result_uuid(path, result):
    at = VersionSpec(version=result.version)
    return Snapshot.open(Table(path), at).file.transaction().uuid


def test_updates_matching_each_others_rows_are_serialized(path):
    """Each moves rows to where the other looks; together they would swap them."""
    make(path, 4)
    set_to(path, "id < 2", n=1)
    concurrent = interrupted_by(lambda: set_to(path, "n = 0", n=1))
    assert set_to(path, "n = 1", n=0, _arguments=concurrent).num_updated_rows == 4
    assert values(path) == dict.fromkeys(range(4), 0)


def test_delete_includes_rows_matched_by_concurrent_update(path):
    make(path, 4)
    concurrent = interrupted_by(lambda: set_to(path, "id = 3", n=5))
    assert delete_rows(path, "n = 5 or id = 0", **concurrent).num_deleted_rows == 2
    assert values(path) == {1: 0, 2: 0}


def compacted(path):
    lance.dataset(path).optimize.compact_files()


def test_merge_inserts_row_moved_and_deleted_concurrently(path):
    make(path, 10, max_rows_per_file=5)
    concurrent = interrupted_by(lambda: [compacted(path), delete_rows(path, "id = 1")])
    source = pa.table({"id": [1, 77], "n": [5, 5]})
    result = merge_rows(path, source, ["id"], [insert(["id", "n"])], **concurrent)
    assert result.num_inserted_rows == 2
    assert values(path) == dict.fromkeys(range(10), 0) | {1: 5, 77: 5}


def test_merge_finds_row_inserted_and_moved_concurrently(path):
    make(path, 10)
    new = pa.table({"id": [77], "n": [5]})
    concurrent = interrupted_by(lambda: [upsert(path, new), compacted(path)])
    assert merge_rows(path, new, ["id"], [insert(["id", "n"])], **concurrent).version is None
    assert read_ours(path).num_rows == 11
    assert values(path) == dict.fromkeys(range(10), 0) | {77: 5}


def test_delete_includes_rows_of_concurrently_replaced_file(path):
    make(path, 10, max_rows_per_file=5)

    def replace_file():
        rows = pa.table({"id": pa.array(range(5, 10), pa.int64()), "n": [7] * 5})
        (new,) = lance.fragment.write_fragments(rows, path, schema=rows.schema)
        group = lance.LanceOperation.DataReplacementGroup(1, new.files[0])
        operation = lance.LanceOperation.DataReplacement([group])
        lance.LanceDataset.commit(path, operation, read_version=1)

    result = delete_rows(path, "n = 7 or id = 0", **interrupted_by(replace_file))
    assert result.num_deleted_rows == 6
    assert values(path) == dict.fromkeys(range(1, 5), 0)


def test_concurrent_append_is_ordered_after_change(path):
    """An append looks at nothing, so the change may have come before it."""
    make(path, 2)
    concurrent = interrupted_by(lambda: write_table(path, pa.table({"id": [7], "n": [0]})))
    assert set_to(path, "n = 0", n=1, _arguments=concurrent).num_updated_rows == 2
    assert values(path) == {0: 1, 1: 1, 7: 0}


class Counting(ConditionalPutCommitHandler):
    """Lets a change of the same row in before each put, and counts."""

    def __init__(self, action):
        self.action, self.puts = action, 0

    def put(self, store, location, data, *, uuid):
        self.puts += 1
        self.action()
        return super().put(store, location, data, uuid=uuid)


@pytest.mark.parametrize("retries", [0, 1, 2, 10])
def test_retries_count_attempts_after_first(path, retries):
    make(path)
    counting = Counting(lambda: add_to(path, "id = 1", "n", 1))
    environment = Environment(handler=counting, sleep=lambda seconds: None)
    with pytest.raises(RetryableCommitError):
        add_to(
            path,
            "id = 1",
            "n",
            100,
            settings=ChangeSettings(retries=retries, timeout_s=300),
            environment=environment,
        )
    assert counting.puts == retries + 1
    assert values(path)[1] == retries + 1


def test_replanning_time_is_bounded(path):
    make(path)
    counting = Counting(lambda: add_to(path, "id = 1", "n", 1))
    clock = iter(range(0, 10_000, 5))
    environment = Environment(
        handler=counting, monotonic=lambda: next(clock), sleep=lambda seconds: None
    )
    with pytest.raises(RetryableCommitError):
        add_to(
            path,
            "id = 1",
            "n",
            100,
            settings=ChangeSettings(retries=1000, timeout_s=60),
            environment=environment,
        )
    assert counting.puts < 12


def test_numbered_changes_are_applied_once(path):
    make(path)
    for number in (1, 2, 1, 2):
        numbered = ChangeSettings(properties=ApplicationVersion("app", number).properties())
        add_to(path, "id = 1", "n", number, settings=numbered)
    assert values(path)[1] == 3
    assert lance.dataset(path).version == 3
    # The same work twice at once: the second finds out when it commits, and leaves no file.
    third = ChangeSettings(properties=ApplicationVersion("app", 3).properties())
    concurrent = interrupted_by(lambda: delete_rows(path, "id = 5", settings=third))
    done = delete_rows(path, "id = 5", settings=third, **concurrent)
    assert done.version is None
    assert 5 not in values(path)
    assert lance.dataset(path).version == 4


def test_threads_updating_different_rows_all_commit(path):
    make(path, 40)

    def work(worker):
        return [add_to(path, f"id = {i}", "n", i, settings=PATIENT) for i in range(worker, 40, 4)]

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = [one for part in pool.map(work, range(4)) for one in part]
    assert sorted(one.version for one in results) == list(range(2, 42))
    assert values(path) == {i: i for i in range(40)}


WORKER = """
import sys
sys.path.insert(0, {tests!r})
from row_changes import add_to
from pyspark_lance.table.dml.row_change import ChangeSettings
path, first, step, count = sys.argv[1], *map(int, sys.argv[2:5])
patient = ChangeSettings(retries=1000, timeout_s=500)
sys.stdin.readline()
for turn in range(count):
    key = first if step == 0 else first + step * turn
    assert add_to(path, f"id = {{key}}", "n", 1 + turn % 3, settings=patient).num_updated_rows == 1
"""


def start(path, first, step, count):
    script = WORKER.format(tests=str(Path(__file__).parents[2] / "support"))
    command = [sys.executable, "-c", script, path, str(first), str(step), str(count)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, text=True)


def run_together(workers, between=lambda: None):
    """Start all at once; ``between`` is called repeatedly until all have ended."""
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.close()
    stop = threading.Event()

    def loop():
        while not stop.wait(0.05):
            between()

    thread = threading.Thread(target=loop)
    thread.start()
    codes = [worker.wait(600) for worker in workers]
    stop.set()
    thread.join()
    assert codes == [0] * len(workers)


@pytest.mark.parametrize(
    ("processes", "updates"), [(3, 8), pytest.param(8, 50, marks=pytest.mark.slow)]
)
def test_processes_updating_different_rows_commit_beside_compaction(path, processes, updates):
    make(path, processes * updates)
    before = read_ours(path).sort_by("id")
    compactions = []

    def compact():
        try:
            dataset = lance.dataset(path, session=lance.Session())
            metrics = dataset.optimize.compact_files(target_rows_per_fragment=10_000)
            compactions.append(metrics.fragments_removed)
        except OSError:  # it met a change of ours and gives up; the next round tries again
            pass

    workers = [start(path, first, processes, updates) for first in range(processes)]
    run_together(workers, compact)
    assert values(path) == {i: 1 + i // processes % 3 for i in range(processes * updates)}
    after = read_ours(path).sort_by("id")
    assert after["_rowid"].equals(before["_rowid"])
    assert after["_row_created_at_version"].equals(before["_row_created_at_version"])
    stamps = after["_row_last_updated_at_version"].to_numpy()
    assert len(np.unique(stamps)) == processes * updates
    assert sum(compactions) > 0


@pytest.mark.parametrize(
    ("processes", "increments"), [(3, 5), pytest.param(8, 8, marks=pytest.mark.slow)]
)
def test_processes_incrementing_one_row_lose_no_increment(path, processes, increments):
    make(path, 5)
    run_together([start(path, 2, 0, increments) for _ in range(processes)])
    total = processes * sum(1 + turn % 3 for turn in range(increments))
    assert values(path) == {0: 0, 1: 0, 2: total, 3: 0, 4: 0}
    assert lance.dataset(path).version == 1 + processes * increments

"""Writers on one machine share an advisory lock: all progress, and retries have priority."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import uuid

import pytest
from commit_tables import (
    BeforePut,
    FakeTime,
    append,
    create_table,
    environment,
    is_lock_free,
    latest,
    names,
    new_fragment,
)

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.errors import CommitConflictError, RetryableCommitError
from pyspark_lance.format.operation import Append, UpdateConfig, UpdateMap
from pyspark_lance.metafile.paths import TRANSACTIONS, VERSIONS
from pyspark_lance.store.advisory_lock import advisory_lock
from pyspark_lance.store.memory_store import MemoryStore
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table import unit_of_work
from pyspark_lance.table.unit_of_work import CommitSettings, UnitOfWork
from pyspark_lance.table.version.table import Table

LONG_S = 120.0  # longer than any wait that succeeds


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder for temporary files."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    return place


@pytest.fixture(params=["folder", "object store"])
def path(request, tmp_path, place):
    here = str(tmp_path / "t") if request.param == "folder" else f"memory://{uuid.uuid4().hex}/t"
    create_table(open_store(here), 2)
    return here


def noting_store(path):
    """A store, and an event that says when a transaction was written to it."""
    store, written = open_store(path), threading.Event()
    put = store.put

    def noting(path, data):
        put(path, data)
        if path.startswith(TRANSACTIONS):
            written.set()

    store.put = noting
    return store, written


def test_concurrent_writer_waits_for_lock_without_retry(path):
    (store, written), results, first_is_done = noting_store(path), [], threading.Event()

    def second():
        late = Environment(handler=BeforePut(lambda: first_is_done.wait(LONG_S)))
        try:
            results.append(append(store, 1, 1, retries=0, environment=late).version)
        except RetryableCommitError as error:
            results.append(error)

    thread = threading.Thread(target=second)

    def while_the_first_puts():
        thread.start()
        assert written.wait(LONG_S)

    first = Environment(handler=BeforePut(while_the_first_puts))
    results.append(append(open_store(path), 1, 1, retries=0, environment=first).version)
    first_is_done.set()
    thread.join()
    assert results == [2, 3]
    assert len(names(store, TRANSACTIONS)) == 3


def test_files_written_while_waiting_are_removed_after_conflict(path):
    (store, written), results = noting_store(path), []

    def second():
        with pytest.raises(CommitConflictError) as failure:
            append(store, 7, 1, retries=0)
        results.append(failure.value.what)

    thread = threading.Thread(target=second)
    with advisory_lock(open_store(path), VERSIONS, LONG_S):
        thread.start()
        assert written.wait(LONG_S)
    thread.join()
    assert results == ["the work was planned on version 7, but the newest is 1"]
    assert len(names(store, TRANSACTIONS)) == 1


def changing_config(key):
    return UpdateConfig(config_updates=UpdateMap(((key, "1"),)))


@pytest.mark.parametrize(
    "operation", [Append((new_fragment(1),)), changing_config("k")], ids=["append", "config"]
)
def test_commit_lock_blocks_other_commits(path, operation):
    """Another change may catch up meanwhile."""
    seen = []

    def look():
        seen.append(
            (is_lock_free(open_store(path), VERSIONS), is_lock_free(open_store(path), TRANSACTIONS))
        )

    work = UnitOfWork(
        Table(path), CommitSettings(), environment=Environment(handler=BeforePut(look))
    )
    base = BaseVersion.of(latest(open_store(path)).manifest)
    work.run(lambda work: work.commit(work.propose(base, operation)))
    assert seen == [(False, True)]
    assert is_lock_free(open_store(path), VERSIONS)
    assert is_lock_free(open_store(path), TRANSACTIONS)


def test_replanned_change_waits_for_commit_before_it(path):
    seen, has_lock, may_end = [], threading.Event(), threading.Event()

    def commit_before():
        with advisory_lock(open_store(path), VERSIONS, LONG_S):
            has_lock.set()
            assert may_end.wait(LONG_S)
            seen.append("committed")

    thread = threading.Thread(target=commit_before)

    def attempt(work):
        if not seen:
            thread.start()
            assert has_lock.wait(LONG_S)
            threading.Timer(0.05, may_end.set).start()
            seen.append("planned")
            raise RetryableCommitError("others were faster")
        seen.append("planned again")

    UnitOfWork(Table(path), CommitSettings(), environment=environment()).run(attempt)
    thread.join()
    assert seen == ["planned", "committed", "planned again"]


def test_conflicting_work_keeps_transaction_lock_until_done(path):
    seen = []

    def attempt(work):
        seen.append(
            (is_lock_free(open_store(path), TRANSACTIONS), is_lock_free(open_store(path), VERSIONS))
        )
        if len(seen) < 3:
            raise RetryableCommitError("others were faster")

    UnitOfWork(Table(path), CommitSettings(), environment=environment()).run(attempt)
    assert seen == [(True, True), (False, True), (False, True)]
    assert is_lock_free(open_store(path), TRANSACTIONS)


class Widest(random.Random):
    """Always draws the longest wait."""

    def uniform(self, low, high):
        return high


def test_backoff_grows_and_then_shrinks_with_age():
    fake = FakeTime(step_s=0.0)
    left = Retries(9, 1000.0, environment(fake, rng=Widest()))
    while left.again(slot_s=0.01):
        pass
    assert len(fake.slept) == 9
    longest = fake.slept.index(max(fake.slept))
    assert fake.slept[: longest + 1] == sorted(fake.slept[: longest + 1])
    assert fake.slept[longest:] == sorted(fake.slept[longest:], reverse=True)
    assert fake.slept[-1] < fake.slept[0]
    assert 0 < longest < 4


def run_works(path, conflicts):
    """Return whether the lock was free at the first attempt of each; ``conflicts``: which have."""
    seen = []
    for has_conflict in conflicts:
        attempts = []

        def attempt(work, attempts=attempts, has_conflict=has_conflict):
            attempts.append(is_lock_free(open_store(path), TRANSACTIONS))
            if len(attempts) == 1 and has_conflict:
                raise RetryableCommitError("others were faster")

        UnitOfWork(Table(path), CommitSettings(), environment=environment()).run(attempt)
        seen.append(attempts[0])
    return seen


def test_work_after_repeated_conflicts_starts_with_lock(path, monkeypatch):
    monkeypatch.setattr(unit_of_work, "_REMEMBERED", 2)
    conflicts = [True, True, True, False, False, False]
    assert run_works(path, conflicts) == [True, True, True, False, False, True]
    assert Table(path).key() not in unit_of_work._conflicts


def test_single_conflicts_do_not_make_work_wait(path):
    conflicts = [True, True, False, True, True, False]
    assert run_works(path, conflicts) == [True] * 6
    assert Table(path).key() not in unit_of_work._conflicts


S3 = {
    "storage.endpoint": "http://127.0.0.1:9000",
    "storage.access_key_id": "k",
    "storage.secret_access_key": "s3cr",
}
OTHER_SERVER = {**S3, "storage.endpoint": "http://127.0.0.1:9001"}


def test_remembered_conflict_is_per_server():
    uri = f"s3://bucket/{uuid.uuid4().hex}"
    works = [
        UnitOfWork(Table(uri, storage), CommitSettings(), environment=environment())
        for storage in (S3, OTHER_SERVER)
    ]
    for _ in range(unit_of_work._MAX_CONFLICTS):
        works[0]._remember_conflict()
    assert [work._expects_conflicts() for work in works] == [True, False]


def test_table_key_includes_server_root_branch_and_credentials():
    tables = [
        Table("s3://bucket/t", S3),
        Table("s3://bucket/t", OTHER_SERVER),
        Table("s3://bucket/u", S3),
        Table("s3://bucket/t", S3, "work"),
        Table("s3://bucket/t", {**S3, "storage.access_key_id": "l"}),
    ]
    assert len({table.key() for table in tables}) == len(tables)
    assert Table("s3://bucket/t", dict(reversed(S3.items()))).key() == tables[0].key()
    assert tables[0].key(tables[0].store()) == tables[0].key()
    assert all("s3cr" not in repr(table.key()) for table in tables)


def test_writers_with_and_without_unsafe_puts_share_lock(place):
    uri = f"s3://bucket/{uuid.uuid4().hex}"
    one, other = (open_store(uri, {**S3, "storage.allow_unsafe_put": flag}) for flag in "01")
    assert one.unproven_server and not other.unproven_server
    elsewhere = open_store(uri, OTHER_SERVER)
    results = []

    def other_writer(store):
        with advisory_lock(store, VERSIONS, 0.0) as mine:
            results.append(mine)

    with advisory_lock(one, VERSIONS, 0.0):
        for store in (other, elsewhere):
            thread = threading.Thread(target=other_writer, args=(store,))
            thread.start()
            thread.join()
    assert results == [False, True]


def test_concurrent_writers_commit_without_retry(path):
    count, results = 8, []
    together = threading.Barrier(count)
    slow = Environment(handler=BeforePut(lambda: time.sleep(0.02)))

    def write():
        together.wait(LONG_S)
        results.append(append(open_store(path), 1, 1, retries=0, environment=slow).version)

    threads = [threading.Thread(target=write) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(results) == list(range(2, 2 + count))


ASK = """
import sys
from pyspark_lance.store.open_store import open_store
from pyspark_lance.store.advisory_lock import advisory_lock

with advisory_lock(open_store(sys.argv[1]), sys.argv[2], 0.0) as mine:
    print(mine)
"""


def is_free_for_another_process(path, folder):
    return (
        subprocess.run(
            [sys.executable, "-c", ASK, path, folder],
            env={**os.environ, "TMPDIR": tempfile.gettempdir()},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        == "True"
    )


def test_advisory_lock_excludes_other_processes_in_object_store(place):
    path = f"memory://{uuid.uuid4().hex}/t"
    with advisory_lock(open_store(path), VERSIONS, 0.0) as mine:
        assert mine
        assert not is_free_for_another_process(path, VERSIONS)
        assert is_free_for_another_process(path, TRANSACTIONS)
    assert is_free_for_another_process(path, VERSIONS)
    (folder,) = place.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_size == 0 for file in folder.iterdir())


def test_advisory_lock_distinguishes_servers_of_same_uri(place):
    one, other = open_store(f"memory://{uuid.uuid4().hex}/t"), MemoryStore()
    other.uri, other.server = one.uri, "http://127.0.0.1:9000"
    results = []

    def other_writer(store):
        with advisory_lock(store, VERSIONS, 0.0) as mine:
            results.append(mine)

    with advisory_lock(one, VERSIONS, 0.0):
        for store in (one, other):
            thread = threading.Thread(target=other_writer, args=(store,))
            thread.start()
            thread.join()
    assert results == [False, True]


def test_waiting_writer_sees_progress_of_other_writers(place, monkeypatch):
    """With a limit of 2 s it waits for writers that hold the lock for 0.5 s, six times."""
    store, results = open_store(f"memory://{uuid.uuid4().hex}/t"), []
    begun = threading.Event()

    def others():
        for _ in range(6):
            with advisory_lock(store, VERSIONS, LONG_S):
                begun.set()
                time.sleep(0.5)

    def late():
        assert begun.wait(LONG_S)
        with advisory_lock(store, VERSIONS, 2.0) as mine:
            results.append(mine)

    threads = [threading.Thread(target=one) for one in (others, late)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True]


def open_for_all(folder):
    folder.mkdir()
    folder.chmod(0o755)


def linked(folder):
    (folder.parent / "elsewhere").mkdir(mode=0o700)
    folder.symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize("make", [open_for_all, linked, lambda folder: folder.write_text("")])
def test_untrusted_lock_folder_is_not_used(place, make):
    folder = place / f"pyspark-lance-locks-{os.getuid()}"
    make(folder)
    path = f"memory://{uuid.uuid4().hex}/t"
    create_table(open_store(path), 2)
    with advisory_lock(open_store(path), VERSIONS, LONG_S) as mine:
        assert not mine
    assert folder.is_file() or not list(folder.iterdir())
    assert append(open_store(path), 1, 1).version == 2


def test_append_works_without_temporary_folder(place):
    place.rmdir()
    path = f"memory://{uuid.uuid4().hex}/t"
    create_table(open_store(path), 2)
    assert append(open_store(path), 1, 1).version == 2

"""Changes catch up before the lock of versions; other writers may act between any two calls."""

from __future__ import annotations

import tempfile
import threading
import uuid
from dataclasses import replace

import pytest
from commit_tables import (
    BeforePut,
    append,
    commit,
    create_table,
    delete_rows,
    environment,
    is_lock_free,
    latest,
    names,
    new_fragment,
    transaction,
)
from faulty_store import FaultyStore

from pyspark_lance.commit import commit_loop
from pyspark_lance.commit.commit_loop import CommitRequest
from pyspark_lance.commit.conflict_check import ConflictChecks, ReadSet
from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.format.operation import Delete, Rewrite, RewriteGroup, Update
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.metafile.manifest_file import list_versions, newest_since, read_manifest
from pyspark_lance.metafile.paths import TRANSACTIONS, VERSIONS, manifest_path
from pyspark_lance.store.advisory_lock import advisory_lock
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore

ROWS = 10


@pytest.fixture(params=["folder", "object store"])
def store(request, tmp_path, monkeypatch):
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    local = LocalStore(str(tmp_path / "t"))
    store = local if request.param == "folder" else MemoryStore()
    store.uri = store.uri if request.param == "folder" else f"memory://{uuid.uuid4().hex}/t"
    create_table(store, ROWS)
    return store


def commit_change(store, planned, offsets, *, retries=10, read=read_manifest, more=None):
    """Commit a delete of rows of fragment 0 that was planned on a version."""
    operation, affected = delete_rows(store, planned, {0: offsets})
    request = CommitRequest(
        transaction(operation, planned.manifest.version), affected_rows=affected, **(more or {})
    )
    left = Retries(retries, 30.0, environment())
    return commit_loop.commit(store, request, left, read=read, catches_up=True)


def deleted_offsets(store):
    fragment = latest(store).manifest.fragment(0)
    if fragment.deletion_file is None:
        return []
    vector = read_deletion_file(store, 0, fragment.deletion_file, fragment.physical_rows)
    return vector.to_array().tolist()


# Locks ---------------------------------------------------------------------------------------


def test_next_change_may_catch_up_during_put(store):
    planned = latest(store)
    seen = []

    def look(where):
        seen.append((where, is_lock_free(store, TRANSACTIONS), is_lock_free(store, VERSIONS)))

    def excludes(theirs):
        look("check")
        return True

    commit(store, transaction(Update(new_fragments=(new_fragment(1),)), 1))
    operation, affected = delete_rows(store, planned, {0: [1]})
    reads, questions = asked({"excludes": excludes})
    request = CommitRequest(transaction(operation, 1), affected_rows=affected, reads=reads)
    left = Retries(0, 30.0, Environment(handler=BeforePut(lambda: look("put"))))
    assert commit_loop.commit(store, request, left, catches_up=True).version == 3
    assert seen == [("check", False, True), ("put", True, False)]
    assert questions == []
    assert is_lock_free(store, TRANSACTIONS) and is_lock_free(store, VERSIONS)


def test_version_is_confirmed_without_lock(store):
    faulty, seen = FaultyStore(store), []
    planned = latest(store)

    def after_put():
        faulty.before("list", lambda path: seen.append(is_lock_free(faulty, VERSIONS)))

    operation, affected = delete_rows(store, planned, {0: [1]})
    request = CommitRequest(transaction(operation, 1), affected_rows=affected)
    left = Retries(0, 30.0, Environment(handler=BeforePut(after_put)))
    commit_loop.commit(faulty, request, left, catches_up=True)
    assert seen == [True]


def test_rebased_transaction_is_not_written_while_waiting(store):
    """It would be written again, since it will name another deletion file."""
    planned = latest(store)
    commit_change(store, planned, [5])
    faulty, waits = FaultyStore(store), threading.Event()
    before = len(names(store, TRANSACTIONS))
    faulty.before("get_tail", lambda path: waits.set())
    thread = threading.Thread(target=lambda: commit_change(faulty, planned, [1]))
    with advisory_lock(faulty, VERSIONS, 60.0):
        thread.start()
        assert waits.wait(60.0)
        assert is_lock_free(faulty, TRANSACTIONS) is False
    thread.join()
    assert deleted_offsets(store) == [1, 5]
    assert faulty.count("put", TRANSACTIONS) == 1
    assert len(names(store, TRANSACTIONS)) == before + 1


# Interleavings -------------------------------------------------------------------------------


def delete_others(store):
    commit_change(store, latest_untouched(store), [5])


def latest_untouched(store):
    """Version 1, whose fragment has no deletions, so that a delete is planned on it."""
    return read_manifest(store, list_versions(store)[0])


def append_twice(store):
    append(store, latest(store).manifest.version, 1)
    append(store, latest(store).manifest.version, 1)


def append_and_clean_up(store):
    """Leave a gap below the newest version, as a cleanup does beside tags."""
    append_twice(store)
    newest = latest(store).location
    store.delete(manifest_path(newest.version - 1, newest.scheme))


OTHERS = {"delete": delete_others, "append": append_twice, "clean up": append_and_clean_up}


@pytest.mark.parametrize("other", OTHERS)
def test_change_is_never_lost_between_any_two_calls(store, other):
    calls = count_calls(store)
    assert calls >= 6
    for place in range(calls):
        table = fresh(store)
        counted = AtCall(table, place, lambda table=table: OTHERS[other](table))
        planned = latest(table)
        before = latest(table).manifest.version
        try:
            result = commit_change(counted, planned, [1])
        except RetryableCommitError as error:
            # Only a version that is gone hides what it changed.
            assert other == "clean up", error
            assert deleted_offsets(table) == []
        else:
            assert deleted_offsets(table) == ([1, 5] if other == "delete" else [1])
            assert result.version > before
        assert counted.is_done
        added = 0 if other == "delete" else 2
        assert len(latest(table).manifest.fragments) == 1 + added
        kept = [one.version for one in list_versions(table)]
        assert kept == sorted(set(kept))
        used = {latest(table).manifest.transaction_file}
        assert used <= set(names(table, TRANSACTIONS))


def fresh(store):
    if store.lists_names_only:
        table = LocalStore(tempfile.mkdtemp(dir=tempfile.gettempdir()))
    else:
        table = MemoryStore()
        table.uri = f"memory://{uuid.uuid4().hex}/t"
    create_table(table, ROWS)
    return table


class AtCall(FaultyStore):
    """Runs an action before the call with a number; calls of the action do not count."""

    def __init__(self, inner, number, action):
        super().__init__(inner)
        self._number, self._action = number, action
        self.is_done = False

    def _next_fault(self, call, path):
        if len(self.calls) >= self._number and not self.is_done:
            self.is_done = True
            self._action()
        return super()._next_fault(call, path)


def count_calls(store):
    table = fresh(store)
    counted = FaultyStore(table)
    planned = latest(table)
    commit_change(counted, planned, [1])
    return len(counted.calls)


def test_version_after_catch_up_needs_no_listing(tmp_path):
    store = LocalStore(str(tmp_path / "t"))
    create_table(store, ROWS)
    faulty, planned = FaultyStore(store), latest(store)
    faulty.before("stat", lambda path: None, times=2)  # of the plan's version and the next one
    faulty.before("stat", lambda path: commit_change(store, planned, [5]))
    assert commit_change(faulty, planned, [1], retries=0).version == 3
    assert deleted_offsets(store) == [1, 5]
    assert faulty.count("put_if_absent") == 1
    assert faulty.count("list", VERSIONS) == 1  # to confirm


def test_rows_of_catch_up_are_compared_after_append(store):
    planned = latest(store)
    commit_change(store, planned, [5])
    reads = []

    def read(one, location):
        reads.append(location.version)
        file = read_manifest(one, location)
        if len(reads) == 1:
            append(store, location.version, 1)
        return file

    assert commit_change(store, planned, [1], read=read).version == 4
    assert deleted_offsets(store) == [1, 5]


# Checks --------------------------------------------------------------------------------------


def asked(answers):
    """A read set, and what it was asked about."""
    questions = []

    def meets(file, fragments):
        questions.append([fragment.files[0].path for fragment in fragments])
        return False

    def misses(file, changed):
        questions.append(set(changed))
        return False

    return replace(ReadSet(meets, misses), **answers), questions


def newer_versions(store, *operations):
    """Commit operations; their versions, transactions, and the newest manifest."""
    newer = []
    for operation in operations:
        planned = transaction(operation, latest(store).manifest.version)
        newer.append((commit(store, planned).version, planned))
    return newer, latest(store)


def test_each_transaction_is_checked_once():
    store = MemoryStore()
    create_table(store, ROWS)
    reads, questions = asked({})
    ours = Delete((), (0,), "test")
    checks = ConflictChecks(ours, "memory://t", knows_rows=True, reads=reads)
    one, two = (Update(new_fragments=(new_fragment(1),)) for _ in range(2))
    first, file = newer_versions(store, one)
    checks.check(first, lambda: file)
    second, file = newer_versions(store, two)
    checks.check([*first, *second], lambda: file)
    checks.check([*first, *second], lambda: file)
    paths = [[fragment.files[0].path for fragment in one.new_fragments] for one in (one, two)]
    assert questions == paths


def test_delete_after_compaction_of_earlier_check_is_conflict():
    store = MemoryStore()
    create_table(store, ROWS, ROWS)
    reads, questions = asked({"losses_too": True})
    ours = Update(new_fragments=(new_fragment(1),))
    checks = ConflictChecks(ours, "memory://t", knows_rows=True, reads=reads)
    old = latest(store).manifest.fragments[0]
    moved = replace(
        new_fragment(old.physical_rows, id=9),
        row_ids=old.row_ids,
        created_at=old.created_at,
        last_updated_at=old.last_updated_at,
    )
    first, file = newer_versions(store, Rewrite((RewriteGroup((old,), (moved,)),)))
    checks.check(first, lambda: file)
    second, file = newer_versions(store, Delete((), (file.manifest.fragments[-1].id,), "test"))
    with pytest.raises(RetryableCommitError, match="deleted rows"):
        checks.check([*first, *second], lambda: file)
    assert questions == []


def test_excluded_transactions_are_not_read():
    store = MemoryStore()
    create_table(store, ROWS)
    reads, questions = asked({"excludes": lambda theirs: theirs.properties.get("k") == "other"})
    checks = ConflictChecks(Delete((), (0,), "test"), "memory://t", knows_rows=True, reads=reads)
    newer = []
    for key in ("other", "ours"):
        planned = transaction(Update(new_fragments=(new_fragment(1),)), 1, k=key)
        newer.append((commit(store, planned).version, planned))
    checks.check(newer, lambda: latest(store))
    assert questions == [[newer[1][1].operation.new_fragments[0].files[0].path]]


# Newest version ------------------------------------------------------------------------------


def test_newest_since_follows_names_up_to_a_gap(tmp_path):
    store = LocalStore(str(tmp_path))
    create_table(store, 1)
    known = list_versions(store)[0]
    assert newest_since(store, known) == known
    for number in range(1, 5):
        append(store, number, 1)
    assert newest_since(store, known).version == 5
    store.delete(manifest_path(4, known.scheme))
    assert newest_since(store, known).version == 3


def test_newest_since_needs_the_known_version(tmp_path):
    store = LocalStore(str(tmp_path))
    create_table(store, 1)
    known = list_versions(store)[0]
    assert newest_since(store, replace(known, identity="another")) is None
    store.delete(known.path)
    assert newest_since(store, known) is None
    memory = MemoryStore()
    create_table(memory, 1)
    assert newest_since(memory, list_versions(memory)[0]) is None


def test_newest_since_leaves_many_versions_to_a_listing(tmp_path):
    store = LocalStore(str(tmp_path))
    create_table(store, 1)
    known = list_versions(store)[0]
    for number in range(1, 18):
        append(store, number, 1)
    assert newest_since(store, known) is None

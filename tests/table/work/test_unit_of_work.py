"""One unit of work: planned again until no conflict is left, and one rule for its files."""

from __future__ import annotations

import contextvars
import fcntl
import os
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from table_access import write_table

from pyspark_lance.cancellation import CANCELLED, CancelledRequestError
from pyspark_lance.commit.application_versions import ApplicationVersion
from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_handler import (
    CommitHandler,
    ConditionalPutCommitHandler,
    Undecided,
)
from pyspark_lance.commit.retries import Environment
from pyspark_lance.errors import CommitConflictError, RetryableCommitError, StorageError
from pyspark_lance.format.operation import Append, CreateIndex, UpdateConfig, UpdateMap
from pyspark_lance.metafile.paths import VERSIONS, index_path
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.index.segments import IndexDetails, IndexFiles, new_index_entry
from pyspark_lance.table.rows.write_fragments import WriteFragmentsRequest, write_fragments
from pyspark_lance.table.unit_of_work import CommitSettings, UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

ROWS = pa.table({"id": pa.array([7, 8], pa.int64())})


@pytest.fixture
def table(tmp_path) -> Table:
    path = str(tmp_path / "t")
    write_table(path, pa.table({"id": pa.array([1, 2], pa.int64())}))
    return Table(path)


def files(table: Table) -> set[str]:
    return {f"data/{one.name}" for one in Path(table.root, "data").iterdir()}


def written(table: Table):
    """Fragments of two rows, in a file that no version names."""
    manifest = Snapshot.open(table).manifest
    request = WriteFragmentsRequest(table, manifest.schema, manifest.file_version)
    return write_fragments(request, ROWS.to_batches())


def append_by(work: UnitOfWork, table: Table, fragments):
    base = BaseVersion.of(Snapshot.open(table).manifest)
    return work.commit(work.propose(base, Append(fragments=tuple(fragments))))


def quick(handler: CommitHandler | None = None) -> Environment:
    return Environment(handler or ConditionalPutCommitHandler(), sleep=lambda seconds: None)


def test_unused_files_are_removed_after_commit(table):
    before = files(table)

    def attempt(work):
        used, useless = written(table), written(table)
        work.register([*used, *useless])
        return append_by(work, table, used)

    result = UnitOfWork(table, CommitSettings()).run(attempt)
    assert result.version == 2
    (new,) = files(table) - before
    assert new == f"data/{result.manifest.fragments[-1].files[0].path}"


def test_work_without_version_leaves_no_files(table):
    before = files(table)

    def nothing(work):
        work.register(written(table))

    def fails(work):
        work.register(written(table))
        raise ValueError("the job failed")

    UnitOfWork(table, CommitSettings()).run(nothing)
    with pytest.raises(ValueError, match="the job failed"):
        UnitOfWork(table, CommitSettings()).run(fails)
    assert files(table) == before


def test_files_of_earlier_attempts_are_removed_unless_committed(table):
    before = files(table)
    kept = written(table)
    attempts = []

    def attempt(work):
        attempts.append(written(table))
        work.register([*kept, *attempts[-1]])
        if len(attempts) < 3:
            raise RetryableCommitError("another writer was faster")
        return append_by(work, table, kept)

    UnitOfWork(table, CommitSettings(), environment=quick()).run(attempt)
    assert len(attempts) == 3
    assert files(table) - before == {f"data/{kept[0].files[0].path}"}


@dataclass(frozen=True)
class NoAnswer:
    """Puts the manifest or loses it on the way; the writer gets no response."""

    arrives: bool

    def put(self, store, location, data, *, uuid):
        if self.arrives:
            ConditionalPutCommitHandler().put(store, location, data, uuid=uuid)
            store.delete(location.path)  # as if a cleanup had been faster than our next look
        return Undecided(OSError("no answer"))


@pytest.mark.parametrize("arrives", [False, True])
def test_unknown_outcome_keeps_files(table, arrives):
    before = files(table)

    def attempt(work):
        fragments = written(table)
        work.register(fragments)
        return append_by(work, table, fragments)

    work = UnitOfWork(table, CommitSettings(retries=2), environment=quick(NoAnswer(arrives)))
    with pytest.raises(StorageError):
        work.run(attempt)
    assert len(files(table) - before) == 1


def run_cancelled_by(cancelled: threading.Event, work: UnitOfWork, attempt):
    """Run an operation in a request that the event cancels."""

    def run():
        CANCELLED.set(cancelled)
        return work.run(attempt)

    return contextvars.copy_context().run(run)


def test_cancelled_commit_leaves_no_files(table):
    before, cancelled = files(table), threading.Event()

    def attempt(work):
        fragments = written(table)
        work.register(fragments)
        cancelled.set()
        append_by(work, table, fragments)

    with pytest.raises(CancelledRequestError):
        run_cancelled_by(cancelled, UnitOfWork(table, CommitSettings()), attempt)
    assert files(table) == before
    assert len(list(Path(table.root, "_transactions").iterdir())) == 1
    assert Snapshot.open(table).version == 1


class CancelledMeanwhile:
    """The request is cancelled while the put of its version is under way, which has no answer."""

    def __init__(self, *, arrives: bool) -> None:
        self.cancelled = threading.Event()
        self._arrives = arrives

    def put(self, store, location, data, *, uuid):
        if self._arrives:
            ConditionalPutCommitHandler().put(store, location, data, uuid=uuid)
        self.cancelled.set()
        return Undecided(OSError("no answer"))


def test_cancelled_commit_checks_possible_put(table):
    handler = CancelledMeanwhile(arrives=True)

    def attempt(work):
        fragments = written(table)
        work.register(fragments)
        return append_by(work, table, fragments)

    work = UnitOfWork(table, CommitSettings(), environment=quick(handler))
    assert run_cancelled_by(handler.cancelled, work, attempt).version == 2
    assert len(Snapshot.open(table).manifest.fragments) == 2


def test_commit_cancelled_during_unknown_outcome_keeps_files(table):
    before, handler = files(table), CancelledMeanwhile(arrives=False)
    lock = os.open(Path(table.root, VERSIONS), os.O_RDONLY)
    environment = Environment(handler, sleep=lambda seconds: fcntl.flock(lock, fcntl.LOCK_EX))

    def attempt(work):
        fragments = written(table)
        work.register(fragments)
        return append_by(work, table, fragments)

    work = UnitOfWork(table, CommitSettings(), environment=environment)
    try:
        with pytest.raises(StorageError, match="may exist or appear yet"):
            run_cancelled_by(handler.cancelled, work, attempt)
    finally:
        os.close(lock)
    assert len(files(table) - before) == 1


class DroppedMeanwhile:
    """The table goes while the put of its next version is under way."""

    def put(self, store, location, data, *, uuid):
        for info in list(store.list(VERSIONS)):
            store.delete(info.path)
        return Undecided(OSError("no answer"))


def test_dropped_table_with_pending_put_keeps_files(table):
    before = files(table)

    def attempt(work):
        fragments = written(table)
        work.register(fragments)
        return append_by(work, table, fragments)

    with pytest.raises(CommitConflictError, match="dropped"):
        UnitOfWork(table, CommitSettings(), environment=quick(DroppedMeanwhile())).run(attempt)
    assert len(files(table) - before) == 1


class Interrupted(ConditionalPutCommitHandler):
    """Stopped after the manifest was put."""

    def put(self, store, location, data, *, uuid):
        super().put(store, location, data, uuid=uuid)
        raise KeyboardInterrupt


def test_interrupted_commit_keeps_files(table):
    def attempt(work):
        fragments = written(table)
        work.register(fragments)
        return append_by(work, table, fragments)

    with pytest.raises(KeyboardInterrupt):
        UnitOfWork(table, CommitSettings(), environment=quick(Interrupted())).run(attempt)
    newest = Snapshot.open(table)
    assert newest.version == 2
    assert f"data/{newest.manifest.fragments[-1].files[0].path}" in files(table)


def test_retries_are_counted_over_all_attempts(table):
    attempts = []

    def attempt(work):
        attempts.append(1)
        raise RetryableCommitError("another writer was faster")

    with pytest.raises(RetryableCommitError, match="conflicted 4 times"):
        UnitOfWork(table, CommitSettings(retries=3), environment=quick()).run(attempt)
    assert len(attempts) == 4


def test_once_does_not_retry(table):
    attempts = []

    def attempt(work):
        attempts.append(1)
        raise RetryableCommitError("another writer was faster")

    with pytest.raises(RetryableCommitError, match="another writer"):
        UnitOfWork(table, CommitSettings(), environment=quick()).once(attempt)
    assert len(attempts) == 1


def test_final_conflict_ends_work(table):
    before = files(table)

    def attempt(work):
        fragments = written(table)
        work.register(fragments)
        base = BaseVersion.of(Snapshot.open(table).manifest)
        write_table(table.root, ROWS, overwrite=True)
        config = UpdateConfig(schema_metadata_updates=UpdateMap((("a", "b"),)))
        work.commit(work.propose(base, config))

    with pytest.raises((CommitConflictError, RetryableCommitError)):
        UnitOfWork(table, CommitSettings(), environment=quick()).once(attempt)
    assert len(files(table) - before) == 1  # of the overwrite


def test_application_batch_is_committed_once(table):
    settings = CommitSettings(ApplicationVersion("app", 1).properties())
    results = []
    for _ in range(2):

        def attempt(work):
            fragments = written(table)
            work.register(fragments)
            return append_by(work, table, fragments)

        assert settings.is_committed_in(Snapshot.open(table)) == bool(results)
        results.append(UnitOfWork(table, settings).once(attempt))
    assert results[0].version == 2 and results[1] is None
    assert len(files(table)) == 2


@pytest.mark.parametrize("is_done", [False, True])
def test_index_files_stay_only_if_this_work_committed(table, is_done):
    settings = CommitSettings(properties=ApplicationVersion("nightly", 3).properties())
    if is_done:
        UnitOfWork(table, settings).run(lambda work: append_by(work, table, written(table)))
    details = IndexDetails("/lance.table.BTreeIndexDetails", 0)
    entry = new_index_entry("id_idx", [0], 1, [0], details, IndexFiles(uuid4()))
    path = index_path(entry.uuid, "page_data.lance")
    table.store().put(path, b"pages")
    base = BaseVersion.of(Snapshot.open(table).manifest)

    def attempt(work):
        work.register_files([path])
        return work.commit(work.propose(base, CreateIndex((entry,))))

    assert (UnitOfWork(table, settings).run(attempt) is None) == is_done
    assert table.store().exists(path) != is_done


def test_append_reaches_store_in_eight_calls(tmp_path, monkeypatch):
    path = str(tmp_path / "t")
    write_table(path, pa.table({"a": [1]}))
    stacks = []
    put = LocalStore.put_if_absent

    def noted_put(store, name, *arguments, **options):
        if name.startswith("_versions"):
            names = [frame.name for frame in traceback.extract_stack()[:-1]]
            stacks.append(names[names.index("commit_write") + 1 :])
        return put(store, name, *arguments, **options)

    monkeypatch.setattr(LocalStore, "put_if_absent", noted_put)
    write_table(path, pa.table({"a": [2]}))
    assert [len(one) <= 8 for one in stacks] == [True], stacks

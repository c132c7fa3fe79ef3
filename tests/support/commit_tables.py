"""Tables for commit tests: fragments whose data files are names only, transactions, shortcuts."""

from __future__ import annotations

import threading
import uuid
from dataclasses import replace

import numpy as np

from pyspark_lance.commit import commit_loop
from pyspark_lance.commit.apply_operation import CreateOptions
from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.commit.commit_loop import CommitRequest
from pyspark_lance.commit.retries import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S, Environment, Retries
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile, Fragment, new_data_file_name
from pyspark_lance.format.operation import Append, Delete, Overwrite
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.deletion_file import write_deletion_file
from pyspark_lance.metafile.manifest_file import find_version, latest_version, read_manifest
from pyspark_lance.store.advisory_lock import advisory_lock

SCHEMA = LanceSchema((Field(0, "id", "int64"), Field(1, "a", "string")))


def new_fragment(rows, *, fields=(0, 1), id=0, row_ids=None):  # noqa: A002
    """A fragment as an executor describes it."""
    file = DataFile(
        new_data_file_name(uuid.uuid4().bytes), fields, tuple(range(len(fields))), 2, 1, 1000
    )
    sequence = None if row_ids is None else RowIdSequence.from_array(row_ids).to_bytes()
    return Fragment(id, (file,), rows, row_ids=sequence)


def transaction(operation, read_version, **properties):
    return Transaction(read_version, str(uuid.uuid4()), operation, properties=properties)


def commit(
    store, transaction, *, retries=DEFAULT_RETRIES, timeout_s=DEFAULT_TIMEOUT_S,
    environment=None, read=read_manifest, **known,
):  # fmt: skip
    """Make the version of a transaction; ``known`` is the rest of its ``CommitRequest``."""
    left = Retries(retries, timeout_s, environment)
    return commit_loop.commit(store, CommitRequest(transaction, **known), left, read=read)


def create_table(store, *rows, schema=SCHEMA, stable_row_ids=True):
    """Version 1, with one fragment for each number of rows."""
    operation = Overwrite(tuple(new_fragment(count) for count in rows), schema)
    options = CreateOptions(stable_row_ids=stable_row_ids)
    return commit(store, transaction(operation, 0), create=options)


def append(store, read_version, *rows, **arguments):
    operation = Append(tuple(new_fragment(count) for count in rows))
    return commit(store, transaction(operation, read_version), **arguments)


def delete_rows(store, file, offsets_by_fragment):
    """A Delete planned on ``file`` (a ManifestFile), and the rows that it affects."""
    updated, removed = [], []
    for fragment_id, offsets in offsets_by_fragment.items():
        fragment = file.manifest.fragment(fragment_id)
        vector = DeletionVector.of(np.array(offsets, np.uint32))
        if fragment.deletion_file is not None:
            raise AssertionError("the helper deletes from untouched fragments only")
        if len(vector) == fragment.physical_rows:
            removed.append(fragment_id)
            continue
        number = uuid.uuid4().int & (2**64 - 1)
        stored = write_deletion_file(store, fragment_id, file.manifest.version, vector, id=number)
        updated.append(replace(fragment, deletion_file=stored))
    affected = {i: np.array(offsets, np.uint32) for i, offsets in offsets_by_fragment.items()}
    return Delete(tuple(updated), tuple(removed), "test"), affected


def latest(store):
    """The newest version, whole."""
    return read_manifest(store, latest_version(store))


def version(store, number):
    return read_manifest(store, find_version(store, number))


class FakeTime:
    """A clock that moves only on sleep, or at each look by ``step_s``."""

    def __init__(self, step_s=0.01):
        self.now_s, self.step_s, self.slept = 1000.0, step_s, []

    def monotonic(self):
        self.now_s += self.step_s
        return self.now_s

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now_s += seconds


def environment(fake=None, **more):
    """An environment that never really sleeps."""
    fake = fake or FakeTime()
    return Environment(monotonic=fake.monotonic, sleep=fake.sleep, **more)


def names(store, folder):
    return sorted(info.path.removeprefix(folder + "/") for info in store.list(folder))


def is_lock_free(store, folder):
    """Return True if a writer in another thread acquires the lock."""
    results = []

    def ask():
        with advisory_lock(store, folder, 0.0) as mine:
            results.append(mine)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return results[0]


class BeforePut(ConditionalPutCommitHandler):
    """Does something before the manifest is put."""

    def __init__(self, action):
        self.action = action

    def put(self, store, location, data, *, uuid):
        self.action()
        return super().put(store, location, data, uuid=uuid)

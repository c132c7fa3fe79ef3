"""The one step that decides, on stores that answer, lie, fail and lose answers."""

from __future__ import annotations

import pytest
from commit_tables import append, create_table, latest
from faulty_store import Fault, FaultyStore

from pyspark_lance.commit.commit_handler import (
    Committed,
    ConditionalPutCommitHandler,
    LostRace,
    Undecided,
    transaction_uuid_at,
)
from pyspark_lance.metafile.manifest_file import ManifestLocation, find_version
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.store.memory_store import MemoryStore

LOCATION = ManifestLocation(manifest_path(2, NamingScheme.V2), 2, NamingScheme.V2)


@pytest.fixture
def second():
    """The bytes of a second version, and the uuid in them."""
    store = MemoryStore()
    create_table(store, 1)
    result = append(store, 1, 1)
    return bytes(store.get(result.location.path)), result.transaction.uuid


@pytest.fixture
def store():
    store = MemoryStore()
    create_table(store, 1)
    return FaultyStore(store)


def put(store, second):
    data, uuid = second
    return ConditionalPutCommitHandler().put(store, LOCATION, data, uuid=uuid)


def test_free_version_is_committed(store, second):
    assert put(store, second) == Committed()
    assert transaction_uuid_at(store, LOCATION) == second[1]


@pytest.mark.parametrize("fault", [Fault.LOST_ANSWER, Fault.REPEATED])
def test_own_manifest_is_recognised_after_lost_response(store, second, fault):
    store.plan("put_if_absent", fault)
    assert put(store, second) == Committed()


@pytest.mark.parametrize("fault", [Fault.PASS, Fault.FAIL, Fault.LOST_ANSWER, Fault.REPEATED])
def test_existing_version_of_other_writer_is_lost_race(store, second, fault):
    append(store.inner, 1, 1)
    store.plan("put_if_absent", fault)
    assert put(store, second) == LostRace()
    assert latest(store).transaction().uuid != second[1]


def test_missing_version_after_failed_put_is_undecided(store, second):
    store.plan("put_if_absent", Fault.FAIL)
    assert isinstance(put(store, second), Undecided)


@pytest.mark.parametrize("fault", [Fault.FAIL, Fault.MISSING])
def test_unreadable_version_after_lost_response_is_undecided(store, second, fault):
    store.plan("put_if_absent", Fault.LOST_ANSWER)
    store.plan("get_tail", fault)
    assert isinstance(put(store, second), Undecided)


def test_transaction_uuid_is_read_from_named_file(store):
    location = find_version(store, 1)
    assert transaction_uuid_at(store, location) == latest(store).transaction().uuid
    assert transaction_uuid_at(store, LOCATION) is None

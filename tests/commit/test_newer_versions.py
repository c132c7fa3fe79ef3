"""What happened to a table since work was planned is read without the versions themselves."""

from __future__ import annotations

import re
from dataclasses import replace

import lance
import pyarrow as pa
import pytest
from commit_tables import append, create_table, delete_rows, latest, transaction, version
from commit_tables import commit as commit_version

from pyspark_lance.commit.base_version import NewerVersions
from pyspark_lance.errors import CorruptFileError, RetryableCommitError
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.manifest_file import (
    encode_manifest,
    list_versions,
    load_transaction,
    read_manifest,
    read_transactions,
)
from pyspark_lance.metafile.paths import TRANSACTIONS, NamingScheme, manifest_path
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.memory_store import MemoryStore


@pytest.fixture
def store():
    store = MemoryStore()
    create_table(store, 2, 3)
    append(store, 1, 1)
    delete, affected = delete_rows(store, version(store, 2), {1: [0]})
    commit_version(store, transaction(delete, 2), affected_rows=affected)
    for read_version in range(3, 8):
        append(store, read_version, 1)
    return store


def test_newer_transactions_are_returned_in_order(store):
    found = NewerVersions(store, 1).up_to(latest(store))
    assert [number for number, _ in found] == list(range(2, 9))
    assert [one for _, one in found] == [version(store, n).transaction() for n in range(2, 9)]


def test_newer_versions_are_read_once(store):
    newer = NewerVersions(store, 1)
    before = newer.up_to(version(store, 6))
    for number in range(2, 6):
        store.delete(manifest_path(number, NamingScheme.V2))
    assert newer.up_to(latest(store))[:5] == before


@pytest.mark.parametrize("v2_names", [True, False])
def test_transactions_of_pylance_equal_manifest_transactions(tmp_path, v2_names):
    path, rows = str(tmp_path / "t"), pa.table({"id": range(5)})
    lance.write_dataset(rows, path, enable_v2_manifest_paths=v2_names)
    dataset = lance.dataset(path)
    dataset.create_scalar_index("id", "BTREE")
    dataset.delete("id = 2")
    lance.write_dataset(rows, path, mode="append")
    lance.dataset(path).update_config({"k": "1"})
    store = LocalStore(path)
    locations = list_versions(store)
    files = [read_manifest(store, location) for location in locations]
    transactions = list(read_transactions(store, locations))
    assert transactions == [(file.manifest.version, file.transaction()) for file in files]
    assert all(transaction is not None for _, transaction in transactions)
    found = NewerVersions(store, 1).up_to(files[-1])
    assert [transaction for _, transaction in found] == [one for _, one in transactions][1:]


def test_missing_newer_version_is_retryable(store):
    store.delete(manifest_path(4, NamingScheme.V2))
    with pytest.raises(RetryableCommitError, match="version 4 cannot be read"):
        NewerVersions(store, 1).up_to(latest(store))


def test_manifest_under_wrong_version_name_is_corrupt(store):
    file = version(store, 3)
    store.put(manifest_path(4, NamingScheme.V2), bytes(store.get(file.location.path)))
    with pytest.raises(CorruptFileError, match="says it is version 3, its name says 4"):
        NewerVersions(store, 1).up_to(latest(store))


def test_missing_inline_transaction_is_read_from_file(store):
    for number in (4, 5):
        file = version(store, number)
        store.put(file.location.path, encode_manifest(file.manifest, (), None))
    expected = [one for _, one in NewerVersions(store, 1).up_to(latest(store))]
    assert len(expected) == 7
    lost = version(store, 5)
    unnamed = replace(lost.manifest, transaction_file="")
    store.put(lost.location.path, encode_manifest(unnamed, (), None))
    with pytest.raises(RetryableCommitError, match="the transaction of version 5"):
        NewerVersions(store, 1).up_to(latest(store))


def test_corrupt_transaction_file_is_a_lost_transaction(store):
    file = version(store, 4)
    store.put(file.location.path, encode_manifest(file.manifest, (), None))
    name = f"{TRANSACTIONS}/{file.manifest.transaction_file}"
    store.put(name, bytes(store.get(name))[:-1] + b"\xff\xff")
    with pytest.raises(RetryableCommitError, match="the transaction of version 4"):
        NewerVersions(store, 1).up_to(latest(store))
    with pytest.raises(CorruptFileError, match=re.escape(name)):
        load_transaction(store, version(store, 4))


def test_newer_versions_read_transactions_without_schemas(store):
    # Versions in between are not even understood: only the newest one counts.
    file = version(store, 4)
    broken = replace(file.manifest, schema=LanceSchema((Field(-3, "id", "int64"),)))
    store.put(file.location.path, encode_manifest(broken, (), file.transaction()))
    with pytest.raises(CorruptFileError):
        version(store, 4)
    assert len(NewerVersions(store, 1).up_to(latest(store))) == 7

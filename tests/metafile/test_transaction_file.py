import pytest

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.operation import Restore
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import (
    read_transaction,
    transaction_name,
    write_transaction,
)
from pyspark_lance.store.memory_store import MemoryStore

TRANSACTION = Transaction(7, "c650018c-0000-4000-8000-00000000aed9", Restore(3))


def test_transaction_file_round_trips():
    store = MemoryStore()
    name = write_transaction(store, TRANSACTION)
    assert name == transaction_name(TRANSACTION) == "7-c650018c-0000-4000-8000-00000000aed9.txn"
    assert [info.path for info in store.list("")] == [f"_transactions/{name}"]
    assert read_transaction(store, name) == TRANSACTION


def test_repeated_write_replaces_transaction_file():
    store = MemoryStore()
    name = write_transaction(store, TRANSACTION)
    store.put(f"_transactions/{name}", b"cut")
    write_transaction(store, TRANSACTION)
    assert read_transaction(store, name) == TRANSACTION


def test_missing_transaction_file_raises_file_not_found():
    with pytest.raises(FileNotFoundError):
        read_transaction(MemoryStore(), "7-x.txn")


def test_damaged_transaction_error_names_file():
    store = MemoryStore("memory://t")
    store.put("_transactions/7-x.txn", b"\xff")
    with pytest.raises(CorruptFileError, match=r"memory://t/_transactions/7-x\.txn"):
        read_transaction(store, "7-x.txn")


@pytest.mark.parametrize("name", ["", "..", ".", "../x", "a/b", "a\0"])
def test_transaction_names_outside_folder_are_refused(name):
    with pytest.raises(CorruptFileError, match="name of a transaction"):
        read_transaction(MemoryStore(), name)

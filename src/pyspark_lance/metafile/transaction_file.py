"""Transaction files: one Transaction message each, without a frame.

Source: docs/format/table-format.md, section 8.1.
"""

from __future__ import annotations

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.metafile.paths import TRANSACTIONS, transaction_path
from pyspark_lance.store.object_store import ObjectStore


def transaction_name(transaction: Transaction) -> str:
    """Return the file name of a transaction, as in the manifest."""
    path = transaction_path(transaction.read_version, transaction.uuid)
    return path.removeprefix(f"{TRANSACTIONS}/")


def write_transaction(store: ObjectStore, transaction: Transaction) -> str:
    """Write the file of ``transaction``, replacing the file of an earlier attempt."""
    name = transaction_name(transaction)
    store.put(f"{TRANSACTIONS}/{name}", transaction.to_bytes())
    return name


def read_transaction(store: ObjectStore, name: str) -> Transaction:
    """Read the transaction file with this name."""
    path = f"{TRANSACTIONS}/{name}"
    if not name or "/" in name or "\0" in name or name in (".", ".."):
        raise CorruptFileError(f"{name!r} is not the name of a transaction file", where=store.uri)
    return Transaction.from_bytes(store.get(path), f"{store.uri}/{path}")


def transaction_of(store: ObjectStore, file: ManifestFile) -> Transaction | None:
    """Return the transaction of a version: inline, else from its file; None if both are missing."""
    inline, name = file.transaction(), file.manifest.transaction_file
    if inline is not None or not name:
        return inline
    try:
        return read_transaction(store, name)
    except FileNotFoundError:
        return None

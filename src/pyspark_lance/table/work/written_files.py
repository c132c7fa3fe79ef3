"""Remove files written for a commit, if certainly no version refers to them.

The caller often does not know the outcome of the commit: Spark calls ``abort`` in another process,
and also after a commit whose response was lost.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Collection, Iterable

from pyspark_lance.commit.commit_outcome import files_of, transaction_of
from pyspark_lance.errors import LanceError
from pyspark_lance.metafile.manifest_file import list_versions, read_manifest
from pyspark_lance.metafile.paths import TRANSACTIONS
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.table import Table

logger = logging.getLogger(__name__)


def remove_files(store: ObjectStore, paths: Iterable[str]) -> None:
    """Remove unreferenced files; best effort.

    A cleanup removes the rest; the original error is more important.
    """
    files = sorted(set(paths))
    if files:
        with contextlib.suppress(Exception):
            store.delete_many(files)


def remove_unless_committed(
    table: Table, uuid: str, read_version: int, files: Collection[str]
) -> None:
    """Remove files, unless a version refers to one, or their commit may still succeed."""
    try:
        store = table.store()
        landed = _may_commit(store, uuid) or _is_committed(store, uuid, read_version, files)
    except (LanceError, OSError) as error:
        logger.warning("kept the files of a failed write, since its outcome is unknown: %s", error)
        return
    if not landed:
        remove_files(store, files)


def _may_commit(store: ObjectStore, uuid: str) -> bool:
    """Return whether the transaction file exists: it was committed, or its outcome is unknown."""
    return any(info.path.endswith(f"-{uuid}.txn") for info in store.list(TRANSACTIONS))


def _is_committed(store: ObjectStore, uuid: str, read_version: int, files: Collection[str]) -> bool:
    """Return whether an existing version was committed by the transaction or has its files.

    The version itself may have been cleaned up, so all newer versions are searched.
    """
    for location in reversed(list_versions(store)):
        if location.version <= read_version:
            return False
        file = read_manifest(store, location, with_indices=False)
        if not files_of(file.manifest.fragments).isdisjoint(files):
            return True
        transaction = transaction_of(store, file)
        if transaction is not None and transaction.uuid == uuid:
            return True
    return False

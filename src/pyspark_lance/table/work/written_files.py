"""Removes what was written for a commit, if it is certain that no version names it.

Whoever is told to clean up often does not know how the commit ended: Spark calls ``abort`` in
another process, and also after a commit of which only the answer was lost.
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
    """Removes files that no version names; best effort.

    What is left behind is found by a cleanup; the error that led here matters more.
    """
    files = sorted(set(paths))
    if files:
        with contextlib.suppress(Exception):
            store.delete_many(files)


def remove_unless_landed(
    table: Table, uuid: str, read_version: int, files: Collection[str]
) -> None:
    """Removes files, unless a version names one, or a commit of them may still land."""
    try:
        store = table.store()
        landed = _may_land(store, uuid) or _has_landed(store, uuid, read_version, files)
    except (LanceError, OSError) as error:
        logger.warning("kept the files of a failed write, since its outcome is unknown: %s", error)
        return
    if not landed:
        remove_files(store, files)


def _may_land(store: ObjectStore, uuid: str) -> bool:
    """Whether the transaction was written and never taken back: it landed, or is in doubt."""
    return any(info.path.endswith(f"-{uuid}.txn") for info in store.list(TRANSACTIONS))


def _has_landed(store: ObjectStore, uuid: str, read_version: int, files: Collection[str]) -> bool:
    """Whether a version that is left was made by the transaction, or of what it made.

    The version itself may have been cleaned up, so the files are looked for in all newer ones.
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

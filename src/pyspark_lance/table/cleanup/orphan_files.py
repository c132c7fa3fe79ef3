"""Orphan files: unreferenced files of failed tasks, killed processes and conflicts.

Files are listed before manifests are read, so a concurrent commit cannot make a file appear unused;
uncommitted files are protected only by their age. Clones of the table are not searched: they refer
to files of versions.

Source: docs/format/table-format.md, section 11.2.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark_lance.errors import InvalidInputError, TableNotFoundError
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.metafile.paths import TREE, VERSIONS
from pyspark_lance.table.version.removable_files import (
    BLOB_SUFFIX,
    BlobReferences,
    manifests_below,
    paths_used_by,
    read_all_manifests,
    removable_files,
    removable_files_of_branches,
)
from pyspark_lance.table.version.table import Table

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, order=True)
class OrphanFile:
    """A file that no version refers to.

    Attributes:
        path: Below the root of the table.
        size: Bytes.
        modified: Modification time, UTC; 1970 if the store has none.
    """

    path: str
    size: int
    modified: datetime


def find_orphan_files(table: Table, *, older_than_s: float = 0.0) -> list[OrphanFile]:
    """Return the unreferenced files of a table and its branches, by path.

    They include files of writes in progress, which only their age distinguishes. Raises
    CorruptFileError: a manifest cannot be read, so its references are unknown.
    """
    store = table.store()
    limit_ns = time.time_ns() - int(older_than_s * 1e9)
    candidates = [
        file
        for file in (*removable_files(store), *removable_files_of_branches(store))
        # A store without modification times returns 0, so the age is unknown.
        if older_than_s <= 0 or 0 < file.info.modified_ns <= limit_ns
    ]
    used: set[str] = set()
    may_be_blobs = any(file.info.path.endswith(BLOB_SUFFIX) for file in candidates)
    blobs = BlobReferences({store.uri: table}) if may_be_blobs else None
    is_there = False
    for file in read_all_manifests(
        store, lambda: [*manifests_below(store, VERSIONS), *manifests_below(store, TREE)]
    ):
        is_there = True
        used.update(paths_used_by(file))
        if blobs is not None:
            used.update(blobs.used_by(store.uri, file))
    if not is_there:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    return sorted(
        OrphanFile(file.info.path, file.info.size, _moment(file.info.modified_ns))
        for file in candidates
        if used.isdisjoint(file.kept_by)
    )


def remove_orphan_files(
    table: Table, *, older_than_s: float = SAFE_AGE_S, force: bool = False
) -> list[OrphanFile]:
    """Remove unreferenced files and return them.

    ``force``: allows less than ``SAFE_AGE_S``; only safe without concurrent writers.
    """
    if older_than_s < SAFE_AGE_S and not force:
        raise InvalidInputError(
            f"files younger than {SAFE_AGE_S / 3600:.0f} hours may belong to a write that is under "
            "way",
            where=table.uri,
            hint="use force if there are no concurrent writers",
        )
    orphans = find_orphan_files(table, older_than_s=older_than_s)
    table.store().delete_many([file.path for file in orphans])
    logger.info("removed %d files that no version refers to", len(orphans))
    return orphans


def _moment(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)

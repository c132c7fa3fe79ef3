"""Files without a version: orphans of failed writes, and manifests pending removal.

Files are listed before manifests are read, so a concurrent commit cannot make a file appear unused;
uncommitted files are protected only by their age. Clones of the table are not searched: they refer
to files of versions.

Manifests pending removal: renamed first, removed after the files of their versions. A renamed
manifest is invisible to readers of all clients, so that no client reads or restores a version with
missing files. It is removed after the files, so that an interrupted cleanup can be repeated.

Source: docs/format/table-format.md, section 11.2.
"""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from pyspark_lance.errors import CorruptFileError, InvalidInputError, TableNotFoundError
from pyspark_lance.format.operation import Restore
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S
from pyspark_lance.metafile.manifest_file import ManifestLocation
from pyspark_lance.metafile.paths import (
    TRANSACTIONS,
    TREE,
    VERSIONS,
    name_before_removal,
    parse_manifest_name,
    pending_removal_path,
)
from pyspark_lance.metafile.transaction_file import read_transaction
from pyspark_lance.store.object_store import ObjectStore
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


_AT_ONCE = 16
_BATCH = 1000


def move_to_pending_removal(
    store: ObjectStore, locations: Sequence[ManifestLocation], before_each_batch: Callable[[], None]
) -> None:
    """Hide manifests from readers, the oldest first; missing ones are ignored."""
    paths = [location.path for location in locations]

    def copy(path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # removed by a concurrent cleanup
            store.copy(path, pending_removal_path(path))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(paths), _BATCH):
            before_each_batch()
            some = paths[start : start + _BATCH]
            list(pool.map(copy, some))
            store.delete_many(some)


def manifests_pending_removal(store: ObjectStore) -> Iterator[ManifestLocation]:
    """Yield the manifests pending removal, with their original names."""
    for info in store.list(VERSIONS):
        name = name_before_removal(info.path.removeprefix(f"{VERSIONS}/"))
        parsed = None if name is None else parse_manifest_name(name)
        if parsed is not None:
            yield ManifestLocation(
                f"{VERSIONS}/{name}", parsed.version, parsed.scheme, info.size, info.identity
            )


def pending_location(location: ManifestLocation) -> ManifestLocation:
    """Return the location of a manifest pending removal."""
    return replace(location, path=pending_removal_path(location.path))


def versions_to_restore(store: ObjectStore, finished: Iterable[str]) -> frozenset[int]:
    """Return versions with a restore in progress, according to transaction files."""
    known = set(finished)
    names = [
        info.path.removeprefix(f"{TRANSACTIONS}/")
        for info in store.list(TRANSACTIONS)
        if info.path.endswith(".txn") and info.path not in known
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda name: _restored_by(store, name), names)
        return frozenset(version for version in found if version is not None)


def _restored_by(store: ObjectStore, name: str) -> int | None:
    try:
        operation = read_transaction(store, name).operation
    except (FileNotFoundError, CorruptFileError):
        return None  # rolled back, or of a writer that cannot commit it
    return operation.version if isinstance(operation, Restore) else None

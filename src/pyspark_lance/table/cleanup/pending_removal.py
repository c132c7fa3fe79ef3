"""Manifests pending removal: renamed first, removed after the files of their versions.

A renamed manifest is invisible to readers of all clients, so that no client reads or restores a
version with missing files. It is removed after the files, so that an interrupted cleanup can be
repeated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.operation import Restore
from pyspark_lance.metafile.manifest_file import ManifestLocation
from pyspark_lance.metafile.paths import (
    TRANSACTIONS,
    VERSIONS,
    name_before_removal,
    parse_manifest_name,
    pending_removal_path,
)
from pyspark_lance.metafile.transaction_file import read_transaction
from pyspark_lance.store.object_store import ObjectStore

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

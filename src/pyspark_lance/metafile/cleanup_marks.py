"""Marks of cleanups: which old versions somebody is about to remove.

Nobody can lock a table.  Whoever begins to need an old version (tags it, forks a branch off it,
restores it) says so first, by the tag, the branch or the file of the transaction, and looks for
marks then.  A cleanup puts its mark first, and looks then who has said so.  Whatever the order of
the steps, one of the two sees the other: either the first is told that the version goes, or the
cleanup leaves it alone.

The mark of a cleanup that died counts for a week, or until all of its versions are gone.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Collection, Iterator
from typing import Final

from pyspark_lance.errors import VersionNotFoundError
from pyspark_lance.metafile.manifest_file import ManifestLocation
from pyspark_lance.metafile.paths import CLEANUPS
from pyspark_lance.store.object_store import ObjectInfo, ObjectStore

SAFE_AGE_S: Final = 7 * 24 * 3600.0
"""Whoever has not finished after this time is taken for dead."""


def mark_versions(store: ObjectStore, versions: Collection[int]) -> str:
    """Says that versions are about to be removed; the path of the mark."""
    path = f"{CLEANUPS}/{uuid.uuid4().hex}.json"
    store.put(path, json.dumps({"versions": sorted(versions)}).encode())
    return path


def remove_marks(store: ObjectStore, own: str, there: Collection[int]) -> None:
    """Removes a mark, and those of others that say nothing any more.

    Args:
        store: The store at the root of the table or branch.
        own: Path of the mark.
        there: All versions that are left.
    """
    store.delete(own)
    for info in store.list(CLEANUPS):
        if _is_stale(info) or not set(there) & set(_versions_in(store, info)):
            store.delete(info.path)


def check_kept(store: ObjectStore, location: ManifestLocation) -> None:
    """For whoever has just said that an old version is needed.

    Raises:
        VersionNotFoundError: It is being removed, or gone.
    """
    is_doomed = any(
        location.version in _versions_in(store, info)
        for info in store.list(CLEANUPS)
        if not _is_stale(info)
    )
    if is_doomed or not store.exists(location.path):
        raise VersionNotFoundError(
            f"version {location.version} is being removed by a cleanup, or was removed",
            where=store.uri,
            hint="choose a newer version",
        )


def _is_stale(info: ObjectInfo) -> bool:
    return 0 < info.modified_ns < time.time_ns() - int(SAFE_AGE_S * 1e9)


def _versions_in(store: ObjectStore, info: ObjectInfo) -> Iterator[int]:
    try:
        content = json.loads(bytes(store.get(info.path)))
        yield from (one for one in content["versions"] if isinstance(one, int))
    except FileNotFoundError:
        return  # removed meanwhile
    except (ValueError, TypeError, KeyError, RecursionError):
        return  # written by nobody whom we know

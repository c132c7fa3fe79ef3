"""Cleanup marks: announce which old versions a cleanup is about to remove.

Tables have no locks.  An operation that refers to an old version (by a tag, a branch or a restore)
first writes its reference, that is the tag, the branch or the transaction file, and then checks for
marks.  A cleanup first writes its mark and then checks for references.  In any interleaving one of
the two sees the other: either the operation fails because the version is being removed, or the
cleanup keeps the version.

A cleanup renews its mark while it sets manifests aside, and stops if it could not renew it for half
an hour.  So a mark older than an hour belongs to a dead cleanup and is ignored.  The next cleanup
removes it, and marks of removed versions.  Clocks may differ by half an hour.

On a full disk neither the content of a mark nor its folder may be writable.  Then the mark is an
empty file among the manifests, with the lowest and the highest version in its name.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Final

from pyspark_lance.errors import StorageError, VersionNotFoundError
from pyspark_lance.metafile.manifest_file import ManifestLocation
from pyspark_lance.metafile.paths import CLEANUPS, VERSIONS, mark_path, versions_in_mark
from pyspark_lance.store.object_store import ObjectInfo, ObjectStore, is_out_of_room

SAFE_AGE_S: Final = 7 * 24 * 3600.0
"""A cleanup that has not finished within this time is considered dead."""


_MARK_S: Final = 3600.0
"""A mark that has not been renewed for this time belongs to a dead cleanup."""

_MAY_NOT_RENEW_S: Final = _MARK_S / 2


class CleanupMark:
    """Announcement that versions are about to be removed.

    ``clock``: seconds since 1970.
    """

    def __init__(
        self, store: ObjectStore, versions: Collection[int], clock: Callable[[], float] = time.time
    ) -> None:
        name = uuid.uuid4().hex
        self.path = f"{CLEANUPS}/{name}.json"
        self._path_in_name = mark_path(min(versions, default=0), max(versions, default=0), name)
        self._store = store
        self._content = json.dumps({"versions": sorted(versions)}).encode()
        self._clock = clock
        self._paths = {self.path}
        self._put()

    def renew(self) -> None:
        """Renew the mark before each removal of versions.

        Raises:
            StorageError: Other writers may already consider this cleanup dead.
        """
        asleep_s = self._clock() - self._renewed_at
        if asleep_s > _MAY_NOT_RENEW_S:
            raise StorageError(
                f"the cleanup was suspended for {asleep_s:.0f} s; versions that it was about to "
                "remove may be needed by now",
                self._store.uri,
                hint="run the cleanup again",
            )
        self._put()

    def remove(self) -> None:
        """Remove the mark of a finished cleanup."""
        for path in self._paths:
            self._store.delete(path)

    def _put(self) -> None:
        self._renewed_at = self._clock()
        try:
            self._store.put(self.path, self._content)
        except StorageError as error:
            if not is_out_of_room(error):
                raise
            self._store.put(self._path_in_name, b"")
            self._paths = {self.path, self._path_in_name}


def remove_empty_marks(store: ObjectStore, there: Callable[[], Collection[int]]) -> None:
    """Remove the marks of dead cleanups, and those of removed versions.

    ``there``: returns the numbers of all remaining versions; only called if there are marks.
    """
    marks = _marks(store)
    left = set(there()) if marks else set()
    for info in marks:
        if not _is_stale(info):
            marked = _versions_in(store, info)
            if any(version in marked for version in left):
                continue
        store.delete(info.path)


def check_not_removed(store: ObjectStore, location: ManifestLocation) -> None:
    """Raise if an old version that was just referenced is being removed."""
    is_being_removed = any(
        location.version in _versions_in(store, info)
        for info in _marks(store)
        if not _is_stale(info)
    )
    if is_being_removed or not store.exists(location.path):
        raise VersionNotFoundError(
            f"version {location.version} is being removed by a cleanup, or was removed",
            where=store.uri,
            hint="choose a newer version",
        )


def _marks(store: ObjectStore) -> list[ObjectInfo]:
    """Return all complete marks."""
    marks = [info for info in store.list(CLEANUPS) if info.path.endswith(".json")]
    if store.lists_names_only:  # a local disk, which may be full
        marks += [info for info in store.list(VERSIONS) if versions_in_mark(info.path) is not None]
    return marks


def _is_stale(info: ObjectInfo) -> bool:
    return 0 < info.modified_ns < time.time_ns() - int(_MARK_S * 1e9)


def _versions_in(store: ObjectStore, info: ObjectInfo) -> Collection[int]:
    named = versions_in_mark(info.path)
    return frozenset(_versions_inside(store, info)) if named is None else named


def _versions_inside(store: ObjectStore, info: ObjectInfo) -> Iterator[int]:
    try:
        content = json.loads(bytes(store.get(info.path)))
        yield from (one for one in content["versions"] if isinstance(one, int))
    except FileNotFoundError:
        return  # removed meanwhile
    except (ValueError, TypeError, KeyError, RecursionError):
        return  # not written by this package

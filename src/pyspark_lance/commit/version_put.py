"""VersionPut: put a manifest, and know whether it became a version.

A put may fail and yet have worked; it may also work and yet be too late: others have made this
version and newer ones since we looked which one is the newest, and cleaned this one up, or they
have replaced the whole table.  So every put is followed by one look at the newest versions, and as
long as it is not known what became of a manifest, nothing it refers to is removed or done again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_handler import (
    CommitHandler,
    LostRace,
    Undecided,
    transaction_uuid_at,
)
from pyspark_lance.commit.draft import TableState
from pyspark_lance.commit.index_rules import Indices
from pyspark_lance.commit.judge_newer import REDO
from pyspark_lance.commit.whereabouts import Fate, fate_of, files_of, new_files
from pyspark_lance.errors import CommitConflictError, RetryableCommitError
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Restore
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    list_versions,
    newest_versions,
    read_manifest,
)
from pyspark_lance.store.object_store import ObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A version that holds the work.

    Attributes:
        version: Its number.
        manifest: Its manifest.
        indices: Its index entries.
        transaction: As committed, which is not always as planned.
        location: Where the manifest is.
        already_committed: The (application, version) pair of the transaction was committed
            before, in this version or an earlier one; nothing was done, and the data files
            written for the transaction belong to no version.
    """

    version: int
    manifest: Manifest
    indices: Indices
    transaction: Transaction
    location: ManifestLocation
    already_committed: bool = False


@dataclass(frozen=True, slots=True)
class WantedVersion:
    """A version that is to be made.

    Attributes:
        result: What it will be.
        data: The bytes of its manifest.
        before: The version that it is made of; None for a new table.
        cause: What went wrong at the put.
    """

    result: CommitResult
    data: bytes
    before: ManifestFile | None
    cause: Exception | None = None


class VersionPut:
    """Makes one version, in as many attempts as it takes.

    Args:
        store: The store at the table root.
        handler: Puts manifests.
        uuid: Of the transaction.

    Attributes:
        in_doubt: What was sent to the store, and is not known to be in the history or not.
    """

    def __init__(self, store: ObjectStore, handler: CommitHandler, uuid: str) -> None:
        self._store = store
        self._handler = handler
        self._uuid = uuid
        self.in_doubt: WantedVersion | None = None

    def put(self, wanted: WantedVersion) -> bool:
        """The step that decides: whether the version is there, and ours.

        Raises:
            CommitConflictError: The table was replaced; the manifest is gone again.
            StorageError: It is in doubt.
        """
        self.in_doubt = wanted
        location = wanted.result.location
        match self._handler.put(self._store, location, wanted.data, uuid=self._uuid):
            case Undecided(cause):
                self.in_doubt = replace(wanted, cause=cause)
                return False
            case LostRace():
                self.in_doubt = None
                logger.debug("version %d of %s is taken", location.version, self._store.uri)
                return False
            case _:
                return self._confirmed(wanted)

    def look_again(self, doubt: WantedVersion) -> bool:
        """Whether the version in doubt is in the history; if not, it may still be in doubt.

        Raises:
            CommitConflictError: The table was replaced.
            StorageError: It still is in doubt.
        """
        versions = list_versions(self._store)
        number = doubt.result.version
        if not versions or versions[-1].version < number:
            if doubt.before is not None and not self._is_same(doubt.before, versions[-1:]):
                self.in_doubt = None
                raise table_was_replaced(self._store)
            # Still free, so the lost request may arrive yet.  The same bytes again: whichever
            # request gets there, the files it refers to are there.
            return self.put(doubt)
        holder = transaction_uuid_at(self._store, doubt.result.location)
        if holder == self._uuid:
            return self._confirmed(doubt)
        newer = [location for location in versions if location.version > number]
        fate = self._fate(doubt, newer) if newer else Fate.LOST
        if fate is Fate.UNKNOWN and holder is None:
            return False
        self.in_doubt = None
        return fate is Fate.IN_HISTORY

    def _confirmed(self, wanted: WantedVersion) -> bool:
        """Our manifest is there; it counts if it is the newest, or newer ones follow it."""
        number = wanted.result.version
        newest = newest_versions(self._store, 2)
        if newest and newest[0].version > number:
            return self._is_in_history(wanted)
        older = [location for location in newest if location.version < number]
        if not self._follows(wanted, older):
            self._take_back(wanted)
            raise table_was_replaced(self._store)
        if self._was_cleaned_up(wanted):
            self._take_back(wanted)
            raise RetryableCommitError(
                "files of the version that is restored were cleaned up", self._store.uri, REDO
            )
        self.in_doubt = None
        return True

    def _was_cleaned_up(self, wanted: WantedVersion) -> bool:
        """Whether a restored version came too late: other clients clean up without asking."""
        result = wanted.result
        if not isinstance(result.transaction.operation, Restore) or wanted.before is None:
            return False
        files = files_of(result.manifest.fragments, own=True)
        files -= files_of(wanted.before.manifest.fragments)
        folders = {path.partition("/")[0] for path in files}
        there = {info.path for folder in folders for info in self._store.list(folder)}
        return not files <= there

    def _is_in_history(self, wanted: WantedVersion) -> bool:
        """Our manifest was put, and there are newer ones: whether they were made of it."""
        versions = {location.version: location for location in list_versions(self._store)}
        number = wanted.result.version
        newer = [location for location in versions.values() if location.version > number]
        fate = self._fate(wanted, newer)
        if fate is Fate.UNKNOWN and number in versions:
            # The one after ours is gone and ours is not, though cleanups begin with the oldest.
            late = newer[0].modified_ns <= versions[number].modified_ns
            fate = Fate.LOST if late else Fate.UNKNOWN
        if fate is Fate.LOST:
            logger.info("others outran version %d of %s", number, self._store.uri)
            self._take_back(wanted)
        elif fate is Fate.IN_HISTORY:
            self.in_doubt = None
        return fate is Fate.IN_HISTORY

    def _fate(self, wanted: WantedVersion, newer: Sequence[ManifestLocation]) -> Fate:
        before = wanted.before.manifest if wanted.before is not None else None
        ours = TableState(wanted.result.manifest, wanted.result.indices)
        return fate_of(self._store, ours, new_files(before, ours.manifest), newer)

    def _take_back(self, wanted: WantedVersion) -> None:
        """Removes a manifest of ours that no other was made of.

        In a table made anew another one may have its number by now.
        """
        if transaction_uuid_at(self._store, wanted.result.location) == self._uuid:
            self._store.delete(wanted.result.location.path)
        self.in_doubt = None

    def _follows(self, wanted: WantedVersion, below: Sequence[ManifestLocation]) -> bool:
        """Whether the version that ours was made of is below ours, or was until a cleanup."""
        before = wanted.before
        if before is None or self._is_same(before, below):
            return True
        if below and below[0].version == before.manifest.version:
            return False
        paths = files_of(wanted.result.manifest.fragments)
        kept = sorted(paths & files_of(before.manifest.fragments)) or sorted(paths)
        return not kept or self._store.exists(kept[0])

    def _is_same(self, before: ManifestFile, newest: Sequence[ManifestLocation]) -> bool:
        """Whether the manifest in ``newest`` is still the one that was read."""
        read = before.location
        if not newest or newest[0].version != read.version:
            return False
        if read.identity and newest[0].identity == read.identity:
            return True
        manifest = read_manifest(self._store, newest[0], with_indices=False).manifest
        return BaseVersion.of(manifest) == BaseVersion.of(before.manifest)


def table_was_replaced(store: ObjectStore) -> CommitConflictError:
    """The error for a table that is not the one that the work was planned on."""
    return CommitConflictError(
        "the table was replaced by another one while the work was under way",
        store.uri,
        "open the table again",
    )

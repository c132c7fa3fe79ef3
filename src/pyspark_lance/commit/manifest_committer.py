"""ManifestCommitter: put a manifest, and know whether it became a version.

A put may fail and yet have worked; it may also work and yet be too late: others have made this
version and newer ones since we looked which one is the newest, and cleaned this one up, or they
have replaced the whole table.  So every put is followed by one look at the newest versions, and as
long as it is not known what became of a manifest, nothing it refers to is removed or done again.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_handler import (
    CommitHandler,
    LostRace,
    Undecided,
    transaction_uuid_at,
)
from pyspark_lance.commit.commit_outcome import CommitOutcome, Work, files_of, outcome_of
from pyspark_lance.commit.conflict_check import REDO
from pyspark_lance.commit.index_rules import Indices
from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.errors import (
    CommitConflictError,
    ConflictReason,
    RetryableCommitError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Restore
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    list_versions,
    newest_versions,
    read_manifest,
    retry_if_removed,
)
from pyspark_lance.store.object_store import ObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A version that holds the work."""

    version: int  # Its number.
    manifest: Manifest  # Its manifest.
    indices: Indices  # Its index entries.
    transaction: Transaction  # As committed, which is not always as planned.
    location: ManifestLocation  # Where the manifest is.
    # The (application, version) pair of the transaction was committed before, in this version or an
    # earlier one; nothing was done, and the data files written for the transaction belong to no
    # version.
    already_committed: bool = False


class TableGoneError(CommitConflictError):
    """The table that the work was planned on is not there, or a request may reach another one yet.

    What was written stays: nobody can know whether a version will name it.
    """


@dataclass(frozen=True, slots=True)
class WantedVersion:
    """A version that is to be made."""

    result: CommitResult
    data: bytes  # The bytes of its manifest.
    before: ManifestFile | None  # The version that it is made of; None for a new table.
    cause: Exception | None = None


class ManifestCommitter:
    """Makes one version, in as many attempts as it takes.

    ``unknown_outcome``: what was sent to the store, and is not known to be in the history or not.
    """

    def __init__(self, store: ObjectStore, handler: CommitHandler, uuid: str) -> None:
        self._store = store
        self._handler = handler
        self._uuid = uuid
        self.unknown_outcome: WantedVersion | None = None

    def put(self, wanted: WantedVersion) -> bool:
        """The step that decides: whether the version is there, and ours.

        Raises CommitConflictError: another table is there; the manifest is gone again. Raises
        TableGoneError: the table is not there any more; the manifest is gone again. Raises
        StorageError: it is in doubt.
        """
        was_outcome_unknown, self.unknown_outcome = self.unknown_outcome is not None, wanted
        location = wanted.result.location
        try:
            outcome = self._handler.put(self._store, location, wanted.data, uuid=self._uuid)
        except UnsupportedFeatureError:  # refused before anything was sent
            self.unknown_outcome = wanted if was_outcome_unknown else None
            raise
        match outcome:
            case Undecided(cause):
                self.unknown_outcome = replace(wanted, cause=cause)
                return False
            case LostRace():
                # The request before this one may have won an earlier race for the number.
                if not was_outcome_unknown:
                    self.unknown_outcome = None
                logger.debug("version %d of %s is taken", location.version, self._store.uri)
                return False
            case _:
                return self._confirmed(wanted)

    def retry_if_removed(self, doubt: WantedVersion) -> bool:
        """Whether the version in doubt is in the history; if not, it may still be in doubt.

        Raises StorageError: it still is in doubt.
        """
        versions = list_versions(self._store)
        number = doubt.result.version
        if not versions or versions[-1].version < number:
            if doubt.before is not None and not self._may_put_again(doubt.before, versions):
                return False
            # Still free, so the lost request may arrive yet.  The same bytes again: whichever
            # request gets there, the files it refers to are there.
            return self.put(doubt)
        holder = transaction_uuid_at(self._store, doubt.result.location)
        if holder == self._uuid:
            return self._confirmed(doubt)
        newer = [location for location in versions if location.version > number]
        if holder is None and not newer:
            return False  # removed since it was listed, so there are newer ones
        outcome = self._outcome(doubt) if newer else CommitOutcome.LOST
        if outcome is CommitOutcome.UNKNOWN and holder is None:
            return False
        self.unknown_outcome = None
        return outcome is CommitOutcome.IN_HISTORY

    def _may_put_again(self, before: ManifestFile, versions: Sequence[ManifestLocation]) -> bool:
        """Whether the table is still the one whose newest version was ``before``."""
        is_same = self._is_same(before, versions[-1:])
        if is_same is None and versions[-1:] and versions[-1].version >= before.location.version:
            return False  # removed since it was listed, so there are newer ones
        if is_same is None:  # perhaps the listing is late
            is_same = self._is_same(before, [replace(before.location, identity="")])
        if not is_same:
            raise table_is_gone(self._store)
        return True

    def _confirmed(self, wanted: WantedVersion) -> bool:
        """Our manifest is there; it counts if it is the newest, or newer ones follow it.

        What is not there says something only as long as ours is the newest version: others may
        have followed it and removed whatever it needs.  So after each look at files there is
        another one at the versions.
        """
        number = wanted.result.version
        wrong: CommitConflictError | None = None
        for is_last in (False, True):
            newest = newest_versions(self._store, 2)
            if newest and newest[0].version > number:
                return self._is_in_history(wanted)
            if not is_last:
                below = [location for location in newest if location.version < number]
                wrong = self._wrong_below(wanted, below)
                if wrong is None:
                    self.unknown_outcome = None
                    return True
        assert wrong is not None
        self._rollback(wanted)
        newest = newest_versions(self._store, 1)
        if newest and newest[0].version > number:  # somebody has followed it at the last moment
            self.unknown_outcome = wanted
            return self._is_in_history(wanted)
        raise wrong

    def _wrong_below(
        self, wanted: WantedVersion, below: Sequence[ManifestLocation]
    ) -> CommitConflictError | None:
        """Why our manifest, the newest one, makes no version of the table that was planned on."""
        before = wanted.before
        is_same = True if before is None else self._is_same(before, below)
        if is_same is False:
            return table_was_replaced(self._store.uri)
        if before is not None and is_same is None and not self._has_files_of(before, wanted):
            return table_is_gone(self._store)
        if self._was_cleaned_up(wanted):
            return RetryableCommitError(
                "files of the version that is restored were cleaned up",
                self._store.uri,
                REDO,
                ConflictReason.FILES_REMOVED,
            )
        return None

    def _has_files_of(self, before: ManifestFile, wanted: WantedVersion) -> bool:
        """Whether a file is there that our version has of the one it was made of."""
        paths = files_of(wanted.result.manifest.fragments)
        kept = sorted(paths & files_of(before.manifest.fragments)) or sorted(paths)
        return not kept or self._store.exists(kept[0])

    def _was_cleaned_up(self, wanted: WantedVersion) -> bool:
        """Whether a restored version came too late: other clients clean up without asking."""
        result = wanted.result
        if not isinstance(result.transaction.operation, Restore) or wanted.before is None:
            return False
        files = files_of(result.manifest.fragments, own=True)
        files -= files_of(wanted.before.manifest.fragments)
        return bool(missing_files(self._store, files))

    def _is_in_history(self, wanted: WantedVersion) -> bool:
        """Our manifest was put, and there are newer ones: whether they were made of it."""
        outcome = self._outcome(wanted, was_put=True)
        if outcome is CommitOutcome.LOST:
            logger.info("others outran version %d of %s", wanted.result.version, self._store.uri)
            self._rollback(wanted)
        elif outcome is CommitOutcome.IN_HISTORY:
            self.unknown_outcome = None
        return outcome is CommitOutcome.IN_HISTORY

    def _outcome(self, wanted: WantedVersion, *, was_put: bool = False) -> CommitOutcome:
        """What became of our version, as the newer ones tell."""
        number = wanted.result.version

        def look() -> CommitOutcome:
            versions = {location.version: location for location in list_versions(self._store)}
            newer = [location for location in versions.values() if location.version > number]
            if not newer:
                return (
                    CommitOutcome.UNKNOWN
                )  # another table has taken the place of those that were there
            # Ours came later than those after it, into a gap that a cleanup had left.
            is_late = (
                was_put
                and number in versions
                and newer[0].modified_ns <= versions[number].modified_ns
            )
            outcome = outcome_of(self._store, self._work(wanted, was_put and not is_late), newer)
            return CommitOutcome.LOST if is_late and outcome is CommitOutcome.UNKNOWN else outcome

        return retry_if_removed(self._store, look)

    def _work(self, wanted: WantedVersion, was_put: bool) -> Work:
        result = wanted.result
        return Work(
            result.transaction.operation,
            wanted.before.manifest if wanted.before is not None else None,
            TableState(result.manifest, result.indices),
            was_put,
        )

    def _rollback(self, wanted: WantedVersion) -> None:
        """Removes a manifest of ours that no other was made of.

        In a table made anew another one may have its number by now.
        """
        if transaction_uuid_at(self._store, wanted.result.location) == self._uuid:
            self._store.delete(wanted.result.location.path)
        self.unknown_outcome = None

    def _is_same(self, before: ManifestFile, newest: Sequence[ManifestLocation]) -> bool | None:
        """Whether the manifest in ``newest`` is still the one that was read.

        Returns False if that of another table was seen there; None if it was not to be seen at all.
        """
        read = before.location
        if not newest or newest[0].version != read.version:
            return None
        if read.identity and newest[0].identity == read.identity:
            return True
        try:
            manifest = read_manifest(self._store, newest[0], with_indices=False).manifest
        except FileNotFoundError:
            return None
        return BaseVersion.of(manifest) == BaseVersion.of(before.manifest)


def missing_files(store: ObjectStore, files: Set[str]) -> list[str]:
    """Which of a table's files are gone, by one list of each folder."""
    folders = {path.partition("/")[0] for path in files}
    there = {info.path for folder in folders for info in store.list(folder)}
    return sorted(files - there)


def table_was_replaced(uri: str) -> CommitConflictError:
    """The error for a table that is not the one that the work was planned on."""
    return CommitConflictError(
        "the table was replaced by another one while the work was under way",
        uri,
        "open the table again",
        ConflictReason.TABLE_REPLACED,
    )


def table_is_gone(store: ObjectStore) -> TableGoneError:
    """The error for a table of which nothing is left to see."""
    return TableGoneError(
        "the table was dropped while the work was under way, or replaced by another one",
        store.uri,
        "open the table again; if there is one, look in its history for the work before doing it "
        "again",
    )

"""ManifestCommitter: put a manifest and determine whether it became a version.

A put may fail although the store carried it out.  It may also succeed too late: since the last
listing, other writers have committed this version and newer ones and cleaned this one up, or have
replaced the whole table.  So versions are listed after every put, and as long as the outcome of a
manifest is unknown, nothing it refers to is removed or repeated.
"""

from __future__ import annotations

import enum
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
from pyspark_lance.store.object_store import Buffer, ObjectStore

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class CommitResult:
    """A committed version that contains the work."""

    version: int  # Its number.
    manifest: Manifest  # Its manifest.
    indices: Indices  # Its index entries.
    transaction: Transaction  # As committed, perhaps rebased.
    location: ManifestLocation  # Where the manifest is.
    # Whether the (application, version) pair of the transaction was committed before, in this or an
    # earlier version. Then nothing was committed, and no version refers to the data files written
    # for the transaction.
    already_committed: bool = False


class TableGoneError(CommitConflictError):
    """The table that the work was planned on was removed, or a put may reach another table later.

    Written files stay, since a version may refer to them.
    """


@dataclass(frozen=True, slots=True)
class CandidateVersion:
    """A version to be committed."""

    result: CommitResult
    data: Sequence[Buffer]  # The bytes of its manifest, in pieces.
    before: ManifestFile | None  # The version that it is derived from; None for a new table.
    cause: Exception | None = None


class PutState(enum.Enum):
    """Known state of the manifest of a commit."""

    UNSENT = "none was sent, or certainly none of those sent is a version"
    SENT = "it may exist, or may still appear"
    WRITTEN = "it exists, but newer versions may not be derived from it"
    COMMITTED = "it is the newest version, or an ancestor of it"


class ManifestCommitter:
    """Commit of one version, in as many attempts as necessary.

    ``state``: of the last manifest that was sent.
    """

    def __init__(self, store: ObjectStore, handler: CommitHandler, uuid: str) -> None:
        self._store = store
        self._handler = handler
        self._uuid = uuid
        self._sent: CandidateVersion | None = None
        self.state = PutState.UNSENT

    @property
    def unknown_outcome(self) -> CandidateVersion | None:
        """The version that was sent to the store and may or may not be in the history."""
        return self._sent if self.state in (PutState.SENT, PutState.WRITTEN) else None

    def put(self, candidate: CandidateVersion) -> bool:
        """Put the manifest, and return whether it exists and is ours; ``confirm`` must follow.

        Raises:
            StorageError: The outcome is unknown.
        """
        was_outcome_unknown = self.unknown_outcome is not None
        self._sent, self.state = candidate, PutState.SENT
        location = candidate.result.location
        try:
            outcome = self._handler.put(self._store, location, candidate.data, uuid=self._uuid)
        except UnsupportedFeatureError:  # raised before anything was sent
            self.state = PutState.SENT if was_outcome_unknown else PutState.UNSENT
            raise
        match outcome:
            case Undecided(cause):
                self._sent = replace(candidate, cause=cause)
                return False
            case LostRace():
                # The request before this one may have won an earlier race for the number.
                if not was_outcome_unknown:
                    self.state = PutState.UNSENT
                logger.debug("version %d of %s is taken", location.version, self._store.uri)
                return False
            case _:
                self.state = PutState.WRITTEN
                return True

    def retry_if_removed(self, pending: CandidateVersion) -> bool:
        """Return whether the version of unknown outcome is in the history by now.

        Raises:
            StorageError: The outcome is still unknown.
        """
        versions = list_versions(self._store)
        number = pending.result.version
        if not versions or versions[-1].version < number:
            if pending.before is not None and not self._may_put_again(pending.before, versions):
                return False
            # The number is still free, so the lost request may still arrive.  Put the same bytes
            # again: either request then refers to existing files.
            return self.put(pending) and self.confirm()
        holder = transaction_uuid_at(self._store, pending.result.location)
        if holder == self._uuid:
            self.state = PutState.WRITTEN
            return self.confirm()
        newer = [location for location in versions if location.version > number]
        if holder is None and not newer:
            return False  # removed since it was listed, so there are newer ones
        outcome = self._outcome(pending) if newer else CommitOutcome.LOST
        if outcome is CommitOutcome.UNKNOWN and holder is None:
            return False
        is_committed = outcome is CommitOutcome.IN_HISTORY
        self.state = PutState.COMMITTED if is_committed else PutState.UNSENT
        return is_committed

    def _may_put_again(self, before: ManifestFile, versions: Sequence[ManifestLocation]) -> bool:
        """Return whether the table is still the one whose newest version was ``before``."""
        is_same = self._is_same(before, versions[-1:])
        if is_same is None and versions[-1:] and versions[-1].version >= before.location.version:
            return False  # removed since it was listed, so there are newer ones
        if is_same is None:  # the listing may be stale
            is_same = self._is_same(before, [replace(before.location, identity="")])
        if not is_same:
            raise table_was_dropped(self._store)
        return True

    def confirm(self) -> bool:
        """Return whether our manifest, which exists, is the newest version or an ancestor of it.

        A missing file is only evidence while ours is the newest version: other writers may have
        committed after it and removed the files it needs.  So versions are listed again after each
        check of files.

        Raises:
            CommitConflictError: Another table is there; the manifest was removed.
            TableGoneError: The table was removed; so was the manifest.
            StorageError: The outcome is unknown.
        """
        candidate = self._sent
        if candidate is None or self.state is not PutState.WRITTEN:
            raise AssertionError("no manifest was written")
        number = candidate.result.version
        wrong: CommitConflictError | None = None
        for is_last in (False, True):
            newest = newest_versions(self._store, 2)
            if newest and newest[0].version > number:
                return self._is_in_history(candidate)
            if not is_last:
                below = [location for location in newest if location.version < number]
                wrong = self._placement_error(candidate, below)
                if wrong is None:
                    self.state = PutState.COMMITTED
                    return True
        assert wrong is not None
        self._rollback(candidate)
        newest = newest_versions(self._store, 1)
        if newest and newest[0].version > number:  # a newer version appeared meanwhile
            self.state = PutState.WRITTEN
            return self._is_in_history(candidate)
        raise wrong

    def _placement_error(
        self, candidate: CandidateVersion, below: Sequence[ManifestLocation]
    ) -> CommitConflictError | None:
        """Return the error if our manifest, the newest one, belongs to another table."""
        before = candidate.before
        is_same = True if before is None else self._is_same(before, below)
        if is_same is False:
            return table_was_replaced(self._store.uri)
        if before is not None and is_same is None and not self._shares_files(before, candidate):
            return table_was_dropped(self._store)
        if self._was_cleaned_up(candidate):
            return RetryableCommitError(
                "files of the version that is restored were cleaned up",
                self._store.uri,
                REDO,
                ConflictReason.FILES_REMOVED,
            )
        return None

    def _shares_files(self, before: ManifestFile, candidate: CandidateVersion) -> bool:
        """Return whether a file exists that our version shares with the one it is derived from."""
        paths = files_of(candidate.result.manifest.fragments)
        kept = sorted(paths & files_of(before.manifest.fragments)) or sorted(paths)
        return not kept or self._store.exists(kept[0])

    def _was_cleaned_up(self, candidate: CandidateVersion) -> bool:
        """Return whether the restored version was removed; other clients ignore cleanup marks."""
        result = candidate.result
        if not isinstance(result.transaction.operation, Restore) or candidate.before is None:
            return False
        files = files_of(result.manifest.fragments, own=True)
        files -= files_of(candidate.before.manifest.fragments)
        return bool(missing_files(self._store, files))

    def _is_in_history(self, candidate: CandidateVersion) -> bool:
        """Return whether the newer versions are derived from our manifest."""
        outcome = self._outcome(candidate, was_put=True)
        if outcome is CommitOutcome.LOST:
            logger.info(
                "other commits outran version %d of %s", candidate.result.version, self._store.uri
            )
            self._rollback(candidate)
        elif outcome is CommitOutcome.IN_HISTORY:
            self.state = PutState.COMMITTED
        return outcome is CommitOutcome.IN_HISTORY

    def _outcome(self, candidate: CandidateVersion, *, was_put: bool = False) -> CommitOutcome:
        """Determine the outcome of our version from the newer ones."""
        number = candidate.result.version

        def find_outcome() -> CommitOutcome:
            versions = {location.version: location for location in list_versions(self._store)}
            newer = [location for location in versions.values() if location.version > number]
            if not newer:
                return CommitOutcome.UNKNOWN  # another table has replaced the listed versions
            # Our put came after newer versions, into a gap left by a cleanup.
            is_late = (
                was_put
                and number in versions
                and newer[0].modified_ns <= versions[number].modified_ns
            )
            outcome = outcome_of(self._store, self._work(candidate, was_put and not is_late), newer)
            return CommitOutcome.LOST if is_late and outcome is CommitOutcome.UNKNOWN else outcome

        return retry_if_removed(self._store, find_outcome)

    def _work(self, candidate: CandidateVersion, was_put: bool) -> Work:
        result = candidate.result
        return Work(
            result.transaction.operation,
            candidate.before.manifest if candidate.before is not None else None,
            TableState(result.manifest, result.indices),
            was_put,
        )

    def _rollback(self, candidate: CandidateVersion) -> None:
        """Remove a manifest of ours that no version is derived from.

        In a table that was created again, the number may belong to another manifest.
        """
        if transaction_uuid_at(self._store, candidate.result.location) == self._uuid:
            self._store.delete(candidate.result.location.path)
        self.state = PutState.UNSENT

    def _is_same(self, before: ManifestFile, newest: Sequence[ManifestLocation]) -> bool | None:
        """Return whether the manifest in ``newest`` is still the one that was read.

        False if a manifest of another table was found there; None if there was none.
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
    """Return those of a table's files that are missing, by listing each folder once."""
    folders = {path.partition("/")[0] for path in files}
    there = {info.path for folder in folders for info in store.list(folder)}
    return sorted(files - there)


def table_was_replaced(uri: str) -> CommitConflictError:
    """Return the error for a table other than the one that the work was planned on."""
    return CommitConflictError(
        "the table was replaced by another one during the operation",
        uri,
        "open the table again",
        ConflictReason.TABLE_REPLACED,
    )


def table_was_dropped(store: ObjectStore) -> TableGoneError:
    """Return the error for a table without any version."""
    return TableGoneError(
        "the table was dropped or replaced during the operation",
        store.uri,
        "open the table again; if there is one, look in its history for the work before doing it "
        "again",
    )

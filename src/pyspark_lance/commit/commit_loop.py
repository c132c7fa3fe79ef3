"""Load, judge, rebase, build, put; again when somebody else was faster.

Three rules keep a table right when things go wrong:

* An error at the put may hide a success.  Nothing is deleted or repeated before the manifest at
  that version was looked at for our transaction's uuid.
* Work that was planned on a version is judged against everything after *that* version, in every
  attempt.  Only work that was rebased row by row states a newer read version.
* What we wrote is removed only when it is certain that no manifest refers to it.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from pyspark_lance.commit.application_versions import (
    application_version,
    is_committed,
    is_same_work,
)
from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_handler import check_conditional_puts, transaction_uuid_at
from pyspark_lance.commit.commit_request import CommitRequest
from pyspark_lance.commit.conflict_check import REDO, fragments_in_common
from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.commit.manifest_committer import (
    CommitResult,
    ManifestCommitter,
    TableGoneError,
    WantedVersion,
    table_was_replaced,
)
from pyspark_lance.commit.newer_versions import NewerVersions
from pyspark_lance.commit.next_manifest import next_manifest
from pyspark_lance.commit.rebase import RowConflict, rebase
from pyspark_lance.commit.retries import TURN_S, Environment, Retries
from pyspark_lance.errors import (
    CommitConflictError,
    Conflict,
    ConflictReason,
    CorruptFileError,
    LanceError,
    RetryableCommitError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
)
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Delete, Restore, Update
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.cleanup_marks import check_kept
from pyspark_lance.metafile.deletion_file import read_deletion_file, write_deletion_file
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    encode_manifest,
    find_version,
    latest_version,
    newest_seen,
    read_manifest,
    retry_if_removed,
)
from pyspark_lance.metafile.paths import (
    TRANSACTIONS,
    VERSION_HINT,
    VERSIONS,
    NamingScheme,
    deletion_path,
    manifest_path,
)
from pyspark_lance.metafile.transaction_file import transaction_name, write_transaction
from pyspark_lance.store.advisory_lock import advisory_lock
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore

logger = logging.getLogger(__name__)

# So often at most one looks whether there is more to catch up with.
_MAX_ROUNDS = 4

ReadManifest = Callable[[ObjectStore, ManifestLocation], ManifestFile]


def commit(
    store: ObjectStore,
    commit_request: CommitRequest,
    retries: Retries | None = None,
    *,
    read: ReadManifest = read_manifest,
) -> CommitResult:
    """Makes the version that is proposed, exactly once.

    ``store``: the store at the table root (of the branch). ``retries``: what is left to the work
    that this commit is a part of; None for the default. ``read``: reads a manifest, or knows it;
    fills in row counts that an old release left out.

    Raises:
        TableAlreadyExistsError: There is a table where one is to be created. A writer that would
            rather append plans an Append on the newest version and commits that.
        StorageError: The store failed. Only after this error it is not certain that nothing was
            committed: files written for the transaction must stay.
    """
    left = retries or Retries()
    clock = left.environment.monotonic
    work = _Commit(store, commit_request, read, left.environment)
    started = clock()
    attempts, failure = 1, None
    try:
        while True:
            try:
                with advisory_lock(store, VERSIONS, TURN_S, meanwhile=work.write_ahead):
                    result = work.attempt()
                    if result is None and work.has_looked_too_early:
                        result = work.attempt()  # the version was taken before this began
            except (LanceError, OSError) as error:
                if not work.is_outcome_unknown or isinstance(error, TableGoneError):
                    raise
                result, failure = None, error  # keep looking: the answer matters
            if result is not None:
                return result
            # So long another commit makes ours too late; others are about as fast as we are.
            slot = 1.1 * (clock() - work.looked_s)
            if not left.again(slot_s=slot, since_s=started):
                raise work.gave_up(attempts, clock() - started) from (failure or work.doubt)
            attempts += 1
    except BaseException:
        work.remove_orphans()
        raise


class _Commit:
    """One transaction on its way into the table."""

    def __init__(
        self,
        store: ObjectStore,
        commit_request: CommitRequest,
        read: ReadManifest,
        environment: Environment,
    ) -> None:
        transaction = commit_request.transaction
        self._store = store
        self._commit_request = commit_request
        self._planned = transaction
        self._read = read
        self._environment = environment
        self._application = application_version(transaction.properties)
        self._newer = NewerVersions(store, transaction.read_version)
        self._written_transaction: tuple[str, bytes] | None = None
        self._written_deletions: list[str] = []
        self._version = ManifestCommitter(store, environment.handler, transaction.uuid)
        self._has_looked = False
        self._looked_early = False
        self.looked_s = 0.0  # When it began to look for the newest version, by the monotonic clock.

    def attempt(self) -> CommitResult | None:
        """One round; ``None`` if somebody else took the version."""
        self.looked_s = self._environment.monotonic()
        doubt = self._version.unknown_outcome
        if doubt is not None:
            if self._version.retry_if_removed(doubt):
                return self._committed(doubt.result)
            if self._version.unknown_outcome is not None:
                return None
        location = self._newest()
        if self._commit_request.create is not None:
            if location is not None:
                return self._found_table()
            return self._put(None, self._planned)
        if location is None:
            raise TableNotFoundError(f"there is no table at {self._store.uri}")
        try:
            latest = self._read(self._store, location)
        except FileNotFoundError:
            return None  # removed since it was listed, so there are newer ones
        if self._planned.read_version > latest.manifest.version:
            if self._is_base_there(latest):
                return None  # the listing is late
            raise CommitConflictError(
                f"the work was planned on version {self._planned.read_version}, "
                f"but the newest is {latest.manifest.version}",
                hint="the table was replaced by another one; open it again",
                conflict=ConflictReason.TABLE_REPLACED,
            )
        latest, newer = self._caught_up(latest)
        return self._settled(latest, newer) or self._put(latest, self._rebased(latest, newer))

    def _newest(self) -> ManifestLocation | None:
        """The newest version; at first that which the plan was made on, if nobody followed it.

        Between a look and the put anything may happen, so that an older look is no less safe.
        """
        seen = None
        if not self._has_looked and self._commit_request.create is None:
            seen = newest_seen(self._store, put_follows=True)
        self._has_looked = True
        self._looked_early = seen is not None and seen.version >= self._planned.read_version
        return seen if self._looked_early else latest_version(self._store)

    def _caught_up(
        self, latest: ManifestFile
    ) -> tuple[ManifestFile, list[tuple[int, Transaction]]]:
        """The newest version, and what others did before it.

        To read many versions takes others long enough to make the next ones: whoever put right
        after that would be too late each time.
        """
        rounds = 0
        while True:
            self._check_base(latest)
            newer = self._newer.up_to(latest)
            rounds += 1
            if self._newer.num_read <= 1 or rounds == _MAX_ROUNDS:
                return latest, newer
            self.looked_s = self._environment.monotonic()
            location = latest_version(self._store)
            if location is None or location.version <= latest.manifest.version:
                return latest, newer
            with contextlib.suppress(FileNotFoundError):  # removed since, so there are newer ones
                latest = self._read(self._store, location)

    def _is_ours(self, location: ManifestLocation) -> bool:
        """Whether the version there is the one we wanted to make."""
        return transaction_uuid_at(self._store, location) == self._planned.uuid

    # Before building ------------------------------------------------------------------------

    def _check_base(self, latest: ManifestFile) -> None:
        """The version that the work was planned on must be in the history of this table."""
        if self._commit_request.base is None:
            return
        number, manifest = self._commit_request.base.version, latest.manifest
        if number != manifest.version:
            path = manifest_path(number, latest.location.scheme)
            location = ManifestLocation(path, number, latest.location.scheme)
            try:
                manifest = self._read(self._store, location).manifest
            except FileNotFoundError as error:
                what = f"version {number}, which the work was planned on, was cleaned up"
                reason = ConflictReason.FILES_REMOVED
                raise RetryableCommitError(what, self._store.uri, REDO, reason) from error
        if BaseVersion.of(manifest) != self._commit_request.base:
            raise table_was_replaced(self._store.uri)

    def _is_base_there(self, latest: ManifestFile) -> bool:
        """Whether the version that the work was planned on is there, newer than any listed."""
        base = self._commit_request.base
        if base is None:
            return False
        path = manifest_path(base.version, latest.location.scheme)
        location = ManifestLocation(path, base.version, latest.location.scheme)
        with contextlib.suppress(FileNotFoundError):
            file = read_manifest(self._store, location, with_indices=False)
            return BaseVersion.of(file.manifest) == base
        return False

    def _found_table(self) -> CommitResult:
        """There is a table where one was to be made; a call before this one may have made it."""
        with contextlib.suppress(FileNotFoundError):
            first = find_version(self._store, 1)
            if self._is_ours(first):
                return self._result_at(first)
        raise TableAlreadyExistsError(f"there is already a table at {self._store.uri}")

    def _settled(
        self, latest: ManifestFile, newer: Sequence[tuple[int, Transaction]]
    ) -> CommitResult | None:
        """The result, if the work is in the table already."""
        for version, theirs in newer:
            if theirs.uuid == self._planned.uuid:
                return self._landed_before(version)
        wanted = self._application
        if wanted is not None and (
            is_committed(wanted, latest.manifest.config)
            or any(is_same_work(wanted, theirs.properties) for _, theirs in newer)
        ):
            self.remove_orphans()
            return CommitResult(
                latest.manifest.version,
                latest.manifest,
                latest.indices,
                self._planned,
                latest.location,
                already_committed=True,
            )
        return None

    def _landed_before(self, version: int) -> CommitResult:
        """Our own version, made by an earlier call."""
        try:
            return self._result_at(find_version(self._store, version))
        except FileNotFoundError as error:
            # Nobody may take this for a failure: the files are those of the versions after it.
            raise StorageError(
                f"the work is in the table as version {version}, which others have removed since",
                self._store.uri,
                "nothing is left to do",
            ) from error

    def _result_at(self, location: ManifestLocation) -> CommitResult:
        """Our own version, found by looking."""
        file = read_manifest(self._store, location)
        return CommitResult(
            location.version,
            file.manifest,
            file.indices,
            file.transaction() or self._planned,
            location,
        )

    def _rebased(
        self, latest: ManifestFile, newer: Sequence[tuple[int, Transaction]]
    ) -> Transaction:
        """The transaction as it can follow all of ``newer``."""
        operation = self._planned.operation
        common = fragments_in_common(
            operation,
            newer,
            latest,
            uri=self._store.uri,
            knows_rows=self._commit_request.affected_rows is not None,
            reads=self._commit_request.reads,
        )
        if not common or self._commit_request.affected_rows is None:
            return self._planned
        if not isinstance(operation, Delete | Update):
            raise AssertionError("only rows are rebased")
        self._remove_deletions()  # of an attempt that lost

        def write(fragment_id: int, vector: DeletionVector) -> DeletionFile:
            file_id = self._environment.rng.getrandbits(64)
            version = latest.manifest.version
            file = write_deletion_file(self._store, fragment_id, version, vector, id=file_id)
            self._written_deletions.append(deletion_path(fragment_id, file))
            return file

        moved = rebase(
            operation,
            self._commit_request.affected_rows,
            common,
            latest.manifest,
            load_deletions=self._load_deletions,
            write_deletions=write,
        )
        if isinstance(moved, RowConflict):
            reason = ConflictReason.CONCURRENT_ROW_CHANGE
            name = type(operation).__name__
            conflict = Conflict(reason, name, fragments=(moved.fragment_id,))
            raise RetryableCommitError(moved.reason, self._store.uri, REDO, conflict)
        return replace(
            self._planned, operation=moved.operation, read_version=latest.manifest.version
        )

    def _load_deletions(self, fragment: Fragment) -> DeletionVector:
        file = fragment.deletion_file
        if file is None:
            return DeletionVector.empty()
        if file.base_id is not None:
            # Known to the reader of the table, not here; planning again reads it.
            raise RetryableCommitError(
                f"the deletions of fragment {fragment.id} are stored in another table",
                "",
                REDO,
                ConflictReason.CONCURRENT_ROW_CHANGE,
            )
        try:
            stable, rows = fragment.row_ids is not None, fragment.physical_rows
            return read_deletion_file(self._store, fragment.id, file, rows, may_exceed=stable)
        except FileNotFoundError as error:
            raise CorruptFileError(
                f"the deletion file of fragment {fragment.id} is missing",
                f"{self._store.uri}/{deletion_path(fragment.id, file)}",
            ) from error

    # Building and putting -------------------------------------------------------------------

    def _put(self, latest: ManifestFile | None, transaction: Transaction) -> CommitResult | None:
        current = TableState(latest.manifest, latest.indices) if latest is not None else None
        state = next_manifest(
            current,
            transaction,
            now_ns=self._environment.now_ns(),
            restored=self._restored(transaction),
            create=self._commit_request.create,
            data_storage_version=self._commit_request.data_storage_version,
        )
        manifest = state.manifest
        manifest = replace(manifest, transaction_file=transaction_name(transaction))
        data = encode_manifest(manifest, state.indices, transaction)
        self._write_transaction(transaction)
        if isinstance(transaction.operation, Restore):
            # Cleanups know of it from now on; one that has begun may not.
            version = transaction.operation.version
            check_kept(self._store, find_version(self._store, version))

        scheme = latest.location.scheme if latest is not None else NamingScheme.V2
        path = manifest_path(manifest.version, scheme)
        location = ManifestLocation(path, manifest.version, scheme, len(data))
        result = CommitResult(manifest.version, manifest, state.indices, transaction, location)
        landed = self._version.put(WantedVersion(result, data, latest))
        return self._committed(result) if landed else None

    def _restored(self, transaction: Transaction) -> TableState | None:
        """The version that a Restore goes back to."""
        if not isinstance(transaction.operation, Restore):
            return None
        version = transaction.operation.version
        # Removed between the two looks: the first one says so, when it is made again.
        file = retry_if_removed(
            self._store, lambda: self._read(self._store, find_version(self._store, version))
        )
        return TableState(file.manifest, file.indices)

    def write_ahead(self) -> None:
        """Writes what nearly every attempt will need, while others are at work."""
        self._has_looked = True  # what was newest will not be it any more
        with contextlib.suppress(LanceError, OSError):  # the attempt says what is wrong
            self._write_transaction(self._planned)

    def _write_transaction(self, transaction: Transaction) -> None:
        """Writes the transaction file, unless an earlier attempt wrote the same."""
        name, data = transaction_name(transaction), transaction.to_bytes()
        if self._written_transaction == (name, data):
            return
        self._remove_transaction()
        write_transaction(self._store, transaction)
        self._written_transaction = (name, data)
        check_conditional_puts(self._store, f"{TRANSACTIONS}/{name}", data)

    def _committed(self, result: CommitResult) -> CommitResult:
        """What is left to do once the version is ours: nothing that may fail."""
        self._written_transaction, self._written_deletions = None, []
        kind = type(result.transaction.operation).__name__
        logger.info("committed version %d of %s: %s", result.version, self._store.uri, kind)
        if not (self._store.lists_in_order or isinstance(self._store, LocalStore)):
            # A hint, never authoritative; nobody reads it in a folder of this machine.
            with contextlib.suppress(Exception):
                self._store.put(VERSION_HINT, b'{"version":%d}' % result.version)
        return result

    # Failure --------------------------------------------------------------------------------

    def gave_up(self, attempts: int, elapsed_s: float) -> LanceError:
        """The error after the last attempt."""
        if self._version.unknown_outcome is not None:
            return StorageError(
                "the store failed while a version was being committed; it may exist or appear yet",
                f"{self._store.uri}, transaction {self._planned.uuid}",
                "look for the transaction in the history of the table before doing the work again",
            )
        return RetryableCommitError(
            f"concurrent writers committed first {attempts} times in {elapsed_s:.1f} s",
            self._store.uri,
            "try again; commitRetries and commitTimeout allow more",
            ConflictReason.VERSION_TAKEN,
        )

    @property
    def has_looked_too_early(self) -> bool:
        """Whether the attempt went by an older look, and was wrong to do so."""
        return self._looked_early and not self.is_outcome_unknown

    @property
    def is_outcome_unknown(self) -> bool:
        """Whether a manifest of ours may exist, or appear yet."""
        return self._version.unknown_outcome is not None

    @property
    def doubt(self) -> Exception | None:
        """What went wrong with the manifest that is in doubt."""
        return (
            self._version.unknown_outcome.cause
            if self._version.unknown_outcome is not None
            else None
        )

    def remove_orphans(self) -> None:
        """Removes our metadata files, unless a manifest may refer to them."""
        if self._version.unknown_outcome is None:
            self._remove_transaction()
            self._remove_deletions()

    def _remove_transaction(self) -> None:
        written, self._written_transaction = self._written_transaction, None
        if written is not None:
            with contextlib.suppress(StorageError, OSError):  # cleanup finds it later
                self._store.delete(f"{TRANSACTIONS}/{written[0]}")

    def _remove_deletions(self) -> None:
        written, self._written_deletions = self._written_deletions, []
        if written:
            with contextlib.suppress(StorageError, OSError):
                self._store.delete_many(written)

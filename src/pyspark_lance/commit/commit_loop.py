"""Commit loop: read the newest version, check conflicts, rebase, build and put; retry if outrun.

Writers of one machine pass two advisory locks one after another.  Under the first one, a change
catches up: it reads the transactions since its plan and checks conflicts.  Under the second one, it
does the same with concurrent commits, usually one version, then builds and puts its own.
So the next writer catches up while this one builds.  The put is confirmed without a lock.

Three rules keep a table correct in case of failures:

* An error of the put may hide a success.  Nothing is deleted or repeated before the manifest of
  that version was checked for our transaction's uuid.
* Work that was planned on a version is checked against everything after *that* version, in every
  attempt.  Only work that was rebased row by row has a newer read version.
* Files that the commit wrote are removed only if certainly no manifest refers to them.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache

from pyspark_lance.cancellation import CancelledRequestError, check_cancelled
from pyspark_lance.commit.application_versions import (
    application_version,
    is_committed,
    is_same_work,
)
from pyspark_lance.commit.apply_operation import CreateOptions, next_manifest
from pyspark_lance.commit.base_version import BaseVersion, NewerVersions
from pyspark_lance.commit.commit_handler import check_conditional_puts, transaction_uuid_at
from pyspark_lance.commit.conflict_check import REDO, ConflictChecks, ReadSet
from pyspark_lance.commit.fragment_changes import operation_metrics
from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.commit.manifest_committer import (
    CandidateVersion,
    CommitResult,
    ManifestCommitter,
    TableGoneError,
    table_was_replaced,
)
from pyspark_lance.commit.rebase import AffectedRows, RowConflict, rebase
from pyspark_lance.commit.retries import LOCK_TIMEOUT_S, Environment, Retries
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
from pyspark_lance.format.operation import CreateIndex, Delete, Restore, Update
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.cleanup_marks import check_not_removed
from pyspark_lance.metafile.deletion_file import read_deletion_file, write_deletion_file
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    find_transaction,
    find_version,
    latest_version,
    manifest_pieces,
    newest_since,
    read_manifest,
    recently_listed_version,
    retry_if_removed,
    transaction_name,
    write_transaction,
)
from pyspark_lance.metafile.paths import (
    TRANSACTIONS,
    VERSION_HINT,
    VERSIONS,
    NamingScheme,
    deletion_path,
    manifest_path,
)
from pyspark_lance.store.advisory_lock import advisory_lock
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A transaction and the state of the work that conflict detection needs."""

    transaction: Transaction  # Planned on its ``read_version``; its data files exist.
    base: BaseVersion | None = None  # Identity of the version it was planned on.
    # Options of a new table, for the Overwrite of version 1.
    create: CreateOptions | None = None
    # For a Delete or Update: offsets of the rows that it deletes or moves, by fragment. Without
    # them, a concurrent change of the same fragment is a conflict.
    affected_rows: AffectedRows | None = None
    # Read set of the work; rows that concurrent commits added to it are a conflict.
    reads: ReadSet | None = None
    # File version, for an Overwrite that changes it.
    data_storage_version: str | None = None


logger = logging.getLogger(__name__)

# Upper bound of rounds of reading newer versions in one attempt.
_MAX_ROUNDS = 4
# Time of polling for the lock of versions in turn; appends wait in its queue.
_POLL_S = 0.1

ReadManifest = Callable[[ObjectStore, ManifestLocation], ManifestFile]


def commit(
    store: ObjectStore,
    commit_request: CommitRequest,
    retries: Retries | None = None,
    *,
    read: ReadManifest = read_manifest,
    catches_up: bool = False,
) -> CommitResult:
    """Commit the requested version exactly once.

    Args:
        store: Store at the root of the table or branch.
        commit_request: The transaction and its base version.
        retries: Remaining attempts of the work that this commit is part of; None for the default.
        read: Reads a manifest or returns a cached one; fills in row counts of old releases.
        catches_up: Whether conflicts are checked in turn before the lock of versions is requested;
            not worth it for appends, which conflict with little.

    Raises:
        TableAlreadyExistsError: The table to be created exists. To append instead, the caller plans
            an Append on the newest version and commits that.
        StorageError: The store failed. Only with this error the outcome is uncertain, and files
            written for the transaction must stay.
        CancelledRequestError: The request was cancelled, and nothing was committed.
    """
    left = retries or Retries()
    clock = left.environment.monotonic
    work = _Commit(store, commit_request, read, left.environment, catches_up=catches_up)
    started = clock()
    attempts, failure = 1, None
    try:
        while True:
            try:
                result = work.attempt()
            except CancelledRequestError as error:
                if work.is_outcome_unknown:
                    raise work.exhausted_error(attempts, clock() - started) from error
                raise
            except (LanceError, OSError) as error:
                if not work.is_outcome_unknown or isinstance(error, TableGoneError):
                    raise
                result, failure = None, error  # keep looking for the outcome
            if result is not None:
                _log_commit(store, result, attempts, clock() - started)
                return result
            # A concurrent commit within this time outruns ours; it takes about as long as our
            # attempt.
            slot = 1.1 * (clock() - work.listed_at_s)
            if not left.again(slot_s=slot, since_s=started):
                raise work.exhausted_error(attempts, clock() - started) from (
                    failure or work.unknown_cause
                )
            attempts += 1
    except BaseException:
        work.remove_orphans()
        raise


def _log_commit(store: ObjectStore, result: CommitResult, attempts: int, seconds: float) -> None:
    """Log what the commit did, what the table has now, and how often it was tried."""
    if not logger.isEnabledFor(logging.INFO):
        return
    operation = result.transaction.operation
    done = [f"{name}: {count}" for name, count in operation_metrics(operation).items() if count]
    if isinstance(operation, CreateIndex):
        added = {entry.name for entry in operation.new_indices}
        removed = {entry.name for entry in operation.removed_indices} - added
        names = {"added indices": added, "removed indices": removed}
        done += [f"{title}: {', '.join(sorted(each))}" for title, each in names.items() if each]
    fragments = result.manifest.fragments
    logger.info(
        "committed version %d of %s: %s; rows: %d, fragments: %d, attempts: %d, seconds: %.3f",
        result.version,
        store.uri,
        ", ".join([type(operation).__name__, *done]),
        fragments.num_rows,
        len(fragments),
        attempts,
        seconds,
    )


class _Commit:
    """The commit of one transaction."""

    def __init__(
        self,
        store: ObjectStore,
        commit_request: CommitRequest,
        read: ReadManifest,
        environment: Environment,
        *,
        catches_up: bool,
    ) -> None:
        transaction = commit_request.transaction
        self._store = store
        self._commit_request = commit_request
        self._planned = transaction
        self._read = read
        self._environment = environment
        self._application = application_version(transaction.properties)
        self._newer = NewerVersions(store, transaction.read_version)
        self._checks = ConflictChecks(
            transaction.operation,
            store.uri,
            knows_rows=commit_request.affected_rows is not None,
            reads=commit_request.reads,
        )
        self._written_transaction: tuple[str, bytes] | None = None
        self._written_deletions: list[str] = []
        self._version = ManifestCommitter(store, environment.handler, transaction.uuid)
        self._catches_up = catches_up and commit_request.create is None
        self._caught_up: ManifestLocation | None = None  # The version up to which it is checked.
        self._has_listed = False
        self._has_waited = False  # For the lock, so that newer versions are expected.
        self._used_early_listing = False
        self.listed_at_s = 0.0  # Time of the last listing of versions, by the monotonic clock.

    def attempt(self) -> CommitResult | None:
        """Make one attempt; return None if a concurrent commit created the version first."""
        with ExitStack() as turn:
            if self._catches_up and not self.is_outcome_unknown:
                turn.enter_context(
                    advisory_lock(
                        self._store, TRANSACTIONS, LOCK_TIMEOUT_S, meanwhile=self._expect_newer
                    )
                )
                result = self._catch_up()
                if result is not None:
                    return result
            result = self._commit_with_lock(turn)
        if result is None and self._used_early_listing and not self.is_outcome_unknown:
            # The version existed before the attempt, so the attempt does not count.
            result = self._commit_with_lock(turn)
        return result

    def _commit_with_lock(self, turn: ExitStack) -> CommitResult | None:
        """Commit under the lock of versions; let the next writer catch up in the meantime."""
        self._has_waited = False
        poll_s = _POLL_S if self._catches_up else 0.0
        lock = advisory_lock(
            self._store, VERSIONS, LOCK_TIMEOUT_S, meanwhile=self._write_ahead, poll_s=poll_s
        )
        with lock:
            turn.close()
            if not self.is_outcome_unknown:
                check_cancelled()
            found = self._find_or_build()
            if not isinstance(found, CandidateVersion):
                return found
            if not self._version.put(found):
                return None
        return self._finish(found.result) if self._version.confirm() else None

    def _catch_up(self) -> CommitResult | None:
        """Check conflicts with the versions committed since the plan, as far as there are any.

        Returns the result if the work is already committed.
        """
        location = self._find_newest()
        if location is None or self._planned.read_version > location.version:
            return None
        self._caught_up = location
        if self._planned.read_version == location.version:
            return None
        try:
            self._check_base(location)
            newer = self._newer.up_to_location(location)
        except RetryableCommitError:
            self._caught_up = None
            return None  # perhaps removed since it was listed: then there are newer ones
        latest = cache(lambda: self._read(self._store, location))
        try:
            found = self._find_committed(latest, newer)
            common = set() if found is not None else self._checks.check(newer, latest)
        except FileNotFoundError:
            self._caught_up = None
            return None
        affected_rows = self._commit_request.affected_rows
        if affected_rows is not None:
            for fragment_id in common:
                affected_rows.get(fragment_id)  # loads them before the lock
        return found

    def _find_or_build(self) -> CommitResult | CandidateVersion | None:
        """Find the version of an earlier call, or build the next one; None to try again."""
        self.listed_at_s = self._environment.monotonic()
        pending = self._version.unknown_outcome
        if pending is not None:
            if self._version.retry_if_removed(pending):
                return self._finish(pending.result)
            if self._version.unknown_outcome is not None:
                return None
        location = self._find_newest()
        if self._commit_request.create is not None:
            if location is not None:
                return self._resolve_existing_table()
            return self._build(None, self._planned)
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
        latest, newer = self._read_newer_versions(latest)
        found = self._find_committed(lambda: latest, newer)
        return found or self._build(latest, self._rebase(latest, newer))

    def _find_newest(self) -> ManifestLocation | None:
        """Return the newest version, as far as an earlier listing shows it; then by a new one.

        Versions may be added between any listing and the put, so an older listing is as safe.
        """
        known, self._caught_up = self._caught_up, None
        if known is not None:
            known = self._newest_since(known)
        elif not self._has_listed and self._commit_request.create is None:
            seen = recently_listed_version(self._store, put_follows=True)
            is_usable = seen is not None and seen.version >= self._planned.read_version
            known = seen if is_usable else None
        self._has_listed = True
        self._used_early_listing = known is not None
        return known or latest_version(self._store)

    def _newest_since(self, known: ManifestLocation) -> ManifestLocation | None:
        """Return the newest version after ``known``, without a listing; None if it takes one."""
        if self._store.lists_names_only:
            return newest_since(self._store, known)
        return None if self._has_waited else known

    def _read_newer_versions(
        self, latest: ManifestFile
    ) -> tuple[ManifestFile, list[tuple[int, Transaction]]]:
        """Return the newest version and the transactions up to it.

        Reading many versions takes so long that newer ones appear meanwhile.  So versions are
        listed again afterwards, or a writer that is many versions behind would lose every race.
        """
        rounds = 0
        while True:
            self._check_base(latest.location, latest)
            newer = self._newer.up_to(latest)
            rounds += 1
            if self._newer.num_read <= 1 or rounds == _MAX_ROUNDS:
                return latest, newer
            self.listed_at_s = self._environment.monotonic()
            location = newest_since(self._store, latest.location) or latest_version(self._store)
            if location is None or location.version <= latest.manifest.version:
                return latest, newer
            with contextlib.suppress(FileNotFoundError):  # removed since, so there are newer ones
                latest = self._read(self._store, location)

    def _is_ours(self, location: ManifestLocation) -> bool:
        """Return whether the version at the location is ours."""
        return transaction_uuid_at(self._store, location) == self._planned.uuid

    # Before building ------------------------------------------------------------------------

    def _check_base(self, newest: ManifestLocation, latest: ManifestFile | None = None) -> None:
        """Check that the version the work was planned on is in the history of this table.

        ``latest``: the manifest at ``newest``, if it was read.
        """
        if self._commit_request.base is None:
            return
        number = self._commit_request.base.version
        if latest is not None and number == newest.version:
            manifest = latest.manifest
        else:
            path = manifest_path(number, newest.scheme)
            location = ManifestLocation(path, number, newest.scheme)
            try:
                manifest = self._read(self._store, location).manifest
            except FileNotFoundError as error:
                what = f"version {number}, which the work was planned on, was cleaned up"
                reason = ConflictReason.FILES_REMOVED
                raise RetryableCommitError(what, self._store.uri, REDO, reason) from error
        if BaseVersion.of(manifest) != self._commit_request.base:
            raise table_was_replaced(self._store.uri)

    def _is_base_there(self, latest: ManifestFile) -> bool:
        """Return whether the version the work was planned on exists, newer than any listed."""
        base = self._commit_request.base
        if base is None:
            return False
        path = manifest_path(base.version, latest.location.scheme)
        location = ManifestLocation(path, base.version, latest.location.scheme)
        with contextlib.suppress(FileNotFoundError):
            file = read_manifest(self._store, location, with_indices=False)
            return BaseVersion.of(file.manifest) == base
        return False

    def _resolve_existing_table(self) -> CommitResult:
        """Return our version if an earlier call created the table; raise if another writer did."""
        with contextlib.suppress(FileNotFoundError):
            first = find_version(self._store, 1)
            if self._is_ours(first):
                return self._result_at(first)
        raise TableAlreadyExistsError(f"there is already a table at {self._store.uri}")

    def _find_committed(
        self, load: Callable[[], ManifestFile], newer: Sequence[tuple[int, Transaction]]
    ) -> CommitResult | None:
        """Return the result if the work is already committed.

        ``load``: loads the newest version.
        """
        for version, theirs in newer:
            if theirs.uuid == self._planned.uuid:
                return self._result_of_earlier_call(version)
        wanted = self._application
        if wanted is None:
            return None
        latest = load()
        if is_committed(wanted, latest.manifest.config) or any(
            is_same_work(wanted, theirs.properties) for _, theirs in newer
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

    def _result_of_earlier_call(self, version: int) -> CommitResult:
        """Return our version, created by an earlier call."""
        try:
            return self._result_at(find_version(self._store, version))
        except FileNotFoundError as error:
            # Not a failure: the files belong to the versions after it.
            raise StorageError(
                f"the work is in the table as version {version}, which was cleaned up since",
                self._store.uri,
                "nothing is left to do",
            ) from error

    def _result_at(self, location: ManifestLocation) -> CommitResult:
        """Return our version, found in the store."""
        file = read_manifest(self._store, location)
        return CommitResult(
            location.version,
            file.manifest,
            file.indices,
            find_transaction(self._store, file) or self._planned,
            location,
        )

    def _rebase(
        self, latest: ManifestFile, newer: Sequence[tuple[int, Transaction]]
    ) -> Transaction:
        """Return the transaction rebased on all of ``newer``."""
        operation = self._planned.operation
        common = self._checks.check(newer, lambda: latest)
        if not common or self._commit_request.affected_rows is None:
            return self._planned
        if not isinstance(operation, Delete | Update):
            raise AssertionError("only rows are rebased")
        self._remove_deletions()  # of a failed attempt

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
            # Only the reader of the table knows the other root; planning again reads the file.
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

    # Building -------------------------------------------------------------------------------

    def _build(self, latest: ManifestFile | None, transaction: Transaction) -> CandidateVersion:
        """Build the version after ``latest``, and write its transaction file."""
        current = TableState(latest.manifest, latest.indices) if latest is not None else None
        state = next_manifest(
            current,
            transaction,
            now_ns=self._environment.now_ns(),
            restored=self._read_restored(transaction),
            create=self._commit_request.create,
            data_storage_version=self._commit_request.data_storage_version,
        )
        manifest = state.manifest
        manifest = replace(manifest, transaction_file=transaction_name(transaction))
        data = manifest_pieces(manifest, state.indices, transaction)
        self._write_transaction(transaction)
        if isinstance(transaction.operation, Restore):
            # Cleanups keep the restored version from now on; one that is already running may not.
            version = transaction.operation.version
            check_not_removed(self._store, find_version(self._store, version))

        scheme = latest.location.scheme if latest is not None else NamingScheme.V2
        path = manifest_path(manifest.version, scheme)
        location = ManifestLocation(path, manifest.version, scheme, sum(map(len, data)))
        result = CommitResult(manifest.version, manifest, state.indices, transaction, location)
        return CandidateVersion(result, data, latest)

    def _read_restored(self, transaction: Transaction) -> TableState | None:
        """Read the version that a Restore returns to."""
        if not isinstance(transaction.operation, Restore):
            return None
        version = transaction.operation.version
        # If the version is removed between listing and reading, the second listing raises the
        # error.
        file = retry_if_removed(
            self._store, lambda: self._read(self._store, find_version(self._store, version))
        )
        return TableState(file.manifest, file.indices)

    def _expect_newer(self) -> None:
        """Note that there will be newer versions after the wait for other writers."""
        self._has_listed = self._has_waited = True

    def _write_ahead(self) -> None:
        """Write the transaction file during the wait for other writers; most attempts need it.

        A transaction whose rows are in fragments of other commits is rebased on them again.
        """
        self._expect_newer()
        if not self._checks.common:
            with contextlib.suppress(LanceError, OSError):  # the attempt raises the error
                self._write_transaction(self._planned)

    def _write_transaction(self, transaction: Transaction) -> None:
        """Write the transaction file, unless an earlier attempt wrote the same."""
        name, data = transaction_name(transaction), transaction.to_bytes()
        if self._written_transaction == (name, data):
            return
        self._remove_transaction()
        write_transaction(self._store, transaction)
        self._written_transaction = (name, data)
        check_conditional_puts(self._store, f"{TRANSACTIONS}/{name}", data)

    def _finish(self, result: CommitResult) -> CommitResult:
        """Finish a successful commit; nothing here may fail."""
        self._written_transaction, self._written_deletions = None, []
        if not (self._store.lists_in_order or isinstance(self._store, LocalStore)):
            # A hint, never authoritative; not used for tables on a local file system.
            with contextlib.suppress(Exception):
                self._store.put(VERSION_HINT, b'{"version":%d}' % result.version)
        return result

    # Failure --------------------------------------------------------------------------------

    def exhausted_error(self, attempts: int, elapsed_s: float) -> LanceError:
        """Return the error after the last attempt."""
        if self._version.unknown_outcome is not None:
            return StorageError(
                "the store failed while a version was being committed; it may exist or appear yet",
                f"{self._store.uri}, transaction {self._planned.uuid}",
                "check the history of the table for the transaction before retrying",
            )
        return RetryableCommitError(
            f"concurrent writers committed first {attempts} times in {elapsed_s:.1f} s",
            self._store.uri,
            "try again; commitRetries and commitTimeout allow more",
            ConflictReason.VERSION_TAKEN,
        )

    @property
    def is_outcome_unknown(self) -> bool:
        """Return whether a manifest of ours may exist or still appear."""
        return self._version.unknown_outcome is not None

    @property
    def unknown_cause(self) -> Exception | None:
        """Return the error that left the outcome unknown."""
        return (
            self._version.unknown_outcome.cause
            if self._version.unknown_outcome is not None
            else None
        )

    def remove_orphans(self) -> None:
        """Remove our metadata files, unless a manifest may refer to them."""
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

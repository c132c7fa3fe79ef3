"""UnitOfWork: plan on the newest version, register all written files, commit once.

All kinds of conflicts share one retry budget. At the end, registered files that the committed
version does not refer to are removed, unless the outcome of the commit is unknown. An operation
whose input files were removed concurrently, as a cleanup does, is also planned again. A conflict
never applies the results of an old plan to a newer version.

Files of a failed write are removed if certainly no version refers to them. The caller often does
not know the outcome of the commit: Spark calls ``abort`` in another process, and also after a
commit whose response was lost.

Metadata commits (restore, properties) write no data.
"""

from __future__ import annotations

import contextlib
import logging
import uuid as uuids
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from pyspark_lance.cancellation import CancelledRequestError
from pyspark_lance.commit.application_versions import application_version, is_committed
from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_loop import CommitRequest, commit
from pyspark_lance.commit.commit_outcome import files_of, fragments_named
from pyspark_lance.commit.manifest_committer import (
    CommitResult,
    TableGoneError,
    missing_files,
    table_was_replaced,
)
from pyspark_lance.commit.retries import (
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT_S,
    LOCK_TIMEOUT_S,
    Environment,
    Retries,
)
from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    MissingFileError,
    RetryableCommitError,
    StorageError,
)
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import (
    Append,
    CreateIndex,
    Operation,
    Restore,
    UpdateConfig,
    UpdateMap,
)
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import find_transaction, list_versions, read_manifest
from pyspark_lance.metafile.paths import TRANSACTIONS, VERSIONS, index_path
from pyspark_lance.store.advisory_lock import advisory_lock
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.cleanup.auto_cleanup import clean_up_after
from pyspark_lance.table.version.snapshot import (
    LATEST,
    OWN_PREFIX,
    Snapshot,
    VersionSpec,
    cached_manifest_reader,
)
from pyspark_lance.table.version.table import MAIN, Table, TableKey

logger = logging.getLogger(__name__)

NO_PROPERTIES: Final[Mapping[str, str]] = MappingProxyType({})

_R = TypeVar("_R")

# Maximum wait for the advisory lock after a conflict.
_AGAIN_S = 10.0
# After so many operations in a row that had a conflict, the next ones take the lock first.
_MAX_CONFLICTS = 3
_REMEMBERED = 16
_MAX_TABLES = 1000

# By table, the number of remaining such operations; negative, the conflicts in a row.
_conflicts: dict[TableKey, int] = {}


class UnitOfWork:
    """An operation on a table, with retries."""

    def __init__(
        self,
        table: Table,
        settings: CommitSettings,
        *,
        retries: Retries | None = None,
        environment: Environment | None = None,
    ) -> None:
        self._table = table
        self._settings = settings
        self._retries = retries or Retries(settings.retries, settings.timeout_s, environment)
        self._written: set[str] = set()
        self._results: list[CommitResult] = []
        self._committed: CommitResult | None = None
        # Whether a version may refer to the files because the outcome is unknown.
        self._unknown_outcome = False

    def run(self, attempt: Callable[[UnitOfWork], _R]) -> _R:
        """Run ``attempt``, which plans, executes and commits, until it succeeds.

        ``attempt``: opens the newest version itself, each time. The timeout starts with the first
        conflict, so a long job may run twice.
        """
        missing = ""
        expected = self._expects_conflicts()
        lock: AbstractContextManager[object] = (
            self.lock_for_change(LOCK_TIMEOUT_S) if expected else nullcontext()
        )
        is_first = True
        with self._finish_files():
            while True:
                try:
                    with lock:
                        done = attempt(self)
                    if is_first and not expected:
                        self._forget_conflicts()
                    return done
                except RetryableCommitError as error:
                    if is_first:
                        self._remember_conflict()
                    self.wait_for_retry(error)
                except MissingFileError as error:
                    # A cleanup may have removed files of old versions; the newest version has all
                    # of its files.
                    if error.where == missing or not self.retries.plan_again():
                        raise
                    missing = error.where
                    logger.info("planning again, because a file was removed: %s", error.where)
                # A retry keeps the lock until it is done; concurrent first attempts wait before
                # their commit.
                lock, is_first = self.lock_for_change(min(self.retries.left_s, _AGAIN_S)), False

    def once(self, attempt: Callable[[UnitOfWork], _R]) -> _R:
        """Run a single attempt of an operation that the caller retries."""
        with self._finish_files():
            return attempt(self)

    @contextmanager
    def _finish_files(self) -> Iterator[None]:
        """Remove unreferenced files afterwards; old versions, too, if automatic cleanup is on."""
        try:
            yield
        finally:
            self._remove_files()
        if self._committed is not None:
            clean_up_after(self._table, self._committed)

    def _expects_conflicts(self) -> bool:
        """Return whether the last operations of this process on the table had conflicts.

        In that case, further operations would probably conflict, so they take the lock first.
        """
        if not _conflicts:  # fast path: conflicts are rare
            return False
        key = self._table.key()
        left = _conflicts.get(key, 0)
        if left > 1:
            _conflicts[key] = left - 1
        elif left == 1:
            _conflicts.pop(key, None)
        return left > 0

    def _remember_conflict(self) -> None:
        if len(_conflicts) >= _MAX_TABLES:
            _conflicts.clear()
        key = self._table.key()
        left = min(_conflicts.get(key, 0), 0) - 1
        _conflicts[key] = _REMEMBERED if left <= -_MAX_CONFLICTS else left

    def _forget_conflicts(self) -> None:
        """Start to count conflicts in a row again."""
        if _conflicts:
            _conflicts.pop(self._table.key(), None)

    def wait_for_retry(self, conflict: RetryableCommitError) -> None:
        """Wait for the next attempt after a conflict."""
        left = self._retries
        if not left.plan_again():
            raise RetryableCommitError(
                f"concurrent commits conflicted {left.attempts} times in "
                f"{left.elapsed_s:.1f} s; the last time: {conflict.what}",
                conflict.where,
                "run it again, or allow more with commitRetries and commitTimeout",
                conflict.conflict,
            ) from conflict
        logger.info("planning again after a conflict: %s (%s)", conflict.what, conflict.conflict)

    @property
    def retries(self) -> Retries:
        """The remaining retry budget."""
        return self._retries

    @contextmanager
    def lock_for_change(self, timeout_s: float) -> Iterator[None]:
        """Acquire the lock of commits that, unlike appends, may cause concurrent retries.

        A commit that has passed this lock holds the lock of versions until it is done.
        """
        store = self._table.store()
        with advisory_lock(store, TRANSACTIONS, timeout_s) as is_held:
            if is_held:
                with advisory_lock(store, VERSIONS, timeout_s):
                    pass
            yield

    def register(self, fragments: Iterable[Fragment]) -> None:
        """Register fragments whose files this operation has written."""
        self._written |= files_of(fragments)

    def register_files(self, paths: Iterable[str]) -> None:
        """Register files, by their paths below the root, that this operation has written."""
        self._written.update(paths)

    def propose(
        self,
        base: BaseVersion | None,
        operation: Operation,
        *,
        uuid: str | None = None,
        properties: Mapping[str, str] = NO_PROPERTIES,
    ) -> CommitRequest:
        """Return the request for ``commit``.

        ``base``: the version that the operation was planned on; None creates the table. ``uuid``:
        of the transaction; None for a new one. ``properties``: besides those of the settings.
        """
        transaction = Transaction(
            read_version=0 if base is None else base.version,
            uuid=uuid or str(uuids.uuid4()),
            operation=operation,
            properties={**self._settings.properties, **properties},
        )
        return CommitRequest(transaction, base)

    def commit(self, commit_request: CommitRequest) -> CommitResult | None:
        """Commit a version; None if the same (application, version) pair was committed before.

        Raises:
            StorageError: The outcome of the commit is unknown.
        """
        is_append = isinstance(commit_request.transaction.operation, Append)
        self._unknown_outcome = True
        try:
            result = commit(
                self._table.store(),
                commit_request,
                self._retries,
                read=cached_manifest_reader(self._table),
                catches_up=not is_append,
            )
        except (LanceError, CancelledRequestError) as error:
            self._unknown_outcome = isinstance(error, StorageError | TableGoneError)
            raise
        self._unknown_outcome = False
        self._results.append(result)
        if result.already_committed:
            return None
        self._committed = result
        return result

    def _remove_files(self) -> None:
        """Remove unreferenced files; never fails, since the commit may have succeeded."""
        if self._unknown_outcome:
            return
        try:
            self._remove_unreferenced_files()
        except Exception as error:  # noqa: BLE001 - a store also raises errors of its client
            logger.warning("files of a write to %s were kept: %s", self._table.uri, error)

    def _remove_unreferenced_files(self) -> None:
        left = set(self._written)
        for result in self._results:
            operation = result.transaction.operation
            if not result.already_committed:
                left -= files_of(fragments_named(operation))
                if isinstance(operation, CreateIndex):
                    folders = tuple(index_path(index.uuid, "") for index in operation.new_indices)
                    left = {path for path in left if not path.startswith(folders)}
            if left:  # rarely: a version may have very many fragments
                left -= files_of(result.manifest.fragments)
        remove_files(self._table.store(), left)


def commit_on_newest(
    table: Table, plan: Callable[[Snapshot], Operation | None], settings: CommitSettings
) -> CommitResult | None:
    """Commit the operation that ``plan`` returns for the newest version, with retries.

    ``plan``: given the newest version; None if there is nothing to do.
    """

    def attempt(work: UnitOfWork) -> CommitResult | None:
        snapshot = Snapshot.open(table)
        operation = None if settings.is_committed_in(snapshot) else plan(snapshot)
        if operation is None:
            return None
        return work.commit(work.propose(BaseVersion.of(snapshot.manifest), operation))

    return UnitOfWork(table, settings).run(attempt)


def remove_files(store: ObjectStore, paths: Iterable[str]) -> None:
    """Remove unreferenced files; best effort.

    A cleanup removes the rest; the original error is more important.
    """
    files = sorted(set(paths))
    if files:
        with contextlib.suppress(Exception):
            store.delete_many(files)


def remove_unless_committed(
    table: Table, uuid: str, read_version: int, files: Collection[str]
) -> None:
    """Remove files, unless a version refers to one, or their commit may still succeed."""
    try:
        store = table.store()
        may_be_committed = _may_commit(store, uuid) or _is_committed(
            store, uuid, read_version, files
        )
    except (LanceError, OSError) as error:
        logger.warning("kept the files of a failed write, since its outcome is unknown: %s", error)
        return
    if not may_be_committed:
        remove_files(store, files)


def _may_commit(store: ObjectStore, uuid: str) -> bool:
    """Return whether the transaction file exists: it was committed, or its outcome is unknown."""
    return any(info.path.endswith(f"-{uuid}.txn") for info in store.list(TRANSACTIONS))


def _is_committed(store: ObjectStore, uuid: str, read_version: int, files: Collection[str]) -> bool:
    """Return whether an existing version was committed by the transaction or has its files.

    The version itself may have been cleaned up, so all newer versions are searched.
    """
    for location in reversed(list_versions(store)):
        if location.version <= read_version:
            return False
        file = read_manifest(store, location, with_indices=False)
        if not files_of(file.manifest.fragments).isdisjoint(files):
            return True
        transaction = find_transaction(store, file)
        if transaction is not None and transaction.uuid == uuid:
            return True
    return False


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """Settings of a commit."""

    properties: Mapping[str, str] = field(default_factory=dict)  # Stored in the transaction.
    # Maximum retries after conflicts of any kind.
    retries: int = DEFAULT_RETRIES
    # Seconds after the first conflict after which there are no more retries.
    timeout_s: float = DEFAULT_TIMEOUT_S
    # Whether column names may differ only by case.
    case_sensitive: bool = False

    def is_committed_in(self, snapshot: Snapshot) -> bool:
        """Return whether the (application, version) pair of the properties was committed."""
        wanted = application_version(self.properties)
        return wanted is not None and is_committed(wanted, snapshot.manifest.config)


CONFIG_PREFIX = "lance."
"""Prefix of properties that Lance itself uses; they are stored in the configuration."""


@dataclass(frozen=True, slots=True)
class MetadataResult:
    """The result of a metadata commit.

    Attributes:
        version: The committed version; None if nothing changed.
    """

    version: int | None = None


def restore(
    table: Table, at: VersionSpec, settings: CommitSettings | None = None
) -> MetadataResult:
    """Commit an old version as the newest; its files must still exist.

    Later versions stay in the history. Restoring the newest version is a no-op.
    """
    if at == LATEST:
        raise InvalidInputError("restore takes a version, a tag or a timestamp")
    old = Snapshot.open(table, at)
    is_again = False

    def plan(newest: Snapshot) -> Operation | None:
        nonlocal is_again
        if newest.manifest.branch != old.manifest.branch:
            raise InvalidInputError(
                f"version {old.version} belongs to the branch {old.manifest.branch or MAIN!r}",
                where=newest.uri,
                hint="restore it there",
            )
        there = Snapshot.open(old.table, VersionSpec(version=old.version))
        if BaseVersion.of(there.manifest) != BaseVersion.of(old.manifest):
            raise table_was_replaced(newest.store.uri)
        if is_again:
            _check_files(there, newest)
        is_again = True
        return None if newest.version == old.version else Restore(old.version)

    return change_metadata(table, plan, settings)


def _check_files(old: Snapshot, newest: Snapshot) -> None:
    """Reject a version with missing files, without a retry."""
    files = files_of(old.manifest.fragments, own=True)
    files -= files_of(newest.manifest.fragments, own=True)
    if missing := missing_files(newest.store, files):
        raise MissingFileError(
            f"a file of version {old.version} is missing",
            where=f"{newest.store.uri}/{missing[0]}",
            hint="it may have been cleaned up; restore another version, or the file",
        )


def set_properties(
    table: Table, changes: Mapping[str, str | None], settings: CommitSettings | None = None
) -> MetadataResult:
    """Set properties of a table; None removes one.

    Keys with the prefix ``lance.`` are stored in the configuration, where Lance reads them, all
    others in the table metadata.
    """
    for key, value in changes.items():
        if not key or key.startswith(OWN_PREFIX):
            raise InvalidInputError(f"{key!r} is not the name of a property")
        if value is not None and not isinstance(value, str):
            raise InvalidInputError(f"the property {key!r} is {value!r}, not a string")

    def plan(newest: Snapshot) -> Operation | None:
        manifest = newest.manifest
        ours = {key: value for key, value in changes.items() if key.startswith(CONFIG_PREFIX)}
        # A key that is already in the configuration stays there.
        ours |= {key: value for key, value in changes.items() if key in manifest.config}
        others = {key: value for key, value in changes.items() if key not in ours}
        to_config = _effective_changes(manifest.config, ours)
        to_metadata = _effective_changes(manifest.table_metadata, others)
        if to_config is None and to_metadata is None:
            return None
        return UpdateConfig(config_updates=to_config, table_metadata_updates=to_metadata)

    return change_metadata(table, plan, settings)


def _effective_changes(
    now: Mapping[str, str], changes: Mapping[str, str | None]
) -> UpdateMap | None:
    """Return the effective changes; None without any."""
    entries = tuple((key, value) for key, value in changes.items() if now.get(key) != value)
    return UpdateMap(entries) if entries else None


def change_metadata(
    table: Table,
    plan: Callable[[Snapshot], Operation | None],
    settings: CommitSettings | None = None,
) -> MetadataResult:
    """Commit the operation that ``plan`` returns for the newest version, if any."""
    result = commit_on_newest(table, plan, settings or CommitSettings())
    return MetadataResult(None if result is None else result.version)

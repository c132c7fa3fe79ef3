"""UnitOfWork: plan on the newest version, register every file that is written, commit once.

One count of retries serves all that can be in the way, and one rule says which files go when the
work ends: those that it registered and that the version it made does not name; none as long as it
is not known whether a version was made.  Work of which others removed a file, as a cleanup does
with versions that are not the newest, is planned again, too.  A conflict is never settled by
pretending that old work was done on a newer version.
"""

from __future__ import annotations

import logging
import uuid as uuids
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TypeVar

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_loop import commit
from pyspark_lance.commit.commit_outcome import files_of, fragments_named
from pyspark_lance.commit.commit_request import CommitRequest
from pyspark_lance.commit.manifest_committer import CommitResult, TableGoneError
from pyspark_lance.commit.retries import TURN_S, Environment, Retries
from pyspark_lance.errors import LanceError, MissingFileError, RetryableCommitError, StorageError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Append, CreateIndex, Operation
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.paths import TRANSACTIONS, index_path
from pyspark_lance.store.advisory_lock import advisory_lock
from pyspark_lance.table.cleanup.auto_cleanup import clean_up_after
from pyspark_lance.table.version.snapshot import Snapshot, known_manifests
from pyspark_lance.table.version.table import Table, TableKey
from pyspark_lance.table.work.commit_settings import CommitSettings
from pyspark_lance.table.work.written_files import remove_files

logger = logging.getLogger(__name__)

_R = TypeVar("_R")

# So long others are waited for by whoever has met a conflict, at most.
_AGAIN_S = 10.0
# After a conflict so many works of a process begin with their turn.
_REMEMBERED = 16
_MAX_TABLES = 1000

# By table, how many works are left that do.
_conflicts: dict[TableKey, int] = {}


class UnitOfWork:
    """One piece of work on a table, in as many attempts as it takes."""

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
        self._landed: CommitResult | None = None
        # Whether a version may name the files without our knowing.
        self._unknown_outcome = False

    def run(self, attempt: Callable[[UnitOfWork], _R]) -> _R:
        """Runs ``attempt``, which plans, works and commits, until no conflict is left.

        ``attempt``: opens the newest version itself, each time. The time that it takes before it
        meets the first conflict does not count: a long job may run twice.
        """

        def until_done(work: UnitOfWork) -> _R:
            missing = ""
            turns: AbstractContextManager[object] = nullcontext()
            if self._expects_conflicts():
                turns = work.turn_to_change(TURN_S)
            while True:
                try:
                    with turns:
                        return attempt(work)
                except RetryableCommitError as error:
                    self._remember_conflict()
                    work.spend_attempt(error)
                except MissingFileError as error:
                    # Others may have made newer versions and cleaned up; the newest one has all
                    # its files.
                    if error.where == missing or not work.retries.plan_again():
                        raise
                    missing = error.where
                    logger.info("planning again, as a file is gone: %s", error.where)
                # Whoever works again has the turn until it is done; a first attempt that is in its
                # way waits with its commit.
                turns = work.turn_to_change(min(work.retries.left_s, _AGAIN_S))

        return self.once(until_done)

    def once(self, attempt: Callable[[UnitOfWork], _R]) -> _R:
        """Runs work that whoever called plans again.

        Afterwards the files that no version names are removed, and old versions where the table is
        configured to.
        """
        try:
            done = attempt(self)
        finally:
            self._remove_files()
        if self._landed is not None:
            clean_up_after(self._table, self._landed)
        return done

    def _expects_conflicts(self) -> bool:
        """Whether work of this process on the table has met a conflict lately.

        Then the next ones, too, would do most things twice, and wait for their turn anyway.
        """
        if not _conflicts:  # most work meets none
            return False
        key = self._table.key()
        left = _conflicts.get(key, 0)
        if left > 1:
            _conflicts[key] = left - 1
        else:
            _conflicts.pop(key, None)
        return left > 0

    def _remember_conflict(self) -> None:
        if len(_conflicts) >= _MAX_TABLES:
            _conflicts.clear()
        _conflicts[self._table.key()] = _REMEMBERED

    def spend_attempt(self, conflict: RetryableCommitError) -> None:
        """Waits for the next attempt after a conflict."""
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
        """The attempts that are left."""
        return self._retries

    def turn_to_change(self, patience_s: float) -> AbstractContextManager[object]:
        """The turn of a writer whose commit may make others plan anew, which appends do not."""
        return advisory_lock(self._table.store(), TRANSACTIONS, patience_s)

    def register(self, fragments: Iterable[Fragment]) -> None:
        """Takes note of fragments whose files this work has written."""
        self._written |= files_of(fragments)

    def register_files(self, paths: Iterable[str]) -> None:
        """Takes note of files, by their paths below the root, that this work has written."""
        self._written.update(paths)

    def propose(
        self, base: BaseVersion | None, operation: Operation, *, uuid: str | None = None
    ) -> CommitRequest:
        """What ``commit`` takes.

        ``base``: the version that the work was planned on; None makes the table. ``uuid``: names
        the transaction, where others have to know it; None for a new name.
        """
        transaction = Transaction(
            read_version=0 if base is None else base.version,
            uuid=uuid or str(uuids.uuid4()),
            operation=operation,
            properties=dict(self._settings.properties),
        )
        return CommitRequest(transaction, base)

    def commit(self, commit_request: CommitRequest) -> CommitResult | None:
        """Makes the version; None if work with the same (application, version) pair made one.

        Raises:
            StorageError: It is not certain whether the version was made.
        """
        is_append = isinstance(commit_request.transaction.operation, Append)
        self._unknown_outcome = True
        try:
            with nullcontext() if is_append else self.turn_to_change(TURN_S):
                result = commit(
                    self._table.store(),
                    commit_request,
                    self._retries,
                    read=known_manifests(self._table),
                )
        except LanceError as error:
            self._unknown_outcome = isinstance(error, StorageError | TableGoneError)
            raise
        self._unknown_outcome = False
        self._results.append(result)
        if result.already_committed:
            return None
        self._landed = result
        return result

    def _remove_files(self) -> None:
        """Remove the files that no version names; never fails, since a version may be made."""
        if self._unknown_outcome:
            return
        try:
            self._remove_unnamed_files()
        except Exception as error:  # noqa: BLE001 - a store raises errors of its client, too
            logger.warning("files of a write to %s were kept: %s", self._table.uri, error)

    def _remove_unnamed_files(self) -> None:
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
    """Commits what ``plan`` makes of the newest version, again if others were in the way.

    ``plan``: given the newest version; None if there is nothing to do.
    """

    def attempt(work: UnitOfWork) -> CommitResult | None:
        snapshot = Snapshot.open(table)
        operation = None if settings.is_done_in(snapshot) else plan(snapshot)
        if operation is None:
            return None
        return work.commit(work.propose(BaseVersion.of(snapshot.manifest), operation))

    return UnitOfWork(table, settings).run(attempt)

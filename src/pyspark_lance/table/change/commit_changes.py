"""What tasks did to rows becomes one version: a Delete if rows only went, else an Update.

What an attempt wrote is removed when it is certain that no version refers to it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark_lance.commit.commit_loop import commit
from pyspark_lance.commit.judge_newer import Reads
from pyspark_lance.commit.retries import Retries
from pyspark_lance.commit.version_put import CommitResult
from pyspark_lance.errors import LanceError, StorageError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Delete, Update
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.table.change.deletions import AffectedRows, FragmentLoss
from pyspark_lance.table.change.moved_rows import WrittenChanges
from pyspark_lance.table.change.reads import EVERYTHING
from pyspark_lance.table.change.row_change import ChangePlan, ChangeResult
from pyspark_lance.table.cleanup.auto_cleanup import clean_up_after
from pyspark_lance.table.rows.write_fragments import remove_data_files
from pyspark_lance.table.version.snapshot import Snapshot, known_manifests


@dataclass(frozen=True, slots=True)
class RowChanges:
    """All that the tasks of one attempt did.

    Attributes:
        plan: What they were given.
        losses: Each touched fragment once.
        new_fragments: Rows that moved or were inserted.
        num_inserted_rows: Rows that are new.
        num_updated_rows: Rows that moved.
        assigned: Columns that got values, for the indices; empty for none.
        only_deletes: The job can only delete.
        reads: What was looked at; rows that others brought there make the work plan again.
        description: What was asked for, for people.
    """

    plan: ChangePlan
    losses: tuple[FragmentLoss, ...]
    new_fragments: tuple[Fragment, ...] = ()
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    assigned: frozenset[str] = frozenset()
    only_deletes: bool = False
    reads: Reads | None = None
    description: str = ""

    @property
    def repeated(self) -> int | None:
        """Address of a row that was matched more than once."""
        return next((loss.repeated for loss in self.losses if loss.repeated is not None), None)


def gathered(
    plan: ChangePlan, written: Iterable[WrittenChanges], losses: Iterable[FragmentLoss]
) -> RowChanges:
    """The work of all tasks together."""
    pieces = list(written)
    return RowChanges(
        plan=plan,
        losses=tuple(losses),
        new_fragments=tuple(fragment for piece in pieces for fragment in piece.fragments),
        num_inserted_rows=sum(piece.num_inserted_rows for piece in pieces),
        num_updated_rows=sum(piece.num_updated_rows for piece in pieces),
    )


def delete_everything(plan: ChangePlan, description: str) -> RowChanges:
    """Every row goes: nothing is read or written."""
    losses = tuple(
        FragmentLoss(fragment.id, fragment.num_rows)
        for fragment in plan.snapshot().manifest.fragments
    )
    return RowChanges(plan, losses, only_deletes=True, reads=EVERYTHING, description=description)


def commit_changes(changes: RowChanges, retries: Retries | None = None) -> ChangeResult:
    """Makes the version that holds all changes, unless there are none.

    Args:
        changes: What the tasks did.
        retries: What is left to work that is planned again; None for work that is not.

    Raises:
        RetryableCommitError: The work must be planned again on the newest version.
        CommitConflictError: Another commit makes the work pointless.
        StorageError: It is not certain whether the version was made.
    """
    lost = [loss for loss in changes.losses if loss.num_gone]
    if not lost and not changes.new_fragments:
        return ChangeResult()
    plan = changes.plan
    try:
        operation = _operation(changes, lost)
        transaction = Transaction(
            read_version=plan.read_version,
            uuid=plan.transaction_uuid,
            operation=operation,
            properties=dict(plan.settings.properties),
        )
        result = commit(
            plan.table.store(),
            transaction,
            base=plan.base,
            affected_rows=AffectedRows(plan, lost),
            read=known_manifests(plan.table),
            reads=changes.reads,
            retries=retries or plan.settings.retrying(),
        )
    except LanceError as error:
        if not isinstance(error, StorageError):
            remove_files(changes)
        raise
    if result.already_committed:
        remove_files(changes)
        return ChangeResult()
    _remove_superseded(plan, operation, result)
    clean_up_after(plan.table, result)
    num_gone = sum(loss.num_gone for loss in lost)
    return ChangeResult(
        version=result.version,
        num_inserted_rows=changes.num_inserted_rows,
        num_updated_rows=changes.num_updated_rows,
        num_deleted_rows=num_gone - changes.num_updated_rows,
    )


Prepared = Callable[[Retries], ChangeResult]
"""Work that is done but for its commit, which is given the retries that are left."""


def prepared(changes: RowChanges) -> Prepared:
    """The commit of some changes."""
    return partial(commit_changes, changes)


def remove_files(changes: RowChanges) -> None:
    """Removes what the tasks wrote; best effort, since cleanup finds what is left."""
    store = changes.plan.table.store()
    remove_data_files(store, changes.new_fragments)
    _remove(
        changes.plan,
        [
            deletion_path(loss.fragment_id, loss.deletion_file)
            for loss in changes.losses
            if loss.deletion_file is not None
        ],
    )


def _operation(changes: RowChanges, lost: Sequence[FragmentLoss]) -> Delete | Update:
    snapshot = changes.plan.snapshot()
    before = {fragment.id: fragment for fragment in snapshot.manifest.fragments}
    ordered = sorted(lost, key=lambda loss: loss.fragment_id)
    updated = tuple(
        replace(before[loss.fragment_id], deletion_file=loss.deletion_file)
        for loss in ordered
        if loss.deletion_file is not None
    )
    removed = tuple(loss.fragment_id for loss in ordered if loss.deletion_file is None)
    if changes.only_deletes:
        return Delete(updated, removed, changes.description)
    return Update(
        removed_fragment_ids=removed,
        updated_fragments=updated,
        new_fragments=changes.new_fragments,
        fields_for_preserving_frag_bitmap=_field_ids(snapshot, changes.assigned),
    )


def _field_ids(snapshot: Snapshot, columns: frozenset[str]) -> tuple[int, ...]:
    """Ids of all fields below the columns: their indices must not take new fragments for known."""
    return tuple(
        part.id
        for field in snapshot.schema.fields
        if field.name in columns
        for part in field.walk()
    )


def _remove_superseded(plan: ChangePlan, planned: Delete | Update, result: CommitResult) -> None:
    """Deletion files that were united with others' on the way into the table."""
    committed = result.transaction.operation
    if not isinstance(committed, Delete | Update) or committed is planned:
        return
    kept = {fragment.id: fragment.deletion_file for fragment in committed.updated_fragments}
    _remove(
        plan,
        [
            deletion_path(fragment.id, fragment.deletion_file)
            for fragment in planned.updated_fragments
            if fragment.deletion_file is not None
            and kept.get(fragment.id) != fragment.deletion_file
        ],
    )


def _remove(plan: ChangePlan, paths: Sequence[str]) -> None:
    if paths:
        with contextlib.suppress(LanceError, OSError):
            plan.table.store().delete_many(paths)

"""What tasks did to rows becomes one version: a Delete if rows only went, else an Update."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.commit.fragments_by_id import FragmentsById
from pyspark_lance.commit.manifest_committer import CommitResult
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Delete, Update
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.table.dml.choose_rewrite import RewriteChoice
from pyspark_lance.table.dml.deletions import AffectedRows, FragmentLoss
from pyspark_lance.table.dml.inserted_keys import key_filter
from pyspark_lance.table.dml.moved_rows import WrittenChanges
from pyspark_lance.table.dml.read_set import EVERYTHING
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.work.unit_of_work import UnitOfWork


@dataclass(frozen=True, slots=True)
class RowChanges:
    """All that the tasks of one attempt did."""

    plan: DmlPlan
    losses: tuple[FragmentLoss, ...]  # Each touched fragment once.
    new_fragments: tuple[Fragment, ...] = ()
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    # ``NewKeys.packed`` of each task; whether they are noted for others.
    new_keys: tuple[bytes, ...] = ()
    notes_keys: bool = False
    # Columns that got values, for the indices; empty for none.
    assigned: frozenset[str] = frozenset()
    only_deletes: bool = False  # The job can only delete.
    # What was looked at; rows that others brought there make the work plan again.
    reads: ReadSet | None = None
    description: str = ""  # What was asked for, for people.

    @property
    def repeated(self) -> int | None:
        """Address of a row that was matched more than once."""
        return next((loss.repeated for loss in self.losses if loss.repeated is not None), None)

    @property
    def files(self) -> frozenset[str]:
        """Paths of all files that were written."""
        deletions = (
            deletion_path(loss.fragment_id, loss.deletion_file)
            for loss in self.losses
            if loss.deletion_file is not None
        )
        return files_of(self.new_fragments).union(deletions)


def gathered(
    plan: DmlPlan, written: Iterable[WrittenChanges], losses: Iterable[FragmentLoss]
) -> RowChanges:
    """The work of all tasks together."""
    pieces = list(written)
    return RowChanges(
        plan=plan,
        losses=tuple(losses),
        new_fragments=tuple(fragment for piece in pieces for fragment in piece.fragments),
        num_inserted_rows=sum(piece.num_inserted_rows for piece in pieces),
        num_updated_rows=sum(piece.num_updated_rows for piece in pieces),
        new_keys=tuple(piece.new_keys for piece in pieces if piece.new_keys),
    )


def delete_everything(plan: DmlPlan, description: str) -> RowChanges:
    """Every row goes: nothing is read or written."""
    losses = tuple(
        FragmentLoss(fragment.id, fragment.num_rows)
        for fragment in plan.snapshot().manifest.fragments
    )
    return RowChanges(plan, losses, only_deletes=True, reads=EVERYTHING, description=description)


def commit_changes(changes: RowChanges, work: UnitOfWork) -> ChangeResult:
    """Makes the version of all changes, unless there are none; see ``commit_row_changes``."""
    result = commit_row_changes(changes, work)
    if result is None:
        return ChangeResult()
    num_gone = sum(loss.num_gone for loss in changes.losses)
    return ChangeResult(
        version=result.version,
        numInsertedRows=changes.num_inserted_rows,
        numUpdatedRows=changes.num_updated_rows,
        numDeletedRows=num_gone - changes.num_updated_rows,
    )


def commit_row_changes(changes: RowChanges, work: UnitOfWork) -> CommitResult | None:
    """Makes the version that holds all changes; None if there are none, or were before.

    Raises StorageError: it is not certain whether the version was made.
    """
    work.register_files(changes.files)
    lost = [loss for loss in changes.losses if loss.num_gone]
    if not lost and not changes.new_fragments:
        return None
    plan = changes.plan
    commit_request = work.propose(plan.base, _operation(changes, lost), uuid=plan.transaction_uuid)
    return work.commit(
        replace(commit_request, affected_rows=AffectedRows(plan, lost), reads=changes.reads)
    )


Prepared = Callable[[UnitOfWork], ChangeResult]
"""Work that is done but for its commit."""


def prepared(changes: RowChanges) -> Prepared:
    """The commit of some changes."""
    return partial(commit_changes, changes)


def explained(work: Prepared, choice: RewriteChoice) -> Prepared:
    """The same commit, whose result says why rows or columns were rewritten."""
    return lambda unit: replace(work(unit), rewrite=choice)


def _operation(changes: RowChanges, lost: Sequence[FragmentLoss]) -> Delete | Update:
    snapshot = changes.plan.snapshot()
    before = FragmentsById(snapshot.manifest.fragments)
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
        inserted_rows=(
            key_filter(changes.plan.schema, changes.new_keys) if changes.notes_keys else None
        ),
    )


def _field_ids(snapshot: Snapshot, columns: frozenset[str]) -> tuple[int, ...]:
    """Ids of all fields below the columns: their indices must not take new fragments for known."""
    return tuple(
        part.id
        for field in snapshot.schema.fields
        if field.name in columns
        for part in field.walk()
    )

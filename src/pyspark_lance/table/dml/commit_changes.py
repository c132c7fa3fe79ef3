"""Commit the results of all tasks as one version: Delete if rows were only deleted, else Update.

A commit that applies the changes of a source table also records up to which version of the source
the changes are applied, so both are atomic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pyspark_lance.commit.application_versions import (
    CONFIG_PREFIX,
    SOURCE_PREFIX,
    application_of_source,
    application_version,
    config_with_application_version,
    recorded_version,
)
from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.commit.fragment_changes import FragmentsById
from pyspark_lance.commit.manifest_committer import CommitResult
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Delete, Update, UpdateConfig, UpdateMap
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.table.dml.deletions import AffectedRows, FragmentDeletions
from pyspark_lance.table.dml.key_cache import remember_row_keys
from pyspark_lance.table.dml.key_filter import key_filter, row_keys_property
from pyspark_lance.table.dml.moved_rows import WrittenChanges
from pyspark_lance.table.dml.read_set import EVERYTHING
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan, RewriteChoice
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The combined results of the tasks of one attempt."""

    plan: DmlPlan
    deletions: tuple[FragmentDeletions, ...]  # Each affected fragment once.
    new_fragments: tuple[Fragment, ...] = ()
    num_inserted_rows: int = 0
    num_updated_rows: int = 0
    # ``NewKeys.to_bytes`` of each task; whether the transaction stores them.
    new_keys: tuple[bytes, ...] = ()
    stores_keys: bool = False
    # ``RowKeys.to_bytes`` of each task that wrote rows.
    row_keys: tuple[bytes | None, ...] = ()
    # Assigned columns, for the coverage of indices.
    assigned: frozenset[str] = frozenset()
    only_deletes: bool = False  # The statement can only delete.
    # Concurrent changes to rows of the read set make the statement plan again.
    reads: ReadSet | None = None
    description: str = ""  # The statement, as shown to users.

    @property
    def repeated(self) -> int | None:
        """Address of a row that was matched more than once."""
        return next(
            (deletion.repeated for deletion in self.deletions if deletion.repeated is not None),
            None,
        )

    @property
    def files(self) -> frozenset[str]:
        """Paths of all written files."""
        deletions = (
            deletion_path(deletion.fragment_id, deletion.deletion_file)
            for deletion in self.deletions
            if deletion.deletion_file is not None
        )
        return files_of(self.new_fragments).union(deletions)


def combine_results(
    plan: DmlPlan, written: Iterable[WrittenChanges], deletions: Iterable[FragmentDeletions]
) -> RowChanges:
    """Combine the results of all tasks."""
    pieces = list(written)
    return RowChanges(
        plan=plan,
        deletions=tuple(deletions),
        new_fragments=tuple(fragment for piece in pieces for fragment in piece.fragments),
        num_inserted_rows=sum(piece.num_inserted_rows for piece in pieces),
        num_updated_rows=sum(piece.num_updated_rows for piece in pieces),
        new_keys=tuple(piece.new_keys for piece in pieces if piece.new_keys),
        row_keys=tuple(piece.row_keys for piece in pieces if piece.fragments),
    )


def delete_everything(plan: DmlPlan, description: str) -> RowChanges:
    """Delete every row without reading or writing files."""
    deletions = tuple(
        FragmentDeletions(fragment.id, fragment.num_rows)
        for fragment in plan.snapshot().manifest.fragments
    )
    return RowChanges(plan, deletions, only_deletes=True, reads=EVERYTHING, description=description)


def commit_changes(changes: RowChanges, work: UnitOfWork) -> ChangeResult:
    """Commit all changes, if there are any; see ``commit_row_changes``."""
    result = commit_row_changes(changes, work)
    if result is None:
        return ChangeResult()
    num_removed = sum(deletion.num_removed for deletion in changes.deletions)
    return ChangeResult(
        version=result.version,
        numInsertedRows=changes.num_inserted_rows,
        numUpdatedRows=changes.num_updated_rows,
        numDeletedRows=num_removed - changes.num_updated_rows,
    )


def commit_row_changes(changes: RowChanges, work: UnitOfWork) -> CommitResult | None:
    """Commit all changes; return None if there are none, or if they were committed before.

    Raises StorageError: the outcome of the commit is unknown.
    """
    work.register_files(changes.files)
    removals = [deletion for deletion in changes.deletions if deletion.num_removed]
    if not removals and not changes.new_fragments:
        return None
    plan = changes.plan
    commit_request = work.propose(
        plan.base,
        _operation(changes, removals),
        uuid=plan.transaction_uuid,
        properties=row_keys_property(plan.schema, plan.row_keys, changes.row_keys),
    )
    result = work.commit(
        replace(commit_request, affected_rows=AffectedRows(plan, removals), reads=changes.reads)
    )
    if result is not None:
        remember_row_keys(plan.table, plan.schema, plan.row_keys, result.transaction)
    return result


PreparedCommit = Callable[[UnitOfWork], ChangeResult]
"""A prepared commit: its files are written."""


def prepare_commit(changes: RowChanges) -> PreparedCommit:
    """Prepare the commit of ``changes``."""
    return partial(commit_changes, changes)


def with_rewrite_choice(work: PreparedCommit, choice: RewriteChoice) -> PreparedCommit:
    """Return the same commit with the rewrite choice in its result."""
    return lambda unit: replace(work(unit), rewrite=choice)


def _operation(changes: RowChanges, removals: Sequence[FragmentDeletions]) -> Delete | Update:
    snapshot = changes.plan.snapshot()
    before = FragmentsById(snapshot.manifest.fragments)
    ordered = sorted(removals, key=lambda deletion: deletion.fragment_id)
    updated = tuple(
        replace(before[deletion.fragment_id], deletion_file=deletion.deletion_file)
        for deletion in ordered
        if deletion.deletion_file is not None
    )
    removed = tuple(deletion.fragment_id for deletion in ordered if deletion.deletion_file is None)
    if changes.only_deletes:
        return Delete(updated, removed, changes.description)
    return Update(
        removed_fragment_ids=removed,
        updated_fragments=updated,
        new_fragments=changes.new_fragments,
        fields_for_preserving_frag_bitmap=_field_ids(snapshot, changes.assigned),
        inserted_rows=(
            key_filter(changes.plan.schema, changes.new_keys) if changes.stores_keys else None
        ),
    )


def _field_ids(snapshot: Snapshot, columns: frozenset[str]) -> tuple[int, ...]:
    """Ids of all fields below the columns; their indices must not cover new fragments."""
    return tuple(
        part.id
        for field in snapshot.schema.fields
        if field.name in columns
        for part in field.walk()
    )


def applied_version(snapshot: Snapshot, source: str) -> int:
    """The version up to which the changes of ``source`` are applied; 0 for none."""
    return recorded_version(snapshot.manifest.config, application_of_source(source)) or 0


def with_applied_version(plan: DmlPlan, commit: PreparedCommit) -> PreparedCommit:
    """Return a commit that records the applied version even if no row changes."""

    def run(work: UnitOfWork) -> ChangeResult:
        done = commit(work)
        number = application_version(plan.settings.properties)
        if done.version is not None or number is None:
            return done
        # The source, too: a rebase finds the version in the configuration, and adds nothing to it.
        config = config_with_application_version(plan.snapshot().manifest.config, number)
        keys = (CONFIG_PREFIX + number.application, SOURCE_PREFIX + number.application)
        note = UpdateMap(tuple((key, config.get(key)) for key in keys))
        result = work.commit(work.propose(plan.base, UpdateConfig(config_updates=note)))
        return done if result is None else replace(done, version=result.version)

    return run

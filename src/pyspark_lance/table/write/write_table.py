"""Create, append and overwrite: plan on the driver, write on the executors, commit once.

What was planned is committed on the version it was planned on; if others were in the way, the
files, which are written by then, are fitted to the newest version.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import replace

import pyarrow as pa

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_loop import commit
from pyspark_lance.commit.judge_newer import Reads
from pyspark_lance.commit.next_manifest import CreateOptions
from pyspark_lance.commit.retries import Retries
from pyspark_lance.commit.version_put import CommitResult, table_was_replaced
from pyspark_lance.commit.whereabouts import files_of
from pyspark_lance.errors import (
    CommitConflictError,
    LanceError,
    RetryableCommitError,
    StorageError,
    TableAlreadyExistsError,
    VersionNotFoundError,
)
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Append, Merge, Operation, Overwrite
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.paths import DATA
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.change.deletions import AffectedRows
from pyspark_lance.table.change.plan_again import plan_again_on_conflict
from pyspark_lance.table.change.reads import reads_by
from pyspark_lance.table.change.row_change import plan_change
from pyspark_lance.table.change.unlanded_files import remove_unless_landed
from pyspark_lance.table.cleanup.auto_cleanup import clean_up_after
from pyspark_lance.table.columns.schema_change import (
    match_columns,
    renumbered,
    same_columns,
)
from pyspark_lance.table.rows.write_fragments import (
    remove_data_files,
    write_fragments,
)
from pyspark_lance.table.version.snapshot import Snapshot, known_manifests, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec
from pyspark_lance.table.write.replace_where import (
    delete_matching,
    matching_only,
    parse_condition,
    remove_deletion_files,
    replacement,
)
from pyspark_lance.table.write.write_plan import (
    WritePlan,
    WriteSettings,
    check_overwrite,
    plan_write,
    schema_with,
    was_committed,
)

logger = logging.getLogger(__name__)


def write_rows(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> tuple[Fragment, ...]:
    """Writes the data files of one task; see ``write_fragments``.

    Raises:
        SchemaMismatchError: Rows that do not fit the schema or the condition of the plan.
    """
    if plan.condition is not None:
        text = plan.settings.replace_where or ""
        batches = matching_only(batches, plan.condition, text, plan.request.schema)
    return write_fragments(plan.request, batches)


def commit_write(plan: WritePlan, fragments: Iterable[Fragment]) -> CommitResult | None:
    """Commits the fragments of all executors in one step.

    Returns:
        The new version; None when there was nothing to do (an append of no rows, or work that
        was committed before).

    Raises:
        CommitConflictError: Another commit makes this one impossible.
    """
    files = tuple(fragments)
    if plan.is_done:
        return None
    result = _commit_write(plan, files)
    if result is not None and result.already_committed:
        logger.info("not written again: %s", dict(plan.settings.properties))
        remove_data_files(plan.request.table.store(), files)
        return None
    return result


def _commit_write(plan: WritePlan, files: tuple[Fragment, ...]) -> CommitResult | None:
    settings = plan.settings
    if plan.creates:
        try:
            return _commit(plan, _overwrite(plan, files), _retries(settings))
        except TableAlreadyExistsError:
            # Another writer created the table since the plan was made.
            plan = _plan_onto_new_table(plan)
    if settings.replace_where is not None:
        attempt = _commit_replacement
    elif settings.overwrite:
        attempt = _commit_overwrite
    elif settings.merge_schema:
        attempt = _commit_with_columns
    elif files:
        attempt = _commit_append
    else:
        return None
    planned = plan

    def again(left: Retries) -> CommitResult | None:
        nonlocal planned
        try:
            return attempt(planned, files, left)
        except RetryableCommitError:
            # What was written for the plan's version can follow others' work no more.
            planned = replace(plan, is_stale=True)
            raise

    return plan_again_on_conflict(again, retries=settings.retries, timeout_s=settings.timeout_s)


def _retries(settings: WriteSettings) -> Retries:
    return Retries(settings.retries, settings.timeout_s)


def _newest(plan: WritePlan, files: Iterable[Fragment]) -> Snapshot:
    """The newest version of the table that the files were written for.

    Raises:
        CommitConflictError: Another table has taken its place.
    """
    newest = Snapshot.open(plan.request.table)
    own = newest.manifest.file_version
    if own != plan.request.file_version and not plan.settings.replaces_all:
        raise table_was_replaced(newest.store)
    base = plan.base
    if base is None:
        return newest
    found: Snapshot | None = newest
    if newest.version > base.version:
        at = VersionSpec(version=base.version)
        try:
            found = Snapshot.open(plan.request.table, at)
        except VersionNotFoundError:
            found = None  # cleaned up; but a table that is dropped takes our files with it
    if found is None:
        present = {info.path for info in newest.store.list(DATA)}
        if not files_of(files) <= present:
            raise CommitConflictError(
                "files that were written for this commit are gone: the table was replaced by "
                "another one, or they were cleaned up",
                newest.store.uri,
                "run the write again",
            )
    elif BaseVersion.of(found.manifest) != base:
        raise table_was_replaced(newest.store)
    return newest


def _on(plan: WritePlan, snapshot: Snapshot) -> WritePlan:
    """The plan for another version, which was looked at."""
    return replace(
        plan, read_version=snapshot.version, base=BaseVersion.of(snapshot.manifest), is_stale=False
    )


def _commit_append(
    plan: WritePlan, files: tuple[Fragment, ...], left: Retries
) -> CommitResult | None:
    if plan.is_stale:
        newest = _newest(plan, files)
        written = plan.request.schema
        ids = same_columns(written, match_columns(newest.schema, written.to_arrow()))
        files = tuple(renumbered(fragment, ids) for fragment in files)
        plan = _on(plan, newest)
    return _commit(plan, Append(fragments=files), left)


def _commit_overwrite(
    plan: WritePlan, files: tuple[Fragment, ...], left: Retries
) -> CommitResult | None:
    if plan.is_stale:
        newest = _newest(plan, files)
        check_overwrite(newest.schema, plan.table_schema, plan.settings)
        plan = _on(plan, newest)
    return _commit(plan, _overwrite(plan, files), left)


def _commit_with_columns(
    plan: WritePlan, files: tuple[Fragment, ...], left: Retries
) -> CommitResult | None:
    """Appends rows, and adds the columns of theirs that the newest version lacks."""
    snapshot = _newest(plan, files)
    written = plan.request.schema
    schema = schema_with(snapshot, written.to_arrow())
    ids = same_columns(written, match_columns(schema, written.to_arrow()))
    files = tuple(renumbered(fragment, ids) for fragment in files)
    plan = _on(plan, snapshot)
    if schema == snapshot.schema:
        return _commit(plan, Append(fragments=files), left) if files else None
    first_id = snapshot.manifest.max_fragment_id
    numbered = (
        replace(fragment, id=number)
        for number, fragment in enumerate(files, 0 if first_id is None else first_id + 1)
    )
    operation = Merge(
        fragments=(*snapshot.manifest.fragments, *numbered),
        schema=schema,
        preserves_nullability=True,
    )
    return _commit(plan, operation, left)


def _commit_replacement(
    plan: WritePlan, files: tuple[Fragment, ...], left: Retries
) -> CommitResult | None:
    """Removes the rows of the newest version that match, and adds the rows that were written."""
    _newest(plan, files)
    change = plan_change(plan.request.table)
    snapshot = change.snapshot()
    text = plan.settings.replace_where or ""
    written = plan.request.schema.to_arrow()
    plan = _on(plan, snapshot)
    if was_committed(snapshot, plan.settings):
        return _commit(plan, Append(fragments=files), left)  # only to learn which version it was

    def condition(newest: Snapshot) -> Predicate:
        return parse_condition(text, match_columns(newest.schema, written))

    ids = same_columns(plan.request.schema, match_columns(snapshot.schema, written))
    files = tuple(renumbered(fragment, ids) for fragment in files)
    lost = delete_matching(change, condition(snapshot))
    if not files and not lost:
        return None
    operation = replacement(snapshot, lost, files)
    try:
        return _commit(
            plan,
            operation,
            left,
            affected_rows=AffectedRows(change, lost),
            reads=reads_by(snapshot, condition),
        )
    except LanceError as error:
        if not isinstance(error, StorageError):
            remove_deletion_files(snapshot.store, lost)
        raise


def create_table(table: Table, columns: pa.Schema, settings: WriteSettings) -> CommitResult:
    """Makes a table without rows.

    Args:
        table: Where.
        columns: In the types to store.
        settings: Of these, what a new table has: row ids, file version, properties.

    Raises:
        TableAlreadyExistsError: There is one, perhaps made at this very moment.
    """
    if open_existing(table) is not None:
        raise TableAlreadyExistsError("there is a table already", where=table.uri)
    plan = plan_write(table, columns, settings, existing=None)
    return _commit(plan, _overwrite(plan, ()), _retries(settings))


def abort_write(plan: WritePlan, fragments: Iterable[Fragment]) -> None:
    """Removes the data files of a write that failed, unless its commit did happen.

    Spark calls this also after a failed commit, whose answer may only have been lost.  When that
    cannot be told, the files stay; cleanup finds them later.
    """
    remove_unless_landed(
        plan.request.table.store(),
        plan.transaction_uuid,
        plan.read_version,
        files_of(fragments),
    )


def _commit(
    plan: WritePlan,
    operation: Operation,
    left: Retries,
    *,
    affected_rows: AffectedRows | None = None,
    reads: Reads | None = None,
) -> CommitResult:
    transaction = Transaction(
        read_version=plan.read_version,
        uuid=plan.transaction_uuid,
        operation=operation,
        properties=dict(plan.settings.properties),
    )
    create = (
        CreateOptions(
            stable_row_ids=plan.stable_row_ids, data_storage_version=plan.request.file_version
        )
        if plan.creates
        else None
    )
    overwrites = isinstance(operation, Overwrite)
    result = commit(
        plan.request.table.store(),
        transaction,
        create=create,
        base=plan.base,
        affected_rows=affected_rows,
        reads=reads,
        data_storage_version=plan.request.file_version if overwrites else None,
        read=known_manifests(plan.request.table),
        retries=left,
    )
    clean_up_after(plan.request.table, result)
    return result


def _overwrite(plan: WritePlan, files: tuple[Fragment, ...]) -> Overwrite:
    return Overwrite(
        fragments=files,
        schema=plan.table_schema,
        config_upsert_values={},
        initial_bases=(),
    )


def _plan_onto_new_table(plan: WritePlan) -> WritePlan:
    """The plan moved onto a table that appeared in the meantime.

    The data files are written; they fit only if the other writer gave every column the same id
    and type.
    """
    snapshot = Snapshot.open(plan.request.table)
    replaces_all = plan.settings.overwrite and plan.settings.replace_where is None
    if not replaces_all:
        theirs = {one.id: (one.name, one.logical_type) for one in snapshot.schema.walk()}
        ours = {one.id: (one.name, one.logical_type) for one in plan.table_schema.walk()}
        if theirs != ours or snapshot.manifest.file_version != plan.request.file_version:
            raise CommitConflictError(
                "another writer created the table at the same time, with another schema",
                where=plan.request.table.uri,
                hint="run the write again",
            )
    return _on(plan, snapshot)

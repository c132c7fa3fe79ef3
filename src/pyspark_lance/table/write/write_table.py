"""Create, append and overwrite: plan on the driver, write on the executors, commit once.

The commit is based on the planned version; after a conflict, the written files are rebased on the
newest version.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import pyarrow as pa

from pyspark_lance.commit.apply_operation import CreateOptions
from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_loop import CommitRequest
from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.commit.manifest_committer import CommitResult, table_was_replaced
from pyspark_lance.errors import (
    CommitConflictError,
    ConflictReason,
    RetryableCommitError,
    TableAlreadyExistsError,
    VersionNotFoundError,
)
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Append, Merge, Operation, Overwrite
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import DATA
from pyspark_lance.table.columns.schema_change import match_columns, renumber_fields, same_columns
from pyspark_lance.table.rows.blob_bytes import with_blob_bytes
from pyspark_lance.table.rows.write_fragments import write_fragments
from pyspark_lance.table.unit_of_work import UnitOfWork, remove_unless_committed
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import (
    WritePlan,
    WriteSettings,
    check_overwrite,
    check_source,
    merge_table_schema,
    plan_write,
)


def write_rows(plan: WritePlan, batches: Iterable[pa.RecordBatch]) -> tuple[Fragment, ...]:
    """Write the data files of one task; see ``write_fragments``."""
    if plan.condition is not None:
        # Imported lazily: most writes have no condition.
        from pyspark_lance.table.write.replace_where import check_matching  # noqa: PLC0415

        batches = with_blob_bytes(plan.request.table, batches)
        text = plan.settings.replace_where or ""
        batches = check_matching(batches, plan.condition, text, plan.request.schema)
    if plan.order is not None:
        from pyspark_lance.table.sort import sort_batches  # noqa: PLC0415

        batches = sort_batches(plan.order, batches)
    if plan.split is not None:
        return write_fragments(plan.request, plan.split.by_file(batches))
    return write_fragments(plan.request, batches)


def commit_write(plan: WritePlan, fragments: Iterable[Fragment]) -> CommitResult | None:
    """Commit the fragments of all executors in one step.

    Return the new version; None if there was nothing to do (an append of no rows, or a write that
    was committed before).
    """
    files = tuple(fragments)
    if plan.is_done:
        return None
    work = UnitOfWork(plan.request.table, plan.settings)
    work.register(files)
    return work.run(_Write(plan, files).attempt)


class _Write:
    """The commit of written files.

    ``files``: as fragments without ids.
    """

    def __init__(self, plan: WritePlan, files: tuple[Fragment, ...]) -> None:
        self._plan = plan
        self._files = files
        # Whether to commit on the newest version instead of the planned one.
        self._is_overtaken = False

    def attempt(self, work: UnitOfWork) -> CommitResult | None:
        """Commit on the version of the plan, or after a conflict on the newest one."""
        settings = self._plan.settings
        if self._plan.creates:
            try:
                return _create(self._plan, self._files, work)
            except TableAlreadyExistsError:
                if settings.must_create:
                    raise
                # Another writer created the table concurrently.
                self._plan = _plan_onto_new_table(self._plan)
        try:
            if settings.replace_where is not None:
                return self._replace_rows(work)
            request = self._overwrite(work) if settings.overwrite else self._append(work)
            return None if request is None else work.commit(request)
        except RetryableCommitError:
            self._is_overtaken = True
            raise

    def _append(self, work: UnitOfWork) -> CommitRequest | None:
        """Return the request that appends the rows, and with mergeSchema their new columns."""
        if self._plan.settings.merge_schema:
            return self._append_with_columns(work)
        if not self._files:
            return None
        if self._is_overtaken:
            newest = self._newest()
            return self._request(work, self._append_operation(newest.schema), newest)
        return self._request(work, Append(fragments=self._files))

    def _append_operation(self, schema: LanceSchema) -> Append:
        return Append(fragments=self._with_ids_of(schema))

    def _with_ids_of(self, schema: LanceSchema) -> tuple[Fragment, ...]:
        """Return the files with the field ids of ``schema``."""
        written = self._plan.request.schema
        ids = same_columns(written, match_columns(schema, written.to_arrow()))
        return tuple(renumber_fields(fragment, ids) for fragment in self._files)

    def _append_with_columns(self, work: UnitOfWork) -> CommitRequest | None:
        newest = self._newest()
        schema = merge_table_schema(newest, self._plan.request.schema.to_arrow())
        if schema == newest.schema:
            return (
                self._request(work, self._append_operation(schema), newest) if self._files else None
            )
        first_id = newest.manifest.max_fragment_id
        numbered = (
            replace(fragment, id=number)
            for number, fragment in enumerate(
                self._with_ids_of(schema), 0 if first_id is None else first_id + 1
            )
        )
        operation = Merge(
            fragments=(*newest.manifest.fragments, *numbered),
            schema=schema,
            preserves_nullability=True,
        )
        return self._request(work, operation, newest)

    def _overwrite(self, work: UnitOfWork) -> CommitRequest:
        """Return the request that replaces all rows."""
        newest = None
        if self._is_overtaken:
            newest = self._newest()
            check_overwrite(newest.schema, self._plan.table_schema, self._plan.settings)
        if self._plan.settings.source_version is None:
            return self._request(work, _overwrite(self._plan, self._files), newest)
        self._check_source((newest or self._newest()).version)
        from pyspark_lance.table.dml.read_set import EVERYTHING  # noqa: PLC0415

        # Concurrent appends are not part of the read set.
        reads = replace(EVERYTHING, appends_too=True)
        return self._request(work, _overwrite(self._plan, self._files), newest, reads)

    def _check_source(self, newest: int) -> None:
        check_source(newest, self._plan.settings, self._plan.request.table.uri)

    def _replace_rows(self, work: UnitOfWork) -> CommitResult | None:
        """Remove the matching rows of the newest version and add the written ones."""
        from pyspark_lance.table.write.replace_where import plan_replacement, replace_rows  # noqa: PLC0415

        plan, newest = self._plan, self._newest()
        change = plan_replacement(newest, plan.settings.properties, plan.transaction_uuid)
        if change.is_done:
            return None
        self._check_source(newest.version)
        settings = plan.settings
        text, rules = settings.replace_where or "", (settings.time_zone, settings.ansi)
        files, columns = self._with_ids_of(newest.schema), plan.request.schema.to_arrow()
        return replace_rows(change, newest, text, rules, columns, files, work)

    def _newest(self) -> Snapshot:
        """Open the newest version of the table that the files were written for."""
        plan = self._plan
        newest = Snapshot.open(plan.request.table)
        own = newest.manifest.file_version
        if own != plan.request.file_version and not plan.settings.replaces_all:
            raise table_was_replaced(newest.store.uri)
        base = plan.base
        if base is None:
            return newest
        planned_on: Snapshot | None = newest
        if newest.version > base.version:
            try:
                planned_on = Snapshot.open(plan.request.table, VersionSpec(version=base.version))
            except VersionNotFoundError:
                planned_on = (
                    None  # cleaned up; a dropped table would have removed the written files, too
                )
        if planned_on is None:
            present = {info.path for info in newest.store.list(DATA)}
            if not files_of(self._files) <= present:
                raise CommitConflictError(
                    "files that were written for this commit are lost: the table was replaced by "
                    "another one, or they were cleaned up",
                    newest.store.uri,
                    "run the write again",
                    ConflictReason.FILES_REMOVED,
                )
        elif BaseVersion.of(planned_on.manifest) != base:
            raise table_was_replaced(newest.store.uri)
        return newest

    def _request(
        self,
        work: UnitOfWork,
        operation: Operation,
        newest: Snapshot | None = None,
        reads: ReadSet | None = None,
    ) -> CommitRequest:
        """Return a request on the planned version, or on a newer one that was checked."""
        plan = self._plan
        base = plan.base if newest is None else BaseVersion.of(newest.manifest)
        request = work.propose(base, operation, uuid=plan.transaction_uuid)
        version = plan.request.file_version if isinstance(operation, Overwrite) else None
        return replace(request, data_storage_version=version, reads=reads)


def _create(plan: WritePlan, files: tuple[Fragment, ...], work: UnitOfWork) -> CommitResult | None:
    """Create the table."""
    commit_request = work.propose(None, _overwrite(plan, files), uuid=plan.transaction_uuid)
    create = CreateOptions(
        stable_row_ids=plan.stable_row_ids, data_storage_version=plan.request.file_version
    )
    return work.commit(replace(commit_request, create=create))


def create_table(table: Table, columns: pa.Schema, settings: WriteSettings) -> CommitResult:
    """Create a table without rows.

    ``settings``: only row ids, file version and properties are used.
    """
    if open_existing(table) is not None:
        raise TableAlreadyExistsError("there is a table already", where=table.uri)
    plan = plan_write(table, columns, settings, existing=None)
    result = UnitOfWork(table, settings).once(partial(_create, plan, ()))
    assert result is not None  # nothing can have been committed before
    return result


def abort_write(plan: WritePlan, fragments: Iterable[Fragment]) -> None:
    """Remove the data files of a failed write, unless it was committed.

    Spark also calls this after a failed commit, whose response may have been lost. If the outcome
    is unknown, the files stay until a cleanup.
    """
    remove_unless_committed(
        plan.request.table, plan.transaction_uuid, plan.read_version, files_of(fragments)
    )


def _overwrite(plan: WritePlan, files: tuple[Fragment, ...]) -> Overwrite:
    return Overwrite(
        fragments=files,
        schema=plan.table_schema,
        config_upsert_values=plan.settings.config,
        initial_bases=(),
    )


def _plan_onto_new_table(plan: WritePlan) -> WritePlan:
    """Rebase the plan on a table that was created concurrently.

    The written files fit only if the other writer assigned the same ids and types to all columns.
    """
    snapshot = Snapshot.open(plan.request.table)
    if not plan.settings.replaces_all:
        theirs = {field.id: (field.name, field.logical_type) for field in snapshot.schema.walk()}
        ours = {field.id: (field.name, field.logical_type) for field in plan.table_schema.walk()}
        if theirs != ours or snapshot.manifest.file_version != plan.request.file_version:
            raise CommitConflictError(
                "another writer created the table at the same time, with another schema",
                where=plan.request.table.uri,
                hint="run the write again",
                conflict=ConflictReason.METADATA_CHANGED,
            )
    return replace(plan, read_version=snapshot.version, base=BaseVersion.of(snapshot.manifest))

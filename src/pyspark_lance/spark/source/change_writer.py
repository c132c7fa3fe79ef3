"""UPDATE, MERGE and DELETE of Spark SQL: a delta write that Spark plans, as one version.

The JVM plugin sends one row for each changed row: the kind of change, its row id and address, and
its new values.  Executors write data files and collect deleted rows; the driver writes the
deletion files and commits once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.commit.conflict_check import REDO, ReadSet
from pyspark_lance.commit.manifest_committer import table_was_replaced
from pyspark_lance.commit.retries import Retries
from pyspark_lance.errors import (
    ConflictReason,
    InvalidInputError,
    RetryableCommitError,
    StorageError,
    VersionNotFoundError,
)
from pyspark_lance.format.column_names import ROW_ADDRESS, SYSTEM_COLUMNS, match_names
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.tree import TRUE
from pyspark_lance.spark.options.parse_options import WriteOptions
from pyspark_lance.spark.options.write_settings import change_settings
from pyspark_lance.spark.source.clean_errors import clean_errors
from pyspark_lance.spark.source.read_plan import NOTHING_PUSHED, PushedDown
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.table.dml.commit_changes import combine_results, commit_changes
from pyspark_lance.table.dml.deletions import write_deletions
from pyspark_lance.table.dml.moved_rows import (
    CHANGED_ADDRESS,
    CHANGED_ROW_ID,
    CLAUSE,
    KEEPS,
    Clause,
    WrittenChanges,
    write_changes,
)
from pyspark_lance.table.dml.read_set import EVERYTHING, predicate_read_set
from pyspark_lance.table.dml.rewrite_columns import (
    RewriteColumnsRequest,
    RewrittenColumns,
    commit_rewrite,
    paths_of,
    plan_rewrite,
    rewrite_columns,
)
from pyspark_lance.table.dml.row_change import ChangeResult, RowAction, plan_change
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.unit_of_work import UnitOfWork, remove_unless_committed
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_identity import PinnedVersion


@dataclass
class ChangesWritten(WriterCommitMessage):
    """The changes that one task wrote."""

    changes: WrittenChanges


@dataclass
class ColumnsWritten(WriterCommitMessage):
    """The fragments whose columns one task rewrote."""

    rewritten: list[RewrittenColumns]


class LanceChangeWriter(DataSourceArrowWriter):
    """Writer of changes to rows of the version that Spark read.

    ``pinned``: root and version that the scan of the same command reads; ``schema``: ``CLAUSE`` (1
    delete, 2 update, 3 insert), ``CHANGED_ROW_ID``, ``CHANGED_ADDRESS`` and the assigned columns.
    ``base``: ``BaseVersion.stamp`` when Spark resolved the table; empty if it is unknown.
    ``pushed``: a condition that every row in the scans of the command matches. ``retried``: the
    retry state of earlier runs of the command; empty for the first. ``by_columns``: rewrite the
    assigned columns of whole fragments, each of which is in one task.
    """

    def __init__(
        self,
        options: WriteOptions,
        pinned: PinnedVersion | tuple[str, int],
        schema: StructType,
        command: str,
        *,
        base: str = "",
        pushed: PushedDown = NOTHING_PUSHED,
        retried: str = "",
        by_columns: bool = False,
    ) -> None:
        uri, version = pinned[:2]
        try:
            at = VersionSpec(version=version)
            table = Table(uri, options.table.storage)
            self._plan = plan_change(table, change_settings(options), at=at)
        except VersionNotFoundError as error:
            what = f"version {version}, which the command reads, was cleaned up"
            raise RetryableCommitError(what, uri, REDO, ConflictReason.FILES_REMOVED) from error
        if base and base != self._plan.base.stamp:
            raise table_was_replaced(uri)
        # Spark also returns lineage columns that the command names; their values never change.
        given = [name for name in schema.names if name not in (*_OWN, *SYSTEM_COLUMNS)]
        names = match_names(given, (field.name for field in self._plan.schema.fields))
        unknown = [name for name in given if name not in names]
        if unknown:
            raise InvalidInputError(f"the table has no column {unknown[0]!r}", where=uri)
        self._columns = tuple(names[name] for name in given)
        self._positions = [schema.names.index(name) for name in (*_OWN, *given)]
        self._command = command
        self._pushed = pushed
        self._retried = retried
        self._rewrite: RewriteColumnsRequest | None = None
        if by_columns:
            self._rewrite = plan_rewrite(self._plan.snapshot(), self._columns)

    @clean_errors
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write the updated and inserted rows of one task; ``commit`` writes deletion files."""
        trim_worker_overhead()
        if self._rewrite is not None:
            updated = (self._new_values(batch) for batch in iterator if batch.num_rows)
            return ColumnsWritten(list(rewrite_columns(self._rewrite, updated)))
        clauses = (
            Clause(RowAction.KEEP),
            Clause(RowAction.DELETE),
            Clause(RowAction.UPDATE, self._columns),
            Clause(RowAction.INSERT, self._columns),
        )
        used = clauses[:2] if self._command == "DELETE" else clauses
        batches = (self._changes(batch) for batch in iterator if batch.num_rows)
        return ChangesWritten(write_changes(self._plan, used, batches))

    def _changes(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of Spark to the columns that ``write_changes`` expects."""
        columns: dict[str, pa.Array] = {}
        for name, position in zip((*_OWN, *self._columns), self._positions, strict=True):
            column = batch.column(position)
            if pa.types.is_struct(column.type) and column.type.names == [_BYTES, _COLUMN]:
                columns[KEEPS + name] = pc.struct_field(column, _COLUMN)
                column = pc.struct_field(column, _BYTES)
            columns[name] = column
        return pa.RecordBatch.from_pydict(columns)

    def _new_values(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Convert a batch of Spark to the columns that ``rewrite_columns`` expects."""
        changes = self._changes(batch)
        addresses = changes.column(CHANGED_ADDRESS).cast(pa.uint64())
        values = {name: changes.column(name) for name in self._columns}
        return pa.RecordBatch.from_pydict({ROW_ADDRESS: addresses, **values})

    @clean_errors
    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Commit the changes of all tasks as one version.

        Raises:
            RetryableCommitError: The changes conflict with another commit. If it has ``retries``,
                the plugin runs the command again and passes them to the next writer.
        """
        trim_worker_overhead()
        reports = [message for message in messages if message is not None]
        if len(reports) < len(messages):
            raise StorageError("a task did not report what it changed; nothing was committed")
        settings = self._plan.settings
        left = Retries.from_text(self._retried, settings.retries, settings.timeout_s)
        work = UnitOfWork(self._plan.table, settings, retries=left)
        attempt = self._commit_of(reports)
        try:
            work.once(attempt)
        except RetryableCommitError as error:
            work.wait_for_retry(error)
            error.retries = work.retries.to_text()
            raise

    def _commit_of(
        self, messages: Sequence[WriterCommitMessage]
    ) -> Callable[[UnitOfWork], ChangeResult]:
        """Return the commit of what tasks wrote."""
        if self._rewrite is not None:
            return partial(
                commit_rewrite,
                self._plan,
                self._rewrite,
                _rewritten_once(messages),
                reads=self._reads(inserts=False),
            )
        written = [message.changes for message in messages if isinstance(message, ChangesWritten)]
        touched = (rows for task_changes in written for rows in task_changes.touched)

        def attempt(work: UnitOfWork) -> ChangeResult:
            work.register(
                fragment for task_changes in written for fragment in task_changes.fragments
            )
            deletions = write_deletions(self._plan, touched, one_match_each=False)
            changes = replace(
                combine_results(self._plan, written, deletions),
                assigned=frozenset(self._columns),
                only_deletes=self._command == "DELETE",
                reads=self._reads(
                    inserts=any(task_changes.num_inserted_rows for task_changes in written)
                ),
                stores_keys=self._command == "MERGE",
                description=f"{self._command} of Spark SQL",
            )
            return commit_changes(changes, work)

        return attempt

    @clean_errors
    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove data files that no version refers to; Spark calls this after a failed commit too.

        A commit that certainly failed removes its files itself, so this only has to remove the
        files of tasks whose commit never started.
        """
        written = [message.changes for message in messages if isinstance(message, ChangesWritten)]
        files = files_of(
            fragment for task_changes in written for fragment in task_changes.fragments
        )
        remove_unless_committed(
            self._plan.table,
            self._plan.transaction_uuid,
            self._plan.read_version,
            [*files, *paths_of(_rewritten(messages))],
        )

    def _reads(self, *, inserts: bool) -> ReadSet:
        """Return the read set: the condition that was pushed to the scans."""
        keyed = any(field.unenforced_primary_key for field in self._plan.schema.walk())

        def bind(snapshot: Snapshot) -> Predicate:
            return self._pushed.predicate(predicate_schema(snapshot.schema)) or TRUE

        reads = (
            predicate_read_set(self._plan.snapshot(), bind) if self._pushed.filter else EVERYTHING
        )
        return replace(reads, appends_too=inserts and keyed, losses_too=inserts)


_OWN = (CLAUSE, CHANGED_ROW_ID, CHANGED_ADDRESS)
# Fields of the struct that the plugin makes of a column that only some rows assign.
_BYTES, _COLUMN = "__lance_bytes", "__lance_column"


def _rewritten(messages: Iterable[WriterCommitMessage | None]) -> list[RewrittenColumns]:
    return [
        one
        for message in messages
        if isinstance(message, ColumnsWritten)
        for one in message.rewritten
    ]


def _rewritten_once(messages: Iterable[WriterCommitMessage]) -> list[RewrittenColumns]:
    """Return the rewritten fragments, and check that no two tasks rewrote the same one."""
    rewritten = _rewritten(messages)
    if len({one.fragment_id for one in rewritten}) < len(rewritten):
        raise StorageError("two tasks rewrote columns of one fragment; nothing was committed")
    return rewritten

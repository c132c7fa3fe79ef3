"""Create, append and overwrite: plan on the driver, write on the executors, commit once.

The plan is made before any row is seen: it pins the version that the write is based on, gives
columns their field ids, and names the transaction, so that a lost answer or an abort can later be
judged by looking for that name.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyspark_lance.commit.application_versions import application_version, is_committed
from pyspark_lance.commit.commit_loop import CommitResult, commit
from pyspark_lance.commit.next_manifest import CreateOptions
from pyspark_lance.datafile.version_support import check_writable
from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    RetryableCommitError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    VersionNotFoundError,
)
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Append, Merge, Operation, Overwrite
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import list_versions, read_manifest
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.blob_columns import table_schema
from pyspark_lance.table.deletions import AffectedRows
from pyspark_lance.table.file_versions import (
    existing_file_version,
    new_file_version,
    table_dictionaries,
)
from pyspark_lance.table.plan_again import plan_again_on_conflict
from pyspark_lance.table.predicate import Predicate
from pyspark_lance.table.replace_where import (
    delete_matching,
    matching_only,
    parse_condition,
    remove_deletion_files,
    replacement,
)
from pyspark_lance.table.row_change import plan_change
from pyspark_lance.table.row_counts import counting
from pyspark_lance.table.schema_change import (
    check_null_columns,
    match_columns,
    merged_schema,
    next_field_id,
    renumbered,
    same_columns,
)
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.write_fragments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    WriteFragmentsRequest,
    remove_data_files,
    write_fragments,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """How to write; None means the table's own setting or the default.

    Attributes:
        overwrite: Replace the contents instead of adding to them.
        enable_stable_row_ids: Asked for explicitly.
        file_version: Data file version asked for explicitly.
        max_rows_per_file: A data file ends at this many rows.
        max_bytes_per_file: A data file ends at this size.
        overwrite_schema: False refuses an overwrite that changes the schema.
        merge_schema: Columns that the table lacks are added to it.
        replace_where: With ``overwrite``: only the rows that match this condition are replaced.
        properties: Kept in the transaction.
        retries: Attempts when other writers come first.
        timeout_s: Seconds after which the commit gives up.
    """

    overwrite: bool = False
    enable_stable_row_ids: bool | None = None
    file_version: str | None = None
    max_rows_per_file: int | None = None
    max_bytes_per_file: int | None = None
    overwrite_schema: bool | None = None
    merge_schema: bool = False
    replace_where: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict)
    retries: int = 10
    timeout_s: float = 30.0

    @property
    def replaces_all(self) -> bool:
        """Whether nothing stays of what is in the table."""
        return self.overwrite and self.replace_where is None

    def __post_init__(self) -> None:
        """Refuses settings that contradict each other."""
        if self.replace_where is not None:
            if not self.overwrite:
                raise InvalidInputError(
                    "replaceWhere goes with an overwrite", hint='use mode("overwrite")'
                )
            if self.merge_schema or self.overwrite_schema:
                raise InvalidInputError(
                    "replaceWhere keeps the table's schema; mergeSchema and overwriteSchema change "
                    "it",
                    hint="add the columns first: LanceTable.addColumns",
                )
        if self.merge_schema and self.overwrite_schema:
            raise InvalidInputError("mergeSchema and overwriteSchema contradict each other")


@dataclass(frozen=True, slots=True)
class WritePlan:
    """One write, decided before the first row.

    Attributes:
        request: What executors need to write data files.
        settings: As given.
        read_version: Version the write is based on; 0 creates the table.
        table_schema: Schema of the table after the write.
        stable_row_ids: For a new table, whether rows keep their ids.
        transaction_uuid: Names the commit, also when its answer is lost.
        condition: What every row must match.
        is_done: The (application, version) pair of the settings was committed before, so there
            is nothing to write.
    """

    request: WriteFragmentsRequest
    settings: WriteSettings
    read_version: int
    table_schema: LanceSchema
    stable_row_ids: bool
    transaction_uuid: str
    condition: Predicate | None = None
    is_done: bool = False

    @property
    def creates(self) -> bool:
        """Whether there was no table."""
        return self.read_version == 0


def open_existing(uri: str, options: Mapping[str, str]) -> Snapshot | None:
    """The latest snapshot; None when there is no table at all."""
    try:
        return Snapshot.open(uri, options)
    except VersionNotFoundError:
        raise
    except TableNotFoundError:
        return None


def plan_write(
    uri: str,
    options: Mapping[str, str],
    data_schema: pa.Schema,
    settings: WriteSettings,
    *,
    existing: Snapshot | None,
) -> WritePlan:
    """Decides how data of ``data_schema`` go into the table; writes nothing.

    Args:
        uri: Root of the table.
        options: Storage options.
        data_schema: Columns of the data in the types to store (for an append: any types that
            the table's columns can hold).
        settings: How to write.
        existing: The latest snapshot, see ``open_existing``.

    Raises:
        SchemaMismatchError: The data do not fit the table.
        InvalidInputError: Settings that contradict the table.
        UnsupportedFeatureError: A type that the file version cannot hold.
    """
    _check_names(data_schema)
    if existing is None:
        schema = LanceSchema.from_arrow(data_schema)
        version = new_file_version(schema, settings.file_version)
        schema = table_schema(data_schema, version)
        stable = settings.enable_stable_row_ids is not False
        columns = schema
    else:
        stable = existing.uses_stable_row_ids
        if settings.enable_stable_row_ids is not None and settings.enable_stable_row_ids != stable:
            raise InvalidInputError(
                f"enable_stable_row_ids is {str(settings.enable_stable_row_ids).lower()}, but the "
                f"table was created {'with' if stable else 'without'} stable row ids",
                where=uri,
                hint="this is fixed when a table is created; write to a new path",
            )
        if settings.overwrite and not settings.merge_schema and settings.replace_where is None:
            version = settings.file_version or existing.manifest.file_version
            schema = table_schema(data_schema, version)
            _check_overwrite(existing.schema, schema, settings)
            columns = schema
        else:
            schema = existing.schema
            if settings.merge_schema:
                schema = _merged(existing, data_schema)
            columns = match_columns(schema, data_schema)
        version = existing_file_version(
            existing, columns, settings.file_version, replaces_all=settings.replaces_all
        )
        if settings.merge_schema and not settings.overwrite:
            check_null_columns(existing.schema, schema, version)
    if version != "0.1":
        check_writable(columns, version)
    condition = settings.replace_where
    return WritePlan(
        request=WriteFragmentsRequest(
            uri=uri,
            options=dict(options),
            schema=columns,
            file_version=version,
            max_rows_per_file=settings.max_rows_per_file or DEFAULT_MAX_ROWS_PER_FILE,
            max_bytes_per_file=settings.max_bytes_per_file or DEFAULT_MAX_BYTES_PER_FILE,
            dictionaries={} if version != "0.1" else _kept_dictionaries(existing, settings),
        ),
        settings=settings,
        read_version=0 if existing is None else existing.version,
        table_schema=schema,
        stable_row_ids=stable,
        transaction_uuid=str(uuid.uuid4()),
        condition=None if condition is None else parse_condition(condition, columns),
        is_done=existing is not None and _is_done(existing, settings),
    )


def _is_done(snapshot: Snapshot, settings: WriteSettings) -> bool:
    wanted = application_version(settings.properties)
    return wanted is not None and is_committed(wanted, snapshot.manifest.config)


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
        remove_data_files(open_store(plan.request.uri, plan.request.options), files)
        return None
    return result


def _commit_write(plan: WritePlan, files: tuple[Fragment, ...]) -> CommitResult | None:
    if plan.creates:
        try:
            return _commit(plan, _overwrite(plan, files))
        except TableAlreadyExistsError:
            # Another writer created the table since the plan was made.
            plan = _plan_onto_new_table(plan)
    if plan.settings.replace_where is not None:
        return _planned_again(plan, lambda: _commit_replacement(plan, files))
    if plan.settings.overwrite:
        return _commit(plan, _overwrite(plan, files))
    if plan.settings.merge_schema:
        return _planned_again(plan, lambda: _commit_with_columns(plan, files))
    return _commit(plan, Append(fragments=files)) if files else None


def _planned_again(
    plan: WritePlan, attempt: Callable[[], CommitResult | None]
) -> CommitResult | None:
    return plan_again_on_conflict(
        attempt, retries=plan.settings.retries, timeout_s=plan.settings.timeout_s
    )


def _commit_with_columns(plan: WritePlan, files: tuple[Fragment, ...]) -> CommitResult | None:
    """Appends rows, and adds the columns of theirs that the newest version lacks."""
    snapshot = Snapshot.open(plan.request.uri, plan.request.options)
    written = plan.request.schema
    schema = _merged(snapshot, written.to_arrow())
    ids = same_columns(written, match_columns(schema, written.to_arrow()))
    files = tuple(renumbered(fragment, ids) for fragment in files)
    plan = replace(plan, read_version=snapshot.version)
    if schema == snapshot.schema:
        return _commit(plan, Append(fragments=files)) if files else None
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
    return _commit(plan, operation)


def _commit_replacement(plan: WritePlan, files: tuple[Fragment, ...]) -> CommitResult | None:
    """Removes the rows of the newest version that match, and adds the rows that were written."""
    change = plan_change(plan.request.uri, plan.request.options)
    snapshot = change.snapshot()
    text = plan.settings.replace_where or ""
    written = plan.request.schema
    if _is_done(snapshot, plan.settings):
        return _commit(plan, Append(fragments=files))  # only to learn which version it was
    columns = match_columns(snapshot.schema, written.to_arrow())
    ids = same_columns(written, columns)
    files = tuple(renumbered(fragment, ids) for fragment in files)
    lost = delete_matching(change, parse_condition(text, columns))
    if not files and not lost:
        return None
    operation = replacement(snapshot, lost, files)
    plan = replace(plan, read_version=snapshot.version)
    try:
        return _commit(plan, operation, AffectedRows(change, lost))
    except RetryableCommitError:
        remove_deletion_files(snapshot.store, lost)
        raise


def create_table(
    uri: str, options: Mapping[str, str], columns: pa.Schema, settings: WriteSettings
) -> CommitResult:
    """Makes a table without rows.

    Args:
        uri: Root of the table.
        options: Storage options.
        columns: In the types to store.
        settings: Of these, what a new table has: row ids, file version, properties.

    Raises:
        TableAlreadyExistsError: There is one, perhaps made at this very moment.
    """
    if open_existing(uri, options) is not None:
        raise TableAlreadyExistsError("there is a table already", where=uri)
    plan = plan_write(uri, options, columns, settings, existing=None)
    return _commit(plan, _overwrite(plan, ()))


def abort_write(plan: WritePlan, fragments: Iterable[Fragment]) -> None:
    """Removes the data files of a write that failed, unless its commit did happen.

    Spark calls this also after a failed commit, whose answer may only have been lost.  When that
    cannot be told, the files stay; cleanup finds them later.
    """
    store = open_store(plan.request.uri, plan.request.options)
    try:
        landed = any(
            transaction is not None and transaction.uuid == plan.transaction_uuid
            for location in list_versions(store)
            if location.version > plan.read_version
            for transaction in (read_manifest(store, location).transaction(),)
        )
    except (LanceError, OSError) as error:
        logger.warning("kept the files of a failed write, since its outcome is unknown: %s", error)
        return
    if not landed:
        remove_data_files(store, fragments)


def _commit(
    plan: WritePlan, operation: Operation, affected_rows: AffectedRows | None = None
) -> CommitResult:
    store = open_store(plan.request.uri, plan.request.options)
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
    return commit(
        store,
        transaction,
        create=create,
        affected_rows=affected_rows,
        data_storage_version=plan.request.file_version if overwrites else None,
        counted=counting(plan.request.uri, plan.request.options),
        retries=plan.settings.retries,
        timeout_s=plan.settings.timeout_s,
    )


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
    snapshot = Snapshot.open(plan.request.uri, plan.request.options)
    replaces_all = plan.settings.overwrite and plan.settings.replace_where is None
    if not replaces_all:
        theirs = {one.id: (one.name, one.logical_type) for one in snapshot.schema.walk()}
        ours = {one.id: (one.name, one.logical_type) for one in plan.table_schema.walk()}
        if theirs != ours or snapshot.manifest.file_version != plan.request.file_version:
            raise SchemaMismatchError(
                "another writer created the table at the same time, with another schema",
                where=plan.request.uri,
                hint="run the write again",
            )
    return replace(plan, read_version=snapshot.version)


def _check_names(schema: pa.Schema) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name.lower() in seen:
            raise InvalidInputError(f"two columns are named {name!r}")
        seen.add(name.lower())
    if not schema.names:
        raise InvalidInputError("a table needs at least one column")


def _check_overwrite(old: LanceSchema, new: LanceSchema, settings: WriteSettings) -> None:
    if settings.overwrite_schema is not False:
        return
    if not old.to_arrow().equals(new.to_arrow()):
        raise SchemaMismatchError(
            "the data have another schema than the table, and overwriteSchema is false",
            hint="leave out overwriteSchema, or set it to true",
        )


def _merged(existing: Snapshot, data_schema: pa.Schema) -> LanceSchema:
    """The table's schema with what the data have besides."""
    first_id = next_field_id(existing.manifest)
    version = existing.manifest.file_version
    return merged_schema(existing.schema, data_schema, first_id, file_version=version)


def _kept_dictionaries(existing: Snapshot | None, settings: WriteSettings) -> dict[int, pa.Array]:
    """The items of the dictionaries that the write goes on with."""
    return {} if existing is None or settings.replaces_all else table_dictionaries(existing)

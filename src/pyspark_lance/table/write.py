"""Create, append and overwrite: plan on the driver, write on the executors, commit once.

The plan is made before any row is seen: it pins the version that the write is based on, gives
columns their field ids, and names the transaction, so that a lost answer or an abort can later be
judged by looking for that name.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from pyspark_lance.commit.commit_loop import CommitResult, commit
from pyspark_lance.commit.next_manifest import CreateOptions
from pyspark_lance.datafile.version_support import check_legacy_writable, version_need
from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    SchemaMismatchError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.operation import Append, Operation, Overwrite
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import list_versions, read_manifest
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.conform import storable
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.write_fragments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    WriteFragmentsRequest,
    remove_data_files,
)

logger = logging.getLogger(__name__)

# What every Lance reader since 2025 understands; newer only where a type needs it.
DEFAULT_FILE_VERSION = "2.1"


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
    properties: Mapping[str, str] = field(default_factory=dict)
    retries: int = 10
    timeout_s: float = 30.0


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
    """

    request: WriteFragmentsRequest
    settings: WriteSettings
    read_version: int
    table_schema: LanceSchema
    stable_row_ids: bool
    transaction_uuid: str

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
        version = _new_file_version(schema, settings.file_version)
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
        if settings.overwrite:
            schema = LanceSchema.from_arrow(data_schema)
            _check_overwrite(existing.schema, schema, settings)
            columns = schema
        else:
            schema = existing.schema
            columns = match_columns(existing.schema, data_schema)
        version = _existing_file_version(existing, columns, settings)
    return WritePlan(
        request=WriteFragmentsRequest(
            uri=uri,
            options=dict(options),
            schema=columns,
            file_version=version,
            max_rows_per_file=settings.max_rows_per_file or DEFAULT_MAX_ROWS_PER_FILE,
            max_bytes_per_file=settings.max_bytes_per_file or DEFAULT_MAX_BYTES_PER_FILE,
        ),
        settings=settings,
        read_version=0 if existing is None else existing.version,
        table_schema=schema,
        stable_row_ids=stable,
        transaction_uuid=str(uuid.uuid4()),
    )


def match_columns(table: LanceSchema, data: pa.Schema) -> LanceSchema:
    """The table's fields that ``data`` holds, in the table's order.

    Raises:
        SchemaMismatchError: An unknown column, a missing one that must not be null, or a type
            that does not fit.
    """
    names = {name.lower(): name for name in data.names}
    known = {one.name.lower() for one in table.fields}
    for name in data.names:
        if name.lower() not in known:
            raise SchemaMismatchError(
                f"the data have a column {name!r}, which the table does not have",
                hint=f"the table's columns are {', '.join(one.name for one in table.fields)}",
            )
    chosen = []
    for one in table.fields:
        if one.name.lower() not in names:
            if not one.nullable:
                raise SchemaMismatchError(
                    f"the data lack the column {one.name!r}, which must not be null"
                )
            continue
        source = data.field(names[one.name.lower()]).type
        target = one.to_arrow().type
        if not storable(source, target):
            raise SchemaMismatchError(
                f"the column {one.name!r} is {source}, which does not fit the table's {target}",
                hint="cast the column to the table's type",
            )
        chosen.append(one)
    return LanceSchema(fields=tuple(chosen), metadata=table.metadata)


def commit_write(plan: WritePlan, fragments: Iterable[Fragment]) -> CommitResult | None:
    """Commits the fragments of all executors in one step.

    Returns:
        The new version; None when there was nothing to do (an append of no rows).

    Raises:
        CommitConflictError: Another commit makes this one impossible.
    """
    files = tuple(fragments)
    if not files and not plan.creates and not plan.settings.overwrite:
        return None
    if plan.creates:
        try:
            return _commit(plan, _overwrite(plan, files))
        except TableAlreadyExistsError:
            # Another writer created the table since the plan was made.
            plan = _plan_onto_new_table(plan)
            if not files and not plan.settings.overwrite:
                return None
    if plan.settings.overwrite:
        return _commit(plan, _overwrite(plan, files))
    return _commit(plan, Append(fragments=files))


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


def _commit(plan: WritePlan, operation: Operation) -> CommitResult:
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
    return commit(
        store,
        transaction,
        create=create,
        data_storage_version=plan.request.file_version if plan.settings.overwrite else None,
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
    if not plan.settings.overwrite:
        theirs = {one.id: (one.name, one.logical_type) for one in snapshot.schema.walk()}
        ours = {one.id: (one.name, one.logical_type) for one in plan.table_schema.walk()}
        if theirs != ours or snapshot.manifest.data_storage_version != plan.request.file_version:
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


def _new_file_version(schema: LanceSchema, asked: str | None) -> str:
    need = version_need(schema)
    needed, reason = need.version, f"{need.column}: {need.reason}"
    if asked is None:
        if needed > DEFAULT_FILE_VERSION:
            logger.info("the new table gets file version %s: %s", needed, reason)
            return needed
        return DEFAULT_FILE_VERSION
    if asked == "0.1":
        check_legacy_writable(schema)
        return asked
    if asked < needed:
        raise UnsupportedFeatureError(
            f"file version {asked} cannot hold the data: {reason}",
            hint=f"set file_format_version to {needed}",
        )
    return asked


def _version_of_files(existing: Snapshot) -> str:
    """The version of the data files of a table that does not record it."""
    files = (file for fragment in existing.manifest.fragments for file in fragment.files)
    first = next(files, None)
    return "2.0" if first is None else first.file_version


def _existing_file_version(
    existing: Snapshot, columns: LanceSchema, settings: WriteSettings
) -> str:
    own = existing.manifest.data_storage_version or _version_of_files(existing)
    asked = settings.file_version
    if asked is not None and asked != own and not settings.overwrite:
        raise InvalidInputError(
            f"file_format_version is {asked}, but the table's files are {own}",
            where=existing.uri,
            hint="leave the option out; an append uses the table's own version",
        )
    version = asked or own
    if version == "0.1":
        check_legacy_writable(columns)
        return version
    need = version_need(columns)
    if version < need.version:
        raise UnsupportedFeatureError(
            f"the table's files are version {version}, which cannot hold the column "
            f"{need.column!r}: {need.reason}",
            where=existing.uri,
            hint=f"overwrite the table with file_format_version {need.version}",
        )
    return version

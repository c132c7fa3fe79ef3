"""WritePlan: plan a write before any row is processed.

The plan pins the base version, assigns field ids and chooses the transaction UUID, by which the
outcome of the commit can be determined later.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.datafile.version_support import check_writable
from pyspark_lance.errors import CommitConflictError, InvalidInputError, SchemaMismatchError
from pyspark_lance.format.clustering import CLUSTER_BY_KEY, ClusterBy
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.open_store import split_uri
from pyspark_lance.table.columns.schema_change import (
    check_null_columns,
    match_columns,
    merge_schemas,
    next_field_id,
)
from pyspark_lance.table.rows.convert_parts import table_schema
from pyspark_lance.table.rows.write_fragments import (
    DEFAULT_MAX_BYTES_PER_FILE,
    DEFAULT_MAX_ROWS_PER_FILE,
    WriteFragmentsRequest,
    existing_file_version,
    new_file_version,
    table_dictionaries,
)
from pyspark_lance.table.unit_of_work import CommitSettings
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

if TYPE_CHECKING:
    from pyspark_lance.predicate.conditions import Predicate
    from pyspark_lance.table.sort import RowOrder


@dataclass(frozen=True, slots=True)
class WriteSettings(CommitSettings):
    """Settings of a write; None means the table's own setting or the default."""

    overwrite: bool = False  # Replace the contents instead of adding to them.
    must_create: bool = False  # Fail if another writer creates the table meanwhile.
    enable_stable_row_ids: bool | None = None  # Explicit setting.
    file_version: str | None = None  # Explicit data file version.
    max_rows_per_file: int | None = None  # Maximum rows of a data file.
    max_bytes_per_file: int | None = None  # Maximum bytes of a data file.
    overwrite_schema: bool | None = None  # False rejects an overwrite that changes the schema.
    merge_schema: bool = False  # Add missing columns to the table.
    # With ``overwrite``: only the rows that match this condition are replaced.
    replace_where: str | None = None
    time_zone: str = "UTC"  # Of timestamps in the condition.
    ansi: bool = True  # Whether ANSI mode applies to the condition.
    # Columns that each task sorts its rows by, and whether descending.
    sort_by: tuple[tuple[str, bool], ...] = ()
    # Columns by which the rows of each task are sorted, with separate files for each value.
    split_by: tuple[str, ...] = ()
    # With ``overwrite``: the version of the same table that the data were read from, if any.
    source_version: int | None = None
    # Clustering columns of a new or overwritten table; empty to remove them, None to keep them.
    cluster_by: tuple[str, ...] | None = None
    # Configuration entries that the write sets.
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def replaces_all(self) -> bool:
        """Whether the write replaces all rows."""
        return self.overwrite and self.replace_where is None

    def __post_init__(self) -> None:
        """Reject settings that contradict each other."""
        if self.replace_where is not None:
            if not self.overwrite:
                raise InvalidInputError(
                    "replaceWhere needs an overwrite", hint='use mode("overwrite")'
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
    """The plan of one write; picklable."""

    request: WriteFragmentsRequest
    settings: WriteSettings
    read_version: int  # Version the write is based on; 0 creates the table.
    table_schema: LanceSchema  # Schema of the table after the write.
    stable_row_ids: bool  # For a new table, whether rows keep their ids.
    transaction_uuid: str  # Identifies the commit when its outcome is unknown.
    # Distinguishes the version from that of a recreated table.
    base: BaseVersion | None = None
    condition: Predicate | None = None  # Every row must match it.
    order: RowOrder | None = None  # Sort order of each task; None for input order.
    split: RowOrder | None = None  # Sort order if files are split by values.
    # Whether the (application, version) pair of the settings was committed before.
    is_done: bool = False

    @property
    def creates(self) -> bool:
        """Whether there was no table."""
        return self.read_version == 0


def plan_write(
    table: Table, data_schema: pa.Schema, settings: WriteSettings, *, existing: Snapshot | None
) -> WritePlan:
    """Plan a write of data with ``data_schema``; write nothing.

    ``data_schema``: columns of the data in the types to store (for an append: any types that the
    table's columns can hold); ``existing``: the latest snapshot, see ``open_existing``.
    """
    table.store().check_writable()
    _check_names(data_schema)
    if existing is None:
        _reject_file(table)
        stable = settings.enable_stable_row_ids is not False
        target = _plan_create(data_schema, settings)
    else:
        check_source(existing.version, settings, table.uri)
        stable = _check_row_ids(existing, settings, table.uri)
        if settings.replaces_all and not settings.merge_schema:
            target = _plan_overwrite(existing, data_schema, settings)
        else:
            target = _plan_append(existing, data_schema, settings)
    if target.file_version != "0.1":
        check_writable(target.columns, target.file_version)
    settings = _with_cluster_by(settings, target.table_schema, existing)
    return WritePlan(
        request=WriteFragmentsRequest(
            table=table,
            schema=target.columns,
            file_version=target.file_version,
            max_rows_per_file=settings.max_rows_per_file or DEFAULT_MAX_ROWS_PER_FILE,
            max_bytes_per_file=settings.max_bytes_per_file or DEFAULT_MAX_BYTES_PER_FILE,
            dictionaries=_kept_dictionaries(existing, settings, target.file_version),
        ),
        settings=settings,
        read_version=0 if existing is None else existing.version,
        table_schema=target.table_schema,
        stable_row_ids=stable,
        transaction_uuid=str(uuid.uuid4()),
        base=None if existing is None else BaseVersion.of(existing.manifest),
        condition=_condition(settings, target.columns),
        order=_order(settings.sort_by, target.columns),
        split=_split(settings.split_by, target.columns),
        is_done=existing is not None and settings.is_committed_in(existing),
    )


@dataclass(frozen=True, slots=True)
class _WriteTarget:
    """Schemas and file version of a write."""

    table_schema: LanceSchema  # Schema of the table after the write.
    columns: LanceSchema  # Columns of the data, with the field ids of the table.
    file_version: str


def _plan_create(data_schema: pa.Schema, settings: WriteSettings) -> _WriteTarget:
    version = new_file_version(LanceSchema.from_arrow(data_schema), settings.file_version)
    schema = table_schema(data_schema, version)
    return _WriteTarget(schema, schema, version)


def _plan_overwrite(
    existing: Snapshot, data_schema: pa.Schema, settings: WriteSettings
) -> _WriteTarget:
    """Plan to replace all rows, and the schema with that of the data."""
    version = settings.file_version or existing.manifest.file_version
    allocated = existing.manifest.max_allocated_field_id
    # Field ids restart, unless the table never reuses ids.
    schema = table_schema(data_schema, version, 0 if allocated is None else allocated + 1)
    check_overwrite(existing.schema, schema, settings)
    version = existing_file_version(existing, schema, settings.file_version, replaces_all=True)
    return _WriteTarget(schema, schema, version)


def _plan_append(
    existing: Snapshot, data_schema: pa.Schema, settings: WriteSettings
) -> _WriteTarget:
    """Plan to add or replace rows, and keep the columns of the table."""
    schema = existing.schema
    if settings.merge_schema:
        schema = merge_table_schema(existing, data_schema)
    columns = match_columns(schema, data_schema)
    version = existing_file_version(
        existing, columns, settings.file_version, replaces_all=settings.replaces_all
    )
    if settings.merge_schema and not settings.overwrite:
        check_null_columns(existing.schema, schema, version)
    return _WriteTarget(schema, columns, version)


def _check_row_ids(existing: Snapshot, settings: WriteSettings, where: str) -> bool:
    """Return whether the table has stable row ids; reject a write that wants the contrary."""
    stable = existing.uses_stable_row_ids
    if settings.enable_stable_row_ids not in (None, stable):
        raise InvalidInputError(
            f"enableStableRowIds is {str(settings.enable_stable_row_ids).lower()}, but the "
            f"table was created {'with' if stable else 'without'} stable row ids",
            where=where,
            hint="this is fixed when a table is created; write to a new path",
        )
    return stable


def _reject_file(table: Table) -> None:
    """Reject a file as the path before tasks fail one by one with the same error."""
    scheme, folder = split_uri(table.uri)
    if scheme != "file":
        return
    while not os.path.exists(folder):
        folder = os.path.dirname(folder)
    if os.path.isfile(folder):
        raise InvalidInputError(
            f"{folder} is a file, and a table is a folder", table.uri, "choose another path"
        )


def _with_cluster_by(
    settings: WriteSettings, schema: LanceSchema, existing: Snapshot | None
) -> WriteSettings:
    """Return the settings with the clustering columns in the configuration, if the write sets them.

    Raises InvalidInputError: an append has other clustering columns than the table, or an overwrite
    drops the current ones without new ones.
    """
    known = None if existing is None else ClusterBy.of(existing.manifest.config)
    if settings.cluster_by is None and known is None:
        return settings
    # Imported lazily: most writes have no order.
    from pyspark_lance.table.columns.cluster_by import check_columns, check_kept  # noqa: PLC0415

    where = "" if existing is None else existing.uri
    if settings.cluster_by is None:
        if settings.replaces_all:
            check_kept(schema, known, where)
        return settings
    requested = check_columns(schema, settings.cluster_by) if settings.cluster_by else ClusterBy(())
    now = () if known is None else known.columns
    if existing is None or settings.replaces_all:
        if requested.columns == now:
            return settings  # keep its order
        return replace(settings, config={**settings.config, CLUSTER_BY_KEY: requested.to_text()})
    if requested.columns not in ((), now):
        raise InvalidInputError(
            f"the table is clustered by {', '.join(now) or 'no column'}, and an append does not "
            "change that",
            where,
            f"leave out clusterBy; LanceTable.clusterBy({', '.join(map(repr, requested.columns))}) "
            "changes it",
        )
    return settings


def _order(sort_by: tuple[tuple[str, bool], ...], columns: LanceSchema) -> RowOrder | None:
    if not sort_by:
        return None
    # Imported lazily: most writes have no order.
    from pyspark_lance.table.sort import RowOrder  # noqa: PLC0415

    names, descending = zip(*sort_by, strict=True)
    return RowOrder.of(columns, names, descending=descending)


def _split(split_by: tuple[str, ...], columns: LanceSchema) -> RowOrder | None:
    order = _order(tuple((name, False) for name in split_by), columns)
    return None if order is None else order.with_file_split(split_by)


def _condition(settings: WriteSettings, columns: LanceSchema) -> Predicate | None:
    if settings.replace_where is None:
        return None
    # Imported lazily: most writes have no condition.
    from pyspark_lance.table.write.replace_where import parse_condition  # noqa: PLC0415

    return parse_condition(settings.replace_where, columns, settings.time_zone, settings.ansi)


def _check_names(schema: pa.Schema) -> None:
    seen: set[str] = set()
    for name in schema.names:
        if name in seen:
            raise InvalidInputError(f"two columns are named {name!r}")
        seen.add(name)
    if not schema.names:
        raise InvalidInputError("a table needs at least one column")


def check_source(newest: int, settings: WriteSettings, uri: str) -> None:
    """Reject an overwrite with rows of an older version of the same table."""
    source = settings.source_version
    if settings.overwrite and source is not None and source < newest:
        raise CommitConflictError(
            f"the rows come from version {source} of the same table that they would replace, which "
            f"is at version {newest}: what was written in between would be lost",
            where=uri,
            hint="read the table again and repeat the overwrite; a read with the option version "
            f"= {source} says that the rows of that version are meant",
        )


def check_overwrite(old: LanceSchema, new: LanceSchema, settings: WriteSettings) -> None:
    """Reject an overwrite that changes the schema if overwriteSchema is false."""
    if settings.overwrite_schema is not False:
        return
    if not old.to_arrow().equals(new.to_arrow()):
        raise SchemaMismatchError(
            "the data have another schema than the table, and overwriteSchema is false",
            hint="leave out overwriteSchema, or set it to true",
        )


def merge_table_schema(existing: Snapshot, data_schema: pa.Schema) -> LanceSchema:
    """Return the table's schema with the additional columns of the data."""
    first_id = next_field_id(existing.manifest)
    version = existing.manifest.file_version
    return merge_schemas(existing.schema, data_schema, first_id, file_version=version)


def _kept_dictionaries(
    existing: Snapshot | None, settings: WriteSettings, file_version: str
) -> dict[int, pa.Array]:
    """Return the dictionary items that the write extends; only version 0.1 shares them."""
    if file_version != "0.1" or existing is None or settings.replaces_all:
        return {}
    return table_dictionaries(existing)

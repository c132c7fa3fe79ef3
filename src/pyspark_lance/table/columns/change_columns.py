"""Add, drop, rename, widen and change columns, each in one version; and set the primary key.

Metadata-only changes (adding null columns, renaming, dropping, nullability, the primary key,
metadata) write no data file. New values are written to additional files; the caller decides where
they are computed: in this process for small tables, else on executors. After a conflict, the change
is planned again on the newest version, and only new or changed fragments are written again.

The primary key is stored in the table's fields. Writes do not check it; concurrent merges on it do
not insert the same key twice.

Source: docs/format/table-format.md, sections 3.5 and 13.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.conflict_check import REDO
from pyspark_lance.datafile.version_support import check_writable as check_columns
from pyspark_lance.errors import (
    ConflictReason,
    InvalidInputError,
    RetryableCommitError,
    VersionNotFoundError,
)
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.field import PRIMARY_KEY, PRIMARY_KEY_POSITION, Field
from pyspark_lance.format.fragment import TOMBSTONE, DataFile, Fragment
from pyspark_lance.format.operation import Merge, Operation, Project, UpdateConfig, UpdateMap
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.metafile.paths import data_path
from pyspark_lance.predicate.conditions import all_of
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.table.columns.cluster_by import check_not_clustered_by
from pyspark_lance.table.columns.schema_change import (
    check_null_columns,
    file_with_field_ids,
    find_field,
    merge_schemas,
    next_field_id,
    same_columns,
    with_columns,
    with_field,
    with_member,
    with_renamed,
    without_fields,
)
from pyspark_lance.table.rows.column_files import (
    ColumnFile,
    ColumnFilesRequest,
    FragmentRows,
    write_column_files,
)
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.unit_of_work import CommitSettings, UnitOfWork, commit_on_newest
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table

# Maximum bits of integers that a float represents exactly.
_EXACT_BITS = {pa.float16(): 11, pa.float32(): 24, pa.float64(): 53}


def widen_field(field: Field, new_type: pa.DataType, first_id: int) -> Field | None:
    """Return the column with a wider type and new ids; None if it already has the type."""
    old_type = field.to_arrow().type
    # Spark has no fixed-size lists, so a list matches the fixed-size list of the column.
    if pa.types.is_fixed_size_list(old_type) and pa.types.is_list(new_type):
        new_type = pa.list_(new_type.value_type, old_type.list_size)
    if old_type.equals(new_type) or _same_shape(old_type, new_type):
        return None
    if field.extension_name or field.is_blob or field.is_packed or not is_wider(old_type, new_type):
        raise InvalidInputError(
            f"the column {field.name!r} cannot change from {old_type} to {new_type}",
            hint="only to a type that holds all its values; otherwise add a column with an "
            "expression, and drop this one",
        )
    arrow = pa.field(field.name, new_type, field.nullable)
    (new,) = LanceSchema.from_arrow(pa.schema([arrow]), first_id).fields
    return replace(
        new,
        metadata={**new.metadata, **field.metadata},
        unenforced_primary_key=field.unenforced_primary_key,
        unenforced_primary_key_position=field.unenforced_primary_key_position,
        unenforced_clustering_key_position=field.unenforced_clustering_key_position,
    )


def _same_shape(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether types are equal except for the names of list items."""
    if pa.types.is_list(left) and pa.types.is_list(right):
        return _same_shape(left.value_type, right.value_type)
    return left.equals(right)


def is_wider(old: pa.DataType, new: pa.DataType) -> bool:
    """Return whether every value of ``old`` is a value of ``new``."""
    types = pa.types
    if old.equals(new) or types.is_null(old):
        return True
    if types.is_integer(old):
        return _holds_integers(old, new)
    if types.is_floating(old):
        return types.is_floating(new) and new.bit_width > old.bit_width
    if types.is_decimal(old) and types.is_decimal(new):
        whole = new.precision - new.scale >= old.precision - old.scale
        return whole and new.scale >= old.scale
    if types.is_string(old) or types.is_binary(old):
        wide = pa.large_string() if types.is_string(old) else pa.large_binary()
        return new.equals(wide)
    if types.is_fixed_size_list(old):
        same_size = types.is_fixed_size_list(new) and new.list_size == old.list_size
        return same_size and is_wider(old.value_type, new.value_type)
    if types.is_list(old) or types.is_large_list(old):
        list_like = types.is_large_list(new) or (types.is_list(new) and types.is_list(old))
        return list_like and is_wider(old.value_type, new.value_type)
    return False


def _holds_integers(old: pa.DataType, new: pa.DataType) -> bool:
    types = pa.types
    signed = types.is_signed_integer(old)
    bits = old.bit_width - (1 if signed else 0)
    if types.is_integer(new):
        if types.is_signed_integer(new):
            return new.bit_width - 1 >= bits
        return not signed and new.bit_width >= bits
    if types.is_floating(new):
        return _EXACT_BITS[new] >= bits
    if types.is_decimal(new):
        return 10 ** (new.precision - new.scale) > 2**bits
    return False


logger = logging.getLogger(__name__)

RunColumns = Callable[[ColumnFilesRequest], Iterable[ColumnFile]]
"""Computes and writes the columns of the fragments that a request names."""

NewMember = tuple[str, pa.Field]
"""The name of a struct, and a new field of it."""


@also_snake_case
@dataclass(frozen=True, slots=True)
class ColumnResult:
    """The result of a schema change.

    Attributes:
        version: The committed version; None if nothing changed.
        numWrittenFiles: Data files with new values, one for each fragment.
        numWrittenRows: Live rows that have values in these files.
    """

    version: int | None = None
    numWrittenFiles: int = 0  # noqa: N815
    numWrittenRows: int = 0  # noqa: N815


@dataclass(frozen=True, slots=True)
class Target:
    """The intended schema of a table."""

    schema: LanceSchema
    written: tuple[Field, ...] = ()  # Top-level columns to write to new files.
    # Only fragments with one of these field ids need a new file; None for all fragments.
    sources: frozenset[int] | None = None


# Without values ----------------------------------------------------------------------------


def add_null_columns(
    table: Table,
    columns: pa.Schema,
    settings: CommitSettings | None = None,
    *,
    members: Sequence[NewMember] = (),
) -> ColumnResult:
    """Add columns and fields of structs that are null in every row; writes no data file."""
    check_nullable(columns)

    def operation(snapshot: Snapshot) -> Operation:
        schema = _with_new_columns(snapshot, columns, settings, members).schema
        check_null_columns(snapshot.schema, schema, snapshot.manifest.file_version)
        return _merge(snapshot, schema, tuple(snapshot.manifest.fragments))

    return commit_change(table, operation, settings)


def check_nullable(columns: Iterable[pa.Field]) -> None:
    """Reject columns that must not be null, since they would be null in every row."""
    for column in columns:
        if not column.nullable:
            raise InvalidInputError(
                f"the column {column.name!r} would be null in every row, and must not be null",
                hint="add it as nullable, fill it, and then change its nullability",
            )


def add_missing_columns(
    table: Table, columns: pa.Schema, settings: CommitSettings | None = None
) -> ColumnResult:
    """Add missing columns and struct fields, null in every row.

    ``columns``: those to add; existing structs (matched by exact name) get their new fields.
    """
    return commit_change(
        table, lambda snapshot: _with_missing(snapshot, columns, settings), settings
    )


def _with_missing(
    snapshot: Snapshot, columns: pa.Schema, settings: CommitSettings | None
) -> Operation | None:
    version, first_id = snapshot.manifest.file_version, next_field_id(snapshot.manifest)
    schema = merge_schemas(
        snapshot.schema,
        columns,
        first_id,
        file_version=version,
        exact=True,
        case_sensitive=_is_case_sensitive(settings),
    )
    check_null_columns(snapshot.schema, schema, version)
    if schema == snapshot.schema:
        return None
    return _merge(snapshot, schema, tuple(snapshot.manifest.fragments))


def drop_columns(
    table: Table, paths: Sequence[str], settings: CommitSettings | None = None
) -> ColumnResult:
    """Drop columns, or fields of structs (``a.b``); writes no data file."""

    def operation(snapshot: Snapshot) -> Operation:
        check_not_clustered_by(snapshot, paths)
        schema = without_fields(snapshot.schema, paths)
        return Project(schema=schema, preserves_nullability=True)

    if not paths:
        raise InvalidInputError("there is no column to drop")
    return commit_change(table, operation, settings)


def rename_column(
    table: Table, path: str, new_name: str, settings: CommitSettings | None = None
) -> ColumnResult:
    """Rename a column, or a field of a struct; its id and its indices stay."""

    def operation(snapshot: Snapshot) -> Operation | None:
        sensitive = _is_case_sensitive(settings)
        schema = with_renamed(snapshot.schema, path, new_name, case_sensitive=sensitive)
        if schema == snapshot.schema:
            return None
        return Project(schema=schema, preserves_nullability=True)

    return commit_change(table, operation, settings)


def change_nullability(
    table: Table,
    path: str,
    *,
    nullable: bool,
    has_nulls: Callable[[Snapshot, tuple[Field, ...]], bool],
    settings: CommitSettings | None = None,
) -> ColumnResult:
    """Allow or forbid nulls in a column, or in a struct field; writes no data file.

    ``nullable``: whether nulls are allowed. ``has_nulls``: checks whether a live row of a version
    has a null; called for every version that the change is planned on.
    """

    def operation(snapshot: Snapshot) -> Operation | None:
        schema = _with_nullability(snapshot, path, nullable, has_nulls)
        if schema == snapshot.schema:
            return None
        return Project(schema=schema, preserves_nullability=nullable)

    return commit_change(table, operation, settings)


def set_metadata(
    table: Table,
    *,
    schema: Mapping[str, str | None] | None = None,
    columns: Mapping[str, Mapping[str, str | None]] | None = None,
    settings: CommitSettings | None = None,
) -> ColumnResult:
    """Set metadata of the schema and of columns; None as a value removes the key."""

    def operation(snapshot: Snapshot) -> Operation | None:
        updates = {
            find_field(snapshot.schema, path)[-1].id: UpdateMap(tuple(values.items()))
            for path, values in (columns or {}).items()
            if values
        }
        if not schema and not updates:
            return None
        return UpdateConfig(
            schema_metadata_updates=UpdateMap(tuple(schema.items())) if schema else None,
            field_metadata_updates=updates,
        )

    return commit_change(table, operation, settings)


# With values -------------------------------------------------------------------------------


def add_columns(
    table: Table,
    columns: pa.Schema,
    run: RunColumns,
    settings: CommitSettings | None = None,
    *,
    members: Sequence[NewMember] = (),
) -> ColumnResult:
    """Add columns whose values ``run`` computes for every row, and ``members`` that are null."""
    return _write_columns(
        table,
        lambda snapshot: _with_new_columns(snapshot, columns, settings, members),
        run,
        settings,
    )


def widen_column(
    table: Table,
    path: str,
    new_type: pa.DataType,
    run: RunColumns,
    settings: CommitSettings | None = None,
) -> ColumnResult:
    """Change a top-level column to a wider type.

    The column gets a new field id and new files; ``run`` reads it and writes it with the type of
    the request.
    """
    return _write_columns(
        table, lambda snapshot: plan_widening(snapshot, path, new_type), run, settings
    )


def plan_widening(snapshot: Snapshot, path: str, new_type: pa.DataType) -> Target | None:
    """Return the schema with a wider type of a column; None if it has the type.

    Raises:
        InvalidInputError: The type is not wider, an index covers the column, or it is in a struct.
    """
    parents = find_field(snapshot.schema, path)
    old = parents[-1]
    if len(parents) > 1:
        raise InvalidInputError(
            f"{path!r} is a field of a struct; only whole columns can change their type"
        )
    first_id = next_field_id(snapshot.manifest)
    new = widen_field(old, new_type, first_id)
    if new is None:
        return None
    ids = frozenset(part.id for part in old.walk())
    for index in snapshot.indices:
        if ids & set(index.fields):
            raise InvalidInputError(
                f"the index {index.name!r} covers the column {path!r}",
                hint="drop the index, change the column, and build the index again",
            )
    schema = with_field(snapshot.schema, old.id, lambda _: new)
    return Target(schema, (new,), ids)


# Helpers -----------------------------------------------------------------------------------


def _is_case_sensitive(settings: CommitSettings | None) -> bool:
    return settings is not None and settings.case_sensitive


def _with_new_columns(
    snapshot: Snapshot,
    columns: pa.Schema,
    settings: CommitSettings | None,
    members: Sequence[NewMember] = (),
) -> Target:
    if not columns.names and not members:
        raise InvalidInputError("there is no column to add")
    version, first_id = snapshot.manifest.file_version, next_field_id(snapshot.manifest)
    is_sensitive = _is_case_sensitive(settings)
    schema = snapshot.schema
    for parent, member in members:
        schema = with_member(
            schema, parent, member, first_id, file_version=version, case_sensitive=is_sensitive
        )
        first_id = max(first_id, schema.max_field_id + 1)
    check_null_columns(snapshot.schema, schema, version)
    schema = with_columns(schema, columns, first_id, case_sensitive=is_sensitive)
    added = schema.fields[len(snapshot.schema.fields) :]
    if version != "0.1":
        check_columns(LanceSchema(added), version)
    return Target(schema, added)


def _with_nullability(
    snapshot: Snapshot,
    path: str,
    nullable: bool,
    has_nulls: Callable[[Snapshot, tuple[Field, ...]], bool],
) -> LanceSchema:
    fields = find_field(snapshot.schema, path)
    column = fields[-1]
    if column.nullable == nullable:
        return snapshot.schema
    if any(not parent.is_struct or parent.is_packed or parent.is_blob for parent in fields[:-1]):
        raise InvalidInputError(f"{path!r} is neither a column nor a field of a struct")
    if nullable and column.unenforced_primary_key:
        raise InvalidInputError(f"{path!r} is part of the primary key, which is never null")
    if not nullable and has_nulls(snapshot, fields):
        raise InvalidInputError(
            f"the column {path!r} holds nulls", hint="fill them with an update first"
        )
    return with_field(snapshot.schema, column.id, lambda field: replace(field, nullable=nullable))


def commit_change(
    table: Table, plan: Callable[[Snapshot], Operation | None], settings: CommitSettings | None
) -> ColumnResult:
    """Commit the operation that ``plan`` returns for the newest version."""
    result = commit_on_newest(table, plan, settings or CommitSettings())
    return ColumnResult() if result is None else ColumnResult(result.version)


def _merge(snapshot: Snapshot, schema: LanceSchema, fragments: tuple[Fragment, ...]) -> Merge:
    return Merge(
        fragments=fragments,
        schema=schema,
        preserves_nullability=not _is_stricter(snapshot.schema, schema),
    )


def _is_stricter(before: LanceSchema, after: LanceSchema) -> bool:
    """Return whether an existing column becomes non-nullable in ``after``."""
    nullable = {field.id: field.nullable for field in before.walk()}
    return any(nullable.get(field.id, False) and not field.nullable for field in after.walk())


def _write_columns(
    table: Table,
    plan: Callable[[Snapshot], Target | None],
    run: RunColumns,
    settings: CommitSettings | None,
) -> ColumnResult:
    settings = settings or CommitSettings()
    return UnitOfWork(table, settings).run(_NewValues(table, plan, run, settings).attempt)


@dataclass(slots=True)
class _Written:
    """A new file and the fragment for which it was written."""

    before: tuple[DataFile, ...]
    columns: LanceSchema
    file: ColumnFile


class _NewValues:
    """A schema change that writes values, across all its attempts."""

    def __init__(
        self,
        table: Table,
        plan: Callable[[Snapshot], Target | None],
        run: RunColumns,
        settings: CommitSettings,
    ) -> None:
        self._table = table
        self._plan = plan
        self._run = run
        self._settings = settings
        self._written: dict[int, _Written] = {}

    def attempt(self, work: UnitOfWork) -> ColumnResult:
        """Write the missing files of the newest version and commit."""
        snapshot = Snapshot.open(self._table)
        target = None if self._settings.is_committed_in(snapshot) else self._plan(snapshot)
        if target is None:
            return ColumnResult()
        needed = [
            fragment for fragment in counted_fragments(snapshot) if _needs_file(fragment, target)
        ]
        self._write(snapshot, target, needed, work)
        fragments, rows = [], 0
        ids = {fragment.id for fragment in needed}
        present = {field.id for field in target.schema.walk()}
        for fragment in snapshot.manifest.fragments:
            if fragment.id not in ids:
                fragments.append(fragment)
                continue
            written = self._written[fragment.id]
            mapping = same_columns(written.columns, LanceSchema(target.written))
            file = file_with_field_ids(written.file.file, mapping)
            kept = tuple(data_file for data_file in fragment.files if _is_alive(data_file, present))
            fragments.append(replace(fragment, files=(*kept, file)))
            rows += fragment.num_rows
        operation = _merge(snapshot, target.schema, tuple(fragments))
        result = work.commit(work.propose(BaseVersion.of(snapshot.manifest), operation))
        return ColumnResult() if result is None else ColumnResult(result.version, len(needed), rows)

    def _write(
        self, snapshot: Snapshot, target: Target, needed: Sequence[Fragment], work: UnitOfWork
    ) -> None:
        missing = {}
        for fragment in needed:
            known = self._written.get(fragment.id)
            if known is None or known.before != fragment.files:
                missing[fragment.id] = fragment
        if not missing:
            return
        columns = LanceSchema(target.written, snapshot.schema.metadata)
        request = ColumnFilesRequest(
            table=snapshot.table,
            read_version=snapshot.version,
            columns=columns,
            file_version=snapshot.manifest.file_version,
            fragments={
                fragment.id: FragmentRows(fragment.physical_rows, fragment.num_rows)
                for fragment in missing.values()
            },
            is_partial=len(missing) < len(snapshot.manifest.fragments),
        )
        for file in self._files(request):
            work.register_files([data_path(file.file.path)])
            before = missing.pop(file.fragment_id, None)
            if before is None:
                continue
            self._written[file.fragment_id] = _Written(before.files, columns, file)
        if missing:
            raise InvalidInputError(
                f"values are missing for fragment {min(missing)}",
                hint="the values must be computed row by row",
            )

    def _files(self, request: ColumnFilesRequest) -> Iterable[ColumnFile]:
        try:
            yield from self._run(request)
        except VersionNotFoundError as error:
            what = f"version {request.read_version}, whose values are read, was cleaned up"
            raise RetryableCommitError(
                what, request.table.uri, REDO, ConflictReason.FILES_REMOVED
            ) from error


def _needs_file(fragment: Fragment, target: Target) -> bool:
    if target.sources is None:
        return True
    return any(target.sources & set(file.fields) for file in fragment.files)


def _is_alive(file: DataFile, present: set[int]) -> bool:
    """Return whether the file has a column of the schema, or hidden lineage."""
    return any(field_id in present or field_id < TOMBSTONE for field_id in file.fields)


def compute_columns(
    names: Sequence[str],
    compute: Callable[[pa.RecordBatch], Sequence[pa.Array]],
    *,
    lineage: Sequence[str] = (),
) -> RunColumns:
    """Return a runner that applies ``compute`` to batches of the columns ``names``.

    ``compute``: returns the new columns of a batch, in order; ``lineage``: additional lineage
    columns to read.
    """

    def run_local(request: ColumnFilesRequest) -> Iterator[ColumnFile]:
        at = VersionSpec(version=request.read_version)
        snapshot = Snapshot.open(request.table, at)
        scan = ScanRequest(
            schema=project(snapshot.schema, names),
            system_columns=(ROW_ADDRESS, *lineage),
            fragments_per_task=1,
        )
        new = request.columns.to_arrow().names
        for task in plan_scan(snapshot, scan):
            slices = tuple(
                scan_split
                for scan_split in task.slices
                if scan_split.fragment.id in request.fragments
            )
            if slices:
                batches = (
                    pa.RecordBatch.from_arrays(
                        [batch.column(ROW_ADDRESS), *compute(batch)], names=[ROW_ADDRESS, *new]
                    )
                    for batch in replace(task, slices=slices).run()
                )
                yield from write_column_files(request, batches)

    return run_local


def copy_column(name: str) -> RunColumns:
    """Return a runner that copies the column ``name``."""
    return compute_columns([name], lambda batch: [batch.column(0)])


def constants(values: Sequence[pa.Scalar]) -> RunColumns:
    """Return a runner for columns of constant values."""
    return compute_columns([], lambda batch: [pa.repeat(value, batch.num_rows) for value in values])


def has_nulls(snapshot: Snapshot, fields: tuple[Field, ...]) -> bool:
    """Return whether a live row has a null in a column, or in a field of a non-null struct."""
    *parents, last = [f"`{field.name}`" for field in fields]
    path, terms = "", []
    for name in parents:
        path = f"{path}.{name}" if path else name
        terms.append(f"{path} IS NOT NULL")
    terms.append(f"{f'{path}.' if path else ''}{last} IS NULL")
    schema = project(snapshot.schema, [fields[0].name])
    arrow = schema.to_arrow()
    request = ScanRequest(
        schema=schema, predicate=all_of([parse_predicate(term, arrow) for term in terms])
    )
    return any(batch.num_rows for task in plan_scan(snapshot, request) for batch in task.run())


def set_primary_key(
    table: Table, columns: Sequence[str], settings: CommitSettings | None = None
) -> ColumnResult:
    """Set the primary key; commit nothing if it is unchanged.

    Raises InvalidInputError: the table has another key, or a column is missing, nested, nullable or
    repeated.
    """

    def operation(snapshot: Snapshot) -> Operation | None:
        schema, where = snapshot.schema, snapshot.uri
        known = primary_key(schema)
        if not columns:
            raise InvalidInputError("a primary key has at least one column", where)
        fields = [_check_column(schema, name, where) for name in columns]
        names = tuple(field.name for field in fields)
        if names == known:
            return None
        if known:
            raise InvalidInputError(
                f"the table has the primary key ({', '.join(known)}), which cannot be changed",
                where,
                "write the rows to a new table to give them another key",
            )
        if len(set(names)) < len(names):
            raise InvalidInputError("a column is named twice in the primary key", where)
        return UpdateConfig(
            field_metadata_updates={
                field.id: UpdateMap(((PRIMARY_KEY, "true"), (PRIMARY_KEY_POSITION, str(position))))
                for position, field in enumerate(fields, 1)
            }
        )

    return commit_change(table, operation, settings)


def _check_column(schema: LanceSchema, name: str, where: str) -> Field:
    """Return the column ``name`` if it can be part of a key."""
    path = find_field(schema, name)
    field = path[-1]
    if len(path) > 1 or field.children:
        raise InvalidInputError(
            f"{name!r} cannot be part of a primary key", where, "name columns that have no parts"
        )
    if field.nullable:
        raise InvalidInputError(
            f"column {name!r} of the primary key may be null",
            where,
            f"call LanceTable.changeColumn({name!r}, nullable=False) first; SQL cannot do it",
        )
    return field

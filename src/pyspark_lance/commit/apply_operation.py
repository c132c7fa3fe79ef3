"""Apply each kind of operation to a table, and so build manifest N + 1; pure, no I/O.

There is one function per kind. Everything that depends on the new version number is assigned here,
again for every attempt: fragment ids, row ids, row versions, feature flags and index coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.commit.application_versions import (
    application_version,
    config_with_application_version,
    keep_application_versions,
)
from pyspark_lance.commit.assign_lineage import mark_all_updated, mark_updated, row_ids_of
from pyspark_lance.commit.fragment_changes import (
    FragmentsById,
    changed_fields,
    changed_fragment_ids,
    removed_fragment_ids,
)
from pyspark_lance.commit.index_rules import (
    after_rewrite,
    replace_indices,
    with_reuse_index,
    without_changed_values,
    without_vanished_fields,
)
from pyspark_lance.commit.invariants import check_next_manifest, check_writable
from pyspark_lance.commit.manifest_builder import ManifestBuilder, TableState
from pyspark_lance.errors import (
    CommitConflictError,
    ConflictReason,
    InvalidInputError,
    RetryableCommitError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.clustering import with_renamed_columns
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.feature_flags import STABLE_ROW_IDS
from pyspark_lance.format.field import Field, key_positions
from pyspark_lance.format.fragment import MAX_FRAGMENT_ID, TOMBSTONE, DataFile, Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import BasePath, Manifest
from pyspark_lance.format.operation import (
    Append,
    CreateIndex,
    DataReplacement,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    ReserveFragments,
    Restore,
    Rewrite,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMap,
)
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.transaction import Transaction


def apply_update_config(
    operation: UpdateConfig,
    config: Mapping[str, str],
    table_metadata: Mapping[str, str],
    schema: LanceSchema,
) -> tuple[Mapping[str, str], Mapping[str, str], LanceSchema]:
    """Return the configuration, the table metadata and the schema after the update."""
    operation = in_new_form(operation)
    by_field = operation.field_metadata_updates
    unknown = by_field.keys() - {field.id for field in schema.walk()}
    if unknown:
        raise InvalidInputError(
            f"metadata for field {min(unknown)}, which the schema does not have"
        )
    if operation.schema_metadata_updates is not None:
        updated = _apply_to_bytes(operation.schema_metadata_updates, schema.metadata)
        schema = replace(schema, metadata=updated)
    if by_field:
        fields = tuple(_with_metadata(field, by_field) for field in schema.fields)
        schema = replace(schema, fields=fields)
    if operation.config_updates is not None:
        config = operation.config_updates.apply_to(config)
    if operation.table_metadata_updates is not None:
        table_metadata = operation.table_metadata_updates.apply_to(table_metadata)
    return config, table_metadata, schema


def in_new_form(operation: UpdateConfig) -> UpdateConfig:
    """Return the same update without the older forms, which list the whole new metadata."""
    config = operation.config_updates
    if operation.upsert_values or operation.delete_keys:
        given = config or UpdateMap()
        deletes = tuple((key, None) for key in operation.delete_keys)
        entries = (*given.entries, *deletes, *operation.upsert_values.items())
        config = UpdateMap(entries, given.replace)
    schema = operation.schema_metadata_updates
    if operation.schema_metadata and schema is None:
        schema = UpdateMap(tuple(operation.schema_metadata.items()), replace=True)
    older = {
        field_id: UpdateMap(tuple(metadata.items()), replace=True)
        for field_id, metadata in operation.field_metadata.items()
    }
    return UpdateConfig(
        config_updates=config,
        table_metadata_updates=operation.table_metadata_updates,
        schema_metadata_updates=schema,
        field_metadata_updates={**older, **operation.field_metadata_updates},
    )


def is_set(updates: UpdateMap | None) -> bool:
    """Return whether the update changes anything."""
    return updates is not None and (bool(updates.entries) or updates.replace)


def upserted_keys(updates: UpdateMap | None) -> set[str]:
    """Return the keys that get a value."""
    return {key for key, value in updates.entries if value is not None} if updates else set()


def _deleted_keys(updates: UpdateMap | None) -> set[str]:
    return {key for key, value in updates.entries if value is None} if updates else set()


def same_keys(ours: UpdateMap | None, theirs: UpdateMap | None) -> bool:
    """Return whether both change a common key."""
    if ours is None or theirs is None or not is_set(ours) or not is_set(theirs):
        return False
    if ours.replace or theirs.replace:
        return True  # Stricter than Lance: replacing a map touches every key.
    return not {key for key, _ in ours.entries}.isdisjoint(key for key, _ in theirs.entries)


def same_config_keys(ours: UpdateMap | None, theirs: UpdateMap | None) -> bool:
    """Compare as ``same_keys``, but both may delete the same key of the configuration."""
    replaced = any(updates is not None and updates.replace for updates in (ours, theirs))
    mine, other = upserted_keys(ours), upserted_keys(theirs)
    either = mine & (other | _deleted_keys(theirs)) or _deleted_keys(ours) & other
    return same_keys(ours, theirs) and (replaced or bool(either))


def _apply_to_bytes(updates: UpdateMap, values: Mapping[str, bytes]) -> Mapping[str, bytes]:
    """Return updated ``values``; unchanged values keep their bytes, even if not valid UTF-8."""
    touched = dict(updates.entries)
    kept = {} if updates.replace else {k: v for k, v in values.items() if k not in touched}
    return kept | {k: v.encode() for k, v in touched.items() if v is not None}


def _with_metadata(field: Field, by_field: Mapping[int, UpdateMap]) -> Field:
    """Return the field tree with the metadata of the listed fields updated."""
    children = tuple(_with_metadata(child, by_field) for child in field.children)
    updates = by_field.get(field.id)
    if updates is None:
        return field if children == field.children else replace(field, children=children)
    metadata = _apply_to_bytes(updates, field.metadata)
    is_key, position, clustering = key_positions(metadata)
    was_key = field.unenforced_primary_key or field.unenforced_clustering_key_position
    keys_before = key_positions(field.metadata)
    # Other writers may rely on a declared key and would not notice a change.
    if was_key and keys_before != (is_key, position, clustering):
        raise InvalidInputError(f"the key of column {field.name!r} cannot be changed once set")
    return replace(
        field,
        children=children,
        metadata=metadata,
        unenforced_primary_key=is_key,
        unenforced_primary_key_position=position,
        unenforced_clustering_key_position=clustering,
    )


def apply_operation(builder: ManifestBuilder, operation: Operation) -> None:
    """Apply ``operation`` to the manifest in ``builder``."""
    apply = _APPLY.get(type(operation))
    if apply is None:
        raise UnsupportedFeatureError(f"{type(operation).__name__} operations cannot be committed")
    apply(builder, operation)


# Whole tables ------------------------------------------------------------------------------


def fill_new_table(builder: ManifestBuilder, operation: Operation) -> None:
    """Version 1."""
    if not isinstance(operation, Overwrite):
        raise InvalidInputError(f"{type(operation).__name__} cannot create a table")
    builder.schema = operation.schema
    builder.config = dict(operation.config_upsert_values)
    builder.base_paths = _assign_base_ids((), operation.initial_bases)
    for fragment in operation.fragments:
        builder.add_rows(fragment)


def overwrite(
    builder: ManifestBuilder, operation: Overwrite, data_storage_version: str | None
) -> None:
    """Replace rows and schema; ids, configuration and base paths continue."""
    if operation.initial_bases:
        raise InvalidInputError("base paths can only be set when a table is created")
    _check_new_ids(builder, operation.schema)
    builder.schema = operation.schema
    builder.data_storage_version = data_storage_version or builder.data_storage_version
    builder.fragments = FragmentsById()
    builder.indices = ()
    builder.config = {**builder.config, **operation.config_upsert_values}
    for fragment in operation.fragments:
        builder.add_rows(fragment)


def _check_new_ids(builder: ManifestBuilder, schema: LanceSchema) -> None:
    """Reject new columns with used field ids, in tables that never reuse field ids."""
    kept = {(field.id, field.name) for field in builder.schema.walk()}
    new = [field.id for field in schema.walk() if (field.id, field.name) not in kept]
    allocated = builder.base.max_allocated_field_id
    if allocated is not None and min(new, default=allocated + 1) <= allocated:
        raise RetryableCommitError(
            f"the id {min(new)} of a new column was assigned concurrently to another column",
            hint="run the operation again on the newest version",
            conflict=ConflictReason.METADATA_CHANGED,
        )


def restore(builder: ManifestBuilder, operation: Restore, restored: TableState | None) -> None:
    """Restore the contents of an old version; ids used since are not used again."""
    if restored is None or restored.manifest.version != operation.version:
        raise InvalidInputError(f"version {operation.version} is needed to restore it")
    old = restored.manifest
    check_writable(old, restored.indices)
    now = builder.base
    if old.uses_stable_row_ids != now.uses_stable_row_ids:
        raise UnsupportedFeatureError(
            f"version {old.version} and version {now.version} differ in having stable row ids"
        )
    allocated = now.max_allocated_field_id
    if allocated is not None:
        if old.max_allocated_field_id is None:
            raise UnsupportedFeatureError(
                f"version {old.version} is older than the rule of the table that ids of columns "
                "are never used again (flag 32768)",
                hint="restore a version that has the rule, or read the old one and overwrite",
            )
        allocated = max(allocated, old.max_allocated_field_id)
    highest = [i for i in (old.max_fragment_id, now.max_fragment_id) if i is not None]
    # The timestamp of the newest version stays the lower bound of the next one.
    builder.base = replace(old, timestamp_ns=now.timestamp_ns, max_allocated_field_id=allocated)
    builder.schema = old.schema
    builder.fragments = FragmentsById(old.fragments)
    builder.touched = set(old.fragments.ids.tolist())
    builder.indices = restored.indices
    builder.max_fragment_id = max(highest, default=None)
    builder.next_row_id = max(old.next_row_id, now.next_row_id)
    builder.data_storage_version = old.file_version
    # Committed batches stay recorded: a stream does not run them again.
    builder.config = keep_application_versions(old.config, now.config)
    builder.table_metadata = old.table_metadata
    builder.base_paths = old.base_paths


# Rows --------------------------------------------------------------------------------------


def _append(builder: ManifestBuilder, operation: Append) -> None:
    for fragment in operation.fragments:
        builder.add_rows(fragment)


def _delete(builder: ManifestBuilder, operation: Delete) -> None:
    _replace_fragments(builder, operation)


def _replace_fragments(builder: ManifestBuilder, operation: Delete | Update) -> None:
    """Replace fragments that lost some rows, and remove those that lost all."""
    present = {field.id for field in builder.schema.walk()}
    for fragment in operation.updated_fragments:
        before = builder.existing(fragment.id)
        if before.physical_rows != fragment.physical_rows:
            raise InvalidInputError(
                f"fragment {fragment.id} has {before.physical_rows} rows, "
                f"its update {fragment.physical_rows}"
            )
        if fragment.num_deleted_rows < before.num_deleted_rows:
            raise CommitConflictError(
                f"deleted rows of fragment {fragment.id} would come back: it has "
                f"{before.num_deleted_rows} by now, and {fragment.num_deleted_rows} after this",
                hint="repeat the work; if it ends like this again, look at the table with verify()",
                conflict=ConflictReason.CONCURRENT_ROW_CHANGE,
            )
        if present.isdisjoint(changed_fields(before, fragment)):
            # A Delete only changes deletion files.  Data files are those of the newest version: a
            # file whose column was dropped after planning must not be added again.
            fragment = replace(before, deletion_file=fragment.deletion_file)
        elif isinstance(operation, Delete):
            raise CommitConflictError(f"a Delete with other data files for fragment {fragment.id}")
        builder.put(fragment)
    builder.remove(removed_fragment_ids(operation))


def _update(builder: ManifestBuilder, operation: Update) -> None:
    # Moved rows usually come from the fragments of the update; other fragments are searched last.
    sources = _PrioritizedFragments(builder.base.fragments, changed_fragment_ids(operation))

    changed = {
        fragment.id: changed_fields(builder.existing(fragment.id), fragment)
        for fragment in operation.updated_fragments
    }
    if operation.update_mode == 1:
        for fragment_id in changed:
            changed[fragment_id] |= frozenset(operation.fields_modified)
    _replace_fragments(builder, operation)
    if builder.stable:
        for fragment_id, offsets in _updated_offsets(operation).items():
            fragment = builder.existing(fragment_id)
            builder.put(mark_updated(fragment, offsets, builder.version))
    for fragment in operation.new_fragments:
        builder.add_rows(fragment, sources)
    builder.indices = without_changed_values(builder.indices, changed)


@dataclass(frozen=True, slots=True)
class _PrioritizedFragments:
    """Fragments in two groups: a few that are searched first, and all remaining ones."""

    fragments: Fragments
    first: Set[int]  # Ids, not all of which are there.

    def __iter__(self) -> Iterator[Fragment]:
        is_first = np.isin(self.fragments.ids, list(self.first))
        for indices in (is_first, ~is_first):
            yield from self.fragments.take(np.flatnonzero(indices))


def _updated_offsets(operation: Update) -> dict[int, NDArray[np.uint32]]:
    """Return the offsets of rows updated in place, by fragment id, from either form."""
    offsets = {
        fragment_id: np.asarray(given, dtype=np.uint32)
        for fragment_id, given in operation.updated_fragment_offsets.items()
    }
    for fragment_id, bitmap in operation.updated_fragment_offset_bitmaps.items():
        offsets[fragment_id] = DeletionVector.from_bitmap_bytes(bitmap).to_array()
    return offsets


def _rewrite(builder: ManifestBuilder, operation: Rewrite) -> None:
    """Move rows to other fragments; the compaction wrote their lineage."""
    if operation.rewritten_indices:
        raise UnsupportedFeatureError("a Rewrite that remaps indices; coverage is dropped instead")
    for group in operation.groups:
        before = [builder.existing(fragment.id) for fragment in group.old_fragments]
        live, kept = sum(f.num_rows for f in before), sum(f.num_rows for f in group.new_fragments)
        if live != kept:
            raise InvalidInputError(f"a rewrite of {live} rows into {kept} rows")
        builder.remove(fragment.id for fragment in before)
    moves = []
    for group in operation.groups:
        new_ids = []
        for fragment in group.new_fragments:
            _check_moved_lineage(builder, fragment)
            fragment = builder.with_id(fragment)
            builder.put(fragment)
            new_ids.append(fragment.id)
        moves.append((group.old_fragments, new_ids))
    if operation.clustering is not None:
        sorted_now = (number for _, ids in moves for number in ids)
        builder.config = operation.clustering.after(builder.config, sorted_now, builder.fragments)
    if operation.reuse_index is not None:
        builder.indices = with_reuse_index(
            builder.indices, operation.reuse_index, operation.replaces
        )
    else:
        builder.indices = after_rewrite(
            builder.indices, moves, builder.fragments, stable_row_ids=builder.stable
        )


def _check_moved_lineage(builder: ManifestBuilder, fragment: Fragment) -> None:
    lineage = (fragment.row_ids, fragment.created_at, fragment.last_updated_at)
    if builder.stable and None in lineage:
        raise InvalidInputError("a rewritten fragment without row ids or row versions")


# Columns -----------------------------------------------------------------------------------


def _merge(builder: ManifestBuilder, operation: Merge) -> None:
    """Replace all fragments and the schema."""
    if not builder.stable and operation.fragments and _all_have_row_ids(operation.fragments):
        _assign_stable_row_ids(builder, operation)
        return
    before = {fragment.id: fragment for fragment in builder.base.fragments}
    given = {fragment.id for fragment in operation.fragments}
    missing = before.keys() - given
    if missing:
        raise CommitConflictError(
            f"a Merge that lists no fragment {min(missing)}, "
            f"which version {builder.version - 1} has",
            hint="run the operation again on the newest version",
        )
    changed = {}
    for fragment in operation.fragments:
        old = before.get(fragment.id)
        if old is None:
            if 0 < fragment.id <= (builder.base.max_fragment_id or 0):
                raise RetryableCommitError(
                    f"fragment id {fragment.id} was reserved by another commit",
                    hint="run the operation again on the newest version",
                    conflict=ConflictReason.CONCURRENT_APPEND,
                )
            builder.add_rows(fragment)
            continue
        if old.physical_rows != fragment.physical_rows:
            raise CommitConflictError(
                f"fragment {fragment.id} has {old.physical_rows} rows, "
                f"the Merge says {fragment.physical_rows}"
            )
        if old.files != fragment.files:
            changed[fragment.id] = changed_fields(old, fragment)
            if builder.stable:
                fragment = mark_all_updated(fragment, builder.version)
        if fragment != old:
            builder.put(fragment)
    # Lance writes no schema metadata into a Merge, which keeps that of the table.
    _set_schema(builder, operation.schema, operation.schema.metadata or builder.schema.metadata)
    builder.indices = without_changed_values(builder.indices, changed)


def _all_have_row_ids(fragments: Iterable[Fragment]) -> bool:
    return all(isinstance(fragment.row_ids, bytes) for fragment in fragments)


def _assign_stable_row_ids(builder: ManifestBuilder, operation: Merge) -> None:
    """Assign stable row ids to all rows of a table without them; change nothing else."""
    if any(index.fields for index in builder.indices):
        raise UnsupportedFeatureError("stable row ids for a table whose indices hold addresses")
    bare = [
        replace(fragment, row_ids=None, created_at=None, last_updated_at=None)
        for fragment in operation.fragments
    ]
    if bare != list(builder.base.fragments) or operation.schema != builder.schema:
        raise RetryableCommitError(
            "the table changed since row ids were assigned",
            hint="run the operation again on the newest version",
        )
    builder.base = replace(builder.base, reader_flags=builder.base.reader_flags | STABLE_ROW_IDS)
    for fragment in operation.fragments:
        ids = row_ids_of(fragment)
        bounds = None if ids is None else ids.bounds()
        builder.next_row_id = max(builder.next_row_id, 0 if bounds is None else bounds[1] + 1)
        builder.put(fragment)


def _project(builder: ManifestBuilder, operation: Project) -> None:
    """Set a schema over the same files; drop files without a remaining column."""
    builder.config = with_renamed_columns(builder.config, builder.schema, operation.schema)
    _set_schema(builder, operation.schema, builder.schema.metadata)
    present = {field.id for field in builder.schema.walk()}
    # Most tables have few distinct field lists, so each is checked once.
    needed: dict[tuple[int, ...], bool] = {}

    def is_needed(file: DataFile) -> bool:
        if file.fields not in needed:
            needed[file.fields] = any(f in present or f < TOMBSTONE for f in file.fields)
        return needed[file.fields]

    for fragment in builder.base.fragments:
        files = tuple(file for file in fragment.files if is_needed(file))
        if len(files) != len(fragment.files):
            builder.put(replace(fragment, files=files))


def _set_schema(
    builder: ManifestBuilder, schema: LanceSchema, metadata: Mapping[str, bytes]
) -> None:
    builder.schema = replace(schema, metadata=metadata)
    builder.indices = without_vanished_fields(
        builder.indices, (field.id for field in schema.walk())
    )


def _data_replacement(builder: ManifestBuilder, operation: DataReplacement) -> None:
    """Replace the values of whole columns in place."""
    if len({group.new_file.fields for group in operation.replacements}) > 1:
        raise InvalidInputError("a DataReplacement whose files hold different columns")
    changed = {}
    for group in operation.replacements:
        fragment = builder.existing(group.fragment_id)
        files = _with_replacement(fragment, group.new_file)
        if files == fragment.files:
            raise InvalidInputError(f"nothing to replace in fragment {fragment.id}")
        changed[fragment.id] = group.new_file.fields
        fragment = replace(fragment, files=files)
        builder.put(mark_all_updated(fragment, builder.version) if builder.stable else fragment)
    builder.indices = without_changed_values(builder.indices, changed)


def _with_replacement(fragment: Fragment, new_file: DataFile) -> tuple[DataFile, ...]:
    """Replace the file with the same fields; add the file if the fragment has none."""
    files = tuple(
        new_file
        if old.fields == new_file.fields and old.file_version == new_file.file_version
        else old
        for old in fragment.files
    )
    stored = {field for file in fragment.files for field in file.fields}
    if files == fragment.files and stored.isdisjoint(new_file.fields):
        return (*files, new_file)
    return files


# Everything else ---------------------------------------------------------------------------


def _create_index(builder: ManifestBuilder, operation: CreateIndex) -> None:
    builder.indices = replace_indices(
        builder.indices, operation.new_indices, operation.removed_indices
    )


def _reserve_fragments(builder: ManifestBuilder, operation: ReserveFragments) -> None:
    reserved = (builder.max_fragment_id or 0) + operation.num_fragments
    if reserved > MAX_FRAGMENT_ID:
        raise InvalidInputError("the table has used up its 2^32 fragment ids")
    builder.max_fragment_id = reserved


def _update_config(builder: ManifestBuilder, operation: UpdateConfig) -> None:
    updated = apply_update_config(operation, builder.config, builder.table_metadata, builder.schema)
    builder.config, builder.table_metadata, builder.schema = updated


def _update_bases(builder: ManifestBuilder, operation: UpdateBases) -> None:
    builder.base_paths = _assign_base_ids(builder.base_paths, operation.new_bases)


def _assign_base_ids(
    existing: tuple[BasePath, ...], new_bases: tuple[BasePath, ...]
) -> tuple[BasePath, ...]:
    """Return ``existing`` and ``new_bases``; a new base with id 0 gets the next id."""
    bases = list(existing)
    for base in new_bases:
        if not base.id:
            base = replace(base, id=max((b.id for b in bases), default=0) + 1)
        for other in bases:
            if (
                base.id == other.id
                or base.path == other.path
                or base.name == other.name is not None
            ):
                raise InvalidInputError(f"base path {base.path!r} repeats an id, a name or a path")
        bases.append(base)
    return tuple(bases)


_APPLY: dict[type, Callable[..., None]] = {
    Append: _append,
    Delete: _delete,
    Update: _update,
    Rewrite: _rewrite,
    Merge: _merge,
    Project: _project,
    DataReplacement: _data_replacement,
    CreateIndex: _create_index,
    ReserveFragments: _reserve_fragments,
    UpdateConfig: _update_config,
    UpdateBases: _update_bases,
}


@dataclass(frozen=True, slots=True)
class CreateOptions:
    """Options that only the first version of a table can set."""

    stable_row_ids: bool = True  # Whether rows keep their ids when moved; fixed afterwards.
    data_storage_version: str = "2.1"  # File version of the data files, such as ``2.1``.


def next_manifest(
    current: TableState | None,
    transaction: Transaction,
    *,
    now_ns: int,
    restored: TableState | None = None,
    create: CreateOptions | None = None,
    data_storage_version: str | None = None,
) -> TableState:
    """Apply ``transaction`` to ``current`` and return the next version.

    The caller fills in ``transaction_file`` and the section offsets of the manifest.

    ``current``: the newest version; None to create a table. ``transaction``: compatible with
    ``current``. ``now_ns``: commit time, nanoseconds since the epoch.
    """
    operation = transaction.operation
    if current is None:
        builder = _empty_table(create or CreateOptions())
        fill_new_table(builder, operation)
    else:
        replaces_all = isinstance(operation, Restore | Overwrite)
        check_writable(current.manifest, current.indices, replaces_all=replaces_all)
        builder = ManifestBuilder.of(current)
        if isinstance(operation, Restore):
            restore(builder, operation, restored)
        elif isinstance(operation, Overwrite):
            overwrite(builder, operation, data_storage_version)
        else:
            apply_operation(builder, operation)
    builder.config = config_with_application_version(
        builder.config, application_version(transaction.properties)
    )
    state = builder.finish(tag=transaction.tag, now_ns=now_ns)
    before = current.manifest if current else None
    check_next_manifest(before, state.manifest, state.indices, operation, builder.touched)
    return state


def _empty_table(options: CreateOptions) -> ManifestBuilder:
    """Return the state before the first version."""
    manifest = Manifest(
        version=0,
        schema=LanceSchema(),
        reader_flags=STABLE_ROW_IDS if options.stable_row_ids else 0,
        data_storage_version=options.data_storage_version,
    )
    return ManifestBuilder.of(TableState(manifest))

"""Conflict matrix: one rule for each pair of operations; pure, no I/O.

``ours`` is the operation about to be committed, ``theirs`` one that was committed after the
version that ours was planned on.  The matrix is Lance's (an unknown pair is a refusal), with four
additions, each marked by "Stricter than Lance" below.  They prevent an index from covering rows
whose values it never read, a replaced map from losing keys, and appended values from being lost in
a column that has another field id since.

The rules compare operations only.  REBASE: both change rows of one fragment and may both
succeed if their rows differ.  A caller that knows the rows decides (``rebase.py``); any other
caller treats it as RETRY.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_lance.commit.apply_operation import (
    in_new_form,
    is_set,
    same_config_keys,
    same_keys,
    upserted_keys,
)
from pyspark_lance.commit.fragment_changes import changed_fragment_ids, removed_fragment_ids
from pyspark_lance.commit.inserted_keys import may_share_keys
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.operation import (
    Append,
    Clone,
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
    UnknownOperation,
    Update,
    UpdateBases,
    UpdateConfig,
    UpdateMemWalState,
)

_TRANSACTIONS_V2 = 116


class Resolution(enum.Enum):
    """Resolution of ours, given theirs."""

    COMPATIBLE = "commit on top, unchanged"
    REBASE = "commit on top if the changed rows differ"
    RETRY = "redo the work on the newer version"
    INCOMPATIBLE = "fail: redoing the work would undo theirs"


@dataclass(frozen=True, slots=True)
class ConflictCheck:
    """A resolution and, unless it is COMPATIBLE, the reason in one sentence."""

    resolution: Resolution
    reason: str = ""


Rule = Callable[[Any, Any], ConflictCheck]

_COMPATIBLE = ConflictCheck(Resolution.COMPATIBLE)


def check_conflict(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Return whether ``ours`` may be committed after ``theirs``."""
    return RULES[type(ours), type(theirs)](ours, theirs)


def _retry(reason: str) -> ConflictCheck:
    return ConflictCheck(Resolution.RETRY, reason)


def _give_up(reason: str) -> ConflictCheck:
    return ConflictCheck(Resolution.INCOMPATIBLE, reason)


def _some(ids: Iterable[int]) -> str:
    """Return the first five ids, for a message."""
    ordered = sorted(ids)
    return ", ".join(map(str, ordered[:5])) + (", ..." if len(ordered) > 5 else "")


# Rules without a condition -----------------------------------------------------------------


def compatible(_ours: Operation, _theirs: Operation) -> ConflictCheck:
    """Compatible: the operations are independent."""
    return _COMPATIBLE


def retry(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Retry: ours was planned on a state that theirs changed."""
    return _retry(f"{_name(ours)} cannot follow a concurrent {_name(theirs)} as it was planned")


def give_up(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Incompatible: theirs replaced the table that ours was planned on."""
    return _give_up(f"{_name(ours)} cannot be applied after a concurrent {_name(theirs)}")


def refuse(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Incompatible: the effect of one of the two is unknown."""
    for operation in (theirs, ours):
        if isinstance(operation, UnknownOperation):
            known = operation.field_number == _TRANSACTIONS_V2
            name = "Transactions V2" if known else "a newer format"
            return _give_up(
                f"an operation of {name} (transaction field {operation.field_number}) "
                "was committed; its effect is unknown"
            )
    return _give_up(f"{_name(ours)} and {_name(theirs)} are never committed one after the other")


def _name(operation: Operation) -> str:
    return type(operation).__name__


# Fragments ---------------------------------------------------------------------------------


def retry_on_common_fragment(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Retry if both touch a fragment, as their rows cannot be compared."""
    common = changed_fragment_ids(ours) & changed_fragment_ids(theirs)
    if common:
        return _retry(f"a concurrent {_name(theirs)} also changed fragment {_some(common)}")
    return _COMPATIBLE


def rows_after_rows(ours: Delete | Update, theirs: Delete | Update) -> ConflictCheck:
    """Compare deletes and updates by row, unless a fragment is removed or its files changed."""
    common = changed_fragment_ids(ours) & changed_fragment_ids(theirs)
    if not common:
        return _COMPATIBLE
    where = f"fragment {_some(common)}"
    if common & removed_fragment_ids(theirs):
        return _retry(f"a concurrent {_name(theirs)} removed rows of all of {where}")
    if common & removed_fragment_ids(ours):
        return _retry(f"a concurrent {_name(theirs)} changed {where}, which this operation removes")
    if rewrites_columns(ours) or rewrites_columns(theirs):
        return _retry(f"columns and rows of {where} were changed concurrently")
    return ConflictCheck(Resolution.REBASE, f"a concurrent {_name(theirs)} also changed {where}")


def rewrites_columns(operation: Delete | Update) -> bool:
    """Return whether the operation replaces data files of existing fragments."""
    return isinstance(operation, Update) and (
        operation.update_mode == 1 or bool(operation.fields_modified)
    )


def update_after_append(ours: Update, theirs: Append) -> ConflictCheck:
    """Retry a merge with unique keys, as the keys of the append are unknown."""
    if ours.inserted_rows is not None and theirs.fragments:
        return _retry("a concurrent Append may have inserted the same keys")
    return _COMPATIBLE


def update_after_update(ours: Update, theirs: Update) -> ConflictCheck:
    """Compare rows; a merge with unique keys also compares the inserted keys."""
    if theirs.new_fragments and may_insert_same_keys(ours, theirs):
        return _retry("a concurrent Update may have inserted the same keys")
    return rows_after_rows(ours, theirs)


def may_insert_same_keys(ours: Update, theirs: Update) -> bool:
    """Return whether both may have inserted a key, as far as ours records keys."""
    if ours.inserted_rows is None:
        return False
    return theirs.inserted_rows is None or may_share_keys(ours.inserted_rows, theirs.inserted_rows)


def replacement_after_delete(ours: DataReplacement, theirs: Delete | Update) -> ConflictCheck:
    """Compatible with deleted rows, which keep their offsets; not with a removed fragment."""
    removed = changed_fragment_ids(ours) & removed_fragment_ids(theirs)
    if removed:
        return _give_up(f"a concurrent {_name(theirs)} removed fragment {_some(removed)}")
    return _COMPATIBLE


def replacement_after_update(ours: DataReplacement, theirs: Update) -> ConflictCheck:
    """Retry if the update moved rows out of the fragment or wrote the same column."""
    common = changed_fragment_ids(ours) & changed_fragment_ids(theirs)
    same_field = _replaced_fields(ours) & set(theirs.fields_modified)
    moved_rows = bool(theirs.new_fragments) and not rewrites_columns(theirs)
    conflict_check = replacement_after_delete(ours, theirs)
    if conflict_check is _COMPATIBLE and common and (same_field or moved_rows):
        return _retry(f"a concurrent Update also changed fragment {_some(common)}")
    return conflict_check


def replacement_after_replacement(ours: DataReplacement, theirs: DataReplacement) -> ConflictCheck:
    """Retry if both replace the same column of the same fragment."""
    if _replaced_fields(ours) & _replaced_fields(theirs):
        return retry_on_common_fragment(ours, theirs)
    return _COMPATIBLE


def _replaced_fields(operation: DataReplacement) -> set[int]:
    return {field for group in operation.replacements for field in group.new_file.fields}


# Schema ------------------------------------------------------------------------------------


def retry_unless_theirs_preserves_nullability(
    ours: Operation, theirs: Merge | Project
) -> ConflictCheck:
    """Retry unless the new schema accepts nulls: rows of ours may have some."""
    return _COMPATIBLE if theirs.preserves_nullability else retry(ours, theirs)


def append_after_merge(ours: Append, theirs: Merge) -> ConflictCheck:
    """Stricter than Lance: retry if a column has another field id, as after a change of type.

    Values written under the old field id would read as null; values of a dropped column are not
    needed.
    """
    written = {
        field for fragment in ours.fragments for file in fragment.files for field in file.fields
    }
    present = {field.id for field in theirs.schema.walk()}
    if any(field >= 0 for field in written - present):
        return _retry("a concurrent Merge replaced a column that was written")
    return retry_unless_theirs_preserves_nullability(ours, theirs)


def retry_unless_ours_preserves_nullability(ours: Project, theirs: Operation) -> ConflictCheck:
    """Retry unless our schema accepts nulls: new rows may have some."""
    return _COMPATIBLE if ours.preserves_nullability else retry(ours, theirs)


# Indices -----------------------------------------------------------------------------------


def index_after_index(ours: CreateIndex, theirs: CreateIndex) -> ConflictCheck:
    """Retry if both create an index; stricter than Lance: also if one drops, one refreshes it."""
    ours_new, theirs_new = ({i.name for i in made.new_indices} for made in (ours, theirs))
    common = ours_new & theirs_new
    if common:
        return _retry(f"a concurrent CreateIndex also created {sorted(common)[0]!r}")
    dropped = ours_new & {index.name for index in theirs.removed_indices}
    if dropped:
        return _retry(f"a concurrent CreateIndex dropped {sorted(dropped)[0]!r}")
    kept = theirs_new & {index.name for index in ours.removed_indices}
    if kept:
        return _retry(f"a concurrent CreateIndex added to {sorted(kept)[0]!r}, which is dropped")
    return _COMPATIBLE


def _first_covering(
    indices: Iterable[IndexMetadata], fragment_ids: Iterable[int]
) -> IndexMetadata | None:
    """Return the first index that covers, or may cover, one of the fragments."""
    wanted = list(fragment_ids)
    for index in indices:
        covered = index.fragment_bitmap
        if wanted and (covered is None or any(fragment in covered for fragment in wanted)):
            return index
    return None


def index_after_rewrite(ours: CreateIndex, theirs: Rewrite) -> ConflictCheck:
    """Retry if rows that were indexed have moved."""
    index = _first_covering(ours.new_indices, changed_fragment_ids(theirs))
    if index is not None:
        return _retry(f"a concurrent Rewrite moved rows that index {index.name!r} covers")
    return _COMPATIBLE


def rewrite_after_index(ours: Rewrite, theirs: CreateIndex) -> ConflictCheck:
    """Retry if ours moves rows that were just indexed."""
    index = _first_covering(theirs.new_indices, changed_fragment_ids(ours))
    if index is not None:
        return _retry(f"a concurrent CreateIndex created {index.name!r} over rows that move")
    return _COMPATIBLE


def index_after_update(ours: CreateIndex, theirs: Update) -> ConflictCheck:
    """Stricter than Lance: retry if indexed values were replaced in place."""
    if not rewrites_columns(theirs):
        return _COMPATIBLE
    modified = set(theirs.fields_modified)
    stale = [i for i in ours.new_indices if modified & set(i.fields)]
    index = _first_covering(stale, changed_fragment_ids(theirs))
    if index is not None:
        return _retry(f"a concurrent Update replaced values that index {index.name!r} covers")
    return _COMPATIBLE


def index_after_replacement(ours: CreateIndex, theirs: DataReplacement) -> ConflictCheck:
    """Retry if an indexed column was replaced, in any fragment."""
    return _same_field_indexed(ours, theirs, theirs)


def replacement_after_index(ours: DataReplacement, theirs: CreateIndex) -> ConflictCheck:
    """Retry if ours replaces a column that was just indexed, in any fragment."""
    return _same_field_indexed(theirs, ours, theirs)


def _same_field_indexed(
    index: CreateIndex, replacement: DataReplacement, theirs: Operation
) -> ConflictCheck:
    fields = _replaced_fields(replacement)
    for entry in index.new_indices:
        if fields & set(entry.fields):
            return _retry(f"a concurrent {_name(theirs)} changes values of index {entry.name!r}")
    return _COMPATIBLE


def index_after_schema(ours: CreateIndex, theirs: Merge | Project) -> ConflictCheck:
    """Stricter than Lance: retry if the indexed column was removed."""
    present = {field.id for field in theirs.schema.walk()}
    for index in ours.new_indices:
        if not present.issuperset(index.fields):
            return _retry(f"a concurrent {_name(theirs)} removed a column of {index.name!r}")
    return _COMPATIBLE


# Configuration -----------------------------------------------------------------------------


def changes_schema_metadata(operation: UpdateConfig) -> bool:
    """Return whether metadata of the schema or of a field is changed."""
    operation = in_new_form(operation)
    return is_set(operation.schema_metadata_updates) or bool(operation.field_metadata_updates)


def config_after_config(ours: UpdateConfig, theirs: UpdateConfig) -> ConflictCheck:
    """Incompatible if both set the same key of the same map; schema metadata counts as one key."""
    ours, theirs = in_new_form(ours), in_new_form(theirs)
    configs = (ours.config_updates, theirs.config_updates)
    if same_config_keys(*configs):
        return _give_up("a concurrent UpdateConfig set the same configuration key")
    if same_keys(ours.table_metadata_updates, theirs.table_metadata_updates):
        return _give_up("a concurrent UpdateConfig set the same key of the table metadata")
    if is_set(ours.schema_metadata_updates) and is_set(theirs.schema_metadata_updates):
        return _give_up("a concurrent UpdateConfig changed the schema metadata")
    if set(ours.field_metadata_updates) & set(theirs.field_metadata_updates):
        return _give_up("a concurrent UpdateConfig changed the metadata of the same field")
    return _COMPATIBLE


def config_after_new_table(ours: UpdateConfig, theirs: Overwrite | Restore) -> ConflictCheck:
    """Incompatible if ours changes metadata of a schema that was replaced."""
    return give_up(ours, theirs) if changes_schema_metadata(ours) else _COMPATIBLE


def config_after_merge(ours: UpdateConfig, theirs: Merge) -> ConflictCheck:
    """Retry if ours changes metadata of a schema that was replaced."""
    return retry(ours, theirs) if changes_schema_metadata(ours) else _COMPATIBLE


def merge_after_config(ours: Merge, theirs: UpdateConfig) -> ConflictCheck:
    """Retry if our schema would restore old metadata."""
    return retry(ours, theirs) if changes_schema_metadata(theirs) else _COMPATIBLE


def restore_after_config(ours: Restore, theirs: UpdateConfig) -> ConflictCheck:
    """Retry if the restored schema would restore old metadata."""
    return give_up(ours, theirs) if changes_schema_metadata(theirs) else _COMPATIBLE


def overwrite_after_overwrite(ours: Overwrite, theirs: Overwrite) -> ConflictCheck:
    """The last one wins, unless both set the same configuration key."""
    if set(ours.config_upsert_values) & set(theirs.config_upsert_values):
        return _give_up("a concurrent Overwrite set the same configuration key")
    return retry(ours, theirs)


def overwrite_after_config(ours: Overwrite, theirs: UpdateConfig) -> ConflictCheck:
    """Incompatible only when both set the same key."""
    if set(ours.config_upsert_values) & upserted_keys(in_new_form(theirs).config_updates):
        return _give_up("a concurrent UpdateConfig set the same configuration key")
    return _COMPATIBLE


def bases_after_bases(ours: UpdateBases, theirs: UpdateBases) -> ConflictCheck:
    """Incompatible if both add the same id, name or path; id 0 lets the committer choose one."""
    for mine in ours.new_bases:
        for other in theirs.new_bases:
            same_name = mine.name is not None and mine.name == other.name
            if (mine.id and mine.id == other.id) or same_name or mine.path == other.path:
                return _give_up(f"a concurrent UpdateBases added base {other.path!r}")
    return _COMPATIBLE


# The table ---------------------------------------------------------------------------------

_Row = tuple[tuple[Rule, tuple[type, ...]], ...]

# One row for each of ours; each of theirs occurs once in it.
_ROWS: dict[type, _Row] = {
    Append: (
        (compatible, (Append, Delete, Update, CreateIndex, Rewrite, UpdateConfig, DataReplacement)),
        (compatible, (ReserveFragments, UpdateBases)),
        (append_after_merge, (Merge,)),
        (retry_unless_theirs_preserves_nullability, (Project,)),
        (give_up, (Overwrite, Restore)),
    ),
    Delete: (
        (compatible, (Append, CreateIndex, Project, UpdateConfig, ReserveFragments, UpdateBases)),
        (rows_after_rows, (Delete, Update)),
        (retry_on_common_fragment, (Rewrite, DataReplacement)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    Update: (
        (compatible, (CreateIndex, UpdateConfig, ReserveFragments, UpdateBases)),
        (update_after_append, (Append,)),
        (rows_after_rows, (Delete,)),
        (update_after_update, (Update,)),
        (retry_on_common_fragment, (Rewrite, DataReplacement)),
        (retry_unless_theirs_preserves_nullability, (Project,)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    Overwrite: (
        (compatible, (Append, Delete, Update, CreateIndex, Rewrite, Merge, Project, Restore)),
        (compatible, (DataReplacement, ReserveFragments, UpdateBases)),
        (overwrite_after_overwrite, (Overwrite,)),
        (overwrite_after_config, (UpdateConfig,)),
    ),
    CreateIndex: (
        (compatible, (Append, Delete, UpdateConfig, ReserveFragments, UpdateBases)),
        (index_after_index, (CreateIndex,)),
        (index_after_rewrite, (Rewrite,)),
        (index_after_replacement, (DataReplacement,)),
        (index_after_update, (Update,)),
        (index_after_schema, (Merge, Project)),
        (give_up, (Overwrite, Restore)),
    ),
    Rewrite: (
        (compatible, (Append, Project, UpdateConfig, ReserveFragments, UpdateBases)),
        (retry_on_common_fragment, (Delete, Update, Rewrite, DataReplacement)),
        (rewrite_after_index, (CreateIndex,)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    Merge: (
        (compatible, (CreateIndex, ReserveFragments, UpdateBases)),
        (retry, (Append, Delete, Update, Rewrite, Merge, DataReplacement)),
        (merge_after_config, (UpdateConfig,)),
        (give_up, (Overwrite, Project, Restore)),
    ),
    Project: (
        (compatible, (Delete, CreateIndex, Rewrite, UpdateConfig, ReserveFragments, UpdateBases)),
        (retry_unless_ours_preserves_nullability, (Append, Update, DataReplacement)),
        (retry, (Merge, Project)),
        (give_up, (Overwrite, Restore)),
    ),
    Restore: (
        (compatible, (Append, Delete, Update, Overwrite, CreateIndex, Rewrite, Merge, Project)),
        (compatible, (Restore, DataReplacement, ReserveFragments, UpdateBases)),
        (restore_after_config, (UpdateConfig,)),
    ),
    UpdateConfig: (
        (compatible, (Append, Delete, Update, CreateIndex, Rewrite, Project, DataReplacement)),
        (compatible, (ReserveFragments, UpdateBases)),
        (config_after_new_table, (Overwrite, Restore)),
        (config_after_merge, (Merge,)),
        (config_after_config, (UpdateConfig,)),
    ),
    DataReplacement: (
        (compatible, (Append, UpdateConfig, ReserveFragments, UpdateBases)),
        (replacement_after_delete, (Delete,)),
        (replacement_after_update, (Update,)),
        (replacement_after_index, (CreateIndex,)),
        (retry_on_common_fragment, (Rewrite,)),
        (replacement_after_replacement, (DataReplacement,)),
        (retry_unless_theirs_preserves_nullability, (Project,)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    ReserveFragments: (
        (compatible, (Append, Delete, Update, CreateIndex, Rewrite, Merge, Project, UpdateConfig)),
        (compatible, (DataReplacement, ReserveFragments, UpdateBases)),
        (give_up, (Overwrite, Restore)),
    ),
    UpdateBases: (
        (compatible, (Append, Delete, Update, Overwrite, CreateIndex, Rewrite, Merge, Project)),
        (compatible, (Restore, UpdateConfig, DataReplacement, ReserveFragments)),
        (bases_after_bases, (UpdateBases,)),
    ),
}

# A clone is the first version of its table; the mem-WAL and unknown operations have no rules.
_WITHOUT_RULES = (Clone, UpdateMemWalState, UnknownOperation)


def _matrix(rows: Mapping[type, _Row]) -> dict[tuple[type, type], Rule]:
    """Return all pairs; ``_WITHOUT_RULES`` is refused on either side."""
    everything = (*rows, *_WITHOUT_RULES)
    matrix: dict[tuple[type, type], Rule] = {
        (ours, theirs): refuse
        for ours in everything
        for theirs in everything
        if ours in _WITHOUT_RULES or theirs in _WITHOUT_RULES
    }
    for ours, row in rows.items():
        for rule, columns in row:
            for theirs in columns:
                if (ours, theirs) in matrix:
                    raise AssertionError(f"two rules for {ours.__name__} after {theirs.__name__}")
                matrix[ours, theirs] = rule
    return matrix


RULES: Mapping[tuple[type, type], Rule] = _matrix(_ROWS)

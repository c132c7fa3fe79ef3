"""May ours follow theirs?  One table of rules over pairs of operations; pure, no I/O.

``ours`` is the operation about to be committed, ``theirs`` one that was committed after the
version ours was planned on.  The table is Lance's (an unknown pair is a refusal), with four
additions, each marked by "Stricter than Lance" below: they stop an index from claiming rows whose
values it never saw, a replaced map from losing keys that nobody saw, and appended values from
being lost in a column that has another field by now.

The rules look at operations only.  REBASE says that both change rows of one fragment and may
still both succeed when their rows differ; whoever knows the rows finds out (``rebase.py``),
whoever does not treats it as RETRY.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark_lance.commit.fragment_changes import changed_fragment_ids, removed_fragment_ids
from pyspark_lance.commit.inserted_keys import may_share_keys
from pyspark_lance.commit.metadata_updates import (
    in_new_form,
    is_set,
    same_config_keys,
    same_keys,
    upserted_keys,
)
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
    """What becomes of ours, given theirs."""

    COMPATIBLE = "commit on top, unchanged"
    REBASE = "commit on top if the changed rows differ"
    RETRY = "redo the work on the newer version"
    INCOMPATIBLE = "give up: redoing the work would undo theirs"


@dataclass(frozen=True, slots=True)
class ConflictCheck:
    """A verdict and, unless it is COMPATIBLE, one sentence on why."""

    resolution: Resolution
    reason: str = ""


Rule = Callable[[Any, Any], ConflictCheck]

_FINE = ConflictCheck(Resolution.COMPATIBLE)


def check_conflict(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Whether ``ours`` may be committed after ``theirs``."""
    return RULES[type(ours), type(theirs)](ours, theirs)


def _retry(reason: str) -> ConflictCheck:
    return ConflictCheck(Resolution.RETRY, reason)


def _give_up(reason: str) -> ConflictCheck:
    return ConflictCheck(Resolution.INCOMPATIBLE, reason)


def _some(ids: Iterable[int]) -> str:
    """The first few ids, for a message."""
    ordered = sorted(ids)
    return ", ".join(map(str, ordered[:5])) + (", ..." if len(ordered) > 5 else "")


# Rules without a condition -----------------------------------------------------------------


def fine(_ours: Operation, _theirs: Operation) -> ConflictCheck:
    """Neither disturbs the other."""
    return _FINE


def retry(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Ours was planned on a state that theirs changed."""
    return _retry(f"{_name(ours)} cannot follow a concurrent {_name(theirs)} as it was planned")


def give_up(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Theirs replaced the table that ours was meant for."""
    return _give_up(f"{_name(ours)} makes no sense after a concurrent {_name(theirs)}")


def refuse(ours: Operation, theirs: Operation) -> ConflictCheck:
    """The effect of one of the two cannot be judged."""
    for operation in (theirs, ours):
        if isinstance(operation, UnknownOperation):
            known = operation.field_number == _TRANSACTIONS_V2
            name = "Transactions V2" if known else "a newer format"
            return _give_up(
                f"an operation of {name} (transaction field {operation.field_number}) "
                "is in the way; its effect is unknown"
            )
    return _give_up(f"{_name(ours)} and {_name(theirs)} are never committed one after the other")


def _name(operation: Operation) -> str:
    return type(operation).__name__


# Fragments ---------------------------------------------------------------------------------


def retry_on_common_fragment(ours: Operation, theirs: Operation) -> ConflictCheck:
    """Both touch a fragment, and the rows cannot be told apart."""
    common = changed_fragment_ids(ours) & changed_fragment_ids(theirs)
    if common:
        return _retry(f"a concurrent {_name(theirs)} also changed fragment {_some(common)}")
    return _FINE


def row_changes_meet(ours: Delete | Update, theirs: Delete | Update) -> ConflictCheck:
    """Deletes and updates: the rows decide, unless a fragment is gone or its files changed."""
    common = changed_fragment_ids(ours) & changed_fragment_ids(theirs)
    if not common:
        return _FINE
    where = f"fragment {_some(common)}"
    if common & removed_fragment_ids(theirs):
        return _retry(f"a concurrent {_name(theirs)} removed rows of all of {where}")
    if common & removed_fragment_ids(ours):
        return _retry(f"a concurrent {_name(theirs)} changed {where}, all of which goes away")
    if rewrites_columns(ours) or rewrites_columns(theirs):
        return _retry(f"columns and rows of {where} were changed concurrently")
    return ConflictCheck(Resolution.REBASE, f"a concurrent {_name(theirs)} also changed {where}")


def rewrites_columns(operation: Delete | Update) -> bool:
    """Whether the operation replaces data files of fragments that stay."""
    return isinstance(operation, Update) and (
        operation.update_mode == 1 or bool(operation.fields_modified)
    )


def update_meets_append(ours: Update, theirs: Append) -> ConflictCheck:
    """A merge that promised unique keys cannot know what the append brought."""
    if ours.inserted_rows is not None and theirs.fragments:
        return _retry("a concurrent Append may have inserted the same keys")
    return _FINE


def update_meets_update(ours: Update, theirs: Update) -> ConflictCheck:
    """As for rows; and a merge that promised unique keys checks for inserted ones."""
    if theirs.new_fragments and may_insert_same_keys(ours, theirs):
        return _retry("a concurrent Update may have inserted the same keys")
    return row_changes_meet(ours, theirs)


def may_insert_same_keys(ours: Update, theirs: Update) -> bool:
    """Whether both may have inserted a key, as far as ours notes keys at all."""
    if ours.inserted_rows is None:
        return False
    return theirs.inserted_rows is None or may_share_keys(ours.inserted_rows, theirs.inserted_rows)


def replacement_meets_delete(ours: DataReplacement, theirs: Delete | Update) -> ConflictCheck:
    """Deleted rows keep their place in the file; a removed fragment has none."""
    gone = changed_fragment_ids(ours) & removed_fragment_ids(theirs)
    if gone:
        return _give_up(f"a concurrent {_name(theirs)} removed fragment {_some(gone)}")
    return _FINE


def replacement_meets_update(ours: DataReplacement, theirs: Update) -> ConflictCheck:
    """The update moved rows out of the fragment, or wrote the same column."""
    common = changed_fragment_ids(ours) & changed_fragment_ids(theirs)
    same_field = _replaced_fields(ours) & set(theirs.fields_modified)
    moved_rows = bool(theirs.new_fragments) and not rewrites_columns(theirs)
    conflict_check = replacement_meets_delete(ours, theirs)
    if conflict_check is _FINE and common and (same_field or moved_rows):
        return _retry(f"a concurrent Update also changed fragment {_some(common)}")
    return conflict_check


def replacements_meet(ours: DataReplacement, theirs: DataReplacement) -> ConflictCheck:
    """The same column of the same fragment."""
    if _replaced_fields(ours) & _replaced_fields(theirs):
        return retry_on_common_fragment(ours, theirs)
    return _FINE


def _replaced_fields(operation: DataReplacement) -> set[int]:
    return {field for group in operation.replacements for field in group.new_file.fields}


# Schema ------------------------------------------------------------------------------------


def retry_unless_theirs_preserves_nullability(
    ours: Operation, theirs: Merge | Project
) -> ConflictCheck:
    """Rows of ours may hold nulls that the new schema forbids."""
    return _FINE if theirs.preserves_nullability else retry(ours, theirs)


def append_meets_merge(ours: Append, theirs: Merge) -> ConflictCheck:
    """Stricter than Lance: a column got another field, as when its type changes.

    What ours has under the old field would be null; a column that is only dropped is not missed.
    """
    written = {
        field for fragment in ours.fragments for file in fragment.files for field in file.fields
    }
    present = {field.id for field in theirs.schema.walk()}
    if any(field >= 0 for field in written - present):
        return _retry("a concurrent Merge replaced a column that was written")
    return retry_unless_theirs_preserves_nullability(ours, theirs)


def retry_unless_ours_preserves_nullability(ours: Project, theirs: Operation) -> ConflictCheck:
    """New rows may hold nulls that our schema forbids."""
    return _FINE if ours.preserves_nullability else retry(ours, theirs)


# Indices -----------------------------------------------------------------------------------


def indices_meet(ours: CreateIndex, theirs: CreateIndex) -> ConflictCheck:
    """Two indices of one name; stricter than Lance: one that is dropped while it is refreshed."""
    ours_new, theirs_new = ({i.name for i in made.new_indices} for made in (ours, theirs))
    common = ours_new & theirs_new
    if common:
        return _retry(f"a concurrent CreateIndex also made {sorted(common)[0]!r}")
    dropped = ours_new & {index.name for index in theirs.removed_indices}
    if dropped:
        return _retry(f"a concurrent CreateIndex dropped {sorted(dropped)[0]!r}")
    kept = theirs_new & {index.name for index in ours.removed_indices}
    if kept:
        return _retry(f"a concurrent CreateIndex added to {sorted(kept)[0]!r}, which is dropped")
    return _FINE


def _first_covering(
    indices: Iterable[IndexMetadata], fragment_ids: Iterable[int]
) -> IndexMetadata | None:
    """An index that answers, or may answer, for one of the fragments."""
    wanted = list(fragment_ids)
    for index in indices:
        covered = index.fragment_bitmap
        if wanted and (covered is None or any(fragment in covered for fragment in wanted)):
            return index
    return None


def index_meets_rewrite(ours: CreateIndex, theirs: Rewrite) -> ConflictCheck:
    """The rows that were indexed have moved."""
    index = _first_covering(ours.new_indices, changed_fragment_ids(theirs))
    if index is not None:
        return _retry(f"a concurrent Rewrite moved rows that index {index.name!r} covers")
    return _FINE


def rewrite_meets_index(ours: Rewrite, theirs: CreateIndex) -> ConflictCheck:
    """Ours moves rows that were just indexed."""
    index = _first_covering(theirs.new_indices, changed_fragment_ids(ours))
    if index is not None:
        return _retry(f"a concurrent CreateIndex made {index.name!r} over rows that move")
    return _FINE


def index_meets_update(ours: CreateIndex, theirs: Update) -> ConflictCheck:
    """Stricter than Lance: values that were indexed have been replaced in place."""
    if not rewrites_columns(theirs):
        return _FINE
    modified = set(theirs.fields_modified)
    stale = [i for i in ours.new_indices if modified & set(i.fields)]
    index = _first_covering(stale, changed_fragment_ids(theirs))
    if index is not None:
        return _retry(f"a concurrent Update replaced values that index {index.name!r} covers")
    return _FINE


def index_meets_replacement(ours: CreateIndex, theirs: DataReplacement) -> ConflictCheck:
    """A column that was indexed has been replaced, in whatever fragment."""
    return _same_field_indexed(ours, theirs, theirs)


def replacement_meets_index(ours: DataReplacement, theirs: CreateIndex) -> ConflictCheck:
    """Ours replaces a column that was just indexed, in whatever fragment."""
    return _same_field_indexed(theirs, ours, theirs)


def _same_field_indexed(
    index: CreateIndex, replacement: DataReplacement, theirs: Operation
) -> ConflictCheck:
    fields = _replaced_fields(replacement)
    for entry in index.new_indices:
        if fields & set(entry.fields):
            return _retry(f"a concurrent {_name(theirs)} meets values of index {entry.name!r}")
    return _FINE


def index_meets_schema(ours: CreateIndex, theirs: Merge | Project) -> ConflictCheck:
    """Stricter than Lance: the indexed column no longer exists."""
    present = {field.id for field in theirs.schema.walk()}
    for index in ours.new_indices:
        if not present.issuperset(index.fields):
            return _retry(f"a concurrent {_name(theirs)} removed a column of {index.name!r}")
    return _FINE


# Configuration -----------------------------------------------------------------------------


def changes_schema_metadata(operation: UpdateConfig) -> bool:
    """Whether metadata of the schema or of a field is touched."""
    operation = in_new_form(operation)
    return is_set(operation.schema_metadata_updates) or bool(operation.field_metadata_updates)


def configs_meet(ours: UpdateConfig, theirs: UpdateConfig) -> ConflictCheck:
    """The same key of the same map; schema metadata counts as one key."""
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
    return _FINE


def config_meets_new_table(ours: UpdateConfig, theirs: Overwrite | Restore) -> ConflictCheck:
    """Metadata of a schema that is no longer there."""
    return give_up(ours, theirs) if changes_schema_metadata(ours) else _FINE


def config_meets_merge(ours: UpdateConfig, theirs: Merge) -> ConflictCheck:
    """The schema that the metadata belong to was replaced."""
    return retry(ours, theirs) if changes_schema_metadata(ours) else _FINE


def merge_meets_config(ours: Merge, theirs: UpdateConfig) -> ConflictCheck:
    """Our schema would bring the old metadata back."""
    return retry(ours, theirs) if changes_schema_metadata(theirs) else _FINE


def restore_meets_config(ours: Restore, theirs: UpdateConfig) -> ConflictCheck:
    """The restored schema would bring the old metadata back."""
    return give_up(ours, theirs) if changes_schema_metadata(theirs) else _FINE


def overwrites_meet(ours: Overwrite, theirs: Overwrite) -> ConflictCheck:
    """The last one wins, but not over the same configuration key."""
    if set(ours.config_upsert_values) & set(theirs.config_upsert_values):
        return _give_up("a concurrent Overwrite set the same configuration key")
    return retry(ours, theirs)


def overwrite_meets_config(ours: Overwrite, theirs: UpdateConfig) -> ConflictCheck:
    """Only when both set the same key."""
    if set(ours.config_upsert_values) & upserted_keys(in_new_form(theirs).config_updates):
        return _give_up("a concurrent UpdateConfig set the same configuration key")
    return _FINE


def bases_meet(ours: UpdateBases, theirs: UpdateBases) -> ConflictCheck:
    """The same id, name or path; id 0 means that the committer picks one."""
    for mine in ours.new_bases:
        for other in theirs.new_bases:
            same_name = mine.name is not None and mine.name == other.name
            if (mine.id and mine.id == other.id) or same_name or mine.path == other.path:
                return _give_up(f"a concurrent UpdateBases added base {other.path!r}")
    return _FINE


# The table ---------------------------------------------------------------------------------

_Row = tuple[tuple[Rule, tuple[type, ...]], ...]

# One row for each of ours; in it, each of theirs occurs once.
_ROWS: dict[type, _Row] = {
    Append: (
        (fine, (Append, Delete, Update, CreateIndex, Rewrite, UpdateConfig, DataReplacement)),
        (fine, (ReserveFragments, UpdateBases)),
        (append_meets_merge, (Merge,)),
        (retry_unless_theirs_preserves_nullability, (Project,)),
        (give_up, (Overwrite, Restore)),
    ),
    Delete: (
        (fine, (Append, CreateIndex, Project, UpdateConfig, ReserveFragments, UpdateBases)),
        (row_changes_meet, (Delete, Update)),
        (retry_on_common_fragment, (Rewrite, DataReplacement)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    Update: (
        (fine, (CreateIndex, UpdateConfig, ReserveFragments, UpdateBases)),
        (update_meets_append, (Append,)),
        (row_changes_meet, (Delete,)),
        (update_meets_update, (Update,)),
        (retry_on_common_fragment, (Rewrite, DataReplacement)),
        (retry_unless_theirs_preserves_nullability, (Project,)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    Overwrite: (
        (fine, (Append, Delete, Update, CreateIndex, Rewrite, Merge, Project, Restore)),
        (fine, (DataReplacement, ReserveFragments, UpdateBases)),
        (overwrites_meet, (Overwrite,)),
        (overwrite_meets_config, (UpdateConfig,)),
    ),
    CreateIndex: (
        (fine, (Append, Delete, UpdateConfig, ReserveFragments, UpdateBases)),
        (indices_meet, (CreateIndex,)),
        (index_meets_rewrite, (Rewrite,)),
        (index_meets_replacement, (DataReplacement,)),
        (index_meets_update, (Update,)),
        (index_meets_schema, (Merge, Project)),
        (give_up, (Overwrite, Restore)),
    ),
    Rewrite: (
        (fine, (Append, Project, UpdateConfig, ReserveFragments, UpdateBases)),
        (retry_on_common_fragment, (Delete, Update, Rewrite, DataReplacement)),
        (rewrite_meets_index, (CreateIndex,)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    Merge: (
        (fine, (CreateIndex, ReserveFragments, UpdateBases)),
        (retry, (Append, Delete, Update, Rewrite, Merge, DataReplacement)),
        (merge_meets_config, (UpdateConfig,)),
        (give_up, (Overwrite, Project, Restore)),
    ),
    Project: (
        (fine, (Delete, CreateIndex, Rewrite, UpdateConfig, ReserveFragments, UpdateBases)),
        (retry_unless_ours_preserves_nullability, (Append, Update, DataReplacement)),
        (retry, (Merge, Project)),
        (give_up, (Overwrite, Restore)),
    ),
    Restore: (
        (fine, (Append, Delete, Update, Overwrite, CreateIndex, Rewrite, Merge, Project)),
        (fine, (Restore, DataReplacement, ReserveFragments, UpdateBases)),
        (restore_meets_config, (UpdateConfig,)),
    ),
    UpdateConfig: (
        (fine, (Append, Delete, Update, CreateIndex, Rewrite, Project, DataReplacement)),
        (fine, (ReserveFragments, UpdateBases)),
        (config_meets_new_table, (Overwrite, Restore)),
        (config_meets_merge, (Merge,)),
        (configs_meet, (UpdateConfig,)),
    ),
    DataReplacement: (
        (fine, (Append, UpdateConfig, ReserveFragments, UpdateBases)),
        (replacement_meets_delete, (Delete,)),
        (replacement_meets_update, (Update,)),
        (replacement_meets_index, (CreateIndex,)),
        (retry_on_common_fragment, (Rewrite,)),
        (replacements_meet, (DataReplacement,)),
        (retry_unless_theirs_preserves_nullability, (Project,)),
        (retry, (Merge,)),
        (give_up, (Overwrite, Restore)),
    ),
    ReserveFragments: (
        (fine, (Append, Delete, Update, CreateIndex, Rewrite, Merge, Project, UpdateConfig)),
        (fine, (DataReplacement, ReserveFragments, UpdateBases)),
        (give_up, (Overwrite, Restore)),
    ),
    UpdateBases: (
        (fine, (Append, Delete, Update, Overwrite, CreateIndex, Rewrite, Merge, Project)),
        (fine, (Restore, UpdateConfig, DataReplacement, ReserveFragments)),
        (bases_meet, (UpdateBases,)),
    ),
}

# A clone is the first version of its table; the mem-WAL and unknown operations are not judged.
_NEVER_JUDGED = (Clone, UpdateMemWalState, UnknownOperation)


def _matrix(rows: Mapping[type, _Row]) -> dict[tuple[type, type], Rule]:
    """All pairs; ``_NEVER_JUDGED`` is refused on either side."""
    everything = (*rows, *_NEVER_JUDGED)
    matrix: dict[tuple[type, type], Rule] = {
        (ours, theirs): refuse
        for ours in everything
        for theirs in everything
        if ours in _NEVER_JUDGED or theirs in _NEVER_JUDGED
    }
    for ours, row in rows.items():
        for rule, columns in row:
            for theirs in columns:
                if (ours, theirs) in matrix:
                    raise AssertionError(f"two rules for {ours.__name__} after {theirs.__name__}")
                matrix[ours, theirs] = rule
    return matrix


RULES: Mapping[tuple[type, type], Rule] = _matrix(_ROWS)

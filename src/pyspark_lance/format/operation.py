"""Operation: what a transaction does to a table. One class for each kind the format has.

Field names are those of protos/transaction.proto; the protobuf form is in ``operation_proto``.

Source: docs/format/table-format.md, sections 8.1, 8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from pyspark_lance.format.data_file import DataFile
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.schema import LanceSchema


@dataclass(frozen=True, slots=True)
class Append:
    """Adds fragments; those with id 0 get their id when the version is made."""

    fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes rows: whole fragments, or by new deletion files.

    Attributes:
        updated_fragments: The whole fragment each, with its new deletion file.
        deleted_fragment_ids: Fragments without a row left.
        predicate: What was asked for; for people.
    """

    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()
    predicate: str = ""


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replaces rows and schema, or creates the table.

    Attributes:
        fragments: All rows of the new version.
        schema: New schema, with the new schema metadata.
        config_upsert_values: Merged into the table configuration.
        initial_bases: Base paths of a new table.
    """

    fragments: tuple[Fragment, ...] = ()
    schema: LanceSchema = field(default_factory=LanceSchema)
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Adds and removes index entries."""

    new_indices: tuple[IndexMetadata, ...] = ()
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Fragments and what takes their place, with the same live rows.

    Attributes:
        old_fragments: The fragments.
        new_fragments: What takes their place.
        row_addresses: The old addresses of the rows (``fragment_reuse.ReuseGroup``), for indices
            that are to follow later; not part of the transaction.
    """

    old_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()
    row_addresses: bytes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Moves rows to other fragments: compaction.

    Attributes:
        groups: Independent of each other. What old writers put beside the groups is one of them.
        rewritten_indices: Serialized RewrittenIndex messages, as they were read.
        reuse_index: Tells indices, which stay as they are, where the rows went; as in Lance not
            part of the transaction.
        replaces: The entry whose place it takes; None for the first one.
    """

    groups: tuple[RewriteGroup, ...] = ()
    rewritten_indices: tuple[bytes, ...] = ()
    reuse_index: IndexMetadata | None = field(default=None, compare=False)
    replaces: UUID | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Merge:
    """Changes columns together with the files that hold them.

    Attributes:
        fragments: The whole list of the new version.
        schema: New schema, with the new schema metadata.
        preserves_nullability: Whether no column became stricter.
    """

    fragments: tuple[Fragment, ...] = ()
    schema: LanceSchema = field(default_factory=LanceSchema)
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class Restore:
    """Makes an old version the latest again."""

    version: int


@dataclass(frozen=True, slots=True)
class ReserveFragments:
    """Takes fragment ids out of circulation, for a compaction that is under way."""

    num_fragments: int


@dataclass(frozen=True, slots=True)
class Update:
    """Changes rows: by moving them to new fragments, or by replacing columns.

    Attributes:
        removed_fragment_ids: Fragments without a row left.
        updated_fragments: The whole fragment each, with new deletion or data files.
        new_fragments: Rows that moved or were inserted.
        fields_modified: Ids of the fields with new values.
        merged_generations: Of a mem-WAL; serialized, as they were read.
        fields_for_preserving_frag_bitmap: Ids of fields whose indices must not grow.
        update_mode: 0 moves rows, 1 replaces columns.
        inserted_rows: Serialized KeyFilter of inserted keys, as it was read; None for none.
        updated_fragment_offsets: Fragment id -> changed offsets; the older form.
        updated_fragment_offset_bitmaps: Fragment id -> portable roaring bitmap of changed offsets.
    """

    removed_fragment_ids: tuple[int, ...] = ()
    updated_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()
    fields_modified: tuple[int, ...] = ()
    merged_generations: tuple[bytes, ...] = ()
    fields_for_preserving_frag_bitmap: tuple[int, ...] = ()
    update_mode: int = 0
    inserted_rows: bytes | None = None
    updated_fragment_offsets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    updated_fragment_offset_bitmaps: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """Changes the schema alone: drops, renames, nullability."""

    schema: LanceSchema = field(default_factory=LanceSchema)
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Changes of a key/value map.

    Attributes:
        entries: (key, value); None deletes the key.
        replace: Whether the map is emptied first.
    """

    entries: tuple[tuple[str, str | None], ...] = ()
    replace: bool = False

    def apply_to(self, values: Mapping[str, str]) -> dict[str, str]:
        """The map with the changes made; ``values`` stays as it is."""
        changed = {} if self.replace else dict(values)
        for key, value in self.entries:
            if value is None:
                changed.pop(key, None)
            else:
                changed[key] = value
        return changed


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """Changes configuration and metadata.

    Attributes:
        config_updates: Table configuration; None for no change, as for the next two.
        table_metadata_updates: Table metadata.
        schema_metadata_updates: Schema metadata.
        field_metadata_updates: Field id -> changes of its metadata.
        upsert_values: Configuration to set; an older form, like all that follow.
        delete_keys: Configuration keys to delete.
        schema_metadata: The new schema metadata.
        field_metadata: Field id -> its new metadata.
    """

    config_updates: UpdateMap | None = None
    table_metadata_updates: UpdateMap | None = None
    schema_metadata_updates: UpdateMap | None = None
    field_metadata_updates: Mapping[int, UpdateMap] = field(default_factory=dict)
    upsert_values: Mapping[str, str] = field(default_factory=dict)
    delete_keys: tuple[str, ...] = ()
    schema_metadata: Mapping[str, str] = field(default_factory=dict)
    field_metadata: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataReplacementGroup:
    """The file that takes the place of the one with the same fields."""

    fragment_id: int
    new_file: DataFile


@dataclass(frozen=True, slots=True)
class DataReplacement:
    """Replaces data files, keeping the rows."""

    replacements: tuple[DataReplacementGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateMemWalState:
    """Progress of a mem-WAL; serialized, as it was read."""

    merged_generations: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Clone:
    """Makes a table of the files of another one.

    Attributes:
        is_shallow: Whether the files stay where they are.
        ref_version: Version that was cloned.
        ref_path: Root of the origin.
        ref_name: Tag or branch that was cloned.
        branch_name: Branch that this makes.
    """

    is_shallow: bool
    ref_version: int
    ref_path: str
    ref_name: str | None = None
    branch_name: str | None = None


@dataclass(frozen=True, slots=True)
class UpdateBases:
    """Adds base paths; id 0 means "not yet given"."""

    new_bases: tuple[BasePath, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """An operation this package does not know; nothing may be assumed of it.

    Attributes:
        field_number: Its number in the Transaction message; 0 if there is no operation at all.
        raw: The serialized transaction.
    """

    field_number: int
    raw: bytes = b""


Operation: TypeAlias = (
    Append
    | Delete
    | Overwrite
    | CreateIndex
    | Rewrite
    | Merge
    | Restore
    | ReserveFragments
    | Update
    | Project
    | UpdateConfig
    | DataReplacement
    | UpdateMemWalState
    | Clone
    | UpdateBases
    | UnknownOperation
)

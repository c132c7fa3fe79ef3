"""Operation: what a transaction does to a table. One class for each kind the format has.

Field names are those of protos/transaction.proto; the protobuf form is in ``operation_proto``.

Source: docs/format/table-format.md, sections 8.1, 8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from pyspark_lance.format.clustering import Clustering
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
    """Deletes rows: whole fragments, or by new deletion files."""

    # The whole fragment each, with its new deletion file.
    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()  # Fragments without a row left.
    predicate: str = ""  # What was asked for; for people.


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Replaces rows and schema, or creates the table."""

    fragments: tuple[Fragment, ...] = ()  # All rows of the new version.
    # New schema, with the new schema metadata.
    schema: LanceSchema = field(default_factory=LanceSchema)
    # Merged into the table configuration.
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()  # Base paths of a new table.


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Adds and removes index entries."""

    new_indices: tuple[IndexMetadata, ...] = ()
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Fragments and what takes their place, with the same live rows."""

    old_fragments: tuple[Fragment, ...] = ()  # The fragments.
    new_fragments: tuple[Fragment, ...] = ()  # What takes their place.
    # The old addresses of the rows (``fragment_reuse.ReuseGroup``), for indices that are to follow
    # later; not part of the transaction.
    row_addresses: bytes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Moves rows to other fragments: compaction."""

    # Independent of each other. What old writers put beside the groups is one of them.
    groups: tuple[RewriteGroup, ...] = ()
    # Serialized RewrittenIndex messages, as they were read.
    rewritten_indices: tuple[bytes, ...] = ()
    # Tells indices, which stay as they are, where the rows went; as in Lance not part of the
    # transaction.
    reuse_index: IndexMetadata | None = field(default=None, compare=False)
    # The entry whose place it takes; None for the first one.
    replaces: UUID | None = field(default=None, compare=False)
    # In which order the rows of new fragments are, for the configuration; not part of the
    # transaction either.
    clustering: Clustering | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Merge:
    """Changes columns together with the files that hold them."""

    fragments: tuple[Fragment, ...] = ()  # The whole list of the new version.
    # New schema, with the new schema metadata.
    schema: LanceSchema = field(default_factory=LanceSchema)
    preserves_nullability: bool = False  # Whether no column became stricter.


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
    """Changes rows: by moving them to new fragments, or by replacing columns."""

    removed_fragment_ids: tuple[int, ...] = ()  # Fragments without a row left.
    # The whole fragment each, with new deletion or data files.
    updated_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()  # Rows that moved or were inserted.
    fields_modified: tuple[int, ...] = ()  # Ids of the fields with new values.
    merged_generations: tuple[bytes, ...] = ()  # Of a mem-WAL; serialized, as they were read.
    # Ids of fields whose indices must not grow.
    fields_for_preserving_frag_bitmap: tuple[int, ...] = ()
    update_mode: int = 0  # 0 moves rows, 1 replaces columns.
    # Serialized KeyFilter of inserted keys, as it was read; None for none.
    inserted_rows: bytes | None = None
    # Fragment id -> changed offsets; the older form.
    updated_fragment_offsets: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    # Fragment id -> portable roaring bitmap of changed offsets.
    updated_fragment_offset_bitmaps: Mapping[int, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Project:
    """Changes the schema alone: drops, renames, nullability."""

    schema: LanceSchema = field(default_factory=LanceSchema)
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Changes of a key/value map."""

    entries: tuple[tuple[str, str | None], ...] = ()  # (key, value); None deletes the key.
    replace: bool = False  # Whether the map is emptied first.

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
    """Changes configuration and metadata."""

    # Table configuration; None for no change, as for the next two.
    config_updates: UpdateMap | None = None
    table_metadata_updates: UpdateMap | None = None  # Table metadata.
    schema_metadata_updates: UpdateMap | None = None  # Schema metadata.
    # Field id -> changes of its metadata.
    field_metadata_updates: Mapping[int, UpdateMap] = field(default_factory=dict)
    # Configuration to set; an older form, like all that follow.
    upsert_values: Mapping[str, str] = field(default_factory=dict)
    delete_keys: tuple[str, ...] = ()  # Configuration keys to delete.
    schema_metadata: Mapping[str, str] = field(default_factory=dict)  # The new schema metadata.
    # Field id -> its new metadata.
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
    """Makes a table of the files of another one."""

    is_shallow: bool  # Whether the files stay where they are.
    ref_version: int  # Version that was cloned.
    ref_path: str  # Root of the origin.
    ref_name: str | None = None  # Tag or branch that was cloned.
    branch_name: str | None = None  # Branch that this makes.


@dataclass(frozen=True, slots=True)
class UpdateBases:
    """Adds base paths; id 0 means "not yet given"."""

    new_bases: tuple[BasePath, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """An operation this package does not know; nothing may be assumed of it."""

    field_number: int  # Its number in the Transaction message; 0 if there is no operation at all.
    raw: bytes = b""  # The serialized transaction.


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

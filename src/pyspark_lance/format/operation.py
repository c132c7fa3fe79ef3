"""Operation: the changes of a transaction to a table. One class per kind in the format.

Field names are those of protos/transaction.proto; ``transaction`` has the protobuf form.

Source: docs/format/table-format.md, sections 8.1, 8.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias
from uuid import UUID

from pyspark_lance.format.clustering import Clustering
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.schema import LanceSchema


@dataclass(frozen=True, slots=True)
class Append:
    """Operation that adds fragments; the commit assigns ids of 0."""

    fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True, slots=True)
class Delete:
    """Operation that deletes rows: whole fragments, or by new deletion files."""

    # Each is the whole fragment, with its new deletion file.
    updated_fragments: tuple[Fragment, ...] = ()
    deleted_fragment_ids: tuple[int, ...] = ()  # Fragments without remaining rows.
    predicate: str = ""  # The condition, for display.


@dataclass(frozen=True, slots=True)
class Overwrite:
    """Operation that replaces rows and schema, or creates the table."""

    fragments: tuple[Fragment, ...] = ()  # All rows of the new version.
    # New schema, with the new schema metadata.
    schema: LanceSchema = field(default_factory=LanceSchema)
    # Merged into the table configuration.
    config_upsert_values: Mapping[str, str] = field(default_factory=dict)
    initial_bases: tuple[BasePath, ...] = ()  # Base paths of a new table.


@dataclass(frozen=True, slots=True)
class CreateIndex:
    """Operation that adds and removes index entries."""

    new_indices: tuple[IndexMetadata, ...] = ()
    removed_indices: tuple[IndexMetadata, ...] = ()


@dataclass(frozen=True, slots=True)
class RewriteGroup:
    """Old fragments and the new ones that replace them, with the same live rows."""

    old_fragments: tuple[Fragment, ...] = ()  # The replaced fragments.
    new_fragments: tuple[Fragment, ...] = ()  # The new fragments.
    # Old addresses of the rows (``fragment_reuse.ReuseGroup``), for indices that are remapped
    # later; not part of the transaction.
    row_addresses: bytes | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Operation that moves rows to other fragments: compaction."""

    # Independent of each other. Fragments that old writers list outside of groups form one.
    groups: tuple[RewriteGroup, ...] = ()
    # Serialized RewrittenIndex messages, as read.
    rewritten_indices: tuple[bytes, ...] = ()
    # Entry that records where rows moved, for unchanged indices; as in Lance, not part of the
    # transaction.
    reuse_index: IndexMetadata | None = field(default=None, compare=False)
    # UUID of the entry that it replaces; None for the first one.
    replaces: UUID | None = field(default=None, compare=False)
    # Sort order of rows in the new fragments, for the configuration; not part of the transaction
    # either.
    clustering: Clustering | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Merge:
    """Operation that changes columns together with the files that contain them."""

    fragments: tuple[Fragment, ...] = ()  # All fragments of the new version.
    # New schema, with the new schema metadata.
    schema: LanceSchema = field(default_factory=LanceSchema)
    preserves_nullability: bool = False  # Whether no column became stricter.


@dataclass(frozen=True, slots=True)
class Restore:
    """Operation that makes an old version the latest again."""

    version: int


@dataclass(frozen=True, slots=True)
class ReserveFragments:
    """Operation that reserves fragment ids for a running compaction."""

    num_fragments: int


@dataclass(frozen=True, slots=True)
class Update:
    """Operation that changes rows by moving them to new fragments or by replacing columns."""

    removed_fragment_ids: tuple[int, ...] = ()  # Fragments without remaining rows.
    # Each is the whole fragment, with new deletion or data files.
    updated_fragments: tuple[Fragment, ...] = ()
    new_fragments: tuple[Fragment, ...] = ()  # Rows that moved or were inserted.
    fields_modified: tuple[int, ...] = ()  # Ids of the fields with new values.
    merged_generations: tuple[bytes, ...] = ()  # Of a mem-WAL; serialized, as they were read.
    # Ids of fields whose indices must not be extended.
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
    """Operation that changes the schema alone: drops, renames, nullability."""

    schema: LanceSchema = field(default_factory=LanceSchema)
    preserves_nullability: bool = False


@dataclass(frozen=True, slots=True)
class UpdateMap:
    """Changes of a key/value map."""

    entries: tuple[tuple[str, str | None], ...] = ()  # (key, value); None deletes the key.
    replace: bool = False  # Whether the map is emptied first.

    def apply_to(self, values: Mapping[str, str]) -> dict[str, str]:
        """Return the updated map; ``values`` is not modified."""
        changed = {} if self.replace else dict(values)
        for key, value in self.entries:
            if value is None:
                changed.pop(key, None)
            else:
                changed[key] = value
        return changed


@dataclass(frozen=True, slots=True)
class UpdateConfig:
    """Operation that changes configuration and metadata."""

    # Table configuration; None for no change, as for the next two.
    config_updates: UpdateMap | None = None
    table_metadata_updates: UpdateMap | None = None  # Table metadata.
    schema_metadata_updates: UpdateMap | None = None  # Schema metadata.
    # Field id -> changes of its metadata.
    field_metadata_updates: Mapping[int, UpdateMap] = field(default_factory=dict)
    # Configuration to set; an older form, as are all fields below.
    upsert_values: Mapping[str, str] = field(default_factory=dict)
    delete_keys: tuple[str, ...] = ()  # Configuration keys to delete.
    schema_metadata: Mapping[str, str] = field(default_factory=dict)  # The new schema metadata.
    # Field id -> its new metadata.
    field_metadata: Mapping[int, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DataReplacementGroup:
    """The file that replaces the one with the same fields."""

    fragment_id: int
    new_file: DataFile


@dataclass(frozen=True, slots=True)
class DataReplacement:
    """Operation that replaces data files and keeps the rows."""

    replacements: tuple[DataReplacementGroup, ...] = ()


@dataclass(frozen=True, slots=True)
class UpdateMemWalState:
    """Progress of a mem-WAL; serialized, as it was read."""

    merged_generations: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Clone:
    """Operation that creates a table from the files of another one."""

    is_shallow: bool  # Whether the files are not copied.
    ref_version: int  # Version that was cloned.
    ref_path: str  # Root of the origin.
    ref_name: str | None = None  # Tag or branch that was cloned.
    branch_name: str | None = None  # Branch to be created.


@dataclass(frozen=True, slots=True)
class UpdateBases:
    """Operation that adds base paths; the commit assigns ids of 0."""

    new_bases: tuple[BasePath, ...] = ()


@dataclass(frozen=True, slots=True)
class UnknownOperation:
    """An operation unknown to this package, whose effects are unknown."""

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

"""What is known of the indices of a version: what they cover, and whether scans use them."""

from __future__ import annotations

from dataclasses import dataclass

from pyroaring import BitMap

from pyspark_lance.errors import LanceError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.table.index.indexed_fields import path_of
from pyspark_lance.table.index.lookups import covered_fragments, why_not_asked
from pyspark_lance.table.index.segments import ZONEMAP, kind_of
from pyspark_lance.table.index.zone_map_file import is_zone_map, read_zone_map
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """One segment of an index.

    Attributes:
        name: Of the index; its segments have one name.
        kind: ``btree``, ``bitmap``, …; the type in the manifest if it is not known.
        num_bytes: Of its files, as its writer noted; None if it did not.
        is_used: Whether scans ask it.
        note: Why not; None if they do.
    """

    name: str
    kind: str
    columns: tuple[str, ...]
    uuid: str
    index_version: int
    dataset_version: int
    num_fragments: int
    num_rows: int
    num_bytes: int | None
    is_used: bool
    note: str | None


def index_facts(snapshot: Snapshot) -> list[IndexFacts]:
    """The segments of all indices over columns; opens the files of those that scans ask."""
    return [_facts_of(snapshot, entry) for entry in snapshot.indices if entry.fields]


def _facts_of(snapshot: Snapshot, entry: IndexMetadata) -> IndexFacts:
    try:
        covered = covered_fragments(snapshot, entry)
    except (LanceError, FileNotFoundError):
        covered = BitMap()
    fragments = [f for f in snapshot.manifest.fragments if f.id in covered]
    note = _why_unused(snapshot, entry)
    return IndexFacts(
        entry.name,
        kind_of(entry) or entry.details_type,
        tuple(".".join(path_of(snapshot.schema.fields, number)) for number in entry.fields),
        str(entry.uuid),
        entry.index_version,
        entry.dataset_version,
        len(fragments),
        sum(fragment.num_rows for fragment in fragments),
        sum(entry.file_sizes.values()) or None,
        not note,
        note or None,
    )


def _why_unused(snapshot: Snapshot, entry: IndexMetadata) -> str:
    if kind_of(entry) != ZONEMAP:
        return why_not_asked(snapshot, entry)
    if not is_zone_map(entry):
        return f"version {entry.index_version} of a zonemap index is not known"
    try:
        read_zone_map(snapshot.files, entry)
    except (LanceError, FileNotFoundError) as error:
        return f"it cannot be read: {error}"
    return ""

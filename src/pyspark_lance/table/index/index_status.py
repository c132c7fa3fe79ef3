"""Describe the indices of a version: coverage and use by scans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyroaring import BitMap

from pyspark_lance.errors import LanceError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.table.index.lookups import SegmentState, covered_fragments, segment_state
from pyspark_lance.table.index.segments import ZONEMAP, kind_of, path_of
from pyspark_lance.table.index.zone_map_file import is_zone_map, read_zone_map
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class IndexStatus:
    """One segment of an index."""

    name: str  # Of the index; shared by its segments.
    kind: str  # ``btree``, ``bitmap``, …; the type in the manifest if unknown.
    columns: tuple[str, ...]
    uuid: str
    index_version: int
    dataset_version: int
    num_fragments: int
    num_rows: int
    num_rows_uncovered: int  # Live rows of fragments that no segment of the index covers.
    # Stale rows of a B-tree that were deleted, moved or updated since; None for other kinds.
    num_rows_stale: int | None
    num_bytes: int | None  # Of its files, as recorded by its writer, if any.
    is_used: bool  # Whether scans use it.
    note: str | None  # Why it is not used, or for which fragments, if any.


class IndexColumns(NamedTuple):
    """The columns of an index; ``kind``: as in ``IndexStatus``; ``columns``: the path of each."""

    name: str
    kind: str
    columns: tuple[tuple[str, ...], ...]


def index_columns(snapshot: Snapshot) -> list[IndexColumns]:
    """Return all indices over columns, without opening files."""
    fields = snapshot.schema.fields
    entries = {entry.name: entry for entry in snapshot.indices if entry.fields}
    return [
        IndexColumns(
            name,
            kind_of(entry) or entry.details_type,
            tuple(path_of(fields, number) for number in entry.fields),
        )
        for name, entry in entries.items()
    ]


def index_status(snapshot: Snapshot) -> list[IndexStatus]:
    """Describe the segments of all indices over columns; opens the files of used ones."""
    entries = [entry for entry in snapshot.indices if entry.fields]
    covered = {entry.uuid: _current_coverage(snapshot, entry) for entry in entries}
    by_name: dict[str, BitMap] = {}
    for entry in entries:
        by_name[entry.name] = by_name.get(entry.name, BitMap()) | covered[entry.uuid]
    return [
        _status_of(snapshot, entry, covered[entry.uuid], by_name[entry.name]) for entry in entries
    ]


def _current_coverage(snapshot: Snapshot, entry: IndexMetadata) -> BitMap:
    try:
        return covered_fragments(snapshot, entry)
    except (LanceError, FileNotFoundError):
        return BitMap()


def _status_of(
    snapshot: Snapshot, entry: IndexMetadata, covered: BitMap, by_segments: BitMap
) -> IndexStatus:
    fragments = snapshot.manifest.fragments
    own = [fragment for fragment in fragments if fragment.id in covered]
    num_rows = sum(fragment.num_rows for fragment in own)
    state = _state_of(snapshot, entry)
    return IndexStatus(
        entry.name,
        kind_of(entry) or entry.details_type,
        tuple(".".join(path_of(snapshot.schema.fields, number)) for number in entry.fields),
        str(entry.uuid),
        entry.index_version,
        entry.dataset_version,
        len(own),
        num_rows,
        sum(f.num_rows for f in fragments if f.id not in by_segments),
        None if state.num_named is None else max(0, state.num_named - num_rows),
        sum(entry.file_sizes.values()) or None,
        state.is_used,
        state.note or None,
    )


def _state_of(snapshot: Snapshot, entry: IndexMetadata) -> SegmentState:
    if kind_of(entry) != ZONEMAP:
        return segment_state(snapshot, entry)
    if not is_zone_map(entry):
        return SegmentState(False, f"version {entry.index_version} of a zonemap index is not known")
    try:
        read_zone_map(snapshot.files, entry)
    except (LanceError, FileNotFoundError) as error:
        return SegmentState(False, f"it cannot be read: {error}")
    return SegmentState(True)

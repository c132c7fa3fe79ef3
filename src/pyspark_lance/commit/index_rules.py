"""Effects of a commit on the index entries of a manifest; pure, no I/O.

An index covers the existing fragments in its bitmap; every other fragment is scanned.  So removing
a fragment from a bitmap is always safe, and adding one needs proof.  There is proof in one case:
rows that keep their ids and values move to another fragment, and the index refers to rows by id.
All other bytes of an entry are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from pyroaring import BitMap, FrozenBitMap

from pyspark_lance.errors import ConflictReason, RetryableCommitError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import (
    IndexMetadata,
    ReuseDetails,
    current_coverage,
    reuse_index_of,
)

# Rows are in a write-ahead log beside the table, so the table must not be written without it.
MEM_WAL_INDEX = "__lance_mem_wal"

Indices = tuple[IndexMetadata, ...]

# Kinds of indices that hold row ids in tables with stable ones.  B-trees hold addresses there,
# zone maps and bloom filters ranges of fragments.
_KINDS_WITH_ROW_IDS = frozenset(
    {
        "/lance.table.BitmapIndexDetails",
        "/lance.table.LabelListIndexDetails",
        "/lance.table.InvertedIndexDetails",
        "/lance.table.NGramIndexDetails",
        "/lance.index.pb.MinHashLshIndexDetails",
        "/lance.index.pb.VectorIndexDetails",
    }
)


def without_vanished_fields(indices: Indices, field_ids: Iterable[int]) -> Indices:
    """Drop the indices on fields that the schema no longer has; keep system indices.

    Ids below zero belong to columns that every table has, such as ``_rowid``.
    """
    present = set(field_ids)
    return tuple(
        index
        for index in indices
        if present.issuperset(field for field in index.fields if field >= 0)
    )


def after_rewrite(
    indices: Indices,
    moves: Sequence[tuple[Sequence[Fragment], Iterable[int]]],
    live: Iterable[int],
    *,
    stable_row_ids: bool,
) -> Indices:
    """Return the indices after rows moved to other fragments with all their values.

    Only an index that refers to rows by stable ids, and covers all source fragments, covers the new
    ones as well.  Bitmaps keep the ids of removed fragments, as after a delete of all their rows,
    in which an index may still have rows: Lance ignores index results of removed fragments that the
    bitmap names, but rows of removed fragments that it does not name would take places among the
    nearest neighbours.
    An index that covers no existing fragment gets an empty bitmap and is not read any more.

    ``moves``: the old fragments, and the ids of the new ones; ``live``: ids of all that exist.
    """
    there, indices = BitMap(live), _remap_compacted(indices)
    rewritten = BitMap(fragment.id for old, _ in moves for fragment in old)
    unnamed: dict[str, BitMap] = {}
    for index in () if stable_row_ids else indices:
        unnamed.setdefault(index.name, rewritten.copy()).difference_update(
            index.fragment_bitmap or BitMap()
        )
    result = []
    for index in indices:
        bitmap = index.fragment_bitmap
        if index.fields and bitmap is None:  # it may cover anything
            continue
        if index.fields and bitmap is not None:
            now = _coverage_after_moves(index, moves, bitmap) if stable_row_ids else BitMap(bitmap)
            if there.isdisjoint(now):
                now.clear()
            else:  # any of its segments may name them
                now |= unnamed.pop(index.name, BitMap())
            index = index if now == bitmap else index.with_fragment_bitmap(now)
        result.append(index)
    return tuple(result)


def _coverage_after_moves(
    index: IndexMetadata,
    moves: Sequence[tuple[Sequence[Fragment], Iterable[int]]],
    bitmap: BitMap | FrozenBitMap,
) -> BitMap:
    """Return the fragments that an index covers after rows kept their stable ids."""
    now = BitMap(bitmap)
    for old, new in moves:
        before = BitMap(fragment.id for fragment in old)
        knows_rows = index.details_type in _KINDS_WITH_ROW_IDS
        if knows_rows and before.issubset(bitmap):
            now |= BitMap(new)
        if not knows_rows or all(fragment.deletion_file is None for fragment in old):
            now -= before
    return now


def without_changed_values(indices: Indices, changed: Mapping[int, Iterable[int]]) -> Indices:
    """Remove fragments from the bitmaps of indices on fields whose values changed in them.

    ``changed``: for each fragment id the ids of the fields with other values.
    """
    fields_of = {fragment: frozenset(fields) for fragment, fields in changed.items()}
    if fields_of:
        indices = _remap_compacted(indices)
    result = []
    for index in indices:
        indexed = frozenset(index.fields)
        removed = frozenset(fragment for fragment, fields in fields_of.items() if fields & indexed)
        pruned = _without_fragments(index, removed) if removed else index
        if pruned is not None:
            result.append(pruned)
    return tuple(result)


def _without_fragments(index: IndexMetadata, fragment_ids: frozenset[int]) -> IndexMetadata | None:
    """Return the entry with a smaller bitmap; None for an entry to be dropped.

    An entry without a bitmap may cover anything, so no smaller set is known to be right.
    """
    bitmap = index.fragment_bitmap
    if bitmap is None:
        return None
    if not any(fragment in bitmap for fragment in fragment_ids):
        return index
    remaining = bitmap.copy()
    remaining -= type(bitmap)(fragment_ids)
    return index.with_fragment_bitmap(remaining)


def _remap_compacted(indices: Indices) -> Indices:
    """Update bitmaps that may still name fragments from before a compaction.

    If the compactions are recorded in a file, which a commit does not read, the indices give up
    their coverage: scanning a fragment is always correct.
    """
    entry = reuse_index_of(indices)
    if entry is None:
        return indices
    versions = ReuseDetails.of(entry).versions
    result = []
    for index in indices:
        bitmap = index.fragment_bitmap
        if index.fields and bitmap:
            now = BitMap() if versions is None else current_coverage(bitmap, versions)
            index = index if now == bitmap else index.with_fragment_bitmap(now)
        result.append(index)
    return tuple(result)


def with_reuse_index(indices: Indices, entry: IndexMetadata, replaces: UUID | None) -> Indices:
    """Return all indices and one entry that records where rows moved."""
    known = reuse_index_of(indices)
    if (None if known is None else known.uuid) != replaces:
        raise RetryableCommitError(
            "another compaction deferred the remapping of indices, too",
            conflict=ConflictReason.INDEX_CHANGED,
        )
    return (*(index for index in indices if index is not known), entry)


def replace_indices(indices: Indices, new: Indices, removed: Indices) -> Indices:
    """Return the entries after a CreateIndex: by uuid, new ones at the end."""
    replaced = {index.uuid for index in (*removed, *new)}
    return (*(index for index in indices if index.uuid not in replaced), *new)

"""What a commit does to the index entries of a manifest; pure, no I/O.

An index answers for the fragments in its bitmap, every other fragment is scanned.  Taking a
fragment out of a bitmap is therefore always right, putting one in never is without proof.  There
is proof in one case: rows that keep their ids and values move to another fragment, and the index
knows rows by their ids.  All other bytes of an entry stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from pyroaring import BitMap

from pyspark_lance.errors import ConflictReason, RetryableCommitError
from pyspark_lance.format.fragment_reuse import ReuseDetails, covered_now, reuse_index_of
from pyspark_lance.format.index_metadata import IndexMetadata

# Rows live in a write-ahead log beside the table; nobody may write the table without it.
MEM_WAL_INDEX = "__lance_mem_wal"

Indices = tuple[IndexMetadata, ...]

# Kinds of indices that hold row ids where a table has stable ones.  B-trees hold addresses there,
# zone maps and bloom filters ranges of fragments.
_KINDS_WITH_ROW_IDS = frozenset(
    {
        "/lance.table.BitmapIndexDetails",
        "/lance.table.LabelListIndexDetails",
        "/lance.table.InvertedIndexDetails",
        "/lance.table.NGramIndexDetails",
        "/lance.index.pb.VectorIndexDetails",
    }
)


def without_vanished_fields(indices: Indices, field_ids: Iterable[int]) -> Indices:
    """Drops the indices that mention a field the schema no longer has; system indices stay.

    Ids below zero are those of columns that every table has, such as ``_rowid``.
    """
    present = set(field_ids)
    return tuple(
        index
        for index in indices
        if present.issuperset(field for field in index.fields if field >= 0)
    )


def without_fragments(indices: Indices, fragment_ids: Iterable[int]) -> Indices:
    """Takes fragments out of every bitmap: their rows have moved."""
    gone = frozenset(fragment_ids)
    if not gone:
        return indices
    indices = _up_to_date(indices)
    pruned = (_without(index, gone) if index.fields else index for index in indices)
    return tuple(index for index in pruned if index is not None)


def following_rows(
    indices: Indices, moves: Iterable[tuple[Iterable[int], Iterable[int]]]
) -> Indices:
    """Bitmaps after rows moved to other fragments with their stable ids and all their values.

    An index that holds row ids and covers all fragments that the rows come from goes on to cover
    them; any other index gives the fragments up.
    """
    pairs = [(frozenset(old), frozenset(new)) for old, new in moves]
    gone = frozenset().union(*(old for old, _ in pairs))
    kept = without_fragments(indices, gone)
    before = {index.uuid: index.fragment_bitmap for index in indices}
    result = []
    for index in kept:
        covered, bitmap = before[index.uuid], index.fragment_bitmap
        if (
            index.details_type in _KINDS_WITH_ROW_IDS
            and index.fields
            and covered is not None
            and bitmap is not None
        ):
            whole = [new for old, new in pairs if all(fragment in covered for fragment in old)]
            if whole:
                index = index.with_fragment_bitmap(bitmap | type(bitmap)(frozenset().union(*whole)))
        result.append(index)
    return tuple(result)


def without_changed_values(indices: Indices, changed: Mapping[int, Iterable[int]]) -> Indices:
    """Takes fragments out of the bitmaps of indices over fields whose values changed there.

    ``changed``: for each fragment id the ids of the fields that got other values.
    """
    fields_of = {fragment: frozenset(fields) for fragment, fields in changed.items()}
    if fields_of:
        indices = _up_to_date(indices)
    result = []
    for index in indices:
        indexed = frozenset(index.fields)
        gone = frozenset(fragment for fragment, fields in fields_of.items() if fields & indexed)
        pruned = _without(index, gone) if gone else index
        if pruned is not None:
            result.append(pruned)
    return tuple(result)


def _without(index: IndexMetadata, fragment_ids: frozenset[int]) -> IndexMetadata | None:
    """One entry with a smaller bitmap; ``None`` for an entry that must go.

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


def _up_to_date(indices: Indices) -> Indices:
    """Bitmaps with the fragments of now, where they may name those from before a compaction.

    Where a file says what the compactions were, which is nothing to read in a commit, indices give
    up all that they cover: fragments that are scanned are never wrong.
    """
    entry = reuse_index_of(indices)
    if entry is None:
        return indices
    versions = ReuseDetails.of(entry).versions
    result = []
    for index in indices:
        bitmap = index.fragment_bitmap
        if index.fields and bitmap:
            now = BitMap() if versions is None else covered_now(bitmap, versions)
            index = index if now == bitmap else index.with_fragment_bitmap(now)
        result.append(index)
    return tuple(result)


def with_reuse_index(indices: Indices, entry: IndexMetadata, replaces: UUID | None) -> Indices:
    """All indices as they are, and one entry that tells them where rows went."""
    known = reuse_index_of(indices)
    if (None if known is None else known.uuid) != replaces:
        raise RetryableCommitError(
            "another compaction put off the remapping of indices, too",
            conflict=ConflictReason.INDEX_CHANGED,
        )
    return (*(index for index in indices if index is not known), entry)


def replaced_indices(indices: Indices, new: Indices, removed: Indices) -> Indices:
    """The entries after a CreateIndex: by uuid, new ones at the end."""
    gone = {index.uuid for index in (*removed, *new)}
    return (*(index for index in indices if index.uuid not in gone), *new)

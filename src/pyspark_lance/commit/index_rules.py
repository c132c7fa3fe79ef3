"""What a commit does to the index entries of a manifest; pure, no I/O.

An index answers for the fragments in its bitmap that are there, every other fragment is scanned.
Taking one of these out of a bitmap is therefore always right, putting one in never is without
proof.  There is proof in one case: rows that keep their ids and values move to another fragment,
and the index knows rows by their ids.  All other bytes of an entry stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from pyroaring import BitMap, FrozenBitMap

from pyspark_lance.errors import ConflictReason, RetryableCommitError
from pyspark_lance.format.fragment import Fragment
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


def after_rewrite(
    indices: Indices,
    moves: Sequence[tuple[Sequence[Fragment], Iterable[int]]],
    live: Iterable[int],
    *,
    stable_row_ids: bool,
) -> Indices:
    """Bitmaps after rows moved to other fragments with all their values.

    Only an index that knows rows by their stable ids, and covers all fragments that they come from,
    goes on to cover them.  Bitmaps name fragments that are gone, as after a delete of all their
    rows, where an index may still have rows of these: Lance passes over what an index says of gone
    fragments that it names, but lets rows of others take the places of the nearest.  Who covers
    nothing any more names nothing, and nobody looks into it.

    ``moves``: the old fragments, and the ids of the new ones; ``live``: ids of all that are there.
    """
    there, indices = BitMap(live), _up_to_date(indices)
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
            now = _following(index, moves, bitmap) if stable_row_ids else BitMap(bitmap)
            if there.isdisjoint(now):
                now.clear()
            else:  # which of its segments names them does not matter
                now |= unnamed.pop(index.name, BitMap())
            index = index if now == bitmap else index.with_fragment_bitmap(now)
        result.append(index)
    return tuple(result)


def _following(
    index: IndexMetadata,
    moves: Sequence[tuple[Sequence[Fragment], Iterable[int]]],
    bitmap: BitMap | FrozenBitMap,
) -> BitMap:
    """The fragments that an index names after rows kept their stable ids."""
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
            "another compaction deferred the remapping of indices, too",
            conflict=ConflictReason.INDEX_CHANGED,
        )
    return (*(index for index in indices if index is not known), entry)


def replaced_indices(indices: Indices, new: Indices, removed: Indices) -> Indices:
    """The entries after a CreateIndex: by uuid, new ones at the end."""
    gone = {index.uuid for index in (*removed, *new)}
    return (*(index for index in indices if index.uuid not in gone), *new)

"""Rows that two versions of a table do not share: by manifests and lineage, without row data.

Fragments that are equal in both are skipped.  In the remaining ones, a row is identified by its row
id: one that only the older version has was deleted, one that only the newer has was inserted, and
one that both have may have changed according to its lineage, or if its values are in another file.

Source: docs/format/table-format.md, sections 6.3, 7.2, 7.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.column_names import LAST_UPDATED_AT, ROW_ID
from pyspark_lance.format.deletion_vector import (
    WINDOW_ROWS,
    DeletionVector,
    OffsetSet,
    OffsetSetBuilder,
)
from pyspark_lance.format.fragment import SPILLED, Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.operation import Rewrite
from pyspark_lance.format.row_address import fragment_ids, group_by_fragment, row_addresses
from pyspark_lance.format.row_address import offsets as offsets_of
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.metafile.manifest_file import load_transaction
from pyspark_lance.table.cdf.changed_rows import file_group
from pyspark_lance.table.cdf.common_rows import RetainedRows, index_of, lineage_of
from pyspark_lance.table.scan.fragment_pruning import UNKNOWN_BOUNDS, row_id_bounds
from pyspark_lance.table.version.snapshot import Snapshot

_U64Array = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class FragmentRows:
    """Live rows of one fragment."""

    fragment: Fragment
    offsets: OffsetSet | None = None  # Which of them; None for all live rows.

    @property
    def num_rows(self) -> int:
        """Number of rows."""
        return self.fragment.num_rows if self.offsets is None else len(self.offsets)


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """Changes from one version to a later one."""

    before: Snapshot | None  # The older version; None for the table before it had any.
    after: Snapshot
    deleted: tuple[FragmentRows, ...]  # Rows of ``before`` that ``after`` does not have.
    inserted: tuple[FragmentRows, ...]  # Rows of ``after`` that ``before`` does not have.
    kept: tuple[RetainedRows, ...]  # Rows of both that may have changed.


def version_changes(
    before: Snapshot | None, after: Snapshot, shown: tuple[Set[int], Set[int]] | None = None
) -> VersionChanges:
    """Compare two versions of one table with stable row ids.

    The cost depends on the fragments that differ, and the rows that moved.

    ``before``: the older version; None for none. ``shown``: field ids of each whose values count;
    None for those that both have.
    """
    removed, added, kept = [], [], []
    stayed = set()
    fields_before, fields_after = shown or ((_field_ids(before) & _field_ids(after),) * 2)
    # Where a file holds them, the same rows show other values: null, or not null any more.
    shown_once = fields_before ^ fields_after
    old, new = _fragments_by_id(before, after, only_differing=not shown_once)
    for fragment_id, fragment in old.items():
        successor = new.get(fragment_id)
        if successor is None or not _have_equal_offsets(fragment, successor):
            removed.append(FragmentRows(fragment))
            continue
        stayed.add(fragment_id)
        if successor == fragment and not holds_any(fragment, shown_once):
            continue
        assert before is not None
        same = _SameFragment(before, fragment, after, successor)
        removed += same.only_before()
        added += same.only_after()
        kept += same.changed(fields_before, fields_after)
    added += [FragmentRows(fragment) for fragment in new.values() if fragment.id not in stayed]
    if before is not None and removed and added:
        # Compactions replace whole fragments.
        replaces_fragments = all(rows.offsets is None for rows in removed)
        if replaces_fragments and _only_moves_rows(before, after):
            removed, added = [], []
        else:
            show_more = any(holds_any(rows.fragment, shown_once) for rows in (*removed, *added))
            removed, added, moved = _match_rows(before, removed, after, added)
            kept += moved if show_more else [rows.only_updated() for rows in moved]
    kept = [rows for rows in kept if len(rows)]
    return VersionChanges(before, after, tuple(removed), tuple(added), tuple(kept))


def _fragments_by_id(
    before: Snapshot | None, after: Snapshot, *, only_differing: bool
) -> tuple[Mapping[int, Fragment], Mapping[int, Fragment]]:
    """The fragments of both, with those that are the same unless ``only_differing``."""
    old = Fragments.of(()) if before is None else before.manifest.fragments
    new = after.manifest.fragments
    both: tuple[Sequence[Fragment], ...] = old.differing(new) if only_differing else (old, new)
    there, here = (
        {fragment.id: fragment for fragment in fragments if fragment.physical_rows}
        for fragments in both
    )
    return there, here


def live_offsets(snapshot: Snapshot, rows: FragmentRows) -> OffsetSet:
    """The offsets of ``rows``."""
    if rows.offsets is not None:
        return rows.offsets
    return OffsetSet.live(rows.fragment.physical_rows, snapshot.deletion_vector(rows.fragment))


def overlapping(
    ones: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]
) -> NDArray[np.bool_]:
    """Return which of ``ones`` overlap any of ``others``; both are inclusive ranges."""
    if not ones or not others:
        return np.zeros(len(ones), dtype=np.bool_)
    low, high = np.array(others, dtype=np.uint64).T
    order = np.argsort(low, kind="stable")
    low, reached = low[order], np.maximum.accumulate(high[order])
    first, last = np.array(ones, dtype=np.uint64).T
    below = np.searchsorted(low, last, side="right")
    meets: NDArray[np.bool_] = (below > 0) & (reached[np.maximum(below, 1) - 1] >= first)
    return meets


def bounds_of(fragment: Fragment) -> tuple[int, int]:
    """A range that holds all the row ids of a fragment, from the manifest alone."""
    source = fragment.row_ids
    return row_id_bounds(source) if isinstance(source, bytes) else UNKNOWN_BOUNDS


class _SameFragment:
    """One fragment in both versions, with the same rows at the same offsets."""

    def __init__(
        self, before: Snapshot, fragment: Fragment, after: Snapshot, successor: Fragment
    ) -> None:
        self._before, self._fragment = before, fragment
        self._after, self._successor = after, successor

    @cached_property
    def _deleted(self) -> tuple[DeletionVector, DeletionVector]:
        """Deletion vectors in the older and in the newer version."""
        nothing = DeletionVector.empty()
        old = self._before.deletion_vector(self._fragment) or nothing
        if self._fragment.deletion_file == self._successor.deletion_file:
            return old, old
        return old, self._after.deletion_vector(self._successor) or nothing

    def only_before(self) -> list[FragmentRows]:
        """Rows that are deleted in the newer version only."""
        return self._deleted_in_one(self._fragment, 1)

    def only_after(self) -> list[FragmentRows]:
        """Rows that were deleted before, and are back."""
        return self._deleted_in_one(self._successor, 0)

    def _deleted_in_one(self, fragment: Fragment, deleted_in: int) -> list[FragmentRows]:
        if self._fragment.deletion_file == self._successor.deletion_file:
            return []
        rows = self._deleted[deleted_in].difference(self._deleted[1 - deleted_in])
        return [] if rows.is_empty else [FragmentRows(fragment, OffsetSet.from_vector(rows))]

    def changed(self, fields_before: Set[int], fields_after: Set[int]) -> list[RetainedRows]:
        """Rows that both versions have, and that may hold other values."""
        old, new = self._fragment, self._successor
        replaced = _column_files(old, fields_before) != _column_files(new, fields_after)
        may_be_updated = old.last_updated_at != new.last_updated_at or (
            new.last_updated_at is SPILLED and old.files != new.files
        )
        if not replaced and not may_be_updated:
            return []
        before, after = lineage_of(self._before.files, old), lineage_of(self._after.files, new)
        old_deleted, new_deleted = self._deleted
        both = OffsetSet.live(old.physical_rows, old_deleted.union(new_deleted))
        builder = OffsetSetBuilder()
        if may_be_updated:
            for first in range(0, old.physical_rows, WINDOW_ROWS):
                last = min(first + WINDOW_ROWS, old.physical_rows)
                # A change of the created version of a row changes its last-updated version, too.
                windows = (side.window(LAST_UPDATED_AT, first, last) for side in (before, after))
                differs = np.not_equal(*windows)
                builder.add(np.flatnonzero(differs) + first)
        updated = builder.done().both(both)
        return [RetainedRows((old,), new, both if replaced else updated, updated, in_place=True)]


def _field_ids(snapshot: Snapshot | None) -> Set[int]:
    return set() if snapshot is None else {field.id for field in snapshot.schema.walk()}


def holds_any(fragment: Fragment, fields: Set[int]) -> bool:
    """Return whether a file of the fragment holds one of the fields."""
    return bool(fields) and any(not fields.isdisjoint(file.fields) for file in fragment.files)


def _column_files(fragment: Fragment, fields: Set[int]) -> Mapping[int, str]:
    """Field id -> file that holds its values."""
    return {field: file.path for file in fragment.files for field in file.fields if field in fields}


def _have_equal_offsets(old: Fragment, new: Fragment) -> bool:
    """Return whether each offset is the same row in both."""
    return old.row_ids == new.row_ids and old.physical_rows == new.physical_rows


def _only_moves_rows(before: Snapshot, after: Snapshot) -> bool:
    """Return whether the newer version is a compaction of the older one."""
    if after.version != before.version + 1:
        return False
    transaction = load_transaction(after.store, after.file)
    return transaction is not None and isinstance(transaction.operation, Rewrite)


def _match_rows(
    before: Snapshot,
    only_before: Sequence[FragmentRows],
    after: Snapshot,
    only_after: Sequence[FragmentRows],
) -> tuple[list[FragmentRows], list[FragmentRows], list[RetainedRows]]:
    """Return the removed rows, the added rows, and those that both have at other positions."""
    old_bounds, new_bounds = (
        [bounds_of(rows.fragment) for rows in side] for side in (only_before, only_after)
    )
    old_overlaps = overlapping(old_bounds, new_bounds)
    new_overlaps = overlapping(new_bounds, old_bounds)
    removed = [
        rows for rows, overlaps in zip(only_before, old_overlaps, strict=True) if not overlaps
    ]
    added = [rows for rows, overlaps in zip(only_after, new_overlaps, strict=True) if not overlaps]
    old = _RemovedRows(
        before, [only_before[index] for index in np.flatnonzero(old_overlaps).tolist()]
    )
    kept = []
    for index in np.flatnonzero(new_overlaps).tolist():
        fragment = only_after[index].fragment
        lineage = lineage_of(after.files, fragment)
        new_rows = OffsetSetBuilder()
        for offsets in live_offsets(after, only_after[index]).windows():
            addresses, found = old.find(lineage.take(ROW_ID, offsets))
            new_rows.add(offsets[~found])
            offsets, addresses = offsets[found], addresses[found]
            updated = old.last_updated_at(addresses) != lineage.take(LAST_UPDATED_AT, offsets)
            for few in _of_few_fragments(addresses, old.groups):
                rows, changed = OffsetSet.of(offsets[few]), OffsetSet.of(offsets[few][updated[few]])
                kept.append(
                    RetainedRows(
                        old.fragments(addresses[few]), fragment, rows, changed, in_place=False
                    )
                )
        if new := new_rows.done():
            added.append(FragmentRows(fragment, new))
    return removed + old.rest(), added, kept


# Up to so many rows, their ids are collected one by one.
_FEW_ROWS = 1 << 16


class _RemovedRows:
    """Rows that the older version has in places that the newer one has not."""

    def __init__(self, snapshot: Snapshot, parts: Sequence[FragmentRows]) -> None:
        self._parts = {part.fragment.id: part for part in parts}
        self._rows = {part.fragment.id: live_offsets(snapshot, part) for part in parts}
        self._found = {part.fragment.id: OffsetSetBuilder() for part in parts}
        self._lineage = {
            part.fragment.id: lineage_of(snapshot.files, part.fragment) for part in parts
        }
        self._index = self._index_of_few() or index_of(
            snapshot.files,
            (
                (
                    part.fragment,
                    self._rows[part.fragment.id].complement(part.fragment.physical_rows),
                )
                for part in parts
            ),
        )

    def _index_of_few(self) -> RowIdIndex | None:
        """Return the row ids one by one; None if they are too many, or if any is there twice."""
        if sum(map(len, self._rows.values())) > _FEW_ROWS:
            return None
        row_ids, addresses = [], []
        for fragment_id, rows in self._rows.items():
            for offsets in rows.windows():
                row_ids.append(self._lineage[fragment_id].take(ROW_ID, offsets))
                addresses.append(row_addresses(fragment_id, offsets))
        return _index_rows(row_ids, addresses)

    def find(self, row_ids: _U64Array) -> tuple[_U64Array, NDArray[np.bool_]]:
        """Return the addresses of rows, and which of them exist here."""
        addresses, found = self._index.addresses_of(row_ids)
        for fragment_id, inside in group_by_fragment(addresses[found]).items():
            self._found[fragment_id].add(inside)
        return addresses, found

    def last_updated_at(self, addresses: _U64Array) -> _U64Array:
        """The versions that last changed rows that are here."""
        values = np.empty(len(addresses), dtype=np.uint64)
        owners = fragment_ids(addresses)
        order = np.argsort(owners, kind="stable")
        hit, firsts = np.unique(owners[order], return_index=True)
        for owner, chosen in zip(hit.tolist(), np.split(order, firsts[1:]), strict=False):
            values[chosen] = self._lineage[owner].take(
                LAST_UPDATED_AT, offsets_of(addresses[chosen])
            )
        return values

    @cached_property
    def groups(self) -> Mapping[int, int]:
        """Fragment id -> group of files that are read in one pass."""
        return {owner: file_group(part.fragment) for owner, part in self._parts.items()}

    def fragments(self, addresses: _U64Array) -> tuple[Fragment, ...]:
        """Return the fragments that have the rows at ``addresses``."""
        owners = np.unique(fragment_ids(addresses)).tolist()
        return tuple(self._parts[owner].fragment for owner in owners)

    def rest(self) -> list[FragmentRows]:
        """Return the rows that were not found."""
        unmatched = []
        for fragment_id, part in self._parts.items():
            rest = self._rows[fragment_id].without(self._found[fragment_id].done())
            if rest:
                unmatched.append(FragmentRows(part.fragment, rest))
        return unmatched


def _index_rows(row_ids: Sequence[_U64Array], addresses: Sequence[_U64Array]) -> RowIdIndex | None:
    """Return the index of some rows; None if there are none, or an id is there twice."""
    try:
        return RowIdIndex.of_rows(row_ids, addresses) if row_ids else None
    except CorruptFileError:
        return None


# Rows are grouped by where they were, so that no piece of work needs too many fragments.
_SMALL_FRAGMENT_COUNT = 64


def _of_few_fragments(addresses: _U64Array, group_of: Mapping[int, int]) -> list[slice]:
    """Stretches of rows that were in one group of fragments each, or in a few fragments.

    Rows that are mixed are cut into few stretches.
    """
    if not len(addresses):
        return []
    owners = fragment_ids(addresses)
    cuts = np.flatnonzero(owners[1:] != owners[:-1]) + 1
    runs = owners[np.concatenate(([0], cuts))]
    hit, indices = np.unique(runs, return_inverse=True)
    groups = np.array([group_of[owner] for owner in hit.tolist()])
    starts_group = np.diff(groups[indices]) != 0
    if np.count_nonzero(starts_group) < 2 * len(np.unique(groups)):
        cuts = cuts[starts_group]
    elif len(hit) <= _SMALL_FRAGMENT_COUNT:
        cuts = cuts[:0]
    else:
        per_part = max(_SMALL_FRAGMENT_COUNT, -(-len(cuts) // _SMALL_FRAGMENT_COUNT))
        cuts = cuts[np.diff(np.arange(1, len(runs)) // per_part, prepend=0) != 0]
    bounds = [0, *cuts.tolist(), len(owners)]
    return [slice(first, last) for first, last in pairwise(bounds)]

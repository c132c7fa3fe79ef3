"""Which rows two versions of a table do not share: by manifests and lineage, without row data.

Fragments that are the same in both are passed over.  Of the others, a row is known by its row id:
one that only the older version has was deleted, one that only the newer has was inserted, and one
that both have may have changed if its lineage says so, or if its values lie in another file.

Source: table format, sections 6.3, 7.2, 7.4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.data_file import SPILLED_ROW_ID
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import SPILLED, Fragment
from pyspark_lance.format.operation import Rewrite
from pyspark_lance.format.row_address import group_by_fragment, row_addresses
from pyspark_lance.metafile.transaction_file import transaction_of
from pyspark_lance.table.fragment_pruning import (
    UNKNOWN_BOUNDS,
    counted_fragments,
    row_id_bounds,
)
from pyspark_lance.table.fragment_reader import FragmentReader
from pyspark_lance.table.lineage import FragmentLineage
from pyspark_lance.table.snapshot import Snapshot
from pyspark_lance.table.system_columns import CREATED_AT, LAST_UPDATED_AT, ROW_ID

_U64Array = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class PlacedRows:
    """Live rows of one fragment.

    Attributes:
        fragment: As the version has it.
        offsets: Ascending uint32; None for all live rows.
    """

    fragment: Fragment
    offsets: NDArray[np.uint32] | None = None

    @property
    def num_rows(self) -> int:
        """How many they are."""
        return self.fragment.num_rows if self.offsets is None else len(self.offsets)


@dataclass(frozen=True, slots=True)
class KeptRows:
    """Rows of both versions that may hold other values; all arrays of shape (n,).

    Attributes:
        row_ids: uint64.
        before: Addresses in the older version, uint64.
        after: Addresses in the newer version, uint64.
        stamped: Whether lineage says that the row was updated; values that were replaced without
            a trace in it are told only by comparing them.
    """

    row_ids: _U64Array
    before: _U64Array
    after: _U64Array
    stamped: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.row_ids)

    def chosen(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> KeptRows:
        """Some of them."""
        return KeptRows(self.row_ids[rows], self.before[rows], self.after[rows], self.stamped[rows])


@dataclass(frozen=True, slots=True)
class VersionChanges:
    """From one version to a later one.

    Attributes:
        before: The older version; None for the table before it had any.
        after: The newer version.
        deleted: Rows of ``before`` that ``after`` does not have.
        inserted: Rows of ``after`` that ``before`` does not have.
        kept: Rows of both that may have changed.
    """

    before: Snapshot | None
    after: Snapshot
    deleted: tuple[PlacedRows, ...]
    inserted: tuple[PlacedRows, ...]
    kept: KeptRows


def version_changes(
    before: Snapshot | None,
    after: Snapshot,
    shown: tuple[Set[int], Set[int]] | None = None,
) -> VersionChanges:
    """Compares two versions of one table that keeps row ids.

    The cost follows the fragments that are not the same, and the rows that left their place.

    Args:
        before: The older version; None for none.
        after: The newer version.
        shown: Field ids of each whose values count; None for those that both have.

    Raises:
        CorruptFileError: Lineage or a deletion file contradicts the manifest.
    """
    vanished, appeared, kept = [], [], [_NOTHING_KEPT]
    stayed = set()
    fields_before, fields_after = shown or ((_field_ids(before) & _field_ids(after),) * 2)
    # Where a file holds them, the same rows show other values: null, or not null any more.
    shown_once = fields_before ^ fields_after
    old, new = _fragments_by_id(before, after, only_differing=not shown_once)
    for fragment_id, fragment in old.items():
        successor = new.get(fragment_id)
        if successor is None or not _same_places(fragment, successor):
            vanished.append(PlacedRows(fragment))
            continue
        stayed.add(fragment_id)
        if successor == fragment and not _holds(fragment, shown_once):
            continue
        assert before is not None
        same = _SameFragment(before, fragment, after, successor)
        vanished += same.only_before()
        appeared += same.only_after()
        kept += same.changed(fields_before, fields_after)
    appeared += [PlacedRows(fragment) for fragment in new.values() if fragment.id not in stayed]
    if before is not None and vanished and appeared:
        if _only_moves_rows(before, after):
            vanished, appeared = [], []
        else:
            show_more = any(_holds(rows.fragment, shown_once) for rows in (*vanished, *appeared))
            vanished, appeared, moved = _matched(before, vanished, after, appeared)
            kept.append(moved if show_more else moved.chosen(moved.stamped))
    return VersionChanges(before, after, tuple(vanished), tuple(appeared), joined_kept(kept))


def _fragments_by_id(
    before: Snapshot | None, after: Snapshot, *, only_differing: bool
) -> tuple[Mapping[int, Fragment], Mapping[int, Fragment]]:
    """The fragments of both, with those that are the same unless ``only_differing``."""
    old: Sequence[Fragment] = () if before is None else before.manifest.fragments
    new: Sequence[Fragment] = after.manifest.fragments
    if only_differing:
        old, new = _differing(old, new)
    there = () if before is None else counted_fragments(before, old)
    here = counted_fragments(after, new)
    return {one.id: one for one in there}, {one.id: one for one in here}


def _differing(
    old: Sequence[Fragment], new: Sequence[Fragment]
) -> tuple[list[Fragment], list[Fragment]]:
    """The fragments of each side that are not the same on the other; both by ascending id."""
    only_old: list[Fragment] = []
    only_new: list[Fragment] = []
    here = there = 0
    while here < len(old) and there < len(new):
        same = _common_length(old, here, new, there)
        here, there = here + same, there + same
        if here == len(old) or there == len(new):
            break
        one, other = old[here], new[there]
        if one.id <= other.id:
            only_old.append(one)
            here += 1
        if other.id <= one.id:
            only_new.append(other)
            there += 1
    return [*only_old, *old[here:]], [*only_new, *new[there:]]


def _common_length(old: Sequence[Fragment], here: int, new: Sequence[Fragment], there: int) -> int:
    """How many fragments are the same from two positions on; fast where they are one object."""
    length, step, is_growing = 0, 16, True
    while step:
        one = old[here + length : here + length + step]
        is_same = len(one) == step and one == new[there + length : there + length + step]
        length += step if is_same else 0
        is_growing &= is_same
        step = 2 * step if is_growing else step // 2
    return length


def joined_kept(parts: Sequence[KeptRows]) -> KeptRows:
    """All rows of ``parts``; there is at least one part."""
    if len(parts) == 1:
        return parts[0]
    return KeptRows(
        np.concatenate([part.row_ids for part in parts]),
        np.concatenate([part.before for part in parts]),
        np.concatenate([part.after for part in parts]),
        np.concatenate([part.stamped for part in parts]),
    )


_NO_NUMBERS = np.empty(0, dtype=np.uint64)
_NOTHING_KEPT = KeptRows(_NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS, np.empty(0, dtype=np.bool_))


def lineage_of(snapshot: Snapshot, fragment: Fragment) -> FragmentLineage:
    """Computes the lineage columns of one fragment of a version."""
    return FragmentReader(snapshot.files, fragment, stable_row_ids=True).lineage


def live_offsets(snapshot: Snapshot, rows: PlacedRows) -> NDArray[np.uint32]:
    """The offsets of ``rows``, ascending."""
    if rows.offsets is not None:
        return rows.offsets
    deleted = snapshot.deletion_vector(rows.fragment)
    count = rows.fragment.physical_rows
    if deleted is None:
        return np.arange(count, dtype=np.uint32)
    return np.flatnonzero(deleted.keep_mask(0, count)).astype(np.uint32)


def overlapping(
    ones: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]
) -> NDArray[np.bool_]:
    """Which of ``ones`` share a number with any of ``others``; both bounds belong to a range."""
    if not ones or not others:
        return np.zeros(len(ones), dtype=np.bool_)
    low, high = np.array(others, dtype=np.uint64).T
    order = np.argsort(low, kind="stable")
    low, reached = low[order], np.maximum.accumulate(high[order])
    first, last = np.array(ones, dtype=np.uint64).T
    below = np.searchsorted(low, last, side="right")
    meets: NDArray[np.bool_] = (below > 0) & (reached[np.maximum(below, 1) - 1] >= first)
    return meets


def bounds_of(rows: PlacedRows) -> tuple[int, int]:
    """A range that holds all the row ids of the fragment, from the manifest alone."""
    source = rows.fragment.row_ids
    return row_id_bounds(source) if isinstance(source, bytes) else UNKNOWN_BOUNDS


class _SameFragment:
    """One fragment in both versions, with the same rows at the same places."""

    def __init__(
        self, before: Snapshot, fragment: Fragment, after: Snapshot, successor: Fragment
    ) -> None:
        self._before, self._fragment = before, fragment
        self._after, self._successor = after, successor

    @cached_property
    def _deleted(self) -> tuple[DeletionVector, DeletionVector]:
        """In the older and in the newer version."""
        nothing = DeletionVector.empty()
        old = self._before.deletion_vector(self._fragment) or nothing
        if self._fragment.deletion_file == self._successor.deletion_file:
            return old, old
        return old, self._after.deletion_vector(self._successor) or nothing

    def only_before(self) -> list[PlacedRows]:
        """Rows that are deleted in the newer version only."""
        return self._deleted_in_one(self._fragment, 1)

    def only_after(self) -> list[PlacedRows]:
        """Rows that were deleted before, and are back."""
        return self._deleted_in_one(self._successor, 0)

    def _deleted_in_one(self, fragment: Fragment, deleted_in: int) -> list[PlacedRows]:
        if self._fragment.deletion_file == self._successor.deletion_file:
            return []
        rows = self._deleted[deleted_in].difference(self._deleted[1 - deleted_in])
        return [] if rows.is_empty else [PlacedRows(fragment, rows.to_array())]

    def changed(self, fields_before: Set[int], fields_after: Set[int]) -> list[KeptRows]:
        """Rows that both versions have, and that may hold other values."""
        old, new = self._fragment, self._successor
        replaced = _places(old, fields_before) != _places(new, fields_after)
        restamped = (old.created_at, old.last_updated_at) != (new.created_at, new.last_updated_at)
        spilled = SPILLED in (new.created_at, new.last_updated_at)
        if not replaced and not restamped and not (spilled and old.files != new.files):
            return []
        rows = old.physical_rows
        before, after = lineage_of(self._before, old), lineage_of(self._after, new)
        stamped = np.zeros(rows, dtype=np.bool_)
        for name in (CREATED_AT, LAST_UPDATED_AT):
            stamped |= before.window(name, 0, rows) != after.window(name, 0, rows)
        candidates = np.ones(rows, dtype=np.bool_) if replaced else stamped
        old_deleted, new_deleted = self._deleted
        chosen = candidates & old_deleted.union(new_deleted).keep_mask(0, rows)
        where = np.flatnonzero(chosen).astype(np.uint32)
        if not len(where):
            return []
        return [
            KeptRows(
                after.take(ROW_ID, where),
                row_addresses(old.id, where),
                row_addresses(new.id, where),
                stamped[where],
            )
        ]


def _field_ids(snapshot: Snapshot | None) -> Set[int]:
    return set() if snapshot is None else {field.id for field in snapshot.schema.walk()}


def _holds(fragment: Fragment, fields: Set[int]) -> bool:
    """Whether a file of the fragment has one of the fields."""
    return bool(fields) and any(not fields.isdisjoint(file.fields) for file in fragment.files)


def _places(fragment: Fragment, fields: Set[int]) -> Mapping[int, str]:
    """Field id -> file that holds its values."""
    return {field: file.path for file in fragment.files for field in file.fields if field in fields}


def _same_places(one: Fragment, other: Fragment) -> bool:
    """Whether each offset means the same row in both."""
    return (
        one.row_ids == other.row_ids
        and one.physical_rows == other.physical_rows
        and (one.row_ids is not SPILLED or _hidden_row_ids(one) == _hidden_row_ids(other))
    )


def _hidden_row_ids(fragment: Fragment) -> str | None:
    """The file that holds the row ids as a hidden column."""
    found = (file.path for file in fragment.files if SPILLED_ROW_ID in file.fields)
    return next(found, None)


def _only_moves_rows(before: Snapshot, after: Snapshot) -> bool:
    """Whether the newer version is a compaction of the older one."""
    if after.version != before.version + 1:
        return False
    transaction = transaction_of(after.store, after.file)
    return transaction is not None and isinstance(transaction.operation, Rewrite)


def _matched(
    before: Snapshot,
    vanished: Sequence[PlacedRows],
    after: Snapshot,
    appeared: Sequence[PlacedRows],
) -> tuple[list[PlacedRows], list[PlacedRows], KeptRows]:
    """What really vanished, what really appeared, and what both have at other places."""
    old_bounds, new_bounds = ([bounds_of(rows) for rows in side] for side in (vanished, appeared))
    old_meets = overlapping(old_bounds, new_bounds)
    new_meets = overlapping(new_bounds, old_bounds)
    gone = [rows for rows, meets in zip(vanished, old_meets, strict=True) if not meets]
    come = [rows for rows, meets in zip(appeared, new_meets, strict=True) if not meets]
    old = _Moved(before, [vanished[index] for index in np.flatnonzero(old_meets).tolist()])
    new = _Moved(after, [appeared[index] for index in np.flatnonzero(new_meets).tolist()])
    shared, at_old, at_new = np.intersect1d(
        old.row_ids, new.row_ids, assume_unique=True, return_indices=True
    )
    gone += old.without(at_old)
    come += new.without(at_new)
    stamped = (old.created[at_old] != new.created[at_new]) | (
        old.updated[at_old] != new.updated[at_new]
    )
    moved = KeptRows(shared, old.addresses[at_old], new.addresses[at_new], stamped)
    return gone, come, moved


class _Moved:
    """Rows one by one, with their lineage; all arrays of one length."""

    def __init__(self, snapshot: Snapshot, parts: Sequence[PlacedRows]) -> None:
        self._fragments = {part.fragment.id: part.fragment for part in parts}
        row_ids, addresses, created, updated = ([_NO_NUMBERS] for _ in range(4))
        for part in parts:
            lineage = lineage_of(snapshot, part.fragment)
            where = live_offsets(snapshot, part)
            row_ids.append(lineage.take(ROW_ID, where))
            addresses.append(row_addresses(part.fragment.id, where))
            created.append(lineage.take(CREATED_AT, where))
            updated.append(lineage.take(LAST_UPDATED_AT, where))
        self.row_ids = np.concatenate(row_ids)
        self.addresses = np.concatenate(addresses)
        self.created = np.concatenate(created)
        self.updated = np.concatenate(updated)

    def without(self, rows: NDArray[np.intp]) -> list[PlacedRows]:
        """The others, by fragment."""
        rest = np.ones(len(self.row_ids), dtype=np.bool_)
        rest[rows] = False
        return placed_rows(self.addresses[rest], self._fragments)


def placed_rows(addresses: _U64Array, fragments: Mapping[int, Fragment]) -> list[PlacedRows]:
    """Rows given by address, by fragment."""
    return [
        PlacedRows(fragments[fragment_id], inside)
        for fragment_id, inside in group_by_fragment(addresses).items()
    ]

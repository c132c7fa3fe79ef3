"""Write the addresses of removed rows to deletion files, one for each affected fragment.

A task of a scan or join sends a bitmap for each fragment; the task that receives all bitmaps of a
fragment writes its deletion file. The driver receives one small description per fragment.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.commit.fragment_changes import FragmentsById
from pyspark_lance.errors import CommitConflictError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionVector, OffsetSet
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import group_by_fragment, row_addresses
from pyspark_lance.metafile.deletion_file import read_deletion_file, write_deletion_file
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.version.deletion_vectors import confirm_row_count
from pyspark_lance.table.version.snapshot import Snapshot

# Deletion files are small, so the latency of an object store dominates.
_PARALLEL_PUTS = 8
# In a local folder a write is cheaper than starting threads, unless there are many to sync.
_SMALL_FOLDER_COUNT = 32
# Affected rows of a fragment that are kept, and number of fragments.
_MAX_KEPT_ROWS = 4096
_MAX_KEPT_FRAGMENTS = 256


@dataclass(frozen=True, slots=True)
class MatchedRows:
    """Rows of one fragment that one task matched."""

    fragment_id: int
    removed: DeletionVector
    matched: DeletionVector  # All rows that a source row matched, including ``removed``.
    # Offset of a row that was matched more than once; None if there is none.
    repeated: int | None = None

    def union(self, other: MatchedRows) -> MatchedRows:
        """Merge the rows of two tasks or batches."""
        repeated = self.repeated if self.repeated is not None else other.repeated
        if repeated is None:
            both = self.matched.intersection(other.matched)
            repeated = None if both.is_empty else int(both.to_array()[0])
        return MatchedRows(
            self.fragment_id,
            self.removed.union(other.removed),
            self.matched.union(other.matched),
            repeated,
        )


@dataclass(frozen=True, slots=True)
class FragmentDeletions:
    """The removed rows of a fragment."""

    fragment_id: int
    num_removed: int
    # Its new deletion file; None if all or none of its rows are removed.
    deletion_file: DeletionFile | None = None
    # Address of a row that two source rows matched; None if there is none.
    repeated: int | None = None


def touched_rows(
    addresses: NDArray[np.uint64], removed: NDArray[np.bool_]
) -> dict[int, MatchedRows]:
    """Return the matched rows of one batch, by fragment.

    ``addresses``: of the matched rows, in any order; ``removed``: which of them are deleted or
    moved, same shape.
    """
    leaving = group_by_fragment(addresses[removed])
    touched = {}
    for fragment_id, offsets in group_by_fragment(addresses).items():
        again = np.flatnonzero(offsets[1:] == offsets[:-1])
        touched[fragment_id] = MatchedRows(
            fragment_id,
            DeletionVector.of(leaving.get(fragment_id, np.empty(0, np.uint32))),
            DeletionVector.of(offsets),
            int(offsets[again[0]]) if len(again) else None,
        )
    return touched


def add_touched(known: dict[int, MatchedRows], more: Iterable[MatchedRows]) -> None:
    """Merge ``more`` into ``known``, by fragment."""
    for rows in more:
        before = known.get(rows.fragment_id)
        known[rows.fragment_id] = rows if before is None else before.union(rows)


def write_deletions(
    plan: DmlPlan, touched: Iterable[MatchedRows], *, one_match_each: bool
) -> list[FragmentDeletions]:
    """Write the deletion files of fragments, merged with their previous deletions.

    ``one_match_each``: report rows that were matched more than once. No file is written for a
    fragment that has one.
    """
    merged: dict[int, MatchedRows] = {}
    add_touched(merged, touched)
    snapshot = plan.snapshot()
    fragments = FragmentsById(counted_fragments(snapshot))

    def write(rows: MatchedRows) -> FragmentDeletions:
        fragment = fragments.get(rows.fragment_id)
        if fragment is None:
            raise CommitConflictError(
                f"fragment {rows.fragment_id} is not in version {plan.read_version}", plan.table.uri
            )
        if one_match_each and rows.repeated is not None:
            address = int(row_addresses(rows.fragment_id, np.array([rows.repeated]))[0])
            return FragmentDeletions(rows.fragment_id, 0, repeated=address)
        return _write(plan, snapshot, fragment, rows.removed)

    max_sequential = _SMALL_FOLDER_COUNT if isinstance(plan.table.store(), LocalStore) else 1
    if len(merged) <= max_sequential:
        return [write(rows) for rows in merged.values()]
    with ThreadPoolExecutor(_PARALLEL_PUTS) as pool:
        return list(pool.map(write, merged.values()))


def _write(
    plan: DmlPlan, snapshot: Snapshot, fragment: Fragment, removed: DeletionVector
) -> FragmentDeletions:
    if removed.is_empty:
        return FragmentDeletions(fragment.id, 0)
    largest = removed.max_offset
    if largest is not None and largest >= fragment.physical_rows:
        raise InvalidInputError(
            f"row {largest} of fragment {fragment.id}, which has {fragment.physical_rows} rows"
        )
    before = snapshot.deletion_vector(fragment) or DeletionVector.empty()
    if before.intersects(removed):
        raise InvalidInputError(
            f"rows of fragment {fragment.id} are deleted already in version {plan.read_version}"
        )
    after = before.union(removed)
    if len(after) == fragment.physical_rows:
        return FragmentDeletions(fragment.id, len(removed))
    store = plan.table.store()
    file = write_deletion_file(
        store, fragment.id, plan.read_version, after, id=secrets.randbits(64)
    )
    return FragmentDeletions(fragment.id, len(removed), file)


class AffectedRows(Mapping[int, NDArray[np.uint32]]):
    """The rows that a plan deletes or moves, by fragment, read back from the files when needed.

    Only fragments with concurrent changes are requested, so the driver keeps no rows of the rest,
    and only small arrays of these.
    """

    def __init__(self, plan: DmlPlan, deletions: Sequence[FragmentDeletions]) -> None:
        self._plan = plan
        self._files = {
            deletion.fragment_id: deletion.deletion_file
            for deletion in deletions
            if deletion.num_removed
        }
        self._loaded: dict[int, NDArray[np.uint32]] = {}

    def __getitem__(self, fragment_id: int) -> NDArray[np.uint32]:
        rows = self._loaded.get(fragment_id)
        if rows is None:
            rows = self._load(fragment_id)
            if len(rows) <= _MAX_KEPT_ROWS and len(self._loaded) < _MAX_KEPT_FRAGMENTS:
                self._loaded[fragment_id] = rows
        return rows

    def _load(self, fragment_id: int) -> NDArray[np.uint32]:
        file = self._files[fragment_id]
        snapshot = self._plan.snapshot()
        fragment = FragmentsById(counted_fragments(snapshot))[fragment_id]
        before = snapshot.deletion_vector(fragment) or DeletionVector.empty()
        if file is None:
            confirm_row_count(snapshot.files, fragment)
            return OffsetSet.live(fragment.physical_rows, before).to_array()
        store = self._plan.table.store()
        after = read_deletion_file(store, fragment_id, file, fragment.physical_rows)
        return after.difference(before).to_array()

    def __iter__(self) -> Iterator[int]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

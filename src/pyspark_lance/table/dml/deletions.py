"""Rows go: addresses become deletion files, one for each fragment that loses rows.

Whoever finds the rows (a task of a scan or of a join) sends a bitmap for each fragment; whoever
gets all bitmaps of a fragment writes its deletion file.  The driver sees one small description
for each touched fragment.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.commit.fragments_by_id import FragmentsById
from pyspark_lance.errors import CommitConflictError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.offset_set import OffsetSet
from pyspark_lance.format.row_address import group_by_fragment, row_addresses
from pyspark_lance.metafile.deletion_file import read_deletion_file, write_deletion_file
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.scan.fragment_pruning import counted_fragments
from pyspark_lance.table.version.confirmed_rows import confirm_row_count
from pyspark_lance.table.version.snapshot import Snapshot

# Deletion files are small, so an object store takes longer to answer than to store them.
_PARALLEL_PUTS = 8
# In a folder each takes less than starting the threads, unless a disk has to sync many.
_SMALL_FOLDER_COUNT = 32


@dataclass(frozen=True, slots=True)
class TouchedRows:
    """Rows of one fragment that one task met."""

    fragment_id: int
    gone: DeletionVector
    matched: DeletionVector  # All rows that a source row matched, ``gone`` among them.
    # Offset of a row that was matched more than once; None if there is none.
    repeated: int | None = None

    def union(self, other: TouchedRows) -> TouchedRows:
        """What two tasks, or two batches, met together."""
        repeated = self.repeated if self.repeated is not None else other.repeated
        if repeated is None:
            both = self.matched.intersection(other.matched)
            repeated = None if both.is_empty else int(both.to_array()[0])
        return TouchedRows(
            self.fragment_id,
            self.gone.union(other.gone),
            self.matched.union(other.matched),
            repeated,
        )


@dataclass(frozen=True, slots=True)
class FragmentLoss:
    """What a fragment has lost."""

    fragment_id: int
    num_gone: int
    # Where its deleted rows are stored now; None when nothing is left of it, or when nothing is
    # gone.
    deletion_file: DeletionFile | None = None
    # Address of a row that two source rows matched; None if there is none.
    repeated: int | None = None


def touched_rows(addresses: NDArray[np.uint64], gone: NDArray[np.bool_]) -> dict[int, TouchedRows]:
    """What one batch touches, by fragment.

    ``addresses``: addresses of the matched rows, in any order; ``gone``: which of them are deleted
    or move away, same shape.
    """
    leaving = group_by_fragment(addresses[gone])
    touched = {}
    for fragment_id, offsets in group_by_fragment(addresses).items():
        again = np.flatnonzero(offsets[1:] == offsets[:-1])
        touched[fragment_id] = TouchedRows(
            fragment_id,
            DeletionVector.of(leaving.get(fragment_id, np.empty(0, np.uint32))),
            DeletionVector.of(offsets),
            int(offsets[again[0]]) if len(again) else None,
        )
    return touched


def add_touched(known: dict[int, TouchedRows], more: Iterable[TouchedRows]) -> None:
    """Unites ``more`` with what is in ``known``, by fragment."""
    for rows in more:
        before = known.get(rows.fragment_id)
        known[rows.fragment_id] = rows if before is None else before.union(rows)


def write_deletions(
    plan: DmlPlan, touched: Iterable[TouchedRows], *, one_match_each: bool
) -> list[FragmentLoss]:
    """Writes the deletion files of fragments, united with what was deleted before.

    ``one_match_each``: report rows that were matched more than once. The files of a fragment that
    has one are not written.
    """
    together: dict[int, TouchedRows] = {}
    add_touched(together, touched)
    snapshot = plan.snapshot()
    fragments = FragmentsById(counted_fragments(snapshot))

    def settle(rows: TouchedRows) -> FragmentLoss:
        fragment = fragments.get(rows.fragment_id)
        if fragment is None:
            raise CommitConflictError(
                f"fragment {rows.fragment_id} is not in version {plan.read_version}", plan.table.uri
            )
        if one_match_each and rows.repeated is not None:
            address = int(row_addresses(rows.fragment_id, np.array([rows.repeated]))[0])
            return FragmentLoss(rows.fragment_id, 0, repeated=address)
        return _write(plan, snapshot, fragment, rows.gone)

    few = _SMALL_FOLDER_COUNT if isinstance(plan.table.store(), LocalStore) else 1
    if len(together) <= few:
        return [settle(rows) for rows in together.values()]
    with ThreadPoolExecutor(_PARALLEL_PUTS) as pool:
        return list(pool.map(settle, together.values()))


def _write(
    plan: DmlPlan, snapshot: Snapshot, fragment: Fragment, gone: DeletionVector
) -> FragmentLoss:
    if gone.is_empty:
        return FragmentLoss(fragment.id, 0)
    largest = gone.max_offset
    if largest is not None and largest >= fragment.physical_rows:
        raise InvalidInputError(
            f"row {largest} of fragment {fragment.id}, which has {fragment.physical_rows} rows"
        )
    before = snapshot.deletion_vector(fragment) or DeletionVector.empty()
    if before.intersects(gone):
        raise InvalidInputError(
            f"rows of fragment {fragment.id} are deleted already in version {plan.read_version}"
        )
    after = before.union(gone)
    if len(after) == fragment.physical_rows:
        return FragmentLoss(fragment.id, len(gone))
    store = plan.table.store()
    file = write_deletion_file(
        store, fragment.id, plan.read_version, after, id=secrets.randbits(64)
    )
    return FragmentLoss(fragment.id, len(gone), file)


class AffectedRows(Mapping[int, NDArray[np.uint32]]):
    """The rows that a plan deletes or moves, by fragment, read back from the files when needed.

    Only fragments that somebody else changed too are ever asked for, so the driver holds
    nothing for the others.
    """

    def __init__(self, plan: DmlPlan, losses: Sequence[FragmentLoss]) -> None:
        self._plan = plan
        self._files = {loss.fragment_id: loss.deletion_file for loss in losses if loss.num_gone}

    def __getitem__(self, fragment_id: int) -> NDArray[np.uint32]:
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

"""Which slices of fragments a condition leaves, by what the manifest says of them.

A condition on the lineage columns excludes fragments by the runs of their versions, their row ids
and their addresses; a condition that names row ids or addresses leaves single rows; one on columns
that have zone maps leaves zones of rows, and one on columns that have other indices the rows that
they name.  No data file is opened, and a deletion file only to tell which of two places of a row id
is the live one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.offset_set import OffsetSet
from pyspark_lance.format.row_address import group_by_fragment
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.format.version_sequence import RowDatasetVersionSequence
from pyspark_lance.predicate.conditions import (
    Bounds,
    Predicate,
    columns_of,
    parts_that_can_match,
    row_address_candidates,
    row_id_candidates,
)
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.table.index.row_ids import row_id_index_of
from pyspark_lance.table.index.zone_pruning import zone_slices
from pyspark_lance.table.rows.lineage import DEFAULT_VERSION, source_of
from pyspark_lance.table.rows.scan_slice import ScanSlice
from pyspark_lance.table.version.snapshot import Snapshot

UNKNOWN_BOUNDS = 0, 2**64 - 1
"""Of values in a file or a hidden column: the manifest does not tell."""
FEW_ROWS = 512
"""So few are read faster than an index tells which of them match."""
# Of more of its rows a fragment is read as if there was no index.
_MOST_SHARE = 0.25
# A range that holds nothing.
_NO_VALUES = 2**63 - 1, 0

_LowAndHigh = tuple[NDArray[np.uint64], NDArray[np.uint64]]


@dataclass(frozen=True, slots=True)
class ChosenSlices:
    """One slice for each fragment that may hold rows that satisfy a condition.

    ``indices``: the titles of those that leave rows out.
    """

    slices: list[ScanSlice]
    indices: frozenset[str] = frozenset()


def choose_slices(snapshot: Snapshot, predicate: Predicate | None) -> list[ScanSlice]:
    """One slice for each fragment that may hold rows that satisfy ``predicate``."""
    return choose(snapshot, predicate).slices


def choose(snapshot: Snapshot, predicate: Predicate | None) -> ChosenSlices:
    """As ``choose_slices``, with the indices that were of use."""
    fragments = counted_fragments(snapshot)
    if predicate is None:
        return _whole(fragments)
    named = columns_of(predicate)
    bounds: dict[ColumnPath, Bounds] = {
        (name,): Bounds.of_lineage(*fragment_bounds(snapshot, fragments, name))
        for name in SYSTEM_COLUMNS
        if name in named
    }
    if not bounds:
        return _indexed_slices(snapshot, predicate, fragments, {})
    places = np.flatnonzero(parts_that_can_match(predicate, bounds, len(fragments)))
    possible = [fragments[index] for index in places]
    addresses = _candidate_addresses(snapshot, predicate, possible)
    if addresses is None:
        left = {path: known.take(places) for path, known in bounds.items()}
        return _indexed_slices(snapshot, predicate, possible, left)
    by_fragment = group_by_fragment(addresses)
    slices = [
        ScanSlice(f, 0, f.physical_rows, offsets=OffsetSet.of(np.unique(inside)))
        for f in possible
        if f.id in by_fragment
        and len(inside := by_fragment[f.id][by_fragment[f.id] < f.physical_rows])
    ]
    return ChosenSlices(slices)


def _whole(fragments: Sequence[Fragment]) -> ChosenSlices:
    return ChosenSlices([ScanSlice(f, 0, f.physical_rows) for f in fragments])


def _indexed_slices(
    snapshot: Snapshot,
    predicate: Predicate,
    fragments: Sequence[Fragment],
    lineage: Mapping[ColumnPath, Bounds],
) -> ChosenSlices:
    """One slice for each fragment of which indices leave rows."""
    if not snapshot.indices:
        return _whole(fragments)
    from pyspark_lance.table.index.lookups import index_candidates

    slices, zone_maps = zone_slices(snapshot, predicate, fragments, lineage)
    num_rows = sum(map(_num_rows, slices))
    if num_rows <= FEW_ROWS:
        return ChosenSlices(slices, zone_maps)
    left = [scan_slice.fragment for scan_slice in slices]
    candidates = index_candidates(snapshot, predicate, left)
    if candidates is None:
        return ChosenSlices(slices, zone_maps)
    known = frozenset(candidates.fragments.tolist())
    narrowed = [
        _narrowed(scan_slice, candidates.offsets_of(scan_slice.fragment.id))
        if scan_slice.fragment.id in known
        else scan_slice
        for scan_slice in slices
    ]
    is_narrower = sum(map(_num_rows, narrowed)) < num_rows
    return ChosenSlices(
        [scan_slice for scan_slice in narrowed if _num_rows(scan_slice)],
        zone_maps | candidates.indices if is_narrower else zone_maps,
    )


def _narrowed(scan_slice: ScanSlice, offsets: NDArray[np.uint32]) -> ScanSlice:
    """The slice with only those of its rows that are at ``offsets``; as it is if that is many."""
    start, end = scan_slice.start, scan_slice.end
    first, last = np.searchsorted(offsets, (start, end))
    rows = OffsetSet.of(offsets[first:last])
    if scan_slice.offsets is not None:
        rows = rows.both(scan_slice.offsets)
    if len(rows) > _MOST_SHARE * _num_rows(scan_slice):
        return scan_slice
    return ScanSlice(scan_slice.fragment, start, end, rows)


def _num_rows(scan_slice: ScanSlice) -> int:
    if scan_slice.offsets is not None:
        return len(scan_slice.offsets)
    return scan_slice.end - scan_slice.start


def counted_fragments(
    snapshot: Snapshot, fragments: Iterable[Fragment] | None = None
) -> list[Fragment]:
    """The fragments that have rows, of some or all."""
    chosen = snapshot.manifest.fragments if fragments is None else fragments
    return [fragment for fragment in chosen if fragment.physical_rows]


def _candidate_addresses(
    snapshot: Snapshot, predicate: Predicate, possible: Sequence[Fragment]
) -> NDArray[np.uint64] | None:
    """Addresses of the only rows that can match; None when the condition names no rows."""
    addresses = row_address_candidates(predicate)
    row_ids = row_id_candidates(predicate)
    if row_ids is None:
        return addresses
    if snapshot.uses_stable_row_ids:
        if not all(isinstance(fragment.row_ids, bytes) for fragment in possible):
            # Tasks read their hidden columns side by side, the driver would do it alone.
            return addresses
        index = row_id_index_of(snapshot, possible)
        live_addresses, is_found = index.addresses_of(row_ids)
        row_ids = live_addresses[is_found]
    if addresses is None:
        return np.sort(row_ids)
    return np.intersect1d(addresses, row_ids)


def fragment_bounds(snapshot: Snapshot, fragments: Sequence[Fragment], name: str) -> _LowAndHigh:
    """Smallest and largest value of a lineage column for each fragment, shapes (len(fragments),).

    Computed once for a snapshot, since one session asks many questions of it.
    """
    memo = snapshot.memo
    key = ("bounds", name)
    if key not in memo:
        memo[key] = _compute_bounds(snapshot, fragments, name)
    return memo[key]  # type: ignore[return-value]


def _compute_bounds(snapshot: Snapshot, fragments: Sequence[Fragment], name: str) -> _LowAndHigh:
    if name == ROW_ADDRESS or (name == ROW_ID and not snapshot.uses_stable_row_ids):
        ids = np.array([f.id for f in fragments], dtype=np.uint64)
        rows = np.array([f.physical_rows for f in fragments], dtype=np.uint64)
        first = ids << np.uint64(32)
        return first, first + rows - np.uint64(1)
    read = row_id_bounds if name == ROW_ID else _version_bounds
    known: dict[bytes, tuple[int, int]] = {}
    pairs = [_bounds_of(source_of(f, name), read, known) for f in fragments]
    table = np.array(pairs, dtype=np.uint64).reshape(-1, 2)
    return table[:, 0].copy(), table[:, 1].copy()


def _bounds_of(
    source: object, read: Callable[[bytes], tuple[int, int]], known: dict[bytes, tuple[int, int]]
) -> tuple[int, int]:
    if source is None:
        return DEFAULT_VERSION, DEFAULT_VERSION
    if not isinstance(source, bytes):
        return UNKNOWN_BOUNDS
    if source not in known:
        known[source] = read(source)
    return known[source]


def row_id_bounds(data: bytes) -> tuple[int, int]:
    """Smallest and largest of inline row ids; without any, a range that holds nothing."""
    return RowIdSequence.from_bytes(data).bounds() or _NO_VALUES


def _version_bounds(data: bytes) -> tuple[int, int]:
    sequence = RowDatasetVersionSequence.from_bytes(data)
    low, high = sequence.min_version, sequence.max_version
    return _NO_VALUES if low is None or high is None else (low, high)

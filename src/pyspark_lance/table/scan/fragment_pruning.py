"""Prune fragments and rows with the manifest and indices.

A predicate on lineage columns prunes fragments by their version runs, row ids and addresses; a
predicate on specific row ids or addresses selects single rows; zone maps select zones, and other
indices select rows. No data file is opened, and a deletion file only to find the live one of two
addresses of a row id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.fragment import SequenceSource
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.row_address import group_by_fragment
from pyspark_lance.format.row_id_sequence import RowIdSequence, single_ranges
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
from pyspark_lance.table.index.index_file import row_id_index_of
from pyspark_lance.table.index.zone_map_file import zone_slices
from pyspark_lance.table.rows.lineage import DEFAULT_VERSION, SEQUENCE_OF
from pyspark_lance.table.rows.scan_split import Slices
from pyspark_lance.table.version.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark_lance.table.index.lookups import Candidates

UNKNOWN_BOUNDS = 0, 2**64 - 1
"""Bounds of values in a file or a hidden column, which the manifest does not have."""
SMALL_ROW_COUNT = 512
"""Reading fewer rows is faster than an index lookup."""
# If an index selects a larger fraction, the fragment is read without it.
_MAX_SHARE = 0.25
# An empty range.
_NO_VALUES = 2**63 - 1, 0

_LowAndHigh = tuple[NDArray[np.uint64], NDArray[np.uint64]]


@dataclass(frozen=True, slots=True)
class PrunedSplits:
    """One split for each fragment that may contain matching rows.

    ``indices``: the titles of those that pruned rows.
    """

    slices: Slices
    indices: frozenset[str] = frozenset()


def prune_splits(snapshot: Snapshot, predicate: Predicate | None) -> Slices:
    """Return one split for each fragment that may contain rows that match ``predicate``."""
    return choose(snapshot, predicate).slices


def choose(snapshot: Snapshot, predicate: Predicate | None) -> PrunedSplits:
    """Prune like ``prune_splits``, and return the indices that pruned rows."""
    fragments = counted_fragments(snapshot)
    if predicate is None:
        return PrunedSplits(Slices.whole(fragments))
    named = columns_of(predicate)
    bounds: dict[ColumnPath, Bounds] = {
        (name,): Bounds.of_lineage(*fragment_bounds(snapshot, fragments, name))
        for name in SYSTEM_COLUMNS
        if name in named
    }
    if not bounds:
        return _indexed_slices(snapshot, predicate, fragments, {})
    indices = np.flatnonzero(parts_that_can_match(predicate, bounds, len(fragments)))
    possible = fragments.take(indices)
    addresses = _candidate_addresses(snapshot, predicate, possible)
    if addresses is None:
        left = {path: known.take(indices) for path, known in bounds.items()}
        return _indexed_slices(snapshot, predicate, possible, left)
    by_fragment = group_by_fragment(addresses)
    named_ids = np.fromiter(by_fragment, np.int64, len(by_fragment))
    whole = Slices.whole(possible.take(np.flatnonzero(np.isin(possible.ids, named_ids))))
    offsets = {}
    for index, (number, rows) in enumerate(
        zip(whole.fragments.ids.tolist(), whole.ends.tolist(), strict=True)
    ):
        inside = by_fragment[number]
        offsets[index] = OffsetSet.of(np.unique(inside[inside < rows]))
    return PrunedSplits(whole.with_offsets(offsets))


def _indexed_slices(
    snapshot: Snapshot,
    predicate: Predicate,
    fragments: Fragments,
    lineage: Mapping[ColumnPath, Bounds],
) -> PrunedSplits:
    """Return one split for each fragment that has rows left after index lookups."""
    if not snapshot.indices:
        return PrunedSplits(Slices.whole(fragments))
    from pyspark_lance.table.index.lookups import index_candidates

    slices, zone_maps = zone_slices(snapshot, predicate, fragments, lineage)
    num_rows = int(slices.num_rows.sum())
    if num_rows <= SMALL_ROW_COUNT:
        return PrunedSplits(slices, zone_maps)
    candidates = index_candidates(snapshot, predicate, slices.fragments)
    if candidates is None:
        return PrunedSplits(slices, zone_maps)
    known = np.flatnonzero(np.isin(slices.fragments.ids, candidates.fragments.astype(np.int64)))
    narrowed = {
        index: offsets
        for index in known.tolist()
        if (offsets := _candidate_offsets(slices, index, candidates)) is not None
    }
    left = slices.with_offsets(narrowed)
    is_narrower = int(left.num_rows.sum()) < num_rows
    return PrunedSplits(left, zone_maps | candidates.indices if is_narrower else zone_maps)


def _candidate_offsets(slices: Slices, index: int, candidates: Candidates) -> OffsetSet | None:
    """Return the only rows of a split that can match; None if they are too many."""
    offsets = candidates.offsets_of(int(slices.fragments.ids[index]))
    first, last = np.searchsorted(offsets, (slices.starts[index], slices.ends[index]))
    rows = OffsetSet.of(offsets[first:last])
    if index in slices.offsets:
        rows = rows.both(slices.offsets[index])
    return None if len(rows) > _MAX_SHARE * slices.num_rows[index] else rows


def counted_fragments(snapshot: Snapshot) -> Fragments:
    """Return the fragments that have rows."""
    fragments = snapshot.manifest.fragments
    has_rows = fragments.columns.physical_rows > 0
    return fragments if has_rows.all() else fragments.take(np.flatnonzero(has_rows))


def _candidate_addresses(
    snapshot: Snapshot, predicate: Predicate, possible: Fragments
) -> NDArray[np.uint64] | None:
    """Return the addresses that the predicate selects; None if it selects no specific rows."""
    addresses = row_address_candidates(predicate)
    row_ids = row_id_candidates(predicate)
    if row_ids is None:
        return addresses
    if snapshot.uses_stable_row_ids:
        if not all(isinstance(fragment.row_ids, bytes) for fragment in possible):
            # Tasks read hidden columns in parallel; the driver would read them sequentially.
            return addresses
        index = row_id_index_of(snapshot, possible)
        live_addresses, is_found = index.addresses_of(row_ids)
        row_ids = live_addresses[is_found]
    if addresses is None:
        return np.sort(row_ids)
    return np.intersect1d(addresses, row_ids)


def fragment_bounds(snapshot: Snapshot, fragments: Fragments, name: str) -> _LowAndHigh:
    """Return the bounds of a lineage column for each fragment, shapes (len(fragments),).

    Cached in the snapshot, since a session runs many queries on it.
    """
    memo = snapshot.memo
    key = ("bounds", name)
    if key not in memo:
        memo[key] = compute_bounds(snapshot, fragments, name)
    return memo[key]  # type: ignore[return-value]


def compute_bounds(snapshot: Snapshot, fragments: Fragments, name: str) -> _LowAndHigh:
    """Compute the uncached bounds of some fragments."""
    if name == ROW_ADDRESS or (name == ROW_ID and not snapshot.uses_stable_row_ids):
        rows = fragments.columns.physical_rows.astype(np.uint64)
        first = fragments.ids.astype(np.uint64) << np.uint64(32)
        return first, first + rows - np.uint64(1)
    low, high = np.empty(len(fragments), np.uint64), np.empty(len(fragments), np.uint64)
    read = row_id_bounds if name == ROW_ID else _version_bounds
    known: dict[SequenceSource, tuple[int, int]] = {None: (DEFAULT_VERSION, DEFAULT_VERSION)}
    done = 0
    for sources in fragments.sources(SEQUENCE_OF[name]):
        here = slice(done, done + len(sources))
        done = here.stop
        ranges = single_ranges(sources) if name == ROW_ID else None
        if ranges is not None:
            low[here], high[here] = ranges
            continue
        for source in set(sources) - known.keys():
            known[source] = read(source) if isinstance(source, bytes) else UNKNOWN_BOUNDS
        table = np.array([known[source] for source in sources], np.uint64)
        low[here], high[here] = table.T
    return low, high


def row_id_bounds(data: bytes) -> tuple[int, int]:
    """Return the smallest and largest inline row id; an empty range without any."""
    return RowIdSequence.from_bytes(data).bounds() or _NO_VALUES


def _version_bounds(data: bytes) -> tuple[int, int]:
    sequence = RowDatasetVersionSequence.from_bytes(data)
    low, high = sequence.min_version, sequence.max_version
    return _NO_VALUES if low is None or high is None else (low, high)

"""Metadata-only statistics of a scan: number of rows and bounds.

Opens only zone map files, and deletion files whose row count is not in the manifest.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.format.fragment import SPILLED, Fragment
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.index.zone_pruning import column_zones
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import source_of
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.fragment_pruning import choose
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot

# Maximum values of a lineage column in memory.
_ROWS_AT_ONCE = 1 << 20


class PrunedScan(NamedTuple):
    """A scan after pruning by metadata."""

    fragments: int  # Fragments to read.
    rows: int  # Upper bound of returned rows.
    indices: tuple[str, ...]  # Titles of those that pruned rows, as shown in plans.


def prune_scan(snapshot: Snapshot, predicate: Predicate | None) -> PrunedScan:
    """Return the fragments that a scan reads and an upper bound of its rows."""
    chosen = choose(snapshot, predicate)
    slices = chosen.slices
    # Single rows may include deleted ones.
    most = np.minimum(slices.num_rows, slices.fragments.columns.num_rows)
    most[list(slices.offsets)] = slices.num_rows[list(slices.offsets)]
    num_fragments = len(np.unique(slices.fragments.ids))
    return PrunedScan(num_fragments, int(most.sum()), tuple(sorted(chosen.indices)))


def limit_tasks(tasks: Iterable[ScanTask], limit: int) -> tuple[ScanTask, ...]:
    """Truncate tasks to those that together return at least ``limit`` rows.

    Filtered tasks are returned unchanged.
    """
    kept: list[ScanTask] = []
    for task in tasks:
        if limit <= 0 and kept:
            break
        if task.predicate is None:
            first, found = _first_rows(task.slices, limit)
            task, limit = replace(task, slices=first), limit - found
        kept.append(task)
    return tuple(kept)


def _first_rows(slices: Iterable[ScanSplit], limit: int) -> tuple[tuple[ScanSplit, ...], int]:
    """Return the first splits, the last one truncated, and a lower bound of their rows."""
    kept: list[ScanSplit] = []
    found = 0
    for scan_split in slices:
        if found >= limit and kept:
            break
        deleted = _most_deleted(scan_split)
        if scan_split.offsets is None and deleted is not None:
            enough = scan_split.start + max(1, limit - found) + deleted
            scan_split = replace(scan_split, end=min(scan_split.end, enough))
        kept.append(scan_split)
        if deleted is not None:
            found += max(0, _num_asked(scan_split) - deleted)
    return tuple(kept), found


def _num_asked(scan_split: ScanSplit) -> int:
    if scan_split.offsets is not None:
        return len(scan_split.offsets)
    return scan_split.end - scan_split.start


def _most_deleted(scan_split: ScanSplit) -> int | None:
    """Return the deleted rows of the fragment; None if the manifest has no count."""
    fragment = scan_split.fragment
    is_uncounted = fragment.deletion_file is not None and not fragment.num_deleted_rows
    return None if is_uncounted else fragment.num_deleted_rows


def lineage_bounds(snapshot: Snapshot, name: str) -> tuple[bool, tuple[int, int] | None]:
    """Return the bounds of the lineage column ``name`` over all live rows.

    The result is whether the metadata suffices, and the bounds; None for a table without rows.
    """
    low, high = [], []
    for fragment in snapshot.manifest.fragments:
        if fragment.num_rows == 0:
            continue
        if not _is_inline(snapshot, fragment, name):
            return False, None
        reader = FragmentReader(
            snapshot.files, fragment, stable_row_ids=snapshot.uses_stable_row_ids
        )
        reader.confirm_rows(fragment)
        deleted = snapshot.deletion_vector(fragment)
        for start in range(0, fragment.physical_rows, _ROWS_AT_ONCE):
            end = min(start + _ROWS_AT_ONCE, fragment.physical_rows)
            values = reader.lineage.window(name, start, end)
            if deleted is not None:
                values = values[deleted.keep_mask(start, end)]
            if len(values):
                low.append(int(np.min(values)))
                high.append(int(np.max(values)))
    return True, (min(low), max(high)) if low else None


@dataclass(frozen=True, slots=True)
class ColumnStatistics:
    """Exact statistics of a column from zone maps."""

    minimum: pa.Scalar  # Minimum; null if all values are.
    maximum: pa.Scalar  # Maximum; null if all values are.
    num_values: int  # Rows that are not null.


def column_statistics(snapshot: Snapshot, name: str) -> ColumnStatistics | None:
    """Return exact bounds of an integer, date or timestamp column; None if it must be read.

    Zone maps must cover all rows, none of which was deleted since.
    """
    columns = snapshot.manifest.fragments.columns
    has_lost = (columns.has_deletions & (columns.num_rows > 0)).any()
    return None if has_lost else zone_statistics(snapshot, name)


def zone_statistics(snapshot: Snapshot, name: str) -> ColumnStatistics | None:
    """Like ``column_statistics``, including rows that were deleted since."""
    zones = column_zones(snapshot, name)
    if zones is None or not is_exact(zones.bounds.minimum.type):
        return None
    columns = snapshot.manifest.fragments.columns
    num_rows = int(columns.physical_rows[columns.num_rows > 0].sum())
    if int((zones.stops - zones.starts).sum()) != num_rows:
        return None
    is_known = np.asarray(zones.bounds.minimum.is_valid()) | (
        zones.num_nulls >= zones.stops - zones.starts
    )
    if not is_known.all():
        return None
    return ColumnStatistics(
        pc.min(zones.bounds.minimum),
        pc.max(zones.bounds.maximum),
        num_rows - int(zones.num_nulls.sum()),
    )


def is_exact(data_type: pa.DataType) -> bool:
    """Return whether bounds of this type are exact: integers, dates and timestamps."""
    kinds = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
    return any(is_of(data_type) for is_of in kinds)


def end_of_first_rows(
    snapshot: Snapshot, name: str, rows: int, *, descending: bool
) -> pa.Scalar | None:
    """Return a bound of the first ``rows`` values: no value beyond it is among them.

    ``rows``: number of first values, without nulls; ``descending``: whether the greatest values
    come first. The bound has the type of predicates; None if zone maps provide none.
    """
    zones = column_zones(snapshot, name)
    if zones is None:
        return None
    ends = zones.bounds.minimum if descending else zones.bounds.maximum
    order = "descending" if descending else "ascending"
    places = pc.array_sort_indices(ends, order=order, null_placement="at_end").to_numpy()
    places = places[: len(ends) - ends.null_count]
    enough = int(np.searchsorted(np.cumsum(zones.least_values[places]), rows))
    if enough == len(places):
        return None
    end = ends[int(places[enough])]
    return None if pa.types.is_floating(end.type) and math.isnan(end.as_py()) else end


def _is_inline(snapshot: Snapshot, fragment: Fragment, name: str) -> bool:
    if name == ROW_ADDRESS or (name == ROW_ID and not snapshot.uses_stable_row_ids):
        return True
    return source_of(fragment, name) is not SPILLED

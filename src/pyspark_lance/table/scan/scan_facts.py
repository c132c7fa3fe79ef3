"""What the metadata alone tell of a scan: how many rows, between which bounds.

Opens no data file but those of zone maps, and deletion files only where the manifest does not say
what they hold.
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

# Values of a lineage column that are in memory at a time.
_ROWS_AT_ONCE = 1 << 20


class RowsLeft(NamedTuple):
    """What metadata leave of a scan."""

    fragments: int  # How many it reads.
    rows: int  # How many it returns at most.
    indices: tuple[str, ...]  # Titles of those that leave rows out, as plans show them.


def rows_left(snapshot: Snapshot, predicate: Predicate | None) -> RowsLeft:
    """Fragments that a scan reads, and rows that it returns at most."""
    chosen = choose(snapshot, predicate)
    slices = chosen.slices
    # Of single rows it is not known which of them are deleted.
    most = np.minimum(slices.num_rows, slices.fragments.columns.num_rows)
    most[list(slices.offsets)] = slices.num_rows[list(slices.offsets)]
    num_fragments = len(np.unique(slices.fragments.ids))
    return RowsLeft(num_fragments, int(most.sum()), tuple(sorted(chosen.indices)))


def enough_tasks(tasks: Iterable[ScanTask], limit: int) -> tuple[ScanTask, ...]:
    """The first tasks, cut to the first rows, that together return ``limit`` rows or more.

    All tasks as they are if their rows are filtered.
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
    """The first slices, the last of them cut, and how many rows they return at least."""
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
    """Deleted rows of the fragment; None where very old software did not count them."""
    fragment = scan_split.fragment
    is_uncounted = fragment.deletion_file is not None and not fragment.num_deleted_rows
    return None if is_uncounted else fragment.num_deleted_rows


def lineage_bounds(snapshot: Snapshot, name: str) -> tuple[bool, tuple[int, int] | None]:
    """Smallest and largest value of the lineage column ``name`` over all live rows.

    Returns whether the metadata can tell, and the bounds; None for a table without rows.
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
class ColumnFacts:
    """What zone maps tell of all values of a column."""

    minimum: pa.Scalar  # The least value; null if all are.
    maximum: pa.Scalar  # The greatest value; null if all are.
    num_values: int  # Rows that are not null.


def column_facts(snapshot: Snapshot, name: str) -> ColumnFacts | None:
    """The exact bounds of a column of whole numbers, days or times; None if they take reading it.

    Zones tell them while they cover all rows and none of those was deleted since.
    """
    columns = snapshot.manifest.fragments.columns
    has_lost = (columns.has_deletions & (columns.num_rows > 0)).any()
    return None if has_lost else facts_of_zones(snapshot, name)


def facts_of_zones(snapshot: Snapshot, name: str) -> ColumnFacts | None:
    """As ``column_facts``, of all rows that there were when the zones were made."""
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
    return ColumnFacts(
        pc.min(zones.bounds.minimum),
        pc.max(zones.bounds.maximum),
        num_rows - int(zones.num_nulls.sum()),
    )


def is_exact(data_type: pa.DataType) -> bool:
    """Whether values are whole numbers, days or times, whose bounds are values as they are."""
    kinds = (pa.types.is_integer, pa.types.is_date, pa.types.is_timestamp)
    return any(is_of(data_type) for is_of in kinds)


def end_of_first_rows(
    snapshot: Snapshot, name: str, rows: int, *, descending: bool
) -> pa.Scalar | None:
    """A value that ``rows`` values are not beyond, so that none beyond it is among the first ones.

    ``rows``: how many of the first values are wanted, nulls left aside; ``descending``: whether the
    greatest values come first. Returns the value, in the type in which conditions see the column;
    None where zones do not tell.
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

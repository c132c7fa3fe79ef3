"""What the metadata alone tell of a scan: how many rows, between which bounds.

Opens no data file, and deletion files only where the manifest does not say what they hold.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from pyspark_lance.format.fragment import SPILLED, Fragment
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import source_of
from pyspark_lance.table.scan.fragment_pruning import choose_slices
from pyspark_lance.table.scan.scan_slice import ScanSlice
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot


def rows_left(snapshot: Snapshot, predicate: Predicate | None) -> tuple[int, int]:
    """Fragments that a scan reads, and rows that it returns at most."""
    slices = choose_slices(snapshot, predicate)
    num_fragments = len({scan_slice.fragment.id for scan_slice in slices})
    return num_fragments, sum(_most_rows(scan_slice) for scan_slice in slices)


def _most_rows(scan_slice: ScanSlice) -> int:
    if scan_slice.offsets is not None:
        return len(scan_slice.offsets)
    return min(scan_slice.end - scan_slice.start, scan_slice.fragment.num_rows)


def enough_tasks(tasks: Iterable[ScanTask], limit: int) -> tuple[ScanTask, ...]:
    """The first tasks that together return ``limit`` rows; all of them if their rows are filtered.

    Args:
        tasks: A plan.
        limit: Rows that are enough.
    """
    kept: list[ScanTask] = []
    rows = 0
    for task in tasks:
        if rows >= limit and kept:
            break
        kept.append(task)
        if task.predicate is None:
            rows += sum(_least_rows(scan_slice) for scan_slice in task.slices)
    return tuple(kept)


def _least_rows(scan_slice: ScanSlice) -> int:
    return max(0, scan_slice.end - scan_slice.start - scan_slice.fragment.num_deleted_rows)


def lineage_bounds(snapshot: Snapshot, name: str) -> tuple[bool, tuple[int, int] | None]:
    """Smallest and largest value of the lineage column ``name`` over all live rows.

    Returns:
        Whether the metadata can tell, and the bounds; None for a table without rows.
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
        values = reader.lineage.window(name, 0, fragment.physical_rows)
        deleted = snapshot.deletion_vector(fragment)
        if deleted is not None:
            values = values[deleted.keep_mask(0, fragment.physical_rows)]
        low.append(int(np.min(values)))
        high.append(int(np.max(values)))
    return True, (min(low), max(high)) if low else None


def _is_inline(snapshot: Snapshot, fragment: Fragment, name: str) -> bool:
    if name == ROW_ADDRESS or (name == ROW_ID and not snapshot.uses_stable_row_ids):
        return True
    return source_of(fragment, name) is not SPILLED

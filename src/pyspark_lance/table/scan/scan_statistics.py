"""Statistics of a scan from metadata: rows, bounds and ANALYZE results.

Opens only zone map files, and deletion files whose row count is not in the manifest.

Statistics of ANALYZE are stored in the table configuration, which later versions inherit, so they
may be outdated. Counts are scaled to the current number of rows, and bounds are used only while the
rows are unchanged. Statistics are ignored once the number of rows has changed too much, or the
column was replaced.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID, by_name
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import SPILLED, Fragment
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.index.zone_map_file import column_zones
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import source_of
from pyspark_lance.table.rows.scan_split import ScanSplit
from pyspark_lance.table.scan.fragment_pruning import choose
from pyspark_lance.table.scan.scan_task import MAX_LIMIT, ScanTask
from pyspark_lance.table.version.snapshot import OWN_PREFIX, Snapshot

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

    Filtered tasks are kept, each with the limit.
    """
    kept: list[ScanTask] = []
    for task in tasks:
        if limit <= 0 and kept:
            break
        if task.predicate is None:
            first, found = _first_rows(task.slices, limit)
            task, limit = replace(task, slices=first), limit - found
        elif limit <= MAX_LIMIT:
            task = replace(task, limit=limit)
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
    """Return statistics like ``column_statistics``, including rows that were deleted since."""
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
    indices = pc.array_sort_indices(ends, order=order, null_placement="at_end").to_numpy()
    indices = indices[: len(ends) - ends.null_count]
    enough = int(np.searchsorted(np.cumsum(zones.least_values[indices]), rows))
    if enough == len(indices):
        return None
    end = ends[int(indices[enough])]
    return None if pa.types.is_floating(end.type) and math.isnan(end.as_py()) else end


def _is_inline(snapshot: Snapshot, fragment: Fragment, name: str) -> bool:
    if name == ROW_ADDRESS or (name == ROW_ID and not snapshot.uses_stable_row_ids):
        return True
    return source_of(fragment, name) is not SPILLED


PREFIX: Final = f"{OWN_PREFIX}statistics."
# Statistics are ignored if the number of rows has changed by this factor.
_MAX_GROWTH = 4
# Above this fraction of distinct values, new rows are assumed to have new values.
_NEARLY_ALL = 0.9


@dataclass(frozen=True, slots=True)
class StoredStatistics:
    """The statistics of a top-level column in one version."""

    version: int
    num_rows: int  # Live rows of that version.
    rows_digest: str  # Of ``rows_digest``: identifies the fragments of that version.
    field_id: int
    type_name: str  # The logical type of the column.
    num_nulls: int
    num_distinct: int  # Approximately; nulls do not count.
    minimum: str | bool | None = None  # As in JSON predicates; None if unknown.
    maximum: str | bool | None = None
    average_bytes: int | None = None  # Of strings and binary values, else None.
    most_bytes: int | None = None

    def text(self) -> str:
        """Serialize for the configuration."""
        return json.dumps(dataclasses.asdict(self), separators=(",", ":"))


def stored_statistics(snapshot: Snapshot, name: str) -> StoredStatistics | None:
    """Return the statistics of a column, scaled to the rows of ``snapshot``; None without any."""
    text = snapshot.manifest.config.get(PREFIX + name)
    field = by_name(snapshot.schema.fields).get(name)
    known = None if text is None else _parse_statistics(text)
    if known is None or field is None or not _is_of(known, field):
        return None
    rows = snapshot.manifest.fragments.num_rows
    if not known.num_rows <= rows * _MAX_GROWTH or not rows <= known.num_rows * _MAX_GROWTH:
        return None
    if known.rows_digest == rows_digest(snapshot):
        return known
    share = rows / max(1, known.num_rows)
    nulls = min(rows, round(known.num_nulls * share))
    distinct = known.num_distinct
    if distinct >= _NEARLY_ALL * (known.num_rows - known.num_nulls):
        distinct = round(distinct * share)
    return replace(
        known,
        num_rows=rows,
        num_nulls=nulls,
        num_distinct=min(distinct, rows - nulls),
        minimum=None,
        maximum=None,
    )


def rows_digest(snapshot: Snapshot) -> str:
    """Hash the ids, rows and sizes of the fragments of a version."""
    columns = snapshot.manifest.fragments.columns
    digest = hashlib.blake2b(digest_size=12)
    for numbers in (columns.ids, columns.physical_rows, columns.num_rows, columns.num_bytes):
        digest.update(numbers.astype("<i8").tobytes())
    return digest.hexdigest()


def statistics_entries(
    snapshot: Snapshot, found: Mapping[str, Mapping[str, Any]], num_rows: int
) -> dict[str, str]:
    """Return the configuration entries of new statistics.

    ``found``: aggregated fields of ``StoredStatistics`` by column; ``num_rows``: as counted by the
    same aggregation.
    """
    fields = by_name(snapshot.schema.fields)
    common = (snapshot.version, num_rows, rows_digest(snapshot))
    return {
        PREFIX + name: StoredStatistics(
            *common, fields[name].id, fields[name].logical_type, **values
        ).text()
        for name, values in found.items()
    }


def outdated(snapshot: Snapshot) -> list[str]:
    """Return the entries of columns that were dropped or replaced."""
    fields = {PREFIX + field.name: field for field in snapshot.schema.fields}
    outdated_keys = []
    for key, text in snapshot.manifest.config.items():
        known = _parse_statistics(text) if key.startswith(PREFIX) else None
        if key.startswith(PREFIX) and not (known and key in fields and _is_of(known, fields[key])):
            outdated_keys.append(key)
    return outdated_keys


def _is_of(known: StoredStatistics, field: Field) -> bool:
    return (known.field_id, known.type_name) == (field.id, field.logical_type)


def _parse_statistics(text: str) -> StoredStatistics | None:
    """Parse an entry; None if another release wrote it in an unknown form."""
    try:
        return StoredStatistics(**json.loads(text))
    except (ValueError, TypeError):
        return None

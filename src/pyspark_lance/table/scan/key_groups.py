"""Key-grouped tasks: each reads rows of one key, as proven by zone maps.

Spark joins and aggregates such tasks without a shuffle and relies on the reported keys: a row in a
task of another key would be lost to the join. So keys are reported only if, for every fragment, the
zones cover all current rows and have a single value, or only nulls.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.format.clustering import Clustering
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import (
    numbers_with_default,
    plain_array,
    plain_numbers,
    plain_scalar,
)
from pyspark_lance.table.index.zone_map_file import ColumnZones, column_zones
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_splits, scan_tasks
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.snapshot import Snapshot

# Maximum keys; each needs at least one task.
_MAX_KEYS = 10_000
_KEY_TYPES = (
    pa.types.is_integer,
    pa.types.is_boolean,
    pa.types.is_string,
    pa.types.is_large_string,
    pa.types.is_date32,
    pa.types.is_decimal,
    pa.types.is_timestamp,
)


@dataclass(frozen=True, slots=True)
class KeyGroupedTasks:
    """Tasks of a scan that each read rows of one key."""

    columns: tuple[str, ...]  # The key columns.
    keys: tuple[pa.Array, ...]  # For each column, the value of each task.
    tasks: tuple[ScanTask, ...]

    def digest(self) -> str:
        """Return a digest that identifies these tasks within a version."""
        tasks = [
            [
                (part.fragment.id, part.start, part.end, part.offsets and len(part.offsets))
                for part in task.slices
            ]
            for task in self.tasks
        ]
        return hashlib.sha256(json.dumps([self.columns, tasks]).encode()).hexdigest()


def key_columns(config: Mapping[str, str], schema: LanceSchema) -> tuple[str, ...]:
    """Return the top-level clustering columns of the table configuration."""
    known = Clustering.of(config)
    fields = {field.id: field for field in schema.fields}
    found = () if known is None else known.field_ids
    return tuple(fields[one].name for one in found if one in fields and _may_be_key(fields[one]))


def split_columns(config: Mapping[str, str], schema: LanceSchema) -> tuple[str, ...]:
    """Return the columns whose values have separate files since the last clustering."""
    known = Clustering.of(config)
    fields = {field.id: field for field in schema.fields}
    split = () if known is None else known.field_ids[: known.num_split]
    is_known = all(one in fields and _may_be_key(fields[one]) for one in split)
    return tuple(fields[one].name for one in split) if is_known else ()


def plan_key_grouped(
    snapshot: Snapshot, request: ScanRequest, columns: Sequence[str]
) -> KeyGroupedTasks | None:
    """Plan tasks grouped by the columns that have a single value in each fragment.

    ``columns``: the top-level candidate columns. The result has all ``columns`` if no rows are
    left, and is None if no column qualifies or there are too many keys.
    """
    fields = {field.name: field for field in snapshot.schema.fields}
    columns = [name for name in columns if name in fields and _may_be_key(fields[name])]
    slices = plan_splits(snapshot, request)
    slices = slices.take(np.flatnonzero(slices.fragments.columns.num_rows > 0))
    if not len(slices):
        return KeyGroupedTasks(tuple(columns), (), ()) if columns else None
    values = {name: _single_values(snapshot, name, slices.fragments) for name in columns}
    known = {name: own for name, own in values.items() if own is not None}
    if not known:
        return None
    codes = np.stack([_codes(own) for own in known.values()])
    numbers = np.unique(codes, axis=1, return_inverse=True)[1].reshape(-1)
    if int(numbers.max()) >= _MAX_KEYS:
        return None
    order = np.argsort(numbers, kind="stable")
    slices = slices.take(order)
    tasks = scan_tasks(snapshot, request, slices, numbers[order])
    index = {int(number): at for at, number in enumerate(slices.fragments.ids.tolist())}
    first = order[[index[task.slices[0].fragment.id] for task in tasks]]
    return KeyGroupedTasks(
        tuple(known), tuple(own.take(plain_array(first)) for own in known.values()), tasks
    )


def _single_values(snapshot: Snapshot, name: str, fragments: Fragments) -> pa.Array | None:
    """Return the single value of a column in each fragment, or None if a fragment has several.

    A fragment of only nulls has a null. ``fragments``: distinct ones with rows.
    """
    zones = column_zones(snapshot, name, fragments)
    if zones is None:
        return None
    # ``reduceat`` of an empty group would use the next fragment's zones.
    nonempty = np.flatnonzero(zones.stops > zones.starts)
    minimum, maximum = (
        end.take(plain_array(nonempty)) for end in (zones.bounds.minimum, zones.bounds.maximum)
    )
    is_null = np.asarray(zones.bounds.all_null)[nonempty]
    is_one = numbers_with_default(False, pc.equal(minimum, maximum))
    if not (is_null | (is_one & (zones.num_nulls[nonempty] == 0))).all():
        return None
    ends = np.cumsum(fragments.columns.physical_rows)
    index = np.searchsorted(ends, zones.starts[nonempty], "right")
    found, first = np.unique(index, return_index=True)
    if len(found) < len(fragments) or not _cover_all_rows(
        snapshot, fragments, zones, index, nonempty
    ):
        return None
    values = pc.if_else(plain_array(is_null), plain_scalar(None, minimum.type), minimum)
    codes = _codes(values)
    if (np.minimum.reduceat(codes, first) != np.maximum.reduceat(codes, first)).any():
        return None
    return values.take(plain_array(first))


def _cover_all_rows(
    snapshot: Snapshot,
    fragments: Fragments,
    zones: ColumnZones,
    index: NDArray[np.int64],
    nonempty: NDArray[np.int64],
) -> bool:
    """Return whether zones cover all live rows of all fragments.

    ``index``: the fragment of each of the zones ``nonempty``, ascending; each fragment has some.
    """
    rows = fragments.columns.physical_rows
    starts, stops = zones.starts[nonempty], zones.stops[nonempty]
    num_covered = np.bincount(index, stops - starts, len(fragments)).astype(np.int64)
    begins = np.cumsum(rows) - rows
    for number in np.flatnonzero(num_covered < rows).tolist():
        # Rows that were deleted before the index was built may be in no zone.
        deleted = snapshot.deletion_vector(fragments[number])
        if deleted is None:
            return False
        is_left = deleted.keep_mask(0, int(rows[number]))
        for at in np.flatnonzero(index == number).tolist():
            is_left[starts[at] - begins[number] : stops[at] - begins[number]] = False
        if is_left.any():
            return False
    return True


def _may_be_key(field: Field) -> bool:
    """Return whether equal bounds imply equal values in Spark, unlike floats and "ns" times."""
    stored = field.to_arrow().type
    return getattr(stored, "unit", "") != "ns" and any(is_of(stored) for is_of in _KEY_TYPES)


def _codes(values: pa.Array) -> NDArray[np.int64]:
    """Return the dictionary code of each value, including nulls."""
    return plain_numbers(values.dictionary_encode("encode").indices).astype(np.int64)

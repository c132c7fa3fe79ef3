"""Prune rows of fragments with zone maps.

A zone map is an index with the bounds of each zone of rows. Uncovered rows are read: fragments that
are not in its bitmap, and rows outside of all zones. An unreadable zone map, or one of an unknown
version, prunes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import LanceError
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.predicate.conditions import Bounds, Predicate, parts_that_can_match
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.predicate.tree import column_paths_of
from pyspark_lance.table.index.indexed_fields import as_seen, field_at, is_of_type
from pyspark_lance.table.index.segments import title_of
from pyspark_lance.table.index.zone_map_file import ZoneMap, is_zone_map, read_zone_map
from pyspark_lance.table.rows.scan_split import Slices
from pyspark_lance.table.version.snapshot import Snapshot

logger = logging.getLogger(__name__)

_NO_PLACE = -1


def zone_slices(
    snapshot: Snapshot,
    predicate: Predicate,
    fragments: Fragments,
    lineage: Mapping[ColumnPath, Bounds],
) -> tuple[Slices, frozenset[str]]:
    """Return one split for each fragment with zones that may match ``predicate``.

    ``fragments``: the remaining ones, each with rows. The second result is the titles of zone maps
    that pruned rows.
    """
    rows = _Rows.of(fragments)
    columns = {
        path: column
        for path in sorted(column_paths_of(predicate))
        if (column := _zones_of(snapshot, path, rows)) is not None
    }
    if not columns:
        return Slices.whole(fragments), frozenset()
    cuts = [rows.starts, *(ends for column in columns.values() for ends in column.ends)]
    # Each part is sorted, which makes this sort fast; np.unique would hash each number.
    starts = np.sort(np.concatenate(cuts), kind="stable")
    is_last = np.append(starts[1:] != starts[:-1], True)
    starts = starts[is_last & (starts < rows.total)]
    place = np.searchsorted(rows.starts, starts, "right") - 1
    bounds = {path: known.take(place) for path, known in lineage.items()}
    bounds |= {path: column.at(starts) for path, column in columns.items()}
    keep = parts_that_can_match(predicate, bounds, len(starts))
    titles = frozenset().union(*(column.titles for column in columns.values()))
    return _slices(rows, starts, place, keep), frozenset() if keep.all() else titles


def zoned_columns(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the top-level columns that have a zone map."""
    indexed = {index.fields[0] for index in snapshot.indices if is_zone_map(index)}
    return tuple(field.name for field in snapshot.schema.fields if field.id in indexed)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The concatenated rows of fragments.

    ``starts``: the first row of each.
    """

    fragments: Fragments
    starts: NDArray[np.int64]
    total: int

    @classmethod
    def of(cls, fragments: Fragments) -> _Rows:
        ends = np.cumsum(fragments.columns.physical_rows)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]]) if len(ends) else ends
        return cls(fragments, starts, int(ends[-1]) if len(ends) else 0)

    def places_of(self, fragment_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the index of each fragment; negative for missing ones."""
        own = self.fragments.ids.astype(np.uint64)
        order = np.argsort(own)
        at = np.searchsorted(own, fragment_ids, sorter=order)
        places = order[np.minimum(at, len(own) - 1)]
        return np.where(own[places] == fragment_ids, places, _NO_PLACE)


@dataclass(frozen=True, slots=True)
class ColumnZones:
    """Zones of a column by rows of ``_Rows``, ascending and disjoint; shapes (num_zones,)."""

    starts: NDArray[np.int64]  # First row of each zone.
    stops: NDArray[np.int64]  # One past the last row of each zone.
    bounds: Bounds  # Bounds of each zone, in the type of predicates.
    num_nulls: NDArray[np.int64]  # Nulls when the index was built.
    # Lower bound of current non-null rows.
    least_values: NDArray[np.int64]
    titles: frozenset[str]  # Titles of the source zone maps.

    @property
    def ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the first rows, and one past the last rows, of zones."""
        return self.starts, self.stops

    def at(self, rows: NDArray[np.int64]) -> Bounds:
        """Return the bounds of the zones of ``rows``."""
        place = np.searchsorted(self.starts, rows, "right") - 1
        is_inside = (place >= 0) & (rows < self.stops[np.maximum(place, 0)])
        return self.bounds.take(np.where(is_inside, place, _NO_PLACE))


def column_zones(
    snapshot: Snapshot, name: str, fragments: Fragments | None = None
) -> ColumnZones | None:
    """Return the zones of a top-level column; None without any.

    ``fragments``: to number the rows of; None for all that have rows.
    """
    if fragments is None:
        fragments = snapshot.manifest.fragments
        fragments = fragments.take(np.flatnonzero(fragments.columns.num_rows))
    return _zones_of(snapshot, (name,), _Rows.of(fragments))


def _zones_of(snapshot: Snapshot, path: ColumnPath, rows: _Rows) -> ColumnZones | None:
    """Return the zones of a column in ``rows``; None without any."""
    field, is_inside_struct = field_at(snapshot.schema.fields, path)
    if field is None or not rows.total:
        return None
    parts: list[ColumnZones] = []
    answered = BitMap()
    for index in snapshot.indices:
        if not is_zone_map(index) or index.fields != (field.id,) or not index.fragment_bitmap:
            continue
        # The first of several indices on one column is used.
        covered = index.fragment_bitmap - answered
        bounded = _bounded_zones(snapshot, index, field)
        if bounded is None:
            continue
        answered |= covered
        zones, bounds = bounded
        if is_inside_struct:
            # Null structs may not be counted as nulls of the field.
            bounds = Bounds(bounds.minimum, bounds.maximum, True, bounds.all_null)
        part = _located(zones, bounds, rows, covered, title_of(index))
        if len(part.starts):
            parts.append(part)
    if not parts:
        return None
    starts, stops, num_nulls, least_values = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("starts", "stops", "num_nulls", "least_values")
    )
    order = np.argsort(starts)
    bounds = _joined([part.bounds for part in parts]).take(order)
    titles = frozenset().union(*(part.titles for part in parts))
    return ColumnZones(
        starts[order], stops[order], bounds, num_nulls[order], least_values[order], titles
    )


def _located(
    zones: ZoneMap, bounds: Bounds, rows: _Rows, covered: BitMap, title: str
) -> ColumnZones:
    """Return the zones of covered fragments in ``rows``."""
    places = rows.places_of(zones.fragment_id)
    ids = np.fromiter(covered, np.uint64, len(covered))
    chosen = np.flatnonzero((places >= 0) & np.isin(zones.fragment_id, ids))
    places = places[chosen]
    lengths = rows.fragments.columns.physical_rows[places]
    starts = np.minimum(zones.start[chosen].astype(np.int64), lengths)
    stops = np.minimum(zones.end[chosen].astype(np.int64), lengths)
    first = rows.starts[places]
    nulls = zones.null_count[chosen].astype(np.int64)
    # The zones of deleted rows are unknown: each may have lost all of them.
    lost = rows.fragments.columns.num_deleted_rows[places]
    values = stops - starts - nulls - zones.nan_count[chosen].astype(np.int64) - lost
    return ColumnZones(
        first + starts,
        first + stops,
        bounds.take(chosen),
        nulls,
        np.maximum(values, 0),
        frozenset([title]),
    )


def _joined(parts: Sequence[Bounds]) -> Bounds:
    if len(parts) == 1:
        return parts[0]
    return Bounds(
        pa.concat_arrays([part.minimum for part in parts]),
        pa.concat_arrays([part.maximum for part in parts]),
        np.concatenate([part.nullable for part in parts]),
        np.concatenate([part.all_null for part in parts]),
    )


def _slices(
    rows: _Rows, starts: NDArray[np.int64], place: NDArray[np.int64], keep: NDArray[np.bool_]
) -> Slices:
    """Return the kept parts as splits."""
    stops = np.append(starts[1:], rows.total)
    # Adjacent kept parts of one fragment are merged.
    joins = keep[1:] & keep[:-1] & (place[1:] == place[:-1])
    begins = keep & ~np.concatenate([[False], joins])
    ends = keep & ~np.concatenate([joins, [False]])
    numbers, first, count = np.unique(place[begins], return_index=True, return_counts=True)
    fragments, origins = rows.fragments.take(numbers), rows.starts[numbers]
    firsts, lasts = starts[begins], stops[ends]
    slices = Slices(fragments, firsts[first] - origins, lasts[first] - origins)
    offsets = {}
    for number in np.flatnonzero(count > 1).tolist():
        chosen = slice(first[number], first[number] + count[number])
        ranges = OffsetSet(BitMap())
        for low, high in zip(firsts[chosen].tolist(), lasts[chosen].tolist(), strict=True):
            ranges.bitmap.add_range(low - int(origins[number]), high - int(origins[number]))
        offsets[number] = ranges
        slices.starts[number], slices.ends[number] = 0, fragments.columns.physical_rows[number]
    return Slices(fragments, slices.starts, slices.ends, offsets)


def _bounded_zones(
    snapshot: Snapshot, index: IndexMetadata, field: Field
) -> tuple[ZoneMap, Bounds] | None:
    """Return the zones and bounds of an index in the type of predicates; None if unusable."""
    key: tuple[str, UUID, int] = ("zones", index.uuid, field.id)
    if key not in snapshot.memo:
        snapshot.memo[key] = _read(snapshot, index, field)
    return snapshot.memo[key]  # type: ignore[return-value]


def _read(snapshot: Snapshot, index: IndexMetadata, field: Field) -> tuple[ZoneMap, Bounds] | None:
    try:
        zones = read_zone_map(snapshot.files, index)
        if not is_of_type(zones.minimum.type, field):
            return None
        minimum, maximum = (as_seen(end, field) for end in zones.trusted_bounds())
    except (LanceError, FileNotFoundError) as error:
        logger.warning(
            "the index %r of %s cannot be read and is not used: %s", index.name, snapshot.uri, error
        )
        return None
    return zones, Bounds(minimum, maximum, zones.null_count > 0, zones.all_null)

"""ZoneMap: bounds of a column in zones of rows, their file format, and pruning by them.

One row of the file is one zone: consecutive rows of a fragment. Bounds and counts describe the rows
that were live when the index was built. Uncovered rows may have any value and are read: those of
fragments that are not in the bitmap of the index, and those outside of all zones. An unreadable
zone map, or one of an unknown version, prunes nothing.

Source: docs/format/table-format.md, section 10.8.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.deletion_vector import OffsetSet
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import pack_tree_map, parse_tree_map
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import plain_array, plain_dtype, plain_numbers
from pyspark_lance.predicate.conditions import Bounds, Predicate, parts_that_can_match
from pyspark_lance.predicate.prune import ColumnPath
from pyspark_lance.predicate.tree import column_paths_of
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.segments import field_at, is_of_type, title_of, to_predicate_type
from pyspark_lance.table.rows.scan_split import Slices
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

ZONE_MAP_DETAILS: Final = "/lance.table.ZoneMapIndexDetails"
ZONE_MAP_FILE: Final = "zonemap.lance"
ZONE_MAP_VERSION: Final = 0
Nulls: TypeAlias = dict[int, BitMap]
"""Fragment -> offsets of the nulls of a column; without fragments that have none."""
_NULL_BITMAP: Final = "null_bitmap"
_ROWS_PER_ZONE: Final = "rows_per_zone"
# The oldest file version with null structs, supported by every release with such indices.
_FILE_VERSION: Final = "2.1"
_COUNTS: Final = {
    "null_count": pa.uint32(),
    "nan_count": pa.uint32(),
    "fragment_id": pa.uint64(),
    "zone_start": pa.uint64(),
    "zone_length": pa.uint64(),
}


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """Zones of one column; arrays of shape (num_zones,), ordered by fragment and first row."""

    # Lower bound by Arrow's total order; null if unknown or all values are null.
    minimum: pa.Array
    maximum: pa.Array  # Upper bound; NaN if there is one.
    null_count: NDArray[np.uint32]  # Nulls.
    nan_count: NDArray[np.uint32]  # NaN; 0 for all types but floats.
    fragment_id: NDArray[np.uint64]
    start: NDArray[np.uint64]  # First row, as physical offset.
    length: NDArray[np.uint64]  # Rows from the first to the last, including deleted ones.

    @classmethod
    def from_batch(cls, batch: pa.RecordBatch, where: str = "") -> ZoneMap:
        """Parse the rows of an index file; drop fragments with overlapping zones."""
        columns = {name: batch.schema.field(name).type for name in batch.schema.names}
        if set(columns) != {"min", "max", *_COUNTS} or any(
            columns[name] != kind for name, kind in _COUNTS.items()
        ):
            raise UnsupportedFeatureError(
                f"zone maps with the columns {columns} are not supported", where=where
            )
        if columns["min"] != columns["max"]:
            raise CorruptFileError(
                f"the minima of the zone map are {columns['min']}, its maxima {columns['max']}",
                where=where,
            )
        if any(batch.column(name).null_count for name in _COUNTS):
            raise CorruptFileError(
                "a zone of the zone map has no position or no count", where=where
            )
        numbers = [plain_numbers(batch.column(name)) for name in _COUNTS]
        order = np.lexsort((numbers[3], numbers[2]))
        zones = cls(
            batch.column("min").take(plain_array(order)),
            batch.column("max").take(plain_array(order)),
            *(values[order] for values in numbers),
        )
        if len(order) and int(zones.start.max()) + int(zones.length.max()) >= 1 << 33:
            raise CorruptFileError("a zone reaches beyond any fragment", where=where)
        # Lance keeps old zones when it indexes a fragment again.
        is_next = zones.fragment_id[1:] == zones.fragment_id[:-1]
        overlap = is_next & (zones.start[1:] < zones.end[:-1])
        unknown_outcome = zones.fragment_id[1:][overlap]
        return zones._where(~np.isin(zones.fragment_id, unknown_outcome))

    def to_batch(self) -> pa.RecordBatch:
        """Return the rows of an index file."""
        numbers = (self.null_count, self.nan_count, self.fragment_id, self.start, self.length)
        schema = pa.schema(
            [
                pa.field("min", self.minimum.type),
                pa.field("max", self.maximum.type),
                *(pa.field(name, kind, nullable=False) for name, kind in _COUNTS.items()),
            ]
        )
        return pa.RecordBatch.from_arrays(
            [self.minimum, self.maximum, *(plain_array(one) for one in numbers)], schema=schema
        )

    @classmethod
    def empty(cls, data_type: pa.DataType) -> ZoneMap:
        """Return a zone map without zones."""
        none = pa.nulls(0, data_type)
        numbers = (np.empty(0, plain_dtype(kind)) for kind in _COUNTS.values())
        return cls(none, none, *numbers)

    @classmethod
    def concat(cls, parts: Sequence[ZoneMap], data_type: pa.DataType) -> ZoneMap:
        """Concatenate zone maps of one type."""
        batches = [part.to_batch() for part in (cls.empty(data_type), *parts)]
        (batch,) = pa.Table.from_batches(batches).combine_chunks().to_batches() or batches[:1]
        return cls.from_batch(batch)

    def of_fragments(self, fragment_ids: NDArray[np.uint64]) -> ZoneMap:
        """Return the zones of some fragments."""
        return self._where(np.isin(self.fragment_id, fragment_ids))

    def _where(self, mask: NDArray[np.bool_]) -> ZoneMap:
        if mask.all():
            return self
        indices = plain_array(np.flatnonzero(mask))
        return ZoneMap(
            self.minimum.take(indices),
            self.maximum.take(indices),
            self.null_count[mask],
            self.nan_count[mask],
            self.fragment_id[mask],
            self.start[mask],
            self.length[mask],
        )

    @property
    def end(self) -> NDArray[np.uint64]:
        """One past the last row of each zone."""
        return self.start + self.length

    @property
    def all_null(self) -> NDArray[np.bool_]:
        """Whether a zone has only nulls; may be false if it has deleted rows."""
        return np.asarray(self.null_count >= self.length)

    def trusted_bounds(self) -> tuple[pa.Array, pa.Array]:
        """Return bounds by Spark's order, in which NaN is the greatest."""
        minimum, maximum = self.minimum, self.maximum
        if not pa.types.is_floating(minimum.type):
            return minimum, maximum
        # A negative NaN is the least by the total order, and hides the minimum.
        unknown = pc.fill_null(pc.is_nan(minimum), False)
        minimum = pc.if_else(unknown, pa.scalar(None, minimum.type), minimum)
        has_nan = plain_array(self.nan_count > 0)
        maximum = pc.if_else(has_nan, pa.scalar(float("nan"), maximum.type), maximum)
        return minimum, maximum


def is_zone_map(index: IndexMetadata) -> bool:
    """Return whether an index entry is a supported zone map of one column."""
    return (
        index.details_type == ZONE_MAP_DETAILS
        and index.index_version == ZONE_MAP_VERSION
        and len(index.fields) == 1
    )


def read_zone_map(files: TableFiles, index: IndexMetadata) -> ZoneMap:
    """Read the zones of one index entry."""
    return _zones_of(*_open(files, index))


def read_zones_and_nulls(files: TableFiles, index: IndexMetadata) -> tuple[ZoneMap, Nulls | None]:
    """Read the zones of one index entry, and the positions of nulls, if stored."""
    reader, where = _open(files, index)
    number = reader.schema.metadata.get(_NULL_BITMAP)
    if number is None:
        return _zones_of(reader, where), None
    return _zones_of(reader, where), _parse_nulls(bytes(reader.global_buffer(int(number))), where)


def write_zone_map(
    store: ObjectStore, path: str, zones: ZoneMap, rows_per_zone: int, nulls: Nulls | None
) -> int:
    """Write the file of an index.

    ``rows_per_zone``: live rows of a zone, except for the last of each fragment. ``nulls``:
    positions of all nulls; None if unknown. Return the length of the file in bytes.
    """
    batch = zones.to_batch()
    metadata = {_ROWS_PER_ZONE: str(rows_per_zone).encode()}
    if nulls is not None:
        metadata[_NULL_BITMAP] = b"1"
    schema = replace(LanceSchema.from_arrow(batch.schema), metadata=metadata)
    from pyspark_lance.datafile.writer import DataFileWriter  # scans only read these files

    writer = DataFileWriter(store, path, schema, version=_FILE_VERSION)
    try:
        if nulls is not None:
            writer.write_global_buffer(pack_tree_map(nulls))
        writer.write(batch)
        return writer.finish().size_bytes
    except BaseException:
        writer.abort()
        raise


def _open(files: TableFiles, index: IndexMetadata) -> tuple[DataFileReader, str]:
    store, path = files.locate_index(index.base_id, index_path(index.uuid, ZONE_MAP_FILE))
    return DataFileReader.open(store, path), f"{store.uri}/{path}"


def _zones_of(reader: DataFileReader, where: str) -> ZoneMap:
    batch = reader.read(reader.schema.fields, reader.embedded_columns(), 0, reader.num_rows)
    return ZoneMap.from_batch(batch, where)


def _parse_nulls(data: bytes, where: str) -> Nulls | None:
    rows = parse_tree_map(data, where)
    nulls = {fragment_id: bitmap for fragment_id, bitmap in rows.items() if bitmap is not None}
    return nulls if len(nulls) == len(rows) else None  # A full bitmap has no offsets.


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
        if (column := _zones_of_fragment(snapshot, path, rows)) is not None
    }
    if not columns:
        return Slices.whole(fragments), frozenset()
    cuts = [rows.starts, *(ends for column in columns.values() for ends in column.ends)]
    # Each part is sorted, which makes this sort fast; np.unique would hash each number.
    starts = np.sort(np.concatenate(cuts), kind="stable")
    is_last = np.append(starts[1:] != starts[:-1], True)
    starts = starts[is_last & (starts < rows.total)]
    index = np.searchsorted(rows.starts, starts, "right") - 1
    bounds = {path: known.take(index) for path, known in lineage.items()}
    bounds |= {path: column.at(starts) for path, column in columns.items()}
    keep = parts_that_can_match(predicate, bounds, len(starts))
    titles = frozenset().union(*(column.titles for column in columns.values()))
    return _slices(rows, starts, index, keep), frozenset() if keep.all() else titles


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

    def indices_of(self, fragment_ids: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the index of each fragment; negative for missing ones."""
        own = self.fragments.ids.astype(np.uint64)
        order = np.argsort(own)
        at = np.searchsorted(own, fragment_ids, sorter=order)
        indices = order[np.minimum(at, len(own) - 1)]
        return np.where(own[indices] == fragment_ids, indices, _NO_PLACE)


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
        index = np.searchsorted(self.starts, rows, "right") - 1
        is_inside = (index >= 0) & (rows < self.stops[np.maximum(index, 0)])
        return self.bounds.take(np.where(is_inside, index, _NO_PLACE))


def column_zones(
    snapshot: Snapshot, name: str, fragments: Fragments | None = None
) -> ColumnZones | None:
    """Return the zones of a top-level column; None without any.

    ``fragments``: to number the rows of; None for all that have rows.
    """
    if fragments is None:
        fragments = snapshot.manifest.fragments
        fragments = fragments.take(np.flatnonzero(fragments.columns.num_rows))
    return _zones_of_fragment(snapshot, (name,), _Rows.of(fragments))


def _zones_of_fragment(snapshot: Snapshot, path: ColumnPath, rows: _Rows) -> ColumnZones | None:
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
        part = _locate_zones(zones, bounds, rows, covered, title_of(index))
        if len(part.starts):
            parts.append(part)
    if not parts:
        return None
    starts, stops, num_nulls, least_values = (
        np.concatenate([getattr(part, name) for part in parts])
        for name in ("starts", "stops", "num_nulls", "least_values")
    )
    order = np.argsort(starts)
    bounds = _join_bounds([part.bounds for part in parts]).take(order)
    titles = frozenset().union(*(part.titles for part in parts))
    return ColumnZones(
        starts[order], stops[order], bounds, num_nulls[order], least_values[order], titles
    )


def _locate_zones(
    zones: ZoneMap, bounds: Bounds, rows: _Rows, covered: BitMap, title: str
) -> ColumnZones:
    """Return the zones of covered fragments in ``rows``."""
    indices = rows.indices_of(zones.fragment_id)
    ids = np.fromiter(covered, np.uint64, len(covered))
    chosen = np.flatnonzero((indices >= 0) & np.isin(zones.fragment_id, ids))
    indices = indices[chosen]
    lengths = rows.fragments.columns.physical_rows[indices]
    starts = np.minimum(zones.start[chosen].astype(np.int64), lengths)
    stops = np.minimum(zones.end[chosen].astype(np.int64), lengths)
    first = rows.starts[indices]
    nulls = zones.null_count[chosen].astype(np.int64)
    # The zones of deleted rows are unknown: each may have lost all of them.
    lost = rows.fragments.columns.num_deleted_rows[indices]
    values = stops - starts - nulls - zones.nan_count[chosen].astype(np.int64) - lost
    return ColumnZones(
        first + starts,
        first + stops,
        bounds.take(chosen),
        nulls,
        np.maximum(values, 0),
        frozenset([title]),
    )


def _join_bounds(parts: Sequence[Bounds]) -> Bounds:
    if len(parts) == 1:
        return parts[0]
    return Bounds(
        pa.concat_arrays([part.minimum for part in parts]),
        pa.concat_arrays([part.maximum for part in parts]),
        np.concatenate([part.nullable for part in parts]),
        np.concatenate([part.all_null for part in parts]),
    )


def _slices(
    rows: _Rows, starts: NDArray[np.int64], index: NDArray[np.int64], keep: NDArray[np.bool_]
) -> Slices:
    """Return the kept parts as splits."""
    stops = np.append(starts[1:], rows.total)
    # Adjacent kept parts of one fragment are merged.
    joins = keep[1:] & keep[:-1] & (index[1:] == index[:-1])
    begins = keep & ~np.concatenate([[False], joins])
    ends = keep & ~np.concatenate([joins, [False]])
    numbers, first, count = np.unique(index[begins], return_index=True, return_counts=True)
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
        minimum, maximum = (to_predicate_type(end, field) for end in zones.trusted_bounds())
    except (LanceError, FileNotFoundError) as error:
        logger.warning(
            "the index %r of %s cannot be read and is not used: %s", index.name, snapshot.uri, error
        )
        return None
    return zones, Bounds(minimum, maximum, zones.null_count > 0, zones.all_null)

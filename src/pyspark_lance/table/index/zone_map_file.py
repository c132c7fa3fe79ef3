"""ZoneMap: bounds of a column in zones of rows, and the index file format.

One row of the file is one zone: consecutive rows of a fragment. Bounds and counts describe the rows
that were live when the index was built; rows outside of all zones may have any value.

Source: docs/format/table-format.md, section 10.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import pack_tree_map, parse_tree_map
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import plain_array, plain_dtype, plain_numbers
from pyspark_lance.store.object_store import ObjectStore
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
    def joined(cls, parts: Sequence[ZoneMap], data_type: pa.DataType) -> ZoneMap:
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
        places = plain_array(np.flatnonzero(mask))
        return ZoneMap(
            self.minimum.take(places),
            self.maximum.take(places),
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
    return _zones_of(reader, where), _parsed_nulls(bytes(reader.global_buffer(int(number))), where)


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


def _parsed_nulls(data: bytes, where: str) -> Nulls | None:
    rows = parse_tree_map(data, where)
    nulls = {fragment_id: bitmap for fragment_id, bitmap in rows.items() if bitmap is not None}
    return nulls if len(nulls) == len(rows) else None  # A full bitmap has no offsets.

"""Builder of the zones of a bloom filter index from the rows of a scan, and writer of its file.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.codec.value_hashes import BLOCK_BYTES, bits_of, hashes_of
from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.format.row_address import OFFSET_BITS, pack_tree_map
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.bloom import BLOOM_FILE, BLOOM_FILTER, ZONE_PLACES
from pyspark_lance.table.index_build.segment_files import SegmentOutput, schema_of
from pyspark_lance.table.index_build.zone_maps import ZoneSplitter, note_nulls

FALSE_POSITIVES: Final = 0.00057
"""The share of zones without a value that are read for it, as Lance has it."""
_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)
_ZONES_AT_ONCE: Final = 64
# Filters of a power of two of blocks have at the most so many.
_MAX_BLOCKS: Final = 1 << 22


def can_have_bloom_filter(data_type: pa.DataType) -> bool:
    """Return whether Lance has bloom filters of a type."""
    types = pa.types
    return bool(
        types.is_integer(data_type)
        or types.is_float32(data_type)
        or types.is_float64(data_type)
        or types.is_date(data_type)
        or types.is_time(data_type)
        or types.is_timestamp(data_type)
        or is_variable_width(data_type)
    )


def write_bloom_filters(
    store: ObjectStore,
    uuid: UUID,
    rows: Iterable[tuple[pa.Array, NDArray[np.uint64]]],
    rows_per_zone: int,
) -> dict[str, int]:
    """Write the file of a segment.

    ``uuid``: Names the segment. ``rows``: Values with their addresses, in the order of these.
    ``rows_per_zone``: Live rows of a zone. Returns the length of the file in bytes, by its name.
    """
    schema = schema_of(
        [
            *((name, pa.uint64(), False) for name in ZONE_PLACES[:3]),
            (ZONE_PLACES[3], pa.bool_(), False),
            (BLOOM_FILTER, pa.binary(), False),
        ]
    )
    metadata = {
        "bloomfilter_item": str(rows_per_zone).encode(),
        "bloomfilter_probability": str(FALSE_POSITIVES).encode(),
        "null_bitmap": b"1",
    }
    zones = _Zones(rows_per_zone)
    with SegmentOutput(store, uuid, BLOOM_FILE, schema, metadata) as output:
        for batch in zones.batches(rows, schema):
            output.write(batch)
        output.writer.write_global_buffer(pack_tree_map(zones.nulls))
    return {BLOOM_FILE: output.size_bytes}


def num_blocks(num_values: int, false_positives: float = FALSE_POSITIVES) -> int:
    """The least power of two of blocks with so few false positives among ``num_values``."""
    blocks = 1
    while blocks < _MAX_BLOCKS and _false_positives(num_values / blocks) > false_positives:
        blocks *= 2
    return blocks


def _false_positives(mean: float) -> float:
    """Compute the false positive rate of a filter with ``mean`` values in a block on average."""
    counts = np.arange(int(mean + 20 * math.sqrt(mean) + 40))
    factorials = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    shares = np.exp(counts * math.log(mean) - mean - factorials)
    return float(np.sum(shares * (1 - (31 / 32) ** counts) ** 8))


class _Zones:
    """The zones of a segment; keeps the filter of the one that is under way."""

    def __init__(self, rows_per_zone: int) -> None:
        self.nulls: dict[int, BitMap] = {}
        self._cutter = ZoneSplitter(rows_per_zone)
        self._blocks = num_blocks(rows_per_zone)
        self._zone = 0
        self._first = self._last = 0
        self._has_null = False
        # One byte for each bit of the filter.
        self._bits = np.zeros(self._blocks * BLOCK_BYTES * 8, np.bool_)
        self._done: list[tuple[int, int, int, bool, bytes]] = []

    def batches(
        self, rows: Iterable[tuple[pa.Array, NDArray[np.uint64]]], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        for values, addresses in rows:
            if len(addresses):
                self._add(values, addresses)
            if len(self._done) >= _ZONES_AT_ONCE:
                yield self._flushed(schema)
        self._finish_zone()
        if self._done:
            yield self._flushed(schema)

    def _add(self, values: pa.Array, addresses: NDArray[np.uint64]) -> None:
        cuts, zones = self._cutter.cut(addresses)
        is_null = plain_numbers(values.is_null())
        note_nulls(self.nulls, addresses[is_null])
        places = np.cumsum(~is_null)
        bits = bits_of(hashes_of(values.drop_null()), self._blocks)
        stops = np.append(cuts[1:], len(addresses)).tolist()
        for start, stop, zone in zip(cuts.tolist(), stops, zones.tolist(), strict=True):
            if zone != self._zone:
                self._finish_zone()
                self._zone, self._first = zone, int(addresses[start])
            self._last = int(addresses[stop - 1])
            self._has_null |= bool(is_null[start:stop].any())
            first = int(places[start - 1]) if start else 0
            self._bits[bits[first : int(places[stop - 1])]] = True

    def _finish_zone(self) -> None:
        if not self._zone:
            return
        packed = np.packbits(self._bits, bitorder="little").tobytes()
        fragment, start = self._first >> OFFSET_BITS, self._first & int(_OFFSETS)
        length = self._last - self._first + 1
        self._done.append((fragment, start, length, self._has_null, packed))
        self._bits[:] = False
        self._has_null, self._zone = False, 0

    def _flushed(self, schema: pa.Schema) -> pa.RecordBatch:
        columns = zip(*self._done, strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        self._done = []
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

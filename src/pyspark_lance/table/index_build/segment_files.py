"""Writers of index segments from sorted rows: B-trees, bitmaps, bloom filters.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final
from uuid import UUID

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.codec.value_hashes import BLOCK_BYTES, bits_of, hashes_of
from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.format.row_address import OFFSET_BITS, pack_tree_map, union_of
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.bitmap import BITMAP_FILE, LABEL_NULLS_KEY
from pyspark_lance.table.index.bloom import BLOOM_FILE, BLOOM_FILTER, ZONE_PLACES
from pyspark_lance.table.index.btree import DATA_FILE, LOOKUP_FILE, PAGE_ROWS_KEY, begins_run
from pyspark_lance.table.index_build.merged_segments import IDS, VALUES
from pyspark_lance.table.index_build.zone_maps import ZoneSplitter, note_nulls

PAGE_ROWS: Final = 4096
"""Rows of a page of a B-tree, as Lance has them."""
# As for zone maps: the oldest that every release can read that knows such indices.
_FILE_VERSION: Final = "2.1"
_PAGES_AT_ONCE: Final = 16
_SETS_BYTES: Final = 4 << 20
_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)


def write_btree(
    store: ObjectStore, uuid: UUID, data_type: pa.DataType, rows: Iterable[pa.RecordBatch]
) -> dict[str, int]:
    """Write the files of a segment of a B-tree.

    ``rows``: all rows: ``values`` and ``ids``, sorted. Returns the lengths of the files in bytes,
    by name.
    """
    schema = schema_of([(VALUES, data_type, True), (IDS, pa.uint64(), False)])
    pages = []
    first_page = 0
    with SegmentOutput(store, uuid, DATA_FILE, schema) as data:
        for batch in _whole_pages(rows):
            data.write(batch.cast(schema) if batch.schema != schema else batch)
            pages.append(_pages_of(batch, first_page))
            first_page += pages[-1].num_rows
    lookup_schema = schema_of(
        [
            ("min", data_type, True),
            ("max", data_type, True),
            ("null_count", pa.uint32(), False),
            ("page_idx", pa.uint32(), False),
        ]
    )
    metadata = {PAGE_ROWS_KEY: str(PAGE_ROWS).encode(), "range_partitioned": b"false"}
    with SegmentOutput(store, uuid, LOOKUP_FILE, lookup_schema, metadata) as lookup:
        for page in pages:
            lookup.write(page)
    return {DATA_FILE: data.size_bytes, LOOKUP_FILE: lookup.size_bytes}


def write_sets(
    store: ObjectStore,
    uuid: UUID,
    data_type: pa.DataType,
    rows: Iterable[pa.RecordBatch],
    null_lists: Mapping[int, BitMap] | None = None,
) -> dict[str, int]:
    """Write the file of a segment that has the set of rows of each value.

    ``rows``: all ``values`` with ``ids`` of their rows, sorted; a pair may come twice.
    ``null_lists``: of an index of labels: the rows whose list is null. Returns the lengths of the
    files in bytes, by name.
    """
    schema = schema_of([("keys", data_type, True), ("bitmaps", pa.binary(), True)])
    metadata = {} if null_lists is None else {LABEL_NULLS_KEY: b"1"}
    with SegmentOutput(store, uuid, BITMAP_FILE, schema, metadata) as output:
        if null_lists is not None:
            output.writer.write_global_buffer(pack_tree_map(null_lists))
        keys: list[pa.Array] = []
        packed: list[bytes] = []
        for values, sets in _sets_of(rows):
            keys.append(values)
            packed += [pack_tree_map(rows_of_value) for rows_of_value in sets]
            if sum(map(len, packed)) > _SETS_BYTES:
                output.write(_as_rows(schema, keys, packed))
                keys, packed = [], []
        if keys:
            output.write(_as_rows(schema, keys, packed))
    return {BITMAP_FILE: output.size_bytes}


def tree_map_of(ids: NDArray[np.uint64]) -> dict[int, BitMap]:
    """Rows as a set, by the high half of their names."""
    highs = ids >> np.uint64(OFFSET_BITS)
    return {
        high: BitMap((ids[highs == high] & _OFFSETS).astype(np.uint32))
        for high in np.unique(highs).tolist()
    }


class SegmentOutput:
    """A file of a segment, removed where something fails."""

    def __init__(
        self,
        store: ObjectStore,
        uuid: UUID,
        name: str,
        schema: pa.Schema,
        metadata: Mapping[str, bytes] | None = None,
    ) -> None:
        numbered = LanceSchema.from_arrow(
            pa.schema([field.with_name(str(n)) for n, field in enumerate(schema)])
        )
        # Tables may not have columns of all these names.
        named = zip(numbered.fields, schema.names, strict=True)
        fields = tuple(replace(field, name=name) for field, name in named)
        own = LanceSchema(fields, dict(metadata or {}))
        self.writer = DataFileWriter(store, index_path(uuid, name), own, version=_FILE_VERSION)
        self.size_bytes = 0

    def __enter__(self) -> SegmentOutput:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self.writer.abort()
            return
        try:
            self.size_bytes = self.writer.finish().size_bytes
        except BaseException:
            self.writer.abort()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        """Append rows."""
        self.writer.write(batch)


def schema_of(columns: list[tuple[str, pa.DataType, bool]]) -> pa.Schema:
    """The columns of a file: name, type, and whether there may be nulls."""
    return pa.schema([pa.field(name, kind, nullable=null) for name, kind, null in columns])


def _whole_pages(rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows in batches that end with a page, but for the last."""
    held: list[pa.RecordBatch] = []
    num_held = 0
    for batch in rows:
        held.append(batch)
        num_held += batch.num_rows
        if num_held < PAGE_ROWS * _PAGES_AT_ONCE:
            continue
        joined = _join_batches(held)
        whole = num_held - num_held % PAGE_ROWS
        yield joined.slice(0, whole)
        held, num_held = [joined.slice(whole)], num_held - whole
    if num_held:
        yield _join_batches(held)


def _join_batches(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


def _pages_of(batch: pa.RecordBatch, first_page: int) -> pa.RecordBatch:
    values = batch.column(VALUES)
    starts = np.arange(0, len(values), PAGE_ROWS)
    ends = np.minimum(starts + PAGE_ROWS, len(values))
    nulls = np.clip(values.null_count - starts, 0, ends - starts)
    return pa.RecordBatch.from_arrays(
        [
            values.take(plain_array(starts)),
            values.take(plain_array(ends - 1)),
            plain_array(nulls.astype(np.uint32)),
            plain_array(np.arange(first_page, first_page + len(starts), dtype=np.uint32)),
        ],
        names=["min", "max", "null_count", "page_idx"],
    )


_Set = dict[int, BitMap]


def _sets_of(rows: Iterable[pa.RecordBatch]) -> Iterator[tuple[pa.Array, list[_Set]]]:
    """Values, none twice, and the rows of each."""
    last: pa.Array | None = None
    rows_of_last: _Set = {}
    for batch in rows:
        if not batch.num_rows:
            continue
        values = batch.column(VALUES)
        if last is not None:
            values = pa.concat_arrays([last, values])
        begins = begins_run(values)[0 if last is None else 1 :]
        sets = _sets_in(np.asarray(batch.column(IDS)), begins)
        if last is not None and not begins[0]:
            rows_of_last = union_of([rows_of_last, sets[0]])
            sets = sets[1:]
        starts = np.flatnonzero(begins)
        if len(starts):
            own = batch.column(VALUES).take(plain_array(starts))
            known = own if last is None else pa.concat_arrays([last, own])
            sets = sets if last is None else [rows_of_last, *sets]
            yield known[:-1], sets[:-1]
            last, rows_of_last = known[-1:], sets[-1]
    if last is not None:
        yield last, [rows_of_last]


def _sets_in(ids: NDArray[np.uint64], begins: NDArray[np.bool_]) -> list[_Set]:
    """The rows of each value; those that come before the first beginning are of one, too."""
    value_of = np.cumsum(begins) - int(begins[0])
    order = np.lexsort((ids, value_of))
    ids, value_of = ids[order], value_of[order]
    highs = ids >> np.uint64(OFFSET_BITS)
    lows = (ids & _OFFSETS).astype(np.uint32)
    is_cut = np.append(True, (highs[1:] != highs[:-1]) | (value_of[1:] != value_of[:-1]))
    starts = np.flatnonzero(is_cut)
    stops = np.append(starts[1:], len(ids)).tolist()
    sets: list[_Set] = [{} for _ in range(int(value_of[-1]) + 1)]
    pieces = zip(
        starts.tolist(), stops, value_of[starts].tolist(), highs[starts].tolist(), strict=True
    )
    for start, stop, value, high in pieces:
        sets[value][high] = BitMap(lows[start:stop])
    return sets


def _as_rows(schema: pa.Schema, keys: list[pa.Array], packed: list[bytes]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.concat_arrays(keys), pa.array(packed, pa.binary())], schema=schema
    )


FALSE_POSITIVES: Final = 0.00057
"""The share of zones without a value that are read for it, as Lance has it."""
_ZONE_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)
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
                yield self._flush_batch(schema)
        self._finish_zone()
        if self._done:
            yield self._flush_batch(schema)

    def _add(self, values: pa.Array, addresses: NDArray[np.uint64]) -> None:
        cuts, zones = self._cutter.cut(addresses)
        is_null = plain_numbers(values.is_null())
        note_nulls(self.nulls, addresses[is_null])
        indices = np.cumsum(~is_null)
        bits = bits_of(hashes_of(values.drop_null()), self._blocks)
        stops = np.append(cuts[1:], len(addresses)).tolist()
        for start, stop, zone in zip(cuts.tolist(), stops, zones.tolist(), strict=True):
            if zone != self._zone:
                self._finish_zone()
                self._zone, self._first = zone, int(addresses[start])
            self._last = int(addresses[stop - 1])
            self._has_null |= bool(is_null[start:stop].any())
            first = int(indices[start - 1]) if start else 0
            self._bits[bits[first : int(indices[stop - 1])]] = True

    def _finish_zone(self) -> None:
        if not self._zone:
            return
        packed = np.packbits(self._bits, bitorder="little").tobytes()
        fragment, start = self._first >> OFFSET_BITS, self._first & int(_ZONE_OFFSETS)
        length = self._last - self._first + 1
        self._done.append((fragment, start, length, self._has_null, packed))
        self._bits[:] = False
        self._has_null, self._zone = False, 0

    def _flush_batch(self, schema: pa.Schema) -> pa.RecordBatch:
        columns = zip(*self._done, strict=True)
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)
        ]
        self._done = []
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

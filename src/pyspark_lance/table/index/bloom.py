"""BloomIndex: a segment of a bloom filter index, which prunes zones without a value.

Each zone of rows of a fragment has a split block filter, as in Parquet, over the bytes of its
values. Filters may have false positives.

Source: docs/format/table-format.md, sections 10.6 and 10.8.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.value_hashes import BLOCK_BYTES, are_in, bits_in_words, blocks_of, xxh64
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.field import Field
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.plain_values import plain_dtype, plain_numbers
from pyspark_lance.predicate.single_column import is_true_for_null, matches_only_null, only_values
from pyspark_lance.table.index.index_file import ColumnQuery, IndexFile, Limits
from pyspark_lance.table.version.table_files import TableFiles

BLOOM_FILE: Final = "bloomfilter.lance"
BLOOM_FILTER: Final = "bloom_filter_data"
ZONE_PLACES: Final = ("fragment_id", "zone_start", "zone_length", "has_null")
# Maximum values: more of them match too many filters.
_MAX_VALUES: Final = 256
# Filters take 4 bytes per row, as much as a narrow column.
_MAX_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class BloomIndex:
    """The zones of a segment; arrays of shape (num_zones,)."""

    file: IndexFile  # With the filters.
    field: Field  # The indexed field.
    fragment_id: NDArray[np.uint64]  # The fragment of each zone.
    start: NDArray[np.uint64]  # Its first row, as physical offset.
    length: NDArray[np.uint64]  # Rows from the first to the last.
    has_null: NDArray[np.bool_]  # Whether there are nulls.

    @classmethod
    def open(cls, files: TableFiles, entry: IndexMetadata, field: Field) -> BloomIndex:
        """Read the zones of the segment."""
        file = IndexFile.open(files, entry, BLOOM_FILE)
        kinds = (pa.uint64(), pa.uint64(), pa.uint64(), pa.bool_(), pa.binary())
        file.expect_columns(list(zip((*ZONE_PLACES, BLOOM_FILTER), kinds, strict=True)))
        zones = file.read_all(*ZONE_PLACES)
        if any(column.null_count for column in zones.columns):
            raise CorruptFileError("a zone of the bloom filter index has no position", file.where)
        numbers = [plain_numbers(column) for column in zones.columns]
        if any(len(part) and int(part.max()) >= 1 << OFFSET_BITS for part in numbers[:3]):
            raise CorruptFileError("a zone reaches beyond any fragment", file.where)
        return cls(file, field, *numbers)

    @property
    def num_rows(self) -> int:
        """Rows of all zones, including rows deleted before the build."""
        return int(self.length.sum())

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(3 * self.start.nbytes + self.has_null.nbytes) + 4096

    def complete(self, fragments: BitMap, lengths: Mapping[int, int]) -> BitMap:
        """Return the fragments whose rows are all in zones.

        Rows that were deleted before the build are in no zone and may be restored; such fragments
        are rare and scanned without the index.
        """
        order = np.lexsort((self.start, self.fragment_id))
        ids, starts = (part[order].astype(np.int64) for part in (self.fragment_id, self.start))
        if not len(ids):
            return BitMap()
        ends = starts + self.length[order].astype(np.int64)
        is_first = np.append(True, ids[1:] != ids[:-1])
        before = np.where(is_first, 0, np.append(0, ends[:-1]))
        broken = BitMap(np.unique(ids[starts != before]).tolist())
        is_last = np.append(is_first[1:], True)
        last = zip(ids[is_last].tolist(), ends[is_last].tolist(), strict=True)
        whole = BitMap([number for number, end in last if lengths.get(number) == end])
        return (whole - broken) & fragments

    def rows_of(self, query: ColumnQuery, limits: Limits) -> NDArray[np.uint64] | None:
        """Return the addresses of zones that may have a value; None if not applicable."""
        if is_true_for_null(query.predicate, query.path, self.field.to_arrow().type):
            is_of_null = matches_only_null(query.predicate, query.path)
            zones = self.has_null if is_of_null else None
        else:
            zones = self._zones_with_values(query)
        if zones is None or int(self.length[zones].sum()) > limits.most_rows:
            return None
        return self._addresses(np.flatnonzero(zones))

    def _zones_with_values(self, query: ColumnQuery) -> NDArray[np.bool_] | None:
        constants = only_values(query.predicate, query.path)
        if constants is None or sum(map(len, constants)) > _MAX_VALUES:
            return None
        hashed: list[bytes] = []
        for values in constants:
            stored = bytes_of_values(values, self.field.to_arrow().type)
            if stored is None:
                return None
            hashed += stored
        return self._zones_of_hashes([xxh64(value) for value in hashed])

    def _zones_of_hashes(self, hashes: Iterable[int]) -> NDArray[np.bool_] | None:
        wanted = list(hashes)
        found = np.zeros(len(self.start), np.bool_)
        if not wanted:
            return found
        filters = self._filters()
        if filters is None:
            return None
        lengths = np.asarray(pc.binary_length(filters))
        for num_bytes in np.unique(lengths).tolist():
            if not num_bytes or num_bytes % BLOCK_BYTES:
                raise CorruptFileError(f"a bloom filter of {num_bytes} bytes", self.file.where)
            indices = np.flatnonzero(lengths == num_bytes)
            words = np.frombuffer(b"".join(filters.take(pa.array(indices)).to_pylist()), "<u4")
            blocks = words.reshape(len(indices), num_bytes // BLOCK_BYTES, 8)
            for number in wanted:
                found[indices] |= _is_in(blocks, number)
        return found

    def values_missing(self, zone: int, hashes: NDArray[np.uint64]) -> bool:
        """Return whether a zone's filter lacks one of some hashes."""
        data = self.file.take(BLOOM_FILTER, np.array([zone]))[0].as_buffer()
        if data is None or not data.size or data.size % BLOCK_BYTES:
            raise CorruptFileError(
                "a bloom filter is not a whole number of blocks", self.file.where
            )
        blocks = np.frombuffer(data, "<u4").reshape(-1, 8)
        return not bool(are_in(blocks, hashes).all())

    def _filters(self) -> pa.Array | None:
        fields = [field for field in self.file.reader.schema.fields if field.name == BLOOM_FILTER]
        reader = self.file.reader
        columns = reader.embedded_columns()
        try:
            batch = reader.read(fields, columns, 0, reader.num_rows, max_bytes=_MAX_BYTES)
        except BatchTooLargeError:
            return None
        if batch.column(0).null_count:
            raise CorruptFileError("a zone of the index has no bloom filter", self.file.where)
        return batch.column(0)

    def _addresses(self, zones: NDArray[np.int64]) -> NDArray[np.uint64]:
        first = self.fragment_id[zones] << np.uint64(OFFSET_BITS) | self.start[zones]
        lengths = self.length[zones].astype(np.int64)
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if len(ends) else 0
        within = np.arange(total) - np.repeat(ends - lengths, lengths)
        return np.repeat(first, lengths) + within.astype(np.uint64)


def _is_in(blocks: NDArray[np.uint32], number: int) -> NDArray[np.bool_]:
    """Return which filters of equal size contain a hash; ``blocks``: shape (filters, blocks, 8)."""
    hashes = np.array([number], np.uint64)
    index, bits = blocks_of(hashes, blocks.shape[1])[0], np.uint32(1) << bits_in_words(hashes)[0]
    found: NDArray[np.bool_] = ((blocks[:, index] & bits) == bits).all(axis=1)
    return found


def bytes_of_values(values: pa.Array, stored: pa.DataType) -> list[bytes] | None:
    """Encode constants as bytes of type ``stored``, without unrepresentable ones.

    Return None if a constant may equal values of other bytes, such as NaN.
    """
    values = values.drop_null()
    if pa.types.is_integer(stored) and pa.types.is_integer(values.type):
        limits = np.iinfo(plain_dtype(stored))
        fitting = [number for number in values.to_pylist() if limits.min <= number <= limits.max]
        return [number.to_bytes(stored.bit_width // 8, "little", signed=limits.min < 0)
                for number in fitting]  # fmt: skip
    if pa.types.is_floating(stored) and pa.types.is_floating(values.type):
        return _bytes_of_floats(values, stored)
    if pa.types.is_string(values.type) and _is_text(stored):
        return [text.encode() for text in values.to_pylist()]
    if pa.types.is_binary(values.type) and _is_binary(stored):
        return list(values.to_pylist())
    if not _are_same_integers(values.type, stored):
        return None
    numbers = np.frombuffer(values.buffers()[1], f"i{stored.bit_width // 8}")
    return [number.tobytes() for number in numbers[values.offset : values.offset + len(values)]]


def _is_text(stored: pa.DataType) -> bool:
    return bool(pa.types.is_string(stored) or pa.types.is_large_string(stored))


def _is_binary(stored: pa.DataType) -> bool:
    return bool(pa.types.is_binary(stored) or pa.types.is_large_binary(stored))


def _are_same_integers(seen: pa.DataType, stored: pa.DataType) -> bool:
    """Return whether dates or times have the same bytes in both types."""
    if pa.types.is_timestamp(seen) and pa.types.is_timestamp(stored):
        return bool(seen.unit == stored.unit and (seen.tz is None) == (stored.tz is None))
    return bool(seen == stored and (pa.types.is_date(stored) or pa.types.is_time(stored)))


def _bytes_of_floats(values: pa.Array, stored: pa.DataType) -> list[bytes] | None:
    wide = values.to_numpy(zero_copy_only=False)
    if np.isnan(wide).any():
        return None  # All NaNs are equal, whatever their bits.
    with np.errstate(over="ignore"):
        narrow = wide.astype(plain_dtype(stored))
    fitting = narrow[narrow.astype(np.float64) == wide.astype(np.float64)]
    zeros = fitting[fitting == 0]
    return [number.tobytes() for number in np.concatenate([fitting, -zeros])]

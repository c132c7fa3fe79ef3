"""Merge keys: filters before the shuffle, predicates for indices, and hash tables of target rows.

``KeyFilter``, of the source's keys, is built before target rows are read. A small set is stored as
hashes, a large one as a Bloom filter of fixed size, so the filter fits the driver and every task.
It may have false positives, but no false negatives. A small set also stores the values, with which
the driver queries indices.

``KeyTable`` is a hash table of target rows, to match source rows by equal keys. Source and target
rows are shuffled by the hash of their key, and the rows of one bucket are matched vectorized. Null
equals nothing. Rows are packed into bytes, so that Spark shuffles them as a single value, which the
JVM only copies and never decodes.

``NewKeys`` are the primary keys that a merge inserts, as stored in its transaction. Lance hashes
the bytes of a key: numbers as eight bytes, strings and binary unchanged, and a composite key as all
parts, each followed by a zero byte. It stores no keys of other types, so the filter must be absent
for them. The properties of the transaction record the keys of all rows that the merge writes: a
concurrent merge on the same columns compares its own keys with them, and reads the new rows only if
one may be equal. Only small merges record their keys, as hashes. A record excludes rows, it never
proves one: other writers record nothing, and hashes may be equal for different keys.

Source: docs/format/table-format.md, section 8.1.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import fewest_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.codec.value_hashes import bits_of, hashes_of
from pyspark_lance.commit.inserted_keys import (
    NUM_BLOCKS,
    NUM_BYTES,
    ROW_KEYS_PROPERTY,
    key_filter_message,
)
from pyspark_lance.format.schema import LanceSchema, primary_key
from pyspark_lance.plain_values import (
    numbers_with_default,
    plain_array,
    plain_dtype,
    plain_numbers,
    plain_scalar,
)
from pyspark_lance.predicate.builder import resolve_column
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.predicate.tree import In, all_of
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.snapshot import Snapshot

NUM_BITS = 1 << 24
"""2 MB: the false positive rate is 0.4 % for one million keys and 13 % for four million."""

# Bits for each key; the second is tested only where the first is set.
_PROBES = 3
_BIT = np.left_shift(1, np.arange(8)).astype(np.uint8)
_TABLE_BYTES = NUM_BITS // 8
# This many hashes take a quarter of the size of the Bloom filter.
_SMALL_KEY_COUNT = 1 << 16
# Larger values are not stored.
_MAX_VALUE_BYTES = 4 << 20
_LENGTH = struct.Struct("<Q")
# Share of absent hashes that need a binary search: one in this many.
_PLACES_OF_KEY = 16
_MAX_LOOKUPS = 8
# Longer keys are hashed by this prefix, which only adds false positives.
_MAX_KEY_BYTES = 256
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A set of hashed keys."""

    # Either ``NUM_BITS`` / 8 bytes of a Bloom filter, or the distinct hashes, ascending, as eight
    # bytes each in native byte order.
    content: bytes
    packed_values: bytes = b""  # Small sets only: one packed row of lists.

    @classmethod
    def of(cls, hashes: Sequence[NDArray[np.uint64]]) -> KeyFilter:
        """Build the filter of some keys.

        ``hashes``: of ``hash_keys``.
        """
        if sum(map(len, hashes)) <= _SMALL_KEY_COUNT:
            return cls(_distinct_hashes(hashes).tobytes())
        # For many keys, setting one byte per bit and packing is faster.
        table = np.zeros(NUM_BITS, dtype=np.bool_)
        for part in hashes:
            for probe in range(_PROBES):
                table[_slots(part, probe)] = True
        return cls(np.packbits(table, bitorder="little").tobytes())

    @classmethod
    def of_bytes(cls, data: bytes) -> KeyFilter:
        """Deserialize the result of ``to_bytes``."""
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        return cls(data[_LENGTH.size : end], data[end:])

    def to_bytes(self) -> bytes:
        """Serialize the filter."""
        return _LENGTH.pack(len(self.content)) + self.content + self.packed_values

    def values(self) -> list[pa.Array] | None:
        """Distinct values of each part of the key, without nulls; None if not stored."""
        if not self.packed_values:
            return None
        return [column.values for rows in unpack_rows(self.packed_values) for column in rows]

    def without_values(self) -> KeyFilter:
        """Return the filter without values, which tasks do not need."""
        return KeyFilter(self.content)

    def union(self, other: KeyFilter) -> KeyFilter:
        """Return the filter of the keys of both."""
        if self._is_list and other._is_list:
            both = KeyFilter.of([self._hashes(), other._hashes()])
            return replace(
                both, packed_values=_values_of_both(self, other) if both._is_list else b""
            )
        if self._is_list:
            return other.union(self)
        table = np.frombuffer(self.content, dtype=np.uint8).copy()
        if other._is_list:
            _set_bits(table, other._hashes())
        else:
            table |= np.frombuffer(other.content, dtype=np.uint8)
        return KeyFilter(table.tobytes())

    def share(self) -> float:
        """Estimated false positive rate."""
        return 0.0 if self._is_list else float(self._fill() ** _PROBES)

    def _fill(self) -> float:
        ones = np.unpackbits(np.frombuffer(self.content, dtype=np.uint8))
        return float(np.count_nonzero(ones)) / NUM_BITS

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which keys may be in the set, same shape."""
        mask = np.zeros(len(hashes), dtype=np.bool_)
        left = self._find_in_list(hashes) if self._is_list else self._find_in_table(hashes)
        mask[left] = True
        return mask

    def _find_in_table(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        table = np.frombuffer(self.content, dtype=np.uint8)
        left = np.arange(len(hashes))
        for probe in range(_PROBES):
            indices = _slots(hashes if probe == 0 else hashes[left], probe)
            hit = table.take(indices >> 3) & _BIT.take(indices & 7)
            left = left[hit != 0]
        return left

    def _find_in_list(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not self.content:
            return np.empty(0, dtype=np.int64)
        known, is_taken = self._hashes(), _occupied_slots(self.content)
        left = np.flatnonzero(is_taken.take(_hash_slots(hashes, len(is_taken))))
        wanted = hashes[left]
        nearest = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found: NDArray[np.int64] = left[known[nearest] == wanted]
        return found

    @property
    def _is_list(self) -> bool:
        return len(self.content) < _TABLE_BYTES

    def _hashes(self) -> NDArray[np.uint64]:
        return np.frombuffer(self.content, dtype=np.uint64)


class KeyCollector:
    """Builder of a filter of keys, batch by batch."""

    def __init__(self) -> None:
        self._hashes: list[NDArray[np.uint64]] = []
        self._values: list[list[pa.Array]] | None = []
        self._num_bytes = 0

    def add(self, columns: Sequence[pa.Array]) -> None:
        """Add keys.

        ``columns``: as for ``hash_keys``.
        """
        self._hashes.append(hash_keys(columns))
        if self._values is None:
            return
        values = [pc.unique(column.drop_null()) for column in columns]
        self._num_bytes += sum(part.nbytes for part in values)
        self._values.append(values)
        if self._num_bytes > _MAX_VALUE_BYTES or sum(map(len, self._hashes)) > _SMALL_KEY_COUNT:
            self._values = None

    def result(self) -> KeyFilter | None:
        """The filter of all keys; None if there were no rows."""
        if not self._hashes:
            return None
        return replace(KeyFilter.of(self._hashes), packed_values=_pack(self._values or []))


def _values_of_both(one: KeyFilter, other: KeyFilter) -> bytes:
    """Merge the packed values of two filters; empty if either has none or they are too large."""
    known = [keys.values() for keys in (one, other) if keys.content]
    whole = [values for values in known if values is not None]
    if len(whole) < len(known):
        return b""
    size = sum(part.nbytes for values in whole for part in values)
    return _pack(whole) if size <= _MAX_VALUE_BYTES else b""


def _pack(parts: Sequence[Sequence[pa.Array]]) -> bytes:
    """Pack the values of keys for ``KeyFilter``; empty if there are none."""
    columns = [pc.unique(pa.concat_arrays(column)) for column in zip(*parts, strict=True)]
    lists = [pa.ListArray.from_arrays([0, len(column)], column) for column in columns]
    return pack_rows(pa.record_batch(lists, list(map(str, range(len(lists)))))) if lists else b""


def _distinct_hashes(hashes: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *hashes]))


def _set_bits(table: NDArray[np.uint8], hashes: NDArray[np.uint64]) -> None:
    """Set the bits of a small set in the packed table, without touching most bytes."""
    for probe in range(_PROBES):
        indices = _slots(hashes, probe)
        np.bitwise_or.at(table, indices >> 3, _BIT[indices & 7])


@lru_cache(maxsize=_MAX_LOOKUPS)
def _occupied_slots(content: bytes) -> NDArray[np.bool_]:
    """Return a bitmap of the list by the last bits of hashes; it avoids most binary searches."""
    hashes = np.frombuffer(content, dtype=np.uint64)
    is_taken = np.zeros(1 << (len(hashes) * _PLACES_OF_KEY - 1).bit_length(), dtype=np.bool_)
    is_taken[_hash_slots(hashes, len(is_taken))] = True
    return is_taken


def _hash_slots(hashes: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    return (hashes & np.uint64(size - 1)).view(np.int64)


def is_hashable(data_type: pa.DataType) -> bool:
    """Return whether equal keys of this type, and of compatible types, have equal hashes."""
    types = pa.types
    return bool(
        types.is_integer(data_type)
        or types.is_boolean(data_type)
        or types.is_date32(data_type)
        or _is_text(data_type)
    )


def same_hashes(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether equal values of the two types have equal hashes."""
    types = pa.types
    for is_kind in (types.is_integer, types.is_boolean, types.is_date32, _is_text):
        if is_kind(left) and is_kind(right):
            return True
    return False


def hash_keys(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Hash each row; nulls are hashed like a value.

    ``columns``: the parts of the key; each type is ``is_hashable``.
    """
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = _finalize(hashes ^ _hash_column(column))
    return hashes


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _hash_column(column: pa.Array) -> NDArray[np.uint64]:
    if _is_text(column.type):
        hashes = _hash_texts(
            pc.fill_null(column, plain_scalar("", column.type)).cast(pa.large_string())
        )
    else:
        whole = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
        if whole.type == pa.uint64():
            hashes = numbers_with_default(0, whole)
        else:
            hashes = numbers_with_default(0, whole.cast(pa.int64())).view(np.uint64)
    hashes = _finalize(hashes)
    if column.null_count:
        is_null = plain_numbers(pc.is_null(column))
        hashes = np.where(is_null, _NULL_HASH, hashes)
    return hashes


def _hash_texts(texts: pa.LargeStringArray) -> NDArray[np.uint64]:
    """Hash all strings at once, eight bytes at a time."""
    first = texts.offset
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[first : first + len(texts) + 1]
    data = texts.buffers()[2]
    content = np.frombuffer(data if data is not None else b"", dtype=np.uint8)
    padded = np.concatenate([content, np.zeros(8, np.uint8)])
    lengths = np.diff(offsets)
    hashes = lengths.astype(np.uint64)
    lanes = np.arange(8)
    for start in range(0, min(int(lengths.max(initial=0)), _MAX_KEY_BYTES), 8):
        rows = np.flatnonzero(lengths > start)
        words = padded[(offsets[:-1][rows] + start)[:, None] + lanes]
        words[lanes >= (lengths[rows] - start)[:, None]] = 0
        hashes[rows] = _finalize(hashes[rows] ^ words.view(np.uint64)[:, 0])
    return hashes


def _finalize(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64: every bit of the input changes half of the output."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _slots(hashes: NDArray[np.uint64], probe: int) -> NDArray[np.int64]:
    """Return the bit of each key for one probe: 24 bits of its hash, shifted by 20 per probe."""
    return ((hashes >> np.uint64(20 * probe)) & np.uint64(NUM_BITS - 1)).view(np.int64)


def keys_condition(
    snapshot: Snapshot, columns: Sequence[str], keys: KeyFilter | None
) -> Predicate | None:
    """Return a predicate that is true for every row with a source key; None if keys are unknown.

    ``columns``: the table columns that the parts of the key must equal; null equals nothing.
    """
    values = None if keys is None else keys.values()
    if values is None:
        return None
    schema = predicate_schema(snapshot.schema)
    targets = (resolve_column((name,), schema) for name in columns)
    return all_of(
        [
            In(target, _as_type(part, target.type))
            for target, part in zip(targets, values, strict=True)
        ]
    )


def _as_type(values: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Cast values to ``wanted``, without those that it cannot represent."""
    if values.type == wanted:
        return values
    if pa.types.is_integer(wanted):
        limits, own = (np.iinfo(plain_dtype(kind)) for kind in (wanted, values.type))
        low, high = max(limits.min, own.min), min(limits.max, own.max)
        is_inside = pc.and_(
            pc.greater_equal(values, plain_scalar(low, values.type)),
            pc.less_equal(values, plain_scalar(high, values.type)),
        )
        values = values.filter(is_inside)
    return values.cast(wanted)


_MAX_INDEX_BITS = 22
_EXACT_INTEGER = pa.decimal128(20, 0)


class KeyTable:
    """A hash table of target rows by key.

    ``keys``: the parts of the key, one array each; their types are ``is_hashable``.
    """

    def __init__(self, keys: Sequence[pa.Array]) -> None:
        rows = np.flatnonzero(_has_key(keys))
        hashes = hash_keys(keys)[rows]
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        self._rows = rows[order]
        self._keys = keys
        # Hashes are uniform, so their first bits select the range to search.
        bits = min(_MAX_INDEX_BITS, len(order).bit_length() + 2)
        self._shift = np.uint64(64 - bits)
        sizes = np.bincount((self._hashes >> self._shift).view(np.int64), minlength=1 << bits)
        self._starts = np.concatenate(([0], np.cumsum(sizes)))

    def pairs(self, keys: Sequence[pa.Array]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return all pairs of a source row and a target row with equal keys.

        The result is positions in ``keys``, ascending, and positions in the target's keys; same
        shape.
        """
        hashes = hash_keys(keys)
        slots = (hashes >> self._shift).view(np.int64)
        first = self._starts.take(slots)
        counts = self._starts.take(slots + 1) - first
        source = np.flatnonzero((counts > 0) & _has_key(keys))
        first, counts = first[source], counts[source]
        step = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        source, candidates = np.repeat(source, counts), np.repeat(first, counts) + step
        same_hash = self._hashes[candidates] == hashes[source]
        source, target = source[same_hash], self._rows[candidates[same_hash]]
        equal = np.ones(len(source), dtype=np.bool_)
        for mine, theirs in zip(self._keys, keys, strict=True):
            equal &= _equal(mine.take(pa.array(target)), theirs.take(pa.array(source)))
        return source[equal], target[equal]


def key_buckets(keys: Sequence[pa.Array], count: int) -> NDArray[np.int16]:
    """Return the bucket of each row, in [0, ``count``); equal keys share one.

    Rows with a null in their key match nothing and are spread over all buckets.
    """
    buckets = (hash_keys(keys) % np.uint64(count)).astype(np.int16)
    alone = np.flatnonzero(~_has_key(keys))
    buckets[alone] = np.arange(len(alone)) % count
    return buckets


def _has_key(keys: Sequence[pa.Array]) -> NDArray[np.bool_]:
    """Return which rows have no null in their key."""
    valid = np.ones(len(keys[0]), dtype=np.bool_)
    for column in keys:
        if column.null_count:
            valid &= plain_numbers(column.is_valid())
    return valid


def _equal(mine: pa.Array, theirs: pa.Array) -> NDArray[np.bool_]:
    """Compare two arrays without nulls whose types have the same hashes."""
    if mine.type != theirs.type:
        if not pa.types.is_integer(mine.type):
            kind = pa.large_string()
        elif pa.uint64() in (mine.type, theirs.type):
            kind = _EXACT_INTEGER
        else:
            kind = pa.int64()
        mine, theirs = mine.cast(kind), theirs.cast(kind)
    return np.asarray(pc.equal(mine, theirs).to_numpy(zero_copy_only=False))


def pack_rows(batch: pa.RecordBatch) -> bytes:
    """Serialize ``batch`` as an Arrow stream, without rows outside of a slice."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def unpack_rows(packed: bytes) -> Iterator[pa.RecordBatch]:
    """Deserialize the result of ``pack_rows``."""
    with pa.ipc.open_stream(packed) as stream:
        yield from stream


def split_rows(
    batch: pa.RecordBatch, groups: NDArray[np.signedinteger[Any]]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the rows of each group, ascending by group; rows of a group keep their order.

    ``groups``: of each row, shape (num_rows,).
    """
    if not len(groups):
        return
    if (groups[1:] < groups[:-1]).any():
        order = np.argsort(groups, kind="stable")
        batch, groups = take_rows(batch, order), groups[order]
    starts = np.flatnonzero(np.concatenate(([True], groups[1:] != groups[:-1])))
    for start, end in zip(starts, [*starts[1:], len(groups)], strict=True):
        yield int(groups[start]), batch.slice(start, end - start)


class RowBuffer:
    """Buffers batches up to ``most_rows`` rows or ``most_bytes`` bytes."""

    def __init__(self, most_rows: int, most_bytes: int) -> None:
        self._limits = most_rows, most_bytes
        self._batches: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> bool:
        """Add a batch; return whether the buffer is full."""
        if batch.num_rows:
            self._batches.append(batch)
            self._rows += batch.num_rows
            self._bytes += batch.nbytes
        return self._rows >= self._limits[0] or self._bytes >= self._limits[1]

    def take(self) -> list[pa.RecordBatch]:
        """Return and clear all rows, in one batch if they fit; no batch is empty."""
        batches, self._batches, self._rows, self._bytes = self._batches, [], 0, 0
        return fewest_batches(batches)


_NUMBERS = (pa.int32(), pa.int64(), pa.uint32(), pa.uint64())
_BYTES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


def stored_key(schema: LanceSchema) -> tuple[str, ...]:
    """Return the primary key columns; none without a key or for types that Lance does not store."""
    names = primary_key(schema)
    types = {field.name: field.to_arrow().type for field in schema.fields}
    return names if all(types.get(name) in (*_NUMBERS, *_BYTES) for name in names) else ()


class NewKeys:
    """Collector of keys, batch by batch; ``names``: their columns, none to collect nothing."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._bits: NDArray[np.bool_] | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        """Add inserted rows, or rows with a changed key."""
        if not self._names:
            return
        hashes = key_hashes([rows.column(name) for name in self._names])
        if self._bits is None:
            self._bits = np.zeros(NUM_BYTES * 8, np.bool_)
        self._bits[bits_of(hashes, NUM_BLOCKS)] = True

    def to_bytes(self) -> bytes:
        """Serialize the filter for the driver; empty for no keys."""
        if self._bits is None:
            return b""
        return zlib.compress(np.packbits(self._bits, bitorder="little").tobytes(), 1)


def key_filter(schema: LanceSchema, packed: Iterable[bytes]) -> bytes | None:
    """Merge the filters of all tasks for ``Update``; None if keys are not stored."""
    names = stored_key(schema)
    if not names:
        return None
    bits = np.zeros(NUM_BYTES, np.uint8)
    for part in packed:
        bits |= np.frombuffer(zlib.decompress(part), np.uint8)
    ids = {field.name: field.id for field in schema.fields}
    return key_filter_message([ids[name] for name in names], bits.tobytes())


def key_hashes(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """Hash the keys, except those with a null part; shape (at most num_rows,)."""
    rows = pa.RecordBatch.from_arrays(list(columns), list(map(str, range(len(columns)))))
    parts = [_wide(column) for column in rows.drop_null().columns]
    if len(parts) == 1:
        return hashes_of(parts[0])
    ended = pa.scalar(b"", pa.large_binary())
    zero = pa.scalar(b"\0", pa.large_binary())
    return hashes_of(pc.binary_join_element_wise(*map(_bytes, parts), ended, zero))


def _wide(column: pa.Array) -> pa.Array:
    if column.type not in _NUMBERS:
        return column
    return column.cast(pa.uint64() if pa.types.is_unsigned_integer(column.type) else pa.int64())


def _bytes(column: pa.Array) -> pa.Array:
    if column.type in _BYTES:
        return column.cast(pa.large_binary())
    numbers = np.ascontiguousarray(plain_numbers(column)).view(np.uint8)
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(),
        len(column),
        [None, plain_array(np.arange(0, len(numbers) + 1, 8)).buffers()[1], pa.py_buffer(numbers)],
    )


_VERSION: Final = "1"  # Of the hash function and of the layout.
_HASH: Final = np.dtype("<u8")
MAX_ROWS: Final = 256


class RowKeys:
    """Collector of the hashes of the keys of written rows; ``names``: of the key columns."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._parts: list[NDArray[np.uint64]] = []
        self._count = 0

    def add(self, rows: pa.RecordBatch) -> None:
        """Add rows as they are written."""
        self._count += rows.num_rows
        if self._names and self._count <= MAX_ROWS:
            self._parts.append(hash_keys([rows.column(name) for name in self._names]))

    def to_bytes(self) -> bytes | None:
        """Serialize the hashes for the driver; None if they are not recorded."""
        if not self._names or self._count > MAX_ROWS:
            return None
        return b"".join(part.astype(_HASH).tobytes() for part in self._parts)


def row_keys_property(
    schema: LanceSchema, names: Sequence[str], packed: Iterable[bytes | None]
) -> Mapping[str, str]:
    """Return the property that records the keys of all tasks; none if a task has too many.

    ``packed``: ``RowKeys.to_bytes`` of every task that wrote rows.
    """
    parts = list(packed)
    known = [part for part in parts if part is not None]
    content = b"".join(known)
    too_many = len(content) > MAX_ROWS * _HASH.itemsize
    if not names or not content or too_many or len(known) < len(parts):
        return {}
    text = base64.b64encode(content).decode("ascii")
    return {ROW_KEYS_PROPERTY: f"{_VERSION};{_ids_of(schema, names)};{text}"}


def recorded_keys(
    schema: LanceSchema, names: Sequence[str], properties: Mapping[str, str]
) -> NDArray[np.uint64] | None:
    """Return the hashes that a transaction records for the columns; None if it does not."""
    version, _, rest = properties.get(ROW_KEYS_PROPERTY, "").partition(";")
    ids, _, text = rest.partition(";")
    if version != _VERSION or not names or ids != _ids_of(schema, names):
        return None
    try:
        content = base64.b64decode(text, validate=True)
        return np.frombuffer(content, _HASH).astype(np.uint64) if content else None
    except (binascii.Error, ValueError):
        return None


def _ids_of(schema: LanceSchema, names: Sequence[str]) -> str:
    ids = {field.name: field.id for field in schema.fields}
    return ",".join(str(ids.get(name, "")) for name in names)

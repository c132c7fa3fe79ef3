"""KeyFilter: a set of merge keys, so that rows without a match never leave Python.

Of few keys it holds the hashes, of more a Bloom filter with a fixed number of bits: small enough
for the driver, and for every task.  A key that is in it may still be no key; a key that is not in
it is none.  Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

NUM_BITS = 1 << 24
"""2 MB; of rows without a match 0.4 % pass with one million keys, 13 % with four million."""

# Bits for each key; the second is looked up only where the first is set.
_PROBES = 3
_BIT = np.left_shift(1, np.arange(8)).astype(np.uint8)
_TABLE_BYTES = NUM_BITS // 8
# The hashes of so many take a quarter of the table; of the most merges, next to nothing.
_FEW_KEYS = 1 << 16
# Of hashes that are not in the list, one in so many is looked for there.
_PLACES_OF_KEY = 16
_MOST_LOOKUPS = 8
# Characters beyond this do not count, so longer keys may only match falsely.
_MOST_KEY_BYTES = 256
_NULL_HASH = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True, slots=True)
class KeyFilter:
    """A set of hashed keys."""

    # ``NUM_BITS`` / 8 bytes of bits; or fewer, then the hashes themselves in ascending order, each
    # once, of eight bytes in the order of the machine.
    content: bytes

    @classmethod
    def of(cls, hashes: Sequence[NDArray[np.uint64]]) -> KeyFilter:
        """The filter of some keys.

        ``hashes``: as ``hash_keys`` gives them.
        """
        if sum(map(len, hashes)) <= _FEW_KEYS:
            return cls(_listed(hashes).tobytes())
        # Of many keys the bits are faster set one to a byte, and packed.
        table = np.zeros(NUM_BITS, dtype=np.bool_)
        for part in hashes:
            for probe in range(_PROBES):
                table[_places(part, probe)] = True
        return cls(np.packbits(table, bitorder="little").tobytes())

    def union(self, other: KeyFilter) -> KeyFilter:
        """The keys of both."""
        if self._is_list and other._is_list:
            return KeyFilter.of([self._hashes(), other._hashes()])
        if self._is_list:
            return other.union(self)
        table = np.frombuffer(self.content, dtype=np.uint8).copy()
        if other._is_list:
            _set_bits(table, other._hashes())
        else:
            table |= np.frombuffer(other.content, dtype=np.uint8)
        return KeyFilter(table.tobytes())

    def share(self) -> float:
        """The share of all other keys that pass, about."""
        return 0.0 if self._is_list else float(self._fill() ** _PROBES)

    def _fill(self) -> float:
        ones = np.unpackbits(np.frombuffer(self.content, dtype=np.uint8))
        return float(np.count_nonzero(ones)) / NUM_BITS

    def may_contain(self, hashes: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which keys may be in the set, same shape."""
        mask = np.zeros(len(hashes), dtype=np.bool_)
        left = self._found_in_list(hashes) if self._is_list else self._found_in_table(hashes)
        mask[left] = True
        return mask

    def _found_in_table(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        table = np.frombuffer(self.content, dtype=np.uint8)
        left = np.arange(len(hashes))
        for probe in range(_PROBES):
            places = _places(hashes if probe == 0 else hashes[left], probe)
            hit = table.take(places >> 3) & _BIT.take(places & 7)
            left = left[hit != 0]
        return left

    def _found_in_list(self, hashes: NDArray[np.uint64]) -> NDArray[np.int64]:
        if not self.content:
            return np.empty(0, dtype=np.int64)
        known, is_taken = self._hashes(), _taken_places(self.content)
        left = np.flatnonzero(is_taken.take(_place_of(hashes, len(is_taken))))
        wanted = hashes[left]
        nearest = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        found: NDArray[np.int64] = left[known[nearest] == wanted]
        return found

    @property
    def _is_list(self) -> bool:
        return len(self.content) < _TABLE_BYTES

    def _hashes(self) -> NDArray[np.uint64]:
        return np.frombuffer(self.content, dtype=np.uint64)


def _listed(hashes: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    return np.unique(np.concatenate([np.empty(0, dtype=np.uint64), *hashes]))


def _set_bits(table: NDArray[np.uint8], hashes: NDArray[np.uint64]) -> None:
    """Sets the bits of a few keys where they are packed: most bytes are never touched."""
    for probe in range(_PROBES):
        places = _places(hashes, probe)
        np.bitwise_or.at(table, places >> 3, _BIT[places & 7])


@lru_cache(maxsize=_MOST_LOOKUPS)
def _taken_places(content: bytes) -> NDArray[np.bool_]:
    """Where a list of hashes has one, by their last bits: a look there spares most searches."""
    hashes = np.frombuffer(content, dtype=np.uint64)
    is_taken = np.zeros(1 << (len(hashes) * _PLACES_OF_KEY - 1).bit_length(), dtype=np.bool_)
    is_taken[_place_of(hashes, len(is_taken))] = True
    return is_taken


def _place_of(hashes: NDArray[np.uint64], size: int) -> NDArray[np.int64]:
    return (hashes & np.uint64(size - 1)).view(np.int64)


def is_hashable(data_type: pa.DataType) -> bool:
    """Whether equal keys of this type and of its like have equal hashes."""
    types = pa.types
    return bool(
        types.is_integer(data_type)
        or types.is_boolean(data_type)
        or types.is_date32(data_type)
        or _is_text(data_type)
    )


def same_hashes(left: pa.DataType, right: pa.DataType) -> bool:
    """Whether two types are alike: equal values of both have equal hashes."""
    types = pa.types
    for alike in (types.is_integer, types.is_boolean, types.is_date32, _is_text):
        if alike(left) and alike(right):
            return True
    return False


def hash_keys(columns: Sequence[pa.Array]) -> NDArray[np.uint64]:
    """One hash for each row; nulls are hashed like a value.

    ``columns``: the parts of the key; each type is ``is_hashable``.
    """
    hashes = np.zeros(len(columns[0]), dtype=np.uint64)
    for column in columns:
        hashes = _mixed(hashes ^ _hashed(column))
    return hashes


def _is_text(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _hashed(column: pa.Array) -> NDArray[np.uint64]:
    if _is_text(column.type):
        hashes = _hashed_text(pc.fill_null(column, "").cast(pa.large_string()))
    else:
        whole = column.cast(pa.int32()) if pa.types.is_date32(column.type) else column
        if whole.type == pa.uint64():
            hashes = pc.fill_null(whole, 0).to_numpy(zero_copy_only=False)
        else:
            numbers = pc.fill_null(whole.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
            hashes = numbers.view(np.uint64)
    hashes = _mixed(hashes)
    if column.null_count:
        is_null = pc.is_null(column).to_numpy(zero_copy_only=False)
        hashes = np.where(is_null, _NULL_HASH, hashes)
    return hashes


def _hashed_text(texts: pa.LargeStringArray) -> NDArray[np.uint64]:
    """Eight bytes at a time, of all texts at once."""
    first = texts.offset
    offsets = np.frombuffer(texts.buffers()[1], dtype=np.int64)[first : first + len(texts) + 1]
    data = texts.buffers()[2]
    content = np.frombuffer(data if data is not None else b"", dtype=np.uint8)
    padded = np.concatenate([content, np.zeros(8, np.uint8)])
    lengths = np.diff(offsets)
    hashes = lengths.astype(np.uint64)
    lanes = np.arange(8)
    for start in range(0, min(int(lengths.max(initial=0)), _MOST_KEY_BYTES), 8):
        rows = np.flatnonzero(lengths > start)
        words = padded[(offsets[:-1][rows] + start)[:, None] + lanes]
        words[lanes >= (lengths[rows] - start)[:, None]] = 0
        hashes[rows] = _mixed(hashes[rows] ^ words.view(np.uint64)[:, 0])
    return hashes


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64: every bit of the input changes half of the output."""
    mixed = values + np.uint64(0x9E3779B97F4A7C15)
    mixed ^= mixed >> np.uint64(30)
    mixed *= np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(27)
    mixed *= np.uint64(0x94D049BB133111EB)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _places(hashes: NDArray[np.uint64], probe: int) -> NDArray[np.int64]:
    """The bit of each key for one probe: 24 bits of its hash, 20 bits further for the next."""
    return ((hashes >> np.uint64(20 * probe)) & np.uint64(NUM_BITS - 1)).view(np.int64)

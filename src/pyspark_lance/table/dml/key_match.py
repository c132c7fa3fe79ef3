"""KeyTable: a hash table of target rows, to match source rows by equal keys.

Source and target rows are shuffled by the hash of their key; this module matches the rows of one
bucket, vectorized. Null equals nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.dml.key_filter import hash_keys

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

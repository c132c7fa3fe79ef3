"""Symbols of FSST: how they are found in text, chosen from a sample, and written down.

A symbol of three bytes and more is found by a hash of its first three bytes, so there is only one
for each hash; shorter ones by the first two bytes. Only symbols of one byte may contain a zero,
because zeros stand for what lies behind the end of a string.

Source: file-format.md section 6.4 (7).
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.fsst import MAX_SYMBOL_BYTES, TABLE_BYTES, table_header

LITERALS: Final = 256
"""Tokens from here on are bytes without a symbol."""

MAX_SYMBOLS: Final = 255
_NONE: Final = 255
_PREFIX_MASK: Final = np.uint64(0xFFFFFF)
_PAIR_MASK: Final = np.uint64(0xFFFF)
_HASH_BITS: Final = 12
_HASH_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)
_HASH_SHIFT: Final = np.uint64(64 - _HASH_BITS)


@dataclass(frozen=True, slots=True, eq=False)
class Symbols:
    """Up to 255 substrings.

    Attributes:
        words: Their bytes, the first one lowest, zeros behind the last.
        lengths: 1 to 8, int64.
    """

    words: NDArray[np.uint64]
    lengths: NDArray[np.int64]

    def to_bytes(self) -> bytes:
        """``Fsst.symbol_table``."""
        header = struct.pack("<Q", table_header(len(self.words)))
        content = self.words.astype("<u8").tobytes() + self.lengths.astype(np.uint8).tobytes()
        return (header + content).ljust(TABLE_BYTES, b"\0")


class Matcher:
    """Finds the longest symbol at the start of a word.

    Args:
        symbols: What to look for.
    """

    def __init__(self, symbols: Symbols) -> None:
        count = len(symbols.words)
        codes = np.arange(count)
        self.lengths = np.ones(LITERALS + 256, np.int64)
        self.lengths[:count] = symbols.lengths
        # No masked word is 1 where the mask is 0.
        self._words = np.ones(256, np.uint64)
        self._masks = np.zeros(256, np.uint64)
        self._by_hash = np.full(1 << _HASH_BITS, _NONE, np.int64)
        is_long = symbols.lengths > 2
        self._words[codes[is_long]] = symbols.words[is_long]
        bits = 8 * symbols.lengths.astype(np.uint64)
        self._masks[:count] = np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(64) - bits)
        self._masks[codes[~is_long]] = 0
        self._by_hash[_hashes(symbols.words[is_long])] = codes[is_long]
        by_pair = np.empty((256, 256), np.int64)  # second byte, first byte
        by_pair[:] = LITERALS + np.arange(256)
        singles, pairs = symbols.lengths == 1, symbols.lengths == 2
        by_pair[:, symbols.words[singles].astype(np.int64)] = codes[singles]
        self._by_pair = by_pair.reshape(-1)
        self._by_pair[symbols.words[pairs].astype(np.int64)] = codes[pairs]

    def longest(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The token at the start of each word."""
        candidates = self._by_hash.take(_hashes(words))
        prefixes = self._masks.take(candidates)
        prefixes &= words
        hit = prefixes == self._words.take(candidates)
        short = self._by_pair.take((words & _PAIR_MASK).view(np.int64))
        return np.where(hit, candidates, short)


def _hashes(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """A number below ``2 ** _HASH_BITS`` from the first three bytes."""
    mixed = words & _PREFIX_MASK
    mixed *= _HASH_FACTOR
    mixed >>= _HASH_SHIFT
    return mixed.view(np.int64)


def best_symbols(words: NDArray[np.uint64], gains: NDArray[np.float64]) -> Symbols:
    """The most worthwhile symbols that can be found together.

    Args:
        words: Candidates of 1 to 8 bytes, none twice.
        gains: What each is worth.
    """
    order = np.argsort(-gains, kind="stable")
    words = words[order]
    lengths = byte_lengths(words)
    is_long = np.flatnonzero(lengths > 2)
    _, first = np.unique(_hashes(words[is_long]), return_index=True)
    kept = np.ones(len(words), np.bool_)
    kept[is_long] = False
    kept[is_long[first]] = True
    words, lengths = words[kept][:MAX_SYMBOLS], lengths[kept][:MAX_SYMBOLS]
    return Symbols(words, lengths)


def byte_lengths(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Bytes of each word up to its last that is not zero; 1 for a zero."""
    lengths = np.ones(len(words), np.int64)
    for length in range(2, MAX_SYMBOL_BYTES + 1):
        lengths[words >> np.uint64(8 * (length - 1)) != 0] = length
    return lengths

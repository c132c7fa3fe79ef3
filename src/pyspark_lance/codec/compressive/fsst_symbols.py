"""Symbols of FSST: how they are found in text, chosen from a sample, and written down.

A symbol of three bytes and more is found by a hash of its first three bytes, so there is only one
for each hash; shorter ones by the first two bytes. Only symbols of one byte may contain a zero,
because zeros stand for what lies behind the end of a string.

Source: docs/format/file-format.md, section 6.4 (7).
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

LENGTH_SHIFT: Final = 16
"""Where the length of what was found lies, above its token."""

MAX_SYMBOLS: Final = 255
_PAIRS: Final = 1 << 16
_PAIR_MASK: Final = np.uint64(0xFFFF)
_HASH_BITS: Final = 12
# Its 40 low bits are zero, so bytes behind the third count for nothing.
_HASH_FACTOR: Final = np.uint64(0x4A7C15 << 40)
_HASH_SHIFT: Final = np.uint64(64 - _HASH_BITS)


@dataclass(frozen=True, slots=True, eq=False)
class Symbols:
    """Up to 255 substrings.

    ``words``: their bytes, the first one lowest, zeros behind the last; ``lengths``: 1 to 8, int64.
    """

    words: NDArray[np.uint64]
    lengths: NDArray[np.int64]

    def to_bytes(self) -> bytes:
        """``Fsst.symbol_table``."""
        header = struct.pack("<Q", table_header(len(self.words)))
        content = self.words.astype("<u8").tobytes() + self.lengths.astype(np.uint8).tobytes()
        return (header + content).ljust(TABLE_BYTES, b"\0")


class Matcher:
    """Finds the longest symbol at the start of a word."""

    def __init__(self, symbols: Symbols) -> None:
        steps = np.arange(len(symbols.words)) | symbols.lengths << LENGTH_SHIFT
        is_long = symbols.lengths > 2
        places = _hashes(symbols.words[is_long])
        # No masked word is 1 where the mask is 0.
        self._words = np.ones(1 << _HASH_BITS, np.uint64)
        self._masks = np.zeros(1 << _HASH_BITS, np.uint64)
        self._words[places] = symbols.words[is_long]
        unused_bits = 64 - 8 * symbols.lengths[is_long].astype(np.uint64)
        self._masks[places] = np.uint64(0xFFFFFFFFFFFFFFFF) >> unused_bits
        # By the first two bytes, and behind them by hash.
        self._steps = np.zeros(_PAIRS + (1 << _HASH_BITS), np.int64)
        self._steps[_PAIRS + places] = steps[is_long]
        by_pair = self._steps[:_PAIRS].reshape(256, 256)  # second byte, first byte
        by_pair[:] = (LITERALS + np.arange(256)) | 1 << LENGTH_SHIFT
        singles, pairs = symbols.lengths == 1, symbols.lengths == 2
        by_pair[:, symbols.words[singles].astype(np.int64)] = steps[singles]
        self._steps[symbols.words[pairs].astype(np.int64)] = steps[pairs]

    def longest(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The token at the start of each word, and its length above ``LENGTH_SHIFT``."""
        places = _hashes(words)
        prefixes = self._masks.take(places)
        prefixes &= words
        hit = prefixes == self._words.take(places)
        places += _PAIRS
        return self._steps.take(np.where(hit, places, (words & _PAIR_MASK).view(np.int64)))


def _hashes(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """A number below ``2 ** _HASH_BITS`` from the first three bytes."""
    mixed = words * _HASH_FACTOR
    mixed >>= _HASH_SHIFT
    return mixed.view(np.int64)


def best_symbols(words: NDArray[np.uint64], gains: NDArray[np.float64]) -> Symbols:
    """The most worthwhile symbols that can be found together.

    ``words``: candidates of 1 to 8 bytes, none twice; ``gains``: what each is worth.
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

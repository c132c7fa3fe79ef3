"""Choosing the symbols of FSST from a sample of the strings.

As in the paper (Boncz, Neumann, Leis: FSST, 2020): encode the sample with the symbols so far, count
how often each symbol and each pair of neighbours occurs, keep those that save most, and repeat;
symbols grow by joining neighbours.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.encode_fsst import cut, tokens_of
from pyspark_lance.codec.compressive.fsst import MAX_SYMBOL_BYTES
from pyspark_lance.codec.compressive.fsst_symbols import (
    LITERALS,
    Matcher,
    Symbols,
    best_symbols,
    byte_lengths,
)
from pyspark_lance.codec.row_ranges import expand_ranges

_SAMPLE_BYTES: Final = 1 << 14
_PIECE_BYTES: Final = 64
STEP_BYTES: Final = 16
"""Strings of a sample are walked in pieces as short as that, which takes few steps."""

_ROUNDS: Final = 3
_ROUGH_ROUNDS: Final = 1
_TOKENS: Final = LITERALS + 256
# A byte without a symbol takes two codes.
_SINGLE_BYTE_BONUS: Final = 8
_MIN_PAIRS: Final = 3
_MAX_PAIRS: Final = 2048


def train_symbols(borders: NDArray[np.int64], sample: NDArray[np.uint8]) -> Symbols:
    """Symbols for strings like these.

    Args:
        borders: Of the strings, from 0 on; as from ``sample_of``.
        sample: Their bytes.
    """
    words = np.zeros(0, np.uint64)
    symbols = Symbols(words, byte_lengths(words))
    # The first symbols are pairs of bytes, which half of the sample shows as well.
    some = borders[: int(np.searchsorted(borders, len(sample) // 2)) + 1]
    for round_ in range(_ROUNDS):
        symbols = _improve(symbols, some if round_ < _ROUGH_ROUNDS else borders, sample)
    return symbols


def _improve(symbols: Symbols, borders: NDArray[np.int64], sample: NDArray[np.uint8]) -> Symbols:
    """One round."""
    if len(symbols.words):
        # Tokens on both sides of a cut are neighbours all the same.
        pieces, string_borders = cut(borders, STEP_BYTES)
        tokens = tokens_of(pieces, sample, Matcher(symbols))
        offsets, found = tokens.offsets, tokens.content.astype(np.int64)
        offsets = offsets if string_borders is None else offsets[string_borders]
    else:
        offsets, found = borders, LITERALS + sample[: int(borders[-1])].astype(np.int64)
    elements = np.zeros(_TOKENS, np.uint64)
    elements[: len(symbols.words)] = symbols.words
    elements[LITERALS:] = np.arange(256)
    lengths = np.ones(_TOKENS, np.int64)
    lengths[: len(symbols.words)] = symbols.lengths

    single_counts = np.bincount(found, minlength=_TOKENS)
    # A byte that only begins longer symbols here may stand alone elsewhere.
    beginnings = LITERALS + (elements & np.uint64(0xFF)).astype(np.int64)
    weights = np.where(lengths > 1, single_counts, 0)
    single_counts += np.bincount(beginnings, weights, minlength=_TOKENS).astype(np.int64)
    singles = np.flatnonzero(single_counts)
    single_gains = single_counts[singles] * lengths[singles].astype(np.float64)
    single_gains[lengths[singles] == 1] *= _SINGLE_BYTE_BONUS

    is_first = np.zeros(len(found) + 1, np.bool_)
    is_first[offsets] = True
    neighbours = np.flatnonzero(~is_first[1:-1])
    pair_counts = np.bincount(found[neighbours] * _TOKENS + found[neighbours + 1])
    pairs = np.flatnonzero(pair_counts >= _MIN_PAIRS)
    if len(pairs) > _MAX_PAIRS:
        pairs = pairs[np.argpartition(-pair_counts[pairs], _MAX_PAIRS)[:_MAX_PAIRS]]
    left, right = np.divmod(pairs, _TOKENS)
    joined = elements[left] | elements[right] << (8 * lengths[left]).astype(np.uint64)
    # A zero inside of a symbol would match behind the end of a string.
    usable = (lengths[left] < MAX_SYMBOL_BYTES) & (elements[left] != 0) & (elements[right] != 0)
    pairs, joined = pairs[usable], joined[usable]
    joined_lengths = np.minimum(lengths[left] + lengths[right], MAX_SYMBOL_BYTES)[usable]
    pair_gains = pair_counts[pairs] * joined_lengths.astype(np.float64)

    words, which = np.unique(np.concatenate((elements[singles], joined)), return_inverse=True)
    gains = np.bincount(which, weights=np.concatenate((single_gains, pair_gains)))
    return best_symbols(words, gains.astype(np.float64))


def sample_of(
    offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Evenly spaced pieces of the strings, side by side, and their borders.

    Args:
        offsets: One more than strings.
        content: The bytes they count into.
    """
    first, end = int(offsets[0]), int(offsets[-1])
    starts = np.unique(np.linspace(first, end, _SAMPLE_BYTES // _PIECE_BYTES + 1).astype(np.int64))
    stops = np.minimum(starts + _PIECE_BYTES, np.append(starts[1:], end))
    inside = expand_ranges(starts, stops - starts)
    # Where strings begin inside of the pieces, moved to where the pieces are now.
    begins = np.searchsorted(offsets, starts, side="left")
    counts = np.searchsorted(offsets, stops, side="left") - begins
    moved = np.cumsum(stops - starts) - stops
    cuts = offsets[expand_ranges(begins, counts)] + np.repeat(moved, counts)
    borders = np.concatenate((cuts, starts + moved + (stops - starts), [0]))
    return np.unique(borders), content[inside]

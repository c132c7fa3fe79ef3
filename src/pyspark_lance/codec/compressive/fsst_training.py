"""Choosing the symbols of FSST from a sample of the strings.

As in the paper (Boncz, Neumann, Leis: FSST, 2020): encode the sample with the symbols so far, count
how often each symbol and each pair of neighbours occurs, keep those that save most, and repeat;
symbols grow by joining neighbours::

    sample      uint8  (num_bytes,)          about 16 KiB in pieces of 64 bytes
    offsets     int64  (num_strings + 1,)    where strings begin in the sample
    tokens      int64  (num_tokens,)         of the sample: 0 … 254 a symbol, 256 + a byte without
    words       uint64 (512,)                the bytes of each token, the first one lowest
    lengths     int64  (512,)                how many those are
    candidates  uint64 (num_candidates,)     words that may become symbols; with gains, float64
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.encode_fsst import cut_into_pieces, tokens_of
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


def train_symbols(offsets: NDArray[np.int64], sample: NDArray[np.uint8]) -> Symbols:
    """Symbols for strings like these.

    ``offsets``: of the strings, from 0 on; as from ``sample_of``. ``sample``: their bytes.
    """
    words = np.zeros(0, np.uint64)
    symbols = Symbols(words, byte_lengths(words))
    # The first symbols are pairs of bytes, which half of the sample shows as well.
    some = offsets[: int(np.searchsorted(offsets, len(sample) // 2)) + 1]
    for round_ in range(_ROUNDS):
        symbols = _improve(symbols, some if round_ < _ROUGH_ROUNDS else offsets, sample)
    return symbols


def _improve(symbols: Symbols, offsets: NDArray[np.int64], sample: NDArray[np.uint8]) -> Symbols:
    """One round."""
    tokens, token_offsets = _tokens_of_sample(symbols, offsets, sample)
    words = np.zeros(_TOKENS, np.uint64)
    words[: len(symbols.words)] = symbols.words
    words[LITERALS:] = np.arange(256)
    lengths = np.ones(_TOKENS, np.int64)
    lengths[: len(symbols.words)] = symbols.lengths
    single_tokens, single_gains = _worth_of_tokens(tokens, words, lengths)
    joined_words, joined_gains = _worth_of_pairs(tokens, token_offsets, words, lengths)
    candidates, which = np.unique(
        np.concatenate((words[single_tokens], joined_words)), return_inverse=True
    )
    gains = np.bincount(which, weights=np.concatenate((single_gains, joined_gains)))
    return best_symbols(candidates, gains.astype(np.float64))


def _tokens_of_sample(
    symbols: Symbols, offsets: NDArray[np.int64], sample: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The tokens of the sample, and where those of each string begin and end."""
    if not len(symbols.words):
        return LITERALS + sample[: int(offsets[-1])].astype(np.int64), offsets
    # Tokens on both sides of a cut are neighbours all the same.
    piece_offsets, first_pieces = cut_into_pieces(offsets, STEP_BYTES)
    tokens = tokens_of(piece_offsets, sample, Matcher(symbols))
    of_strings = tokens.offsets if first_pieces is None else tokens.offsets[first_pieces]
    return tokens.content.astype(np.int64), of_strings


def _worth_of_tokens(
    tokens: NDArray[np.int64], words: NDArray[np.uint64], lengths: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The tokens that occur, and how many bytes each saves as a symbol."""
    counts = np.bincount(tokens, minlength=_TOKENS)
    # A byte that only begins longer symbols here may stand alone elsewhere.
    first_bytes = LITERALS + (words & np.uint64(0xFF)).astype(np.int64)
    weights = np.where(lengths > 1, counts, 0)
    counts += np.bincount(first_bytes, weights, minlength=_TOKENS).astype(np.int64)
    there = np.flatnonzero(counts)
    gains = np.multiply(counts[there], lengths[there], dtype=np.float64)
    gains[lengths[there] == 1] *= _SINGLE_BYTE_BONUS
    return there, gains


def _worth_of_pairs(
    tokens: NDArray[np.int64],
    token_offsets: NDArray[np.int64],
    words: NDArray[np.uint64],
    lengths: NDArray[np.int64],
) -> tuple[NDArray[np.uint64], NDArray[np.float64]]:
    """The words of frequent neighbours, joined, and how many bytes each saves as a symbol."""
    is_first = np.zeros(len(tokens) + 1, np.bool_)
    is_first[token_offsets] = True
    lefts = np.flatnonzero(~is_first[1:-1])  # the next token belongs to the same string
    counts = np.bincount(tokens[lefts] * _TOKENS + tokens[lefts + 1])
    pairs = np.flatnonzero(counts >= _MIN_PAIRS)
    if len(pairs) > _MAX_PAIRS:
        pairs = pairs[np.argpartition(-counts[pairs], _MAX_PAIRS)[:_MAX_PAIRS]]
    left, right = np.divmod(pairs, _TOKENS)
    joined = words[left] | words[right] << (8 * lengths[left]).astype(np.uint64)
    joined_lengths = np.minimum(lengths[left] + lengths[right], MAX_SYMBOL_BYTES)
    # A zero inside of a symbol would match behind the end of a string.
    usable = (lengths[left] < MAX_SYMBOL_BYTES) & (words[left] != 0) & (words[right] != 0)
    gains = counts[pairs[usable]] * joined_lengths[usable].astype(np.float64)
    return joined[usable], gains


def sample_of(
    offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]
) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """Evenly spaced pieces of the strings, side by side: their offsets and their bytes.

    ``offsets``: one more than strings; ``content``: the bytes they count into.
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
    all_cuts = np.concatenate((cuts, starts + moved + (stops - starts), [0]))
    return np.unique(all_cuts), content[inside]

"""Writing FSST: strings as one-byte codes of frequent substrings.

Every string is taken apart greedily: the longest symbol that matches comes next.  A string can only
be walked from its start, so numpy walks thousands of strings at a time, one symbol per step; long
strings are cut into pieces that are walked side by side, which costs half a symbol at each cut. The
pieces are copied into rows of one width, with zeros behind each.

Source: docs/format/file-format.md, section 6.4 (7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.fsst import ESCAPE, MAX_SYMBOL_BYTES
from pyspark_lance.codec.compressive.fsst_symbols import LENGTH_SHIFT, LITERALS, Matcher

_MAX_PIECE_BYTES: Final = 64
# Pieces walked side by side. What numpy costs per step counts for little with so many, and their
# text, eight bytes for each position, is still in the cache.
_LANES: Final = 8192
# Zeros behind each piece: no symbol of two bytes and more has one, so none reaches behind it.
_GAP: Final = MAX_SYMBOL_BYTES
# All bytes of a piece, by its length, and none behind it.
_INSIDE: Final = np.tri(_MAX_PIECE_BYTES + 1, _MAX_PIECE_BYTES + _GAP, -1, np.uint8) * np.uint8(255)
# Looking for pieces at their end costs as much as a third of a step.
_STEPS_AT_A_TIME: Final = 2
# As soon as fewer of the pieces walk, the others are left out.
_WORTH_WALKING: Final = 0.75
_NEVER: Final = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """Strings taken apart.

    Attributes:
        offsets: One more than strings, int64: where the codes of each are.
        content: Codes; ``ESCAPE`` stands before a byte that is no code.
    """

    offsets: NDArray[np.int64]
    content: NDArray[np.uint8]


def encode_strings(
    offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8], matcher: Matcher
) -> Codes:
    """The codes of all strings.

    Args:
        offsets: One more than strings.
        content: The bytes they count into.
        matcher: Finds the symbols.
    """
    borders, string_borders = cut(offsets.astype(np.int64))
    ends = np.zeros(len(borders), np.int64)
    parts: list[NDArray[np.uint8]] = []
    position = 0
    for first in range(0, len(borders) - 1, _LANES):
        last = min(first + _LANES, len(borders) - 1)
        codes = _encode_block(borders[first : last + 1], content, matcher)
        ends[first + 1 : last + 1] = codes.offsets[1:] + position
        position += len(codes.content)
        parts.append(codes.content)
    joined = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return Codes(ends if string_borders is None else ends[string_borders], joined)


def cut(
    borders: NDArray[np.int64], longest: int = _MAX_PIECE_BYTES
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Borders of pieces, and which are borders of strings; None for all.

    Args:
        borders: Of the strings.
        longest: Bytes of a piece at most; few bytes if most strings have only few.
    """
    lengths = borders[1:] - borders[:-1]
    if not len(lengths):
        return borders, None
    mean = -((borders[0] - borders[-1]) // len(lengths))
    size = min(longest, max(8, 2 * int(mean)))
    if int(lengths.max()) <= size:
        return borders, None
    pieces = np.maximum(-(-lengths // size), 1)
    string_borders = np.append(0, np.cumsum(pieces))
    count = int(string_borders[-1])
    starts = np.arange(0, (count + 1) * size, size)
    starts[:-1] += np.repeat(borders[:-1] - string_borders[:-1] * size, pieces)
    starts[-1] = borders[-1]
    return starts, string_borders


def _encode_block(
    borders: NDArray[np.int64], content: NDArray[np.uint8], matcher: Matcher
) -> Codes:
    """Some short pieces that lie side by side."""
    tokens = tokens_of(borders, content, matcher)
    found = tokens.content.astype(np.uint8)
    escapes = (tokens.content >= LITERALS).nonzero()[0]
    if not len(escapes):
        return Codes(tokens.offsets, found)
    codes = np.full(len(found) + len(escapes), ESCAPE, np.uint8)
    is_token = np.ones(len(codes), np.bool_)
    is_token[escapes + np.arange(len(escapes))] = False
    codes[is_token] = found
    piece = np.searchsorted(tokens.offsets, escapes, side="right")
    escapes_before = np.bincount(piece, minlength=len(tokens.offsets)).cumsum()
    return Codes(tokens.offsets + escapes_before, codes)


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Pieces taken apart.

    Attributes:
        offsets: One more than pieces, int64: where the tokens of each are.
        content: Codes, or ``LITERALS`` and a byte that has none.
    """

    offsets: NDArray[np.int64]
    content: NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """Steps of the same pieces side by side.

    Attributes:
        pieces: Which ones.
        steps: The tokens of each step.
    """

    pieces: NDArray[np.int64]
    steps: list[NDArray[np.uint16]]


def tokens_of(borders: NDArray[np.int64], content: NDArray[np.uint8], matcher: Matcher) -> Tokens:
    """Takes short pieces apart.

    All pieces are walked side by side. Those at their end walk on until it pays to leave them
    out; what they find there does not count.
    """
    lengths = borders[1:] - borders[:-1]
    words, starts = _words_of(borders, lengths, content)
    walking = lengths.nonzero()[0]
    positions = starts[walking]
    ends = positions + lengths[walking]
    counts = np.zeros(len(lengths), np.int64)
    walks = [_Walk(walking, [])]
    num_steps, left = 0, len(walking)
    while left:
        for _ in range(_STEPS_AT_A_TIME):
            before = positions
            found = matcher.longest(words.take(positions))
            walks[-1].steps.append(found.astype(np.uint16))
            found >>= LENGTH_SHIFT
            found += before
            positions = found
        num_steps += _STEPS_AT_A_TIME
        arrived = (positions >= ends).nonzero()[0]
        if not len(arrived):
            continue
        counts[walking[arrived]] = num_steps - (before[arrived] >= ends[arrived])
        left -= len(arrived)
        ends[arrived] = _NEVER
        if left < _WORTH_WALKING * len(walking):
            still = (ends != _NEVER).nonzero()[0]
            walking, positions, ends = walking[still], positions[still], ends[still]
            walks.append(_Walk(walking, []))
    return _in_order(walks, counts, num_steps)


def _in_order(walks: list[_Walk], counts: NDArray[np.int64], num_steps: int) -> Tokens:
    """The tokens of each piece one behind another.

    From the last step to the first: what a piece found behind its end takes places that others
    fill at earlier steps.
    """
    offsets = np.append(0, counts.cumsum())
    total = int(offsets[-1])
    tokens = np.empty(total + num_steps, np.uint16)
    number = num_steps
    for walk in reversed(walks):
        places = offsets.take(walk.pieces)
        for found in reversed(walk.steps):
            number -= 1
            tokens[number:][places] = found
    return Tokens(offsets, tokens[:total])


def _words_of(
    borders: NDArray[np.int64], lengths: NDArray[np.int64], content: NDArray[np.uint8]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The eight bytes from every position of the pieces on, and where each piece starts.

    Zeros follow every piece, and so many the last one that nobody walks behind them.
    """
    count, longest = len(lengths), int(lengths.max(initial=1))
    width = longest + _GAP
    first, end = int(borders[0]), int(borders[-1])
    if end + width > len(content):
        content = np.append(content[first:end], np.zeros(width, np.uint8))
        borders = borders - first
    rows = _overlapping(content, np.dtype(f"V{width}"))
    masks = np.ascontiguousarray(_INSIDE[: longest + 1, :width]).view(rows.dtype)[:, 0]
    padded = np.zeros(count * width + MAX_SYMBOL_BYTES * (longest + 2), np.uint8)
    np.bitwise_and(
        rows[borders[:-1]].view(np.uint8),
        masks.take(lengths).view(np.uint8),
        out=padded[: count * width],
    )
    words = np.ascontiguousarray(_overlapping(padded, np.dtype("<u8")))
    return words, np.arange(count) * width


def _overlapping(content: NDArray[np.uint8], kind: np.dtype[Any]) -> NDArray[Any]:
    """An element from every byte on."""
    return np.lib.stride_tricks.as_strided(
        content[: kind.itemsize].view(kind),
        (len(content) - kind.itemsize + 1,),
        (1,),
        writeable=False,
    )

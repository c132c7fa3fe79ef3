"""Writing FSST: strings as one-byte codes of frequent substrings.

Every string is taken apart greedily: the longest symbol that matches comes next.  A string can only
be walked from its start, so numpy walks thousands of strings at a time, one symbol per step; long
strings are cut into pieces that are walked side by side, which costs half a symbol at each cut.

Source: file-format.md section 6.4 (7).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.fsst import ESCAPE
from pyspark_lance.codec.compressive.fsst_symbols import LITERALS, Matcher

_PIECE_BYTES: Final = 128
_BLOCK_BYTES: Final = 1 << 19


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
    borders, string_borders = _cut(offsets.astype(np.int64))
    ends = np.zeros(len(borders), np.int64)
    parts: list[NDArray[np.uint8]] = []
    first, position, last_piece = 0, 0, len(borders) - 1
    while first < last_piece:
        last = int(np.searchsorted(borders, borders[first] + _BLOCK_BYTES, side="right")) - 1
        pieces = borders[first : last + 1]
        start = int(pieces[0])
        codes = _encode_block(pieces - start, content[start : int(pieces[-1])], matcher)
        ends[first + 1 : last + 1] = codes.offsets[1:] + position
        position += len(codes.content)
        parts.append(codes.content)
        first = last
    joined = np.concatenate(parts) if parts else np.zeros(0, np.uint8)
    return Codes(ends if string_borders is None else ends[string_borders], joined)


def _cut(
    borders: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Borders of pieces, none of them long, and which are borders of strings; None for all."""
    pieces = -((borders[:-1] - borders[1:]) // _PIECE_BYTES)
    if int(pieces.max(initial=0)) <= 1:
        return borders, None
    np.maximum(pieces, 1, out=pieces)
    string_borders = np.append(0, np.cumsum(pieces))
    within = np.arange(int(string_borders[-1])) - np.repeat(string_borders[:-1], pieces)
    starts = np.repeat(borders[:-1], pieces) + within * _PIECE_BYTES
    return np.append(starts, borders[-1]), string_borders


def _encode_block(
    borders: NDArray[np.int64], content: NDArray[np.uint8], matcher: Matcher
) -> Codes:
    """Some pieces that lie side by side; the first starts at 0."""
    tokens = tokens_of(borders, content, matcher)
    found = tokens.content
    escapes = np.flatnonzero(found >= LITERALS)
    if not len(escapes):
        return Codes(tokens.offsets, found.astype(np.uint8))
    ends = np.arange(1, len(found) + 1)
    ends += (found >= LITERALS).cumsum()
    codes = np.empty(int(ends[-1]), np.uint8)
    codes[ends - 1] = found.astype(np.uint8)
    codes[ends[escapes] - 2] = ESCAPE
    return Codes(np.append(0, ends)[tokens.offsets], codes)


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Pieces taken apart.

    Attributes:
        offsets: One more than pieces, int64: where the tokens of each are.
        content: Codes, or ``LITERALS`` and a byte that has none.
    """

    offsets: NDArray[np.int64]
    content: NDArray[np.uint16]


def tokens_of(borders: NDArray[np.int64], content: NDArray[np.uint8], matcher: Matcher) -> Tokens:
    """Takes pieces apart, the first of which starts at 0.

    All pieces are walked side by side; those at their end are left out from the next step on.
    """
    counts = np.zeros(len(borders) - 1, np.int64)
    walking = (borders[1:] > borders[:-1]).nonzero()[0]
    positions, ends = borders[walking], borders[walking + 1]
    words = _words_at(content)
    steps: list[tuple[NDArray[np.int64], NDArray[np.uint16]]] = []
    while len(walking):
        found = matcher.longest(words.take(positions))
        following = positions + matcher.lengths.take(found)
        over = (following > ends).nonzero()[0]
        if len(over):
            # Matched bytes of the next piece; look again without them.
            left = ends[over] - positions[over]
            found[over] = matcher.longest(words[positions[over]] & _LOW_BYTES[left])
            following[over] = positions[over] + matcher.lengths[found[over]]
        steps.append((walking, found.astype(np.uint16)))
        active = (following < ends).nonzero()[0]
        if len(active) == len(walking):
            positions = following
            continue
        counts[walking] = len(steps)
        walking, ends = walking.take(active), ends.take(active)
        positions = following.take(active)
    offsets = np.append(0, counts.cumsum())
    tokens = np.empty(int(offsets[-1]), np.uint16)
    before = places = None
    for number, (pieces, found_here) in enumerate(steps):
        if places is not None and pieces is before:
            places += 1
        else:
            places = offsets.take(pieces) + number
        before = pieces
        tokens[places] = found_here
    return Tokens(offsets, tokens)


_LOW_BYTES: Final = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)


def _words_at(content: NDArray[np.uint8]) -> NDArray[np.uint64]:
    """The eight bytes from every position on, zeros behind the end."""
    padded = np.zeros(len(content) + 8, np.uint8)
    padded[: len(content)] = content
    overlapping = np.lib.stride_tricks.as_strided(
        padded[:8].view("<u8"), (len(content),), (1,), writeable=False
    )
    return np.ascontiguousarray(overlapping)

"""Writing FSST: strings as one-byte codes of frequent substrings.

Every string is taken apart greedily: the longest symbol that matches comes next.  A string can only
be walked from its start, so numpy walks thousands of strings at a time, one symbol per step; long
strings are cut into pieces that are walked side by side, which costs half a symbol at each cut::

    strings       offsets       int64  (num_strings + 1,)  into content, uint8
    pieces        piece_offsets int64  (num_pieces + 1,)   into the same content
                  first_pieces  int64  (num_strings + 1,)  the piece with which a string begins
    rows          padded        uint8  (num_pieces, width) a piece and zeros, one width for all
                  words         uint64 (num_pieces * width,) the 8 bytes from each position on
    a step        positions     int64  (num_walking,)      where each piece has come to, in words
                  tokens        uint16 (num_walking,)      what it met: a code, or 256 + a byte
    codes         content       uint8  (num_codes,)        a token from 256 on becomes 255, byte

Zeros stand behind each piece, and no symbol of two bytes and more has a zero, so none that is met
reaches behind the piece.

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
    """Strings taken apart."""

    offsets: NDArray[np.int64]  # One more than strings, int64: where the codes of each are.
    content: NDArray[np.uint8]  # Codes; ``ESCAPE`` stands before a byte that is no code.


def encode_strings(
    offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8], matcher: Matcher
) -> Codes:
    """The codes of all strings.

    ``offsets``: one more than strings; ``content``: the bytes they count into.
    """
    piece_offsets, first_pieces = cut_into_pieces(offsets.astype(np.int64))
    num_pieces = len(piece_offsets) - 1
    code_offsets = np.zeros(num_pieces + 1, np.int64)
    blocks: list[NDArray[np.uint8]] = []
    num_codes = 0
    for first in range(0, num_pieces, _LANES):
        last = min(first + _LANES, num_pieces)
        codes = _encode_block(piece_offsets[first : last + 1], content, matcher)
        code_offsets[first + 1 : last + 1] = codes.offsets[1:] + num_codes
        num_codes += len(codes.content)
        blocks.append(codes.content)
    joined = np.concatenate(blocks) if blocks else np.zeros(0, np.uint8)
    return Codes(code_offsets if first_pieces is None else code_offsets[first_pieces], joined)


def cut_into_pieces(
    offsets: NDArray[np.int64], longest: int = _MAX_PIECE_BYTES
) -> tuple[NDArray[np.int64], NDArray[np.int64] | None]:
    """Offsets of pieces, and the piece with which each string begins; None if none was cut.

    ``offsets``: of the strings, shape (num_strings + 1,). ``longest``: bytes of a piece at most;
    few bytes if most strings have only few.
    """
    lengths = offsets[1:] - offsets[:-1]
    if not len(lengths):
        return offsets, None
    mean = -((offsets[0] - offsets[-1]) // len(lengths))
    size = min(longest, max(8, 2 * int(mean)))
    if int(lengths.max()) <= size:
        return offsets, None
    pieces_of_string = np.maximum(-(-lengths // size), 1)
    first_pieces = np.append(0, np.cumsum(pieces_of_string))
    num_pieces = int(first_pieces[-1])
    piece_offsets = np.arange(0, (num_pieces + 1) * size, size)
    piece_offsets[:-1] += np.repeat(offsets[:-1] - first_pieces[:-1] * size, pieces_of_string)
    piece_offsets[-1] = offsets[-1]
    return piece_offsets, first_pieces


def _encode_block(
    piece_offsets: NDArray[np.int64], content: NDArray[np.uint8], matcher: Matcher
) -> Codes:
    """Some short pieces that lie side by side."""
    tokens = tokens_of(piece_offsets, content, matcher)
    low_bytes = tokens.content.astype(np.uint8)
    escapes = (tokens.content >= LITERALS).nonzero()[0]
    if not len(escapes):
        return Codes(tokens.offsets, low_bytes)
    codes = np.full(len(low_bytes) + len(escapes), ESCAPE, np.uint8)
    is_token = np.ones(len(codes), np.bool_)
    is_token[escapes + np.arange(len(escapes))] = False
    codes[is_token] = low_bytes
    piece = np.searchsorted(tokens.offsets, escapes, side="right")
    escapes_before = np.bincount(piece, minlength=len(tokens.offsets)).cumsum()
    return Codes(tokens.offsets + escapes_before, codes)


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    """Pieces taken apart.

    ``offsets``: one more than pieces, int64: where the tokens of each are; ``content``: codes, or
    ``LITERALS`` and a byte that has none.
    """

    offsets: NDArray[np.int64]
    content: NDArray[np.uint16]


@dataclass(frozen=True, slots=True, eq=False)
class _Walk:
    """Steps of the same pieces side by side.

    ``steps``: the tokens of each step.
    """

    pieces: NDArray[np.int64]
    steps: list[NDArray[np.uint16]]


def tokens_of(
    piece_offsets: NDArray[np.int64], content: NDArray[np.uint8], matcher: Matcher
) -> Tokens:
    """Take short pieces apart.

    All pieces are walked side by side. Those at their end walk on until it pays to leave them
    out; what they find there does not count.
    """
    lengths = piece_offsets[1:] - piece_offsets[:-1]
    words, starts = _words_of(piece_offsets, lengths, content)
    walking = lengths.nonzero()[0]
    positions = starts[walking]
    ends = positions + lengths[walking]
    counts = np.zeros(len(lengths), np.int64)
    walks = [_Walk(walking, [])]
    num_steps, left = 0, len(walking)
    while left:
        for _ in range(_STEPS_AT_A_TIME):
            before = positions
            # The length of each match is above its token; both become the next positions in place.
            matches = matcher.longest(words.take(positions))
            walks[-1].steps.append(matches.astype(np.uint16))
            matches >>= LENGTH_SHIFT
            matches += before
            positions = matches
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
        for step in reversed(walk.steps):
            number -= 1
            tokens[number:][places] = step
    return Tokens(offsets, tokens[:total])


def _words_of(
    piece_offsets: NDArray[np.int64], lengths: NDArray[np.int64], content: NDArray[np.uint8]
) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The eight bytes from every position of the pieces on, and where each piece starts.

    Zeros follow every piece; enough follow the last one that no read goes past them.
    """
    count, longest = len(lengths), int(lengths.max(initial=1))
    width = longest + _GAP
    first, end = int(piece_offsets[0]), int(piece_offsets[-1])
    if end + width > len(content):
        content = np.append(content[first:end], np.zeros(width, np.uint8))
        piece_offsets = piece_offsets - first
    rows = _overlapping(content, np.dtype(f"V{width}"))
    masks = np.ascontiguousarray(_INSIDE[: longest + 1, :width]).view(rows.dtype)[:, 0]
    padded = np.zeros(count * width + MAX_SYMBOL_BYTES * (longest + 2), np.uint8)
    np.bitwise_and(
        rows[piece_offsets[:-1]].view(np.uint8),
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

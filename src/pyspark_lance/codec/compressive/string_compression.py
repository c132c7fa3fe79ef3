"""Compression of strings and binaries before they are written to a page.

Text becomes FSST codes if a sample shows that this saves space, as in pylance; values of tens of
kilobytes are compressed one by one.

FSST: train symbols on a sample, and replace them by one-byte codes. A symbol of three bytes and
more is found by a hash of its first three bytes, so there is only one for each hash; shorter ones
by the first two bytes. Only symbols of one byte may contain a zero, because zeros stand for bytes
behind the end of a string.

Every string is encoded greedily: the longest symbol that matches comes next.  A string can only
be walked from its start, so numpy walks thousands of strings at a time, one symbol per step; long
strings are cut into pieces that are walked side by side, which costs half a symbol at each cut::

    strings       offsets       int64  (num_strings + 1,)  into content, uint8
    pieces        piece_offsets int64  (num_pieces + 1,)   into the same content
                  first_pieces  int64  (num_strings + 1,)  the piece with which a string begins
    rows          padded        uint8  (num_pieces, width) a piece and zeros, one width for all
                  words         uint64 (num_pieces * width,) the 8 bytes from each position on
    a step        positions     int64  (num_walking,)      where each piece has come to, in words
                  tokens        uint16 (num_walking,)      what was found: a code, or 256 + a byte
    codes         content       uint8  (num_codes,)        a token from 256 on becomes 255, byte

Zeros follow each piece, and no symbol of two bytes and more has a zero, so none that is met
reaches behind the piece.

Symbols are chosen as in the paper (Boncz, Neumann, Leis: FSST, 2020): encode a sample of the
strings with the symbols so far, count how often each symbol and each pair of neighbours occurs,
keep those that save most, and repeat; symbols grow by joining neighbours::

    sample      uint8  (num_bytes,)          about 16 KiB in pieces of 64 bytes
    offsets     int64  (num_strings + 1,)    where strings begin in the sample
    tokens      int64  (num_tokens,)         of the sample: 0 … 254 a symbol, 256 + a byte without
    words       uint64 (512,)                the bytes of each token, the first one lowest
    lengths     int64  (512,)                how many those are
    candidates  uint64 (num_candidates,)     words that may become symbols; with gains, float64

Source: docs/format/file-format.md, sections 6.3, 6.4 and 11.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.block_compression import block_compressor, general
from pyspark_lance.codec.compressive.fsst import ESCAPE, MAX_SYMBOL_BYTES, TABLE_BYTES, table_header
from pyspark_lance.codec.compressive.variable_width import variable
from pyspark_lance.codec.row_selection import expand_ranges
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

_MIN_TEXT_BYTES: Final = 1 << 15
_MIN_LONGEST: Final = 5
_HUGE_VALUE: Final = 1 << 15
# Compressing costs some microseconds per value.
_MIN_MEAN_OF_HUGE: Final = 1 << 12
_GAIN: Final = 0.9
# Symbols of another page are used again if they make at most so many codes more.
_STILL_GOOD: Final = 1.05
_SAMPLE_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True, eq=False)
class StoredStrings:
    """Values of variable width as they are stored."""

    # One more than values, of the width that the page says.
    offsets: NDArray[np.signedinteger[Any]]
    content: NDArray[np.uint8]  # The bytes they count into.
    encoding: pb.CompressiveEncoding  # What the bytes are.


def plain_strings(
    offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]
) -> StoredStrings:
    """The values as they are."""
    return StoredStrings(offsets, content, variable(offsets.itemsize * 8))


class FsstColumn:
    """Encoder to FSST codes; reuses the symbol table from page to page while it fits."""

    def __init__(self) -> None:
        self._matcher: Matcher | None = None
        self._table = b""
        self._share = 0.0

    def shrink_text(self, strings: StoredStrings) -> StoredStrings:
        """The strings as codes, or as they are if that saves little."""
        offsets = strings.offsets
        total = int(offsets[-1]) - int(offsets[0])
        if total < _MIN_TEXT_BYTES or int(np.diff(offsets).max()) < _MIN_LONGEST:
            return strings
        return self._encode(strings, _GAIN)

    def encode(self, strings: StoredStrings) -> StoredStrings:
        """The strings as codes, however many these are."""
        return self._encode(strings, np.inf)

    def _encode(self, strings: StoredStrings, gain: float) -> StoredStrings:
        offsets, content = strings.offsets, strings.content
        sample_offsets, sample = sample_of(offsets, content)
        matcher = self._matcher
        if (
            matcher is None
            or _coded_share(sample_offsets, sample, matcher) > _STILL_GOOD * self._share
        ):
            symbols = train_symbols(sample_offsets, sample)
            matcher = Matcher(symbols)
            self._matcher, self._table = matcher, symbols.to_bytes()
            self._share = _coded_share(sample_offsets, sample, matcher)
        if self._share > gain:
            return strings
        codes = encode_strings(offsets, content, matcher)
        if int(codes.offsets[-1]) > np.iinfo(offsets.dtype).max:
            return strings
        encoding = pb.CompressiveEncoding(
            fsst=pb.Fsst(symbol_table=self._table, values=strings.encoding)
        )
        return StoredStrings(codes.offsets.astype(offsets.dtype), codes.content, encoding)


def _coded_share(offsets: NDArray[np.int64], sample: NDArray[np.uint8], matcher: Matcher) -> float:
    """Return the number of codes per byte."""
    pieces, _ = cut_into_pieces(offsets, STEP_BYTES)
    tokens = tokens_of(pieces, sample, matcher).content
    codes = len(tokens) + int(np.count_nonzero(tokens >= LITERALS))
    return codes / max(1, len(sample))


def smaller_huge_values(
    strings: StoredStrings, nulls: NDArray[np.bool_] | None
) -> StoredStrings | None:
    """Values of tens of kilobytes compressed one by one; None if they are not so large."""
    offsets = strings.offsets
    total, count = int(offsets[-1]) - int(offsets[0]), len(offsets) - 1
    if int(np.diff(offsets).max()) <= _HUGE_VALUE or total < _MIN_MEAN_OF_HUGE * count:
        return None
    some = strings.content[int(offsets[0]) : int(offsets[0]) + _SAMPLE_BYTES]
    if len(block_compressor("zstd", None)(some)) > _GAIN * len(some):
        return strings
    return compress_values(strings, nulls, "zstd", None)


def compress_values(
    strings: StoredStrings, nulls: NDArray[np.bool_] | None, scheme: str, level: int | None
) -> StoredStrings:
    """Compress every value by itself; nulls stay without any bytes.

    ``nulls``: true where a value does not matter; it is empty. ``scheme``: ``lz4`` or ``zstd``;
    ``level``: compression level, None for the default.
    """
    compress = block_compressor(scheme, level)
    absent = set() if nulls is None else set(np.flatnonzero(nulls).tolist())
    content = strings.content.data
    pieces = [
        b"" if start == end and index in absent else compress(content[start:end])
        for index, (start, end) in enumerate(pairwise(strings.offsets.tolist()))
    ]
    offsets = np.zeros(len(strings.offsets), np.int64)
    np.cumsum([len(piece) for piece in pieces], out=offsets[1:])
    if int(offsets[-1]) > np.iinfo(strings.offsets.dtype).max:
        return strings
    return StoredStrings(
        offsets.astype(strings.offsets.dtype),
        np.frombuffer(b"".join(pieces), np.uint8),
        general(scheme, level, strings.encoding),
    )


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
    """Lookup of the longest symbol at the start of a word."""

    def __init__(self, symbols: Symbols) -> None:
        steps = np.arange(len(symbols.words)) | symbols.lengths << LENGTH_SHIFT
        is_long = symbols.lengths > 2
        indices = _hashes(symbols.words[is_long])
        # No masked word is 1 where the mask is 0.
        self._words = np.ones(1 << _HASH_BITS, np.uint64)
        self._masks = np.zeros(1 << _HASH_BITS, np.uint64)
        self._words[indices] = symbols.words[is_long]
        unused_bits = 64 - 8 * symbols.lengths[is_long].astype(np.uint64)
        self._masks[indices] = np.uint64(0xFFFFFFFFFFFFFFFF) >> unused_bits
        # By the first two bytes, and behind them by hash.
        self._steps = np.zeros(_PAIRS + (1 << _HASH_BITS), np.int64)
        self._steps[_PAIRS + indices] = steps[is_long]
        by_pair = self._steps[:_PAIRS].reshape(256, 256)  # second byte, first byte
        by_pair[:] = (LITERALS + np.arange(256)) | 1 << LENGTH_SHIFT
        singles, pairs = symbols.lengths == 1, symbols.lengths == 2
        by_pair[:, symbols.words[singles].astype(np.int64)] = steps[singles]
        self._steps[symbols.words[pairs].astype(np.int64)] = steps[pairs]

    def longest(self, words: NDArray[np.uint64]) -> NDArray[np.int64]:
        """The token at the start of each word, and its length above ``LENGTH_SHIFT``."""
        indices = _hashes(words)
        prefixes = self._masks.take(indices)
        prefixes &= words
        hit = prefixes == self._words.take(indices)
        indices += _PAIRS
        return self._steps.take(np.where(hit, indices, (words & _PAIR_MASK).view(np.int64)))


def _hashes(words: NDArray[np.uint64]) -> NDArray[np.int64]:
    """A number below ``2 ** _HASH_BITS`` from the first three bytes."""
    mixed = words * _HASH_FACTOR
    mixed >>= _HASH_SHIFT
    return mixed.view(np.int64)


def best_symbols(words: NDArray[np.uint64], gains: NDArray[np.float64]) -> Symbols:
    """The most worthwhile symbols that can be found together.

    ``words``: distinct candidates of 1 to 8 bytes; ``gains``: the gain of each.
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
    """Encode some short consecutive pieces."""
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
class _MatchStep:
    """Steps of the same pieces side by side.

    ``steps``: the tokens of each step.
    """

    pieces: NDArray[np.int64]
    steps: list[NDArray[np.uint16]]


def tokens_of(
    piece_offsets: NDArray[np.int64], content: NDArray[np.uint8], matcher: Matcher
) -> Tokens:
    """Tokenize short pieces.

    All pieces are walked side by side. Those at their end walk on until it pays to leave them
    out; what they find there does not count.
    """
    lengths = piece_offsets[1:] - piece_offsets[:-1]
    words, starts = _words_of(piece_offsets, lengths, content)
    walking = lengths.nonzero()[0]
    positions = starts[walking]
    ends = positions + lengths[walking]
    counts = np.zeros(len(lengths), np.int64)
    walks = [_MatchStep(walking, [])]
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
            walks.append(_MatchStep(walking, []))
    return _in_order(walks, counts, num_steps)


def _in_order(walks: list[_MatchStep], counts: NDArray[np.int64], num_steps: int) -> Tokens:
    """The tokens of each piece, concatenated.

    From the last step to the first: what a piece found behind its end takes places that others
    fill at earlier steps.
    """
    offsets = np.append(0, counts.cumsum())
    total = int(offsets[-1])
    tokens = np.empty(total + num_steps, np.uint16)
    number = num_steps
    for walk in reversed(walks):
        indices = offsets.take(walk.pieces)
        for step in reversed(walk.steps):
            number -= 1
            tokens[number:][indices] = step
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


_FSST_SAMPLE_BYTES: Final = 1 << 14
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
    """Improve the symbols in one round of training."""
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
    starts = np.unique(
        np.linspace(first, end, _FSST_SAMPLE_BYTES // _PIECE_BYTES + 1).astype(np.int64)
    )
    stops = np.minimum(starts + _PIECE_BYTES, np.append(starts[1:], end))
    inside = expand_ranges(starts, stops - starts)
    # Where strings begin inside of the pieces, moved to where the pieces are now.
    begins = np.searchsorted(offsets, starts, side="left")
    counts = np.searchsorted(offsets, stops, side="left") - begins
    moved = np.cumsum(stops - starts) - stops
    cuts = offsets[expand_ranges(begins, counts)] + np.repeat(moved, counts)
    all_cuts = np.concatenate((cuts, starts + moved + (stops - starts), [0]))
    return np.unique(all_cuts), content[inside]

"""Postings and positions of an inverted index, decoded for all their blocks at once.

A block of 128 or 256 numbers is packed in 4 or 8 lanes: number i is in lane i mod 4 (or 8), and a
lane is packed low bits first into words of 32 bits.  The last block of a posting list is not full,
and not packed.

Observed in pylance 14.0.2, formats 1 to 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError

_Bytes = NDArray[np.uint8]
_Numbers = NDArray[np.int64]
_NUMBERS_OF_LANE: Final = 32
# A run of positions is packed in groups of so many, whatever the blocks of the postings have.
_POSITIONS_OF_GROUP: Final = 128
# A varint of 32 bits has no more bytes.
_MAX_VARINT: Final = 5
_MAX_LENGTH_CODE: Final = 255


@dataclass(frozen=True, slots=True)
class PostingFormat:
    """Encoding of the postings of a partition."""

    block_size: int  # 128 or 256.
    varint_tail: bool  # Whether the last block is of varints; else of 32-bit numbers.

    @property
    def lanes(self) -> int:
        """Lanes of a block."""
        return self.block_size // _NUMBERS_OF_LANE

    @property
    def score_bytes(self) -> int:
        """Bytes before each block, for a score."""
        return 4 if self.block_size == _POSITIONS_OF_GROUP else 0


def check_blocks(offsets: _Numbers, length: int, kind: PostingFormat) -> None:
    """Check the number of blocks of a posting list."""
    if len(offsets) - 1 != -(-length // kind.block_size):
        raise CorruptFileError(f"{len(offsets) - 1} blocks of postings for {length} documents")


def decode_blocks(
    data: _Bytes, offsets: _Numbers, length: int, kind: PostingFormat, blocks: _Numbers
) -> tuple[_Numbers, _Numbers]:
    """Return the documents of some blocks, ascending, and the frequency of the token in each.

    ``data``, ``offsets``: the concatenated blocks, and the start of each, the end last; ``length``:
    number of documents of all; ``blocks``: ascending, without duplicates.
    """
    size = kind.block_size
    full, rest = divmod(length, size)
    if not len(blocks) or blocks[-1] < full:
        rest = 0
    packed = blocks[: len(blocks) - (rest > 0)]
    count = len(packed) * size
    documents = np.empty(count + rest, np.int64)
    frequencies = np.empty(count + rest, np.int64)
    if count:
        starts = offsets[packed] + kind.score_bytes
        widths = data[starts + 4].astype(np.int64)
        deltas, ends = _unpack(data, starts + 5, widths, kind.lanes)
        sums = np.cumsum(deltas, axis=1, out=deltas)
        sums += _fixed32(data, starts)[:, None]
        documents[:count] = sums.ravel()
        frequencies[:count] = _frequencies(data, ends, kind).ravel()
    if rest:
        start, end = int(offsets[full]) + kind.score_bytes, int(offsets[full + 1])
        tail = _tail(data[start:end], rest, varint=kind.varint_tail)
        documents[count:] = np.cumsum(tail[:rest]) if kind.varint_tail else tail[:rest]
        frequencies[count:] = tail[rest:]
    return documents, frequencies


def decode_lists(
    data: _Bytes, offsets: _Numbers, parts: _Numbers, lengths: _Numbers, kind: PostingFormat
) -> tuple[_Numbers, _Numbers]:
    """Return the documents of many lists, concatenated, and the frequency of the token in each.

    ``data``, ``offsets``: the blocks of all lists, and the start of each, the end last; ``parts``:
    the first block of each list, the end last; ``lengths``: documents of each list.
    """
    size = kind.block_size
    if not np.array_equal(np.diff(parts), -(-lengths // size)):
        raise CorruptFileError("posting lists have other blocks than their lengths need")
    rests = (lengths % size)[lengths % size > 0]
    tails = parts[1:][lengths % size > 0] - 1
    sizes = np.full(len(offsets) - 1, size)
    sizes[tails] = rests
    firsts = np.cumsum(sizes) - sizes
    documents, frequencies = np.empty((2, int(sizes.sum())), np.int64)
    packed = np.setdiff1d(np.arange(len(sizes)), tails, assume_unique=True)
    if len(packed):
        starts = offsets[packed] + kind.score_bytes
        widths = data[starts + 4].astype(np.int64)
        deltas, ends = _unpack(data, starts + 5, widths, kind.lanes)
        indices = firsts[packed][:, None] + np.arange(size)
        documents[indices] = np.cumsum(deltas, axis=1) + _fixed32(data, starts)[:, None]
        frequencies[indices] = _frequencies(data, ends, kind)
    if len(tails):
        starts = offsets[tails] + kind.score_bytes
        content = slices_of(data, starts, offsets[tails + 1] - starts)
        count = int(rests.sum())
        if kind.varint_tail and np.count_nonzero(content < 0x80) != 2 * count:
            raise CorruptFileError("the ends of posting lists have other numbers than documents")
        numbers = _tail(content, count, varint=kind.varint_tail)
        # Of each list first the documents, then the frequencies.
        before = np.cumsum(rests) - rests
        own = np.arange(count) + np.repeat(before, rests)
        found = numbers[own]
        indices = np.arange(count) + np.repeat(firsts[tails] - before, rests)
        documents[indices] = _sums_by_document(found, rests) if kind.varint_tail else found
        frequencies[indices] = numbers[own + np.repeat(rests, rests)]
    return documents, frequencies


def first_documents(data: _Bytes, offsets: _Numbers, length: int, kind: PostingFormat) -> _Numbers:
    """Return the first document of each block."""
    starts = offsets[:-1] + kind.score_bytes
    full, rest = divmod(length, kind.block_size)
    if not (rest and kind.varint_tail):
        return _fixed32(data, starts)
    last = decode_varints(data[starts[full] :], 1)
    return np.concatenate([_fixed32(data, starts[:full]), last])


def decode_impacts(data: _Bytes, offsets: _Numbers) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Return entries, frequencies and lengths: pairs that no other of their entry beats.

    ``data``, ``offsets``: the concatenated entries, and the start of each, the end last.
    Entries ascend. A length is the least of those that have its leading four bits.

    Raises:
        CorruptFileError: These are no impacts.
    """
    is_last = data < 0x80
    numbers = decode_varints(data, int(np.count_nonzero(is_last)))
    ends = np.concatenate([[0], np.cumsum(is_last)])
    # An entry is its last document, the number of pairs, and the pairs: of one varint or two.
    position, behind = ends[offsets[:-1]] + 2, ends[offsets[1:]]
    counts = numbers[position - 1] if (position <= behind).all() else np.full(len(position), -1)
    left = behind - position
    if ((counts < 0) | (counts > left) | (2 * counts < left)).any():
        raise CorruptFileError("impacts of a posting list cannot be read")
    entries = np.repeat(np.arange(len(counts)), counts)
    firsts = np.cumsum(counts) - counts
    often, codes = np.empty((2, len(entries)), np.int64)
    last_often, last_code = np.zeros((2, len(counts)), np.int64)
    numbers = np.append(numbers, [0, 0])
    # One pair of every entry at a time: where the next begins follows from this.
    for number in range(int(counts.max(initial=0))):
        own = np.flatnonzero(counts > number)
        at = np.minimum(position[own], behind[own])
        has_jump = numbers[at] & 1
        last_often[own] += (numbers[at] >> 1) + 1
        last_code[own] += np.where(has_jump == 1, numbers[at + 1], 1)
        position[own] += 1 + has_jump
        often[firsts[own] + number], codes[firsts[own] + number] = last_often[own], last_code[own]
    if not np.array_equal(position, behind) or codes.max(initial=0) > _MAX_LENGTH_CODE:
        raise CorruptFileError("impacts of a posting list cannot be read")
    return entries, often, _least_lengths(codes)


def _least_lengths(codes: _Numbers) -> _Numbers:
    """The least length that a code is of."""
    shifts = np.maximum((codes >> 3) - 1, 0)
    return np.where(codes < 8, codes, (8 | codes & 7) << shifts)


def _frequencies(data: _Bytes, starts: _Numbers, kind: PostingFormat) -> NDArray[np.int64]:
    widths = data[starts].astype(np.int64)
    if kind.score_bytes:
        return _unpack(data, starts + 1, widths, kind.lanes)[0]
    exceptions = data[starts + 1].astype(np.int64)
    numbers, position = _unpack(data, starts + 2, widths, kind.lanes)
    # One exception of every block at a time; few blocks have more than one or two.
    for number in range(int(exceptions.max(initial=0))):
        blocks = np.flatnonzero(exceptions > number)
        indices = data[position[blocks]]
        high, ends = _varint_at(data, position[blocks] + 1)
        numbers[blocks, indices] |= high << widths[blocks]
        position[blocks] = ends
    return numbers


def _tail(data: _Bytes, count: int, *, varint: bool) -> _Numbers:
    if varint:
        return decode_varints(data, 2 * count)
    return np.frombuffer(data.tobytes(), "<u4", 2 * count).astype(np.int64)


def _fixed32(data: _Bytes, starts: _Numbers) -> _Numbers:
    """The 32-bit numbers that begin at some bytes."""
    content = data[starts[:, None] + np.arange(4)]
    return np.ascontiguousarray(content).view("<u4").ravel().astype(np.int64)


def _unpack(
    data: _Bytes, starts: _Numbers, widths: _Numbers, lanes: int
) -> tuple[NDArray[np.int64], _Numbers]:
    """The numbers of packed blocks, shape (blocks, 32 * lanes), and where each block ends."""
    numbers = np.empty((len(starts), _NUMBERS_OF_LANE * lanes), np.int64)
    for width in np.flatnonzero(np.bincount(widths)).tolist():
        blocks = np.flatnonzero(widths == width)
        if width == 0:
            numbers[blocks] = 0
            continue
        if width > 32:
            raise CorruptFileError(f"postings of {width} bits")
        first, size = starts[blocks], 4 * width * lanes
        if first.max() + size > len(data):
            raise CorruptFileError("a block of postings is cut short")
        # A view of the bytes behind each byte: blocks are copied as a whole.
        windows = np.ndarray((len(data) - size + 1, size), np.uint8, data, 0, (1, 1))
        words = windows[first].view("<u4").reshape(len(blocks), width, lanes)
        numbers[blocks] = _unpack_lanes(words, width).reshape(len(blocks), -1)
    return numbers, starts + 4 * widths * lanes


def _unpack_lanes(words: NDArray[Any], width: int) -> NDArray[Any]:
    """Shape (blocks, width, lanes) of words to (blocks, 32, lanes) of numbers."""
    layout = _lane_layout(width)
    numbers = words.take(layout.words, axis=1)
    numbers >>= layout.shifts
    if len(layout.split):
        high = words.take(layout.words[layout.split] + 1, axis=1)
        high <<= layout.high_shifts
        numbers[:, layout.split] |= high
    numbers &= layout.mask
    return numbers


@dataclass(frozen=True, slots=True, eq=False)
class _LaneLayout:
    """Positions of the numbers of a lane in its words."""

    words: _Numbers  # The word in which each number begins.
    shifts: NDArray[np.uint32]  # Lower bits of that word, of other numbers; a column.
    split: _Numbers  # The numbers that go on in the next word.
    high_shifts: NDArray[np.uint32]  # Where these bits belong; a column.
    mask: np.uint32


@lru_cache(maxsize=32)
def _lane_layout(width: int) -> _LaneLayout:
    bits = np.arange(_NUMBERS_OF_LANE) * width
    shifts = bits & 31
    split = np.flatnonzero(shifts + width > 32)
    return _LaneLayout(
        bits >> 5,
        shifts.astype(np.uint32)[:, None],
        split,
        (32 - shifts[split]).astype(np.uint32)[:, None],
        np.uint32((1 << width) - 1),
    )


def decode_varints(data: _Bytes, count: int) -> _Numbers:
    """The first ``count`` varints, which must be there."""
    ends = np.flatnonzero(data < 0x80)[:count]
    if len(ends) < count:
        raise CorruptFileError(f"{len(ends)} numbers in a posting list instead of {count}")
    if not count:
        return np.empty(0, np.int64)
    last = int(ends[-1]) + 1
    if last == count:
        return data[:last].astype(np.int64)
    starts = np.concatenate([[0], ends[:-1] + 1])
    indices = np.arange(last) - np.repeat(starts, ends + 1 - starts)
    if indices.max() >= _MAX_VARINT:
        raise CorruptFileError("a number of a posting list has too many bytes")
    parts = (data[:last] & 0x7F).astype(np.int64) << (7 * indices)
    return np.add.reduceat(parts, starts)


def _varint_at(data: _Bytes, starts: _Numbers) -> tuple[_Numbers, _Numbers]:
    """The varint that begins at each of some bytes, and where it ends."""
    value, position = np.zeros(len(starts), np.int64), starts.copy()
    more = np.arange(len(starts))
    for index in range(_MAX_VARINT):
        content = data[position[more]]
        value[more] |= (content & 0x7F).astype(np.int64) << (7 * index)
        position[more] += 1
        more = more[content >= 0x80]
    return value, position


def decode_positions(
    data: _Bytes, starts: _Numbers, ends: _Numbers, frequencies: _Numbers, counts: _Numbers
) -> _Numbers:
    """The positions of a token in the documents of some posting blocks, document after document.

    ``data``: the stream; ``starts``, ``ends``: where the run of each block is; ``frequencies``: of
    the documents of these blocks; ``counts``: positions in each run.
    """
    groups, rests = np.divmod(counts, _POSITIONS_OF_GROUP)
    firsts = np.cumsum(counts) - counts
    deltas = np.empty(int(counts.sum()), np.int64)
    position = starts.copy()
    # One group of every run at a time: where the next begins follows from the width of this.
    for number in range(int(groups.max(initial=0))):
        runs = np.flatnonzero(groups > number)
        widths = data[position[runs]].astype(np.int64)
        numbers, ends_of_group = _unpack(data, position[runs] + 1, widths, 4)
        indices = firsts[runs] + number * _POSITIONS_OF_GROUP
        deltas[indices[:, None] + np.arange(_POSITIONS_OF_GROUP)] = numbers
        position[runs] = ends_of_group
    tails = slices_of(data, position, ends - position)
    of_tails = decode_varints(tails, int(rests.sum()))
    within = np.arange(len(of_tails)) - np.repeat(np.cumsum(rests) - rests, rests)
    deltas[np.repeat(firsts + groups * _POSITIONS_OF_GROUP, rests) + within] = of_tails
    return _sums_by_document(deltas, frequencies)


def _sums_by_document(deltas: _Numbers, frequencies: _Numbers) -> _Numbers:
    """Running sums that restart with each document."""
    sums = np.cumsum(deltas)
    firsts = np.cumsum(frequencies) - frequencies
    before = sums[firsts] - deltas[firsts]
    return sums - np.repeat(before, frequencies)


def decode_legacy_positions(
    data: _Bytes, offsets: _Numbers, parts: _Numbers, frequencies: _Numbers
) -> _Numbers:
    """The positions of a token in its documents, of format 1.

    ``data``, ``offsets``: the concatenated parts of all documents, and the start of each,
    the end last; ``parts``: where the parts of each document begin, the end last.  The first part
    of a document is the number of its positions, then come full blocks and the rest.
    """
    out = np.empty(int(frequencies.sum()), np.int64)
    firsts = np.cumsum(frequencies) - frequencies
    is_short = frequencies < _POSITIONS_OF_GROUP
    short = np.flatnonzero(is_short)
    rest = parts[short] + 1
    content = slices_of(data, offsets[rest], offsets[rest + 1] - offsets[rest])
    numbers = np.frombuffer(content.tobytes(), "<u4")
    if len(numbers) != frequencies[short].sum():
        raise CorruptFileError("positions of a token do not match its frequencies")
    out[np.repeat(is_short, frequencies)] = numbers
    for document in np.flatnonzero(~is_short).tolist():
        first = int(firsts[document])
        own = range(int(parts[document]) + 1, int(parts[document + 1]))
        count = int(frequencies[document])
        for part in own:
            start, end = int(offsets[part]), int(offsets[part + 1])
            size = min(count, _POSITIONS_OF_GROUP)
            out[first : first + size] = _legacy_block(data[start:end], size)
            first, count = first + size, count - size
    return out


def _legacy_block(data: _Bytes, size: int) -> _Numbers:
    if size < _POSITIONS_OF_GROUP:
        return np.frombuffer(data.tobytes(), "<u4", size).astype(np.int64)
    start = np.zeros(1, np.int64)
    deltas, _ = _unpack(data, start + 5, data[4:5].astype(np.int64), 4)
    return np.cumsum(deltas[0]) + _fixed32(data, start)[0]


def slices_of(data: _Bytes, starts: _Numbers, lengths: _Numbers) -> _Bytes:
    """The concatenated bytes of some slices."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    return data[np.arange(total) + np.repeat(starts - (ends - lengths), lengths)]

"""Postings, impacts and positions of many tokens, encoded at once, as Lance 14 writes them.

Formats 2 (blocks of 128) and 3 (blocks of 256).  A full block is packed in 4 or 8 lanes: number i
is in lane i mod 4 (or 8), low bits first in words of 32 bits.  The rest of a list is of varints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_array

_Numbers: TypeAlias = NDArray[np.int64]
_Bytes: TypeAlias = NDArray[np.uint8]
_LANE: Final = 32  # Numbers of a lane.
_POSITION_GROUP: Final = 128  # Positions that are packed together, whatever the blocks have.
_SCORED_BLOCK: Final = 128  # Only blocks of this size begin with a score.
_BLOCKS_PER_GROUP: Final = 32  # That share an impact entry.
_NO_CODE: Final = 255
_COMMON_FREQUENCIES: Final = range(1, 5)
_K1: Final = np.float32(1.2)
_B: Final = np.float32(0.75)
_ONE, _HALF = np.float32(1), np.float32(0.5)


@dataclass(frozen=True, slots=True)
class Terms:
    """Tokens, ascending by their bytes, and the documents that have each."""

    names: pa.Array
    ends: _Numbers  # One past the last posting of each token.
    documents: _Numbers  # Ascending for each token.
    frequencies: _Numbers
    positions: _Numbers | None  # As many for each posting as its frequency, ascending.

    @property
    def counts(self) -> _Numbers:
        """Documents of each token."""
        return np.diff(self.ends, prepend=0)


class PostingEncoder:
    """Encoder of postings of the documents of a partition."""

    def __init__(self, lengths: NDArray[np.uint32], block_size: int) -> None:
        """``lengths``: the number of tokens of each document."""
        self._block_size = block_size
        self._codes = length_codes(lengths.astype(np.int64))
        scored = lengths.astype(np.int64)
        if block_size != _SCORED_BLOCK:
            cut = np.maximum(_bit_lengths(scored) - 4, 0)
            scored = scored >> cut << cut
        self._num_documents = len(lengths)
        average = np.float32(int(lengths.sum(dtype=np.int64)) / max(1, len(lengths)))
        self._norms: NDArray[np.float32] = _K1 * (
            _ONE - _B + _B * scored.astype(np.float32) / average
        )

    def columns(self, terms: Terms) -> dict[str, pa.Array]:
        """The columns of ``part_*_invert.lance`` for some tokens."""
        blocks = _Blocks.of(terms, self._block_size)
        scores = self._scores(terms)
        of_blocks = np.maximum.reduceat(scores, blocks.starts)
        postings = _encode_postings(terms, blocks, of_blocks, self._block_size)
        columns = {
            "_posting": _lists(postings, blocks.ends_by_term),
            "_max_score": plain_array(np.maximum.reduceat(scores, terms.ends - terms.counts)),
            "_length": plain_array(terms.counts.astype(np.uint32)),
            "_impacts": self._impacts(terms, blocks),
        }
        if terms.positions is not None:
            columns |= _encode_positions(terms, blocks)
        return columns

    def _scores(self, terms: Terms) -> NDArray[np.float32]:
        counts = terms.counts.astype(np.float32)
        total = np.float32(self._num_documents)
        idf = np.log((total - counts + _HALF) / (counts + _HALF) + _ONE)
        often = terms.frequencies.astype(np.float32)
        parts = (_K1 + _ONE) * often / (often + self._norms[terms.documents])
        scores: NDArray[np.float32] = np.repeat(idf, terms.counts) * parts
        return scores

    def _impacts(self, terms: Terms, blocks: _Blocks) -> pa.Array:
        """Compute pairs of frequency and length per block, and per 32 blocks of a token."""
        codes = self._codes[terms.documents]
        block, often, code = _best_codes(terms.frequencies, codes, blocks)
        block, often, code = _frontier(block, often, code)
        counts = np.diff(blocks.ends_by_term, prepend=0)
        groups = -(-counts // _BLOCKS_PER_GROUP)
        ends = np.cumsum(counts + groups)
        first_entry = ends - counts - groups
        within = np.arange(len(blocks.starts)) - np.repeat(blocks.ends_by_term - counts, counts)
        entry_of_block = np.repeat(first_entry, counts) + within
        group_of_block = np.repeat(first_entry + counts, counts) + within // _BLOCKS_PER_GROUP
        of_groups = _frontier(group_of_block[block], often, code)
        last = np.empty(int(ends[-1]) if len(ends) else 0, np.int64)
        of_blocks = terms.documents[blocks.starts + blocks.sizes - 1]
        last[group_of_block] = of_blocks  # The last block of a group is written last.
        last[entry_of_block] = of_blocks
        pairs = [
            np.concatenate(both)
            for both in zip((entry_of_block[block], often, code), of_groups, strict=True)
        ]
        return _lists(_encode_impacts(last, *pairs), ends)


@dataclass(frozen=True, slots=True)
class _Blocks:
    """Starts of the blocks of posting lists, and the number of postings of each."""

    starts: _Numbers
    sizes: _Numbers
    ends_by_term: _Numbers  # One past the last block of each token.

    @classmethod
    def of(cls, terms: Terms, block_size: int) -> _Blocks:
        counts = terms.counts
        num_blocks = -(-counts // block_size)
        ends = np.cumsum(num_blocks)
        within = np.arange(int(ends[-1]) if len(ends) else 0) - np.repeat(
            ends - num_blocks, num_blocks
        )
        starts = np.repeat(terms.ends - counts, num_blocks) + within * block_size
        sizes = np.minimum(np.repeat(terms.ends, num_blocks) - starts, block_size)
        return cls(starts, sizes, ends)


def _encode_postings(
    terms: Terms, blocks: _Blocks, scores: NDArray[np.float32], block_size: int
) -> pa.Array:
    """The concatenated blocks of all tokens."""
    is_full = blocks.sizes == block_size
    lanes, head = block_size // _LANE, 4 if block_size == _SCORED_BLOCK else 0
    deltas = np.diff(terms.documents, prepend=0)
    deltas[blocks.starts] = np.where(is_full, 0, terms.documents[blocks.starts])
    packed = blocks.starts[is_full][:, None] + np.arange(block_size)
    of_documents, of_frequencies = deltas[packed], terms.frequencies[packed]
    widths, own_widths = _widths(of_documents), _widths(of_frequencies)
    # Blocks of 256 say how many exceptions their frequencies have: none here.
    marks = 1 if block_size == _SCORED_BLOCK else 2

    tail = np.flatnonzero(np.repeat(~is_full, blocks.sizes))
    tails, own = deltas[tail], terms.frequencies[tail]
    tail_sizes, own_sizes = _varint_sizes(tails), _varint_sizes(own)
    tail_ends = np.cumsum(blocks.sizes[~is_full])
    tail_starts = tail_ends - blocks.sizes[~is_full]

    sizes = np.empty(len(blocks.starts), np.int64)
    sizes[is_full] = head + 5 + marks + 4 * lanes * (widths + own_widths)
    delta_bytes = _sums(tail_sizes, tail_starts)
    sizes[~is_full] = head + delta_bytes + _sums(own_sizes, tail_starts)
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    starts = ends - sizes
    if head:
        _put_words(out, starts, scores.view(np.uint32))
    at = starts[is_full] + head
    _put_words(out, at, terms.documents[blocks.starts[is_full]].astype(np.uint32))
    out[at + 4] = widths
    _put_packed(out, at + 5, of_documents, widths, lanes)
    at = at + 5 + 4 * lanes * widths
    out[at] = own_widths
    _put_packed(out, at + marks, of_frequencies, own_widths, lanes)
    at = starts[~is_full] + head
    counts = tail_ends - tail_starts
    _put_varints(out, np.repeat(at, counts) + _offsets(tail_sizes, tail_starts), tails)
    _put_varints(out, np.repeat(at + delta_bytes, counts) + _offsets(own_sizes, tail_starts), own)
    return _binaries(out, ends)


# Impacts -----------------------------------------------------------------------------------------


def length_codes(lengths: _Numbers) -> NDArray[np.uint8]:
    """Lengths of documents by their leading 4 bits, in one byte."""
    bits = _bit_lengths(lengths)
    high = lengths >> np.maximum(bits - 4, 0) & 7 | bits - 3 << 3
    return np.where(bits < 4, lengths, high).astype(np.uint8)


def _best_codes(
    frequencies: _Numbers, codes: NDArray[np.uint8], blocks: _Blocks
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """Blocks, frequencies in them, and the least length code of each or some more."""
    found: list[tuple[_Numbers, _Numbers, _Numbers]] = []
    for often in _COMMON_FREQUENCIES:
        least = np.minimum.reduceat(np.where(frequencies == often, codes, _NO_CODE), blocks.starts)
        own = np.flatnonzero(least != _NO_CODE)
        found.append((own, np.full(len(own), often), least[own].astype(np.int64)))
    rare = np.flatnonzero(frequencies >= _COMMON_FREQUENCIES.stop)
    of_rare = np.searchsorted(blocks.starts, rare, "right") - 1
    found.append((of_rare, frequencies[rare], codes[rare].astype(np.int64)))
    first, second, third = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return first, second, third


def _frontier(
    entry: _Numbers, often: _Numbers, code: _Numbers
) -> tuple[_Numbers, _Numbers, _Numbers]:
    """The pairs of each entry than which none is more frequent and not longer; by frequency."""
    order = np.lexsort((code, -often, entry))
    entry, often, code = entry[order], often[order], code[order]
    # Lower in each entry than in all before it, so that a running minimum begins again.
    ranked = code - entry * (_NO_CODE + 1)
    is_best = np.ones(len(entry), np.bool_)
    is_best[1:] = ranked[1:] < np.minimum.accumulate(ranked)[:-1]
    entry, often, code = entry[is_best], often[is_best], code[is_best]
    order = np.lexsort((often, entry))
    return entry[order], often[order], code[order]


def _encode_impacts(last: _Numbers, entry: _Numbers, often: _Numbers, code: _Numbers) -> pa.Array:
    """``last``: the last document of each entry."""
    order = np.argsort(entry, kind="stable")
    entry, often, code = entry[order], often[order], code[order]
    counts = np.bincount(entry, minlength=len(last))
    starts = np.cumsum(counts) - counts
    steps, jumps = np.diff(often, prepend=0), np.diff(code, prepend=0)
    steps[starts], jumps[starts] = often[starts], code[starts]
    has_jump = jumps != 1
    firsts = steps - 1 << 1 | has_jump
    first_sizes = _varint_sizes(firsts)
    pair_sizes = first_sizes + np.where(has_jump, _varint_sizes(jumps), 0)
    last_sizes, count_sizes = _varint_sizes(last), _varint_sizes(counts)
    sizes = last_sizes + count_sizes + _sums(pair_sizes, starts)
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    at = ends - sizes
    _put_varints(out, at, last)
    _put_varints(out, at + last_sizes, counts)
    at = np.repeat(at + last_sizes + count_sizes, counts) + _offsets(pair_sizes, starts)
    _put_varints(out, at, firsts)
    _put_varints(out, (at + first_sizes)[has_jump], jumps[has_jump])
    return _binaries(out, ends)


# Positions ---------------------------------------------------------------------------------------


def _encode_positions(terms: Terms, blocks: _Blocks) -> dict[str, pa.Array]:
    """A stream of each token, with a run for each block of its postings."""
    assert terms.positions is not None
    ends_of_postings = np.cumsum(terms.frequencies)
    firsts = ends_of_postings - terms.frequencies
    deltas = np.diff(terms.positions, prepend=0)
    deltas[firsts] = terms.positions[firsts]
    starts = firsts[blocks.starts]
    counts = ends_of_postings[blocks.starts + blocks.sizes - 1] - starts
    groups, rests = np.divmod(counts, _POSITION_GROUP)
    run_of_group = np.repeat(np.arange(len(starts)), groups)
    within = np.arange(len(run_of_group)) - np.repeat(np.cumsum(groups) - groups, groups)
    packed = deltas[(starts[run_of_group] + within * _POSITION_GROUP)[:, None] + np.arange(128)]
    widths = _widths(packed)
    group_sizes = 1 + 16 * widths

    run_of_rest = np.repeat(np.arange(len(starts)), rests)
    rest_starts = np.cumsum(rests) - rests
    within = np.arange(len(run_of_rest)) - np.repeat(rest_starts, rests)
    rest = deltas[(starts + groups * _POSITION_GROUP)[run_of_rest] + within]
    rest_sizes = _varint_sizes(rest)

    in_groups = np.bincount(run_of_group, group_sizes, len(starts)).astype(np.int64)
    sizes = in_groups + np.bincount(run_of_rest, rest_sizes, len(starts)).astype(np.int64)
    ends = np.cumsum(sizes)
    out = np.zeros(int(ends[-1]) if len(ends) else 0, np.uint8)
    runs = ends - sizes
    group_starts = (np.cumsum(groups) - groups)[groups > 0]
    at = runs[run_of_group] + _offsets(group_sizes, group_starts)
    out[at] = widths
    _put_packed(out, at + 1, packed, widths, _POSITION_GROUP // _LANE)
    at = (runs + in_groups)[run_of_rest] + _offsets(rest_sizes, rest_starts[rests > 0])
    _put_varints(out, at, rest)
    ends_of_terms = ends[blocks.ends_by_term - 1]
    num_blocks = np.diff(blocks.ends_by_term, prepend=0)
    within_term = runs - np.repeat(runs[blocks.ends_by_term - num_blocks], num_blocks)
    return {
        "_compressed_position": _binaries(out, ends_of_terms),
        "_position_block_offset": _lists(
            plain_array(within_term.astype(np.uint32)), blocks.ends_by_term
        ),
    }


# Numbers to bytes --------------------------------------------------------------------------------


def _bit_lengths(numbers: _Numbers) -> _Numbers:
    """Return the bit lengths of numbers below 2 ** 53."""
    return np.frexp(numbers.astype(np.float64))[1].astype(np.int64)


def _widths(rows: _Numbers) -> _Numbers:
    """Return the bit length of the greatest number of each row."""
    return _bit_lengths(rows.max(axis=1, initial=0))


def _put_packed(
    out: _Bytes, starts: _Numbers, rows: _Numbers, widths: _Numbers, lanes: int
) -> None:
    """Pack the numbers of each row from its start byte on, with the width of their row."""
    for width in np.unique(widths).tolist():
        if width:
            own = np.flatnonzero(widths == width)
            content = _pack_rows(rows[own], width, lanes)
            out[starts[own][:, None] + np.arange(content.shape[1])] = content


def _pack_rows(rows: _Numbers, width: int, lanes: int) -> _Bytes:
    numbers = rows.astype(np.uint64).reshape(len(rows), _LANE, lanes)
    words = np.zeros((len(rows), width + 1, lanes), np.uint64)
    for index in range(_LANE):
        word, shift = divmod(index * width, 32)
        shifted = numbers[:, index] << np.uint64(shift)
        words[:, word] |= shifted & np.uint64(0xFFFFFFFF)
        words[:, word + 1] |= shifted >> np.uint64(32)
    return words[:, :width].astype("<u4").reshape(len(rows), -1).view(np.uint8)


def _put_words(out: _Bytes, starts: _Numbers, words: NDArray[np.uint32]) -> None:
    for index in range(4):
        out[starts + index] = words >> np.uint32(8 * index) & np.uint32(0xFF)


def _varint_sizes(numbers: _Numbers) -> _Numbers:
    sizes = np.ones(len(numbers), np.int64)
    limit = 1 << 7
    greatest = int(numbers.max(initial=0))
    while greatest >= limit:
        sizes += numbers >= limit
        limit <<= 7
    return sizes


def _put_varints(out: _Bytes, starts: _Numbers, numbers: _Numbers) -> None:
    while len(numbers):
        goes_on = numbers >= 0x80
        out[starts] = numbers & 0x7F | goes_on << 7
        starts, numbers = starts[goes_on] + 1, numbers[goes_on] >> 7


def _sums(sizes: _Numbers, starts: _Numbers) -> _Numbers:
    """The sum of each part, none of which is empty."""
    return np.add.reduceat(sizes, starts) if len(starts) else np.empty(0, np.int64)


def _offsets(sizes: _Numbers, starts: _Numbers) -> _Numbers:
    """Return the offset of each item in its part; ``starts``: first item of each, none is empty."""
    before = np.cumsum(sizes) - sizes
    counts = np.diff(np.append(starts, len(sizes)))
    return before - np.repeat(before[starts], counts)


def _binaries(data: _Bytes, ends: _Numbers) -> pa.Array:
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.large_binary(), len(ends), buffers)


def _lists(values: pa.Array, ends: _Numbers) -> pa.Array:
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(plain_array(offsets), values)

"""FSST: strings in which frequent substrings of up to 8 bytes are replaced by one-byte codes.

The table of a page, 2312 bytes, little-endian::

    0        8                 8 + 8 n          8 + 9 n         2312
    | header | n symbols of 8  | n lengths of 1 | zeros           |

    header, 64 bits:   63 … 32 magic 'FSST' | 24 whether there are codes | 7 … 0 number n of symbols
    a stream of codes: 0 … n-1 a symbol | 255 b: the byte b, which has none (an escape, a literal)

Decoding is a gather: every code selects a *slot*, its symbol filled up with zeros to 8 bytes, or to
16 for a pair of codes. Symbols differ in length; to copy them independently of their length, every
slot is written whole to the position where its content begins, and the next one covers the zeros
after it. Taking two codes at a time from a table of all pairs halves the number of steps::

    stream        uint8   (num_codes,)      the codes of all strings of the page
    chosen        uint16  (num_codes,)      code, + 256 for a literal                  512 slots
               or uint16  (num_codes // 2,) first + 256 * second                    65,536 slots
               or uint32  (num_codes // 2,) the same, + 65,536 if first is a literal   131,072
    code_offsets  int32/64 (num_strings + 1,)   where strings begin, counted in codes
    offsets       int32/64 (num_strings + 1,)   the same, counted in decoded bytes
    text          uint8   (num_bytes,)      the decoded strings

Source: docs/format/file-format.md, section 6.4 (7).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import ChunkBuffers
from pyspark_lance.codec.compressive.encoding_record import (
    BlockDecoder,
    ChunkDecoder,
    Encoding,
    EncodingRecord,
    ValueDecoder,
)
from pyspark_lance.codec.compressive.variable_width import decode_variable_block, variable_bits
from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.values import EncodedStrings, Values, VariableWidthValues
from pyspark_lance.plain_values import plain_array, plain_numbers

TABLE_BYTES = 2312
MAX_SYMBOL_BYTES = 8
ESCAPE = 255
_MAGIC = 0x46535354
_ENCODED_BIT = 1 << 24
# Elements: 0..255 the symbols (the escape is empty), 256..511 the literal bytes.
_LITERALS = 256
_PAIRS = 1 << 16
# Below this many codes a table of pairs is not worth its millisecond.
_SMALL_CODE_COUNT = 1 << 17
# A table of pairs takes 1.2 or 2.4 MB, and symbols of many pages are kept.
_MAX_PAIR_TABLES = 16
# Codes (or pairs) of which the temporary arrays stay in the cache.
_STEP_CODES = 1 << 16
# Contents of which one word has the lengths.
_GROUP = 8
_ONES = np.uint64(0x0101_0101_0101_0101)
# From so many steps on, a second thread is worth starting. Spark's tasks have one processor each,
# which pyarrow.cpu_count() says.
_MANY_STEPS = 8
_MAX_INT32 = 2**31 - 1

_Number = TypeVar("_Number", bound=np.number)


def table_header(num_symbols: int) -> int:
    """The first word of a table whose codes are not the plain bytes."""
    return num_symbols | _ENCODED_BIT | _MAGIC << 32


@dataclass(frozen=True, slots=True)
class _Slots:
    """Symbols that codes, or pairs of codes, stand for."""

    lengths: NDArray[np.uint8]  # Bytes of each.
    # The bytes, one or two words, filled up with zeros; shape (slots, words).
    words: NDArray[np.uint64]
    # Bytes of the first code of each pair; None if they are single codes.
    first_lengths: NDArray[np.uint8] | None = None

    def width(self, longest: int) -> int:
        """Bytes of a slot if the longest content that is chosen has so many."""
        return MAX_SYMBOL_BYTES if longest <= MAX_SYMBOL_BYTES else self.words.shape[1] * 8

    def contents(self, width: int) -> pa.FixedSizeBinaryArray:
        """The bytes of each, in so many."""
        words = self.words[:, :1] if width == MAX_SYMBOL_BYTES else self.words
        content = pa.py_buffer(np.ascontiguousarray(words))
        data_type = pa.binary(words.shape[1] * words.itemsize)
        return pa.Array.from_buffers(data_type, len(words), [None, content])


@dataclass(frozen=True, slots=True, eq=False)
class SymbolTable:
    """The symbols of one page; compared by identity."""

    encoded: bool  # False if the "codes" are the plain bytes.
    lengths: NDArray[np.uint8]  # Bytes of each element, shape (512,).
    words: NDArray[np.uint64]  # The bytes of each element, the first one lowest, shape (512,).

    @classmethod
    def from_bytes(cls, table: bytes) -> SymbolTable:
        """Parse ``Fsst.symbol_table``."""
        require(len(table) == TABLE_BYTES, f"an FSST table of {len(table)} bytes")
        content = np.frombuffer(table, np.uint8)
        header = int(content[:8].view("<u8")[0])
        require(header >> 32 == _MAGIC, "an FSST table has no magic number")
        count = header & 0xFF
        symbols = np.zeros((512, MAX_SYMBOL_BYTES), np.uint8)
        symbols[:count] = content[8 : 8 + 8 * count].reshape(count, 8)
        symbols[_LITERALS:, 0] = np.arange(256)
        lengths = np.zeros(512, np.uint8)
        lengths[:count] = content[8 + 8 * count : 8 + 9 * count]
        lengths[_LITERALS:] = 1
        longest = int(lengths.max())
        require(longest <= MAX_SYMBOL_BYTES, f"an FSST symbol of {longest} bytes")
        symbols[np.arange(MAX_SYMBOL_BYTES)[None, :] >= lengths[:, None]] = 0
        return cls(bool(header & _ENCODED_BIT), lengths, symbols.view("<u8")[:, 0])

    def element(self, number: int) -> bytes:
        """The bytes of one element."""
        return self.words[number].tobytes()[: int(self.lengths[number])]

    def singles(self) -> _Slots:
        """Return the symbols of single codes."""
        return _Slots(self.lengths, self.words[:, None])

    def pairs(self, *, literals: bool) -> _Slots:
        """Return the symbols of two neighboring codes, indexed by ``first + 256 * second``.

        ``literals``: add 65536 entries for pairs whose first byte is a literal because the byte
        before is an escape.
        """
        return _pairs_of(self, literals)

    def _make_pairs(self, *, literals: bool) -> _Slots:
        # By whether the first code is a literal, by the second, by the first.
        lengths = np.empty((1 + literals, 256, 256), np.uint8)
        of_first = np.empty_like(lengths)
        words = np.empty((*lengths.shape, 2), np.uint64)
        second_lengths, seconds = self.lengths[:_LITERALS, None], self.words[:_LITERALS, None]
        for block in range(1 + literals):
            first_lengths = self.lengths[_LITERALS * block :][:256]
            of_first[block] = first_lengths
            np.add(first_lengths, second_lengths, out=lengths[block])
            shifts = first_lengths.astype(np.uint64) * np.uint64(8)
            low, high = words[block, ..., 0], words[block, ..., 1]
            # numpy shifts a word by its whole width to zero.
            np.left_shift(seconds, shifts, out=low)
            np.bitwise_or(low, self.words[_LITERALS * block :][:256], out=low)
            np.right_shift(seconds, np.uint64(64) - shifts, out=high)
        # An escape and its literal in one pair.
        lengths[0, :, ESCAPE] = 1
        words[0, :, ESCAPE, 0] = np.arange(256)
        words[0, :, ESCAPE, 1] = 0
        return _Slots(lengths.reshape(-1), words.reshape(-1, 2), of_first.reshape(-1))


@lru_cache(maxsize=_MAX_PAIR_TABLES)
def _pairs_of(table: SymbolTable, literals: bool) -> _Slots:
    return table._make_pairs(literals=literals)


def decode_fsst(codes: VariableWidthValues, table: SymbolTable) -> VariableWidthValues:
    """The strings that ``codes`` stand for.

    ``codes``: code bytes per string; offsets must have been checked.
    """
    if not table.encoded or codes.num_values == 0:
        return codes
    first, end = int(codes.offsets[0]), int(codes.offsets[-1])
    stream = np.frombuffer(codes.data, np.uint8)[first:end] if end > first else _NO_CODES
    code_offsets = codes.offsets if first == 0 else codes.offsets - codes.offsets.dtype.type(first)
    if len(stream) < max(_SMALL_CODE_COUNT, 2):
        offsets, text = _decode_singly(stream, code_offsets, table)
    else:
        offsets, text = _decode_in_pairs(stream, code_offsets, table)
    return VariableWidthValues(codes.num_values, offsets, text)


_NO_CODES = np.zeros(0, np.uint8)


def _decode_singly(
    stream: NDArray[np.uint8], code_offsets: NDArray[np.signedinteger], table: SymbolTable
) -> tuple[NDArray[np.signedinteger], pa.Buffer]:
    """Decode one code at a time."""
    chosen = stream.astype(np.uint16)
    literals = _escapes(stream) + 1
    chosen[literals[literals < len(chosen)]] += _LITERALS
    return _expand(chosen, table.singles(), code_offsets)


def _decode_in_pairs(
    stream: NDArray[np.uint8], code_offsets: NDArray[np.signedinteger], table: SymbolTable
) -> tuple[NDArray[np.signedinteger], pa.Buffer]:
    """Decode two codes at a time, and a last single one."""
    if stream.ctypes.data % 2:
        stream = stream.copy()
    num_pairs, odd = divmod(len(stream), 2)
    escapes = _escapes(stream)
    pairs: NDArray[np.unsignedinteger] = stream[: 2 * num_pairs].view("<u2")
    after_escape = (escapes[escapes % 2 == 1] + 1) >> 1
    last = b""
    if odd:
        is_literal = len(after_escape) > 0 and int(after_escape[-1]) == num_pairs
        last = table.element(int(stream[-1]) + _LITERALS * is_literal)
        after_escape = after_escape[after_escape < num_pairs]
    literals = len(after_escape) > 0
    if literals:
        pairs = pairs.astype(np.uint32)
        pairs[after_escape] += _PAIRS
    return _expand(pairs, table.pairs(literals=literals), code_offsets, last)


def _expand(
    chosen: NDArray[np.unsignedinteger],
    slots: _Slots,
    code_offsets: NDArray[np.signedinteger],
    last: bytes = b"",
) -> tuple[NDArray[np.signedinteger], pa.Buffer]:
    """The chosen contents, concatenated.

    ``code_offsets``: where strings begin and end, counted in codes; ascending. ``last``: what a
    last code stands for that has no slot. Returns where each string begins and the last one ends,
    counted in bytes; and the bytes.
    """
    lengths = _take(slots.lengths, chosen)
    codes_per_slot = 1 if slots.first_lengths is None else 2
    firsts = np.arange(0, max(len(chosen), 1), _STEP_CODES)
    starts = _Starts.of_lengths(lengths)
    bases = np.append(starts.of_groups[firsts // _GROUP], starts.of_groups[-1])
    total = int(bases[-1])
    width = slots.width(int(lengths.max(initial=0)))
    text = allocate(total + width)
    first_codes = (firsts * codes_per_slot).astype(code_offsets.dtype)
    cuts = np.append(np.searchsorted(code_offsets, first_codes), len(code_offsets))
    offsets = np.empty(
        len(code_offsets), code_offsets.dtype if total + width <= _MAX_INT32 else np.int64
    )
    job = _Expansion(
        chosen,
        slots,
        slots.contents(width),
        starts,
        code_offsets,
        text,
        width,
        offsets,
        bases,
        cuts,
    )
    if pa.cpu_count() > 1 and len(firsts) >= _MANY_STEPS:
        job.run_in_two_threads()
    else:
        job.run(0, len(firsts))
    if last:
        text[total : total + len(last)] = np.frombuffer(last, np.uint8)
    if codes_per_slot == 2:
        # Behind a last code without a slot.
        end = np.searchsorted(code_offsets, code_offsets.dtype.type(2 * len(chosen) + 1))
        offsets[end:] = total + len(last)
    return offsets, pa.py_buffer(text[: total + len(last)])


@dataclass(frozen=True, slots=True)
class _Starts:
    """Start offsets of concatenated contents.

    A running sum makes numpy wait for each number before it takes the next one. So contents are
    taken in groups of eight, whose lengths are one word: multiplied by a word of ones, each of its
    bytes becomes the sum of those up to it. Only the groups need a running sum then.
    """

    # Where each group begins, and the last one ends; shape (groups + 1,).
    of_groups: NDArray[np.int64]
    in_groups: NDArray[np.uint8]  # Where each content begins in its group; shape (8 * groups,).

    @classmethod
    def of_lengths(cls, lengths: NDArray[np.uint8]) -> _Starts:
        """Build the offsets from the byte lengths of the contents, each at most 31."""
        num_groups = -(-len(lengths) // _GROUP)
        if len(lengths) % _GROUP:
            lengths = np.pad(lengths, (0, num_groups * _GROUP - len(lengths)))
        sums = lengths.view("<u8") * _ONES
        of_groups = np.zeros(num_groups + 1, np.int64)
        np.cumsum((sums >> np.uint64(56)).view(np.int64), out=of_groups[1:])
        sums <<= np.uint64(8)
        return cls(of_groups, sums.view(np.uint8))

    def fill(self, starts: NDArray[np.int64], first: int, count: int) -> NDArray[np.int64]:
        """Compute the starts of ``count`` contents from ``first`` on, and the end of the last one.

        ``starts``: receives them, relative to the first one; has room for the rest of a group.
        ``count``: at least one group, or all that are left.
        """
        group, num_groups = first // _GROUP, -(-count // _GROUP)
        of_groups = self.of_groups[group : group + num_groups + 1] - self.of_groups[group]
        end = num_groups * _GROUP
        starts[:end].reshape(-1, _GROUP)[...] = of_groups[:-1, None]
        starts[:end] += self.in_groups[first : first + end]
        starts[end] = of_groups[-1]
        return starts[: count + 1]


@dataclass(frozen=True, slots=True, eq=False)
class _Expansion:
    """Writer of contents to their positions, some codes at a time; see ``_expand``."""

    chosen: NDArray[np.unsignedinteger]
    slots: _Slots
    contents: pa.FixedSizeBinaryArray  # The bytes of each slot.
    starts: _Starts  # Where the content of each begins, counted in bytes.
    # Where strings begin and end, counted in codes; ascending.
    code_offsets: NDArray[np.signedinteger]
    text: NDArray[np.uint8]  # Takes the bytes.
    width: int  # Bytes of a slot.
    offsets: NDArray[np.signedinteger]  # Takes where strings begin and end, counted in bytes.
    bases: NDArray[np.int64]  # Where the content of each step starts, and the last one ends.
    # Which of ``code_offsets`` is the first of each step, and one behind the last.
    cuts: NDArray[np.int64]

    def run(self, first: int, end: int) -> None:
        """Run some steps; up to a slot behind the last one is overwritten."""
        # One for all steps: to touch fresh memory takes longer than to fill it.
        starts = np.empty(_STEP_CODES + 1, np.int64)
        for number in range(first, end):
            self._step(number, self.text[int(self.bases[number]) :], starts)

    def run_in_two_threads(self) -> None:
        """Run all steps; numpy and Arrow release the interpreter lock for most of them."""
        num_steps = len(self.bases) - 1
        middle = num_steps // 2
        if int(self.bases[middle] - self.bases[middle - 1]) < self.width:
            # A slot of the step before would reach into the second half.
            self.run(0, num_steps)
            return
        with ThreadPoolExecutor(1) as other:
            second_half = other.submit(self.run, middle, num_steps)
            self.run(0, middle - 1)
            self._run_isolated(middle - 1)
            second_half.result()

    def _run_isolated(self, number: int) -> None:
        """Run one step; leave the bytes behind it alone, since another thread writes them."""
        base, end = int(self.bases[number]), int(self.bases[number + 1])
        apart = allocate(end - base + self.width)
        self._step(number, apart, np.empty(_STEP_CODES + 1, np.int64))
        self.text[base:end] = apart[: end - base]

    def _step(self, number: int, text: NDArray[np.uint8], starts: NDArray[np.int64]) -> None:
        """Write the contents of a step to ``text``; ``starts`` has room for where they begin."""
        first = number * _STEP_CODES
        part = self.chosen[first : first + _STEP_CODES]
        starts = self.starts.fill(starts, first, len(part))
        self._write_slots(text, starts[:-1], part)
        self._write_offsets(number, starts, part)

    def _write_slots(
        self,
        text: NDArray[np.uint8],
        starts: NDArray[np.int64],
        chosen: NDArray[np.unsignedinteger],
    ) -> None:
        """Put the slots of ``chosen`` to ``starts``, same shape."""
        # A slot at every byte. numpy assigns in the order of the indices, so that a later slot
        # covers the zeros behind an earlier one.
        indices = np.lib.stride_tricks.as_strided(
            text[: self.width].view(f"V{self.width}"),
            shape=(len(text) - self.width + 1,),
            strides=(1,),
        )
        slots = pc.take(self.contents, plain_array(chosen), boundscheck=False).buffers()[1]
        indices[starts] = np.frombuffer(slots, indices.dtype, len(chosen))

    def _write_offsets(
        self, number: int, starts: NDArray[np.int64], chosen: NDArray[np.unsignedinteger]
    ) -> None:
        """The offsets of the strings that begin in a step."""
        own_values = slice(int(self.cuts[number]), int(self.cuts[number + 1]))
        inside = self.code_offsets[own_values].astype(np.int64)
        inside -= number * _STEP_CODES * (1 if self.slots.first_lengths is None else 2)
        self.offsets[own_values] = _starts_of_codes(starts, chosen, inside, self.slots)
        self.offsets[own_values] += self.bases[number].astype(self.offsets.dtype)


def _starts_of_codes(
    starts: NDArray[np.int64],
    chosen: NDArray[np.unsignedinteger],
    codes: NDArray[np.int64],
    slots: _Slots,
) -> NDArray[np.int64]:
    """Return where the content of some codes starts.

    ``starts``: where the content of each slot starts, and the last one ends; ``codes``: up to one
    behind the last.
    """
    if slots.first_lengths is None:
        return starts.take(codes)
    is_second = (codes & 1).astype(np.uint8)
    codes >>= 1
    of_codes = starts.take(codes)
    # No slot follows the last one, but no string begins inside of it either.
    np.minimum(codes, len(chosen) - 1, out=codes)
    of_codes += slots.first_lengths.take(chosen.take(codes)) * is_second
    return of_codes


def _take(values: NDArray[_Number], indices: NDArray[np.integer]) -> NDArray[_Number]:
    """Arrow's kernel, which unlike numpy's does not widen the indices first."""
    return plain_numbers(pc.take(plain_array(values), plain_array(indices), boundscheck=False))


def _escapes(stream: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Positions of the escapes. In a run of 255s every second one is a literal 255."""
    if int(stream.max(initial=0)) < ESCAPE:  # asked first: it is much faster
        return np.zeros(0, np.int64)
    indices = np.flatnonzero(stream == ESCAPE)
    if len(indices) < 2:
        return indices
    begins_run = np.ones(len(indices), bool)
    np.not_equal(indices[1:], indices[:-1] + 1, out=begins_run[1:])
    run_starts = np.maximum.accumulate(np.where(begins_run, indices, 0))
    return indices[(indices - run_starts) % 2 == 0]


def _parts(message: Any) -> tuple[Encoding, ...]:
    return (message.values,)


def _chunk_decoder(message: Any, nested: Callable[[Encoding], ChunkDecoder]) -> ChunkDecoder:
    table = SymbolTable.from_bytes(message.symbol_table)
    inner = nested(message.values)

    def decode(chunks: ChunkBuffers) -> Values:
        codes = inner(chunks)
        require(isinstance(codes, VariableWidthValues), "FSST over values of fixed width")
        assert isinstance(codes, VariableWidthValues)
        return EncodedStrings(codes, lambda stored: decode_fsst(stored, table))

    return decode


def _block_decoder(message: Any, nested: Callable[[Encoding], BlockDecoder]) -> BlockDecoder:
    table = SymbolTable.from_bytes(message.symbol_table)
    return lambda block, num_values: decode_fsst(decode_variable_block(block, num_values), table)


def _value_decoder(message: Any, nested: Callable[[Encoding], ValueDecoder]) -> ValueDecoder:
    table = SymbolTable.from_bytes(message.symbol_table)
    variable_bits(message.values)
    return lambda stored, valid: decode_fsst(stored, table)


FSST = EncodingRecord(
    kind="fsst",
    writer="compressive/string_compression.py",
    parts=_parts,
    chunk_decoder=_chunk_decoder,
    block_decoder=_block_decoder,
    value_decoder=_value_decoder,
)
"""The encoding of strings that have pieces in common."""

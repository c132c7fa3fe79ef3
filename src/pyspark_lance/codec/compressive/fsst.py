"""FSST: strings in which frequent substrings of up to 8 bytes are replaced by one-byte codes.

Decoding is a gather: every code selects its symbol, and the gathered bytes are the text. Symbols
differ in length; to copy them without asking how long each one is, every symbol is written as a
slot of fixed size to the place where it begins, and the next one covers what is too much. Taking
two codes at a time from a table of all pairs halves the number of steps.

Source: file-format.md section 6.4 (7).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.memory import allocate
from pyspark_lance.codec.values import VariableWidthValues

TABLE_BYTES = 2312
MAX_SYMBOL_BYTES = 8
ESCAPE = 255
_MAGIC = 0x46535354
_ENCODED_BIT = 1 << 24
# Elements: 0..255 the symbols (the escape is empty), 256..511 the literal bytes.
_LITERALS = 256
_PAIRS = 1 << 16
# Below this many codes a table of pairs is not worth its millisecond.
_FEW_CODES = 1 << 15
# Codes (or pairs) of which the temporary arrays stay in the cache.
_STEP_CODES = 1 << 16
_MAX_INT32 = 2**31 - 1

_Number = TypeVar("_Number", bound=np.number)


def table_header(num_symbols: int) -> int:
    """The first word of a table whose codes are not the plain bytes."""
    return num_symbols | _ENCODED_BIT | _MAGIC << 32


@dataclass(frozen=True, slots=True)
class _Slots:
    """What codes, or pairs of codes, stand for.

    Attributes:
        lengths: Bytes of each, int32.
        contents: The bytes, filled up with zeros to slots of one size.
    """

    lengths: NDArray[np.int32]
    contents: pa.FixedSizeBinaryArray

    @classmethod
    def of_words(cls, lengths: NDArray[np.int32], words: NDArray[np.uint64]) -> _Slots:
        """Slots of one or two words, shape (slots, words)."""
        kind = pa.binary(words.shape[1] * words.itemsize)
        content = pa.py_buffer(np.ascontiguousarray(words))
        return cls(lengths, pa.Array.from_buffers(kind, len(words), [None, content]))


@dataclass(slots=True)
class SymbolTable:
    """The symbols of one page, and the tables made from them when they are first needed.

    Attributes:
        encoded: False if the "codes" are the plain bytes.
        lengths: Bytes of each element, int32, shape (512,).
        words: The bytes of each element, the first one lowest, shape (512,).
    """

    encoded: bool
    lengths: NDArray[np.int32]
    words: NDArray[np.uint64]
    _pairs: dict[bool, _Slots] = field(default_factory=dict)

    @classmethod
    def from_bytes(cls, table: bytes) -> SymbolTable:
        """Parses ``Fsst.symbol_table``.

        Raises:
            CorruptFileError: It is no such table.
        """
        require(len(table) == TABLE_BYTES, f"an FSST table of {len(table)} bytes")
        content = np.frombuffer(table, np.uint8)
        header = int(content[:8].view("<u8")[0])
        require(header >> 32 == _MAGIC, "an FSST table has no magic number")
        count = header & 0xFF
        symbols = np.zeros((512, MAX_SYMBOL_BYTES), np.uint8)
        symbols[:count] = content[8 : 8 + 8 * count].reshape(count, 8)
        symbols[_LITERALS:, 0] = np.arange(256)
        lengths = np.zeros(512, np.int32)
        lengths[:count] = content[8 + 8 * count : 8 + 9 * count]
        lengths[_LITERALS:] = 1
        longest = int(lengths.max())
        require(longest <= MAX_SYMBOL_BYTES, f"an FSST symbol of {longest} bytes")
        symbols[np.arange(MAX_SYMBOL_BYTES)[None, :] >= lengths[:, None]] = 0
        return cls(bool(header & _ENCODED_BIT), lengths, symbols.view("<u8")[:, 0])

    def singles(self) -> _Slots:
        """What the elements stand for."""
        return _Slots.of_words(self.lengths, self.words[:, None])

    def pairs(self, *, literals: bool) -> _Slots:
        """What two neighbouring codes stand for, by ``first + 256 * second``.

        Args:
            literals: Add 65536 entries for pairs whose first byte is a literal because the byte
                before is an escape.
        """
        if literals not in self._pairs:
            self._pairs[literals] = self._make_pairs(literals=literals)
        return self._pairs[literals]

    def _make_pairs(self, *, literals: bool) -> _Slots:
        codes = np.arange(256)
        first = np.broadcast_to(codes, (256, 256))
        second = np.repeat(codes[:, None], 256, axis=1)
        if literals:
            first = np.stack((first, first + _LITERALS))
            second = np.stack((second, second))
            second[0, :, ESCAPE] += _LITERALS  # an escape and its literal in one pair
        else:
            second[:, ESCAPE] += _LITERALS
        first, second = first.reshape(-1), second.reshape(-1)
        lengths = self.lengths[first]
        shifts = lengths.astype(np.uint64) * np.uint64(8)
        # numpy shifts a word by its whole width to zero.
        words = np.empty((len(first), 2), np.uint64)
        words[:, 0] = self.words[first] | self.words[second] << shifts
        words[:, 1] = self.words[second] >> (np.uint64(64) - shifts)
        return _Slots.of_words(lengths + self.lengths[second], words)


def decode_fsst(codes: VariableWidthValues, table: SymbolTable) -> VariableWidthValues:
    """The strings that ``codes`` stand for.

    Args:
        codes: Code bytes per string; offsets must have been checked.
        table: The symbols of the page.
    """
    if not table.encoded or codes.num_values == 0:
        return codes
    first, end = int(codes.offsets[0]), int(codes.offsets[-1])
    stream = np.frombuffer(codes.data, np.uint8)[first:end] if end > first else _NO_CODES
    borders = codes.offsets if first == 0 else codes.offsets - codes.offsets.dtype.type(first)
    if len(stream) < max(_FEW_CODES, 1):
        offsets, text = _decode_singly(stream, borders, table)
    else:
        offsets, text = _decode_in_pairs(stream, borders, table)
    return VariableWidthValues(codes.num_values, offsets, text)


_NO_CODES = np.zeros(0, np.uint8)


def _decode_singly(
    stream: NDArray[np.uint8], borders: NDArray[np.signedinteger], table: SymbolTable
) -> tuple[NDArray[np.signedinteger], pa.Buffer]:
    """One code at a time."""
    chosen = stream.astype(np.uint16)
    literals = _escapes(stream) + 1
    chosen[literals[literals < len(chosen)]] += _LITERALS
    starts, text = _expand(chosen, table.singles(), np.dtype(np.int32))
    return starts[borders], text


def _decode_in_pairs(
    stream: NDArray[np.uint8], borders: NDArray[np.signedinteger], table: SymbolTable
) -> tuple[NDArray[np.signedinteger], pa.Buffer]:
    """Two codes at a time."""
    if len(stream) % 2:
        stream = np.append(stream, np.uint8(ESCAPE))  # stands for nothing
    if not stream.flags.aligned or stream.ctypes.data % 2:
        stream = stream.copy()
    escapes = _escapes(stream)
    pairs: NDArray[np.unsignedinteger] = stream.view("<u2")
    after_escape = (escapes[escapes % 2 == 1] + 1) >> 1
    after_escape = after_escape[after_escape < len(pairs)]
    literals = len(after_escape) > 0
    if literals:
        pairs = pairs.astype(np.uint32)
        pairs[after_escape] += _PAIRS
    large = len(stream) * MAX_SYMBOL_BYTES > _MAX_INT32
    kind: np.dtype[np.signedinteger] = np.dtype("<i8") if large else np.dtype("<i4")
    starts, text = _expand(pairs, table.pairs(literals=literals), kind)
    # A border inside of a pair lies behind the pair's first code.
    whole_pairs = borders >> 1
    offsets = _take(starts, whole_pairs)
    # Behind the last pair is no other one, but no border inside of it either.
    split = _take(pairs, np.minimum(whole_pairs, len(pairs) - 1))
    first_lengths = _take(table.lengths, split.astype(np.uint8))
    if literals:
        first_lengths = np.where(split >= _PAIRS, np.int32(1), first_lengths)
    return offsets + first_lengths * (borders & 1), text


def _expand(
    chosen: NDArray[np.unsignedinteger], slots: _Slots, kind: np.dtype[np.signedinteger]
) -> tuple[NDArray[np.signedinteger], pa.Buffer]:
    """The chosen contents one behind another.

    Returns:
        Where each one starts and the last one ends, of type ``kind``; and the bytes.
    """
    starts = np.zeros(len(chosen) + 1, kind)
    np.cumsum(_take(slots.lengths, chosen), out=starts[1:])
    total = int(starts[-1])
    width = slots.contents.type.byte_width
    text = allocate(total + width)
    # A slot at every byte. numpy assigns in the order of the indices, so that a later slot covers
    # the zeros behind an earlier one.
    places = np.lib.stride_tricks.as_strided(
        text[:width].view(f"V{width}"), shape=(total + 1,), strides=(1,)
    )
    for first in range(0, len(chosen), _STEP_CODES):
        part = slice(first, min(first + _STEP_CODES, len(chosen)))
        contents = pc.take(slots.contents, pa.array(chosen[part]), boundscheck=False)
        places[starts[part].astype(np.intp)] = np.frombuffer(contents.buffers()[1], places.dtype)
    return starts, pa.py_buffer(text[:total])


def _take(values: NDArray[_Number], indices: NDArray[np.integer]) -> NDArray[_Number]:
    """Arrow's kernel, which unlike numpy's does not widen the indices first."""
    return pc.take(pa.array(values), pa.array(indices), boundscheck=False).to_numpy()


def _escapes(stream: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Positions of the escapes. In a run of 255s every second one is a literal 255."""
    found = np.flatnonzero(stream == ESCAPE)
    if len(found) < 2:
        return found
    begins = np.ones(len(found), bool)
    np.not_equal(found[1:], found[:-1] + 1, out=begins[1:])
    run_starts = np.maximum.accumulate(np.where(begins, found, 0))
    return found[(found - run_starts) % 2 == 0]

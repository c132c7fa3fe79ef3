"""FSST: strings in which frequent substrings of up to 8 bytes are replaced by one-byte codes.

Decoding is a gather: every code selects its symbol, and the gathered bytes are the text. Arrow's
``take`` on a binary array does that; taking two codes at a time from a table of all pairs halves
the number of steps.

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
_MAX_INT32 = 2**31 - 1

_Number = TypeVar("_Number", bound=np.number)


def table_header(num_symbols: int) -> int:
    """The first word of a table whose codes are not the plain bytes."""
    return num_symbols | _ENCODED_BIT | _MAGIC << 32


@dataclass(slots=True)
class SymbolTable:
    """The symbols of one page, and the tables made from them when they are first needed.

    Attributes:
        encoded: False if the "codes" are the plain bytes.
        lengths: Bytes of each element, int32, shape (512,).
        elements: The elements as a binary array.
    """

    encoded: bool
    lengths: NDArray[np.int32]
    elements: pa.Array
    _pair_tables: dict[tuple[bool, bool], pa.Array] = field(default_factory=dict)

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
        offsets = np.zeros(513, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        content = symbols[np.arange(MAX_SYMBOL_BYTES)[None, :] < lengths[:, None]]
        elements = _binary_array(offsets, pa.py_buffer(content))
        return cls(bool(header & _ENCODED_BIT), lengths, elements)

    def pairs(self, *, literals: bool, large: bool) -> pa.Array:
        """What two neighbouring codes stand for, by ``first + 256 * second``.

        Args:
            literals: Add 65536 entries for pairs whose first byte is a literal because the byte
                before is an escape.
            large: Use 64-bit offsets, for more than 2 GiB of text.
        """
        key = (literals, large)
        if key not in self._pair_tables:
            self._pair_tables[key] = self._make_pairs(literals=literals, large=large)
        return self._pair_tables[key]

    def _make_pairs(self, *, literals: bool, large: bool) -> pa.Array:
        codes = np.arange(256, dtype=np.uint16)
        elements = np.empty((1 + literals, 256, 256, 2), np.uint16)  # table, second, first, which
        elements[0, :, :, 0] = codes[None, :]
        elements[0, :, :, 1] = codes[:, None]
        # An escape and its literal in one pair.
        elements[0, :, ESCAPE, 1] = _LITERALS + codes
        if literals:
            elements[1, :, :, 0] = _LITERALS + codes[None, :]
            elements[1, :, :, 1] = codes[:, None]
        pairs = elements.reshape(-1, 2)
        lengths = self.lengths.take(pairs[:, 0]) + self.lengths.take(pairs[:, 1])
        offsets = np.zeros(len(pairs) + 1, _offset_type(large=large))
        np.cumsum(lengths, out=offsets[1:])
        taken = pc.take(self.elements, pa.array(elements.reshape(-1)), boundscheck=False)
        return _binary_array(offsets, taken.buffers()[2])


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
    taken = pc.take(table.elements, pa.array(chosen), boundscheck=False)
    _, ends, text = taken.buffers()
    return np.frombuffer(ends, np.int32)[borders], text or pa.py_buffer(b"")


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
    taken = pc.take(table.pairs(literals=literals, large=large), pa.array(pairs), boundscheck=False)
    _, ends, text = taken.buffers()
    # A border inside of a pair lies behind the pair's first code.
    whole_pairs = borders >> 1
    pair_ends = np.frombuffer(ends, _offset_type(large=large))
    offsets = _take(pair_ends, whole_pairs)
    # Behind the last pair is no other one, but no border inside of it either.
    split = _take(pairs, np.minimum(whole_pairs, len(pairs) - 1))
    first_lengths = _take(table.lengths, split.astype(np.uint8))
    if literals:
        first_lengths = np.where(split >= _PAIRS, np.int32(1), first_lengths)
    return offsets + first_lengths * (borders & 1), text or pa.py_buffer(b"")


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


def _offset_type(*, large: bool) -> np.dtype[np.signedinteger]:
    return np.dtype("<i8") if large else np.dtype("<i4")


def _binary_array(offsets: NDArray[np.signedinteger], content: pa.Buffer) -> pa.Array:
    kind = pa.large_binary() if offsets.dtype == np.int64 else pa.binary()
    return pa.Array.from_buffers(
        kind, len(offsets) - 1, [None, pa.py_buffer(offsets), content or pa.py_buffer(b"")]
    )

"""Binary, Fsst and FixedSizeBinary: strings and binaries of every offset width.

Binary keeps the end of every value; a null has the null adjustment added to its end, so one array
of u64 holds both the position and the validity of a value.

Source: docs/format/file-format.md, sections 5.1 and 5.2.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.compressive.fsst import SymbolTable, decode_fsst
from pyspark_lance.codec.compressive.string_compression import (
    Matcher,
    encode_strings,
    sample_of,
    train_symbols,
)
from pyspark_lance.codec.decode_memory import BatchTooLargeError, require_decode_memory
from pyspark_lance.codec.encoding_requests import EncodingRequest
from pyspark_lance.codec.v2_0.flat import (
    BufferCollector,
    BufferSlice,
    FlatBuffer,
    FlatDecoder,
    encode_buffer,
    validity_of,
)
from pyspark_lance.codec.values import VariableWidthValues
from pyspark_lance.plain_values import plain_array, plain_scalar
from pyspark_lance.proto import encodings_v2_0_pb2 as pb

_INT32_MAX = (1 << 31) - 1


class Ends(NamedTuple):
    """Offsets of consecutive values and which of them are null."""

    # Where each value begins and the last one ends; int64, shape (num_values + 1,), ascending.
    offsets: NDArray[np.int64]
    validity: NDArray[np.bool_] | None  # True where a value is valid; None when all are.


class EndPositions:
    """The u64 end positions that Binary and List have in common.

    ``null_adjustment``: added to the end position of a null.
    """

    def __init__(self, positions: FlatDecoder, null_adjustment: int) -> None:
        self._positions, self._adjustment = positions, null_adjustment

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """The positions, and the one before, which is where the first value starts."""
        return self._positions.slices(max(start - 1, 0), end)

    def end_slices(self, start: int, end: int) -> list[BufferSlice]:
        """The two positions that bound the values ``start`` to ``end``."""
        wanted = [start - 1, end - 1] if start < end else []
        return [
            piece
            for index in wanted
            if index >= 0
            for piece in self._positions.slices(index, index + 1)
        ]

    def span(self, start: int, end: int, limit: int) -> tuple[int, int]:
        """Return the byte span of the values ``start`` to ``end``, at least one of them needed."""
        first = self._end(start - 1) if start else 0
        last = self._end(end - 1)
        require(first <= last <= limit, f"values lie in {first}..{last} of {limit}")
        return first, last

    def _end(self, index: int) -> int:
        stored = np.frombuffer(self._positions.decode_buffer(index, index + 1), "<u8")
        position = int(stored[0])
        is_null = self._adjustment and position >= self._adjustment
        return position - self._adjustment if is_null else position

    def decode(self, start: int, end: int, limit: int | None) -> Ends:
        """Offsets of the values ``start`` to ``end``.

        ``start``: first value. ``limit``: maximum offset; None if it is checked later.
        """
        if start == end:
            return Ends(np.zeros(1, np.int64), None)
        first = max(start - 1, 0)
        stored = np.frombuffer(self._positions.decode_buffer(first, end), "<u8")
        offsets, validity = stored, None
        if self._adjustment and int(stored.max()) >= self._adjustment:
            is_null = stored >= self._adjustment
            offsets = stored - is_null * np.uint64(self._adjustment)
            validity = ~is_null[start - first :]
        if start == 0:
            offsets = np.concatenate([np.zeros(1, np.uint64), offsets])
        ascending = not (offsets[1:] < offsets[:-1]).any()
        require(ascending, "the end positions of consecutive values do not ascend")
        last = int(offsets[-1])
        require(
            last <= (np.iinfo(np.int64).max if limit is None else limit),
            f"a value ends at {last}, behind the {limit} that are stored",
        )
        return Ends(offsets.view("<i8"), validity)


class VariableSlices(NamedTuple):
    """Values before they become an array: ``ends`` count from the start of ``data``."""

    ends: Ends
    data: pa.Buffer


class BinaryDecoder:
    """Binary: end positions and the bytes of all values."""

    def __init__(
        self, ends: EndPositions, data: FlatBuffer, data_type: pa.DataType, num_values: int
    ) -> None:
        check_variable_type(data_type)
        self.data_type, self.num_values, self.has_bits = data_type, num_values, False
        self._ends, self._data = ends, data

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """The end positions; which bytes are needed is known after reading them."""
        return self._ends.slices(start, end)

    def end_slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices that ``all_slices(start, end)`` reads."""
        return self._ends.end_slices(start, end)

    def all_slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return all slices that decoding reads; read two end positions to locate them."""
        size = self._data.known_size
        if start == end:
            return []
        span = (0, 0) if size is None else self._ends.span(start, end, size)
        return self._ends.slices(start, end) + self._data.slices(*span)

    def decode(self, start: int, end: int) -> pa.Array:
        """Offsets from the end positions, over the stored bytes."""
        ends, data = self.decode_slices(start, end)
        return variable_array(self.data_type, ends, data)

    def decode_slices(self, start: int, end: int) -> VariableSlices:
        """Offsets from 0 on, and the bytes they point into."""
        ends = self._ends.decode(start, end, self._data.known_size)
        first, last = int(ends.offsets[0]), int(ends.offsets[-1])
        require_decode_memory(last - first)
        return VariableSlices(ends, self._data.read(first, last))


class FsstDecoder:
    """Fsst: a Binary whose bytes are codes of a symbol table."""

    def __init__(self, codes: BinaryDecoder, symbol_table: bytes) -> None:
        self.data_type, self.num_values, self.has_bits = codes.data_type, codes.num_values, False
        self._codes, self._table_bytes = codes, symbol_table
        self._table: SymbolTable | None = None

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices of the codes."""
        return self._codes.slices(start, end)

    def end_slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices of the end positions of the codes."""
        return self._codes.end_slices(start, end)

    def all_slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return all slices of the codes."""
        return self._codes.all_slices(start, end)

    def decode(self, start: int, end: int) -> pa.Array:
        """The text of the codes."""
        ends, data = self._codes.decode_slices(start, end)
        if self._table is None:
            self._table = SymbolTable.from_bytes(self._table_bytes)
        codes = VariableWidthValues(end - start, ends.offsets - ends.offsets[0], data)
        text = decode_fsst(codes, self._table)
        offsets = text.offsets.astype(np.int64, copy=False)
        return variable_array(self.data_type, Ends(offsets, ends.validity), text.data)


class FixedSizeBinaryDecoder:
    """FixedSizeBinary: strings that all have the same length."""

    def __init__(
        self, data: FlatBuffer, byte_width: int, data_type: pa.DataType, num_values: int
    ) -> None:
        check_variable_type(data_type)
        self.data_type, self.num_values, self.has_bits = data_type, num_values, False
        self._data, self._width = data, byte_width

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return one slice."""
        return self._data.slices(start * self._width, end * self._width)

    def decode(self, start: int, end: int) -> pa.Array:
        """Offsets by counting, over the stored bytes."""
        data = self._data.read(start * self._width, end * self._width)
        offsets = np.arange(end - start + 1, dtype=np.int64) * self._width
        return variable_array(self.data_type, Ends(offsets, None), data)


def variable_array(data_type: pa.DataType, ends: Ends, data: pa.Buffer) -> pa.Array:
    """A string or binary array; ``data`` starts at the first offset."""
    decoded = ends.offsets
    count = len(decoded) - 1
    if is_large(data_type):
        offsets = decoded - decoded[0] if decoded[0] else decoded
    else:
        if int(decoded[-1] - decoded[0]) > _INT32_MAX:
            raise BatchTooLargeError
        offsets = np.empty(count + 1, np.int32)
        np.subtract(decoded, decoded[0], out=offsets, casting="unsafe")
    bitmap = None
    if ends.validity is not None:
        bitmap = pa.py_buffer(np.packbits(ends.validity, bitorder="little"))
    return pa.Array.from_buffers(data_type, count, [bitmap, pa.py_buffer(offsets), data])


def encode_binary(
    array: pa.Array,
    blank: NDArray[np.bool_] | None,
    collector: BufferCollector,
    request: EncodingRequest,
) -> pb.ArrayEncoding:
    """Binary of a string or binary array, or FSST over it.

    ``blank``: true for slots written as empty, whatever they hold; they include the nulls.
    ``collector``: takes end positions and bytes.
    """
    validity = validity_of(array)
    if blank is not None and bool((np.diff(value_offsets(array))[blank] > 0).any()):
        array = pc.if_else(
            plain_array(blank), plain_scalar(b"", pa.binary()).cast(array.type), array
        )
    offsets = value_offsets(array)
    first, last = int(offsets[0]), int(offsets[-1])
    stored = array.buffers()[2]
    data = np.zeros(0, np.uint8) if stored is None else np.frombuffer(stored, np.uint8)[first:last]
    if request.compression != "fsst" or not len(data):
        return _encode_binary(offsets[1:] - offsets[0], validity, data, collector, request)
    moved = offsets - offsets[0]
    symbols = train_symbols(*sample_of(moved, data))
    codes = encode_strings(moved, data, Matcher(symbols))
    binary = _encode_binary(codes.offsets[1:], validity, codes.content, collector, request)
    return pb.ArrayEncoding(fsst=pb.Fsst(binary=binary, symbol_table=symbols.to_bytes()))


def _encode_binary(
    ends: NDArray[np.signedinteger],
    validity: NDArray[np.bool_] | None,
    data: NDArray[np.uint8],
    collector: BufferCollector,
    request: EncodingRequest,
) -> pb.ArrayEncoding:
    adjustment = len(data) + 1
    positions = ends.astype("<u8")
    if validity is not None:
        positions[~validity] += np.uint64(adjustment)
    return pb.ArrayEncoding(
        binary=pb.Binary(
            indices=encode_positions(positions, collector),
            bytes=encode_buffer(data, 8, collector, request),
            null_adjustment=adjustment,
        )
    )


def encode_positions(positions: NDArray[np.uint64], collector: BufferCollector) -> pb.ArrayEncoding:
    """Nullable.no_nulls(Flat 64) of end positions."""
    buffer = pb.Buffer(buffer_index=collector.add(positions))
    flat = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=64, buffer=buffer))
    return pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=flat)))


def value_offsets(array: pa.Array) -> NDArray[np.signedinteger]:
    """The offsets of a string, binary or list array; views of its buffer."""
    dtype = np.dtype(np.int64 if is_large(array.type) else np.int32)
    stored = array.buffers()[1]
    if stored is None or stored.size == 0:
        return np.zeros(1, dtype)
    return np.frombuffer(stored, dtype, len(array) + 1, array.offset * dtype.itemsize)


def is_large(data_type: pa.DataType) -> bool:
    """Return whether offsets of the type have 64 bits."""
    types = pa.types
    return bool(
        types.is_large_string(data_type)
        or types.is_large_binary(data_type)
        or types.is_large_list(data_type)
    )


def is_variable_type(data_type: pa.DataType) -> bool:
    """Return whether the type is a string or binary of variable width."""
    types = pa.types
    return bool(
        types.is_string(data_type)
        or types.is_binary(data_type)
        or types.is_large_string(data_type)
        or types.is_large_binary(data_type)
    )


def check_variable_type(data_type: pa.DataType) -> None:
    """Reject strings where the schema has another type."""
    require(is_variable_type(data_type), f"values of variable width are stored for {data_type}")

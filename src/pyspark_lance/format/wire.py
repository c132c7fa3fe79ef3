"""Protobuf wire format: preserve unknown bytes, and code messages of ranges as arrays. No I/O.

Generated classes lose the order and the encoding of fields. Where the format requires messages to
be kept byte for byte, they are split into fields here and reassembled.

Most row-id and row-version sequences consist of ranges, which are varints only: tags, lengths and
numbers. Their bytes are split into varints by array operations, and the shape of all messages is
checked together. Bytes of another shape, and damaged ones, are left to the protobuf library.

Source: docs/format/table-format.md, sections 6.1 and 7.1;
https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.u64_segment import MAX_ROWS

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5

_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class WireField:
    """One field occurrence inside a serialized message."""

    number: int  # Field number.
    wire_type: int  # 0, 1, 2 or 5.
    start: int  # Position of the tag.
    value_start: int  # Position of the value, after the length for length-delimited fields.
    end: int  # One past the last byte.


def wire_fields(data: bytes, position: int = 0) -> Iterator[WireField]:
    """Yield the top-level fields of a serialized message, in stored order.

    ``position``: start of the first field.
    """
    while position < len(data):
        start = position
        tag, position = read_varint(data, position)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == VARINT:
            value_start = position
            _, position = read_varint(data, position)
        elif wire_type == LENGTH_DELIMITED:
            length, value_start = read_varint(data, position)
            position = value_start + length
        elif wire_type in (FIXED64, FIXED32):
            value_start = position
            position += 8 if wire_type == FIXED64 else 4
        else:
            raise CorruptFileError(f"wire type {wire_type} at byte {start} of a protobuf message")
        if number == 0 or position > len(data):
            raise CorruptFileError(f"malformed field at byte {start} of a protobuf message")
        yield WireField(number, wire_type, start, value_start, position)


def length_delimited(number: int, value: bytes) -> bytes:
    """The bytes of a length-delimited field."""
    return encode_varint(number << 3 | LENGTH_DELIMITED) + encode_varint(len(value)) + value


def encode_varint(value: int) -> bytes:
    """Encode an unsigned number, seven bits per byte, lowest first."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def parse_message(message_class: type[_M], data: Any, where: str = "") -> _M:
    """Parse ``data`` as a generated message.

    ``data``: bytes-like; ``where``: file and byte range, for the error.
    """
    try:
        return message_class.FromString(bytes(data))
    except (DecodeError, RuntimeError, ValueError) as error:
        raise CorruptFileError(
            f"the bytes are not a {message_class.DESCRIPTOR.name} message", where
        ) from error


def drop_unknown_fields(message: Message) -> bool:
    """Remove fields unknown to the generated class; return whether there were any, at any depth."""
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return message.ByteSize() != size


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the number at ``position``, and the position after it."""
    value = shift = 0
    for index in range(position, min(position + 10, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >= 2**64:
                break
            return value, index + 1
        shift += 7
    raise CorruptFileError(f"malformed varint at byte {position} of a protobuf message")


WORTHWHILE_RANGES = 16
"""Below this number, the protobuf library is as fast."""
WORTHWHILE_BYTES = WORTHWHILE_RANGES * 8

_MAX_VARINT_BYTES = 10
_MESSAGE_TAG = 1 << 3 | 2  # field 1, length-delimited: of segment, run, span and range
_FIRST_TAG = 1 << 3  # field 1, varint: start
_SECOND_TAG = 2 << 3  # field 2, varint: end, and the version of a run
_CONTINUES = 0x80
_HEAD_BYTES = np.uint64(2)

_Columns = list[tuple[NDArray[np.uint64], NDArray[np.int64]]]
"""The n-th varint of every message, and its length in bytes; 0 where absent."""


@dataclass(frozen=True, slots=True)
class Ranges:
    """Ranges, and for runs the version of each; arrays of equal length."""

    starts: NDArray[np.uint64]  # First value of each.
    ends: NDArray[np.uint64]  # One past the last value of each.
    versions: NDArray[np.uint64] | None = None  # None for ranges that are segments of row ids.


# Encoding ----------------------------------------------------------------------------------


def encode_ranges(ranges: Ranges) -> bytes:
    """Return the bytes that the protobuf library would write, message after message."""
    columns = _encode_nested(
        [*_field(_FIRST_TAG, ranges.starts), *_field(_SECOND_TAG, ranges.ends)]
    )
    if ranges.versions is not None:
        columns = [*_encode_nested(columns), *_field(_SECOND_TAG, ranges.versions)]
    return _varint_bytes(_encode_nested(columns))


def encode_each(ranges: Ranges) -> list[bytes]:
    """Return the bytes of sequences of one range each."""
    data = encode_ranges(ranges)
    starts = _message_starts(data)
    assert starts is not None
    return [data[start:end] for start, end in pairwise([*starts.tolist(), len(data)])]


def _field(tag: int, values: NDArray[np.uint64]) -> _Columns:
    """Encode a number field, which is omitted where it is zero."""
    present = (values != 0).astype(np.int64)
    return [(np.full(len(values), tag, np.uint64), present), (values, _varint_sizes(values))]


def _encode_nested(content: _Columns) -> _Columns:
    """Encode a message in field 1, short enough for a length of one byte."""
    lengths = np.sum([sizes for _, sizes in content], axis=0)
    one_byte = np.ones(len(lengths), np.int64)
    tags = np.full(len(lengths), _MESSAGE_TAG, np.uint64)
    return [(tags, one_byte), (lengths.astype(np.uint64), one_byte), *content]


def _varint_sizes(values: NDArray[np.uint64]) -> NDArray[np.int64]:
    """Return the size of each value as a varint; 0 for zero, which is omitted."""
    sizes = np.zeros(len(values), np.int64)
    for index in range(_MAX_VARINT_BYTES):
        sizes += values >= np.uint64(1 << 7 * index)
    return sizes


def _varint_bytes(columns: _Columns) -> bytes:
    values = np.stack([column_values for column_values, _ in columns], axis=1).ravel()
    sizes = np.stack([column_sizes for _, column_sizes in columns], axis=1).ravel()
    values, sizes = values[sizes > 0], sizes[sizes > 0]
    firsts = np.cumsum(sizes) - sizes
    out = np.empty(int(sizes.sum()), np.uint8)
    for index in range(int(sizes.max(initial=0))):
        chosen = np.flatnonzero(sizes > index)
        low = (values[chosen] >> np.uint64(7 * index)).astype(np.uint8) & np.uint8(0x7F)
        more = sizes[chosen] > index + 1
        out[firsts[chosen] + index] = low | np.where(more, np.uint8(_CONTINUES), np.uint8(0))
    return out.tobytes()


# Decoding ----------------------------------------------------------------------------------


def decode_each(sequences: Sequence[object], *, versions: bool) -> Ranges | None:
    """Return the range of each sequence; None if one has none or several, or for few."""
    if len(sequences) < WORTHWHILE_RANGES:
        return None
    data = [one for one in sequences if isinstance(one, bytes) and one]
    ranges = decode_ranges(b"".join(data), versions=versions)
    # As many ranges as sequences, of which none is empty: each has one.
    is_one_each = ranges is not None and len(ranges.starts) == len(data) == len(sequences)
    return ranges if is_one_each else None


def decode_ranges(data: bytes, *, versions: bool) -> Ranges | None:
    """Return the ranges that ``data`` consists of; None for other shapes.

    ``versions``: whether the ranges are the spans of runs.
    """
    heads = _message_starts(data)
    # Varints take up to 64 times the bytes in memory, so other shapes are refused before.
    tokens = None if heads is None else _Varints.read(data)
    if heads is None or tokens is None:
        return None
    index = np.searchsorted(tokens.starts, heads)
    begin = heads.astype(np.uint64)
    outer = np.append(begin[1:], np.uint64(len(data)))
    plain, end = tokens.message(index, begin)
    plain &= end == outer
    if versions:
        begin, index = begin + _HEAD_BYTES, index + 2
        is_message, span_end = tokens.message(index, begin)
        plain &= is_message & (span_end <= outer)
        end = span_end
    begin, index = begin + _HEAD_BYTES, index + 2
    is_message, range_end = tokens.message(index, begin)
    plain &= is_message & (range_end == end)
    index = index + 2
    starts, index = tokens.number(index, _FIRST_TAG, end)
    ends, index = tokens.number(index, _SECOND_TAG, end)
    plain &= tokens.starts[index] == end
    numbers = None
    if versions:
        numbers, index = tokens.number(index, _SECOND_TAG, outer)
        plain &= tokens.starts[index] == outer
    plain &= (starts <= ends) & (ends - starts <= MAX_ROWS)
    return Ranges(starts, ends, numbers) if plain.all() else None


def _message_starts(data: bytes) -> NDArray[np.int64] | None:
    """Return the start of each message; None if one is too long for a range."""
    starts, position, length = [], 0, len(data)
    while position + 1 < length:
        starts.append(position)
        size = data[position + 1]
        if size >= _CONTINUES:
            return None
        position += 2 + size
    return np.array(starts, np.int64) if position == length else None


@dataclass(frozen=True, slots=True)
class _Varints:
    """All varints of a message, as if it contained nothing else."""

    values: NDArray[np.uint64]  # The numbers, padded with zeros.
    # Start of each; the length of the data for padding.
    starts: NDArray[np.uint64]

    @classmethod
    def read(cls, data: bytes) -> _Varints | None:
        """Return None if the bytes are no varints, or one does not fit 64 bits."""
        raw = np.frombuffer(data, np.uint8)
        lasts = np.flatnonzero(raw < _CONTINUES)
        if not len(lasts) or lasts[-1] != len(raw) - 1:
            return None
        starts = np.concatenate(([0], lasts[:-1] + 1))
        sizes = lasts - starts + 1
        longest = int(sizes.max())
        if longest > _MAX_VARINT_BYTES or (raw[lasts[sizes == _MAX_VARINT_BYTES]] > 1).any():
            return None
        values = (raw[starts] & np.uint8(0x7F)).astype(np.uint64)
        for index in range(1, longest):
            chosen = np.flatnonzero(sizes > index)
            part = (raw[starts[chosen] + index] & np.uint8(0x7F)).astype(np.uint64)
            values[chosen] |= part << np.uint64(7 * index)
        padding = 16  # more than the numbers of a run
        return cls(
            np.concatenate((values, np.zeros(padding, np.uint64))),
            np.concatenate((starts, np.full(padding, len(raw)))).astype(np.uint64),
        )

    def message(
        self, index: NDArray[np.int64], begin: NDArray[np.uint64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """Return whether a short message in field 1 starts at each position, and its end."""
        # Tag and length take a byte each; otherwise the shape does not match.
        is_message = (self.values[index] == _MESSAGE_TAG) & (self.starts[index] == begin)
        is_message &= self.starts[index + 1] == begin + np.uint64(1)
        is_message &= self.starts[index + 2] == begin + _HEAD_BYTES
        is_message &= self.values[index + 1] < _CONTINUES
        return is_message, begin + _HEAD_BYTES + self.values[index + 1]

    def number(
        self, index: NDArray[np.int64], tag: int, end: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Return the numbers of a field, zero where it is absent, and the positions after it."""
        present = (self.values[index] == tag) & (self.starts[index] < end)
        return np.where(present, self.values[index + 1], np.uint64(0)), index + 2 * present

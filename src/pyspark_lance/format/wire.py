"""Protobuf wire format, as needed to preserve unknown bytes exactly.

Generated classes lose the order and the encoding of fields. Where the format requires messages to
be kept byte for byte, they are split into fields here and reassembled.

Source: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from google.protobuf.message import DecodeError, Message

from pyspark_lance.errors import CorruptFileError

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

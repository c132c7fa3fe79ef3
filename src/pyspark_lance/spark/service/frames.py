"""Requests and responses between the JVM plugin and this process.

A frame is the length of a JSON text in four bytes (big-endian), the text, and attachments: bytes
that the text names by their position, as ``{"attachment": 0}``. The text has their lengths under
``attachments``. ``Frame.java`` is the other end.

Requests and responses have an ``id``. Other frames are ``{"cancel": id}`` of the plugin and
``{"log": ...}`` of this process: a line for Spark's log.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from typing import Any, BinaryIO, Final

import pyarrow as pa

PROTOCOL: Final = 4
"""Version of frames and methods; equal to ``LanceService.PROTOCOL`` of the plugin."""

_ATTACHMENT = "attachment"
_SIZES = "attachments"
_LENGTH = struct.Struct(">I")
Message = dict[str, Any]


def read_frame(stream: BinaryIO) -> Message | None:
    """Return the next message with its attachments as ``bytes``; None at the end of ``stream``.

    Raises:
        EOFError: The stream ends within a frame.
    """
    prefix = stream.read(_LENGTH.size)
    if not prefix:
        return None
    (length,) = _LENGTH.unpack(_exactly(prefix, _LENGTH.size, stream))
    text = _exactly(b"", length, stream)
    sizes: list[int] = json.loads(text)[_SIZES]
    attachments = [_exactly(b"", size, stream) for size in sizes]

    def resolve(node: Message) -> Any:
        return attachments[node[_ATTACHMENT]] if node.keys() == {_ATTACHMENT} else node

    message: Message = json.loads(text, object_hook=resolve)
    return message


def encode_frame(message: Message) -> list[bytes | pa.Buffer]:
    """Return the parts of a frame; values of type ``bytes`` or ``pyarrow.Buffer`` are attachments.

    Raises:
        TypeError: A value is none that JSON or an attachment can hold.
    """
    attachments: list[bytes | pa.Buffer] = []

    def attach(value: object) -> dict[str, int]:
        if not isinstance(value, (bytes, pa.Buffer)):
            raise TypeError(f"a message cannot hold a {type(value).__name__}")
        attachments.append(value)
        return {_ATTACHMENT: len(attachments) - 1}

    body = json.dumps(message, default=attach)
    # Known only now, and not worth a second pass over the values.
    sizes = json.dumps(_sizes(attachments))
    text = f'{body[:-1]}{", " if message else ""}"{_SIZES}": {sizes}}}'.encode()
    return [_LENGTH.pack(len(text)) + text, *attachments]


def write_frame(stream: BinaryIO, frame: Sequence[bytes | pa.Buffer]) -> None:
    """Write the parts of a frame and flush them."""
    for part in frame:
        stream.write(part)
    stream.flush()


def _sizes(attachments: Sequence[bytes | pa.Buffer]) -> list[int]:
    return [one.size if isinstance(one, pa.Buffer) else len(one) for one in attachments]


def _exactly(start: bytes, length: int, stream: BinaryIO) -> bytes:
    """Return ``start`` and as many bytes of ``stream`` as are missing from ``length``."""
    missing = length - len(start)
    rest = stream.read(missing) if missing else b""
    if len(rest) < missing:
        raise EOFError(f"the stream ended {missing - len(rest)} bytes before the end of a frame")
    return start + rest

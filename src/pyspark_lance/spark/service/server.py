"""Execution of the JVM plugin's requests in threads, with a response to each when it is done.

A frame is the length of a JSON text in four bytes (big-endian), the text, and attachments: bytes
that the text names by their position, as ``{"attachment": 0}``. The text has their lengths under
``attachments``. ``Frame.java`` is the other end.

Requests and responses have an ``id``. Other frames are ``{"cancel": id}`` of the plugin and
``{"log": ...}`` of this process: a line for Spark's log.
"""

from __future__ import annotations

import contextvars
import json
import logging
import os
import struct
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, Final

import pyarrow as pa

from pyspark_lance.cancellation import CANCELLED, CancelledRequestError
from pyspark_lance.errors import InvalidInputError, LanceError, RetryableCommitError, shorten

PROTOCOL: Final = 5
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


Method = Callable[[Message], Message]

# More requests wait: each is a thread of Spark that plans.
_MAX_THREADS = 64
# Exit code of a process that cannot respond to a request.
_CANNOT_RESPOND = 70


class Server:
    """Server of the requests of one stream, with responses on another.

    ``methods``: by name; each takes the request and returns the result.
    """

    def __init__(
        self, requests: BinaryIO, responses: BinaryIO, methods: Callable[[], Mapping[str, Method]]
    ) -> None:
        self._requests = requests
        self._responses = responses
        self._methods = methods
        self._writing = threading.Lock()
        self._running: dict[int, threading.Event] = {}

    def run(self) -> None:
        """Serve until the stream of requests ends; do not wait for requests that still run."""
        pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="lance-request")
        try:
            while (request := read_frame(self._requests)) is not None:
                if "cancel" in request:
                    cancelled = self._running.get(request["cancel"])
                    if cancelled is not None:
                        cancelled.set()
                    continue
                self._running[request["id"]] = threading.Event()
                pool.submit(contextvars.Context().run, self._serve, request)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _serve(self, request: Message) -> None:
        try:
            self._respond(request)
        except BaseException:  # noqa: BLE001
            # Without a response the plugin would wait forever, for example if there is no memory
            # to encode the error. The end of the process is an error there, and its next request
            # starts another one.
            os._exit(_CANNOT_RESPOND)

    def _respond(self, request: Message) -> None:
        number: int = request["id"]
        CANCELLED.set(self._running[number])
        try:
            result = self._method(request["method"])(request)
            response = encode_frame({"id": number, "result": result})
        except CancelledRequestError as error:
            cancelled = {"message": str(error), "cancelled": True}
            response = encode_frame({"id": number, "error": cancelled})
        except BaseException as error:  # noqa: BLE001  (the plugin waits for it, whatever it is)
            response = encode_frame({"id": number, "error": error_value(error)})
        finally:
            self._running.pop(number, None)
        self._write(response)

    def log(self, record: logging.LogRecord) -> None:
        """Send a log record to the plugin, for Spark's log."""
        line = {"logger": record.name, "level": record.levelname, "message": record.getMessage()}
        self._write(encode_frame({"log": line}))

    def _write(self, frame: list[bytes | pa.Buffer]) -> None:
        with self._writing:
            write_frame(self._responses, frame)

    def _method(self, name: str) -> Method:
        methods = self._methods()
        if name not in methods:
            raise InvalidInputError(
                f"the JVM plugin calls {name!r}, which this version does not have",
                hint="use the jar of this very version: pyspark_lance.plugin_jar()",
            )
        return methods[name]


class SparkLogHandler(logging.Handler):
    """Handler that forwards the package's log records to Spark's log, filtered by its settings."""

    def __init__(self, server: Server) -> None:
        super().__init__(logging.INFO)
        self._server = server

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record; the request that logs it continues if it cannot be sent."""
        try:
            self._server.log(record)
        except Exception:  # noqa: BLE001
            self.handleError(record)


def error_value(error: BaseException) -> Message:
    """Return an error as the plugin shows it: code, message and the parts of the message."""
    if not isinstance(error, LanceError):
        return {"message": "".join(traceback.format_exception(error)).strip()}
    shorten(error)
    retries = error.retries if isinstance(error, RetryableCommitError) else ""
    return {
        "code": error.code,
        "message": str(error),
        "what": error.what,
        "where": error.where,
        "hint": error.hint,
        **({"retries": retries} if retries else {}),
    }

"""Limit on the bytes that may be decoded at a time.

Metadata give the size of decoded rows only roughly: one value may be a thousand times as large as
its neighbors, or as its stored bytes.  So a reader sets a limit, and code that allocates an array
checks it first; if it is exceeded, the reader requests fewer rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.shred import data_bytes
from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.plain_values import plain_numbers, plain_scalar

_Word = TypeVar("_Word", bound=np.generic)


def allocate(num_bytes: int) -> NDArray[np.uint8]:
    """Uninitialised, writable, 64-byte aligned bytes from Arrow's pool."""
    return np.frombuffer(pa.allocate_buffer(max(num_bytes, 1)), np.uint8)[:num_bytes]


def as_bytes(array: NDArray[np.generic]) -> NDArray[np.uint8]:
    """The memory of a one-dimensional array as bytes; copied only if it is not contiguous."""
    return np.ascontiguousarray(array).view(np.uint8)


def as_words(data: NDArray[np.uint8], dtype: np.dtype[_Word]) -> NDArray[_Word]:
    """The bytes as little-endian words; a tail that fills no word is left out."""
    size = np.dtype(dtype).itemsize
    return data[: len(data) // size * size].view(dtype)


_room: ContextVar[int | None] = ContextVar("room", default=None)


class BatchTooLargeError(Exception):
    """More bytes than an array can hold or than there is room for; fewer rows would do."""


@contextmanager
def limit_decode_memory(num_bytes: int | None) -> Iterator[None]:
    """Set the limit for bytes decoded inside of the block; None for no limit."""
    token = _room.set(num_bytes)
    try:
        yield
    finally:
        _room.reset(token)


def require_decode_memory(num_bytes: int) -> None:
    """Raise BatchTooLargeError if decoding ``num_bytes`` exceeds the limit."""
    room = _room.get()
    if room is not None and num_bytes > room:
        raise BatchTooLargeError(f"decoding needs {num_bytes} bytes, the limit is {room}")


def require_memory_for_items(items: pa.Array, indices: NDArray[np.integer]) -> None:
    """Raise BatchTooLargeError if decoding the items of the indices exceeds the limit."""
    room = _room.get()
    if room is None or not is_variable_width(items.type) or not len(items):
        return
    lengths = pc.binary_length(items)
    sizes = plain_numbers(lengths.fill_null(plain_scalar(0, lengths.type)))
    if int(sizes.max()) * len(indices) > room:
        require_decode_memory(
            int(np.bincount(indices, minlength=len(sizes)).dot(sizes.astype(np.int64)))
        )


def charge_decode_memory(array: pa.Array) -> pa.Array:
    """The array, which was decoded and takes its part of the room."""
    room = _room.get()
    if room is not None:
        num_bytes = data_bytes(array)
        require_decode_memory(num_bytes)
        _room.set(room - num_bytes)
    return array

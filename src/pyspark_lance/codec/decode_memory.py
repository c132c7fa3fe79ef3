"""Limit on the bytes that may be decoded at a time.

Metadata give the size of decoded rows only roughly: one value may be a thousand times as large as
its neighbors, or as its stored bytes.  So a reader sets a limit, and code that allocates an array
checks it first; if it is exceeded, the reader requests fewer rows.

Numbers of bytes and of list items in the rows of an array.

Checks of untrusted bytes before a decoder allocates or indexes anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NoReturn, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.leaf_column import is_listlike, storage_type
from pyspark_lance.codec.shred import list_items, list_offsets
from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
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


def has_dictionaries(data_type: pa.DataType) -> bool:
    """Return whether the type is or holds a dictionary."""
    data_type = storage_type(data_type)
    if pa.types.is_dictionary(data_type):
        return True
    return any(
        has_dictionaries(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def is_counted_separately(data_type: pa.DataType) -> bool:
    """Return whether Arrow's own byte count of an array differs from ``data_bytes``."""
    data_type = storage_type(data_type)
    if pa.types.is_dictionary(data_type) or pa.types.is_null(data_type):
        return True
    return any(
        is_counted_separately(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def data_bytes(array: pa.Array) -> int:
    """Bytes of the rows of an array.

    Dictionaries do not count, slices share them.  Values of the type null, which have no bytes,
    count one each: flattening lists of them needs as much.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    if not is_counted_separately(data_type):
        return int(array.nbytes)
    if pa.types.is_null(data_type):
        return len(array)
    if pa.types.is_dictionary(data_type):
        return int(array.indices.nbytes)
    if pa.types.is_struct(data_type):
        return sum(data_bytes(array.field(index)) for index in range(data_type.num_fields))
    if is_listlike(data_type):
        offsets = list_offsets(array)
        first, end = int(offsets[0]), int(offsets[-1])
        return offsets.nbytes + data_bytes(list_items(array).slice(first, end - first))
    size = data_type.list_size
    return data_bytes(array.values.slice(array.offset * size, len(array) * size))


def item_counts(array: pa.Array) -> Iterator[NDArray[np.int64]]:
    """Yield, for every list at any depth, the number of items before each row, and in all.

    Each result has one number more than the array has rows: the items before each row, and the
    total. Items below a null list count, too.
    """
    yield from _item_counts(array, np.arange(len(array) + 1))


def _item_counts(array: pa.Array, bounds: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The same for values between ``bounds``, which ascend."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    if is_listlike(data_type):
        inside = list_offsets(array)[bounds]
        yield inside - inside[0]
        yield from _item_counts(list_items(array), inside)
    elif pa.types.is_struct(data_type):
        for index in range(data_type.num_fields):
            yield from _item_counts(array.field(index), bounds)
    elif pa.types.is_fixed_size_list(data_type):
        yield from _item_counts(array.values, (bounds + array.offset) * data_type.list_size)


def has_lists(data_type: pa.DataType) -> bool:
    """Return whether the type is or holds a list of any length."""
    data_type = storage_type(data_type)
    return is_listlike(data_type) or any(
        has_lists(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def require(condition: bool, what: str) -> None:
    """Raise CorruptFileError with the message ``what`` unless ``condition`` holds.

    The caller adds the location.
    """
    if not condition:
        raise CorruptFileError(what)


def unsupported(what: str) -> NoReturn:
    """Reject an encoding by name.

    Raises UnsupportedFeatureError: always. The caller adds where.
    """
    raise UnsupportedFeatureError(what)

"""Tensor and IVF messages, which store the partitions and centroids of a vector index."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.wire import encode_varint, length_delimited, read_varint, wire_fields

_Floats = NDArray[np.floating[Any]]
# Data types of tensors: enum value -> numpy type.
_TENSORS: Final = {1: "<f2", 2: "<f4", 3: "<f8"}
_NO_NUMBERS: Final = np.empty(0, np.int64)


def read_partitions(message: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64], _Floats | None]:
    """Parse the starts, lengths and centroids of an IVF message."""
    starts, lengths, centroids = _NO_NUMBERS, _NO_NUMBERS, None
    for field in wire_fields(message):
        value = message[field.value_start : field.end]
        if field.number == 2:
            starts = np.concatenate([starts, _numbers(value)])
        elif field.number == 3:
            lengths = np.concatenate([lengths, _numbers(value)])
        elif field.number == 4:
            centroids = read_tensor(value)
    return starts, lengths, centroids


def partitions_message(lengths: NDArray[np.int64], centroids: _Floats | None = None) -> bytes:
    """Serialize an IVF message of contiguous partitions.

    ``lengths``: rows of each. ``centroids``: shape (partitions, d); None if stored elsewhere.
    """
    starts = np.cumsum(lengths) - lengths
    message = length_delimited(2, _packed(starts)) + length_delimited(3, _packed(lengths))
    return message if centroids is None else message + length_delimited(4, tensor(centroids))


def read_tensor(message: bytes) -> _Floats:
    """Parse the numbers of a tensor, in its shape and type."""
    kind, shape, content = 0, _NO_NUMBERS, b""
    for field in wire_fields(message):
        value = message[field.value_start : field.end]
        if field.number == 1:
            kind = read_varint(value, 0)[0]
        elif field.number == 2:
            shape = np.concatenate([shape, _numbers(value)])
        elif field.number == 3:
            content = value
    return np.frombuffer(content, _TENSORS[kind]).reshape(shape)


def tensor(numbers: _Floats) -> bytes:
    """Serialize a tensor."""
    kinds = {dtype: number for number, dtype in _TENSORS.items()}
    dtype = np.dtype(numbers.dtype).newbyteorder("<")
    return (
        encode_varint(1 << 3)
        + encode_varint(kinds[f"<f{dtype.itemsize}"])
        + length_delimited(2, _packed(np.array(numbers.shape)))
        + length_delimited(3, np.ascontiguousarray(numbers, dtype).tobytes())
    )


def _numbers(packed: bytes) -> NDArray[np.int64]:
    """Parse packed varints."""
    found, position = [], 0
    while position < len(packed):
        number, position = read_varint(packed, position)
        found.append(number)
    return np.array(found, np.int64)


def _packed(numbers: NDArray[np.integer]) -> bytes:
    return b"".join(map(encode_varint, numbers.tolist()))

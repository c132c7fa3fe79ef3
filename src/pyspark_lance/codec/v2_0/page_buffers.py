"""What the 2.0 encodings need of the outside: the buffers of one page, and a place to put them.

Decoders name the byte slices they want and get them through ``PageBuffers``; so they do no I/O of
their own and a slice of a page costs only its bytes.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


class BufferSlice(NamedTuple):
    """Bytes ``start`` to ``end`` of the page buffer number ``buffer``."""

    buffer: int
    start: int
    end: int


class PageBuffers(Protocol):
    """The buffers of one page."""

    def size(self, index: int) -> int:
        """Length of a buffer in bytes."""

    def read(self, wanted: BufferSlice) -> pa.Buffer:
        """The bytes of a slice inside a buffer; a view where the store has one."""


class BufferCollector:
    """The buffers of a page being encoded, in the order in which they are numbered."""

    def __init__(self) -> None:
        self.buffers: list[object] = []

    def add(self, data: object) -> int:
        """Take a buffer; returns its number."""
        self.buffers.append(data)
        return len(self.buffers) - 1


def bit_slice(buffer: pa.Buffer | None, offset: int, length: int) -> NDArray[np.uint8]:
    """``length`` bits from bit ``offset`` on, moved to bit 0; a missing bitmap is all ones."""
    num_bytes = -(-length // 8)
    if buffer is None:
        return np.packbits(np.ones(length, np.bool_), bitorder="little")
    data = np.frombuffer(buffer, np.uint8)
    first, shift = divmod(offset, 8)
    if shift == 0:
        return data[first : first + num_bytes]
    bits = np.unpackbits(data[first : first + num_bytes + 1], bitorder="little")
    return np.packbits(bits[shift : shift + length], bitorder="little")


def validity_of(array: pa.Array) -> NDArray[np.bool_] | None:
    """True where a value is valid; None when there are no nulls."""
    if array.null_count == 0:
        return None
    if array.null_count == len(array):
        return np.zeros(len(array), np.bool_)
    bitmap = bit_slice(array.buffers()[0], array.offset, len(array))
    return np.unpackbits(bitmap, count=len(array), bitorder="little").view(np.bool_)

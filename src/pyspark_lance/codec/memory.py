"""Memory for decoded values.

Arrow's pool keeps memory that was given back, so that the next batch does not pay again for
touching fresh pages; that costs about as much as decoding.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

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

"""Looking up the items of a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.arrow_values import is_variable_width, offset_bytes
from pyspark_lance.codec.memory import allocate
from pyspark_lance.plain_values import plain_numbers

# Above it, Arrow's copies of strings take no longer than numpy's of words.
_MAX_SIZE = 16


def take_items(items: pa.Array, indices: pa.Array) -> pa.Array:
    """``items[indices]``, faster than Arrow's kernel where items are short and of one size.

    ``items``: of any type. ``indices``: of an integer type; null where the result is. They are not
    checked.
    """
    size = _size_of_items(items) if indices.null_count == 0 else None
    if size is None or size * len(indices) > np.iinfo(np.int32).max:
        return pc.take(items, indices, boundscheck=False)
    offset_type = np.dtype(f"i{offset_bytes(items.type)}")
    ends = np.arange(0, (len(indices) + 1) * size, size, dtype=offset_type)
    start = items.offset * size
    content = np.frombuffer(items.buffers()[2], np.uint8)[start : start + len(items) * size]
    taken = _take_words(content.view(f"V{size}"), plain_numbers(indices))
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(taken)]
    return pa.Array.from_buffers(items.type, len(indices), buffers)


def _take_words(words: NDArray[np.void], indices: NDArray[Any]) -> NDArray[np.uint8]:
    taken = allocate(len(indices) * words.itemsize)
    # Any mode but this one makes a copy of what is to be written.
    words.take(indices, out=taken.view(words.dtype), mode="clip")
    return taken


def _size_of_items(items: pa.Array) -> int | None:
    """Bytes of each string, if all are short, of one size, and none is null or empty."""
    if not len(items) or items.null_count or not is_variable_width(items.type):
        return None
    sizes = pc.min_max(pc.binary_length(items)).as_py()
    size = int(sizes["min"])
    return size if 0 < size <= _MAX_SIZE and size == sizes["max"] else None

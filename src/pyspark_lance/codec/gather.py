"""Gather pieces of a byte buffer, and items of a dictionary."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.decode_memory import allocate
from pyspark_lance.codec.values import is_variable_width, offset_bytes
from pyspark_lance.plain_values import plain_array, plain_numbers

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
    # Items before a slice may have other sizes.
    start = int(np.frombuffer(items.buffers()[1], offset_type)[items.offset])
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


_MAX_INT32 = 2**31 - 1
# Joining so few in Python takes less time than calling Arrow.
_SMALL_PIECE_COUNT = 128
_UNSIGNED = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


def gather(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """``data[starts[i] : starts[i] + sizes[i]]`` for every i, one after another.

    ``data``: the bytes to take from. ``starts``: ascending; no piece may overlap the next one, none
    may reach out of ``data``. ``sizes``: bytes per piece, parallel to ``starts``. Returns a view of
    ``data`` if the pieces are neighbours, else a copy.
    """
    count = len(starts)
    if count == 0:
        return data[:0]
    first, end = int(starts[0]), int(starts[-1] + sizes[-1])
    if count == 1 or end - first == int(sizes.sum()):
        return data[first:end]
    if count <= _SMALL_PIECE_COUNT:
        view = data.data
        bounds = zip(starts.tolist(), (starts + sizes).tolist(), strict=True)
        return np.frombuffer(b"".join([view[start:stop] for start, stop in bounds]), np.uint8)
    size, stride = int(sizes[0]), int(starts[1] - starts[0])
    if size % 8 == 0 and first % 8 == 0 and stride % 8 == 0:
        regular = _length_of_regular_run(starts, sizes, size, stride)
        if regular >= count - 1:
            return _gather_regular(data, starts, sizes, count - 1)
    return _gather_ragged(data, starts, sizes)


def _length_of_regular_run(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], size: int, stride: int
) -> int:
    """Return how many leading pieces have the same size and distance (or count - 1)."""
    inner_sizes_agree = bool((sizes[:-1] == size).all())
    strides_agree = bool((np.diff(starts[:-1]) == stride).all())
    return len(starts) - 1 if inner_sizes_agree and strides_agree else 0


def _gather_regular(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64], regular: int
) -> NDArray[np.uint8]:
    """The first ``regular`` pieces form a grid of 8-byte words; the last piece is anything."""
    first, size = int(starts[0]), int(sizes[0])
    stride = int(starts[1] - first)
    out = allocate(regular * size + int(sizes[-1]))
    words = data[first : int(starts[regular - 1]) + size].view(np.uint64)
    grid = np.lib.stride_tricks.as_strided(words, (regular, size // 8), (stride, 8))
    out[: regular * size].view(np.uint64).reshape(regular, -1)[...] = grid
    out[regular * size :] = data[int(starts[-1]) : int(starts[-1] + sizes[-1])]
    return out


def _gather_ragged(
    data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Pieces and gaps are the values of a binary array; Arrow's kernel keeps the pieces."""
    count = len(starts)
    small = len(data) <= _MAX_INT32
    offsets = np.empty(2 * count, np.int32 if small else np.int64)
    offsets[0::2] = starts
    offsets[1::2] = starts + sizes
    data_type = pa.binary() if small else pa.large_binary()
    pieces = pa.Array.from_buffers(
        data_type, 2 * count - 1, [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    )
    kept = pc.take(pieces, plain_array(np.arange(0, 2 * count, 2)), boundscheck=False)
    total = int(sizes.sum())
    content = kept.buffers()[2]
    return np.frombuffer(content, np.uint8, total) if total else data[:0]


def read_words(
    data: NDArray[np.uint8], positions: NDArray[np.int64], width: int
) -> NDArray[np.unsignedinteger]:
    """Return the little-endian words of ``width`` bytes at ``positions``, odd ones, too."""
    grid = data[positions[:, None] + np.arange(width)]
    return np.ascontiguousarray(grid).view(_UNSIGNED[width]).reshape(-1)

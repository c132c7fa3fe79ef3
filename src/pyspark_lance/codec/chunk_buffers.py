"""Buffers of mini-block chunks, to be decoded or laid out together.

An encoder returns the encoded values of a page as ``ValueChunks``, perhaps with a
``DictionaryBlock``; the page layout combines them with the levels.

``Segments`` describe the bytes of every chunk before the chunks are laid out. A buffer of a chunk
consists of one or more pieces. The pieces of all chunks are described by positions in one array, so
that chunks of equal size are copied as one matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.gather import gather
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


@dataclass(frozen=True, slots=True)
class ChunkBuffers:
    """Positions of the value buffers of each chunk."""

    data: NDArray[np.uint8]  # The bytes of all chunks.
    # Value slots of each chunk, int64; all positive but perhaps the last.
    num_values: NDArray[np.int64]
    # For each buffer of a chunk: its position in ``data``, one per chunk.
    starts: tuple[NDArray[np.int64], ...]
    # For each buffer of a chunk: its size in bytes, one per chunk.
    sizes: tuple[NDArray[np.int64], ...]

    @property
    def total_values(self) -> int:
        """Value slots of all chunks."""
        return int(self.num_values.sum())

    def require_buffers(self, count: int, what: str) -> None:
        """Raise if the chunks have another number of buffers than the encoding needs."""
        found = len(self.starts)
        require(found == count, f"{what} needs {count} buffers per chunk, the page has {found}")

    def gather(self, index: int) -> NDArray[np.uint8]:
        """Buffer ``index`` of every chunk, one after another."""
        return gather(self.data, self.starts[index], self.sizes[index])

    def gather_bits(self, index: int, bits_per_slot: int, what: str) -> NDArray[np.uint8]:
        """Buffer ``index`` of every chunk, cut to ``bits_per_slot`` bits per value slot.

        Returns the concatenated bits; bytes unless a chunk ends within one.
        """
        bits = self.num_values * bits_per_slot
        sizes = (bits + 7) // 8
        require(bool((self.sizes[index] >= sizes).all()), f"a chunk of {what} is too small")
        joined = gather(self.data, self.starts[index], sizes)
        if len(bits) < 2 or not (bits[:-1] % 8).any():
            return joined
        return _join_bits(joined, bits, sizes)

    def with_first_buffers(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], sizes: NDArray[np.int64]
    ) -> ChunkBuffers:
        """The same chunks with other bytes in their first buffers.

        ``data``: the new bytes; the old data is put behind them, so they must end aligned to 8.
        ``starts``: positions of the new first buffers in ``data``.
        """
        if len(self.starts) == 1:
            return replace(self, data=data, starts=(starts,), sizes=(sizes,))
        moved = tuple(start + len(data) for start in self.starts[1:])
        return replace(
            self,
            data=np.concatenate((data, self.data)),
            starts=(starts, *moved),
            sizes=(sizes, *self.sizes[1:]),
        )


def _join_bits(
    joined: NDArray[np.uint8], bits: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Drop the padding bits at the end of each piece."""
    flags = np.unpackbits(joined, bitorder="little")
    starts = (np.cumsum(sizes) - sizes) * 8
    kept = gather(flags, starts, bits)
    return np.packbits(kept, bitorder="little")


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """One piece for every chunk.

    ``starts``: first byte of each piece, int64; ``sizes``: bytes of each piece, int64.
    """

    data: NDArray[np.uint8]
    starts: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def copy_to(self, out: NDArray[np.uint8], targets: NDArray[np.int64]) -> None:
        """Copy piece i to ``out[targets[i]:]``."""
        regular = _regular_count(self.starts, self.sizes, targets)
        if regular:
            size = int(self.sizes[0])
            source = _rows(self.data, self.starts[:regular], size)
            _rows(out, targets[:regular], size)[...] = source
        # A memoryview slice costs a fifth of a numpy one; pieces are a few kilobytes each.
        source_view, target_view = self.data.data, out.data
        rest = zip(
            self.starts[regular:].tolist(),
            self.sizes[regular:].tolist(),
            targets[regular:].tolist(),
            strict=True,
        )
        for start, size, target in rest:
            target_view[target : target + size] = source_view[start : start + size]


@dataclass(frozen=True, slots=True, eq=False)
class ChunkBuffer:
    """One buffer of every chunk."""

    segments: tuple[Segments, ...]  # Its pieces, in order.
    alignment: int = 1  # The size of the buffer is a multiple of this; zeros fill it up.

    def sizes(self) -> NDArray[np.int64]:
        """Bytes of the buffer in each chunk."""
        total = sum((segments.sizes for segments in self.segments[1:]), self.segments[0].sizes)
        return round_up(total, self.alignment)

    def copy_to(self, out: NDArray[np.uint8], targets: NDArray[np.int64]) -> None:
        """Copy the buffer of chunk i to ``out[targets[i]:]``, which is zero so far."""
        for segments in self.segments:
            segments.copy_to(out, targets)
            targets = targets + segments.sizes


def fixed_size_segments(data: NDArray[np.generic], bytes_per_chunk: int) -> Segments:
    """``data`` cut into pieces of ``bytes_per_chunk``; the last one may be shorter."""
    flat = data.reshape(-1).view(np.uint8)
    starts = np.arange(0, len(flat), bytes_per_chunk, dtype=np.int64)
    return Segments(flat, starts, np.minimum(len(flat) - starts, bytes_per_chunk))


def round_up(sizes: NDArray[np.int64], alignment: int) -> NDArray[np.int64]:
    """The next multiples of ``alignment``."""
    return sizes if alignment == 1 else -(-sizes // alignment) * alignment


def _regular_count(
    starts: NDArray[np.int64], sizes: NDArray[np.int64], targets: NDArray[np.int64]
) -> int:
    """Return how many leading pieces, all or all but the last, form a matrix; or 0."""
    count = len(starts) - 1
    if count < 4 or int(sizes[0]) == 0 or (sizes[:count] != sizes[0]).any():
        return 0
    for positions in (starts[:count], targets[:count]):
        steps = np.diff(positions)
        if (steps != steps[0]).any():
            return 0
    return count


def _rows(data: NDArray[np.uint8], starts: NDArray[np.int64], size: int) -> NDArray[np.uint8]:
    """A matrix view of equally spaced pieces."""
    stride = int(starts[1] - starts[0])
    first = data[int(starts[0]) : int(starts[-1]) + size]
    return np.lib.stride_tricks.as_strided(first, (len(starts), size), (stride, 1))


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPage:
    """Buffers and their description.

    ``buffers``: page buffers: bytes or contiguous arrays.
    """

    buffers: Sequence[object]
    layout: pb.PageLayout
    num_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class ValueChunks:
    """The values of a page, encoded and cut into chunks."""

    encoding: pb.CompressiveEncoding
    log2_values: int  # Every chunk but the last holds two to the power of this many values.
    num_values: int  # Values of all chunks; more than 0.
    buffers: tuple[ChunkBuffer, ...]

    def value_ends(self) -> NDArray[np.int64]:
        """Return one past the last value of each chunk."""
        size = 1 << self.log2_values
        ends = np.arange(size, self.num_values + size, size, dtype=np.int64)
        ends[-1] = self.num_values
        return ends


@dataclass(frozen=True, slots=True, eq=False)
class DictionaryBlock:
    """The distinct values that the page's values are indices of."""

    encoding: pb.CompressiveEncoding
    content: bytes
    num_items: int

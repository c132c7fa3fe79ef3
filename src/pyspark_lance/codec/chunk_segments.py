"""ChunkSegments: the bytes that go into each chunk of a page, before the chunks are laid out.

A buffer of a chunk is one or more pieces put end to end.  Pieces are described for all chunks at
once, by positions in one array, so that equal chunks are copied as one matrix.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
    """How many pieces from the first on, all or all but the last, form a matrix; or 0."""
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

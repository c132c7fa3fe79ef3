"""ChunkBuffers: the value buffers of mini-block chunks that are decoded together."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.gather import gather


@dataclass(frozen=True, slots=True)
class ChunkBuffers:
    """Where each chunk's value buffers are."""

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

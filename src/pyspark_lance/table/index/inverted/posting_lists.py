"""PostingList: the encoded documents of a token, of which blocks are decoded as they are needed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.table.index.inverted.posting_codec import PostingFormat, decode_blocks

_Numbers = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Impacts:
    """Which frequencies and lengths the documents of blocks have, at best.

    Arrays of one length. Each document of a block has one of the pairs of this block, or a lower
    frequency and a greater length.
    """

    starts: _Numbers  # The first pair of each block.
    frequencies: _Numbers
    lengths: _Numbers


@dataclass(frozen=True, slots=True, eq=False)
class PostingList:
    """The documents of a token, in blocks."""

    number: int  # Of the token.
    length: int  # Documents.
    kind: PostingFormat
    data: NDArray[np.uint8]
    offsets: _Numbers  # Where each block begins in ``data``, the end last.
    firsts: _Numbers  # The first document of each block.
    impacts: Impacts | None  # None if they are not stored, or not readable.

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        found = self.data.nbytes + self.offsets.nbytes + self.firsts.nbytes
        if self.impacts is not None:
            pairs = self.impacts.frequencies.nbytes + self.impacts.lengths.nbytes
            found += self.impacts.starts.nbytes + pairs
        return int(found)

    def decode(self, blocks: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the documents of some blocks, ascending, and the frequency of the token in each.

        ``blocks``: ascending, none twice.
        """
        return decode_blocks(self.data, self.offsets, self.length, self.kind, blocks)

    def decode_all(self) -> tuple[_Numbers, _Numbers]:
        """Return all documents, and the frequency of the token in each."""
        return self.decode(np.arange(len(self.firsts)))

    def blocks_of(self, documents: _Numbers) -> _Numbers:
        """Return the only block that may have each document; -1 for those before the first."""
        return np.searchsorted(self.firsts, documents, "right") - 1

    def frequencies_in(self, documents: _Numbers, blocks: _Numbers) -> _Numbers:
        """Return how often each document has the token, possibly 0.

        ``documents``: ascending; ``blocks``: of each, by ``blocks_of``.
        """
        needed = blocks[np.flatnonzero(np.diff(blocks, prepend=-1))]
        own, frequencies = self.decode(needed)
        if not len(own):
            return np.zeros(len(documents), np.int64)
        places = np.searchsorted(own, documents)
        places[places == len(own)] = 0
        return np.where(own[places] == documents, frequencies[places], 0)

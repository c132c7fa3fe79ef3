"""PostingList and DecodedPostings: the documents of a token in an inverted index.

The first decodes blocks as they are needed. The second has all documents of a token that is
searched often, decoded, in a few bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.table.index.inverted.posting_codec import PostingFormat, decode_blocks

_Numbers = NDArray[np.int64]
# A token in a larger share of the documents has an array of all of them.
_FREQUENT_SHARE: Final = 32


def is_frequent(length: int, num_documents: int) -> bool:
    """Return whether a decoded token has an array of all documents, to find its frequencies."""
    return length * _FREQUENT_SHARE >= num_documents


@dataclass(frozen=True, slots=True, eq=False)
class Impacts:
    """Upper bounds of blocks: pairs of a frequency and a length of documents.

    Arrays of one length. Each document of a block has one of the pairs of this block, or a lower
    frequency and a greater length.
    """

    starts: _Numbers  # The first pair of each block.
    frequencies: _Numbers
    lengths: _Numbers


class Postings(Protocol):
    """The documents of a token, in blocks."""

    @property
    def number(self) -> int:
        """Number of the token."""

    @property
    def length(self) -> int:
        """Number of documents."""

    @property
    def firsts(self) -> _Numbers:
        """The first document of each block."""

    def decode(self, blocks: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the documents of some blocks, ascending, and the frequency of the token in each.

        ``blocks``: ascending, none twice.
        """

    def decode_all(self) -> tuple[_Numbers, _Numbers]:
        """Return all documents, and the frequency of the token in each."""

    def blocks_of(self, documents: _Numbers) -> _Numbers:
        """Return the only block that may have each document; -1 for those before the first."""

    def frequencies_in(
        self, documents: _Numbers, blocks: _Numbers | None = None
    ) -> NDArray[np.integer]:
        """Return how often each document has the token, possibly 0.

        ``documents``: ascending; ``blocks``: of each, by ``blocks_of``, if they are known.
        """


class _Blocks:
    """What both kinds of postings find in the same way."""

    __slots__ = ()

    firsts: _Numbers

    def blocks_of(self, documents: _Numbers) -> _Numbers:
        """Return the only block that may have each document; -1 for those before the first."""
        return np.searchsorted(self.firsts, documents, "right") - 1


class BlockCounter:
    """Counter of the decoded blocks of a posting list, some of them repeatedly."""

    def __init__(self) -> None:
        self.count = 0


@dataclass(frozen=True, slots=True, eq=False)
class PostingList(_Blocks):
    """The documents of a token, in blocks."""

    number: int  # Of the token.
    length: int  # Documents.
    kind: PostingFormat
    data: NDArray[np.uint8]
    offsets: _Numbers  # Where each block begins in ``data``, the end last.
    firsts: _Numbers  # The first document of each block.
    impacts: Impacts | None  # None if they are not stored, or not readable.
    decoded: BlockCounter = field(default_factory=BlockCounter)

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
        self.decoded.count += len(blocks)
        return decode_blocks(self.data, self.offsets, self.length, self.kind, blocks)

    def decode_all(self) -> tuple[_Numbers, _Numbers]:
        """Return all documents, and the frequency of the token in each."""
        return self.decode(np.arange(len(self.firsts)))

    def frequencies_in(
        self, documents: _Numbers, blocks: _Numbers | None = None
    ) -> NDArray[np.integer]:
        """Return how often each document has the token, possibly 0.

        ``documents``: ascending; ``blocks``: of each, by ``blocks_of``, if they are known.
        """
        blocks = self.blocks_of(documents) if blocks is None else blocks
        is_new = np.empty(len(blocks), np.bool_)
        is_new[:1] = blocks[:1] >= 0
        np.not_equal(blocks[1:], blocks[:-1], out=is_new[1:])
        needed = blocks[is_new]
        own, frequencies = self.decode(needed)
        if not len(own):
            return np.zeros(len(documents), np.int64)
        indices = np.searchsorted(own, documents)
        indices[indices == len(own)] = 0
        return np.where(own[indices] == documents, frequencies[indices], 0)


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPostings(_Blocks):
    """The documents of a token, decoded."""

    number: int  # Of the token.
    firsts: _Numbers  # The first document of each block.
    block_size: int
    documents: NDArray[np.uint32]  # Ascending.
    frequencies: NDArray[np.unsignedinteger]  # Of the smallest type that has them.
    # The frequency in each document of the partition, possibly 0; None for rare tokens.
    by_document: NDArray[np.unsignedinteger] | None = None

    @classmethod
    def of(
        cls, postings: PostingList, documents: _Numbers, frequencies: _Numbers, num_documents: int
    ) -> DecodedPostings:
        """Store all documents of a posting list in few bytes.

        ``num_documents``: of the partition; more than all of ``documents``.
        """
        often: NDArray[np.unsignedinteger] = frequencies.astype(
            np.min_scalar_type(int(frequencies.max(initial=0)))
        )
        by_document: NDArray[np.unsignedinteger] | None = None
        if is_frequent(postings.length, num_documents):
            by_document = np.zeros(num_documents, often.dtype)
            by_document[documents] = often
        return cls(
            postings.number,
            postings.firsts,
            postings.kind.block_size,
            documents.astype(np.uint32),
            often,
            by_document,
        )

    @property
    def length(self) -> int:
        """Number of documents."""
        return len(self.documents)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        dense = 0 if self.by_document is None else self.by_document.nbytes
        return int(self.documents.nbytes + self.frequencies.nbytes + self.firsts.nbytes + dense)

    def decode(self, blocks: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the documents of some blocks, ascending, and the frequency of the token in each.

        ``blocks``: ascending, none twice.
        """
        if len(blocks) == len(self.firsts):
            return self.decode_all()
        full = len(self.documents) // self.block_size
        packed = blocks[: np.searchsorted(blocks, full)]
        rest = slice(full * self.block_size if len(packed) < len(blocks) else self.length, None)
        parts = []
        for values in (self.documents, self.frequencies):
            in_blocks = values[: full * self.block_size].reshape(full, self.block_size)
            parts.append(np.concatenate([in_blocks[packed].ravel(), values[rest]]).astype(np.int64))
        return parts[0], parts[1]

    def decode_all(self) -> tuple[_Numbers, _Numbers]:
        """Return all documents, and the frequency of the token in each."""
        return self.documents.astype(np.int64), self.frequencies.astype(np.int64)

    def frequencies_in(
        self, documents: _Numbers, blocks: _Numbers | None = None
    ) -> NDArray[np.integer]:
        """Return how often each document has the token, possibly 0."""
        if self.by_document is not None:
            return self.by_document[documents]
        indices, is_there = self.indices_of(documents)
        found = np.zeros(len(documents), np.int64)
        found[is_there] = self.frequencies[indices]
        return found

    def indices_of(self, documents: _Numbers) -> tuple[_Numbers, NDArray[np.bool_]]:
        """Return the indices of documents that have the token, and which documents have it."""
        if not self.length:
            return np.empty(0, np.int64), np.zeros(len(documents), np.bool_)
        if self.by_document is not None:
            is_there = self.by_document[documents] > 0
            return self.documents.searchsorted(documents[is_there].astype(np.uint32)), is_there
        wanted = documents.astype(np.uint32)
        indices = np.searchsorted(self.documents, wanted)
        indices[indices == self.length] = 0
        is_there = self.documents[indices] == wanted
        return indices[is_there], is_there


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPositions:
    """The positions of a token in all of its documents."""

    starts: NDArray[np.unsignedinteger]  # The first position of each document.
    positions: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, frequencies: NDArray[np.integer], positions: _Numbers) -> DecodedPositions:
        """Store positions in few bytes."""
        counts = frequencies.astype(np.int64)
        starts = np.cumsum(counts) - counts
        return cls(
            starts.astype(np.min_scalar_type(len(positions))),
            positions.astype(np.min_scalar_type(int(positions.max(initial=0)))),
        )

    @property
    def nbytes(self) -> int:
        """About how much memory they take."""
        return int(self.starts.nbytes + self.positions.nbytes)

    def in_documents(
        self, postings: DecodedPostings, wanted: _Numbers
    ) -> tuple[_Numbers, _Numbers]:
        """Return the positions in some documents, as pairs of document and position.

        ``postings``: of the token; ``wanted``: ascending.
        """
        indices, is_there = postings.indices_of(wanted)
        counts = postings.frequencies[indices].astype(np.int64)
        before = np.cumsum(counts) - counts
        at = np.arange(counts.sum()) + np.repeat(
            self.starts[indices].astype(np.int64) - before, counts
        )
        return np.repeat(wanted[is_there], counts), self.positions[at].astype(np.int64)

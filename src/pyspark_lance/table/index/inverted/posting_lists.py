"""PostingList and DecodedPostings: the documents of a token in an inverted index.

The first decodes blocks as they are needed. The second has all documents of a token that is
searched often, decoded, in a few bytes each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.table.index.inverted.posting_codec import PostingFormat, decode_blocks

_Numbers = NDArray[np.int64]
# A token in a larger share of the documents has an array of all of them.
_FREQUENT_SHARE: Final = 32
# From this share on, the array is searched for the documents that have the token.
_SEARCHED_SHARE: Final = 8
# Documents of such an array whose frequencies are added up in advance.
_SUM_EVERY: Final = 32


def is_very_frequent(length: int, num_documents: int) -> bool:
    """Return whether the documents of a token are found by a search of such an array."""
    return length * _SEARCHED_SHARE >= num_documents


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
class SparsePostings(_Blocks):
    """The documents of a token that few have, and the frequency in each."""

    number: int  # Of the token.
    firsts: _Numbers  # The first document of each block.
    block_size: int
    documents: NDArray[np.uint32]  # Ascending.
    frequencies: NDArray[np.unsignedinteger]  # Of the smallest type that has them.

    @property
    def length(self) -> int:
        """Number of documents."""
        return len(self.documents)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(self.documents.nbytes + self.frequencies.nbytes + self.firsts.nbytes)

    def decode(self, blocks: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the documents of some blocks, ascending, and the frequency of the token in each.

        ``blocks``: ascending, none twice.
        """
        if len(blocks) == len(self.firsts):
            return self.decode_all()
        parts = [
            np.concatenate([one.ravel() for one in _blocks_at(values, self.block_size, blocks)])
            for values in (self.documents, self.frequencies)
        ]
        return parts[0].astype(np.int64), parts[1].astype(np.int64)

    def decode_all(self) -> tuple[_Numbers, _Numbers]:
        """Return all documents, and the frequency of the token in each."""
        return self.all_documents(), self.frequencies.astype(np.int64)

    def all_documents(self) -> _Numbers:
        """Return all documents."""
        return self.documents.astype(np.int64)

    def frequencies_in(
        self, documents: _Numbers, blocks: _Numbers | None = None
    ) -> NDArray[np.integer]:
        """Return how often each document has the token, possibly 0."""
        indices, is_there = self._indices_of(documents)
        found = np.zeros(len(documents), np.int64)
        found[is_there] = self.frequencies[indices]
        return found

    def documents_in(self, num_documents: int) -> NDArray[np.bool_]:
        """Return which of the first documents of the partition have the token."""
        mask = np.zeros(num_documents, np.bool_)
        mask[self.documents] = True
        return mask

    def frequency_sums(self) -> _Numbers:
        """Return the first number of each document that has the token."""
        counts = self.frequencies.astype(np.int64)
        return np.cumsum(counts) - counts

    def occurrences(
        self, documents: _Numbers, sums: NDArray[np.unsignedinteger]
    ) -> tuple[NDArray[np.bool_], _Numbers, _Numbers]:
        """Return which documents have the token, and of these the frequency and the first number.

        The occurrences of the token are numbered from 0, in the order of documents; ``sums``: as
        ``frequency_sums`` returns them.
        """
        indices, is_there = self._indices_of(documents)
        return is_there, self.frequencies[indices].astype(np.int64), sums[indices].astype(np.int64)

    def _indices_of(self, documents: _Numbers) -> tuple[_Numbers, NDArray[np.bool_]]:
        """Return the indices of documents that have the token, and which documents have it."""
        if not self.length:
            return np.empty(0, np.int64), np.zeros(len(documents), np.bool_)
        wanted = documents.astype(np.uint32)
        indices = np.searchsorted(self.documents, wanted)
        indices[indices == self.length] = 0
        is_there = self.documents[indices] == wanted
        return indices[is_there], is_there


@dataclass(frozen=True, slots=True, eq=False)
class DensePostings(_Blocks):
    """The frequencies of a token that many documents have, in all documents.

    The documents of a block are not searched for in these, but added up.
    """

    number: int  # Of the token.
    firsts: _Numbers  # The first document of each block.
    block_size: int
    # Of each document to the one before it in its block, 0 for the first.
    gaps: NDArray[np.unsignedinteger]
    by_document: NDArray[np.unsignedinteger]  # Possibly 0; of the smallest type that has them.

    @property
    def length(self) -> int:
        """Number of documents."""
        return len(self.gaps)

    @property
    def nbytes(self) -> int:
        """About how much memory it takes."""
        return int(self.gaps.nbytes + self.by_document.nbytes + self.firsts.nbytes)

    def decode(self, blocks: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Return the documents of some blocks, ascending, and the frequency of the token in each.

        ``blocks``: ascending, none twice.
        """
        documents = self._documents_of(blocks)
        return documents, self.by_document[documents].astype(np.int64)

    def _documents_of(self, blocks: _Numbers) -> _Numbers:
        packed, rest = _blocks_at(self.gaps, self.block_size, blocks)
        documents = np.cumsum(packed, axis=1, dtype=np.int64)
        documents += self.firsts[blocks[: len(packed)], None]
        documents = documents.ravel()
        if len(rest):
            tail = np.cumsum(rest, dtype=np.int64) + self.firsts[-1]
            documents = np.concatenate([documents, tail])
        return documents

    def decode_all(self) -> tuple[_Numbers, _Numbers]:
        """Return all documents, and the frequency of the token in each."""
        documents = self.all_documents()
        return documents, self.by_document[documents].astype(np.int64)

    def all_documents(self) -> _Numbers:
        """Return all documents."""
        if is_very_frequent(self.length, len(self.by_document)):
            return np.flatnonzero(self.by_document != 0)
        return self._documents_of(np.arange(len(self.firsts)))

    def frequencies_in(
        self, documents: _Numbers, blocks: _Numbers | None = None
    ) -> NDArray[np.integer]:
        """Return how often each document has the token, possibly 0."""
        return self.by_document[documents]

    def documents_in(self, num_documents: int) -> NDArray[np.bool_]:
        """Return which of the first documents of the partition have the token."""
        mask: NDArray[np.bool_] = self.by_document[:num_documents] != 0
        return mask

    def frequency_sums(self) -> _Numbers:
        """Return the number of the first occurrence from each 32nd document on."""
        counts = self._rows().sum(axis=1, dtype=np.int64)
        return np.cumsum(counts) - counts

    def occurrences(
        self, documents: _Numbers, sums: NDArray[np.unsignedinteger]
    ) -> tuple[NDArray[np.bool_], _Numbers, _Numbers]:
        """Return which documents have the token, and of these the frequency and the first number.

        ``sums``: as ``frequency_sums`` returns them.
        """
        frequencies = self.by_document[documents]
        is_there = frequencies != 0
        row, column = np.divmod(documents[is_there], _SUM_EVERY)
        before = self._rows()[row] * (np.arange(_SUM_EVERY) < column[:, None])
        starts = sums[row] + before.sum(axis=1, dtype=np.int64)
        return is_there, frequencies[is_there].astype(np.int64), starts

    def _rows(self) -> NDArray[np.unsignedinteger]:
        return self.by_document.reshape(-1, _SUM_EVERY)


DecodedPostings: TypeAlias = SparsePostings | DensePostings
"""The documents of a token, decoded."""


def store_decoded(
    postings: PostingList, documents: _Numbers, frequencies: _Numbers, num_documents: int
) -> DecodedPostings:
    """Store all documents of a posting list in few bytes.

    ``num_documents``: of the partition; more than all of ``documents``.
    """
    often: NDArray[np.unsignedinteger] = frequencies.astype(
        np.min_scalar_type(int(frequencies.max(initial=0)))
    )
    size = postings.kind.block_size
    if not is_frequent(postings.length, num_documents):
        stored = documents.astype(np.uint32)
        return SparsePostings(postings.number, postings.firsts, size, stored, often)
    by_document = np.zeros(-(-num_documents // _SUM_EVERY) * _SUM_EVERY, often.dtype)
    by_document[documents] = often
    gaps = np.diff(documents, prepend=0)
    gaps[::size] = 0
    gaps = gaps.astype(np.min_scalar_type(int(gaps.max(initial=0))))
    return DensePostings(postings.number, postings.firsts, size, gaps, by_document)


def _blocks_at(
    values: NDArray[Any], size: int, blocks: _Numbers
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the values of some full blocks, shape (blocks, size), and of the last if it is not.

    ``blocks``: ascending.
    """
    full = len(values) // size
    packed = blocks[: np.searchsorted(blocks, full)]
    rest = full * size if len(packed) < len(blocks) else len(values)
    return values[: full * size].reshape(full, size)[packed], values[rest:]


@dataclass(frozen=True, slots=True, eq=False)
class DecodedPositions:
    """The positions of a token in all of its documents."""

    sums: NDArray[np.unsignedinteger]  # By which those of a document are found.
    positions: NDArray[np.unsignedinteger]

    @classmethod
    def of(cls, postings: DecodedPostings, positions: _Numbers) -> DecodedPositions:
        """Store positions in few bytes."""
        return cls(
            postings.frequency_sums().astype(np.min_scalar_type(len(positions))),
            positions.astype(np.min_scalar_type(int(positions.max(initial=0)))),
        )

    @property
    def nbytes(self) -> int:
        """About how much memory they take."""
        return int(self.sums.nbytes + self.positions.nbytes)

    def in_documents(
        self, postings: DecodedPostings, wanted: _Numbers
    ) -> tuple[_Numbers, _Numbers]:
        """Return the positions in some documents, as pairs of document and position.

        ``postings``: of the token; ``wanted``: ascending.
        """
        is_there, counts, starts = postings.occurrences(wanted, self.sums)
        before = np.cumsum(counts) - counts
        at = np.arange(counts.sum()) + np.repeat(starts - before, counts)
        return np.repeat(wanted[is_there], counts), self.positions[at].astype(np.int64)

"""TextSegment: metadata of a segment of a full-text index, and readers of its partitions.

A segment has any number of partitions, each with its own tokens, documents and postings: document
numbers are rows of ``part_N_docs.lance``, and row t of ``part_N_invert.lance`` is of token t.

Observed in pylance 14.0.2; unknown features are rejected by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, Final, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.recently_used import RecentlyUsed, memory_share
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.index.inverted.posting_codec import (
    PostingFormat,
    check_blocks,
    decode_impacts,
    decode_legacy_positions,
    decode_lists,
    decode_positions,
    first_documents,
)
from pyspark_lance.table.index.inverted.posting_lists import (
    BlockCounter,
    DecodedPositions,
    DecodedPostings,
    Impacts,
    PostingList,
    Postings,
    is_frequent,
    store_decoded,
)
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.token_sets import ArrowTokens, FstTokens, TokenSet
from pyspark_lance.table.version.table_files import TableFiles

METADATA_FILE: Final = "metadata.lance"
NEWEST_TEXT_VERSION: Final = 3
_VARINT_TAIL: Final = "varint_delta_v1"
_FIXED_TAIL: Final = "fixed32_v1"
_SHARED_STREAM: Final = "shared_stream_v2"
_PACKED_DELTAS: Final = "packed_delta_v1"
# Frequent words of ten million documents take some 600 MB.
_KEPT_BYTES: Final = memory_share(16, least=256 << 20, most=1 << 30)
# At least so many decoded tokens are kept.
_MIN_KEPT: Final = 4
_KEPT_COUNTS: Final = 1 << 17
# Rows of documents that are taken one by one, if they are not a larger share of all.
_TAKEN_SHARE: Final = 32
_DOCUMENT_BYTES: Final = 12
# Runs of consecutive row ids that are searched for a document.
_MAX_RUNS: Final = 1 << 12
# Of a decoded document of a token.
_DECODED_BYTES: Final = 5
# Bytes of decoded positions for each byte of a stream.
_POSITION_GROWTH: Final = 8
_Numbers = NDArray[np.int64]
_Floats = NDArray[np.float32]


class PositionLayout(StrEnum):
    """Storage of the positions of tokens."""

    NONE = "none"
    STREAM = "stream"  # One stream of bytes per token.
    BY_DOCUMENT = "by_document"  # Format 1.


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """Metadata of a partition that a search needs before it reads it."""

    number: int
    num_documents: int
    total_tokens: int
    postings: PostingFormat
    positions: PositionLayout
    is_fst: bool  # Whether the tokens are an fst.

    def __post_init__(self) -> None:
        """Reject a plain value."""
        check_enum(self.positions, PositionLayout)


@dataclass(frozen=True, slots=True)
class TextSegment:
    """A segment of a full-text index."""

    entry: IndexMetadata
    options: TokenizerOptions
    partitions: tuple[PartitionMetadata, ...]

    @property
    def has_positions(self) -> bool:
        """Whether phrases can be searched."""
        return all(one.positions is not PositionLayout.NONE for one in self.partitions)

    def open_partitions(
        self, files: TableFiles, *, is_cached: bool = True
    ) -> tuple[TextPartition, ...]:
        """Return a reader of each partition; see ``TextPartition``."""
        return tuple(
            TextPartition(files, self.entry, facts, is_cached=is_cached)
            for facts in self.partitions
        )


@dataclass(frozen=True, slots=True)
class StoredTerms:
    """Some tokens, ascending by their bytes, and their documents."""

    names: pa.Array
    lengths: _Numbers  # Documents of each token.
    documents: _Numbers  # Ascending for each token.
    frequencies: _Numbers
    positions: _Numbers | None  # As many for each document as its frequency; None without them.


@dataclass(frozen=True, slots=True)
class Documents:
    """Documents of a partition."""

    row_ids: NDArray[np.uint64]  # Row ids or addresses, as the table names rows.
    lengths: NDArray[np.uint32]  # Tokens of each.


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocuments:
    """All documents of a partition, in few bytes."""

    # Of runs of consecutive row ids: the first document, and what row ids are more than documents.
    firsts: _Numbers
    addends: NDArray[np.uint64]
    row_ids: NDArray[np.uint64] | None  # Of all documents, if there are many runs.
    lengths: NDArray[np.unsignedinteger]  # Of the smallest type that has them.

    @classmethod
    def of(cls, documents: Documents) -> StoredDocuments:
        """Store documents."""
        row_ids = documents.row_ids
        addends = row_ids - np.arange(len(row_ids), dtype=np.uint64)
        firsts = np.append(0, np.flatnonzero(addends[1:] != addends[:-1]) + 1)[: len(row_ids)]
        lengths = documents.lengths
        return cls(
            firsts,
            addends[firsts],
            row_ids if len(firsts) > _MAX_RUNS else None,
            lengths.astype(np.min_scalar_type(int(lengths.max(initial=0)))),
        )

    @property
    def nbytes(self) -> int:
        """About how much memory they take."""
        every = 0 if self.row_ids is None else self.row_ids.nbytes
        return int(self.firsts.nbytes + self.addends.nbytes + every + self.lengths.nbytes)

    def row_ids_of(self, numbers: _Numbers) -> NDArray[np.uint64]:
        """Return the row ids of some documents."""
        if self.row_ids is not None:
            return self.row_ids[numbers]
        runs = np.searchsorted(self.firsts, numbers, "right") - 1
        return numbers.astype(np.uint64) + self.addends[runs]


@dataclass(frozen=True, slots=True, eq=False)
class _PositionStream:
    """The positions of a token."""

    data: NDArray[np.uint8]
    offsets: _Numbers  # Where the run of each posting block begins, the end last.
    decoded: BlockCounter = field(default_factory=BlockCounter)

    @property
    def nbytes(self) -> int:
        return int(self.data.nbytes + self.offsets.nbytes)


class _HasSize(Protocol):
    @property
    def nbytes(self) -> int: ...


def _new_cache() -> RecentlyUsed[_HasSize]:
    return RecentlyUsed(_KEPT_BYTES, lambda value: value.nbytes)


_Entry = TypeVar("_Entry", DecodedPostings, PostingList)
_Decoded = TypeVar("_Decoded", DecodedPostings, DecodedPositions)


def _new_count_cache() -> RecentlyUsed[int]:
    return RecentlyUsed(_KEPT_COUNTS, lambda _: 1)


_kept = _new_cache()
_kept_counts = _new_count_cache()


def open_text_segment(files: TableFiles, entry: IndexMetadata) -> TextSegment:
    """Read the metadata of a segment from its files.

    Raises:
        UnsupportedFeatureError: A version, codec or tokenizer that is not known.
    """
    if entry.index_version > NEWEST_TEXT_VERSION:
        raise UnsupportedFeatureError(
            f"version {entry.index_version} of the full-text index {entry.name!r}"
        )
    file = IndexFile.open(files, entry, METADATA_FILE, whole=True)
    found = _texts(file)
    try:
        numbers = [int(one) for one in json.loads(found["partitions"])]
        options = TokenizerOptions.from_params(found["params"], file.where)
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptFileError(
            f"the metadata of a full-text index cannot be read: {error!r}", file.where
        ) from error
    kind = found.get("token_set_format", "arrow")
    _check_known("token_set_format", kind, ("arrow", "fst"), file.where)
    partitions = tuple(_partition(files, entry, one, is_fst=kind == "fst") for one in numbers)
    return TextSegment(entry, options, partitions)


def _partition(
    files: TableFiles, entry: IndexMetadata, number: int, *, is_fst: bool
) -> PartitionMetadata:
    documents = IndexFile.open(files, entry, _file_of(number, "docs"))
    if any(field.name.startswith("_doc_index") for field in documents.reader.schema.fields):
        raise UnsupportedFeatureError(
            f"the full-text index {entry.name!r}, whose documents are elements of lists",
            documents.where,
        )
    total = _texts(documents).get("total_tokens")
    if total is None:
        total = str(plain_numbers(documents.read_all("_num_tokens").column(0)).sum())
    postings = IndexFile.open(files, entry, _file_of(number, "invert"))
    found, where = _texts(postings), postings.where
    tail = found.get("posting_tail_codec", _FIXED_TAIL)
    _check_known("posting_tail_codec", tail, (_VARINT_TAIL, _FIXED_TAIL), where)
    size = found.get("posting_block_size", "128")
    _check_known("posting_block_size", size, ("128", "256"), where)
    layout, names = PositionLayout.NONE, {field.name for field in postings.reader.schema.fields}
    if "_compressed_position" in names:
        layout = PositionLayout.STREAM
        _check_known(
            "positions_layout", found.get("positions_layout", ""), (_SHARED_STREAM,), where
        )
        _check_known("positions_codec", found.get("positions_codec", ""), (_PACKED_DELTAS,), where)
    elif "_position" in names:
        layout = PositionLayout.BY_DOCUMENT
    return PartitionMetadata(
        number,
        documents.reader.num_rows,
        int(total),
        PostingFormat(int(size), tail == _VARINT_TAIL),
        layout,
        is_fst,
    )


def _texts(file: IndexFile) -> dict[str, str]:
    return {name: value.decode() for name, value in file.reader.schema.metadata.items()}


def _check_known(name: str, value: str, values: Sequence[str], where: str) -> None:
    if value not in values:
        raise UnsupportedFeatureError(f"{name} {value!r} of a full-text index", where)


def _file_of(number: int, what: str) -> str:
    return f"part_{number}_{what}.lance"


class TextPartition:
    """Reader of a partition.

    ``is_cached``: whether tokens, documents and postings are shared by all queries of the process;
    a verification reads the files themselves.
    """

    def __init__(
        self,
        files: TableFiles,
        entry: IndexMetadata,
        facts: PartitionMetadata,
        *,
        is_cached: bool = True,
    ) -> None:
        self.facts = facts
        self._kept = _kept if is_cached else _new_cache()
        self._counts = _kept_counts if is_cached else _new_count_cache()
        self._files, self._entry = files, entry
        self._postings: IndexFile | None = None
        self._num_taken = 0  # Documents, one by one.
        self._mark = id(self)

    @property
    def tokens(self) -> TokenSet:
        """The tokens and their numbers."""
        key = self._entry.uuid, self.facts.number, "tokens"
        found = self._kept.get(key)
        if found is None:
            found = self._read_tokens()
            self._kept.put(key, found)
        assert isinstance(found, ArrowTokens | FstTokens)
        return found

    def _read_tokens(self) -> TokenSet:
        file = IndexFile.open(self._files, self._entry, _file_of(self.facts.number, "tokens"))
        if self.facts.is_fst:
            content = file.read_all("_token_fst_bytes").column(0)[0].as_py()
            return FstTokens(content, file.where)
        batch = file.read_all("_token", "_token_id")
        names = batch.schema.names
        numbers = batch.column(names.index("_token_id"))
        return ArrowTokens(batch.column(names.index("_token")), numbers)

    def token_numbers(self, wanted: Sequence[str]) -> _Numbers:
        """The number of each token, -1 for those that are not there."""
        found = []
        for token in wanted:
            key = self._entry.uuid, self.facts.number, "token", token
            number = self._counts.get(key)
            if number is None:
                known = self.tokens.number_of(token)
                number = -1 if known is None else known
                self._counts.put(key, number)
            found.append(number)
        return np.array(found, np.int64)

    def document_counts(self, numbers: _Numbers) -> _Numbers:
        """Return the number of documents that contain each of some tokens."""
        kept = [self._counts.get(self._posting_key(number)) for number in numbers.tolist()]
        counts = np.array([-1 if count is None else count for count in kept], np.int64)
        missing = np.flatnonzero(counts < 0)
        if len(missing):
            counts[missing] = plain_numbers(self._open_file().take("_length", numbers[missing]))
            for index in missing.tolist():
                self._counts.put(self._posting_key(int(numbers[index])), int(counts[index]))
        return counts

    def postings(self, numbers: _Numbers) -> list[DecodedPostings]:
        """The documents of each of some tokens."""
        return self._cached(numbers, self._decoded_key, self._decode_lists)

    def _posting_key(self, number: int) -> tuple[object, ...]:
        return self._entry.uuid, self.facts.number, number

    def posting_lists(self, numbers: _Numbers) -> list[PostingList]:
        """The encoded documents of each of some tokens."""
        return self._cached(numbers, self._list_key, self._read_postings)

    def _decoded_key(self, number: int) -> tuple[object, ...]:
        return *self._list_key(number), "decoded"

    def _list_key(self, number: int) -> tuple[object, ...]:
        return self._entry.uuid, self.facts.number, number, "list"

    def _cached(
        self,
        numbers: _Numbers,
        key_of: Callable[[int], tuple[object, ...]],
        load: Callable[[_Numbers], Iterable[_Entry]],
    ) -> list[_Entry]:
        """Return the cached entry of each token; load missing ones first."""
        kept = {number: self._kept.get(key_of(number)) for number in numbers.tolist()}
        missing = [number for number, one in kept.items() if one is None]
        for one in load(np.array(missing, np.int64)) if missing else ():
            self._kept.put(key_of(one.number), one)
            kept[one.number] = one
        return cast("list[_Entry]", list(kept.values()))

    def _decode_lists(self, numbers: _Numbers) -> Iterator[DecodedPostings]:
        """Decode the documents of some tokens; impacts are not read for that."""
        kept = {number: self._kept.get(self._list_key(number)) for number in numbers.tolist()}
        lists = [one for one in kept.values() if isinstance(one, PostingList)]
        missing = [number for number, one in kept.items() if one is None]
        if missing:
            lists += self._read_postings(np.array(missing, np.int64), with_impacts=False)
        for one in lists:
            yield self._decode_list(one)

    def _read_postings(self, numbers: _Numbers, *, with_impacts: bool = True) -> list[PostingList]:
        lengths = self.document_counts(numbers).tolist()
        data, offsets, parts = _nested_bytes(self._open_file().take("_posting", numbers))
        of_impacts = None
        names = {field.name for field in self._open_file().reader.schema.fields}
        if with_impacts and "_impacts" in names:
            of_impacts = _nested_bytes(self._open_file().take("_impacts", numbers))
        found = []
        kind = self.facts.postings
        for index, (number, length) in enumerate(zip(numbers.tolist(), lengths, strict=True)):
            own, starts = _part(data, offsets, int(parts[index]), int(parts[index + 1]))
            check_blocks(starts, length, kind)
            firsts = first_documents(own, starts, length, kind)
            impacts = None
            if of_impacts is not None:
                content, ends, entries = of_impacts
                first = int(entries[index])
                impacts = _impacts(*_part(content, ends, first, first + len(firsts)))
            found.append(PostingList(number, length, kind, own, starts, firsts, impacts))
        return found

    def searchable(self, postings: PostingList) -> Postings:
        """Return postings as they are searched fastest: decoded as a whole once that pays."""
        key = self._decoded_key(postings.number)
        size, blocks = postings.length * _DECODED_BYTES, len(postings.firsts)
        if is_frequent(postings.length, self.facts.num_documents):
            size += self.facts.num_documents
        whole = self._decode_whole(
            key, size, postings.decoded, blocks, partial(self._decode_list, postings)
        )
        return postings if whole is None else whole

    def _decode_list(self, postings: PostingList) -> DecodedPostings:
        documents, frequencies = postings.decode_all()
        self._check(documents)
        return store_decoded(postings, documents, frequencies, self.facts.num_documents)

    def _decode_whole(
        self,
        key: tuple[object, ...],
        size: int,
        decoded: BlockCounter,
        blocks: int,
        decode: Callable[[], _Decoded],
    ) -> _Decoded | None:
        """Return what ``decode`` returns, which is kept; None as long as blocks cost less.

        It pays once as many blocks were decoded as there are, by all searches.
        """
        found = self._kept.get(key)
        if found is None:
            if size > _KEPT_BYTES // _MIN_KEPT or decoded.count < blocks:
                return None
            found = decode()
            decoded.count = 0  # if it is evicted, searches have to need it again
            self._kept.put(key, found)
        return cast(_Decoded, found)

    def limits(
        self, postings: PostingList, average: np.float32, compute: Callable[[], _Floats]
    ) -> _Floats:
        """Return the highest score of a token in each block for a weight of 1, computed once.

        ``average``: of the lengths of documents, as scores use it.
        """
        key = *self._list_key(postings.number), float(average)
        found = self._kept.get(key)
        if found is None:
            found = compute()
            self._kept.put(key, found)
        assert isinstance(found, np.ndarray)
        return found

    def positions(self, postings: Postings, wanted: _Numbers) -> tuple[_Numbers, _Numbers]:
        """Positions of a token in some of its documents, as pairs of document and position.

        ``wanted``: ascending.
        """
        if self.facts.positions is PositionLayout.BY_DOCUMENT:
            positions, documents, frequencies = self._legacy_positions(postings)
        else:
            if isinstance(postings, DecodedPostings):
                decoded = self._decoded_positions(postings)
                if decoded is not None:
                    return decoded.in_documents(postings, wanted)
            positions, documents, frequencies = self._stream_positions(postings, wanted)
        is_wanted = np.zeros(len(documents), np.bool_)
        if len(wanted):
            indices = np.minimum(np.searchsorted(wanted, documents), len(wanted) - 1)
            is_wanted = wanted[indices] == documents
        kept = np.repeat(is_wanted, frequencies)
        return np.repeat(documents[is_wanted], frequencies[is_wanted]), positions[kept]

    def _stream_positions(
        self, postings: Postings, wanted: _Numbers
    ) -> tuple[_Numbers, _Numbers, _Numbers]:
        """Decode the positions of the posting blocks that may contain any of the documents."""
        blocks = np.unique(postings.blocks_of(wanted))
        blocks = blocks[blocks >= 0]
        if not len(blocks):
            return blocks, blocks, blocks
        stream = self._stream(postings)
        stream.decoded.count += len(blocks)
        return self._decode_stream(stream, postings, blocks)

    def _decoded_positions(self, postings: DecodedPostings) -> DecodedPositions | None:
        """Decode all positions of a token that was in many phrases, as in ``searchable``."""
        key = *self._list_key(postings.number), "decoded positions"
        found = self._kept.get(key)
        if isinstance(found, DecodedPositions):
            return found
        stream, blocks = self._stream(postings), len(postings.firsts)

        def decode() -> DecodedPositions:
            every = np.arange(blocks)
            positions, _, _ = self._decode_stream(stream, postings, every)
            return DecodedPositions.of(postings, positions)

        size = len(stream.data) * _POSITION_GROWTH
        return self._decode_whole(key, size, stream.decoded, blocks, decode)

    def _stream(self, postings: Postings) -> _PositionStream:
        key = *self._list_key(postings.number), "positions"
        stream = self._kept.get(key)
        if stream is None:
            stream = self._read_stream(postings.number)
            self._kept.put(key, stream)
        assert isinstance(stream, _PositionStream)
        return stream

    def _decode_stream(
        self, stream: _PositionStream, postings: Postings, blocks: _Numbers
    ) -> tuple[_Numbers, _Numbers, _Numbers]:
        documents, frequencies = postings.decode(blocks)
        starts = np.arange(0, len(documents), self.facts.postings.block_size)
        counts = np.add.reduceat(frequencies, starts)
        runs = stream.offsets[blocks], stream.offsets[blocks + 1]
        return decode_positions(stream.data, *runs, frequencies, counts), documents, frequencies

    def _read_stream(self, number: int) -> _PositionStream:
        row = np.array([number])
        data, whole = _bytes(self._open_file().take("_compressed_position", row))
        starts = plain_numbers(self._open_file().take("_position_block_offset", row).flatten())
        return _PositionStream(data, np.append(starts.astype(np.int64), whole[-1]))

    def _legacy_positions(self, postings: Postings) -> tuple[_Numbers, _Numbers, _Numbers]:
        documents, frequencies = postings.decode_all()
        lists = self._open_file().take("_position", np.array([postings.number]))
        data, offsets, parts = _nested_bytes(lists.flatten())
        return decode_legacy_positions(data, offsets, parts, frequencies), documents, frequencies

    def terms(self, max_numbers: int) -> Iterator[StoredTerms]:
        """Yield all tokens with their documents, about ``max_numbers`` of these at a time."""
        names, numbers = self._read_tokens().in_order()
        file = self._open_file()
        counts = plain_numbers(file.read_all("_length").column(0)).astype(np.int64)
        if len(numbers) != len(counts) or not np.array_equal(np.unique(numbers), np.sort(numbers)):
            raise CorruptFileError("tokens and posting lists do not match", file.where)
        if not len(counts):
            return
        counts = counts[numbers]
        parts = (np.cumsum(counts) - counts) // max(1, max_numbers)
        firsts = np.flatnonzero(np.diff(parts, prepend=-1))
        for first, last in zip(firsts.tolist(), [*firsts[1:].tolist(), len(counts)], strict=True):
            own = numbers[first:last]
            yield self._stored_terms(names.slice(first, last - first), own, counts[first:last])

    def _stored_terms(self, names: pa.Array, numbers: _Numbers, lengths: _Numbers) -> StoredTerms:
        kind, file = self.facts.postings, self._open_file()
        data, offsets, parts = _nested_bytes(file.take("_posting", numbers))
        documents, frequencies = decode_lists(data, offsets, parts, lengths, kind)
        limit = self.facts.num_documents
        if len(documents) and not 0 <= documents.min() <= documents.max() < limit:
            raise CorruptFileError("a posting list names a document that is not there", file.where)
        return StoredTerms(
            names,
            lengths,
            documents,
            frequencies,
            self._every_position(numbers, lengths, frequencies),
        )

    def _every_position(
        self, numbers: _Numbers, lengths: _Numbers, frequencies: _Numbers
    ) -> _Numbers | None:
        """The positions of some tokens in all of their documents."""
        if self.facts.positions is PositionLayout.NONE:
            return None
        if self.facts.positions is PositionLayout.BY_DOCUMENT:
            lists = self._open_file().take("_position", numbers)
            return decode_legacy_positions(*_nested_bytes(lists.flatten()), frequencies)
        data, wholes = _bytes(self._open_file().take("_compressed_position", numbers))
        starts = plain_numbers(self._open_file().take("_position_block_offset", numbers).flatten())
        size = self.facts.postings.block_size
        blocks = -(-lengths // size)
        if len(starts) != blocks.sum():
            raise CorruptFileError(
                "positions and posting lists do not match", self._open_file().where
            )
        starts = starts.astype(np.int64) + np.repeat(wholes[:-1], blocks)
        within = np.arange(len(starts)) - np.repeat(np.cumsum(blocks) - blocks, blocks)
        of_blocks = np.repeat(np.cumsum(lengths) - lengths, blocks) + within * size
        counts = np.add.reduceat(frequencies, of_blocks)
        return decode_positions(
            data, starts, np.append(starts[1:], wholes[-1]), frequencies, counts
        )

    def documents(self, numbers: _Numbers) -> Documents:
        """Read some documents, ascending.

        The first query reads them one by one if it needs few; later queries read and cache all.
        """
        return Documents(self.row_ids(numbers), self.document_lengths(numbers))

    def row_ids(self, numbers: _Numbers) -> NDArray[np.uint64]:
        """Return the row ids of some documents, ascending; see ``documents``."""
        every = self._load_documents(len(numbers))
        if every is None:
            return plain_numbers(self._documents_file().take("_rowid", numbers))
        return every.row_ids_of(numbers)

    def document_lengths(self, numbers: _Numbers) -> NDArray[np.uint32]:
        """Return the numbers of tokens of some documents, ascending; see ``documents``."""
        every = self._load_documents(len(numbers))
        if every is None:
            return plain_numbers(self._documents_file().take("_num_tokens", numbers))
        return every.lengths[numbers].astype(np.uint32)

    def _load_documents(self, num_needed: int) -> StoredDocuments | None:
        """All documents, None as long as reading them one by one costs less."""
        key = self._entry.uuid, self.facts.number, "documents"
        every = self._kept.get(key)
        if every is None:
            self._num_taken += num_needed
            is_new = self._counts.get(key) in (None, self._mark)
            is_large = self.facts.num_documents * _DOCUMENT_BYTES > _KEPT_BYTES // 2
            if (is_new or is_large) and self._num_taken * _TAKEN_SHARE < self.facts.num_documents:
                self._counts.put(key, self._mark)
                return None
            every = StoredDocuments.of(_documents(self._documents_file()))
            self._kept.put(key, every)
        assert isinstance(every, StoredDocuments)
        return every

    def _documents_file(self) -> IndexFile:
        return IndexFile.open(self._files, self._entry, _file_of(self.facts.number, "docs"))

    def _open_file(self) -> IndexFile:
        if self._postings is None:
            name = _file_of(self.facts.number, "invert")
            self._postings = IndexFile.open(self._files, self._entry, name)
        return self._postings

    def _check(self, documents: NDArray[np.integer[Any]]) -> None:
        if len(documents) and not 0 <= documents[0] <= documents[-1] < self.facts.num_documents:
            raise CorruptFileError(
                f"a posting list names document {documents[-1]} of {self.facts.num_documents}",
                self._open_file().where,
            )


def _part(
    data: NDArray[np.uint8], offsets: _Numbers, first: int, last: int
) -> tuple[NDArray[np.uint8], _Numbers]:
    """The bytes of some values, as a copy, and where each begins, the end last."""
    own = offsets[first : last + 1]
    return data[own[0] : own[-1]].copy(), own - own[0]


def _impacts(data: NDArray[np.uint8], offsets: _Numbers) -> Impacts | None:
    """Decode the impacts of a posting list; None if they cannot be read, as in Lance."""
    try:
        blocks, frequencies, lengths = decode_impacts(data, offsets)
    except CorruptFileError:
        return None
    starts = np.searchsorted(blocks, np.arange(len(offsets) - 1))
    if np.bincount(blocks, minlength=len(starts)).min(initial=1) == 0:
        return None
    return Impacts(starts, frequencies, lengths)


def _documents(file: IndexFile) -> Documents:
    batch = file.read_all("_rowid", "_num_tokens")
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    return Documents(plain_numbers(columns["_rowid"]), plain_numbers(columns["_num_tokens"]))


def _bytes(values: pa.LargeBinaryArray) -> tuple[NDArray[np.uint8], _Numbers]:
    """The bytes of all values, and where each begins in them, the end last."""
    _, offset_buffer, data = values.buffers()
    offsets = np.frombuffer(offset_buffer, np.int64, len(values) + 1, values.offset * 8)
    first, last = int(offsets[0]), int(offsets[-1])
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return content[first:last], offsets - first


def _nested_bytes(lists: Any) -> tuple[NDArray[np.uint8], _Numbers, _Numbers]:
    """The bytes of all values of lists of them, where each value begins, and each list."""
    parts = plain_numbers(lists.offsets).astype(np.int64)
    values = lists.values.slice(int(parts[0]), int(parts[-1] - parts[0]))
    data, offsets = _bytes(values)
    return data, offsets, parts - parts[0]

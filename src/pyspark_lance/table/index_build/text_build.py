"""TextPostings: the documents of each token, in bounded memory; the files of a segment.

A segment has one partition. Postings that exceed memory are sorted in runs, kept in temporary
files, and the runs are merged: a document is numbered when it comes, so postings of later runs
follow those of earlier ones. Segments that are added to an index later have the options of the
existing ones.

Source: docs/format/table-format.md, section 10.6.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final, TypeAlias, TypeVar
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import OFFSET_BITS
from pyspark_lance.plain_values import plain_array, plain_numbers, single_value
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.index_file import IndexFile, row_id_index
from pyspark_lance.table.index.inverted.segments import (
    TextPartition,
    TextSegment,
    open_text_segment,
)
from pyspark_lance.table.index.inverted.token_options import TokenizerOptions
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer
from pyspark_lance.table.index.minhash import SIGNATURES_FILE, MinHashOptions, options_of
from pyspark_lance.table.index.segments import (
    INVERTED,
    MINHASH,
    kind_of,
    map_addresses,
    reuse_versions,
)
from pyspark_lance.table.index_build.merged_segments import CurrentRows, StoredSegment
from pyspark_lance.table.index_build.segment_files import SegmentOutput, schema_of
from pyspark_lance.table.sort import SortedRuns, merge_streams
from pyspark_lance.table.text.posting_encoder import PostingEncoder, Terms
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

METADATA_FILE: Final = "metadata.lance"
TOKENS_FILE: Final = "part_0_tokens.lance"
DOCUMENTS_FILE: Final = "part_0_docs.lance"
POSTINGS_FILE: Final = "part_0_invert.lance"
TEXT_FILES: Final = (TOKENS_FILE, POSTINGS_FILE, DOCUMENTS_FILE, METADATA_FILE)

MAX_TOKENS: Final = 4 << 20
"""Tokens that are sorted in memory, at about 30 bytes each."""
_MAX_TEXT_BYTES: Final = 4 << 20  # Of texts that are tokenized at once.
_MAX_TEXTS: Final = 128 << 10
_CHUNK_POSTINGS: Final = 512 << 10  # Numbers that are encoded at once, or of one token.
_RUN_POSTINGS: Final = 32 << 10  # Numbers of each run in memory while runs are merged.
_MIN_STORED: Final = 8 << 10  # Postings of each of many partitions that are merged.
_TERM: Final = "term"
_DOCUMENTS: Final = "documents"
_FREQUENCIES: Final = "frequencies"
_POSITIONS: Final = "positions"
_SIXTY_THREE: Final = 63

_Ids: TypeAlias = NDArray[np.uint64]
_Words: TypeAlias = NDArray[np.uint32]
_Held: TypeAlias = tuple[NDArray[np.int32], _Words, _Words]
"""Codes of tokens, documents, and positions if there are any."""


class TextPostings(SortedRuns):
    """Collector of documents by token.

    ``ids`` and ``lengths``, in the order of documents, are complete when all texts were added.
    """

    def __init__(self, options: TokenizerOptions, max_tokens: int = MAX_TOKENS) -> None:
        super().__init__()
        self._tokenizer = Tokenizer(options)
        self._with_positions = options.with_position
        self._max_tokens = max_tokens
        self._texts: list[tuple[pa.Array, _Ids]] = []
        self._text_rows = self._text_bytes = 0
        self._terms: dict[str, int] = {}
        self._held: list[_Held] = []
        self._num_tokens = 0
        self._ids: list[_Ids] = []
        self._lengths: list[_Words] = []
        self._num_documents = 0
        self._stored: list[Iterator[pa.RecordBatch]] = []

    def add_stored(self, files: TableFiles, segment: StoredSegment, stable_row_ids: bool) -> None:
        """Add the documents of a segment by its postings; they are not tokenized again.

        ``stable_row_ids``: Whether the table has them.
        """
        self._tokenize()
        current = CurrentRows(files, segment, stable_row_ids)
        opened = open_text_segment(files, segment.entry)
        for partition in opened.open_partitions(files, is_cached=False):
            every = partition.documents(np.arange(partition.facts.num_documents))
            kept, ids = current.of(every.row_ids)
            numbers = np.full(partition.facts.num_documents, -1, np.int64)
            numbers[kept] = np.arange(len(kept)) + self._num_documents
            self._ids.append(ids)
            self._lengths.append(every.lengths[kept].astype(np.uint32))
            self._num_documents += len(kept)
            self._stored.append(self._renumber(partition, numbers))

    def _renumber(
        self, partition: TextPartition, numbers: NDArray[np.int64]
    ) -> Iterator[pa.RecordBatch]:
        """The postings of a partition as runs have them.

        ``numbers``: of its documents; -1 for deleted ones.
        """
        for stored in partition.terms(max(_MIN_STORED, _CHUNK_POSTINGS // len(self._stored))):
            documents = numbers[stored.documents]
            is_kept = documents >= 0
            ends = np.concatenate([[0], np.cumsum(is_kept)])[np.cumsum(stored.lengths)]
            is_left = np.diff(ends, prepend=0) > 0
            offsets = np.concatenate([[0], ends[is_left]])
            frequencies = stored.frequencies[is_kept]
            columns = {
                _TERM: stored.names.filter(plain_array(is_left)),
                _DOCUMENTS: _lists(offsets, documents[is_kept].astype(np.uint32)),
                _FREQUENCIES: _lists(offsets, frequencies.astype(np.uint32)),
            }
            if self._with_positions:
                assert stored.positions is not None, "only such segments are merged"
                own = stored.positions[np.repeat(is_kept, stored.frequencies)]
                bounds = np.concatenate([[0], np.cumsum(frequencies)])[offsets]
                columns[_POSITIONS] = _lists(bounds, own.astype(np.uint32))
            if is_left.any():
                yield pa.RecordBatch.from_pydict(columns)

    def add(self, texts: pa.Array, ids: _Ids) -> None:
        """Add strings or lists of strings, and the ids or addresses of their rows."""
        self._texts.append((texts, ids))
        self._text_rows += len(texts)
        self._text_bytes += texts.nbytes
        if self._text_rows >= _MAX_TEXTS or self._text_bytes >= _MAX_TEXT_BYTES:
            self._tokenize()

    def documents(self) -> tuple[_Ids, _Words]:
        """Return the row id or address of each document, and its number of tokens."""
        self._tokenize()
        ids = np.concatenate([np.empty(0, np.uint64), *self._ids])
        return ids, np.concatenate([np.empty(0, np.uint32), *self._lengths])

    def terms(self) -> Iterator[Terms]:
        """Yield all tokens, ascending by their bytes, with their documents; in blocks."""
        self._tokenize()
        if not self.paths and not self._stored:
            return map(_as_terms, self._sort_tokens(_CHUNK_POSTINGS)) if self._held else iter(())
        self._spill()
        streams = [*self._stored, *self.streams()]
        return map(_as_terms, _whole_terms(merge_streams(streams, _sort_indices)))

    def _tokenize(self) -> None:
        if not self._texts:
            return
        texts = pa.concat_arrays([own for own, _ in self._texts])
        ids = np.concatenate([own for _, own in self._texts])
        self._texts, self._text_rows, self._text_bytes = [], 0, 0
        found = self._tokenizer.tokenize(texts)
        add = self._terms.setdefault
        codes = np.array([add(term, len(self._terms)) for term in found.terms], np.int32)
        counts = np.bincount(found.rows, minlength=len(texts))
        # Rows without a token are no documents.
        numbers = np.cumsum(counts > 0) - 1 + self._num_documents
        self._ids.append(ids[counts > 0])
        self._lengths.append(counts[counts > 0].astype(np.uint32))
        self._num_documents += len(self._ids[-1])
        self._held.append(
            (
                codes[found.codes],
                numbers[found.rows].astype(np.uint32),
                found.positions.astype(np.uint32) if self._with_positions else np.empty(0, "u4"),
            )
        )
        self._num_tokens += len(found)
        if self._num_tokens >= self._max_tokens:
            self._spill()

    def _spill(self) -> None:
        if not self._num_tokens:
            return
        batches = self._sort_tokens(_RUN_POSTINGS)
        first = next(batches)
        self.write_run(first.schema, chain((first,), batches))

    def _sort_tokens(self, chunk: int) -> Iterator[pa.RecordBatch]:
        """The tokens that are held, ascending, with their postings; holds none afterwards.

        ``chunk``: numbers of a batch, unless one token has more.
        """
        if not self._num_tokens:
            return
        names = pa.array(list(self._terms), pa.string())
        held, self._held, self._terms, self._num_tokens = self._held, [], {}, 0
        order = plain_numbers(pc.array_sort_indices(names))
        ranks = np.empty(len(order), np.int32)
        ranks[order] = np.arange(len(order), dtype=np.int32)
        codes, documents, positions = _in_order(held, ranks)
        names = names.take(plain_array(order))
        is_first = np.ones(len(codes), np.bool_)
        is_first[1:] = (codes[1:] != codes[:-1]) | (documents[1:] != documents[:-1])
        starts = np.flatnonzero(is_first)
        ends = np.searchsorted(codes[starts], np.arange(len(names)), "right")
        frequencies = np.diff(starts, append=len(codes)).astype(np.uint32)
        documents = documents[starts]
        # Of positions, or of postings, about as many in each batch.
        sizes = ends if not len(positions) else np.append(starts, len(codes))[ends]
        for first, last in _cut(sizes, chunk):
            begin = int(ends[first - 1]) if first else 0
            part = slice(begin, int(ends[last - 1]))
            offsets = np.concatenate([[begin], ends[first:last]]) - begin
            columns = {
                _TERM: names.slice(first, last - first),
                _DOCUMENTS: _lists(offsets, documents[part]),
                _FREQUENCIES: _lists(offsets, frequencies[part]),
            }
            if len(positions):
                bounds = np.append(starts, len(codes))[begin + offsets]
                own = positions[int(bounds[0]) : int(bounds[-1])]
                columns[_POSITIONS] = _lists(bounds - bounds[0], own)
            yield pa.RecordBatch.from_pydict(columns)


def write_text_segment(
    store: ObjectStore, uuid: UUID, options: TokenizerOptions, postings: TextPostings
) -> dict[str, int]:
    """Write the files of a segment; return their lengths in bytes, by name."""
    ids, lengths = postings.documents()
    encoder = PostingEncoder(lengths, options.block_size)
    codecs = _codecs(options)
    sizes = {}
    tokens = SegmentOutput(store, uuid, TOKENS_FILE, _TOKENS_SCHEMA)
    lists = SegmentOutput(store, uuid, POSTINGS_FILE, _postings_schema(options), codecs)
    with tokens, lists:
        number = 0
        for terms in postings.terms():
            numbers = np.arange(number, number + len(terms.names), dtype=np.uint32)
            number += len(numbers)
            columns = [terms.names, plain_array(numbers)]
            tokens.write(pa.RecordBatch.from_arrays(columns, schema=_TOKENS_SCHEMA))
            encoded = encoder.columns(terms)
            schema = _postings_schema(options)
            arrays = [encoded[name] for name in schema.names]
            lists.write(pa.RecordBatch.from_arrays(arrays, schema=schema))
    sizes = {TOKENS_FILE: tokens.size_bytes, POSTINGS_FILE: lists.size_bytes}
    total = {"total_tokens": str(int(lengths.sum(dtype=np.int64))).encode()}
    with SegmentOutput(store, uuid, DOCUMENTS_FILE, _DOCUMENTS_SCHEMA, total) as output:
        columns = [plain_array(ids), plain_array(lengths)]
        output.write(pa.RecordBatch.from_arrays(columns, schema=_DOCUMENTS_SCHEMA))
    sizes[DOCUMENTS_FILE] = output.size_bytes
    metadata = {
        "partitions": b"[0]",
        "params": options.to_params().encode(),
        "token_set_format": b"arrow",
        **codecs,
    }
    with SegmentOutput(store, uuid, METADATA_FILE, _METADATA_SCHEMA, metadata) as output:
        nothing = single_value(BitMap().serialize(), pa.binary())
        output.write(pa.RecordBatch.from_arrays([nothing], schema=_METADATA_SCHEMA))
    sizes[METADATA_FILE] = output.size_bytes
    return sizes


def text_format_version(options: TokenizerOptions) -> int:
    """The version of Lance's format that a segment has."""
    return 2 if options.block_size == 128 else 3


_TOKENS_SCHEMA: Final = schema_of(
    [("_token", pa.string(), False), ("_token_id", pa.uint32(), False)]
)
_DOCUMENTS_SCHEMA: Final = schema_of(
    [("_rowid", pa.uint64(), False), ("_num_tokens", pa.uint32(), False)]
)
_METADATA_SCHEMA: Final = schema_of([("deleted_fragments", pa.binary(), False)])


def _postings_schema(options: TokenizerOptions) -> pa.Schema:
    columns = [
        ("_posting", pa.list_(pa.large_binary()), False),
        ("_max_score", pa.float32(), False),
        ("_length", pa.uint32(), False),
        ("_impacts", pa.list_(pa.large_binary()), False),
    ]
    if options.with_position:
        columns += [
            ("_compressed_position", pa.large_binary(), False),
            ("_position_block_offset", pa.list_(pa.uint32()), False),
        ]
    return schema_of(columns)


def _codecs(options: TokenizerOptions) -> dict[str, bytes]:
    codecs = {
        "format_version": str(text_format_version(options)).encode(),
        "posting_block_size": str(options.block_size).encode(),
        "posting_tail_codec": b"varint_delta_v1",
    }
    if options.with_position:
        codecs |= {"positions_codec": b"packed_delta_v1", "positions_layout": b"shared_stream_v2"}
    return codecs


# Sorted postings ---------------------------------------------------------------------------------


def _in_order(
    held: list[_Held], ranks: NDArray[np.int32]
) -> tuple[NDArray[np.int32], _Words, _Words]:
    """Tokens by their ranks; those of a document stay in their order, positions may be none.

    ``held``: is empty afterwards.
    """
    greatest = [max(int(part[n].max(initial=0)) for part in held) for n in (1, 2)]
    of_documents, of_positions = (number.bit_length() for number in greatest)
    has_positions = any(len(positions) for _, _, positions in held)
    if len(ranks).bit_length() + of_documents + of_positions > _SIXTY_THREE:
        codes, documents, positions = (np.concatenate(parts) for parts in zip(*held, strict=True))
        held.clear()
        codes = ranks[codes]
        order = np.argsort(codes, kind="stable")
        return codes[order], documents[order], positions[order] if has_positions else positions
    # Sorting numbers is several times as fast as finding their order.
    keys = np.empty(sum(len(codes) for codes, _, _ in held), np.int64)
    end = len(keys)
    while held:
        codes, documents, positions = held.pop()
        part = keys[end - len(codes) : end]
        end -= len(codes)
        part[:] = ranks[codes]
        part <<= of_documents
        part |= documents
        if has_positions:
            part <<= of_positions
            part |= positions
    keys.sort()
    positions = np.empty(0, np.uint32)
    if has_positions:
        positions = (keys & (1 << of_positions) - 1).astype(np.uint32)
        keys >>= of_positions
    documents = (keys & (1 << of_documents) - 1).astype(np.uint32)
    keys >>= of_documents
    return keys.astype(np.int32), documents, positions


def _cut(ends: NDArray[np.int64], size: int) -> Iterator[tuple[int, int]]:
    """Parts of items of about ``size`` together; ``ends``: their running sum."""
    first = done = 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, done + size, "right")))
        yield first, last
        first, done = last, int(ends[last - 1])


def _lists(offsets: NDArray[np.int64], values: _Words) -> pa.Array:
    return pa.LargeListArray.from_arrays(plain_array(offsets.astype(np.int64)), plain_array(values))


def _sort_indices(rows: pa.RecordBatch) -> NDArray[np.int64]:
    return plain_numbers(pc.array_sort_indices(rows.column(_TERM))).astype(np.int64)


def _whole_terms(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Sorted rows, cut where a token begins."""
    held: list[pa.RecordBatch] = []
    num_held = 0
    for batch in batches:
        held.append(batch)
        num_held += sum(len(column.flatten()) for column in batch.columns[1:2])
        if num_held < _CHUNK_POSTINGS:
            continue
        rows = join_batches(held)
        first = pc.index(rows.column(_TERM), rows.column(_TERM)[-1]).as_py()
        if first:
            yield from _cut_terms(rows.slice(0, first))
            rows = rows.slice(first)
        held, num_held = [rows], len(rows.column(_DOCUMENTS).flatten())
    if held:
        yield from _cut_terms(join_batches(held))


def _cut_terms(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Divide rows where tokens begin: merged runs may have many times as many as one batch."""
    stops = _ends_of_terms(rows.column(_TERM))
    numbers = np.zeros(rows.num_rows, np.int64)
    for column in rows.columns[1:]:
        np.maximum(numbers, plain_numbers(pc.list_value_length(column)), out=numbers)
    for first, last in _cut(np.cumsum(numbers)[stops - 1], _CHUNK_POSTINGS):
        start = int(stops[first - 1]) if first else 0
        yield rows.slice(start, int(stops[last - 1]) - start)


def _ends_of_terms(names: pa.Array) -> NDArray[np.int64]:
    """One past the last row of each token; rows of one token follow each other."""
    is_last = np.ones(len(names), np.bool_)
    if len(names) > 1:
        is_last[:-1] = plain_numbers(pc.not_equal(names.slice(0, len(names) - 1), names.slice(1)))
    return np.flatnonzero(is_last) + 1


def _as_terms(rows: pa.RecordBatch) -> Terms:
    """Rows as tokens; rows of one token follow each other."""
    names = rows.column(_TERM)
    last = _ends_of_terms(names) - 1
    postings = rows.column(_DOCUMENTS)
    ends = np.cumsum(plain_numbers(pc.list_value_length(postings)))
    numbers: Sequence[NDArray[np.int64]] = [
        plain_numbers(rows.column(name).flatten()).astype(np.int64)
        for name in rows.schema.names[1:]
    ]
    documents, frequencies, *positions = numbers
    return Terms(
        names.take(plain_array(last)),
        ends[last].astype(np.int64),
        documents,
        frequencies,
        positions[0] if positions else None,
    )


logger = logging.getLogger(__name__)

_NEWEST_VERSION: Final = 3
_ROWS_AT_ONCE: Final = 1 << 20
_T = TypeVar("_T")
_OTHER_NAMES: Final = {"fts": INVERTED, "minhashlsh": MINHASH, "minhash": MINHASH}


def index_kind(name: str) -> str:
    """The kind of index of this name, in whatever case, also by the names of Lance."""
    name = name.lower()
    return _OTHER_NAMES.get(name, name)


def tokenizer_options(kind: str, given: Mapping[str, Any]) -> TokenizerOptions | None:
    """Parse the tokenizer options of an index of a kind; None if none are given.

    ``given``: by the names of Lance; None for its defaults.

    Raises:
        InvalidInputError: Options of another kind of index, or an invalid value.
    """
    known = {name: value for name, value in given.items() if value is not None}
    if known and kind != INVERTED:
        name = next(iter(known))
        raise InvalidInputError(f"{name} is for inverted indices, not for {kind}")
    if known.get("max_token_length") == 0:
        known["max_token_length"] = None
    return TokenizerOptions.from_mapping(known) if known else None


def options_to_refresh(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], *, is_named: bool
) -> TokenizerOptions | None:
    """Return the tokenizer options of further segments; None if the index has to stay as it is.

    ``is_named``: whether the caller named this index.

    Raises:
        UnsupportedFeatureError: The tokenizer of the named index is not supported.
    """

    def options() -> TokenizerOptions:
        found = _options_of(snapshot.files, entries[-1])
        Tokenizer(found)
        return found

    return _or_leave(snapshot, entries, options, is_named=is_named)


def minhash_to_refresh(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], *, is_named: bool
) -> MinHashOptions | None:
    """Return the parameters of further segments of an index; None if it has to stay as it is.

    ``is_named``: whether the caller named this index.

    Raises:
        UnsupportedFeatureError: The parameters of the named index's signatures are not supported.
    """

    def options() -> MinHashOptions:
        found = options_of(entries[-1])
        Tokenizer(found.tokens)
        return found

    return _or_leave(snapshot, entries, options, is_named=is_named)


def _or_leave(
    snapshot: Snapshot, entries: Sequence[IndexMetadata], make: Callable[[], _T], *, is_named: bool
) -> _T | None:
    """Return the options of an index; None if they are not supported and it is not named."""
    try:
        return make()
    except (LanceError, FileNotFoundError) as error:
        if is_named:
            raise
        logger.info("the index %r of %s stays as it is: %s", entries[0].name, snapshot.uri, error)
        return None


def readable_segment(snapshot: Snapshot, entry: IndexMetadata) -> TextSegment | None:
    """Return a segment of texts; None if it cannot be read."""
    try:
        return open_text_segment(snapshot.files, entry)
    except (LanceError, FileNotFoundError):
        return None


def has_equal_tokens(snapshot: Snapshot, entry: IndexMetadata, options: TokenizerOptions) -> bool:
    """Return whether a segment has the tokens, and positions if needed, of ``options``."""
    segment = readable_segment(snapshot, entry)
    if segment is None:
        return False
    own = replace(
        segment.options, block_size=options.block_size, with_position=options.with_position
    )
    return own == options and (segment.has_positions or not options.with_position)


def _options_of(files: TableFiles, entry: IndexMetadata) -> TokenizerOptions:
    if entry.index_version > _NEWEST_VERSION:
        raise UnsupportedFeatureError(f"version {entry.index_version} of an inverted index")
    file = IndexFile.open(files, entry, METADATA_FILE, whole=True)
    found = file.reader.schema.metadata
    if "params" not in found:
        raise CorruptFileError("an inverted index without its parameters", file.where)
    options = TokenizerOptions.from_params(found["params"].decode(), file.where)
    for number in _partitions(file):
        documents = IndexFile.open(files, entry, f"part_{number}_docs.lance")
        if any(field.name.startswith("_doc_index") for field in documents.reader.schema.fields):
            raise UnsupportedFeatureError(
                "an inverted index whose documents are elements of lists", file.where
            )
    return options


def _partitions(file: IndexFile) -> list[int]:
    try:
        return [int(number) for number in json.loads(file.reader.schema.metadata["partitions"])]
    except (KeyError, ValueError, TypeError) as error:
        raise CorruptFileError("an inverted index without its partitions", file.where) from error


def references_uncovered_rows(
    snapshot: Snapshot, entry: IndexMetadata, fragments: Collection[int]
) -> bool:
    """Return whether a segment refers to live rows outside of the fragments that it covers.

    An update keeps the row id and moves the row; values written in place take a fragment out of the
    bitmap.  Lance applies all segments to a row that any of them covers: as soon as another segment
    covers the row, its old text counts as well.  So such a segment is rebuilt before that.

    True also if that is unknown: its files are damaged.
    """
    live = set(snapshot.manifest.fragments.ids.tolist())
    try:
        for named in _named_rows(snapshot.files, entry):
            if snapshot.uses_stable_row_ids:
                addresses, is_found = row_id_index(snapshot).addresses_of(named)
                addresses = addresses[is_found]
            else:
                addresses = map_addresses(named, reuse_versions(snapshot))
            now = set(np.unique(addresses >> np.uint64(OFFSET_BITS)).tolist())
            if not now & live <= set(fragments):
                return True
    except (LanceError, FileNotFoundError):
        return True
    return False


def _named_rows(files: TableFiles, entry: IndexMetadata) -> Iterator[NDArray[np.uint64]]:
    """Yield the row ids or addresses of the documents of a segment, in blocks."""
    if kind_of(entry) == MINHASH:
        names = [SIGNATURES_FILE]
    else:
        metadata = IndexFile.open(files, entry, METADATA_FILE, whole=True)
        names = [f"part_{number}_docs.lance" for number in _partitions(metadata)]
    for name in names:
        file = IndexFile.open(files, entry, name)
        for first in range(0, file.reader.num_rows, _ROWS_AT_ONCE):
            end = min(first + _ROWS_AT_ONCE, file.reader.num_rows)
            rows = file.read_ranges([(first, end)], ["_rowid"])
            yield plain_numbers(rows.column(0).combine_chunks())

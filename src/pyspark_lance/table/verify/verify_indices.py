"""Verify that index files exist, are consistent, and agree with the columns.

Columns and indices are compared by checksums: for each fragment, the hashes of value and address of
all live rows are added up, once for the column and once for the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyroaring import BitMap, BitMap64

from pyspark_lance.codec.value_hashes import hashes_of, hashes_with_nulls, xxh64_of_numbers
from pyspark_lance.errors import CorruptFileError, LanceError, StorageError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata, reuse_index_of
from pyspark_lance.format.row_address import OFFSET_BITS, numbers_of, parse_tree_map
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.index.bitmap import BITMAP_FILE, LABEL_NULLS_KEY, read_row_sets
from pyspark_lance.table.index.bloom import BloomIndex
from pyspark_lance.table.index.btree import BTree, is_in_order, sort_order
from pyspark_lance.table.index.index_file import IndexFile, row_id_index
from pyspark_lance.table.index.inverted.segments import TextPartition, open_text_segment
from pyspark_lance.table.index.inverted.token_sets import FuzzyWord
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer
from pyspark_lance.table.index.lookups import covered_fragments, segment_state
from pyspark_lance.table.index.minhash import (
    BANDS_FILE,
    SIGNATURE,
    SIGNATURES_FILE,
    MinHashOptions,
    Signatures,
    Signer,
    band_keys,
    options_of,
    signatures_in,
)
from pyspark_lance.table.index.ngram import NgramIndex
from pyspark_lance.table.index.segments import (
    BLOOMFILTER,
    BTREE,
    INVERTED,
    LABEL_LIST,
    MINHASH,
    NGRAM,
    ZONEMAP,
    Segment,
    is_of_type,
    kind_of,
    segment_of,
)
from pyspark_lance.table.index.zone_map_file import (
    Nulls,
    ZoneMap,
    is_zone_map,
    read_zones_and_nulls,
)
from pyspark_lance.table.index_build.merged_segments import LiveRows
from pyspark_lance.table.index_build.ngram_build import POSTINGS, TOKENS, NgramPostings
from pyspark_lance.table.scan.column_paths import only_fragments, path_to, values_at
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, project
from pyspark_lance.table.verify.verify_manifest import Finding, finding
from pyspark_lance.table.version.snapshot import Snapshot

_ROWS_AT_ONCE: Final = 1 << 20
_SETS_AT_ONCE: Final = 256
_SET_BYTES_AT_ONCE: Final = 64 << 20
# Of one fragment that is no longer in the table: 1 GiB of numbers.
_MAX_ROWS_OF_REMOVED: Final = 1 << 27
_TOKENS_AT_ONCE: Final = 4096
_SIGNATURES_AT_ONCE: Final = 1 << 16
_OF_LENGTH: Final = np.uint64(0x746F6B656E73)
_NULL_LIST: Final = np.uint64(0x6C6973745F6E756C)
_SHIFT: Final = np.uint64(OFFSET_BITS)
_Hashes = NDArray[np.uint64]
_Rows = tuple[_Hashes, NDArray[np.uint64]]
"""Hashes of values, and the addresses of their rows; shapes (n,)."""


def check_contents(
    snapshot: Snapshot, known: Sequence[Finding], *, read_data: bool
) -> Iterator[Finding]:
    """Verify the contents of indices without other findings.

    ``read_data``: whether to read the columns and compare them completely.
    """
    for entry in snapshot.indices:
        if not entry.fields or any(str(entry.uuid) in problem.what for problem in known):
            continue
        try:
            wrong = _check_entry(snapshot, entry, read_data=read_data)
        except StorageError:
            raise
        except UnsupportedFeatureError:
            continue
        except (LanceError, FileNotFoundError) as error:
            wrong = str(error)
        if wrong:
            what = f"the index {entry.name!r} ({entry.uuid}): {wrong}"
            yield finding("index_content", what, f"version {snapshot.version}")


def _check_entry(snapshot: Snapshot, entry: IndexMetadata, *, read_data: bool) -> str:
    path = path_to(snapshot.schema.fields, entry.fields[0])
    if path is None:
        return ""
    if kind_of(entry) == ZONEMAP:
        return _check_zones(snapshot, entry, path, read_data) if is_zone_map(entry) else ""
    if kind_of(entry) == INVERTED:
        return _check_texts(snapshot, entry, path, read_data=read_data)
    if kind_of(entry) == MINHASH:
        return _check_signatures(snapshot, entry, path, read_data=read_data)
    segment = segment_of(entry, stable_row_ids=snapshot.uses_stable_row_ids)
    if isinstance(segment, str):
        return ""
    return _check_segment(snapshot, segment, path, read_data=read_data)


def _check_segment(
    snapshot: Snapshot, segment: Segment, path: tuple[Field, ...], *, read_data: bool
) -> str:
    entry = segment.entry
    state = segment_state(snapshot, entry)
    if state.is_damaged:
        return state.note
    if not state.is_used:
        return ""
    covered = covered_fragments(snapshot, entry)
    fragments = tuple(f for f in snapshot.manifest.fragments if f.id in covered)
    if not read_data or not fragments:
        return ""
    if reuse_index_of(snapshot.indices) is not None and not segment.names_row_ids:
        return ""  # Moved rows are still listed by their old addresses.
    if segment.kind == NGRAM:
        return _check_trigrams(snapshot, segment, path, fragments)
    if segment.kind == BLOOMFILTER:
        return _check_bloom_filters(snapshot, entry, path, fragments)
    live = LiveRows(snapshot.files, fragments, snapshot.uses_stable_row_ids)
    named = _Sums(fragments)
    for hashes, names in _rows_of(snapshot, segment, path[-1]):
        addresses, is_known = _locate_rows(snapshot, segment, names)
        is_live = live.are_among(addresses)
        named.add(hashes[is_known][is_live], addresses[is_live])
    return named.differences(_sums_of_column(snapshot, segment.kind, path, fragments))


class _Sums:
    """Checksums of some fragments."""

    def __init__(self, fragments: tuple[Fragment, ...]) -> None:
        self._ids = np.sort(np.array([f.id for f in fragments], np.uint64))
        self._sums = np.zeros(len(self._ids), np.uint64)

    def add(self, hashes: _Hashes, addresses: NDArray[np.uint64]) -> None:
        """Add rows of these fragments."""
        mixed = xxh64_of_numbers(hashes ^ xxh64_of_numbers(addresses))
        np.add.at(self._sums, np.searchsorted(self._ids, addresses >> _SHIFT), mixed)

    def differences(self, other: _Sums) -> str:
        wrong = self._ids[self._sums != other._sums].tolist()
        shown = ", ".join(map(str, wrong[:5])) + ", …" * (len(wrong) > 5)
        return f"it differs from the column of the fragments {shown}" if wrong else ""


def _locate_rows(
    snapshot: Snapshot, segment: Segment, names: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """Return the addresses of existing rows, and a mask of ``names``."""
    if not segment.names_row_ids:
        return names, np.ones(len(names), np.bool_)
    addresses, is_found = row_id_index(snapshot).addresses_of(names)
    return addresses[is_found], is_found


# Content of indices -----------------------------------------------------------------------------


def _rows_of(snapshot: Snapshot, segment: Segment, field: Field) -> Iterator[_Rows]:
    if segment.kind == BTREE:
        return _rows_of_tree(BTree.open(snapshot.files, segment.entry, field))
    return _rows_of_sets(snapshot, segment)


def _rows_of_tree(tree: BTree) -> Iterator[_Rows]:
    step = max(1, _ROWS_AT_ONCE // tree.page_rows)
    last: pa.Array | None = None
    for first in range(0, tree.num_pages, step):
        pages = np.arange(first, min(first + step, tree.num_pages))
        values, ids = tree.read_pages(pages)
        if not is_in_order(values if last is None else pa.concat_arrays([last, values])):
            raise CorruptFileError("rows of a B-tree out of order", tree.data.where)
        last = values[-1:]
        yield hashes_with_nulls(values), plain_numbers(ids)


def _most_rows(snapshot: Snapshot, rows: Mapping[int, BitMap]) -> int:
    """Rows that a set of an index can have: the number of rows of removed fragments is unknown."""
    if snapshot.uses_stable_row_ids:
        return snapshot.manifest.next_row_id
    counts = {one.id: one.physical_rows for one in snapshot.manifest.fragments}
    return sum(counts.get(high, _MAX_ROWS_OF_REMOVED) for high in rows)


def _rows_of_sets(snapshot: Snapshot, segment: Segment) -> Iterator[_Rows]:
    file = IndexFile.open(snapshot.files, segment.entry, BITMAP_FILE)
    hashes = hashes_with_nulls(file.read_all("keys").column(0))
    if len(np.unique(hashes)) < len(hashes):
        raise CorruptFileError("a repeated value", file.where)
    for first in range(0, len(hashes), _SETS_AT_ONCE):
        indices = np.arange(first, min(first + _SETS_AT_ONCE, len(hashes)))
        for number, rows in enumerate(_read_all_sets(file, indices), first):
            names = numbers_of(rows, _most_rows(snapshot, rows))
            yield np.full(len(names), hashes[number], np.uint64), names
    buffer = file.reader.schema.metadata.get(LABEL_NULLS_KEY)
    if segment.kind == LABEL_LIST and buffer is not None:
        nulls = parse_tree_map(bytes(file.reader.global_buffer(int(buffer))), file.where)
        known = {high: rows for high, rows in nulls.items() if rows is not None}
        names = numbers_of(known, _most_rows(snapshot, known))
        yield np.full(len(names), _NULL_LIST, np.uint64), names


def _read_all_sets(file: IndexFile, indices: NDArray[np.int64]) -> Iterator[dict[int, BitMap]]:
    """Read row sets, fewer at a time if they are large; a single one has no limit."""
    sets = read_row_sets(file, indices, max_bytes=_SET_BYTES_AT_ONCE)
    if sets is not None:
        yield from sets
        return
    for half in np.array_split(indices, 2):
        yield from _read_all_sets(file, half)


# Content of columns -----------------------------------------------------------------------------


def _column(
    snapshot: Snapshot,
    path: tuple[Field, ...],
    fragments: tuple[Fragment, ...],
    name: str = ROW_ADDRESS,
) -> Iterator[tuple[pa.Array, NDArray[np.uint64]]]:
    """The values of live rows, and their addresses or ids, in the order of addresses."""
    schema = project(snapshot.schema, [path[0].name])
    scans = plan_scan(snapshot, ScanRequest(schema=schema, system_columns=(name,)))
    names = [field.name for field in path]
    for scan in only_fragments(scans, frozenset(fragment.id for fragment in fragments)):
        for batch in scan.run():
            if batch.num_rows:
                yield values_at(batch, names), plain_numbers(batch.column(name))


def _sums_of_column(
    snapshot: Snapshot, kind: str, path: tuple[Field, ...], fragments: tuple[Fragment, ...]
) -> _Sums:
    sums = _Sums(fragments)
    for values, addresses in _column(snapshot, path, fragments):
        if kind != LABEL_LIST:
            sums.add(hashes_with_nulls(values), addresses)
            continue
        nulls = addresses[np.asarray(values.is_null())]
        sums.add(np.full(len(nulls), _NULL_LIST, np.uint64), nulls)
        rows = addresses[np.asarray(pc.list_parent_indices(values)).astype(np.int64)]
        pairs = np.stack([rows, hashes_with_nulls(pc.list_flatten(values))])
        rows, hashes = np.unique(pairs, axis=1)  # A repeated element counts once.
        sums.add(hashes, rows)
    return sums


# Trigrams ----------------------------------------------------------------------------------------


def _check_trigrams(
    snapshot: Snapshot, segment: Segment, path: tuple[Field, ...], fragments: tuple[Fragment, ...]
) -> str:
    """Return what an index lacks; superfluous rows are allowed, as queries test their values."""
    index = NgramIndex.open(snapshot.files, segment.entry, path[-1])
    name = ROW_ID if segment.names_row_ids else ROW_ADDRESS
    with NgramPostings() as wanted:
        for texts, ids in _column(snapshot, path, fragments, name):
            wanted.add(texts.drop_null(), ids[np.asarray(texts.is_valid())])
        for batch in wanted.batches():
            tokens = plain_numbers(batch.column(TOKENS))
            if not np.isin(tokens, index.tokens).all():
                return "it is without a token of the column"
            stored = index.rows_at(np.searchsorted(index.tokens, tokens))
            for own, rows in zip(batch.column(POSTINGS).to_pylist(), stored, strict=True):
                if not BitMap64.deserialize(own) <= rows:
                    return "a token is without some of its rows"
    return ""


# Texts -------------------------------------------------------------------------------------------


def _check_texts(
    snapshot: Snapshot, entry: IndexMetadata, path: tuple[Field, ...], *, read_data: bool
) -> str:
    """Compare the frequency of each token in each live row, and the number of tokens per row."""
    segment = open_text_segment(snapshot.files, entry)
    covered = covered_fragments(snapshot, entry)
    fragments = tuple(f for f in snapshot.manifest.fragments if f.id in covered)
    if not read_data or not fragments:
        return ""
    if reuse_index_of(snapshot.indices) is not None and not snapshot.uses_stable_row_ids:
        return ""  # Rows that a compaction moved are named by where they were.
    live = LiveRows(snapshot.files, fragments, snapshot.uses_stable_row_ids)
    named = _Sums(fragments)
    for partition in segment.open_partitions(snapshot.files, is_cached=False):
        for hashes, names in _rows_of_partition(snapshot, entry, partition):
            addresses = names
            if snapshot.uses_stable_row_ids:
                addresses, is_found = row_id_index(snapshot).addresses_of(names)
                hashes, addresses = hashes[is_found], addresses[is_found]
            is_live = live.are_among(addresses)
            named.add(hashes[is_live], addresses[is_live])
    tokenizer = Tokenizer(segment.options)
    stored = _Sums(fragments)
    for texts, addresses in _column(snapshot, path, fragments):
        found = tokenizer.tokenize(texts)
        terms = hashes_of(pa.array(found.terms, pa.string()))
        pairs, often = np.unique(np.stack([found.rows, found.codes]), axis=1, return_counts=True)
        stored.add(_token_hashes(terms[pairs[1]], often), addresses[pairs[0]])
        rows, lengths = np.unique(found.rows, return_counts=True)
        stored.add(_token_hashes(_OF_LENGTH, lengths), addresses[rows])
    return named.differences(stored)


def _rows_of_partition(
    snapshot: Snapshot, entry: IndexMetadata, partition: TextPartition
) -> Iterator[_Rows]:
    facts = partition.facts
    documents = partition.documents(np.arange(facts.num_documents))
    yield _token_hashes(_OF_LENGTH, documents.lengths), documents.row_ids
    if facts.is_fst:
        every = FuzzyWord("", 1 << 30, "")
        tokens = pa.array(list(partition.tokens.similar(every)), pa.string())
        numbers = np.array([partition.tokens.number_of(token) for token in tokens.to_pylist()])
    else:
        file = IndexFile.open(snapshot.files, entry, f"part_{facts.number}_tokens.lance")
        tokens = file.read_all("_token").column(0)
        numbers = plain_numbers(file.read_all("_token_id").column(0)).astype(np.int64)
    hashes = np.empty(len(tokens), np.uint64)
    hashes[numbers] = hashes_of(tokens)
    for first in range(0, len(hashes), _TOKENS_AT_ONCE):
        some = np.arange(first, min(first + _TOKENS_AT_ONCE, len(hashes)))
        for posting in partition.postings(some):
            of_token, often = posting.decode_all()
            own = np.full(len(of_token), hashes[posting.number], np.uint64)
            yield (_token_hashes(own, often), documents.row_ids[of_token])


def _token_hashes(token: _Hashes | np.uint64, often: NDArray[np.integer[Any]]) -> _Hashes:
    hashes: _Hashes = token ^ xxh64_of_numbers(often.astype(np.uint64))
    return hashes


# Near-duplicates ---------------------------------------------------------------------------------


def _check_signatures(
    snapshot: Snapshot, entry: IndexMetadata, path: tuple[Field, ...], *, read_data: bool
) -> str:
    """Compare the signature of each live row, and the number of keys of bands."""
    options = options_of(entry)
    signatures = IndexFile.open(snapshot.files, entry, SIGNATURES_FILE)
    bands = IndexFile.open(snapshot.files, entry, BANDS_FILE)
    num_rows = signatures.reader.num_rows
    if bands.reader.num_rows != num_rows * options.num_bands:
        return "its bands do not belong to its signatures"
    covered = covered_fragments(snapshot, entry)
    fragments = tuple(f for f in snapshot.manifest.fragments if f.id in covered)
    if not read_data or not fragments or reuse_index_of(snapshot.indices) is not None:
        return ""
    live = LiveRows(snapshot.files, fragments, snapshot.uses_stable_row_ids)
    named, stored = _Sums(fragments), _Sums(fragments)
    for first in range(0, num_rows, _SIGNATURES_AT_ONCE):
        end = min(first + _SIGNATURES_AT_ONCE, num_rows)
        rows = signatures.read_ranges([(first, end)], [ROW_ID, SIGNATURE])
        addresses = plain_numbers(rows.column(ROW_ID).combine_chunks())
        own = signatures_in(rows.column(SIGNATURE).combine_chunks())
        if snapshot.uses_stable_row_ids:
            addresses, is_found = row_id_index(snapshot).addresses_of(addresses)
            own, addresses = own[is_found], addresses[is_found]
        is_live = live.are_among(addresses)
        named.add(_signature_hashes(own[is_live], options), addresses[is_live])
    signer = Signer(options)
    for texts, addresses in _column(snapshot, path, fragments):
        indices, own = signer.sign(texts)
        stored.add(_signature_hashes(own, options), addresses[indices])
    return named.differences(stored)


def _signature_hashes(signatures: Signatures, options: MinHashOptions) -> _Hashes:
    """Return a hash of each signature."""
    hashes = xxh64_of_numbers(band_keys(signatures, options).reshape(-1))
    found: _Hashes = np.bitwise_xor.reduce(hashes.reshape(-1, options.num_bands), axis=1)
    return found


# Zones -------------------------------------------------------------------------------------------


def _check_bloom_filters(
    snapshot: Snapshot,
    entry: IndexMetadata,
    path: tuple[Field, ...],
    fragments: tuple[Fragment, ...],
) -> str:
    index = BloomIndex.open(snapshot.files, entry, path[-1])
    zones = _Zones.of(index.fragment_id, index.start, index.length)
    for values, addresses in _column(snapshot, path, fragments):
        for zone, rows in zones.parts_of(addresses):
            if zone < 0:
                return "a row is in none of its zones"
            part = values.slice(rows.start, rows.stop - rows.start)
            if part.null_count and not index.has_null[zone]:
                return "a zone has nulls, but its count is 0"
            if index.values_missing(zone, hashes_of(part.drop_null())):
                return "a filter lacks a value of its zone"
    return ""


def _check_zones(
    snapshot: Snapshot, entry: IndexMetadata, path: tuple[Field, ...], read_data: bool
) -> str:
    found, nulls = read_zones_and_nulls(snapshot.files, entry)
    covered = entry.fragment_bitmap or ()
    fragments = tuple(f for f in snapshot.manifest.fragments if f.id in covered)
    if not read_data or not is_of_type(found.minimum.type, path[-1]):
        return ""
    zones = _Zones.of(found.fragment_id, found.start, found.length)
    for values, addresses in _column(snapshot, path, fragments):
        is_null = np.asarray(values.is_null())
        if nulls is not None and _nulls_differ(nulls, addresses, is_null):
            return "its nulls are not those of the column"
        for zone, rows in zones.parts_of(addresses):
            part = values.slice(rows.start, rows.stop - rows.start)
            if zone >= 0 and _is_outside(found, zone, part):
                return f"a zone of fragment {found.fragment_id[zone]} has values beyond its bounds"
    return ""


@dataclass(frozen=True, slots=True)
class _Zones:
    """Zones, ordered by first row."""

    first: NDArray[np.uint64]  # Address of the first row.
    end: NDArray[np.uint64]  # One past the last address.
    number: NDArray[np.int64]  # Zone number.

    @classmethod
    def of(
        cls, fragment: NDArray[np.uint64], start: NDArray[np.uint64], length: NDArray[np.uint64]
    ) -> _Zones:
        first = fragment << _SHIFT | start
        order = np.argsort(first, kind="stable")
        return cls(first[order], (first + length)[order], order)

    def parts_of(self, addresses: NDArray[np.uint64]) -> Iterator[tuple[int, slice]]:
        """Yield the zone of ascending rows, range by range; negative for rows outside of zones."""
        indices = np.searchsorted(self.first, addresses, "right") - 1
        is_inside = (indices >= 0) & (addresses < self.end[np.maximum(indices, 0)])
        zones = np.where(is_inside, self.number[np.maximum(indices, 0)], -1)
        cuts = np.flatnonzero(np.diff(zones, prepend=zones[0] - 1))
        for start, stop in zip(cuts.tolist(), [*cuts[1:].tolist(), len(zones)], strict=True):
            yield int(zones[start]), slice(start, stop)


def _nulls_differ(nulls: Nulls, addresses: NDArray[np.uint64], is_null: NDArray[np.bool_]) -> bool:
    fragments = addresses >> _SHIFT
    for fragment in np.unique(fragments).tolist():
        own = fragments == fragment
        null_offsets = np.asarray(nulls.get(fragment, BitMap()).to_array()).astype(np.uint32)
        if (np.isin(addresses[own].astype(np.uint32), null_offsets) != is_null[own]).any():
            return True
    return False


def _is_outside(found: ZoneMap, zone: int, values: pa.Array) -> bool:
    """Return whether a zone has nulls, NaN or values that its bounds exclude."""
    present = values.drop_null()
    if len(present) < len(values) and not found.null_count[zone]:
        return True
    if pa.types.is_floating(present.type):
        is_nan = np.asarray(pc.is_nan(present))
        if is_nan.any() and not found.nan_count[zone]:
            return True
        present = present.filter(plain_array(~is_nan))
    if not len(present):
        return False
    if found.all_null[zone]:
        return True
    ordered = present.take(plain_array(sort_order(present)))
    low, high = found.minimum.slice(zone, 1), found.maximum.slice(zone, 1)
    below = low.is_valid()[0].as_py() and not is_in_order(pa.concat_arrays([low, ordered[:1]]))
    above = high.is_valid()[0].as_py() and not is_in_order(pa.concat_arrays([ordered[-1:], high]))
    return bool(below or above)

"""Near-duplicates of texts: rows that share a band of their MinHash signatures with a text.

Segments of a MinHash index have the signatures of their rows, and the sorted keys of the bands.
Rows that no segment covers are read, and their signatures computed, so that the result does not
depend on the index.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError, LanceError
from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata, reuse_index_of
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.index.inverted.tokenizers import Tokenizer
from pyspark_lance.table.index.minhash import (
    BAND_KEY,
    BANDS_FILE,
    DOCUMENT,
    PAGE_ROWS_KEY,
    PAGES_KEY,
    SIGNATURE,
    SIGNATURES_FILE,
    MinHashOptions,
    Signatures,
    Signer,
    band_keys,
    options_of,
    signatures_in,
)
from pyspark_lance.table.index.minhash import ROW_ID as NAME_OF_ROW
from pyspark_lance.table.index.segments import MINHASH, kind_of
from pyspark_lance.table.nearest.exact_search import (
    NOTHING_FOUND,
    FoundRows,
    concat_found,
    nearest_of,
)
from pyspark_lance.table.nearest.ivf_search import fragments_by_segment
from pyspark_lance.table.nearest.live_rows import LiveRows, MatchingScan
from pyspark_lance.table.nearest.search_plan import (
    LateMaterialization,
    SearchSize,
    count_fetched_fragments,
    estimate_matching,
    matching_by_segment,
    plan_fetch,
)
from pyspark_lance.table.scan.column_paths import values_at
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.tasks import run_local
from pyspark_lance.table.text.search_plan import TextColumn, check_k, searched_column, text_columns
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

# Pairs of a query and a row that wait for their distances, and those that are compared at once.
_MAX_PAIRS: Final = 1 << 20
_PAIRS_AT_ONCE: Final = 1 << 15
_QUERIES_AT_ONCE: Final = 1 << 12
# Work to sign a text, and to look up the bands of one in a segment, as bytes that are compared.
_SIGNED_BYTES: Final = 1 << 12
_LOOKUP_BYTES: Final = 1 << 20
_DOCUMENT_BITS: Final = np.uint64(32)
_DOCUMENTS: Final = np.uint64((1 << 32) - 1)


@dataclass(frozen=True, slots=True)
class NearDuplicatesRequest:
    """The parameters of a search."""

    column: TextColumn
    k: int | None  # Rows for each query; None for all.
    max_distance: float | None
    predicate: Predicate | None  # Filter of rows; None for all.
    columns: LanceSchema  # Columns of result rows.
    system_columns: tuple[str, ...]  # Lineage columns of result rows.

    def __post_init__(self) -> None:
        """Reject invalid numbers."""
        if self.k is not None:
            check_k(self.k)
        most = self.max_distance
        if most is not None and not 0 <= most <= 1:
            raise InvalidInputError(f"maxDistance is a number from 0 to 1, not {most!r}")


@dataclass(frozen=True, slots=True)
class MinHashSegment:
    """A usable segment of an index."""

    entry: IndexMetadata


@dataclass(frozen=True, slots=True)
class MinHashSegmentTask:
    """A segment to search."""

    segment: MinHashSegment
    files: TableFiles
    fragments: tuple[Fragment, ...]  # Covered ones, with their row ids if these are stable.
    stable_row_ids: bool
    matching: MatchingScan | None  # The rows that match the filter; None for all.


@dataclass(frozen=True, slots=True)
class MinHashScanTask:
    """Rows to read that no segment covers."""

    scan: ScanTask  # Reads their texts, row ids and addresses.
    column: tuple[str, ...]  # The column, and the struct fields that lead to its texts.


MinHashTask: TypeAlias = MinHashSegmentTask | MinHashScanTask


@dataclass(frozen=True, slots=True)
class DuplicateLimits:
    """Comparison of texts, and thresholds of near-duplicates."""

    options: MinHashOptions
    k: int | None  # Rows for each query; None for all.
    max_distance: float | None


@dataclass(frozen=True, slots=True)
class NearDuplicatesPlan:
    """A planned search."""

    tasks: tuple[MinHashTask, ...]
    limits: DuplicateLimits
    fetch: LateMaterialization

    def searches(self, queries: SignedQueries) -> list[NearDuplicatesSearch]:
        """Return the tasks that search some queries."""
        return [NearDuplicatesSearch(self.limits, task, queries) for task in self.tasks]


def near_duplicates_column(snapshot: Snapshot, name: str | None) -> TextColumn:
    """Return the column to search; None for the only one with an index, or the only one of texts.

    Raises:
        InvalidInputError: There is none, or there are several.
    """
    if name is not None:
        column = searched_column(snapshot.schema, name)
        if column.field.children:
            raise InvalidInputError(f"the column {name!r} holds lists, not texts")
        return column
    texts = [one for one in text_columns(snapshot.schema) if not one.field.children]
    indexed = [one for one in texts if _entries(snapshot, one.field)]
    found = indexed or texts
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise InvalidInputError("say which column to search", hint=f"columns of texts: {names}")
    return found[0]


def plan_near_duplicates(snapshot: Snapshot, request: NearDuplicatesRequest) -> NearDuplicatesPlan:
    """Plan the tasks of a search, without reading data files."""
    options, segments = _usable_segments(snapshot, request.column.field)
    by_segment = fragments_by_segment(snapshot, segments)
    tasks: list[MinHashTask] = [
        MinHashSegmentTask(
            segment, snapshot.files, fragments, snapshot.uses_stable_row_ids, matching
        )
        for segment, fragments, matching in matching_by_segment(
            snapshot, request.predicate, by_segment
        )
    ]
    covered = {fragment.id for _, fragments in by_segment for fragment in fragments}
    scan = ScanRequest(
        schema=request.column.as_schema(),
        system_columns=(ROW_ID, ROW_ADDRESS),
        predicate=request.predicate,
    )
    for task in plan_scan(snapshot, scan):
        left = tuple(one for one in task.slices if one.fragment.id not in covered)
        if left:
            own = replace(task, slices=left)
            tasks.append(MinHashScanTask(own, request.column.names))
    fetch = plan_fetch(snapshot, request.columns, request.system_columns)
    limits = DuplicateLimits(options, request.k, request.max_distance)
    return NearDuplicatesPlan(tuple(tasks), limits, fetch)


def estimate_near_duplicates(plan: NearDuplicatesPlan) -> SearchSize:
    """Estimate the work of a search for one text."""
    size = SearchSize(0, count_fetched_fragments(plan.fetch, plan.limits.k))
    for task in plan.tasks:
        if isinstance(task, MinHashScanTask):
            size += SearchSize(_SIGNED_BYTES * task.scan.num_rows, len(task.scan.slices))
        else:
            size += SearchSize(_LOOKUP_BYTES, 0) + estimate_matching(task.matching)
    return size


def _entries(snapshot: Snapshot, column: Field) -> list[IndexMetadata]:
    """Return the segments of the first index of a column."""
    own = [e for e in snapshot.indices if kind_of(e) == MINHASH and e.fields == (column.id,)]
    return [entry for entry in own if entry.name == own[0].name]


def _usable_segments(
    snapshot: Snapshot, column: Field
) -> tuple[MinHashOptions, tuple[MinHashSegment, ...]]:
    """Return the parameters of signatures, and the segments that have them."""
    first: MinHashOptions | None = None
    found = []
    is_moved = reuse_index_of(snapshot.indices) is not None
    for entry in () if is_moved else _entries(snapshot, column):
        try:
            options = options_of(entry)
            Tokenizer(options.tokens)
            for name in (SIGNATURES_FILE, BANDS_FILE):
                IndexFile.open(snapshot.files, entry, name)
        except (LanceError, FileNotFoundError):
            continue  # Its fragments are read.
        first = first or options
        if options == first:
            found.append(MinHashSegment(entry))
    return first or MinHashOptions(), tuple(found)


# On executors ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SignedQueries:
    """Queries that have words."""

    numbers: NDArray[np.int64]
    signatures: Signatures

    @classmethod
    def of(cls, texts: pa.Array, options: MinHashOptions) -> SignedQueries:
        """Sign texts, numbered by position; NULL and texts without words are left out."""
        numbers, signatures = Signer(options).sign(texts)
        return cls(numbers.astype(np.int64), signatures)


@dataclass(frozen=True, slots=True)
class NearDuplicatesSearch:
    """The search for near-duplicates of some queries among the rows of a task."""

    limits: DuplicateLimits
    task: MinHashTask
    queries: SignedQueries

    def run(self) -> FoundRows:
        """Find them, in the order of ``nearest_of``."""
        if not len(self.queries.numbers):
            return NOTHING_FOUND
        search = _Search(self.limits, self.queries)
        if isinstance(self.task, MinHashScanTask):
            _search_rows(search, self.task)
        else:
            _SegmentSearch(search, self.task).run()
        return search.result()


def near_duplicates(plan: NearDuplicatesPlan, texts: pa.Array) -> Iterator[FoundRows]:
    """Yield the rows of some texts at a time, in the order of ``nearest_of``."""
    for first in range(0, len(texts), _QUERIES_AT_ONCE):
        queries = SignedQueries.of(texts.slice(first, _QUERIES_AT_ONCE), plan.limits.options)
        merged = merge_matches(plan.limits, list(run_local(plan.searches(queries))))
        if len(merged):
            numbers = np.arange(first, first + _QUERIES_AT_ONCE)
            yield merged.of_queries(numbers)


def merge_matches(limits: DuplicateLimits, found: Sequence[FoundRows]) -> FoundRows:
    """Merge the rows of all tasks; a row counts once for each query."""
    every = concat_found(found)
    order = np.lexsort((every.row_id, every.distance, every.query))
    every = every.at(order)
    is_new = np.ones(len(every), np.bool_)
    is_new[1:] = (every.query[1:] != every.query[:-1]) | (every.row_id[1:] != every.row_id[:-1])
    every = every.at(is_new)
    return every if limits.k is None else nearest_of([every], limits.k)


class _Search:
    """Search of pairs of a query and a row with an equal band; keeps the best of them."""

    def __init__(self, limits: DuplicateLimits, queries: SignedQueries) -> None:
        self.limits, self._queries = limits, queries
        keys = band_keys(queries.signatures, limits.options)
        order = np.argsort(keys, axis=None, kind="stable")
        self.keys = keys.reshape(-1)[order]
        self._owners = order // limits.options.num_bands
        self._found: list[FoundRows] = [NOTHING_FOUND]

    def pairs(self, keys: NDArray[np.uint64]) -> Iterator[tuple[NDArray[np.intp], ...]]:
        """Yield indices of queries and of equal ``keys``, some at a time."""
        first = np.searchsorted(self.keys, keys, "left")
        counts = np.searchsorted(self.keys, keys, "right") - first
        hits = np.flatnonzero(counts)
        ends = np.cumsum(counts[hits])
        start = 0
        while start < len(hits):
            before = int(ends[start - 1]) if start else 0
            stop = max(start + 1, int(np.searchsorted(ends, before + _MAX_PAIRS, "right")))
            own = hits[start:stop]
            total = int(ends[stop - 1]) - before
            within = np.arange(total) - np.repeat(
                ends[start:stop] - counts[own] - before, counts[own]
            )
            yield (
                self._owners[np.repeat(first[own], counts[own]) + within],
                np.repeat(own, counts[own]),
            )
            start = stop

    def add(
        self,
        queries: NDArray[np.intp],
        signatures: Signatures,
        indices: NDArray[np.intp],
        row_ids: NDArray[np.uint64],
        addresses: NDArray[np.uint64],
    ) -> None:
        """Compare pairs of a query and a row."""
        own = self._queries.signatures
        for first in range(0, len(queries), _PAIRS_AT_ONCE):
            part = slice(first, first + _PAIRS_AT_ONCE)
            query, index = queries[part], indices[part]
            equal = np.count_nonzero(own[query] == signatures[index], axis=1)
            distance = np.float32(1) - equal.astype(np.float32) / np.float32(own.shape[1])
            most = self.limits.max_distance
            kept = np.arange(len(query)) if most is None else np.flatnonzero(distance <= most)
            self._found.append(
                FoundRows(
                    self._queries.numbers[query[kept]],
                    distance[kept],
                    row_ids[index[kept]],
                    addresses[index[kept]],
                )
            )
        if sum(map(len, self._found[1:])) > max(_MAX_PAIRS, len(self._found[0])):
            self._found = [self.result()]

    def result(self) -> FoundRows:
        """Return the best rows so far."""
        return merge_matches(self.limits, self._found)


def _search_rows(search: _Search, task: MinHashScanTask) -> None:
    options = search.limits.options
    signer = Signer(options)
    for batch in task.scan.run():
        names = batch.schema.names
        indices, signatures = signer.sign(values_at(batch, task.column))
        row_ids = plain_numbers(batch.column(names.index(ROW_ID)))[indices]
        addresses = plain_numbers(batch.column(names.index(ROW_ADDRESS)))[indices]
        keys = band_keys(signatures, options).reshape(-1)
        for queries, hits in search.pairs(keys):
            rows = hits // options.num_bands
            pairs = np.unique(queries.astype(np.uint64) << _DOCUMENT_BITS | rows.astype(np.uint64))
            own = (pairs >> _DOCUMENT_BITS).astype(np.intp)
            search.add(own, signatures, (pairs & _DOCUMENTS).astype(np.intp), row_ids, addresses)


class _SegmentSearch:
    """Lookup of the bands of queries in a segment."""

    def __init__(self, search: _Search, task: MinHashSegmentTask) -> None:
        self._search = search
        entry = task.segment.entry
        self._bands = IndexFile.open(task.files, entry, BANDS_FILE)
        self._signatures = IndexFile.open(task.files, entry, SIGNATURES_FILE)
        self._live = LiveRows(
            task.files, task.fragments, stable_row_ids=task.stable_row_ids, matching=task.matching
        )
        self._pending: list[NDArray[np.uint64]] = []
        self._num_pending = 0

    def run(self) -> None:
        """Compare the queries with all rows that share a band with them."""
        reader = self._bands.reader
        fields = [one for one in reader.schema.fields if one.name in (BAND_KEY, DOCUMENT)]
        ranges = self._ranges()
        batches = reader.read_batches(fields, reader.embedded_columns(), ranges=ranges)
        for batch in batches if ranges else ():
            names = batch.schema.names
            keys = plain_numbers(batch.column(names.index(BAND_KEY)))
            documents = plain_numbers(batch.column(names.index(DOCUMENT))).astype(np.uint64)
            for queries, hits in self._search.pairs(keys):
                self._pending.append(queries.astype(np.uint64) << _DOCUMENT_BITS | documents[hits])
                self._num_pending += len(hits)
                if self._num_pending >= _MAX_PAIRS:
                    self._compare()
        self._compare()

    def _ranges(self) -> list[tuple[int, int]]:
        """Return the rows of the pages that may have one of the keys, ascending."""
        metadata: dict[str, Any] = dict(self._bands.reader.schema.metadata)
        try:
            page_rows = int(metadata[PAGE_ROWS_KEY])
            stored = bytes(self._bands.reader.global_buffer(int(metadata[PAGES_KEY])))
        except (KeyError, ValueError) as error:
            raise CorruptFileError("a MinHash index without pages", self._bands.where) from error
        last = np.frombuffer(stored, "<u8")
        keys = np.unique(self._search.keys)
        # The first page that ends at the key or behind it, to that which ends behind the key.
        first = np.searchsorted(last, keys, "left")
        stop = np.minimum(np.searchsorted(last, keys, "right") + 1, len(last))
        is_read = np.zeros(len(last) + 1, np.int64)
        np.add.at(is_read, first, 1)
        np.add.at(is_read, np.maximum(stop, first), -1)
        edges = np.flatnonzero(np.diff(np.cumsum(is_read)[: len(last)] > 0, prepend=0, append=0))
        rows = np.minimum(edges * page_rows, self._bands.reader.num_rows)
        return [(int(begin), int(end)) for begin, end in rows.reshape(-1, 2)]

    def _compare(self) -> None:
        """Read the signatures of the rows that wait."""
        pairs = np.unique(np.concatenate([np.empty(0, np.uint64), *self._pending]))
        self._pending, self._num_pending = [], 0
        if not len(pairs):
            return
        documents, indices = np.unique(pairs & _DOCUMENTS, return_inverse=True)
        queries = (pairs >> _DOCUMENT_BITS).astype(np.intp)
        names = plain_numbers(self._signatures.take(NAME_OF_ROW, documents.astype(np.int64)))
        addresses, is_live = self._live.addresses_of(names)
        kept = np.flatnonzero(is_live)
        if not len(kept):
            return
        wanted = documents[kept].astype(np.int64)
        signatures = signatures_in(self._signatures.take(SIGNATURE, wanted))
        index_of = np.full(len(documents), -1)
        index_of[kept] = np.arange(len(kept))
        own = index_of[indices]
        counts = own >= 0
        self._search.add(queries[counts], signatures, own[counts], names[kept], addresses[kept])

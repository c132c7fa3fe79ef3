"""Searches a segment of a vector index: the rows of the partitions that are nearest to queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import fragment_ids, offsets
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.nearest.exact_search import ExactSearch
from pyspark_lance.table.nearest.found_rows import NOTHING_FOUND, FoundRows, joined, nearest_of
from pyspark_lance.table.nearest.ivf_file import ROWS_FILE, IvfKind, IvfSegment
from pyspark_lance.table.nearest.metric import Metric
from pyspark_lance.table.nearest.vectors import Queries, matrix_of
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table_files import TableFiles

_ROW_ID: Final = "_rowid"
# Queries that are ordered by partitions together.
_QUERIES_AT_ONCE: Final = 512

_Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment of a vector index to search.

    Attributes:
        fragments: Those that it answers for, with their row ids if these are stable.
        stable_row_ids: Whether the table has stable row ids.
        k: How many rows for each query.
        nprobes: How many partitions for each query; None for as many as it takes to find ``k``.
    """

    segment: IvfSegment
    files: TableFiles
    fragments: tuple[Fragment, ...]
    stable_row_ids: bool
    k: int
    nprobes: int | None


def search_segment(task: SegmentTask, queries: Queries) -> FoundRows:
    """The rows that the segment says are nearest, in the order of ``nearest_of``."""
    search = _SegmentSearch(task)
    parts = []
    for first in range(0, len(queries), _QUERIES_AT_ONCE):
        some = queries.part(first, first + _QUERIES_AT_ONCE)
        parts.append(search.found(some.vectors).of_queries(some.numbers))
    return joined(parts)


class _SegmentSearch:
    """Reads partitions, and compares the live rows of each with the queries that are near to it."""

    def __init__(self, task: SegmentTask) -> None:
        self._task, self._segment = task, task.segment
        self._file = IndexFile.open(task.files, task.segment.entry, ROWS_FILE)
        kinds = (_ROW_ID, str(task.segment.kind))
        schema = self._file.reader.schema
        self._fields = [field for field in schema.fields if field.name in kinds]
        self._live = _StableRows(task) if task.stable_row_ids else _RowsByAddress(task)

    def found(self, vectors: _Floats) -> FoundRows:
        """The nearest rows to some vectors, which are called by their places."""
        directed = _directed(vectors) if self._segment.metric is Metric.COSINE else vectors
        order = self._order(directed)
        count, most = order.shape
        pending, done, best = np.arange(count), 0, NOTHING_FOUND
        step = min(most, self._task.nprobes or 1)
        while len(pending) and done < most:
            parts = list(
                self._probe(order[pending, done : done + step], pending, vectors, directed)
            )
            best = nearest_of([best, *parts], self._task.k)
            done += step
            if self._task.nprobes is not None:
                break
            found = np.bincount(best.query, minlength=count)
            pending = pending[found[pending] < self._task.k]
        return best

    def _order(self, vectors: _Floats) -> NDArray[np.intp]:
        """The partitions of each query, the nearest first; shape (queries, partitions)."""
        centroids = self._segment.centroids.astype(np.float64)
        products = vectors.astype(np.float64) @ centroids.T
        if self._segment.metric is not Metric.DOT:
            products -= np.einsum("ij,ij->i", centroids, centroids) / 2
        return np.argsort(-products, axis=1, kind="stable")

    def _probe(
        self, chosen: NDArray[np.intp], queries: NDArray[np.intp], vectors: _Floats,
        directed: _Floats,
    ) -> Iterator[FoundRows]:  # fmt: skip
        """Partition by partition what is found there.

        ``chosen``: partitions of each query, shape (queries, probes); ``vectors``: of all queries;
        ``directed``: the same, of length 1 under cosine.
        """
        partitions, of_query = chosen.ravel(), np.repeat(queries, chosen.shape[1])
        by_partition = np.argsort(partitions, kind="stable")
        numbers, firsts = np.unique(partitions[by_partition], return_index=True)
        groups = np.split(of_query[by_partition], firsts[1:])
        for number, group in zip(numbers.tolist(), groups, strict=True):
            start, length = int(self._segment.starts[number]), int(self._segment.lengths[number])
            if not length:
                continue
            batch = self._file.reader.read(
                self._fields, self._file.reader.embedded_columns(), start, start + length
            )
            row_ids = plain_numbers(batch.column(batch.schema.names.index(_ROW_ID)))
            addresses, is_live = self._live.addresses_of(row_ids)
            stored = batch.column(batch.schema.names.index(str(self._segment.kind)))
            rows = _Rows(row_ids[is_live], addresses[is_live])
            if self._segment.kind is IvfKind.FLAT:
                search = ExactSearch(vectors[group], self._segment.metric, self._task.k)
                search.add(matrix_of(stored)[0][is_live], rows.row_ids, rows.addresses)
                yield search.found().of_queries(group)
                continue
            codes = _codes(stored)
            distances: Iterable[NDArray[np.float32]]
            if self._segment.kind is IvfKind.PQ:
                distances = self._pq_distances(codes, is_live, directed[group], number)
            else:
                distances = self._sq_distances(codes[is_live], directed[group], vectors[group])
            for query, own in zip(group.tolist(), distances, strict=True):
                yield _nearest_rows(query, own, rows, self._task.k)

    def _pq_distances(
        self, codes: NDArray[np.uint8], is_live: NDArray[np.bool_], queries: _Floats, number: int
    ) -> Iterator[NDArray[np.float32]]:
        """Query by query the distances of all rows: sums of what tables say of their codes."""
        book = self._segment.codebook
        assert book is not None
        parts, words, _ = book.shape
        by_part = codes.reshape(codes.shape[::-1]) if self._segment.transposed else codes.T
        if words == 16:  # two codes in a byte, the lower half first
            by_part = np.stack([by_part & 15, by_part >> 4], 1).reshape(parts, -1)
        places = by_part[:, is_live] + np.arange(0, parts * words, words)[:, None]
        for query in queries:
            if self._segment.metric is Metric.DOT:
                own = query.astype(np.float32).reshape(parts, -1)
                table = 1 - np.einsum("mkd,md->mk", book, own)
            else:
                moved = query - self._segment.centroids[number]
                own = moved.astype(np.float32).reshape(parts, 1, -1)
                table = ((book - own) ** 2).sum(-1)
            distances = np.take(table.ravel(), places).sum(axis=0)
            yield distances - (parts - 1) if self._segment.metric is Metric.DOT else distances

    def _sq_distances(
        self, codes: NDArray[np.uint8], directed: _Floats, queries: _Floats
    ) -> NDArray[np.float32]:
        """The distances of all rows from all queries: each number is one of 256 levels."""
        assert self._segment.bounds is not None
        low, step = self._segment.bounds
        levels = codes.astype(np.float64)
        if self._segment.metric is Metric.DOT:
            exact = queries.astype(np.float64)
            products = low * exact.sum(axis=1)[:, None] + step * (exact @ levels.T)
            return (1 - products).astype(np.float32)
        own = np.trunc(np.clip((directed.astype(np.float64) - low) / step, 0, 255))
        squares = np.einsum("ij,ij->i", levels, levels) - 2 * (own @ levels.T)
        squares += np.einsum("ij,ij->i", own, own)[:, None]
        return (squares * step * step).astype(np.float32)


def _directed(vectors: _Floats) -> _Floats:
    """Vectors of length 1, in their type."""
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
    return (vectors / lengths).astype(vectors.dtype)


def _codes(column: pa.Array) -> NDArray[np.uint8]:
    """Lists of bytes, shape (n, width)."""
    width = column.type.list_size
    items = column.values.slice(column.offset * width, len(column) * width)
    return plain_numbers(items).reshape(-1, width)


def _nearest_rows(query: int, distances: NDArray[np.float32], rows: _Rows, k: int) -> FoundRows:
    """The nearest rows of one query; more than ``k`` where several are as far as the last."""
    near = np.flatnonzero(~np.isnan(distances))
    if len(near) > k:
        last = np.partition(distances[near], k - 1)[k - 1]
        near = near[distances[near] <= last]
    return FoundRows(
        np.full(len(near), query, np.int64),
        distances[near].astype(np.float32),
        rows.row_ids[near],
        rows.addresses[near],
    )


@dataclass(frozen=True, slots=True)
class _Rows:
    """Live rows of a partition."""

    row_ids: NDArray[np.uint64]
    addresses: NDArray[np.uint64]


class _StableRows:
    """Where the rows of stable ids are now, if that is in one of the fragments of the segment."""

    def __init__(self, task: SegmentTask) -> None:
        self._index = RowIdIndex.build(
            (
                fragment.id,
                RowIdSequence.from_bytes(_inline(fragment)),
                load_deletion_vector(task.files, fragment, stable_row_ids=True),
            )
            for fragment in task.fragments
        )

    def addresses_of(
        self, row_ids: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        return self._index.addresses_of(row_ids)


class _RowsByAddress:
    """Which of the addresses are of live rows in the fragments of the segment."""

    def __init__(self, task: SegmentTask) -> None:
        self._task = task
        self._fragments = {fragment.id: fragment for fragment in task.fragments}
        self._deleted: dict[int, DeletionVector | None] = {}

    def addresses_of(
        self, addresses: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        is_live = np.zeros(len(addresses), np.bool_)
        owners, places = fragment_ids(addresses), offsets(addresses)
        for number in np.unique(owners).tolist():
            fragment = self._fragments.get(number)
            if fragment is None:
                continue
            own = (owners == number) & (places < fragment.physical_rows)
            is_live[own] = True
            deleted = self._vector(fragment)
            if deleted is not None:
                is_live[own] = ~deleted.contains_each(places[own])
        return addresses, is_live

    def _vector(self, fragment: Fragment) -> DeletionVector | None:
        if fragment.id not in self._deleted:
            self._deleted[fragment.id] = load_deletion_vector(
                self._task.files, fragment, stable_row_ids=False
            )
        return self._deleted[fragment.id]


def _inline(fragment: Fragment) -> bytes:
    assert isinstance(fragment.row_ids, bytes)  # else the segment is not used
    return fragment.row_ids

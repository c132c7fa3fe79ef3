"""Select the usable segments of a vector index, and search their nearest partitions.

Rows of other segments, and of none, are compared exactly.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.errors import LanceError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata, reuse_index_of
from pyspark_lance.format.wire import parse_message
from pyspark_lance.proto import table_pb2
from pyspark_lance.table.nearest.exact_search import (
    NOTHING_FOUND,
    ExactSearch,
    FoundRows,
    concat_found,
    nearest_of,
)
from pyspark_lance.table.nearest.few_queries import (
    FewQueries,
    QueryVector,
    can_estimate,
    code_words,
    pq_distances,
    query_levels,
    rabit_terms,
)
from pyspark_lance.table.nearest.ivf_file import (
    NEWEST_VERSION,
    VECTOR_DETAILS,
    IvfKind,
    IvfSegment,
    open_ivf,
)
from pyspark_lance.table.nearest.live_rows import (
    MatchingScan,
    Partition,
    PartitionRows,
    SegmentRows,
)
from pyspark_lance.table.nearest.rabit import rabit_distances, rotate
from pyspark_lance.table.nearest.vectors import EXACT_NUMBERS, Metric, Queries, width_of
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

# Upper bound of rows for each column of the tables below.
_ROWS: Final = (1, 10, 100, 200, 500, 1000, 10_000)
# Tolerance relative to the least distance; minimum and maximum partitions.
_SHARES: Final = {
    Metric.L2: (0.2175, 0.265, 0.33, 0.375, 0.3725, 0.4175, 0.57, 0.75),
    Metric.COSINE: (0.235, 0.2875, 0.38, 0.415, 0.45, 0.47, 0.6475, 0.58),
    Metric.DOT: (0.14, 0.055, 0.0625, 0.0675, 0.07, 0.0725, 0.0825, 0.21),
}
_FEWEST: Final = {
    Metric.L2: (5, 6, 11, 15, 22, 29, 98, 463),
    Metric.COSINE: (3, 8, 7, 18, 28, 34, 104, 738),
    Metric.DOT: (56, 144, 200, 211, 244, 279, 517, 1009),
}
_MOST: Final = {
    Metric.L2: (19, 24, 38, 56, 81, 93, 238, 704),
    Metric.COSINE: (50, 77, 106, 156, 192, 248, 447, 958),
    Metric.DOT: (112, 432, 768, 833, 971, 1092, 1824, 2528),
}


def first_probes(distances: NDArray[np.floating[Any]], metric: Metric, k: int) -> NDArray[np.intp]:
    """Return the number of nearest partitions to probe, as in Lance, shape (queries,).

    These are the partitions about as near as the nearest one, within limits. The tolerance and the
    limits grow with ``k``.

    ``distances``: of the centroids from each query, ascending, shape (queries, partitions): the
    squares of the distances, or 1 - x·q for the metric ``dot``.
    """
    column = int(np.searchsorted(_ROWS, k))
    least = distances[:, :1]
    scale = np.abs(1 - least) if metric is Metric.DOT else least
    near = distances - least <= _SHARES[metric][column] * scale
    counts = np.count_nonzero(near, axis=1)
    counts = np.clip(counts, _FEWEST[metric][column], _MOST[metric][column])
    return np.minimum(counts, distances.shape[1])


# Maximum queries, and centroid distances, that are processed together.
_QUERIES_AT_ONCE: Final = 1 << 12
_CENTROID_DISTANCES: Final = 1 << 21
# Minimum queries of a partition that are compared with its rows by products of matrices.
_SMALL_QUERY_COUNT: Final = 8
_DECODED_NUMBERS: Final = 1 << 22
# Maximum distances in memory.
_DISTANCES: Final = 1 << 22
# Maximum pending rows, in addition to the best so far.
_MAX_WAITING: Final = 1 << 18

_Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True, slots=True)
class SegmentTask:
    """A segment of a vector index to search."""

    splits_queries: ClassVar[bool] = True  # Several executors can share the queries.

    segment: IvfSegment
    files: TableFiles
    # Covered fragments, with their row ids if these are stable.
    fragments: tuple[Fragment, ...]
    stable_row_ids: bool  # Whether the table has stable row ids.
    k: int  # Rows for each query.
    # Partitions for each query; None for as many as needed to find ``k`` rows.
    nprobes: int | None
    wanted: int  # Final number of rows; ``k`` may be a multiple of it.
    # A scan of the fragments for the addresses of matching rows; None for all rows.
    matching: MatchingScan | None = None


def search_segment(task: SegmentTask, queries: Queries) -> FoundRows:
    """Return the nearest rows of the segment, in the order of ``nearest_of``."""
    search = _SegmentSearch(task)
    parts = []
    at_once = min(_QUERIES_AT_ONCE, max(1, _CENTROID_DISTANCES // len(task.segment.centroids)))
    for first in range(0, len(queries), at_once):
        some = queries.part(first, first + at_once)
        parts.append(search.found(some.vectors).of_queries(some.numbers))
    return concat_found(parts)


class _SegmentSearch:
    """Reader of partitions that compares their live rows with the nearest queries."""

    def __init__(self, task: SegmentTask) -> None:
        self._task, self._segment = task, task.segment
        self._rotated = np.empty((0, 0), np.float32)  # IVF_RQ only: the queries.
        self._rows = SegmentRows(
            task.files,
            task.segment,
            task.fragments,
            stable_row_ids=task.stable_row_ids,
            matching=task.matching,
        )

    def found(self, vectors: _Floats) -> FoundRows:
        """Return the nearest rows of query vectors, numbered by position."""
        directed = _normalize(vectors) if self._segment.metric is Metric.COSINE else vectors
        if self._segment.rabit is not None:
            self._rotated = rotate(self._segment.rabit, directed)
        order, done = self._order(directed)
        queries, ranks = np.nonzero(np.arange(order.shape[1]) < done[:, None])
        best = self._nearest(NOTHING_FOUND, order[queries, ranks], queries, vectors, directed)
        while self._task.nprobes is None:
            found = np.bincount(best.query, minlength=len(order))
            pending = np.flatnonzero((found < self._task.k) & (done < order.shape[1]))
            if not len(pending):
                break
            more = order[pending, done[pending]]
            best = self._nearest(best, more, pending, vectors, directed)
            done[pending] += 1
        return best

    def _order(self, vectors: _Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return the partitions of each query, nearest first, and the number of first probes."""
        centroids, numbers = self._segment.centroids.astype(np.float64), vectors.astype(np.float64)
        if self._segment.metric is Metric.DOT:
            distances = 1 - numbers @ centroids.T
        else:
            distances = np.einsum("ij,ij->i", centroids, centroids) - 2 * (numbers @ centroids.T)
            distances += np.einsum("ij,ij->i", numbers, numbers)[:, None]
        order = np.argsort(distances, axis=1, kind="stable")
        if self._task.nprobes is not None:
            return order, np.full(len(order), min(self._task.nprobes, order.shape[1]))
        distances = np.take_along_axis(distances, order, axis=1)
        return order, first_probes(distances, self._segment.metric, self._task.wanted)

    def _nearest(
        self, best: FoundRows, partitions: NDArray[np.intp], queries: NDArray[np.intp],
        vectors: _Floats, directed: _Floats,
    ) -> FoundRows:  # fmt: skip
        """Merge the best so far with the rows of some partitions, one per query.

        ``vectors``: of all queries; ``directed``: the same, normalized for cosine, in the type of
        the column as in Lance and in stored vectors.
        """
        waiting, num_waiting = [best], 0
        for found in self._probe(partitions, queries, vectors, directed):
            waiting.append(found)
            num_waiting += len(found)
            if num_waiting > max(_MAX_WAITING, len(waiting[0])):
                waiting, num_waiting = [nearest_of(waiting, self._task.k)], 0
        return nearest_of(waiting, self._task.k)

    def _probe(
        self, partitions: NDArray[np.intp], queries: NDArray[np.intp], vectors: _Floats,
        directed: _Floats,
    ) -> Iterator[FoundRows]:  # fmt: skip
        """Yield the results of each partition."""
        by_partition = np.argsort(partitions, kind="stable")
        numbers, firsts = np.unique(partitions[by_partition], return_index=True)
        groups = np.split(queries[by_partition], firsts[1:])
        few = FewQueries(self._segment, self._rows, self._task.k)
        is_filled = self._segment.lengths[numbers] > 0
        numbers = numbers[is_filled].tolist()
        groups = [group for group, one in zip(groups, is_filled, strict=True) if one]
        read = self._rows.partitions(numbers)
        for number, group, partition in zip(numbers, groups, read, strict=True):
            if len(group) < _SMALL_QUERY_COUNT:
                some, group = self._with_estimates(partition, group, vectors, directed)
                yield from few.add(number, partition, some)
            if not len(group):
                continue
            rows = self._rows.live_rows(partition)
            if not len(rows.row_ids):
                continue
            if self._segment.kind is IvfKind.FLAT:
                search = ExactSearch(directed[group], self._segment.metric, self._task.k)
                search.add(rows.stored, rows.row_ids, rows.addresses)
                yield search.result().of_queries(group)
                continue
            step = max(1, _DISTANCES // len(rows.row_ids))
            for first in range(0, len(group), step):
                some_of = group[first : first + step]
                distances = self._distances(rows, directed, vectors, some_of, number)
                for query, own in zip(some_of.tolist(), distances, strict=True):
                    yield _nearest_rows(query, own, rows, self._task.k)
        yield from few.finish()

    def _with_estimates(
        self, partition: Partition, group: NDArray[np.intp], vectors: _Floats, directed: _Floats
    ) -> tuple[dict[int, QueryVector], NDArray[np.intp]]:
        """Divide queries into those whose distances are estimated, and all others."""
        some, left = {}, []
        for query in group.tolist():
            if can_estimate(self._segment, partition, directed[query]):
                rotated = self._rotated[query] if self._segment.rabit is not None else None
                some[query] = QueryVector(vectors[query], directed[query], rotated)
            else:
                left.append(query)
        return some, np.array(left, np.intp)

    def _distances(
        self, rows: PartitionRows, directed: _Floats, vectors: _Floats, some: NDArray[np.intp],
        number: int,
    ) -> Iterable[NDArray[np.float32]]:  # fmt: skip
        """Yield for each of some queries the distances of all rows of a partition."""
        if rows.rabit is not None:
            assert self._segment.rabit is not None
            scale, added = rabit_terms(self._segment, directed[some], number)
            return rabit_distances(
                self._segment.rabit, rows.rabit, self._rotated[some], added, scale
            )
        codes, directed, queries = rows.stored, directed[some], vectors[some]
        if self._segment.kind is IvfKind.SQ:
            return self._sq_distances(codes, directed, queries)
        if len(codes) * queries.shape[1] > _DECODED_NUMBERS:
            return (pq_distances(self._segment, codes, query, number) for query in directed)
        return self._pq_products(codes, directed, number)

    def _pq_products(
        self, codes: NDArray[np.uint8], queries: _Floats, number: int
    ) -> NDArray[np.float32]:
        """Return the distances of all rows from all queries, by products with decoded vectors."""
        book = self._segment.codebook
        assert book is not None
        parts, words, width = book.shape
        rows = np.empty((len(codes), parts * width))
        for part, own in enumerate(code_words(codes, parts, words)):
            rows[:, part * width : (part + 1) * width] = book[part][own]
        if self._segment.metric is Metric.DOT:
            return (1 - queries.astype(np.float64) @ rows.T).astype(np.float32)
        moved = (queries - self._segment.centroids[number]).astype(np.float64)
        squares = np.einsum("ij,ij->i", rows, rows) - 2 * (moved @ rows.T)
        squares += np.einsum("ij,ij->i", moved, moved)[:, None]
        return np.maximum(squares, 0).astype(np.float32)

    def _sq_distances(
        self, codes: NDArray[np.uint8], directed: _Floats, queries: _Floats
    ) -> NDArray[np.float32]:
        """Return the distances of all rows from all queries, for numbers of 256 levels."""
        assert self._segment.bounds is not None
        low, step = self._segment.bounds
        if self._segment.metric is Metric.DOT:
            levels = codes.astype(np.float64)
            exact = queries.astype(np.float64)
            products = low * exact.sum(axis=1)[:, None] + step * (exact @ levels.T)
            return (1 - products).astype(np.float32)
        own = query_levels(self._segment, directed)
        squares = np.einsum("ij,ij->i", own, own)[:, None] + np.zeros((1, len(codes)))
        for first in range(0, codes.shape[1], EXACT_NUMBERS):
            part = slice(first, first + EXACT_NUMBERS)
            levels, wanted = codes[:, part].astype(np.float32), own[:, part].astype(np.float32)
            squares += np.einsum("ij,ij->i", levels, levels) - 2 * (wanted @ levels.T)
        return (squares * step * step).astype(np.float32)


def _normalize(vectors: _Floats) -> _Floats:
    """Normalize vectors, keeping their type."""
    lengths = np.linalg.norm(vectors.astype(np.float32), axis=1, keepdims=True)
    return (vectors / lengths).astype(vectors.dtype)


def _nearest_rows(
    query: int, distances: NDArray[np.float32], rows: PartitionRows, k: int
) -> FoundRows:
    """Return the nearest rows of one query, including all ties of the last."""
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


class _HasEntry(Protocol):
    @property
    def entry(self) -> IndexMetadata: ...


AnySegment = TypeVar("AnySegment", bound=_HasEntry)
"""A segment of an index of any kind."""


def metric_and_segments(
    snapshot: Snapshot, column: Field, metric: str | None, *, use_index: bool = True
) -> tuple[Metric, tuple[IvfSegment, ...]]:
    """Return the metric of a search, and the segments that it uses.

    ``metric``: None for that of the index, or ``l2`` without one.
    """
    kind = None if metric is None else Metric.parse(metric)
    segments = usable_segments(snapshot, column, kind) if use_index else ()
    return kind or (segments[0].metric if segments else Metric.L2), segments


def usable_segments(
    snapshot: Snapshot, column: Field, metric: Metric | None
) -> tuple[IvfSegment, ...]:
    """Return the segments of the first vector index of a column for a metric.

    ``metric``: None for that of the first index.
    """
    key = "vector index", column.id
    if key not in snapshot.memo:
        snapshot.memo[key] = _segments(snapshot, column)
    known: tuple[IvfSegment, ...] = snapshot.memo[key]  # type: ignore[assignment]
    for first in known:
        if metric in (None, first.metric):
            name = first.entry.name
            return tuple(
                one for one in known if one.entry.name == name and one.metric is first.metric
            )
    return ()


def fragments_by_segment(
    snapshot: Snapshot, segments: tuple[AnySegment, ...]
) -> list[tuple[AnySegment, tuple[Fragment, ...]]]:
    """The fragments of each segment, with the lookup of their rows; each fragment once."""
    key = "fragments by segment", tuple(segment.entry.uuid for segment in segments)
    if key not in snapshot.memo:
        snapshot.memo[key] = _fragments_by_segment(snapshot, segments)
    return snapshot.memo[key]  # type: ignore[return-value]


def _fragments_by_segment(
    snapshot: Snapshot, segments: tuple[AnySegment, ...]
) -> list[tuple[AnySegment, tuple[Fragment, ...]]]:
    left = {
        fragment.id: replace(fragment, created_at=None, last_updated_at=None)
        for fragment in snapshot.manifest.fragments
    }
    found = []
    for segment in segments:
        covered = segment.entry.fragment_bitmap or ()
        own = tuple(left.pop(number) for number in covered if number in left)
        if own:
            found.append((segment, own))
    return found


def unused_reason(snapshot: Snapshot, number: str) -> str:
    """Return why searches do not use a segment of a vector index; '' if they do.

    ``number``: its uuid.
    """
    (entry,) = (one for one in snapshot.indices if str(one.uuid) == number)
    columns = [field for field in snapshot.schema.fields if entry.fields == (field.id,)]
    live = frozenset(snapshot.manifest.fragments.ids.tolist())
    if reuse_index_of(snapshot.indices) is not None:
        return "a compaction with deferIndexRemap moved its rows"
    if live.isdisjoint(entry.fragment_bitmap or ()):
        return "it covers nothing"
    if not columns or not _is_known(entry, columns[0]):
        return "its version is not known, or it is not over one vector column alone"
    try:
        open_ivf(snapshot.files, entry, width_of(columns[0]))
    except LanceError as error:
        return error.what
    except FileNotFoundError:
        return "its files are missing"
    return ""


def _segments(snapshot: Snapshot, column: Field) -> tuple[IvfSegment, ...]:
    if reuse_index_of(snapshot.indices) is not None:
        return ()  # the row addresses are from before a compaction
    live = frozenset(snapshot.manifest.fragments.ids.tolist())
    found = []
    for entry in snapshot.indices:
        # As in Lance, a segment without fragments does not determine the metric.
        if live.isdisjoint(entry.fragment_bitmap or ()) or not _is_known(entry, column):
            continue
        try:
            found.append(open_ivf(snapshot.files, entry, width_of(column)))
        except (LanceError, FileNotFoundError):
            continue  # its fragments are searched exactly
    return tuple(found)


def _is_known(entry: IndexMetadata, column: Field) -> bool:
    _, slash, name = entry.details_type.rpartition("/")
    return (
        bool(slash)
        and name == VECTOR_DETAILS
        and entry.fields == (column.id,)
        and entry.index_version <= NEWEST_VERSION
        and not parse_message(table_pb2.IndexMetadata, entry.raw).covering_fields
    )

"""Search of the partitions of a segment for a few queries.

The distances of all rows of the probed partitions are estimated in one pass over what is stored,
with a bound of the error. Only the nearest candidates of all partitions are looked up among the
live rows, and compared exactly. So a query costs little more than the pass over its partitions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.table.nearest.exact_search import (
    NOTHING_FOUND,
    FoundRows,
    exact_distances,
    nearest_of,
    product_slack,
)
from pyspark_lance.table.nearest.ivf_file import IvfKind, IvfSegment
from pyspark_lance.table.nearest.live_rows import Partition, SegmentRows
from pyspark_lance.table.nearest.rabit import RabitCode, SignTables, concat_rows, rabit_products
from pyspark_lance.table.nearest.vectors import EXACT_NUMBERS, Metric, is_usual, row_products

_Floats = NDArray[np.floating[Any]]
# Distances of rows of one query are compared as float32.
_ROUNDING: Final = 2.0**-22
# Factor by which the number of candidates grows while too few of them are live.
_GROWTH: Final = 8
# Rows that are ordered to find an upper bound of the distances of candidates.
_FIRST_NUMBERS: Final = 1 << 12
# Maximum bytes of partitions, and estimates, that wait for the choice of candidates.
_PENDING_BYTES: Final = 64 << 20
_PENDING_ROWS: Final = 1 << 22


@dataclass(frozen=True, slots=True)
class QueryVector:
    """One query: its vector, as given and as the segment compares it."""

    given: _Floats
    directed: _Floats  # Normalized for cosine, in the type of the column.
    rotated: NDArray[np.float32] | None  # IVF_RQ only.


@dataclass(frozen=True, slots=True)
class _Estimates:
    """Distances of all rows of a partition, and the bound of their error."""

    distances: _Floats  # Shape (n,); NaN where undefined.
    errors: float | _Floats = 0.0  # Shape (n,), or one for all.


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Some rows of a partition."""

    number: int
    partition: Partition
    indices: NDArray[np.intp]


class _Distances(Protocol):
    """Distances of stored rows from one query."""

    def estimate(self, number: int, partition: Partition) -> _Estimates:
        """Estimate the distances of all rows of a partition."""

    def compute(self, chosen: Sequence[_Chosen]) -> NDArray[np.float32] | None:
        """Compute the distances of some rows; None if estimates are exact."""


class FewQueries:
    """The nearest rows of some queries in the partitions that are added."""

    def __init__(self, segment: IvfSegment, rows: SegmentRows, k: int) -> None:
        self._segment, self._rows, self._k = segment, rows, k
        self._known: dict[int, _Distances] = {}
        self._pending: dict[int, list[_Pending]] = {}
        self._num_bytes = self._num_rows = 0

    def add(
        self, number: int, partition: Partition, queries: dict[int, QueryVector]
    ) -> Iterator[FoundRows]:
        """Add a partition for some queries, by their numbers; yield what was found so far."""
        for query, vector in queries.items():
            if query not in self._known:
                self._known[query] = distances_from(self._segment, vector)
            estimates = self._known[query].estimate(number, partition)
            self._pending.setdefault(query, []).append(_Pending(number, partition, estimates))
            self._num_rows += len(partition.row_ids)
        self._num_bytes += partition.nbytes
        if self._num_bytes > _PENDING_BYTES or self._num_rows > _PENDING_ROWS:
            yield from self.finish()

    def finish(self) -> Iterator[FoundRows]:
        """Yield the nearest rows of each query among the partitions that were added."""
        for query, pending in self._pending.items():
            yield self._nearest(query, pending)
        self._pending.clear()
        self._num_bytes = self._num_rows = 0

    def _nearest(self, query: int, pending: Sequence[_Pending]) -> FoundRows:
        lower, upper = _bounds([one.estimates for one in pending])
        starts = np.cumsum([0, *(len(one.partition.row_ids) for one in pending)])
        wanted = self._k
        while True:
            limit = np.float64(_smallest(upper, wanted))
            is_every = not np.isfinite(limit)
            if is_every:  # Rows without a distance come last.
                near = np.flatnonzero(~np.isnan(lower))
            else:
                near = np.flatnonzero(lower <= limit + abs(limit) * _ROUNDING)
            chosen = _chosen_rows(pending, starts, near)
            if not chosen:
                return NOTHING_FOUND
            row_ids = np.concatenate([one.partition.row_ids[one.indices] for one in chosen])
            addresses, is_live = self._rows.addresses_of(row_ids)
            # Rows whose upper bound is not above the limit are nearer than all that were left out.
            if is_every or np.count_nonzero(is_live & (upper[near] <= limit)) >= self._k:
                break
            wanted *= _GROWTH
        live = near[is_live]
        distances = self._known[query].compute(_chosen_rows(pending, starts, live))
        if distances is None:
            distances = lower[live].astype(np.float32)
        numbers = np.full(len(live), query, np.int64)
        found = FoundRows(numbers, distances, row_ids[is_live], addresses[is_live])
        return nearest_of([found.at(~np.isnan(distances))], self._k)


def _smallest(numbers: _Floats, rank: int) -> np.floating[Any]:
    """Return the smallest number of a rank from 1; infinite if there are fewer."""
    if rank > len(numbers):
        return np.float64(np.inf)
    # The first numbers bound it, so that few of the others have to be ordered.
    first = np.partition(numbers[: max(_FIRST_NUMBERS, rank)], rank - 1)[rank - 1]
    near = numbers[numbers <= first]
    found: np.floating[Any] = np.partition(near, rank - 1)[rank - 1] if len(near) else first
    return found


@dataclass(frozen=True, slots=True)
class _Pending:
    """A partition and the estimates of one query."""

    number: int
    partition: Partition
    estimates: _Estimates


def _bounds(every: Sequence[_Estimates]) -> tuple[_Floats, _Floats]:
    """Return the lower and upper bounds of the distances of all partitions."""
    distances = np.concatenate([one.distances for one in every])
    if not any(isinstance(one.errors, np.ndarray) or one.errors for one in every):
        return distances, distances
    errors = np.concatenate(
        [np.broadcast_to(one.errors, len(one.distances)) for one in every]
    ).astype(distances.dtype)
    return distances - errors, distances + errors


def _chosen_rows(
    pending: Sequence[_Pending], starts: NDArray[np.intp], rows: NDArray[np.intp]
) -> list[_Chosen]:
    """Divide rows, ascending, by their partitions."""
    cuts = np.searchsorted(rows, starts).tolist()
    return [
        _Chosen(one.number, one.partition, rows[first:last] - start)
        for one, first, last, start in zip(
            pending, cuts[:-1], cuts[1:], starts[:-1].tolist(), strict=True
        )
        if first < last
    ]


# Distances by kind of index --------------------------------------------------------------------


def can_estimate(segment: IvfSegment, partition: Partition, query: _Floats) -> bool:
    """Return whether the distances of a partition from a query can be estimated."""
    if segment.kind is not IvfKind.FLAT:
        return True
    own = query.astype(np.float64)
    work = np.float64 if query.dtype == np.float64 else np.float32
    with np.errstate(over="ignore"):
        square = own @ own
    return partition.squares is not None and bool(is_usual(square, segment.metric, work))


def distances_from(segment: IvfSegment, query: QueryVector) -> _Distances:
    """Return the distances of the rows of a segment from a query."""
    if segment.kind is IvfKind.FLAT:
        return _VectorDistances.of(segment.metric, query.directed)
    if segment.rabit is not None:
        return _RabitDistances(segment, segment.rabit, query)
    if segment.kind is IvfKind.SQ:
        if segment.metric is Metric.DOT:
            return _LevelProducts(segment, query)
        return _LevelDistances(segment, query)
    return _PqDistances(segment, query.directed)


@dataclass(frozen=True, slots=True)
class _VectorDistances:
    """Distances of stored vectors, estimated by products with the query."""

    metric: Metric
    query: _Floats  # float64.
    work: _Floats  # The same, in the type of products.
    square: float
    slack: float

    def __post_init__(self) -> None:
        """Reject plain values."""
        check_enum(self.metric, Metric)

    @classmethod
    def of(cls, metric: Metric, query: _Floats) -> _VectorDistances:
        own = query.astype(np.float64)
        work = query if query.dtype == np.float64 else query.astype(np.float32)
        slack = product_slack(len(query), work.dtype.type)
        return cls(metric, own, work, float(own @ own), slack)

    def estimate(self, number: int, partition: Partition) -> _Estimates:
        assert partition.squares is not None
        products, squares = row_products(partition.stored, self.work), partition.squares
        if self.metric is Metric.L2:
            distances = squares + self.work.dtype.type(self.square)
            distances -= 2 * products
            return _Estimates(distances, 2 * self.slack * (self.square + float(squares.max())))
        if self.metric is Metric.DOT:
            lengths = np.sqrt(self.square * float(squares.max()))
            return _Estimates(1 - products, 2 * self.slack * (1 + lengths))
        products /= np.sqrt(squares)
        products /= self.work.dtype.type(np.sqrt(self.square))
        return _Estimates(1 - products, 4 * self.slack)

    def compute(self, chosen: Sequence[_Chosen]) -> NDArray[np.float32]:
        parts = [
            exact_distances(self.query[None], one.partition.stored[indices], self.metric)
            for one in chosen
            for indices in np.array_split(
                one.indices, 1 + len(one.indices) * len(self.query) // _STEP
            )
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.float32)


# Doubles in memory while distances are computed exactly.
_STEP: Final = 1 << 21


@dataclass(frozen=True, slots=True)
class _PqDistances:
    """Distances by lookup tables of codes."""

    segment: IvfSegment
    query: _Floats

    def estimate(self, number: int, partition: Partition) -> _Estimates:
        return _Estimates(pq_distances(self.segment, partition.stored, self.query, number))

    def compute(self, chosen: Sequence[_Chosen]) -> None:
        return None


def pq_distances(
    segment: IvfSegment, codes: NDArray[np.uint8], query: _Floats, number: int
) -> NDArray[np.float32]:
    """Return the distances of all rows of a partition from a query, by lookup tables."""
    book = segment.codebook
    assert book is not None
    parts, words, _ = book.shape
    if segment.metric is Metric.DOT:
        own = query.astype(np.float32).reshape(parts, -1)
        table = 1 - np.einsum("mkd,md->mk", book, own)
    else:
        moved = query - segment.centroids[number]
        differences = book - moved.astype(np.float32).reshape(parts, 1, -1)
        table = np.einsum("mkd,mkd->mk", differences, differences)
    distances = np.zeros(len(codes), np.float32)
    for of_part, own_words in zip(table, code_words(codes, parts, words), strict=True):
        distances += of_part.take(own_words)
    return distances - (parts - 1) if segment.metric is Metric.DOT else distances


def code_words(codes: NDArray[np.uint8], parts: int, words: int) -> NDArray[np.uint8]:
    """Return the codeword of each sub-vector of rows; shape (parts, n)."""
    by_part = codes.T
    if words == 16:  # two codes per byte, lower half first
        return np.stack([by_part & 15, by_part >> 4], 1).reshape(parts, -1)
    return by_part


def query_levels(segment: IvfSegment, queries: _Floats) -> _Floats:
    """Return the levels of the numbers of queries, as those of rows."""
    assert segment.bounds is not None
    low, step = segment.bounds
    levels: _Floats = np.trunc(np.clip((queries.astype(np.float64) - low) / step, 0, 255))
    return levels


@dataclass(frozen=True, slots=True)
class _LevelDistances:
    """Distances of numbers of 256 levels, which are exact in integers."""

    segment: IvfSegment
    query: QueryVector

    def estimate(self, number: int, partition: Partition) -> _Estimates:
        assert self.segment.bounds is not None and partition.squares is not None
        step = self.segment.bounds[1]
        own = query_levels(self.segment, self.query.directed)
        squares = partition.squares + own @ own
        for first in range(0, len(own), EXACT_NUMBERS):
            part = slice(first, first + EXACT_NUMBERS)
            squares -= 2 * row_products(partition.stored[:, part], own[part].astype(np.float32))
        return _Estimates((squares * step * step).astype(np.float32))

    def compute(self, chosen: Sequence[_Chosen]) -> None:
        return None


@dataclass(frozen=True, slots=True)
class _LevelProducts:
    """Products with numbers of 256 levels."""

    segment: IvfSegment
    query: QueryVector

    def estimate(self, number: int, partition: Partition) -> _Estimates:
        assert self.segment.bounds is not None
        low, step = self.segment.bounds
        own = self.query.given.astype(np.float64)
        products = step * row_products(partition.stored, own.astype(np.float32))
        size = float(np.abs(own).sum())
        error = product_slack(len(own), np.float32) * (255 * abs(step) + abs(low) + 1) * size
        distances = (1 - low * own.sum()) - products.astype(np.float64)
        return _Estimates(distances, error)

    def compute(self, chosen: Sequence[_Chosen]) -> NDArray[np.float32]:
        assert self.segment.bounds is not None
        low, step = self.segment.bounds
        own = self.query.given.astype(np.float64)
        parts = [row_products(one.partition.stored[one.indices], own) for one in chosen]
        products = low * own.sum() + step * np.concatenate([np.empty(0), *parts])
        return (1 - products).astype(np.float32)


class _RabitDistances:
    """Distances by codes of several bits.

    The sum of the numbers of the query at sign bits is that of lookup tables with rounded entries
    in Lance. Here it is part of the product with the whole numbers, and rounded for candidates.
    """

    def __init__(self, segment: IvfSegment, code: RabitCode, query: QueryVector) -> None:
        assert query.rotated is not None
        self._segment, self._code, self._directed = segment, code, query.directed
        self._rotated, self._tables = query.rotated, SignTables.of(query.rotated)
        self._terms: dict[int, tuple[np.float32, np.float32]] = {}
        sign = 1 << (code.num_bits - 1)
        self._middle = np.float32(sign - 0.5) * query.rotated.sum(dtype=np.float32)
        rounding = product_slack(len(query.rotated), np.float32)
        size = 2 * sign * float(np.abs(query.rotated).sum())
        self._error = np.float32(self._tables.rounding * sign + 2 * rounding * size)

    def estimate(self, number: int, partition: Partition) -> _Estimates:
        rows = partition.rabit
        assert rows is not None
        scale, added = self._terms_of(number)
        addends = scale * rows.addends
        if rows.numbers is None:
            inner = rabit_products(self._code, rows, self._rotated, self._tables)
            return _Estimates(inner * rows.factors + addends + added)
        distances = row_products(rows.numbers, self._rotated)
        distances -= self._middle
        distances *= rows.factors
        distances += addends
        distances += added
        errors = self._error * np.abs(rows.factors)
        errors += _SUM_ERROR * (np.abs(addends) + abs(added))
        return _Estimates(distances, errors)

    def compute(self, chosen: Sequence[_Chosen]) -> NDArray[np.float32] | None:
        rabits = [one.partition.rabit for one in chosen]
        rows = [own.at(one.indices) for own, one in zip(rabits, chosen, strict=True) if own]
        if not rows:
            return np.empty(0, np.float32)
        if rows[0].numbers is None:
            return None
        every = concat_rows(rows)
        lengths = [len(one.indices) for one in chosen]
        scale, added = np.repeat([self._terms_of(one.number) for one in chosen], lengths, axis=0).T
        inner = rabit_products(self._code, every, self._rotated, self._tables)
        return inner * every.factors + scale * every.addends + added

    def _terms_of(self, number: int) -> tuple[np.float32, np.float32]:
        if number not in self._terms:
            scale, added = rabit_terms(self._segment, self._directed[None], number)
            self._terms[number] = np.float32(scale[0]), np.float32(added[0])
        return self._terms[number]


# Relative error of a sum of three numbers.
_SUM_ERROR: Final = np.float32(1e-6)


def rabit_terms(
    segment: IvfSegment, queries: _Floats, number: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the factor of the addends of the rows of a partition, and what is added to distances.

    Both of shape (m,).
    """
    own = queries.astype(np.float64)
    centroid = segment.centroids[number].astype(np.float64)
    if segment.metric is Metric.DOT:
        products = own @ centroid
        scale = products / (centroid @ centroid or 1)
        return scale, 1 - products - scale
    return np.ones(len(own)), np.square(own - centroid).sum(axis=1)

"""Exact k-nearest-neighbor search of many queries, block by block; and its results, FoundRows.

A BLAS product of two blocks, minus its maximum rounding error, gives a lower bound of each
distance. Only pairs whose bound does not exceed the k-th best distance so far are computed in
double precision; there are few of these after the first rows. So the result is independent of row
order, block sizes and the machine, and costs little more than the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.table.nearest.vectors import Metric, is_usual

QUERIES_OF_BLOCK: Final = 1024
# Larger blocks would exceed the caches while products are compared.
_ROWS_OF_BLOCK: Final = 1024
# With few queries, a block of rows should fit into the cache of a core.
_SMALL_QUERY_COUNT: Final = 64
_CACHED_NUMBERS: Final = 1 << 18
# Maximum doubles in memory while pairs are computed.
_PAIR_NUMBERS: Final = 1 << 21
# Up to this many pairs of a block are computed without further pruning.
_SMALL_PAIR_COUNT: Final = 1 << 13
# Maximum pending pairs, in addition to the best so far.
_FEWEST_WAITING: Final = 1 << 16

_Floats = NDArray[np.floating[Any]]


class ExactSearch:
    """Search of the nearest rows of some queries among rows added block by block.

    ``queries``: shape (m, d), of the type of the column; no NaN, and no zeros under cosine. ``k``:
    number of rows per query. ``num_computed``: number of pairs whose distance was computed exactly.
    """

    def __init__(self, queries: _Floats, metric: Metric, k: int) -> None:
        self._metric, self._k = metric, k
        self._queries = queries.astype(np.float64)
        self._work = np.float64 if queries.dtype == np.float64 else np.float32
        count, width = queries.shape
        self._slack = product_slack(width, self._work)
        cached_rows = max(256, _CACHED_NUMBERS // (width + 1))
        self._rows_of_block = cached_rows if count < _SMALL_QUERY_COUNT else _ROWS_OF_BLOCK
        self._rows: _Floats = np.empty((self._rows_of_block, width + 1), self._work)
        self._products: _Floats = np.empty(
            min(count, QUERIES_OF_BLOCK) * self._rows_of_block, self._work
        )
        self._prepared: _PreparedQueries | None = None
        self._limits = np.full(count, np.inf, np.float32)
        self._best, self._waiting, self._num_waiting = NOTHING_FOUND, [NOTHING_FOUND], 0
        self.num_computed = 0

    def add(
        self, vectors: _Floats, row_ids: NDArray[np.uint64], addresses: NDArray[np.uint64]
    ) -> None:
        """Add rows.

        ``vectors``: shape (n, d), of the type of the column; ``row_ids``: their row ids, shape
        (n,); ``addresses``: their addresses, shape (n,).
        """
        if not len(self._queries):
            return
        for first in range(0, len(vectors), self._rows_of_block):
            part = slice(first, first + self._rows_of_block)
            self._add_block(_Block(vectors[part], row_ids[part], addresses[part]))

    def result(self) -> FoundRows:
        """Return the nearest of all added rows, in the order of ``nearest_of``."""
        self._compare()
        return self._best

    # One block of rows -----------------------------------------------------------------------

    def _add_block(self, block: _Block) -> None:
        rows = self._rows[: len(block), :-1]
        # Numbers too large for the work type become infinite and are handled separately.
        with np.errstate(over="ignore", invalid="ignore"):
            rows[:] = block.vectors
            squares = np.einsum("ij,ij->i", rows, rows)
            usual = is_usual(squares, self._metric, self._work)
        if not usual.all():
            self._add_unusual(block.at(~usual))
            block = block.at(usual)
            if len(block):
                self._add_block(block)
            return
        if self._prepared is None:
            self._prepared = self._prepare(rows)
        self._add_usual(block, rows, squares, self._prepared)

    def _prepare(self, rows: _Floats) -> _PreparedQueries:
        """Prepare the queries as left factors, given the first rows.

        Distances are translation invariant, and rounding errors are smaller for small numbers, so
        the origin is moved to the mean of the first rows.
        """
        centre = np.zeros(rows.shape[1])
        if self._metric is Metric.L2:
            centre = rows.mean(axis=0, dtype=np.float64).astype(self._work).astype(np.float64)
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            moved = self._queries - centre
            squares = np.einsum("ij,ij->i", moved, moved)
            usual = is_usual(squares, self._metric, self._work)
            if self._metric is Metric.COSINE:
                moved, squares = moved / np.sqrt(squares)[:, None], np.ones(len(squares))
            factors = np.empty((len(moved), moved.shape[1] + 1), self._work)
            if self._metric is Metric.L2:
                factors[:, :-1], factors[:, -1] = -2 * moved, 1
            else:
                factors[:, :-1], factors[:, -1] = -moved, -self._slack * np.sqrt(squares)
        factors[~usual] = 0
        unusual = np.flatnonzero(~usual)
        return _PreparedQueries(factors, squares, centre.astype(self._work), unusual)

    def _add_usual(
        self, block: _Block, rows: _Floats, squares: _Floats, queries: _PreparedQueries
    ) -> None:
        factors = self._rows[: len(rows)]
        if self._metric is Metric.L2:
            rows -= queries.centre
            squares = np.einsum("ij,ij->i", rows, rows)
            factors[:, -1] = squares * (1 - self._slack)
        elif self._metric is Metric.DOT:
            factors[:, -1] = np.sqrt(squares)
        else:
            rows /= np.sqrt(squares)[:, None]
            factors[:, -1] = 1
        largest, kept = float(squares.max()), None
        for first in range(0, len(self._queries), QUERIES_OF_BLOCK):
            last = min(first + QUERIES_OF_BLOCK, len(self._queries))
            query, row = self._candidates(factors, largest, queries, slice(first, last))
            if len(row) > self._most_pairs(last - first):
                # Of equal rows, only the first ones can be among the best.
                kept = block.first_of_equals(self._k) if kept is None else kept
                query, row = query[kept[row]], row[kept[row]]
            self._compute(block, query + first, row)
        self._add_every(block, queries.unusual)

    def _candidates(
        self, rows: _Floats, largest: float, queries: _PreparedQueries, part: slice
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Return candidate pairs of a query, relative to ``part``, and a row."""
        factors = queries.factors[part]
        shape = len(factors), len(rows)
        products = self._products[: shape[0] * shape[1]].reshape(shape)
        np.matmul(factors, rows.T, out=products)
        limits = self._limits_of_products(queries, part)
        mask = products <= limits[:, None]
        found = np.flatnonzero(mask)
        if len(found) > self._most_pairs(shape[0]) and self._k < shape[1]:
            crowded = np.flatnonzero(np.count_nonzero(mask, axis=1) > self._k)
            # Rows farther than the k-th of this block are not candidates.
            least = np.partition(products[crowded], self._k - 1, axis=1)[:, self._k - 1]
            own = least + self._rounding(queries.squares[part][crowded], largest)
            limits[crowded] = np.minimum(limits[crowded], _round_up(own, self._work))
            mask[crowded] = products[crowded] <= limits[crowded, None]
            found = np.flatnonzero(mask)
        return np.divmod(found, shape[1])

    def _most_pairs(self, num_queries: int) -> int:
        """Return the maximum pairs of a block that are computed without further pruning."""
        return max(_SMALL_PAIR_COUNT, 2 * num_queries * self._k)

    def _rounding(self, squares: _Floats, largest: float) -> _Floats:
        """Return the maximum rounding error of the lower bounds."""
        if self._metric is Metric.L2:
            return 2 * self._slack * (squares + largest)
        if self._metric is Metric.DOT:
            return 2 * self._slack * np.sqrt(squares * largest)
        return np.full(len(squares), 2 * self._slack)

    def _limits_of_products(self, queries: _PreparedQueries, part: slice) -> _Floats:
        """Return the limits of products of rows that may be among the best."""
        limits: _Floats = self._limits[part].astype(np.float64)
        # Distances are rounded to float32 before comparisons.
        limits += np.abs(limits, where=np.isfinite(limits), out=np.zeros_like(limits)) * 2.0**-22
        if self._metric is Metric.L2:
            with np.errstate(invalid="ignore"):  # Those of infinite queries are replaced below.
                limits -= queries.squares[part] * (1 - self._slack)
        else:
            limits -= 1
        limits = _round_up(limits, self._work)
        hidden = queries.unusual[(queries.unusual >= part.start) & (queries.unusual < part.stop)]
        limits[hidden - part.start] = -np.inf
        return limits

    # Single pairs ----------------------------------------------------------------------------

    def _add_unusual(self, block: _Block) -> None:
        """Add rows with numbers too large or too small for bounds by products."""
        numbers = block.vectors.astype(np.float64)
        # Skip NaN and, for cosine, zero vectors; other rows may still have no distance.
        squares = np.einsum("ij,ij->i", numbers, numbers)
        sound = (
            (squares > 0) & (squares < np.inf) if self._metric is Metric.COSINE else squares >= 0
        )
        self._add_every(block.at(sound), np.arange(len(self._queries)))

    def _add_every(self, block: _Block, queries: NDArray[np.intp]) -> None:
        step = max(1, _PAIR_NUMBERS // max(1, len(block) * self._queries.shape[1]))
        for first in range(0, len(queries) if len(block) else 0, step):
            some = queries[first : first + step]
            rows = np.tile(np.arange(len(block)), len(some))
            self._compute(block, np.repeat(some, len(block)), rows)

    def _compute(self, block: _Block, queries: NDArray[np.intp], rows: NDArray[np.intp]) -> None:
        """Compute the distances of pairs of a query and a row of the block."""
        self.num_computed += len(queries)
        step = max(1, _PAIR_NUMBERS // self._queries.shape[1])
        for first in range(0, len(queries), step):
            query, row = queries[first : first + step], rows[first : first + step]
            distances = exact_distances(self._queries[query], block.vectors[row], self._metric)
            # NaN is below no limit.
            near = np.flatnonzero(distances <= self._limits[query])
            row = row[near]
            self._wait(
                FoundRows(
                    query[near].astype(np.int64),
                    distances[near],
                    block.row_ids[row],
                    block.addresses[row],
                )
            )

    def _wait(self, found: FoundRows) -> None:
        self._waiting.append(found)
        self._num_waiting += len(found)
        enough = max(_FEWEST_WAITING, len(self._best)) if len(self._best) else 1
        if self._num_waiting >= enough:
            self._compare()

    def _compare(self) -> None:
        if not self._num_waiting:
            return
        self._best = nearest_of([self._best, *self._waiting], self._k)
        self._waiting, self._num_waiting = [], 0
        worst = self._best.ranks() == self._k
        self._limits[self._best.query[worst]] = self._best.distance[worst]


class _Block:
    """A block of rows."""

    def __init__(
        self, vectors: _Floats, row_ids: NDArray[np.uint64], addresses: NDArray[np.uint64]
    ) -> None:
        self.vectors, self.row_ids, self.addresses = vectors, row_ids, addresses

    def __len__(self) -> int:
        return len(self.vectors)

    def at(self, mask: NDArray[np.bool_]) -> _Block:
        return _Block(self.vectors[mask], self.row_ids[mask], self.addresses[mask])

    def first_of_equals(self, k: int) -> NDArray[np.bool_]:
        """Return which rows are among the ``k`` lowest row ids with the same vector."""
        content = np.ascontiguousarray(self.vectors)
        keys = content.view(np.dtype((np.void, content.itemsize * content.shape[1])))
        _, group = np.unique(keys.ravel(), return_inverse=True)
        order = np.lexsort((self.row_ids, group))
        ordered = group[order]
        index = np.arange(len(order)) - np.searchsorted(ordered, ordered)
        kept = np.zeros(len(order), np.bool_)
        kept[order[index < k]] = True
        return kept


class _PreparedQueries:
    """Queries as left factors of products.

    ``factors``: shape (m, d + 1); ``squares``: of their lengths, shape (m,); ``centre``: subtracted
    from rows, shape (d,).
    """

    def __init__(
        self, factors: _Floats, squares: _Floats, centre: _Floats, unusual: NDArray[np.intp]
    ) -> None:
        self.factors, self.squares, self.centre = factors, squares, centre
        self.unusual = unusual


def product_slack(width: int, work: type[np.floating[Any]]) -> float:
    """Return the maximum rounding error of a dot product, relative to the squared lengths."""
    return float(4 * width + 64) * float(np.finfo(work).eps) / 2


def exact_distances(queries: _Floats, rows: _Floats, metric: Metric) -> NDArray[np.float32]:
    """Return the distances of query i and row i; NaN where undefined.

    ``queries``: float64, shape (n, d), or (1, d) for all rows; ``rows``: any floats, shape (n, d).
    """
    with np.errstate(all="ignore"):
        rows = rows.astype(np.float64)
        if metric is Metric.L2:
            rows -= queries
            return np.einsum("ij,ij->i", rows, rows).astype(np.float32)
        products = np.einsum("ij,ij->i", rows, queries)
        if metric is Metric.COSINE:
            squares = np.einsum("ij,ij->i", rows, rows)
            products /= np.sqrt(squares) * np.sqrt(np.einsum("ij,ij->i", queries, queries))
        return (1 - products).astype(np.float32)


def _round_up(numbers: _Floats, work: type[np.floating[Any]]) -> _Floats:
    """Convert numbers to the work type, rounding up."""
    with np.errstate(over="ignore"):
        rounded = numbers.astype(work)
    return np.nextafter(rounded, np.array(np.inf, work))


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Pairs of a query and a row, as arrays of one length."""

    query: NDArray[np.int64]  # Query numbers, int64.
    distance: NDArray[np.float32]  # float32, never NaN.
    row_id: NDArray[np.uint64]  # uint64.
    address: NDArray[np.uint64]  # Row addresses, uint64.

    def __len__(self) -> int:
        return len(self.query)

    def at(self, chosen: NDArray[np.integer] | NDArray[np.bool_] | slice) -> FoundRows:
        """Select some of the pairs."""
        return FoundRows(
            self.query[chosen], self.distance[chosen], self.row_id[chosen], self.address[chosen]
        )

    def of_queries(self, numbers: NDArray[np.int64]) -> FoundRows:
        """Return the same pairs with other query numbers.

        ``numbers``: the new number of each query, by its old one.
        """
        return FoundRows(numbers[self.query], self.distance, self.row_id, self.address)

    def ranks(self) -> NDArray[np.int64]:
        """Return the rank of each pair in its query, from 1; pairs are in ``nearest_of`` order."""
        return np.arange(1, len(self) + 1) - np.searchsorted(self.query, self.query)


NOTHING_FOUND = FoundRows(
    np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.uint64), np.empty(0, np.uint64)
)


def concat_found(found: Sequence[FoundRows]) -> FoundRows:
    """Concatenate results."""
    if len(found) == 1:
        return found[0]
    if not found:
        return NOTHING_FOUND
    return FoundRows(
        np.concatenate([one.query for one in found]),
        np.concatenate([one.distance for one in found]),
        np.concatenate([one.row_id for one in found]),
        np.concatenate([one.address for one in found]),
    )


def nearest_of(found: Sequence[FoundRows], k: int) -> FoundRows:
    """Return the ``k`` nearest rows of each query, by query, distance and row id.

    Ties are broken by the lowest row id, so the result is independent of the order and the
    partitioning of the search.
    """
    every = concat_found(found)
    every = every.at(np.lexsort((every.row_id, every.distance, every.query)))
    return every.at(every.ranks() <= k)


@dataclass(frozen=True, slots=True)
class Found:
    """The results of some tasks of one search.

    ``candidates``: candidates from an index, with approximate distances.
    """

    exact: FoundRows
    candidates: FoundRows

"""FoundRows: rows that a search found, and which of them are the nearest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FoundRows:
    """Pairs of a query and a row, as arrays of one length."""

    query: NDArray[np.int64]  # Numbers of the queries, int64.
    distance: NDArray[np.float32]  # float32, never NaN.
    row_id: NDArray[np.uint64]  # uint64.
    address: NDArray[np.uint64]  # Where the rows are, uint64.

    def __len__(self) -> int:
        return len(self.query)

    def at(self, chosen: NDArray[np.integer] | NDArray[np.bool_] | slice) -> FoundRows:
        """Some of the pairs."""
        return FoundRows(
            self.query[chosen], self.distance[chosen], self.row_id[chosen], self.address[chosen]
        )

    def of_queries(self, numbers: NDArray[np.int64]) -> FoundRows:
        """The same pairs, once the queries are called by other numbers.

        ``numbers``: what each query is called, by what it was called.
        """
        return FoundRows(numbers[self.query], self.distance, self.row_id, self.address)

    def ranks(self) -> NDArray[np.int64]:
        """For pairs in the order of ``nearest_of``, which rank each has for its query, from 1."""
        return np.arange(1, len(self) + 1) - np.searchsorted(self.query, self.query)


NOTHING_FOUND = FoundRows(
    np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.uint64), np.empty(0, np.uint64)
)


def joined(found: Sequence[FoundRows]) -> FoundRows:
    """All pairs of all."""
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
    """The ``k`` nearest rows of each query, by query, distance and row id.

    Of rows that are equally near those with the lowest row ids are taken, so that it does not
    matter in which order and in how many parts a table was searched.
    """
    every = joined(found)
    every = every.at(np.lexsort((every.row_id, every.distance, every.query)))
    return every.at(every.ranks() <= k)


@dataclass(frozen=True, slots=True)
class Found:
    """What some tasks of one search found.

    ``coded``: rows that an index told, maybe at other distances.
    """

    exact: FoundRows
    coded: FoundRows

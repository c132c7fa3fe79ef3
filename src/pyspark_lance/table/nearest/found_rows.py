"""FoundRows: results of a search, and their top-k merge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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


def joined(found: Sequence[FoundRows]) -> FoundRows:
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
    every = joined(found)
    every = every.at(np.lexsort((every.row_id, every.distance, every.query)))
    return every.at(every.ranks() <= k)


@dataclass(frozen=True, slots=True)
class Found:
    """The results of some tasks of one search.

    ``candidates``: candidates from an index, with approximate distances.
    """

    exact: FoundRows
    candidates: FoundRows

"""Candidates: rows that an index leaves, in the fragments of which it knows all rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.row_address import OFFSET_BITS

_SHIFT = np.uint64(OFFSET_BITS)


@dataclass(frozen=True, slots=True)
class Candidates:
    """The only rows of some fragments that can match; all rows of other fragments can.

    Attributes:
        fragments: Ids of the fragments, ascending.
        addresses: Rows of these fragments, ascending.
    """

    fragments: NDArray[np.uint64]
    addresses: NDArray[np.uint64]

    def both(self, other: Candidates) -> Candidates:
        """Rows that can match by the one and by the other."""
        mine, theirs = self.addresses, other.addresses
        is_possible = ~np.isin(mine >> _SHIFT, other.fragments)
        is_possible |= np.isin(mine, theirs, assume_unique=True)
        is_only_theirs = ~np.isin(theirs >> _SHIFT, self.fragments)
        return Candidates(
            np.union1d(self.fragments, other.fragments),
            np.sort(np.concatenate([mine[is_possible], theirs[is_only_theirs]])),
        )

    def either(self, other: Candidates) -> Candidates:
        """Rows that can match by the one or by the other."""
        fragments = np.intersect1d(self.fragments, other.fragments, assume_unique=True)
        rows = (
            addresses[np.isin(addresses >> _SHIFT, fragments)]
            for addresses in (self.addresses, other.addresses)
        )
        return Candidates(fragments, np.union1d(*rows))

    def offsets_of(self, fragment_id: int) -> NDArray[np.uint32]:
        """The rows of one fragment, by their offsets, ascending."""
        ends = np.array([fragment_id, fragment_id + 1], np.uint64) << _SHIFT
        first, last = np.searchsorted(self.addresses, ends)
        return self.addresses[first:last].astype(np.uint32)  # the low halves

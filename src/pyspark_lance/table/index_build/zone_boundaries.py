"""ZoneCutter: cuts the rows of a scan into zones, of which each is in one fragment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from pyroaring import BitMap

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.row_address import OFFSET_BITS

ROWS_PER_ZONE: Final = 8192
"""Default of Lance."""
_MAX_ROWS_PER_ZONE: Final = 1 << 31
_NO_FRAGMENT: Final = -1
_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)


def check_rows_per_zone(rows_per_zone: int) -> None:
    """Refuses zones that cannot be."""
    if not 0 < rows_per_zone < _MAX_ROWS_PER_ZONE:
        raise InvalidInputError(
            f"rows per zone must be positive, not {rows_per_zone}", hint="8192 is a good number"
        )


@dataclass(slots=True)
class ZoneCutter:
    """Where zones begin in rows that come batch by batch, in the order of their addresses.

    ``rows_per_zone``: live rows of a zone, but for the last one of each fragment; ``num_zones``:
    that have begun.
    """

    rows_per_zone: int
    num_zones: int = 0
    _fragment: int = _NO_FRAGMENT
    _filled: int = 0

    def cut(self, addresses: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where pieces of zones begin in the next rows, and the number of the zone of each, from 1.

        The first piece may go on with the zone of the rows before.
        """
        fragments = (addresses >> np.uint64(OFFSET_BITS)).astype(np.int64)
        first_of_run = np.flatnonzero(np.diff(fragments, prepend=_NO_FRAGMENT - 1))
        lengths = np.diff(np.append(first_of_run, len(addresses)))
        position = np.arange(len(addresses)) - np.repeat(first_of_run, lengths)
        if fragments[0] == self._fragment:
            position[: lengths[0]] += self._filled
        position %= self.rows_per_zone
        begins = position == 0
        cuts = np.flatnonzero(begins | (np.arange(len(addresses)) == 0))
        zones = self.num_zones + np.cumsum(begins[cuts])
        self._fragment, self._filled = int(fragments[-1]), int(position[-1]) + 1
        self.num_zones = int(zones[-1])
        return cuts, zones


def note_nulls(nulls: dict[int, BitMap], addresses: NDArray[np.uint64]) -> None:
    """Adds rows to those that are null: fragment -> offsets."""
    fragments = addresses >> np.uint64(OFFSET_BITS)
    for fragment in np.unique(fragments).tolist():
        offsets = (addresses[fragments == fragment] & _OFFSETS).astype(np.uint32)
        nulls.setdefault(fragment, BitMap()).update(offsets)

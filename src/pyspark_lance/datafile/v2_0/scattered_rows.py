"""Reading rows that do not follow each other: near ones are read together and then taken apart."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.join_rows import concat_arrays
from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.codec.row_selection import take_values
from pyspark_lance.plain_values import plain_array

# What lies between two wanted ranges is read with them if it takes fewer bytes.
_MAX_GAP_BYTES: Final = 64 * 1024


def split_at_gaps(rows: RowRanges, row_bytes: int) -> Iterator[RowRanges]:
    """Groups of ranges with little between neighbours.

    ``rows``: the wanted rows; may have no ranges. ``row_bytes``: bytes of a row, at least 1.
    """
    max_gap = _MAX_GAP_BYTES // row_bytes
    cuts = np.flatnonzero(rows.starts[1:] - rows.ends[:-1] > max_gap) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(rows.starts)]):
        if first < last:
            yield RowRanges(rows.starts[first:last], rows.ends[first:last])


def read_near_rows(
    read: Callable[[int, int], pa.Array], rows: RowRanges, row_bytes: int
) -> pa.Array:
    """The rows as one array, of ``read(start, end)`` of groups of near ranges."""
    arrays = []
    for near in split_at_gaps(rows, row_bytes):
        array = read(near.start, near.end)
        arrays.append(array if near.is_single else take_rows(array, near, near.start))
    return concat_arrays(arrays)


def take_rows(array: pa.Array, rows: RowRanges, first: int) -> pa.Array:
    """The rows out of an array whose first value is row ``first``."""
    return take_values(array, plain_array(rows.to_positions() - first))

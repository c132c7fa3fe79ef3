"""Pack work into tasks of about equal cost, for scans and for change feeds.

A Spark task has an overhead of about 50 ms, so small pieces of work share a task; a piece that is
too large for one task is split.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.table.rows.scan_split import ScanSplit, Slices

# As Spark's file sources: the maximum bytes of a partition, and the cost of opening a file.
_MAX_TASK_BYTES: Final = 128 << 20
_MIN_TASK_BYTES: Final = 4 << 20
OPEN_COST_BYTES: Final = 256 << 10
# A task may exceed its target cost by this factor.
_TOLERANCE: Final = 1.1
# Split points are multiples of this, the largest mini-block chunk.
_SPLIT_ROWS: Final = 4096

_W = TypeVar("_W")


def pack_by_cost(
    costs: NDArray[np.float64],
    work: Sequence[_W],
    split: Callable[[_W, int], Sequence[_W]],
    parallelism: int,
    kinds: NDArray[np.int64] | None = None,
) -> list[Sequence[_W]]:
    """Group adjacent pieces of work into tasks; keep their order.

    ``costs``: bytes to read for each piece, shape (len(work),); ``split``: divides a piece of work
    into at most n pieces of about equal cost; ``parallelism``: tasks that can run at once;
    ``kinds``: a number for each piece, shape (len(work),); a task has pieces of one kind.
    """
    kinds = np.zeros(len(work), np.int64) if kinds is None else kinds
    target = _task_bytes(float(costs.sum()), parallelism)
    counts = np.rint(costs / target)
    if (counts > 1).any():
        pieces = [
            split(whole, int(count)) if count > 1 else (whole,)
            for whole, count in zip(work, counts.tolist(), strict=True)
        ]
        lengths = [len(some) for some in pieces]
        costs = np.repeat(costs / np.maximum(lengths, 1), lengths)
        kinds = np.repeat(kinds, lengths)
        work = [piece for some in pieces for piece in some]
    firsts: list[int] = []
    filled, most = 0.0, target * _TOLERANCE
    changes = np.diff(kinds, prepend=kinds[:1]) != 0
    for place, (cost, is_other) in enumerate(zip(costs.tolist(), changes.tolist(), strict=True)):
        if not firsts or is_other or filled + cost > most:
            firsts.append(place)
            filled = 0.0
        filled += cost
    return [work[first:last] for first, last in pairwise([*firsts, len(work)])]


def slice_costs(slices: Slices, share: float) -> NDArray[np.float64]:
    """Return the bytes to read for each split, plus the cost of opening the fragment.

    ``share``: the fraction of a row's bytes that is read.
    """
    columns = slices.fragments.columns
    read = slices.num_rows / np.maximum(1, columns.physical_rows)
    return columns.num_bytes * share * read + OPEN_COST_BYTES


def split_slice(scan_split: ScanSplit, count: int) -> list[ScanSplit]:
    """Divide ``scan_split`` into ``count`` pieces, or fewer if it is small."""
    if scan_split.offsets is not None:
        step = max(1, -(-len(scan_split.offsets) // count))
        pieces = (
            scan_split.offsets.part(at, at + step) for at in range(0, len(scan_split.offsets), step)
        )
        return [
            ScanSplit(scan_split.fragment, scan_split.start, scan_split.end, piece)
            for piece in pieces
        ]
    rows = -(-(scan_split.end - scan_split.start) // count)
    step = -(-rows // _SPLIT_ROWS) * _SPLIT_ROWS
    return [
        ScanSplit(scan_split.fragment, start, min(start + step, scan_split.end))
        for start in range(scan_split.start, scan_split.end, step)
    ]


def _task_bytes(total: float, parallelism: int) -> float:
    """Return the target cost of a task."""
    return min(_MAX_TASK_BYTES, max(_MIN_TASK_BYTES, total / parallelism))

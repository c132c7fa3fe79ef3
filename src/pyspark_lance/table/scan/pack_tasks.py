"""Packs work into tasks of about equal cost, for scans and for change feeds.

A Spark task costs about 50 ms before it reads anything, so small pieces of work share a task; a
piece that would keep one task busy for too long is cut.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from pyspark_lance.table.rows.scan_slice import ScanSlice

# As Spark's file sources: a partition holds at most this, and opening a file counts as this much.
_MOST_TASK_BYTES: Final = 128 << 20
_LEAST_TASK_BYTES: Final = 4 << 20
OPEN_COST_BYTES: Final = 256 << 10
# A task may cost this much more than it should before the next one is begun.
_TOLERANCE: Final = 1.1
# Split points fall on multiples of this, the largest mini-block chunk.
_SPLIT_ROWS: Final = 4096

_W = TypeVar("_W")


def pack_by_cost(
    work: Iterable[tuple[float, _W]], split: Callable[[_W, int], Sequence[_W]], parallelism: int
) -> list[list[_W]]:
    """Groups of neighbouring pieces of work, one for each task; the order is kept.

    ``work``: costs in bytes to read, and what costs them; ``split``: cuts a piece of work into so
    many of about equal cost, or fewer; ``parallelism``: tasks that can run at once.
    """
    costs_and_work = list(work)
    target = _task_bytes(sum(cost for cost, _ in costs_and_work), parallelism)
    groups: list[list[_W]] = []
    filled = 0.0
    for cost, whole in costs_and_work:
        count = max(1, round(cost / target))
        pieces = split(whole, count) if count > 1 else [whole]
        for piece in pieces:
            part = cost / len(pieces)
            if not groups or filled + part > target * _TOLERANCE:
                groups.append([])
                filled = 0.0
            groups[-1].append(piece)
            filled += part
    return groups


def slice_cost(scan_slice: ScanSlice, share: float) -> float:
    """Bytes to read for a slice; opening the fragment counts as some.

    ``share``: the share of a row's bytes that is read.
    """
    stored = float(sum(file.size_bytes for file in scan_slice.fragment.files))
    return stored * share * scan_slice.read_share + OPEN_COST_BYTES


def split_slice(scan_slice: ScanSlice, count: int) -> list[ScanSlice]:
    """``scan_slice`` in ``count`` pieces, or fewer when it has few rows."""
    if scan_slice.offsets is not None:
        step = max(1, -(-len(scan_slice.offsets) // count))
        pieces = (
            scan_slice.offsets.part(at, at + step) for at in range(0, len(scan_slice.offsets), step)
        )
        return [
            ScanSlice(scan_slice.fragment, scan_slice.start, scan_slice.end, piece)
            for piece in pieces
        ]
    rows = -(-(scan_slice.end - scan_slice.start) // count)
    step = -(-rows // _SPLIT_ROWS) * _SPLIT_ROWS
    return [
        ScanSlice(scan_slice.fragment, start, min(start + step, scan_slice.end))
        for start in range(scan_slice.start, scan_slice.end, step)
    ]


def _task_bytes(total: float, parallelism: int) -> float:
    """The cost that each task aims at."""
    return min(_MOST_TASK_BYTES, max(_LEAST_TASK_BYTES, total / parallelism))

"""ByteRange, and merging of byte ranges into requests; pure, no I/O."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class ByteRange(NamedTuple):
    """Bytes ``start`` (inclusive) to ``end`` (exclusive) of one object; ordered by start.

    A named tuple rather than a dataclass, because plans over many pages create many of them.
    """

    start: int
    end: int

    @property
    def num_bytes(self) -> int:
        """Return the number of bytes in the range."""
        return self.end - self.start


def merge_ranges(
    wanted: Iterable[ByteRange], *, max_gap: int, max_bytes: int | None = None
) -> tuple[ByteRange, ...]:
    """Return requests that cover every range in ``wanted``, in ascending order.

    Two ranges share a request when at most ``max_gap`` bytes lie between them: reading the gap is
    cheaper than a second round trip.

    ``wanted``: ranges in any order; they may overlap, repeat or be empty. ``max_gap``: maximum
    number of unneeded bytes between two ranges. ``max_bytes``: maximum length of a merged request,
    so that a long run of ranges is still fetched concurrently. A single longer range stays whole,
    and ranges that overlap are always merged.
    """
    requests: list[ByteRange] = []
    for piece in sorted(wanted):
        if requests:
            last = requests[-1]
            merged = ByteRange(last.start, max(last.end, piece.end))
            overlaps = piece.start < last.end
            fits = max_bytes is None or merged.num_bytes <= max_bytes
            if overlaps or (fits and piece.start - last.end <= max_gap):
                requests[-1] = merged
                continue
        requests.append(piece)
    return tuple(requests)


def cut_ranges(
    wanted: Sequence[ByteRange],
    requests: Sequence[ByteRange],
    responses: Sequence[bytes | memoryview],
) -> list[memoryview]:
    """Return the bytes of each wanted range, as views of the responses to the merged requests.

    ``wanted``: the ranges given to ``merge_ranges``, in the order of the result; ``requests``: the
    result of ``merge_ranges``; ``responses``: exactly ``requests[i].num_bytes`` bytes for each
    request.
    """
    starts = [request.start for request in requests]
    views = [memoryview(answer) for answer in responses]
    pieces = []
    for piece in wanted:
        # An empty range may be at the end of an earlier request; any request will do.
        index = max(bisect.bisect_right(starts, piece.start) - 1, 0)
        origin = starts[index]
        pieces.append(views[index][piece.start - origin : piece.end - origin])
    return pieces

"""ByteRange, and how many wanted ranges become few requests. Pure: no I/O."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class ByteRange(NamedTuple):
    """Bytes ``start`` (inclusive) to ``end`` (exclusive) of one object; ordered by start.

    A named tuple and no dataclass, because plans over many pages make many of them.
    """

    start: int
    end: int

    @property
    def num_bytes(self) -> int:
        """How many bytes lie in the range."""
        return self.end - self.start


def merge_ranges(
    wanted: Iterable[ByteRange], *, max_gap: int, max_bytes: int | None = None
) -> tuple[ByteRange, ...]:
    """Requests that cover every range in ``wanted``, in ascending order.

    Two ranges share a request when at most ``max_gap`` bytes lie between them: over-reading a gap
    is cheaper than a second round trip.

    ``wanted``: ranges in any order; they may overlap, repeat or be empty. ``max_gap``: bytes
    between two ranges that may be read for nothing. ``max_bytes``: requests are not made longer
    than this by merging, so that a long run of neighbours is still fetched concurrently. A single
    longer range stays whole, and ranges that overlap are always merged.
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
    answers: Sequence[bytes | memoryview],
) -> list[memoryview]:
    """The bytes of each wanted range, as views of the answers to the merged requests.

    ``wanted``: the ranges given to ``merge_ranges``, in the order the result shall have;
    ``requests``: what ``merge_ranges`` made of them; ``answers``: exactly ``requests[i].num_bytes``
    bytes for each request.
    """
    starts = [request.start for request in requests]
    views = [memoryview(answer) for answer in answers]
    pieces = []
    for piece in wanted:
        # An empty range may sit just at the end of an earlier request; any request will do.
        index = max(bisect.bisect_right(starts, piece.start) - 1, 0)
        origin = starts[index]
        pieces.append(views[index][piece.start - origin : piece.end - origin])
    return pieces

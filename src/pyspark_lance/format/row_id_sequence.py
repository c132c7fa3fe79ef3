"""RowIdSequence: the stable row ids of one fragment, in physical row order.

Deleted rows keep their entry, so position k belongs to offset k.  No I/O.

Source: docs/format/table-format.md, sections 6.1, 6.3, 6.4.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.physical_rows import (
    as_positions,
    check_deleted_offsets,
    check_row_count,
    check_rows,
)
from pyspark_lance.format.u64_segment import (
    MAX_ROWS,
    RangeSegment,
    U64Segment,
    choose_segment,
    consecutive,
    runs_of_segments,
    segment_from_proto,
)
from pyspark_lance.format.wire import (
    WORTHWHILE_BYTES,
    WORTHWHILE_RANGES,
    Ranges,
    decode_each,
    decode_ranges,
    encode_ranges,
    parse_message,
)
from pyspark_lance.proto import row_ids_pb2


def single_ranges(
    sequences: Sequence[object],
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]] | None:
    """Return first and last id of serialized sequences of one range each; None if some are not."""
    ranges = decode_each(sequences, versions=False)
    if ranges is None or (ranges.starts == ranges.ends).any():
        return None
    return ranges.starts, ranges.ends - np.uint64(1)


# Sequences of so few bytes, such as one range, are decoded again and again: once for each version.
_SHORT_BYTES: Final = 64


@dataclass(frozen=True, slots=True)
class RowIdSequence:
    """Row ids as consecutive segments.

    ``segments``: kept as read, so that writing returns the same bytes.
    """

    segments: tuple[U64Segment, ...]
    _length: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        length = sum([len(segment) for segment in self.segments])
        if length > MAX_ROWS:
            raise CorruptFileError(f"{length} row ids are more than a fragment can have rows")
        object.__setattr__(self, "_length", length)

    @classmethod
    def from_bytes(cls, data: bytes) -> RowIdSequence:
        """Decode a serialized RowIdSequence message; allocates no more than its size."""
        return _decode_short(bytes(data)) if len(data) <= _SHORT_BYTES else cls._decode(data)

    @classmethod
    def _decode(cls, data: bytes) -> RowIdSequence:
        ranges = decode_ranges(data, versions=False) if len(data) >= WORTHWHILE_BYTES else None
        if ranges is not None:
            bounds = zip(ranges.starts.tolist(), ranges.ends.tolist(), strict=True)
            return cls(tuple([RangeSegment(start, end) for start, end in bounds]))
        message = parse_message(row_ids_pb2.RowIdSequence, data)
        return cls(tuple([segment_from_proto(segment) for segment in message.segments]))

    def to_bytes(self) -> bytes:
        """The serialized message."""
        bounds = [
            (segment.start, segment.end)
            for segment in self.segments
            if isinstance(segment, RangeSegment)
        ]
        if len(bounds) == len(self.segments) >= WORTHWHILE_RANGES:
            starts, ends = np.array(bounds, dtype=np.uint64).T
            return encode_ranges(Ranges(starts, ends))
        message = row_ids_pb2.RowIdSequence(
            segments=[segment.to_proto() for segment in self.segments]
        )
        return message.SerializeToString(deterministic=True)

    @classmethod
    def consecutive(cls, start: int, count: int) -> RowIdSequence:
        """The ids ``start .. start + count - 1``."""
        return cls((RangeSegment(start, start + count),))

    @classmethod
    def from_array(cls, row_ids: ArrayLike) -> RowIdSequence:
        """The ids of ``row_ids``, in this order, as one segment."""
        values = np.asarray(row_ids, dtype=np.uint64)
        return cls((choose_segment(values),)) if len(values) else cls(())

    @classmethod
    def concat(cls, sequences: Iterable[RowIdSequence]) -> RowIdSequence:
        """Concatenate sequences; adjacent contiguous ranges are merged."""
        segments: list[U64Segment] = []
        for sequence in sequences:
            for segment in sequence.segments:
                last = segments[-1] if segments else None
                if (
                    isinstance(segment, RangeSegment)
                    and isinstance(last, RangeSegment)
                    and last.end == segment.start
                ):
                    segments[-1] = RangeSegment(last.start, segment.end)
                else:
                    segments.append(segment)
        return cls(tuple(segments))

    def __len__(self) -> int:
        return self._length

    def expect_length(self, physical_rows: int) -> RowIdSequence:
        """Return this sequence if it has one id per physical row; raise otherwise.

        Must be called before expanding a sequence read from a file: a few damaged bytes can claim
        billions of ids.
        """
        check_row_count(self._length, physical_rows, "row ids")
        return self

    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest id; None when empty."""
        spans = [bounds for segment in self.segments if (bounds := segment.bounds())]
        if not spans:
            return None
        return min(low for low, _ in spans), max(high for _, high in spans)

    def to_array(self) -> NDArray[np.uint64]:
        """The ids, shape (len(self),)."""
        if len(self.segments) == 1:
            return self.segments[0].to_array()
        bounds = [
            (segment.start, len(segment))
            for segment in self.segments
            if isinstance(segment, RangeSegment)
        ]
        if len(bounds) == len(self.segments) > 1:  # many short ranges, after updates
            starts, lengths = np.array(bounds, dtype=np.uint64).T
            before = np.cumsum(lengths) - lengths  # subtracted without a sign: modulo 2**64
            return np.repeat(starts - before, lengths.astype(np.int64)) + consecutive(0, len(self))
        parts = [segment.to_array() for segment in self.segments]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint64)

    def slice(self, start: int, end: int) -> RowIdSequence:
        """The ids at positions [start, end)."""
        check_rows(start, end, self._length)
        if start == 0 and end == self._length:
            return self
        segments: list[U64Segment] = []
        segment_start = 0
        for segment in self.segments:
            segment_end = segment_start + len(segment)
            low, high = max(start, segment_start), min(end, segment_end)
            if low < high:
                whole = high - low == len(segment)
                segments.append(
                    segment if whole else segment.slice(low - segment_start, high - segment_start)
                )
            segment_start = segment_end
        return RowIdSequence(tuple(segments))

    def take(self, offsets: ArrayLike) -> NDArray[np.uint64]:
        """The ids at ``offsets``, in any order, same shape."""
        positions = as_positions(offsets, self._length)
        if len(self.segments) == 1:
            return self.segments[0].take(positions)
        row_ids = np.empty(len(positions), dtype=np.uint64)
        ends = np.cumsum([len(segment) for segment in self.segments], dtype=np.int64)
        owners = np.searchsorted(ends, positions, side="right")
        order = np.argsort(owners, kind="stable")
        hit, firsts = np.unique(owners[order], return_index=True)
        for owner, chosen in zip(hit.tolist(), np.split(order, firsts[1:]), strict=False):
            segment = self.segments[owner]
            segment_start = ends[owner] - len(segment)
            row_ids[chosen] = segment.take(positions[chosen] - segment_start)
        return row_ids

    def without(self, deleted: DeletionVector) -> RowIdSequence:
        """Return the ids of live rows; segments that lose a value are encoded again.

        Lance also merges ascending adjacent ranges of one sequence into a single segment.  That
        can turn two numbers into an array of all ids, so ranges stay ranges here.

        Source: docs/format/table-format.md, section 6.4.
        """
        if deleted.is_empty:
            return self
        check_deleted_offsets(deleted, self._length)
        ends = np.cumsum([len(segment) for segment in self.segments], dtype=np.int64)
        offsets = deleted.to_array()
        # Most segments of a long sequence lose nothing and are kept.
        indices = np.searchsorted(offsets, ends).tolist()
        segments: list[U64Segment] = []
        for segment, end, first, last in zip(
            self.segments, ends.tolist(), [0, *indices], indices, strict=False
        ):
            if first == last:
                segments.append(segment)
            elif last - first < len(segment):
                keep = np.ones(len(segment), dtype=np.bool_)
                keep[offsets[first:last].astype(np.int64) - (end - len(segment))] = False
                segments.append(choose_segment(segment.to_array()[keep]))
        return RowIdSequence(tuple(segments))

    def live_runs(
        self, deleted: DeletionVector | None
    ) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Return first and last of each run of consecutive ids of live rows.

        Memory depends on the encoded sequence and the runs of deleted rows, not on the rows.
        """
        starts, lengths = runs_of_segments(self.segments)
        if deleted is None or deleted.is_empty:
            return starts, starts + (lengths - np.uint64(1))
        check_deleted_offsets(deleted, self._length)
        ends = np.cumsum(lengths.astype(np.int64))
        firsts = ends - lengths.astype(np.int64)
        gone_firsts, gone_ends = deleted.runs()
        # A live run begins where a run of ids begins or deleted rows end, and vice versa; each of
        # them is inside one run of ids.
        live_firsts = np.sort(np.concatenate((firsts, gone_ends)))
        live_ends = np.sort(np.concatenate((ends, gone_firsts)))
        filled = live_firsts < live_ends
        live_firsts, live_ends = live_firsts[filled], live_ends[filled]
        owners = np.searchsorted(firsts, live_firsts, side="right") - 1
        ids = starts[owners] + (live_firsts - firsts[owners]).astype(np.uint64)
        # One past the last would overflow for the greatest number.
        return ids, ids + (live_ends - live_firsts - 1).astype(np.uint64)


@lru_cache(maxsize=1024)
def _decode_short(data: bytes) -> RowIdSequence:
    return RowIdSequence._decode(data)

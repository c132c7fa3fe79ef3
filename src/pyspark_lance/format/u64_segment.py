"""U64Segment: a piece of a sequence of 64-bit numbers, in the smallest of five encodings. No I/O.

A segment belongs to one fragment, whose rows are counted in 32 bits, which limits its length.
Expanding one allocates eight bytes per value: check the length against the fragment first.

Source: docs/format/table-format.md, sections 6.1 and 6.2.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.proto import row_ids_pb2

MAX_U64 = (1 << 64) - 1
_WIDTHS: dict[int, np.dtype[Any]] = {2: np.dtype("<u2"), 4: np.dtype("<u4"), 8: np.dtype("<u8")}


@dataclass(frozen=True, slots=True, eq=False)
class EncodedU64Array:
    """Numbers ``base + offsets[i]``."""

    base: int  # Added to every offset. Zero when offsets are 64 bits wide: that form has no base.
    offsets: NDArray[Any]  # One-dimensional, dtype ``<u2``, ``<u4`` or ``<u8``; read-only.

    def __post_init__(self) -> None:
        width = _WIDTHS.get(self.offsets.dtype.itemsize)
        if width is None or self.offsets.dtype.kind != "u" or self.offsets.ndim != 1:
            raise CorruptFileError(f"number array offsets have dtype {self.offsets.dtype}")
        if not 0 <= self.base <= MAX_U64 or (self.base and width.itemsize == 8):
            raise CorruptFileError(f"number array has base {self.base} at {width.itemsize} bytes")
        # A view of read-only memory; a copy of memory that the caller could modify.
        offsets = self.offsets.astype(width, copy=self.offsets.flags.writeable).view()
        offsets.flags.writeable = False
        object.__setattr__(self, "offsets", offsets)
        # With a base this low, no offset can overflow.
        if self.base >> 63 and len(offsets) and self.base + int(offsets.max()) > MAX_U64:
            raise CorruptFileError(
                f"number array holds {self.base} + {int(offsets.max())}, more than 64 bits"
            )

    def __len__(self) -> int:
        return len(self.offsets)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EncodedU64Array):
            return NotImplemented
        same_shape = self.base == other.base and self.offsets.dtype == other.offsets.dtype
        return same_shape and np.array_equal(self.offsets, other.offsets)

    def __hash__(self) -> int:
        return hash((self.base, self.offsets.dtype.itemsize, self.offsets.tobytes()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Through the constructor, which makes the array read-only again.
        return EncodedU64Array, (self.base, self.offsets)

    def to_array(self) -> NDArray[np.uint64]:
        """The numbers, shape (len(self),)."""
        values = self.offsets.astype(np.uint64)
        if self.base:
            values += np.uint64(self.base)
        return values

    @classmethod
    def choose(cls, values: NDArray[np.uint64]) -> EncodedU64Array:
        """The narrowest form of ``values``, with their minimum as base; empty is 64 bits wide."""
        values = np.asarray(values, dtype=np.uint64)
        if not len(values):
            return cls(0, np.empty(0, dtype="<u8"))
        base = values.min()
        spread = int(values.max() - base)
        if spread > 0xFFFF_FFFF:
            return cls(0, values.astype("<u8"))
        return cls(int(base), (values - base).astype("<u2" if spread <= 0xFFFF else "<u4"))

    @classmethod
    def from_proto(cls, message: row_ids_pb2.EncodedU64Array) -> EncodedU64Array:
        """Decode the message; the numbers are a view of its bytes."""
        form = message.WhichOneof("array")
        if form == "u16_array":
            return cls(message.u16_array.base, _view(message.u16_array.offsets, 2))
        if form == "u32_array":
            return cls(message.u32_array.base, _view(message.u32_array.offsets, 4))
        if form == "u64_array":
            return cls(0, _view(message.u64_array.values, 8))
        raise CorruptFileError("number array has no known form")

    def to_proto(self) -> row_ids_pb2.EncodedU64Array:
        """The message with exactly these offsets."""
        data = self.offsets.tobytes()
        message = row_ids_pb2.EncodedU64Array()
        # CopyFrom marks the form as set even when everything in it is zero.
        if self.offsets.dtype.itemsize == 2:
            message.u16_array.CopyFrom(message.U16Array(base=self.base, offsets=data))
        elif self.offsets.dtype.itemsize == 4:
            message.u32_array.CopyFrom(message.U32Array(base=self.base, offsets=data))
        else:
            message.u64_array.CopyFrom(message.U64Array(values=data))
        return message


def _view(data: bytes, width_bytes: int) -> NDArray[Any]:
    """Read-only view of ``data`` as little-endian numbers."""
    if len(data) % width_bytes:
        raise CorruptFileError(
            f"number array has {len(data)} bytes, not a multiple of {width_bytes}"
        )
    return np.frombuffer(data, dtype=_WIDTHS[width_bytes])


MAX_ROWS = 1 << 32
Runs: TypeAlias = tuple[NDArray[np.uint64], NDArray[np.uint64]]
"""First value and length of each run."""
# Overhead of every encoding but the range, used when sizes are compared.
_SHAPE_OVERHEAD_BYTES = 24


@dataclass(frozen=True, slots=True)
class RangeSegment:
    """The values ``start, start + 1, ..., end - 1``."""

    start: int  # First value.
    end: int  # One past the last value; equal to ``start`` for no values.

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= MAX_U64:
            raise CorruptFileError(f"range [{self.start}, {self.end}) is not inside [0, 2**64 - 1)")
        if self.end - self.start > MAX_ROWS:
            raise CorruptFileError(
                f"range [{self.start}, {self.end}) has more values than a fragment can have rows"
            )

    def __len__(self) -> int:
        return self.end - self.start

    def to_array(self) -> NDArray[np.uint64]:
        """The values, shape (len(self),)."""
        return consecutive(self.start, len(self))

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The values at ``positions``, which must be in [0, len(self))."""
        return positions.astype(np.uint64) + np.uint64(self.start)

    def slice(self, start: int, end: int) -> U64Segment:
        """The values at positions [start, end)."""
        _check_slice(start, end, len(self))
        return RangeSegment(self.start + start, self.start + end)

    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value; None when empty."""
        return (self.start, self.end - 1) if self.end > self.start else None

    def to_proto(self) -> row_ids_pb2.U64Segment:
        """The message."""
        message = row_ids_pb2.U64Segment()
        message.range.CopyFrom(row_ids_pb2.U64Segment.Range(start=self.start, end=self.end))
        return message


@dataclass(frozen=True, slots=True)
class RangeWithHolesSegment:
    """The values of [start, end) that are not in ``holes``."""

    start: int  # First number of the range.
    end: int  # One past the last number of the range.
    holes: EncodedU64Array  # Absolute values, strictly ascending, all inside the range.

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= MAX_U64:
            raise CorruptFileError(f"range [{self.start}, {self.end}) is not inside [0, 2**64 - 1)")
        offsets = self.holes.offsets
        if len(offsets):
            if not (offsets[1:] > offsets[:-1]).all():
                raise CorruptFileError("holes of a range are not strictly ascending")
            first, last = self.holes.base + int(offsets[0]), self.holes.base + int(offsets[-1])
            if first < self.start or last >= self.end:
                raise CorruptFileError(
                    f"holes {first} to {last} are not inside the range [{self.start}, {self.end})"
                )
        if self.end - self.start - len(offsets) > MAX_ROWS:
            raise CorruptFileError(
                f"range [{self.start}, {self.end}) with {len(offsets)} holes has more values than "
                "a fragment can have rows"
            )

    def __len__(self) -> int:
        return self.end - self.start - len(self.holes)

    def to_array(self) -> NDArray[np.uint64]:
        """The values, shape (len(self),)."""
        return self.take(np.arange(len(self), dtype=np.int64))

    def runs(self) -> Runs:
        """Return first and length of the runs of consecutive values."""
        holes = self.holes.to_array()
        firsts = np.append(np.array([self.start], np.uint64), holes + np.uint64(1))
        return firsts, np.append(holes, np.array([self.end], np.uint64)) - firsts

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The values at ``positions``, which must be in [0, len(self))."""
        holes = self.holes.to_array() - np.uint64(self.start)
        # Number of values before each hole; a position skips the holes with at most that many.
        values_before = holes - np.arange(len(holes), dtype=np.uint64)
        wanted = positions.astype(np.uint64)
        skipped = np.searchsorted(values_before, wanted, side="right").astype(np.uint64)
        return wanted + skipped + np.uint64(self.start)

    def slice(self, start: int, end: int) -> U64Segment:
        """The values at positions [start, end), in the best encoding."""
        _check_slice(start, end, len(self))
        return choose_segment(self.take(np.arange(start, end, dtype=np.int64)))

    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value; None when empty."""
        return _bounds_of_ascending(self)

    def to_proto(self) -> row_ids_pb2.U64Segment:
        """The message."""
        return row_ids_pb2.U64Segment(
            range_with_holes=row_ids_pb2.U64Segment.RangeWithHoles(
                start=self.start, end=self.end, holes=self.holes.to_proto()
            )
        )


@dataclass(frozen=True, slots=True)
class RangeWithBitmapSegment:
    """The values ``start + i`` for every set bit ``i``."""

    start: int  # First number of the range.
    end: int  # One past the last number of the range.
    # Bit ``i`` is bit ``i % 8`` of byte ``i // 8``, counted from the least significant one. Exactly
    # as long as the range needs; bits beyond ``end`` are zero.
    bitmap: bytes
    _length: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end <= MAX_U64:
            raise CorruptFileError(f"range [{self.start}, {self.end}) is not inside [0, 2**64 - 1)")
        span = self.end - self.start
        if len(self.bitmap) != (span + 7) // 8:
            raise CorruptFileError(
                f"bitmap of range [{self.start}, {self.end}) has {len(self.bitmap)} bytes, "
                f"expected {(span + 7) // 8}"
            )
        if span % 8 and self.bitmap[-1] >> span % 8:
            raise CorruptFileError(
                f"bitmap of range [{self.start}, {self.end}) has bits beyond its end"
            )
        object.__setattr__(self, "_length", int.from_bytes(self.bitmap, "little").bit_count())
        if self._length > MAX_ROWS:
            raise CorruptFileError(f"bitmap has {self._length} values, more than a fragment's rows")

    def __len__(self) -> int:
        return self._length

    def to_array(self) -> NDArray[np.uint64]:
        """The values, shape (len(self),)."""
        values = self._positions_of_set_bits().astype(np.uint64)
        values += np.uint64(self.start)
        return values

    def runs(self) -> Runs:
        """Return first and length of the runs of consecutive values."""
        return _runs_of(self.to_array())

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The values at ``positions``, which must be in [0, len(self))."""
        return self._positions_of_set_bits()[positions].astype(np.uint64) + np.uint64(self.start)

    def slice(self, start: int, end: int) -> U64Segment:
        """The values at positions [start, end), in the best encoding."""
        _check_slice(start, end, len(self))
        return choose_segment(self.take(np.arange(start, end, dtype=np.int64)))

    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value; None when empty."""
        return _bounds_of_ascending(self)

    def to_proto(self) -> row_ids_pb2.U64Segment:
        """The message."""
        return row_ids_pb2.U64Segment(
            range_with_bitmap=row_ids_pb2.U64Segment.RangeWithBitmap(
                start=self.start, end=self.end, bitmap=self.bitmap
            )
        )

    def _positions_of_set_bits(self) -> NDArray[np.int64]:
        bits = np.unpackbits(np.frombuffer(self.bitmap, dtype=np.uint8), bitorder="little")
        return np.flatnonzero(bits)


@dataclass(frozen=True, slots=True)
class _StoredValues:
    """The values of ``array``, one by one."""

    array: EncodedU64Array

    def __len__(self) -> int:
        return len(self.array)

    def to_array(self) -> NDArray[np.uint64]:
        """The values, shape (len(self),)."""
        return self.array.to_array()

    def runs(self) -> Runs:
        """Return first and length of the runs of consecutive values."""
        return _runs_of(self.to_array())

    def take(self, positions: NDArray[np.int64]) -> NDArray[np.uint64]:
        """The values at ``positions``, which must be in [0, len(self))."""
        return self._values(positions)

    def slice(self, start: int, end: int) -> U64Segment:
        """The values at positions [start, end), in the best encoding."""
        _check_slice(start, end, len(self))
        return choose_segment(self._values(slice(start, end)))

    def _values(self, indices: NDArray[np.int64] | builtins.slice) -> NDArray[np.uint64]:
        return self.array.offsets[indices].astype(np.uint64) + np.uint64(self.array.base)


@dataclass(frozen=True, slots=True)
class SortedArraySegment(_StoredValues):
    """The values of ``array``, in ascending order."""

    def __post_init__(self) -> None:
        offsets = self.array.offsets
        if not (offsets[1:] >= offsets[:-1]).all():
            raise CorruptFileError("values of a sorted array are not ascending")

    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value; None when empty."""
        return _bounds_of_ascending(self)

    def to_proto(self) -> row_ids_pb2.U64Segment:
        """The message."""
        return row_ids_pb2.U64Segment(sorted_array=self.array.to_proto())


@dataclass(frozen=True, slots=True)
class ArraySegment(_StoredValues):
    """The values of ``array``, in any order."""

    def bounds(self) -> tuple[int, int] | None:
        """Smallest and largest value; None when empty."""
        offsets, base = self.array.offsets, self.array.base
        return (base + int(offsets.min()), base + int(offsets.max())) if len(offsets) else None

    def to_proto(self) -> row_ids_pb2.U64Segment:
        """The message."""
        return row_ids_pb2.U64Segment(array=self.array.to_proto())


U64Segment = (
    RangeSegment
    | RangeWithHolesSegment
    | RangeWithBitmapSegment
    | SortedArraySegment
    | ArraySegment
)


def choose_segment(values: NDArray[np.uint64]) -> U64Segment:
    """Return the encoding that Lance chooses for ``values``, byte for byte.

    Source: docs/format/table-format.md, section 6.2.
    """
    values = np.asarray(values, dtype=np.uint64)
    count = len(values)
    if not count:
        return RangeSegment(0, 0)
    if not (values[1:] > values[:-1]).all():
        return ArraySegment(EncodedU64Array.choose(values))
    first, last = int(values[0]), int(values[-1])
    if last == MAX_U64:
        # No range can end after it.
        return SortedArraySegment(EncodedU64Array.choose(values))
    span = last - first + 1
    if span == count:
        return RangeSegment(first, last + 1)
    holes_bytes = _SHAPE_OVERHEAD_BYTES + 4 * (span - count)
    bitmap_bytes = _SHAPE_OVERHEAD_BYTES + (span + 7) // 8
    array_bytes = _SHAPE_OVERHEAD_BYTES + 2 * count
    if holes_bytes <= min(bitmap_bytes, array_bytes):
        return RangeWithHolesSegment(first, last + 1, EncodedU64Array.choose(_gaps(values)))
    if bitmap_bytes <= array_bytes:
        bits = np.zeros(span, dtype=np.bool_)
        bits[values - np.uint64(first)] = True
        return RangeWithBitmapSegment(
            first, last + 1, np.packbits(bits, bitorder="little").tobytes()
        )
    return SortedArraySegment(EncodedU64Array.choose(values))


def segment_from_proto(message: row_ids_pb2.U64Segment) -> U64Segment:
    """Decode the message."""
    shape = message.WhichOneof("segment")
    if shape == "range":
        content = message.range
        return RangeSegment(content.start, content.end)
    if shape == "range_with_holes":
        holed = message.range_with_holes
        # An absent message has only default fields: no holes.
        holes = EncodedU64Array.from_proto(holed.holes) if holed.HasField("holes") else _NO_HOLES
        return RangeWithHolesSegment(holed.start, holed.end, holes)
    if shape == "range_with_bitmap":
        mapped = message.range_with_bitmap
        return RangeWithBitmapSegment(mapped.start, mapped.end, mapped.bitmap)
    if shape == "sorted_array":
        return SortedArraySegment(EncodedU64Array.from_proto(message.sorted_array))
    if shape == "array":
        return ArraySegment(EncodedU64Array.from_proto(message.array))
    raise CorruptFileError("sequence segment has no known shape")


_NO_HOLES = EncodedU64Array(0, np.empty(0, dtype="<u8"))


def _gaps(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return the numbers missing in strictly ascending ``values``."""
    missing = (np.diff(values) - np.uint64(1)).astype(np.int64)
    before = np.flatnonzero(missing)
    lengths = missing[before]
    # 0, 1, .. within each gap: a running count minus the count at the start of the gap.
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    return np.repeat(values[before], lengths) + within.astype(np.uint64) + np.uint64(1)


def runs_of_segments(segments: Sequence[U64Segment]) -> Runs:
    """Return first and length of the runs of consecutive values, segment after segment."""
    firsts, lengths = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)]
    for are_ranges, some in groupby(segments, lambda one: isinstance(one, RangeSegment)):
        if are_ranges:  # there may be one per row
            bounds = [(one.start, one.end) for one in some if isinstance(one, RangeSegment)]
            starts, ends = np.array(bounds, dtype=np.uint64).T
            firsts.append(starts)
            lengths.append(ends - starts)
            continue
        for one in some:
            assert not isinstance(one, RangeSegment)
            starts, counts = one.runs()
            firsts.append(starts)
            lengths.append(counts)
    joined, counts = np.concatenate(firsts), np.concatenate(lengths)
    filled = counts > 0
    return joined[filled], counts[filled]


def _runs_of(values: NDArray[np.uint64]) -> Runs:
    breaks = np.flatnonzero(np.diff(values) != 1) + 1
    edges = np.concatenate(([0], breaks)) if len(values) else breaks
    return values[edges], np.diff(edges, append=len(values)).astype(np.uint64)


def _bounds_of_ascending(segment: U64Segment) -> tuple[int, int] | None:
    if not len(segment):
        return None
    first, last = segment.take(np.array([0, len(segment) - 1])).tolist()
    return first, last


def _check_slice(start: int, end: int, length: int) -> None:
    if not 0 <= start <= end <= length:
        raise InvalidInputError(f"positions [{start}, {end}) are not inside [0, {length})")


# Adding to cached numbers takes half the time of counting; 512 KiB are cached.
_KEPT_NUMBERS = 1 << 16


def consecutive(start: int, count: int) -> NDArray[np.uint64]:
    """Return ``start`` and the ``count - 1`` numbers after it; all must fit into 64 bits."""
    if count > _KEPT_NUMBERS:
        numbers = np.arange(count, dtype=np.uint64)
        numbers += np.uint64(start)
        return numbers
    # Arrow's pool reuses freed memory; new pages would cost more than the numbers.
    numbers = np.frombuffer(pa.allocate_buffer(max(1, 8 * count)), np.uint64, count)
    return np.add(_first_numbers()[:count], np.uint64(start), out=numbers)


@cache
def _first_numbers() -> NDArray[np.uint64]:
    numbers = np.arange(_KEPT_NUMBERS, dtype=np.uint64)
    numbers.flags.writeable = False
    return numbers

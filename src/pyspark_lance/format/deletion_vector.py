"""DeletionVector and OffsetSet: the deleted rows of a fragment, and compressed sets of rows.

A deletion file contains the complete set, never a difference. The memory of an ``OffsetSet``
depends on its runs: a run takes a few bytes, a scattered row about two; the same is true for the
pickles of tasks that contain it. No I/O: ``metafile`` reads and writes the files.

Source: docs/format/table-format.md, sections 4.3 and 5.
"""

from __future__ import annotations

import array
import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pyroaring import BitMap, FrozenBitMap

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.typed_values import check_enum
from pyspark_lance.proto import table_pb2

# Number of offsets converted to an array at a time.
_WINDOW_ROWS = 1 << 20
_NO_RUN_COOKIE = (12346).to_bytes(4, "little")


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """An immutable set of offsets within one fragment.

    ``bitmap``: the offsets, each inside [0, 2**32).
    """

    bitmap: FrozenBitMap

    @classmethod
    def empty(cls) -> DeletionVector:
        """Return a vector without deleted rows."""
        return cls(FrozenBitMap())

    @classmethod
    def of(cls, offsets: ArrayLike) -> DeletionVector:
        """The set of ``offsets``, in any order; duplicates count once."""
        values = np.asarray(offsets)
        if values.size and values.dtype != np.uint32:
            if values.dtype.kind not in "iu":
                raise InvalidInputError(f"deleted offsets are {values.dtype}, not integers")
            if values.min() < 0 or values.max() >= 1 << 32:
                raise InvalidInputError("a deleted offset is not inside [0, 2**32)")
        return cls(FrozenBitMap(_bitmap_of(values)))

    @classmethod
    def from_bitmap_bytes(cls, data: bytes) -> DeletionVector:
        """Decode a portable 32-bit Roaring bitmap, which must be all of ``data``."""
        data = bytes(data)
        # The library reads before it checks the length.
        if len(data) < 8:
            raise CorruptFileError(f"a roaring bitmap has at least 8 bytes, found {len(data)}")
        try:
            bitmap = FrozenBitMap.deserialize(data)
        except (ValueError, IndexError, MemoryError) as error:
            raise CorruptFileError(f"not a roaring bitmap: {error}") from error
        # Without run containers a bitmap has one serialization, so this detects trailing bytes and
        # wrong container offsets, which the library does not check.
        if data[:4] == _NO_RUN_COOKIE and bitmap.serialize() != data:
            raise CorruptFileError("roaring bitmap has trailing bytes or wrong container offsets")
        return cls(bitmap)

    def to_bitmap_bytes(self) -> bytes:
        """The portable 32-bit Roaring serialization."""
        return bytes(self.bitmap.serialize())

    def __len__(self) -> int:
        return len(self.bitmap)

    def __contains__(self, offset: int) -> bool:
        return offset in self.bitmap

    def __repr__(self) -> str:
        return f"DeletionVector({len(self)} offsets)"

    @property
    def is_empty(self) -> bool:
        """Return whether no row is deleted."""
        return not self.bitmap

    @property
    def max_offset(self) -> int | None:
        """The largest deleted offset; None when empty."""
        return int(self.bitmap.max()) if self.bitmap else None

    def to_array(self) -> NDArray[np.uint32]:
        """The deleted offsets, ascending."""
        return _array_of(self.bitmap)

    def union(self, other: DeletionVector) -> DeletionVector:
        """Rows deleted in either."""
        return DeletionVector(self.bitmap | other.bitmap)

    def intersection(self, other: DeletionVector) -> DeletionVector:
        """Rows deleted in both."""
        return DeletionVector(self.bitmap & other.bitmap)

    def difference(self, other: DeletionVector) -> DeletionVector:
        """Rows deleted here and not in ``other``."""
        return DeletionVector(self.bitmap - other.bitmap)

    def intersects(self, other: DeletionVector) -> bool:
        """Return whether some row is deleted in both."""
        return bool(self.bitmap.intersect(other.bitmap))

    def slice_array(self, start: int, end: int) -> NDArray[np.uint32]:
        """The deleted offsets inside [start, end), ascending and not shifted."""
        if start >= end or not self.bitmap:
            return np.empty(0, dtype=np.uint32)
        return _array_of(self.bitmap & BitMap(range(start, min(end, 1 << 32))))

    def runs(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return runs of consecutive deleted offsets, ascending: first, and one past the last.

        Memory depends on the number of runs, not of rows; a long run may be split into adjacent
        parts.
        """
        firsts, ends = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
        start, stop = (self.bitmap.min(), self.bitmap.max() + 1) if self.bitmap else (0, 0)
        for window in range(start, stop, _WINDOW_ROWS):
            offsets = self.slice_array(window, min(window + _WINDOW_ROWS, stop)).astype(np.int64)
            breaks = np.diff(offsets) != 1
            firsts += [offsets[:1], offsets[1:][breaks]]
            ends += [offsets[:-1][breaks] + 1, offsets[-1:] + 1]
        return np.concatenate(firsts), np.concatenate(ends)

    def keep_mask(self, start: int, end: int) -> NDArray[np.bool_]:
        """Return which rows of [start, end) are live, shape (end - start,)."""
        keep = np.ones(end - start, dtype=np.bool_)
        keep[self.slice_array(start, end).astype(np.int64) - start] = False
        return keep

    def contains_each(self, offsets: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return which of ``offsets`` (any order) are deleted, same shape."""
        return _contains_each(self.bitmap, offsets)


def _contains_each(bitmap: BitMap | FrozenBitMap, offsets: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return which of ``offsets``, in any order, are in ``bitmap``; same shape."""
    hits = bitmap & _bitmap_of(offsets) if bitmap and len(offsets) else BitMap()
    if not hits or len(hits) == len(offsets):
        return np.full(len(offsets), bool(hits))
    return np.isin(offsets, _array_of(hits))


def _bitmap_of(offsets: NDArray[np.integer]) -> BitMap:
    # pyroaring copies an array.array in one step, other iterables element by element.
    numbers = array.array("I")
    numbers.frombytes(np.ascontiguousarray(offsets, dtype=np.uint32).tobytes())
    return BitMap(numbers)


def _array_of(bitmap: BitMap | FrozenBitMap) -> NDArray[np.uint32]:
    values = np.frombuffer(bitmap.to_array(), dtype=np.uint32)
    values.flags.writeable = False
    return values


class DeletionFileType(enum.IntEnum):
    """Encoding of a deletion file.  Readers use only this, never the size or the name."""

    ARROW_ARRAY = 0
    BITMAP = 1


@dataclass(frozen=True, slots=True)
class DeletionFile:
    """The deletion file of a fragment.

    Source: docs/format/table-format.md, section 4.3.
    """

    file_type: DeletionFileType  # Decides the parser and the file name's extension.
    read_version: int  # Version the deleting operation read; part of the file name.
    id: int  # Random number; part of the file name.
    num_deleted_rows: int  # Cardinality of the set; 0 if very old software did not record it.
    base_id: int | None = None  # Base path the file lives under; None for the table root.

    def __post_init__(self) -> None:
        """Reject a plain number."""
        check_enum(self.file_type, DeletionFileType)

    @property
    def suffix(self) -> str:
        """The file name's extension, without the dot."""
        return "bin" if self.file_type == DeletionFileType.BITMAP else "arrow"

    @classmethod
    def from_proto(cls, message: table_pb2.DeletionFile) -> DeletionFile:
        """Decode the message."""
        try:
            file_type = DeletionFileType(message.file_type)
        except ValueError as error:
            raise CorruptFileError(
                f"deletion file type is {message.file_type}, expected 0 (arrow) or 1 (bitmap)"
            ) from error
        return cls(
            file_type=file_type,
            read_version=message.read_version,
            id=message.id,
            num_deleted_rows=message.num_deleted_rows,
            base_id=message.base_id if message.HasField("base_id") else None,
        )

    def to_proto(self) -> table_pb2.DeletionFile:
        """The message."""
        return table_pb2.DeletionFile(
            file_type=int(self.file_type),
            read_version=self.read_version,
            id=self.id,
            num_deleted_rows=self.num_deleted_rows,
            base_id=self.base_id,
        )


WINDOW_ROWS = 1 << 17
"""Number of rows processed at a time."""


@dataclass(frozen=True, slots=True)
class OffsetSet:
    """An immutable set of offsets within one fragment.

    ``bitmap``: the offsets.
    """

    bitmap: BitMap

    @classmethod
    def of(cls, offsets: NDArray[np.integer]) -> OffsetSet:
        """The set of ascending ``offsets``."""
        builder = OffsetSetBuilder()
        builder.add(offsets)
        return builder.done()

    @classmethod
    def between(cls, start: int, end: int) -> OffsetSet:
        """The offsets of [start, end)."""
        return cls(BitMap(range(start, end)))

    @classmethod
    def live(cls, physical_rows: int, deleted: DeletionVector | None) -> OffsetSet:
        """Return all rows of a fragment except the deleted ones."""
        every = BitMap(range(physical_rows))
        return cls(every if deleted is None else every - deleted.bitmap)

    @classmethod
    def from_vector(cls, vector: DeletionVector) -> OffsetSet:
        """The deleted rows of a fragment."""
        bitmap = BitMap(vector.bitmap)
        bitmap.run_optimize()
        return cls(bitmap)

    def __len__(self) -> int:
        return len(self.bitmap)

    def to_array(self) -> NDArray[np.uint32]:
        """The offsets, ascending."""
        return np.frombuffer(self.bitmap.to_array(), dtype=np.uint32)

    def windows(self) -> Iterator[NDArray[np.uint32]]:
        """Yield the offsets, ascending, a bounded number at a time."""
        for first in range(0, len(self.bitmap), WINDOW_ROWS):
            yield self.part(first, first + WINDOW_ROWS).to_array()

    def stretches(self, rows: int) -> Iterator[OffsetSet]:
        """Yield the offsets in ascending sets, each within ``rows`` consecutive rows."""
        if not self.bitmap:
            return
        first, last = self.bitmap.min(), self.bitmap.max()
        if last - first < rows:
            yield self
            return
        for start in range(first, last + 1, rows):
            part = self.bitmap & BitMap(range(start, min(start + rows, last + 1)))
            if part:
                yield OffsetSet(part)

    def part(self, first: int, last: int) -> OffsetSet:
        """Return the offsets from position ``first`` to ``last`` (exclusive), counted from zero."""
        count = len(self.bitmap)
        if first <= 0 and last >= count:
            return self
        if first >= min(last, count):
            return NO_OFFSETS
        start, end = self.bitmap[first], self.bitmap[min(last, count) - 1] + 1
        return OffsetSet(self.bitmap & BitMap(range(start, end)))

    @classmethod
    def union(cls, sets: Iterable[OffsetSet]) -> OffsetSet:
        """The offsets of all ``sets``, at least one."""
        bitmap = BitMap.union(*(one.bitmap for one in sets))
        bitmap.run_optimize()
        return cls(bitmap)

    def both(self, other: OffsetSet) -> OffsetSet:
        """Return the intersection."""
        return OffsetSet(self.bitmap & other.bitmap)

    def without(self, other: OffsetSet) -> OffsetSet:
        """Return the difference."""
        return OffsetSet(self.bitmap - other.bitmap)

    def contains_each(self, offsets: NDArray[np.uint32]) -> NDArray[np.bool_]:
        """Return which of ``offsets``, in any order, are in the set; same shape."""
        return _contains_each(self.bitmap, offsets)

    def complement(self, physical_rows: int) -> DeletionVector | None:
        """Return the other rows of the fragment as a deletion vector; None for none."""
        others = BitMap(range(physical_rows)) - self.bitmap
        return DeletionVector(FrozenBitMap(others)) if others else None


class OffsetSetBuilder:
    """Builder of a set of offsets."""

    def __init__(self) -> None:
        self._bitmap = BitMap()

    def add(self, offsets: NDArray[np.integer]) -> None:
        """Ascending offsets."""
        if not len(offsets):
            return
        first, last = int(offsets[0]), int(offsets[-1])
        if last - first + 1 == len(offsets):
            self._bitmap.add_range(first, last + 1)
        else:
            self._bitmap |= DeletionVector.of(offsets).bitmap

    def done(self) -> OffsetSet:
        """Return the set of all added offsets."""
        self._bitmap.run_optimize()
        return OffsetSet(self._bitmap)


NO_OFFSETS = OffsetSet(BitMap())

"""RowIdIndex: map stable row ids to row addresses, for one version of a table.

Built in memory and never stored.  Its size depends on the encoded sequences, not on the rows:
ranges stay two numbers, holes stay a list of the missing ids, bitmaps stay bits; only ids that are
stored one by one take one entry each.

Ids of different fragments interleave after updates and compactions, and a deleted row keeps its id
while the same id exists elsewhere.  So spans are distributed to layers: within a layer they are
disjoint and sorted, so that a lookup is one binary search per layer for all ids at once.

Source: docs/format/table-format.md, section 6.3.  No I/O.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.physical_rows import check_deleted_offsets
from pyspark_lance.format.row_address import MAX_FRAGMENT_ID, OFFSET_BITS, fragment_ids, offsets
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.format.u64_segment import (
    MAX_U64,
    RangeSegment,
    RangeWithBitmapSegment,
    RangeWithHolesSegment,
)

_U64Array = NDArray[np.uint64]
_BoolArray = NDArray[np.bool_]

# Ids checked together by check_unique; bounds its memory.
_CHECK_CHUNK = 1 << 20
_WORD_BITS = 64


class RowIdIndex:
    """Index from row ids to the addresses of the live rows of a version."""

    def __init__(
        self, spans: _Spans, layers: tuple[_Layer, ...], deletions: dict[int, DeletionVector]
    ) -> None:
        """Internal; use ``build``."""
        self._spans = spans
        self._layers = layers
        self._deletions = deletions
        self._fragments_with_deletions = np.array(sorted(deletions), dtype=np.uint32)

    @classmethod
    def build(
        cls, fragments: Iterable[tuple[int, RowIdSequence, DeletionVector | None]]
    ) -> RowIdIndex:
        """Index fragments given as (fragment id, row ids, deleted offsets).

        Time and size depend on the number of segments and of ids stored one by one.  The lengths
        of the sequences must have been checked (``RowIdSequence.expect_length``).  Other
        duplicates than those below are detected by ``addresses_of`` on lookup, and by
        ``check_unique``.

        Raises:
            CorruptFileError: A deleted offset is outside its fragment, or an id that is stored one
            by
                one belongs to two live rows.
        """
        collected = _Collector()
        for fragment_id, sequence, deleted in fragments:
            collected.add(fragment_id, sequence, deleted)
        spans = _Spans(*collected.range_bounds(), *collected.bitmap_bounds())
        layers: list[_Layer] = []
        layers += _range_layers(spans.range_starts, spans.range_ends, collected)
        layers += _bitmap_layers(spans.bitmap_starts, spans.bitmap_ends, collected)
        points = _point_layer(collected.point_ids, collected.point_addresses)
        if points is not None:
            layers.append(points)
        return cls(spans, tuple(layers), collected.deletions)

    @classmethod
    def of_rows(cls, row_ids: Sequence[_U64Array], addresses: Sequence[_U64Array]) -> RowIdIndex:
        """Index rows one by one, which costs as much as there are rows; arrays of equal lengths.

        Raises:
            CorruptFileError: An id belongs to two rows.
        """
        points = _point_layer(row_ids, addresses)
        return cls(_NO_SPANS, () if points is None else (points,), {})

    def addresses_of(self, row_ids: ArrayLike) -> tuple[_U64Array, _BoolArray]:
        """Return the addresses of the live rows with these ids.

        ``row_ids``: any order, duplicates allowed, shape (n,). Returns (addresses, found), both of
        shape (n,).  An address is undefined where found is False.
        """
        wanted = np.asarray(row_ids, dtype=np.uint64)
        if len(wanted) > 1 and not (wanted[1:] > wanted[:-1]).all():
            distinct, position = np.unique(wanted, return_inverse=True)
            addresses, found = self._addresses_of_rising(distinct)
            return addresses[position], found[position]
        return self._addresses_of_rising(wanted)

    def check_unique(self) -> None:
        """Raise if a row id belongs to several live rows; checks ids that two segments share."""
        for layer in self._layers:
            if isinstance(layer, _PointLayer):
                for start in range(0, len(layer.row_ids), _CHECK_CHUNK):
                    self.addresses_of(layer.row_ids[start : start + _CHECK_CHUNK])
        for start, end in self._spans.overlaps():
            for low in range(start, end, _CHECK_CHUNK):
                count = min(_CHECK_CHUNK, end - low)
                self.addresses_of(np.arange(count, dtype=np.uint64) + np.uint64(low))

    def _addresses_of_rising(self, row_ids: _U64Array) -> tuple[_U64Array, _BoolArray]:
        addresses = np.full(len(row_ids), MAX_U64, dtype=np.uint64)
        found = np.zeros(len(row_ids), dtype=np.bool_)
        for layer in self._layers:
            low = np.searchsorted(row_ids, layer.first, side="left")
            high = np.searchsorted(row_ids, layer.last, side="right")
            if low == high:
                continue
            candidates, present = layer.find(row_ids[low:high])
            hits = np.flatnonzero(present)
            hits = hits[self._live(candidates[hits])]
            indices = hits + low
            again = np.flatnonzero(found[indices])
            if len(again):
                index, hit = indices[again[0]], hits[again[0]]
                raise _duplicate_error(row_ids[index], addresses[index], candidates[hit])
            addresses[indices] = candidates[hits]
            found[indices] = True
        return addresses, found

    def _live(self, addresses: _U64Array) -> _BoolArray:
        """Return which of ``addresses`` are not deleted."""
        live = np.ones(len(addresses), dtype=np.bool_)
        if not self._deletions or not len(addresses):
            return live
        owners = fragment_ids(addresses)
        with_deletions = np.flatnonzero(np.isin(owners, self._fragments_with_deletions))
        if not len(with_deletions):
            return live
        with_deletions = with_deletions[np.argsort(owners[with_deletions], kind="stable")]
        hit, firsts = np.unique(owners[with_deletions], return_index=True)
        for owner, chosen in zip(hit.tolist(), np.split(with_deletions, firsts[1:]), strict=True):
            live[chosen] = ~self._deletions[owner].contains_each(offsets(addresses[chosen]))
        return live


class _Collector:
    """Collector of segments by the kind of their lookup."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int, int]] = []  # start, end, first address
        self.holes: dict[int, _U64Array] = {}  # index into ranges -> holes
        self.bitmaps: list[tuple[RangeWithBitmapSegment, int]] = []  # segment, first address
        self.point_ids: list[_U64Array] = []
        self.point_addresses: list[_U64Array] = []
        self.deletions: dict[int, DeletionVector] = {}

    def add(
        self, fragment_id: int, sequence: RowIdSequence, deleted: DeletionVector | None
    ) -> None:
        if not 0 <= fragment_id <= MAX_FRAGMENT_ID:
            raise CorruptFileError(f"fragment id {fragment_id} is not inside [0, 2**32)")
        if deleted is not None and not deleted.is_empty:
            check_deleted_offsets(deleted, len(sequence))
            self.deletions[fragment_id] = deleted
        else:
            deleted = None
        address = fragment_id << OFFSET_BITS
        for segment in sequence.segments:
            if not len(segment):
                continue
            if isinstance(segment, RangeSegment):
                self.ranges.append((segment.start, segment.end, address))
            elif isinstance(segment, RangeWithHolesSegment):
                self.holes[len(self.ranges)] = segment.holes.to_array()
                self.ranges.append((segment.start, segment.end, address))
            elif isinstance(segment, RangeWithBitmapSegment):
                self.bitmaps.append((segment, address))
            else:
                row_ids = segment.to_array()
                addresses = np.arange(len(row_ids), dtype=np.uint64) + np.uint64(address)
                if deleted is not None:
                    first = address & (1 << OFFSET_BITS) - 1
                    keep = deleted.keep_mask(first, first + len(row_ids))
                    row_ids, addresses = row_ids[keep], addresses[keep]
                self.point_ids.append(row_ids)
                self.point_addresses.append(addresses)
            address += len(segment)

    def range_bounds(self) -> tuple[_U64Array, _U64Array]:
        return (
            np.array([start for start, _, _ in self.ranges], dtype=np.uint64),
            np.array([end for _, end, _ in self.ranges], dtype=np.uint64),
        )

    def bitmap_bounds(self) -> tuple[_U64Array, _U64Array]:
        return (
            np.array([segment.start for segment, _ in self.bitmaps], dtype=np.uint64),
            np.array([segment.end for segment, _ in self.bitmaps], dtype=np.uint64),
        )


@dataclass(frozen=True, slots=True, eq=False)
class _Spans:
    """Bounds of all spans that are not stored id by id; ends are exclusive."""

    range_starts: _U64Array
    range_ends: _U64Array
    bitmap_starts: _U64Array
    bitmap_ends: _U64Array

    def overlaps(self) -> Iterator[tuple[int, int]]:
        """Yield intervals [start, end) that more than one span covers."""
        starts = np.sort(np.concatenate((self.range_starts, self.bitmap_starts)))
        ends = np.sort(np.concatenate((self.range_ends, self.bitmap_ends)))
        edges = np.unique(np.concatenate((starts, ends)))
        depth = np.searchsorted(starts, edges, side="right") - np.searchsorted(
            ends, edges, side="right"
        )
        shared = np.flatnonzero(depth > 1)
        # The last edge is an end, where the depth is zero, so edges[shared + 1] exists.
        yield from zip(edges[shared].tolist(), edges[shared + 1].tolist(), strict=True)


_NO_SPANS = _Spans(*np.empty((4, 0), dtype=np.uint64))


class _Layer(Protocol):
    """Ids without duplicates, looked up by binary search.

    ``find`` takes ascending ids inside [first, last] and returns an address for each, and which of
    them are defined.
    """

    @property
    def first(self) -> np.uint64: ...
    @property
    def last(self) -> np.uint64: ...
    def find(self, row_ids: _U64Array) -> tuple[_U64Array, _BoolArray]: ...


@dataclass(frozen=True, slots=True, eq=False)
class _RangeLayer:
    """Disjoint ranges in ascending order, with the ids missing from them."""

    starts: _U64Array  # First id of each range.
    ends: _U64Array  # One past the last id of each range.
    first_addresses: _U64Array  # Address of the first id of each range.
    # Missing ids of all ranges, ascending, then a sentinel greater than any id.
    holes: _U64Array
    holes_before: _U64Array  # Number of holes in the preceding ranges.

    @property
    def first(self) -> np.uint64:
        return np.uint64(self.starts[0])

    @property
    def last(self) -> np.uint64:
        return np.uint64(self.ends[-1]) - np.uint64(1)

    def find(self, row_ids: _U64Array) -> tuple[_U64Array, _BoolArray]:
        span = np.searchsorted(self.starts, row_ids, side="right") - 1
        present = row_ids < self.ends[span]
        addresses = self.first_addresses[span] + (row_ids - self.starts[span])
        if len(self.holes) > 1:
            hole = np.searchsorted(self.holes, row_ids, side="left")
            present &= self.holes[hole] != row_ids
            addresses -= hole.astype(np.uint64) - self.holes_before[span]
        return addresses, present


@dataclass(frozen=True, slots=True, eq=False)
class _BitmapLayer:
    """Disjoint bitmaps in ascending order."""

    starts: _U64Array  # Id of the first bit of each bitmap.
    ends: _U64Array  # One past the id of the last bit of each bitmap.
    first_addresses: _U64Array  # Address of the first id that is present, per bitmap.
    first_words: NDArray[np.int64]  # Start of each bitmap in ``words``.
    words: _U64Array  # The bits, least significant first; each bitmap padded to whole words.
    # Bits set in the words before, within the same bitmap; dtype uint32.
    bits_before: NDArray[np.uint32]

    @property
    def first(self) -> np.uint64:
        return np.uint64(self.starts[0])

    @property
    def last(self) -> np.uint64:
        return np.uint64(self.ends[-1]) - np.uint64(1)

    def find(self, row_ids: _U64Array) -> tuple[_U64Array, _BoolArray]:
        span = np.searchsorted(self.starts, row_ids, side="right") - 1
        inside = row_ids < self.ends[span]
        bit = np.where(inside, row_ids - self.starts[span], np.uint64(0))
        word = self.first_words[span] + (bit // np.uint64(_WORD_BITS)).astype(np.int64)
        mask = np.uint64(1) << (bit % np.uint64(_WORD_BITS))
        bits = self.words[word]
        rank = self.bits_before[word] + _bit_count(bits & (mask - np.uint64(1)))
        return self.first_addresses[span] + rank, inside & ((bits & mask) != 0)


@dataclass(frozen=True, slots=True, eq=False)
class _PointLayer:
    """Ids one by one, strictly ascending, with their addresses; live rows only."""

    row_ids: _U64Array
    addresses: _U64Array

    @property
    def first(self) -> np.uint64:
        return np.uint64(self.row_ids[0])

    @property
    def last(self) -> np.uint64:
        return np.uint64(self.row_ids[-1])

    def find(self, row_ids: _U64Array) -> tuple[_U64Array, _BoolArray]:
        index = np.searchsorted(self.row_ids, row_ids, side="left")
        return self.addresses[index], self.row_ids[index] == row_ids


def _disjoint_groups(starts: _U64Array, ends: _U64Array) -> list[NDArray[np.intp]]:
    """Return as few groups of span numbers as possible, each ascending and without overlaps."""
    order = np.argsort(starts, kind="stable")
    if (starts[order][1:] >= ends[order][:-1]).all():
        return [order] if len(order) else []
    group_of = np.empty(len(order), dtype=np.intp)
    free_from: list[tuple[int, int]] = []  # (end of the last span, group), soonest free first
    ordered = zip(starts[order].tolist(), ends[order].tolist(), strict=True)
    for rank, (start, end) in enumerate(ordered):
        if free_from and free_from[0][0] <= start:
            group = free_from[0][1]
            heapq.heapreplace(free_from, (end, group))
        else:
            group = len(free_from)
            heapq.heappush(free_from, (end, group))
        group_of[rank] = group
    by_group = np.argsort(group_of, kind="stable")
    cuts = np.flatnonzero(np.diff(group_of[by_group])) + 1
    return [order[ranks] for ranks in np.split(by_group, cuts)]


def _range_layers(starts: _U64Array, ends: _U64Array, collected: _Collector) -> Iterator[_Layer]:
    addresses = np.array([address for _, _, address in collected.ranges], dtype=np.uint64)
    hole_counts = np.zeros(len(starts), dtype=np.uint64)
    for number, holes in collected.holes.items():
        hole_counts[number] = len(holes)
    sentinel = np.array([MAX_U64], dtype=np.uint64)
    for group in _disjoint_groups(starts, ends):
        with_holes = group[hole_counts[group] > 0].tolist()
        counts = hole_counts[group]
        yield _RangeLayer(
            starts=starts[group],
            ends=ends[group],
            first_addresses=addresses[group],
            holes=np.concatenate([*[collected.holes[number] for number in with_holes], sentinel]),
            holes_before=np.cumsum(counts) - counts,
        )


def _bitmap_layers(starts: _U64Array, ends: _U64Array, collected: _Collector) -> Iterator[_Layer]:
    addresses = np.array([address for _, address in collected.bitmaps], dtype=np.uint64)
    for group in _disjoint_groups(starts, ends):
        padded = []
        for number in group.tolist():
            bitmap = collected.bitmaps[number][0].bitmap
            padded.append(bitmap + bytes(-len(bitmap) % 8))
        lengths = np.array([len(bitmap) // 8 for bitmap in padded], dtype=np.int64)
        words = np.frombuffer(b"".join(padded), dtype="<u8").astype(np.uint64, copy=False)
        first_words = np.cumsum(lengths) - lengths
        counts = _bit_count(words)
        before = np.cumsum(counts, dtype=np.uint64) - counts
        before -= np.repeat(before[first_words], lengths)
        yield _BitmapLayer(
            starts=starts[group],
            ends=ends[group],
            first_addresses=addresses[group],
            first_words=first_words,
            words=words,
            bits_before=before.astype(np.uint32),
        )


def _point_layer(
    point_ids: Sequence[_U64Array], point_addresses: Sequence[_U64Array]
) -> _PointLayer | None:
    if not sum([len(row_ids) for row_ids in point_ids]):
        return None
    row_ids = np.concatenate(point_ids)
    addresses = np.concatenate(point_addresses)
    order = np.argsort(row_ids, kind="stable")
    row_ids, addresses = row_ids[order], addresses[order]
    equal = np.flatnonzero(row_ids[1:] == row_ids[:-1])
    if len(equal):
        index = equal[0]
        raise _duplicate_error(row_ids[index], addresses[index], addresses[index + 1])
    return _PointLayer(row_ids, addresses)


def _bit_count(words: _U64Array) -> _U64Array:
    """Count the bits of each word: sums of 2, 4 and 8 adjacent bits, then of all bytes."""
    pairs = words - ((words >> np.uint64(1)) & np.uint64(0x5555_5555_5555_5555))
    nibbles = np.uint64(0x3333_3333_3333_3333)
    nibble_counts = (pairs & nibbles) + ((pairs >> np.uint64(2)) & nibbles)
    byte_counts = (nibble_counts + (nibble_counts >> np.uint64(4))) & np.uint64(
        0x0F0F_0F0F_0F0F_0F0F
    )
    counts: _U64Array = (byte_counts * np.uint64(0x0101_0101_0101_0101)) >> np.uint64(56)
    return counts


def _duplicate_error(row_id: np.uint64, first: np.uint64, second: np.uint64) -> CorruptFileError:
    indices = [
        f"fragment {int(address) >> OFFSET_BITS} offset {int(address) & (1 << OFFSET_BITS) - 1}"
        for address in sorted((first, second))
    ]
    return CorruptFileError(
        f"row id {int(row_id)} belongs to two live rows: {' and '.join(indices)}"
    )

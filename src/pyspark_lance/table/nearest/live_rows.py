"""Live rows of an index segment: their addresses, and the rows that match a filter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.row_selection import expand_ranges
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import fragment_ids, offsets
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.recently_used import RecentlyUsed
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.nearest.ivf_file import ROWS_FILE, IvfKind, IvfSegment
from pyspark_lance.table.nearest.rabit import RabitRows, rows_of
from pyspark_lance.table.nearest.vectors import is_usual, level_squares, matrix_of, row_squares
from pyspark_lance.table.rows.fragment_reader import row_ids_of
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.deletion_vectors import confirm_row_count, load_deletion_vector
from pyspark_lance.table.version.table_files import TableFiles

_KEPT_BYTES: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class MatchingScan:
    """A scan for the addresses of the rows of a version that match a condition."""

    scan: ScanTask
    # Of all scans for these rows, and of no others; '' for a scan that is not repeated.
    token: str


class LiveRows:
    """Live rows of the fragments of a segment that match a condition.

    ``fragments``: with their row ids if these are stable; ``stable_row_ids``: whether the table has
    stable row ids. ``matching``: a scan of these fragments for the addresses of the rows that
    count; None for all.
    """

    def __init__(
        self,
        files: TableFiles,
        fragments: tuple[Fragment, ...],
        *,
        stable_row_ids: bool,
        matching: MatchingScan | None = None,
    ) -> None:
        of_kind = _StableRows if stable_row_ids else _RowsByAddress
        self._live = of_kind(files, fragments)
        self._matching = None if matching is None else _matching_rows(matching, fragments)

    @property
    def has_condition(self) -> bool:
        """Whether only rows that match a condition count."""
        return self._matching is not None

    def addresses_of(
        self, row_ids: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """The addresses of rows as an index names them, and which of them count."""
        addresses, is_live = self._live.addresses_of(row_ids)
        if self._matching is not None:
            is_live = is_live & self._matching.contains(addresses)
        return addresses, is_live


class _StableRows:
    """Current addresses of rows by stable ids, in the fragments of the segment."""

    def __init__(self, files: TableFiles, fragments: tuple[Fragment, ...]) -> None:
        self._index = RowIdIndex.build(
            (
                fragment.id,
                row_ids_of(files, fragment),
                load_deletion_vector(files, fragment, stable_row_ids=True),
            )
            for fragment in fragments
        )

    def addresses_of(
        self, row_ids: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        return self._index.addresses_of(row_ids)


class _RowsByAddress:
    """Membership of addresses among the live rows in the fragments of the segment."""

    def __init__(self, files: TableFiles, fragments: tuple[Fragment, ...]) -> None:
        self._files = files
        ordered = sorted(fragments, key=lambda one: one.id)
        self._ids = np.array([one.id for one in ordered], np.uint64)
        self._num_rows = np.array([one.physical_rows for one in ordered], np.uint64)
        self._with_deletions = [one for one in ordered if one.deletion_file is not None]
        self._deleted: dict[int, DeletionVector | None] = {}

    def addresses_of(
        self, addresses: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        if not len(self._ids):
            return addresses, np.zeros(len(addresses), np.bool_)
        owners, indices = fragment_ids(addresses), offsets(addresses)
        found = np.minimum(np.searchsorted(self._ids, owners), len(self._ids) - 1)
        is_live = (self._ids[found] == owners) & (indices < self._num_rows[found])
        for fragment in self._with_deletions:
            own = np.flatnonzero((owners == fragment.id) & is_live)
            deleted = self._vector(fragment) if len(own) else None
            if deleted is not None:
                is_live[own] = ~deleted.contains_each(indices[own])
        return addresses, is_live

    def _vector(self, fragment: Fragment) -> DeletionVector | None:
        if fragment.id not in self._deleted:
            self._deleted[fragment.id] = load_deletion_vector(
                self._files, fragment, stable_row_ids=False
            )
        return self._deleted[fragment.id]


class _Matching:
    """The rows that a condition is true of, a bit for each row of the fragments."""

    def __init__(self, scan: ScanTask, fragments: tuple[Fragment, ...]) -> None:
        for one in fragments:
            confirm_row_count(scan.files, one)
        self._bits = {one.id: np.zeros(-(-one.physical_rows // 8), np.uint8) for one in fragments}
        for batch in scan.run():
            addresses = plain_numbers(batch.column(batch.schema.names.index(ROW_ADDRESS)))
            owners, indices = fragment_ids(addresses), offsets(addresses)
            for number in np.unique(owners).tolist():
                own = indices[owners == number]
                np.bitwise_or.at(self._bits[number], own >> 3, _bit(own))

    @property
    def nbytes(self) -> int:
        """About how much memory this takes."""
        return sum(bits.nbytes + _ENTRY_BYTES for bits in self._bits.values())

    def contains(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of these addresses match."""
        owners, indices = fragment_ids(addresses), offsets(addresses)
        found = np.zeros(len(addresses), np.bool_)
        for number in np.unique(owners).tolist():
            bits = self._bits.get(number)
            if bits is not None:
                own = (owners == number) & (indices >> 3 < len(bits))
                found[own] = (bits[indices[own] >> 3] & _bit(indices[own])) > 0
        return found


_ENTRY_BYTES: Final = 256
_kept: Final[RecentlyUsed[_Matching]] = RecentlyUsed(_KEPT_BYTES, lambda found: found.nbytes)


def _matching_rows(matching: MatchingScan, fragments: tuple[Fragment, ...]) -> _Matching:
    """The rows of some fragments that match; the searches of a version share them."""
    if not matching.token:
        return _Matching(matching.scan, fragments)
    key = matching.token, tuple(fragment.id for fragment in fragments)
    found = _kept.get(key)
    if found is None:
        found = _Matching(matching.scan, fragments)
        _kept.put(key, found)
    return found


def _bit(indices: NDArray[np.integer[Any]]) -> NDArray[np.uint8]:
    return np.left_shift(np.uint8(1), (indices & 7).astype(np.uint8))


_ROW_ID: Final = "_rowid"
_NO_CODES: Final = np.empty((0, 0), np.uint8)


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Live rows of a partition."""

    row_ids: NDArray[np.uint64]  # Shape (n,).
    addresses: NDArray[np.uint64]  # Shape (n,).
    stored: NDArray[Any]  # Vectors or codes, shape (n, width), row-major; empty for IVF_RQ.
    rabit: RabitRows | None = None  # IVF_RQ only.


@dataclass(frozen=True, slots=True)
class Partition:
    """All rows of a partition, also deleted ones, as in ``PartitionRows``."""

    row_ids: NDArray[np.uint64]
    stored: NDArray[Any]
    rabit: RabitRows | None = None
    # Squared lengths of vectors, or of levels, shape (n,). None of other codes, and if products
    # with one of the vectors have no bounded error.
    squares: NDArray[np.floating[Any]] | None = None

    @property
    def nbytes(self) -> int:
        """About how much memory they take."""
        codes = 0 if self.rabit is None else self.rabit.nbytes
        squares = 0 if self.squares is None else self.squares.nbytes
        return int(self.row_ids.nbytes + self.stored.nbytes + codes + squares) + _ENTRY_BYTES


# Partitions of vector indices that were searched last, of all searches of the process.
_KEPT_PARTITION_BYTES: Final = 128 << 20
# Numbers of the vectors of partitions that are read together, unless one has more.
_NUMBERS_AT_ONCE: Final = 1 << 23
_kept_partitions: Final[RecentlyUsed[Partition]] = RecentlyUsed(
    _KEPT_PARTITION_BYTES, lambda found: found.nbytes
)


class SegmentRows:
    """Reader of the partitions of a segment.

    ``fragments``: covered ones, with their row ids if these are stable; ``stable_row_ids``: whether
    the table has stable row ids. ``matching``: a scan of these fragments for the addresses of
    matching rows; None for all. ``is_cached``: whether partitions are kept for later searches.
    """

    def __init__(
        self,
        files: TableFiles,
        segment: IvfSegment,
        fragments: tuple[Fragment, ...],
        *,
        stable_row_ids: bool,
        matching: MatchingScan | None = None,
        is_cached: bool = True,
    ) -> None:
        self._files, self._segment, self._is_cached = files, segment, is_cached
        self._live = LiveRows(files, fragments, stable_row_ids=stable_row_ids, matching=matching)

    @cached_property
    def _file(self) -> IndexFile:
        return IndexFile.open(self._files, self._segment.entry, ROWS_FILE)

    def live_rows(self, partition: Partition) -> PartitionRows:
        """Select the live rows of a partition, possibly none."""
        addresses, is_live = self._live.addresses_of(partition.row_ids)
        stored, rabit = partition.stored, partition.rabit
        if is_live.all():
            return PartitionRows(partition.row_ids, addresses, stored, rabit)
        kept = partition.row_ids[is_live], addresses[is_live]
        if rabit is not None:
            return PartitionRows(*kept, _NO_CODES, rabit.at(is_live))
        # The codes of a number are contiguous, or those of a row, as they are stored.
        is_by_row = stored.flags.c_contiguous
        return PartitionRows(*kept, stored[is_live] if is_by_row else stored.T[:, is_live].T)

    def addresses_of(
        self, row_ids: NDArray[np.uint64]
    ) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
        """Return the addresses of rows of partitions, and which of them count."""
        return self._live.addresses_of(row_ids)

    def partitions(self, numbers: Sequence[int]) -> Iterator[Partition]:
        """Yield all rows of partitions, also deleted ones and those that do not match.

        Several partitions that are not in memory are read together. ``numbers``: ascending.
        """
        lengths, width = self._segment.lengths, self._segment.centroids.shape[1]
        sizes = np.cumsum(lengths[np.asarray(numbers, np.intp)] * width)
        steps = np.flatnonzero(np.diff(sizes // _NUMBERS_AT_ONCE)) + 1
        for some in np.split(np.asarray(numbers, np.intp), steps):
            yield from self._partitions(some.tolist())

    def _partitions(self, numbers: list[int]) -> list[Partition]:
        uuid = self._segment.entry.uuid
        cached = {
            number: _kept_partitions.get((uuid, number)) if self._is_cached else None
            for number in numbers
        }
        missing = [number for number, found in cached.items() if found is None]
        read = dict(zip(missing, self._read_partitions(missing), strict=True))
        if self._is_cached:
            for number, found in read.items():
                _kept_partitions.put((uuid, number), found)
        return [cached[number] or read[number] for number in numbers]

    def _read_partitions(self, numbers: list[int]) -> list[Partition]:
        if not numbers:
            return []
        starts, lengths = self._segment.starts[numbers], self._segment.lengths[numbers]
        reader = self._file.reader
        kinds = (_ROW_ID, *self._segment.columns)
        fields = [field for field in reader.schema.fields if field.name in kinds]
        columns = reader.embedded_columns()
        if len(numbers) == 1:
            start, length = int(starts[0]), int(lengths[0])
            return [self._decode(reader.read(fields, columns, start, start + length))]
        batch = reader.take(fields, columns, expand_ranges(starts, lengths))
        firsts = np.cumsum(lengths) - lengths
        return [
            self._decode(batch.slice(first, length), is_shared=True)
            for first, length in zip(firsts.tolist(), lengths.tolist(), strict=True)
        ]

    def _decode(self, batch: pa.RecordBatch, *, is_shared: bool = False) -> Partition:
        """Decode the rows of a partition; those of a shared batch are copied.

        A partition must not keep the memory of others after these were evicted.
        """
        names = batch.schema.names
        row_ids = plain_numbers(batch.column(names.index(_ROW_ID)))
        if is_shared:
            row_ids = row_ids.copy()
        if self._segment.rabit is not None:
            return Partition(row_ids, _NO_CODES, rows_of(self._segment.rabit, batch))
        stored = self._values(batch.column(names.index(str(self._segment.kind))))
        if is_shared:
            stored = stored.copy(order="K")
        return Partition(row_ids, stored, squares=self._squares(stored))

    def _squares(self, stored: NDArray[Any]) -> NDArray[np.floating[Any]] | None:
        if self._segment.kind is IvfKind.SQ:
            return level_squares(stored)
        if self._segment.kind is not IvfKind.FLAT:
            return None
        work = np.float64 if stored.dtype == np.float64 else np.float32
        with np.errstate(over="ignore", invalid="ignore"):
            squares = row_squares(stored, work)
        return squares if is_usual(squares, self._segment.metric, work).all() else None

    def _values(self, stored: pa.Array) -> NDArray[Any]:
        if self._segment.kind is IvfKind.FLAT:
            vectors, _ = matrix_of(stored)
            return vectors
        width = stored.type.list_size
        items = stored.values.slice(stored.offset * width, len(stored) * width)
        codes = plain_numbers(items).reshape(-1, width)
        if self._segment.kind is IvfKind.PQ and self._segment.transposed:
            return codes.reshape(width, -1).T
        return codes

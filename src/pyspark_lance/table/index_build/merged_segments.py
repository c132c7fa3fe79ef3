"""Merge index segments: rows of existing segments in order, in bounded memory.

Pages of a B-tree, and sets of rows of a bitmap index, are read and merged some at a time; the
column is not read.  Deleted rows, and those of fragments that a segment no longer
covers, are left out.  Rows that a compaction moved get their new addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_address import OFFSET_BITS, numbers_of, parse_tree_map
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.index.bitmap import (
    BITMAP_FILE,
    LABEL_NULLS_KEY,
    BitmapIndex,
    LabelIndex,
    read_row_sets,
)
from pyspark_lance.table.index.btree import BTree, is_in_order, sort_order
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.index.segments import BITMAP, LABEL_LIST, kind_of
from pyspark_lance.table.rows.fragment_reader import row_ids_of
from pyspark_lance.table.sort import MAX_ROWS, MAX_SORT_BYTES, ExternalSorter, merge_streams
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table_files import TableFiles

VALUES: Final = "values"
IDS: Final = "ids"


class RowSorter(ExternalSorter):
    """Sorter of rows of two columns, ``values`` and ``ids``: nulls first."""

    def __init__(
        self, data_type: pa.DataType, most_rows: int = MAX_ROWS, most_bytes: int = MAX_SORT_BYTES
    ) -> None:
        super().__init__(_sort_indices, most_rows, most_bytes)
        self._schema = pa.schema([pa.field(VALUES, data_type), pa.field(IDS, pa.uint64())])

    def add(self, values: pa.Array, ids: NDArray[np.uint64]) -> None:
        """Add rows, in any order."""
        columns = [values, plain_array(ids)]
        self.add_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))


def merge_by_value(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted streams, sorted; a batch of each is in memory at a time."""
    return merge_streams(streams, _sort_indices)


def _sort_indices(rows: pa.RecordBatch) -> NDArray[np.int64]:
    return sort_order(rows.column(VALUES), stable=True)


_BATCH_ROWS: Final = 64 << 10
# Of the values of all segments that are merged together.
_MERGED_BYTES: Final = 64 << 20
_SHIFT: Final = np.uint64(OFFSET_BITS)
_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)


@dataclass(frozen=True, slots=True)
class MovedRows:
    """Fragments whose live rows a compaction moved, in order, and the new ones; picklable."""

    old: tuple[Fragment, ...]
    new: tuple[Fragment, ...]


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment whose rows come into another one; picklable.

    ``entry``: of the manifest; ``fragments``: those of which its rows are taken, with their row ids
    if it names rows by these; ``moved``: rows that it has under their old addresses.
    """

    entry: IndexMetadata
    fragments: tuple[Fragment, ...]
    names_row_ids: bool = False
    moved: tuple[MovedRows, ...] = ()


def sorted_rows_of(
    files: TableFiles,
    segment: StoredSegment,
    field: Field,
    *,
    num_segments: int,
    stable_row_ids: bool,
) -> Iterator[pa.RecordBatch]:
    """The live rows of a segment, by ascending values: columns ``values`` and ``ids``.

    ``field``: The column. ``num_segments``: That are read together, and share the memory.
    ``stable_row_ids``: Whether the table has them.
    """
    current = CurrentRows(files, segment, stable_row_ids)
    has_sets = kind_of(segment.entry) in (BITMAP, LABEL_LIST)
    rows_of = _rows_of_sets if has_sets else _rows_of_pages
    for values, addresses in rows_of(files, segment.entry, field, num_segments):
        kept, addresses = current.of(addresses)
        if len(kept):
            arrays = [values.take(plain_array(kept)), plain_array(addresses)]
            yield pa.RecordBatch.from_arrays(arrays, names=[VALUES, IDS])


def null_lists_of(
    files: TableFiles, segment: StoredSegment, *, stable_row_ids: bool
) -> NDArray[np.uint64]:
    """Return the rows whose list is null, of a segment of a label list index.

    ``stable_row_ids``: Whether the table has them.
    """
    file = IndexFile.open(files, segment.entry, BITMAP_FILE)
    number = file.reader.schema.metadata.get(LABEL_NULLS_KEY)
    if number is None:
        return np.empty(0, np.uint64)
    stored = parse_tree_map(bytes(file.reader.global_buffer(int(number))), file.where)
    known = {high: rows for high, rows in stored.items() if rows is not None}
    return CurrentRows(files, segment, stable_row_ids).of(numbers_of(known))[1]


_Rows: TypeAlias = tuple[pa.Array, NDArray[np.uint64]]


def _rows_of_pages(
    files: TableFiles, entry: IndexMetadata, field: Field, num_segments: int
) -> Iterator[_Rows]:
    tree = BTree.open(files, entry, field)
    size = sum(entry.file_sizes.values()) // max(1, tree.num_rows)
    num_rows = min(_BATCH_ROWS, _MERGED_BYTES // max(16, size) // num_segments)
    step = max(1, num_rows // tree.page_rows)
    for first in range(0, tree.num_pages, step):
        values, ids = tree.read_pages(np.arange(first, min(first + step, tree.num_pages)))
        if not is_in_order(values):  # that pages follow each other was seen when they were opened
            raise CorruptFileError("rows of a B-tree out of order", tree.data.where)
        yield values, plain_numbers(ids)


def _rows_of_sets(
    files: TableFiles, entry: IndexMetadata, field: Field, num_segments: int
) -> Iterator[_Rows]:
    of_kind = LabelIndex if kind_of(entry) == LABEL_LIST else BitmapIndex
    file = of_kind.open(files, entry, field).file
    keys = file.read_all("keys").column(0)
    order = sort_order(keys)
    size = sum(entry.file_sizes.values()) // max(1, len(keys))
    step = max(1, _MERGED_BYTES // max(64, size) // num_segments)
    for first in range(0, len(keys), step):
        indices = order[first : first + step]
        sets = read_row_sets(file, indices, max_bytes=None)
        for index, rows in zip(indices.tolist(), sets or (), strict=True):
            for addresses in (numbers_of({high: rows[high]}) for high in sorted(rows)):
                for start in range(0, len(addresses), _BATCH_ROWS):
                    some = addresses[start : start + _BATCH_ROWS]
                    yield keys.take(plain_array(np.full(len(some), index))), some


class LiveRows:
    """Addresses of the live rows of some fragments."""

    def __init__(
        self, files: TableFiles, fragments: tuple[Fragment, ...], stable_row_ids: bool
    ) -> None:
        ordered = sorted(fragments, key=lambda fragment: fragment.id)
        self._ids = np.array([fragment.id for fragment in ordered], np.uint64)
        self._lengths = np.array([fragment.physical_rows for fragment in ordered], np.uint64)
        deleted = []
        for fragment in ordered:
            rows = load_deletion_vector(files, fragment, stable_row_ids=stable_row_ids)
            if rows is not None:
                deleted.append((np.uint64(fragment.id) << _SHIFT) | rows.to_array().astype("u8"))
        self._deleted = np.concatenate(deleted) if deleted else np.empty(0, np.uint64)

    def indices_of(
        self, addresses: NDArray[np.uint64]
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return which addresses are in the fragments, and the index of each by ascending ids."""
        if not len(self._ids):
            nothing = np.zeros(len(addresses), np.bool_)
            return nothing, nothing.astype(np.int64)
        numbers = addresses >> _SHIFT
        indices = np.minimum(np.searchsorted(self._ids, numbers), len(self._ids) - 1)
        return self._ids[indices] == numbers, indices

    def ranks_of(self, addresses: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return how many live rows of its fragment are before each of some live rows."""
        firsts = addresses >> _SHIFT << _SHIFT
        before, until = (np.searchsorted(self._deleted, ends) for ends in (firsts, addresses))
        return (addresses & _OFFSETS).astype(np.int64) - (until - before)

    def are_among(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Return which of some addresses are live; shape (n,)."""
        is_live, indices = self.indices_of(addresses)
        if not len(self._ids):
            return is_live
        if (is_live & (addresses & _OFFSETS >= self._lengths[indices])).any():
            raise CorruptFileError("an index names rows beyond the end of a fragment")
        if len(self._deleted):
            at = np.minimum(np.searchsorted(self._deleted, addresses), len(self._deleted) - 1)
            is_live &= self._deleted[at] != addresses
        return is_live


class CurrentRows:
    """Mapping of a segment's rows to their current row ids or addresses, without deleted ones.

    ``stable_row_ids``: Whether the table has them.
    """

    def __init__(self, files: TableFiles, segment: StoredSegment, stable_row_ids: bool) -> None:
        self._ids: RowIdIndex | None = None
        self._moves: _Moves | None = None
        if segment.names_row_ids:
            self._ids = RowIdIndex.build(
                (
                    fragment.id,
                    row_ids_of(files, fragment),
                    load_deletion_vector(files, fragment, stable_row_ids=True),
                )
                for fragment in segment.fragments
            )
            return
        if segment.moved:
            self._moves = _Moves(files, segment.moved, stable_row_ids)
        self._live = LiveRows(files, segment.fragments, stable_row_ids)

    def of(self, names: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the positions of the remaining rows, and their ids or addresses.

        ``names``: as the segment has them.
        """
        if self._ids is not None:
            _, is_live = self._ids.addresses_of(names)
            kept = np.flatnonzero(is_live)
            return kept, names[kept]
        kept = np.arange(len(names))
        if self._moves is not None:
            kept, names = self._moves.apply(names)
        is_live = self._live.are_among(names)
        return kept[is_live], names[is_live]


class _Moves:
    """Moves of rows by compactions: the n-th live row of all old fragments is the n-th new one."""

    def __init__(
        self, files: TableFiles, moved: tuple[MovedRows, ...], stable_row_ids: bool
    ) -> None:
        old = [fragment for one in moved for fragment in one.old]
        new = [fragment for one in moved for fragment in one.new]
        self._from = LiveRows(files, tuple(old), stable_row_ids)
        counts = np.array([fragment.num_rows for fragment in old], np.int64)
        order = np.argsort([fragment.id for fragment in old])
        self._firsts = (np.cumsum(counts) - counts)[order]
        self._new_ids = np.array([fragment.id for fragment in new], np.uint64)
        self._ends = np.cumsum([fragment.physical_rows for fragment in new], dtype=np.int64)
        if int(counts.sum()) != int(self._ends[-1] if len(new) else 0):
            raise CorruptFileError("compacted fragments have other rows than their sources")

    def apply(self, addresses: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.uint64]]:
        """Return the indices of rows that were not deleted, and their new addresses."""
        is_moved, indices = self._from.indices_of(addresses)
        is_live = self._from.are_among(addresses)
        own = np.flatnonzero(is_moved & is_live)
        found = addresses.copy()
        if len(own):
            rows = self._firsts[indices[own]] + self._from.ranks_of(addresses[own])
            which = np.searchsorted(self._ends, rows, "right")
            starts = np.concatenate([[0], self._ends[:-1]])
            offsets = (rows - starts[which]).astype(np.uint64)
            found[own] = self._new_ids[which] << _SHIFT | offsets
        kept = np.flatnonzero(is_live | ~is_moved)
        return kept, found[kept]

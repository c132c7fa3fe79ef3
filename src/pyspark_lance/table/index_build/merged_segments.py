"""Merge index segments: rows of existing segments in order, in bounded memory.

Pages of a B-tree, and sets of rows of a bitmap index, are read and merged some at a time; the
column is not looked at.  Rows that are gone, and those of fragments that a segment no longer
answers for, are left out.
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
from pyspark_lance.format.row_address import OFFSET_BITS, numbers_of
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.table.index.bitmap import BitmapIndex, read_row_sets
from pyspark_lance.table.index.btree import BTree
from pyspark_lance.table.index.segments import BITMAP, kind_of
from pyspark_lance.table.index.value_order import is_in_order, sort_order
from pyspark_lance.table.sort import external_sort
from pyspark_lance.table.sort.external_sort import MAX_BYTES, MAX_ROWS, ExternalSorter
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table_files import TableFiles

VALUES: Final = "values"
IDS: Final = "ids"


class RowSorter(ExternalSorter):
    """Sorts rows of two columns, ``values`` and ``ids``: nulls first."""

    def __init__(
        self, data_type: pa.DataType, most_rows: int = MAX_ROWS, most_bytes: int = MAX_BYTES
    ) -> None:
        super().__init__(_places, most_rows, most_bytes)
        self._schema = pa.schema([pa.field(VALUES, data_type), pa.field(IDS, pa.uint64())])

    def add(self, values: pa.Array, ids: NDArray[np.uint64]) -> None:
        """Takes rows, in any order."""
        columns = [values, plain_array(ids)]
        self.add_batch(pa.RecordBatch.from_arrays(columns, schema=self._schema))


def merged(streams: Sequence[Iterator[pa.RecordBatch]]) -> Iterator[pa.RecordBatch]:
    """The rows of sorted streams, sorted; a batch of each is in memory at a time."""
    return external_sort.merged(streams, _places)


def _places(rows: pa.RecordBatch) -> NDArray[np.int64]:
    return sort_order(rows.column(VALUES), stable=True)


_BATCH_ROWS: Final = 64 << 10
# Of the values of all segments that are merged together.
_MERGED_BYTES: Final = 64 << 20
_SHIFT: Final = np.uint64(OFFSET_BITS)
_OFFSETS: Final = np.uint64((1 << OFFSET_BITS) - 1)


@dataclass(frozen=True, slots=True)
class StoredSegment:
    """A segment of a B-tree or of a bitmap index that names rows by their addresses; picklable.

    ``entry``: of the manifest; ``fragments``: those of which its rows are taken.
    """

    entry: IndexMetadata
    fragments: tuple[Fragment, ...]


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
    live = LiveRows(files, segment.fragments, stable_row_ids)
    rows_of = _rows_of_sets if kind_of(segment.entry) == BITMAP else _rows_of_pages
    for values, addresses in rows_of(files, segment.entry, field, num_segments):
        kept = np.flatnonzero(live.are_among(addresses))
        if len(kept):
            arrays = [values.take(plain_array(kept)), plain_array(addresses[kept])]
            yield pa.RecordBatch.from_arrays(arrays, names=[VALUES, IDS])


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
    file = BitmapIndex.open(files, entry, field).file
    keys = file.read_all("keys").column(0)
    order = sort_order(keys)
    size = sum(entry.file_sizes.values()) // max(1, len(keys))
    step = max(1, _MERGED_BYTES // max(64, size) // num_segments)
    for first in range(0, len(keys), step):
        places = order[first : first + step]
        sets = read_row_sets(file, places, max_bytes=None)
        for place, rows in zip(places.tolist(), sets or (), strict=True):
            for addresses in (numbers_of({high: rows[high]}) for high in sorted(rows)):
                for start in range(0, len(addresses), _BATCH_ROWS):
                    some = addresses[start : start + _BATCH_ROWS]
                    yield keys.take(plain_array(np.full(len(some), place))), some


class LiveRows:
    """Which addresses are of live rows of some fragments."""

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

    def are_among(self, addresses: NDArray[np.uint64]) -> NDArray[np.bool_]:
        """Which of some addresses are; shape (n,)."""
        if not len(self._ids):
            return np.zeros(len(addresses), np.bool_)
        numbers = addresses >> _SHIFT
        places = np.minimum(np.searchsorted(self._ids, numbers), len(self._ids) - 1)
        is_live: NDArray[np.bool_] = self._ids[places] == numbers
        if (is_live & (addresses & _OFFSETS >= self._lengths[places])).any():
            raise CorruptFileError("an index names rows beyond the end of a fragment")
        if len(self._deleted):
            at = np.minimum(np.searchsorted(self._deleted, addresses), len(self._deleted) - 1)
            is_live &= self._deleted[at] != addresses
        return is_live

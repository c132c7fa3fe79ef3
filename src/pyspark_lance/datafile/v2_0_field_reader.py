"""Reads fields of 2.0 files: every node of the schema has a column, and any row range is cheap.

Source: file-format.md sections 2.3 and 5.2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.codec.v2_0.array_decoder import bit_width_of
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.read_plan import PageBorders
from pyspark_lance.datafile.v2_0_nodes import LeafReader, NodeReader, is_packed_column, make_node
from pyspark_lance.format.field import Field
from pyspark_lance.store.byte_range import ByteRange
from pyspark_lance.store.local_store import LocalStore

# What lies between two wanted ranges is read with them if it takes fewer bytes.
_MAX_GAP_BYTES: Final = 64 * 1024


class V20FieldReader:
    """Reads one field of a 2.0 file.

    Args:
        node: Reads the field.
        vector_pages: Borders of the pages, if their values are views of memory; so scattered rows
            are taken out of a whole page.
    """

    def __init__(self, node: NodeReader, vector_pages: PageBorders | None) -> None:
        self._node, self._vector_pages = node, vector_pages
        self._row_bytes = node.average_row_bytes()
        self._max_gap = max(_MAX_GAP_BYTES // self._row_bytes, 1)

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``row_byte_ranges`` reads itself: where strings and lists start and end."""
        return self._of_ranges(self._node.state_ranges, rows)

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """What ``read(start, end)`` reads."""
        return self._node.byte_ranges(start, end)

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``read_arrays`` reads."""
        return self._of_ranges(self._node.byte_ranges, rows)

    def read(self, start: int, end: int) -> pa.Array:
        """The rows ``start`` to ``end`` as one array."""
        return self._node.read(start, end)

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The rows of all ranges, in order, in one array or several."""
        if rows.is_single or not len(rows.starts):
            return [self._node.read(start, end) for start, end in _pairs(rows)]
        if self._vector_pages is None:
            return [self._read_near(near) for near in _split_at_gaps(rows, self._max_gap)]
        borders = self._vector_pages
        return [
            self._read_near(_shifted(near, int(borders.starts[page])))
            for page, near in borders.split(rows)
        ]

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1."""
        return self._row_bytes

    def _read_near(self, rows: RowRanges) -> pa.Array:
        """Ranges close to each other: reading what is between them costs less than many reads."""
        array = self._node.read(rows.start, rows.end)
        if rows.is_single:
            return array
        return pc.take(array, pa.array(rows.to_positions() - rows.start), boundscheck=False)

    def _of_ranges(
        self, find: Callable[[int, int], list[ByteRange]], rows: RowRanges
    ) -> list[ByteRange]:
        return [
            place
            for near in _split_at_gaps(rows, self._max_gap)
            for place in find(near.start, near.end)
        ]


def make_v2_0_field_reader(
    file: OpenFile, field: Field, column_of: Mapping[int, int]
) -> V20FieldReader:
    """A reader for a field and everything below.

    Args:
        file: A 2.0 file.
        field: The wanted field; its children may be fewer than are stored.
        column_of: Field id -> physical column.

    Raises:
        CorruptFileError: A field has no column.
        UnsupportedFeatureError: A type that 2.0 files cannot hold.
    """
    node = make_node(file, field, column_of)
    vector_pages = None
    if isinstance(node, LeafReader) and bit_width_of(field.to_arrow().type):
        pages = file.metadata.column(column_of[field.id]).pages
        if isinstance(file.store, LocalStore):
            vector_pages = PageBorders.of_lengths([page.num_rows for page in pages])
    return V20FieldReader(node, vector_pages)


def v2_0_columns(file: OpenFile, fields: Iterable[Field]) -> dict[int, int]:
    """Field id -> column of a file that no manifest describes: depth first.

    A struct counts as packed if its column is stored so, whatever its metadata ask for.
    """
    columns: dict[int, int] = {}

    def assign(field: Field) -> None:
        column = columns[field.id] = len(columns)
        if not is_packed_column(file, column):
            for child in field.children:
                assign(child)

    for field in fields:
        assign(field)
    return columns


def _pairs(rows: RowRanges) -> Iterator[tuple[int, int]]:
    return zip(rows.starts.tolist(), rows.ends.tolist(), strict=True)


def _shifted(rows: RowRanges, distance: int) -> RowRanges:
    return RowRanges(rows.starts + distance, rows.ends + distance)


def _split_at_gaps(rows: RowRanges, max_gap: int) -> Iterator[RowRanges]:
    """Groups of ranges with at most ``max_gap`` rows between neighbours."""
    cuts = np.flatnonzero(rows.starts[1:] - rows.ends[:-1] > max_gap) + 1
    borders = [0, *cuts.tolist(), len(rows.starts)]
    for first, last in pairwise(borders):
        if first < last:
            yield RowRanges(rows.starts[first:last], rows.ends[first:last])

"""Reads fields of 2.0 files: every node of the schema has a column, and any row range is cheap.

Source: docs/format/file-format.md, sections 2.3 and 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pyarrow as pa

from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.v2_0.nodes import NodeReader, is_packed_column, make_node
from pyspark_lance.datafile.v2_0.scattered_rows import split_at_gaps
from pyspark_lance.format.field import Field
from pyspark_lance.store.byte_range import ByteRange


class V20FieldReader:
    """Reads one field of a 2.0 file."""

    def __init__(self, node: NodeReader) -> None:
        self._node = node
        self._row_bytes = node.average_row_bytes()

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``row_byte_ranges`` reads itself: where strings and lists start and end."""
        near = split_at_gaps(rows, self._row_bytes)
        return [p for part in near for p in self._node.state_ranges(part.start, part.end)]

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """What ``read(start, end)`` reads."""
        return self._node.byte_ranges(start, end)

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``read_arrays`` reads."""
        near = split_at_gaps(rows, self._row_bytes)
        return [p for part in near for p in self._node.byte_ranges(part.start, part.end)]

    def read(self, start: int, end: int) -> pa.Array:
        """The rows ``start`` to ``end`` as one array."""
        return self._node.read(start, end)

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The rows of all ranges, in order, as one array."""
        if not len(rows.starts):
            return []
        if rows.is_single:
            return [self._node.read(rows.start, rows.end)]
        return [self._node.read_rows(rows)]

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1."""
        return self._row_bytes


def make_v2_0_field_reader(
    file: OpenFile, field: Field, column_of: Mapping[int, int]
) -> V20FieldReader:
    """A reader for a field and everything below.

    ``file``: a 2.0 file. ``field``: the wanted field; its children may be fewer than are stored.
    ``column_of``: field id -> physical column.
    """
    return V20FieldReader(make_node(file, field, column_of))


def v2_0_columns(file: OpenFile, fields: Iterable[Field]) -> dict[int, int]:
    """Field id -> column of a file that no manifest describes: depth first.

    A struct counts as packed if its column is stored so; metadata tell only if it has no pages.
    """
    columns: dict[int, int] = {}

    def assign(field: Field) -> None:
        column = columns[field.id] = len(columns)
        if not is_packed_column(file, column, field):
            for child in field.children:
                assign(child)

    for field in fields:
        assign(field)
    return columns

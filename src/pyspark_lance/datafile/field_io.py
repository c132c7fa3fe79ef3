"""FieldReader and FieldWriter: interfaces of the readers and writers of one field.

A writer keeps rows in an ``ArrayBuffer`` until they fill a page. A slice of a batch keeps the whole
batch in memory, so a column of numbers beside one of documents would keep every document until it
has a page of numbers. So the writer can have the buffer copy its rows (``own``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.store.object_store import ByteRange


class FieldReader(Protocol):
    """One requested field with its whole subtree."""

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges that ``read(start, end)`` fetches, for one request over all fields.

        May be coarse: more than is needed, or less when it depends on bytes not yet read.
        """

    def read(self, start: int, end: int) -> pa.Array:
        """The top-level rows ``start`` to ``end``, in the field's Arrow type."""

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``row_byte_ranges`` needs first, for one bulk request."""

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``read_arrays`` fetches."""

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The rows of all ranges, in order, in one array or several."""

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1."""

    def retained_bytes(self) -> int | None:
        """Approximate memory of cached pages; None if it cannot be measured."""


class FieldWriter(Protocol):
    """One top-level field with its whole subtree; it buffers and cuts pages by itself.

    Physical columns are numbered depth first: a writer is created with the number of its first
    column and reports how many it takes.
    """

    @property
    def num_columns(self) -> int:
        """Physical columns of the subtree."""

    @property
    def column_of(self) -> dict[int, int]:
        """Field id -> physical column, for every field of the subtree that has one."""

    @property
    def buffered_bytes(self) -> int:
        """Bytes collected and not yet written as pages."""

    def write(self, array: pa.Array) -> None:
        """Append rows; full pages are written to the sink."""

    def own(self) -> None:
        """Copy buffered arrays, so that nothing refers to the arrays passed to ``write``."""

    def flush(self) -> None:
        """Write the buffered rest."""


class ArrayBuffer:
    """Buffer of arrays, in arrival order."""

    def __init__(self) -> None:
        self._arrays: list[pa.Array] = []
        self._num_owned = 0

    def __len__(self) -> int:
        return len(self._arrays)

    def add(self, array: pa.Array) -> None:
        """Add an array by reference."""
        self._arrays.append(array)

    def own(self) -> None:
        """Copy arrays that still reference foreign memory."""
        own, borrowed = self._arrays[: self._num_owned], self._arrays[self._num_owned :]
        self._arrays = own + [pa.concat_arrays([array]) for array in borrowed]
        self._num_owned = len(self._arrays)

    def take(self) -> Sequence[pa.Array]:
        """Return all arrays, and clear the buffer."""
        arrays, self._arrays, self._num_owned = self._arrays, [], 0
        return arrays

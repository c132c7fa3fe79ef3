"""FieldReader: what reads one requested field of one file, in any 2.x version."""

from __future__ import annotations

from typing import Protocol

import pyarrow as pa

from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.store.byte_range import ByteRange


class FieldReader(Protocol):
    """One requested field with its whole subtree."""

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """What ``read(start, end)`` will fetch, for one bulk request over all fields.

        May be coarse: more than is needed, or less when it depends on bytes not yet read.
        """

    def read(self, start: int, end: int) -> pa.Array:
        """The top-level rows ``start`` to ``end``, in the field's Arrow type."""

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``row_byte_ranges`` itself needs to read, for one bulk request before it."""

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``read_arrays`` will fetch."""

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The rows of all ranges, in order, in one array or several."""

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1."""

"""Reads fields of 0.1 files: a tree of nodes over the pages of batches of rows.

Source: docs/format/file-format.md, sections 10.2 and 10.3.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.datafile.read_plan import PageStarts
from pyspark_lance.datafile.v0_1.metadata import LegacyFile
from pyspark_lance.datafile.v0_1.nodes import LegacyNode, Part, make_legacy_node
from pyspark_lance.format.field import Field
from pyspark_lance.store.byte_range import ByteRange


class LegacyFieldReader:
    """Reads one field with everything below.

    ``field``: the wanted field; its children may be fewer than are stored.
    """

    def __init__(self, file: LegacyFile, field: Field) -> None:
        self._file = file
        self._type = field.to_arrow().type
        self._root: LegacyNode = make_legacy_node(file, file.metadata.pages, field)
        self._batches = PageStarts(file.metadata.batch_starts)

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """What ``read(start, end)`` will fetch, as far as the page table says."""
        return self.row_byte_ranges(RowRanges.single(start, end)) if start < end else []

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Nothing is needed to know the byte ranges."""
        return []

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``read_arrays(rows)`` will fetch, as far as the page table says."""
        return self._root.known_ranges(list(self._parts(rows)))

    def read(self, start: int, end: int) -> pa.Array:
        """The top-level rows ``start`` to ``end``."""
        if start == end:
            return pa.nulls(0, self._type)
        return self.read_arrays(RowRanges.single(start, end))[0]

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The wanted rows, as one array."""
        return [self._root.read(list(self._parts(rows)))]

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1, from the first batch with rows."""
        starts = self._file.metadata.batch_starts.tolist()
        for batch in range(len(starts) - 1):
            if starts[batch] < starts[batch + 1]:
                count = starts[batch + 1] - starts[batch]
                return max(1, self._root.num_bytes(Part(batch, 0, count)) // count)
        return 1

    def _parts(self, rows: RowRanges) -> Iterator[Part]:
        for batch, within in self._batches.split(rows):
            for start, end in zip(within.starts.tolist(), within.ends.tolist(), strict=True):
                yield Part(batch, start, end)

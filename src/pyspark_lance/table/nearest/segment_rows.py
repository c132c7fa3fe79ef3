"""SegmentRows: read live rows of a vector index segment by partition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.table.index.index_file import IndexFile
from pyspark_lance.table.nearest.ivf_file import ROWS_FILE, IvfKind, IvfSegment
from pyspark_lance.table.nearest.live_rows import LiveRows
from pyspark_lance.table.nearest.vectors import matrix_of
from pyspark_lance.table.scan.scan_task import ScanTask
from pyspark_lance.table.version.table_files import TableFiles

_ROW_ID: Final = "_rowid"


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Live rows of a partition."""

    row_ids: NDArray[np.uint64]  # Shape (n,).
    addresses: NDArray[np.uint64]  # Shape (n,).
    stored: NDArray[Any]  # Vectors or codes, shape (n, width), row-major.


class SegmentRows:
    """Reads partitions of a segment.

    ``fragments``: covered ones, with their row ids if these are stable; ``stable_row_ids``: whether
    the table has stable row ids. ``matching``: a scan of these fragments for the addresses of
    matching rows; None for all.
    """

    def __init__(
        self,
        files: TableFiles,
        segment: IvfSegment,
        fragments: tuple[Fragment, ...],
        *,
        stable_row_ids: bool,
        matching: ScanTask | None = None,
    ) -> None:
        self._segment = segment
        self._file = IndexFile.open(files, segment.entry, ROWS_FILE)
        kinds = (_ROW_ID, str(segment.kind))
        schema = self._file.reader.schema
        self._fields = [field for field in schema.fields if field.name in kinds]
        self._live = LiveRows(files, fragments, stable_row_ids=stable_row_ids, matching=matching)

    def read(self, number: int) -> PartitionRows:
        """Read the rows of a partition, possibly none."""
        start, length = int(self._segment.starts[number]), int(self._segment.lengths[number])
        if not length:
            nothing = np.empty(0, np.uint64)
            return PartitionRows(nothing, nothing, np.empty((0, 0)))
        batch = self._file.reader.read(
            self._fields, self._file.reader.embedded_columns(), start, start + length
        )
        names = batch.schema.names
        row_ids = plain_numbers(batch.column(names.index(_ROW_ID)))
        addresses, is_live = self._live.addresses_of(row_ids)
        stored = batch.column(names.index(str(self._segment.kind)))
        return PartitionRows(row_ids[is_live], addresses[is_live], self._values(stored, is_live))

    def _values(self, stored: pa.Array, is_live: NDArray[np.bool_]) -> NDArray[Any]:
        if self._segment.kind is IvfKind.FLAT:
            vectors, _ = matrix_of(stored)
            return vectors[is_live]
        width = stored.type.list_size
        items = stored.values.slice(stored.offset * width, len(stored) * width)
        codes = plain_numbers(items).reshape(-1, width)
        if self._segment.kind is IvfKind.PQ and self._segment.transposed:
            return codes.reshape(width, -1)[:, is_live].T
        return codes[is_live]

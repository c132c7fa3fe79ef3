"""BlobColumn: a column of blobs of a 2.1 or 2.2 file, read in the form that is asked for.

Source: docs/format/file-format.md, sections 6.7 and 9.1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.levels import Unraveler
from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.datafile.blob_values import EXTERNAL, fetch_v1, fetch_v2, located, logical_v2
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.v2_1.column import LeafColumnReader, PageRead, as_array
from pyspark_lance.errors import LanceError
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import (
    BLOB_V1_DESCRIPTOR,
    BLOB_V2_DESCRIPTOR,
    is_blob_descriptor,
    is_located,
)

# Blobs outside of the table, whose size is not in the descriptor, are assumed to be this large.
_UNKNOWN_BYTES = 1 << 20
_SAMPLED_ROWS = 256


class BlobColumn(LeafColumnReader):
    """Blobs of either version: as descriptors, as bytes, or (v2) as they are written.

    ``slots_per_row``: see ``LeafColumnReader``.
    """

    def __init__(
        self, file: OpenFile, column: int, name: str, field: Field, slots_per_row: int
    ) -> None:
        self._is_v2 = is_stored_as_v2(file, field)
        members = BLOB_V2_DESCRIPTOR if self._is_v2 else BLOB_V1_DESCRIPTOR
        descriptor = pa.struct([member.to_arrow() for member in members])
        super().__init__(file, column, name, descriptor, slots_per_row)
        self._wanted = field.to_arrow().type
        self._wants_descriptor, self._wants_file = is_blob_descriptor(field), is_located(field)
        self._known_bytes: int | None = None

    def decode(
        self, read: PageRead, pieces: Sequence[NDArray[np.uint8]]
    ) -> tuple[pa.Array, Unraveler]:
        """The blobs of one page; their bytes are fetched if they are wanted."""
        descriptors, unraveler = super().decode(read, pieces)
        with self.errors_of(read.page):
            return self._shown(descriptors), unraveler

    def average_row_bytes(self) -> int:
        """Of descriptors, or for bytes by the sizes in the first page that has any."""
        if self._wants_descriptor:
            uri_bytes = len(self._file.place) if self._wants_file else 0
            return super().average_row_bytes() + uri_bytes
        return max(1, self._stored_bytes())

    def _shown(self, descriptors: pa.StructArray) -> pa.Array:
        if self._wants_descriptor:
            if self._wants_file:
                descriptors = located(self._file, descriptors)
            children = [pc.struct_field(descriptors, member.name) for member in self._wanted]
            mask = descriptors.is_null() if descriptors.null_count else None
            children = [_without_nulls(child) for child in children]
            return pa.StructArray.from_arrays(children, fields=list(self._wanted), mask=mask)
        if not self._is_v2:
            return fetch_v1(self._file, descriptors)
        if pa.types.is_struct(self._wanted):
            return logical_v2(self._file, descriptors, self._wanted)
        return fetch_v2(self._file, descriptors)

    def _stored_bytes(self) -> int:
        """Average size of the blobs of the first page."""
        if self._known_bytes is None:
            self._known_bytes = self._sample()
        return self._known_bytes

    def _sample(self) -> int:
        count = min(_SAMPLED_ROWS, self._file.metadata.num_rows)
        if not count:
            return 1
        rows = RowRanges.single(0, count)
        state = self._file.fetch(self.state_ranges(rows))
        self.load(rows, iter([as_array(buffer) for buffer in state]))
        total = 0.0
        for read in self.plan(rows):
            pieces = [as_array(buffer) for buffer in self._file.fetch(read.ranges)]
            descriptors, _ = super().decode(read, pieces)
            sizes = np.asarray(pc.fill_null(pc.struct_field(descriptors, "size"), 0))
            total += float(sizes.sum(dtype=np.float64))
            if self._is_v2:
                kinds = np.asarray(pc.fill_null(pc.struct_field(descriptors, "kind"), 0))
                total += _UNKNOWN_BYTES * int(((kinds == EXTERNAL) & (sizes == 0)).sum())
        return int(min(total / count, 1 << 40))


def is_stored_as_v2(file: OpenFile, field: Field) -> bool:
    """Return whether a blob column is of the second kind, by its own schema or the file's."""
    if field.is_blob_v2:
        return True
    try:
        return file.metadata.schema.field_by_id(field.id).is_blob_v2
    except LanceError:
        return False


def _without_nulls(array: pa.Array) -> pa.Array:
    """Members of a descriptor are not null, also where there is no descriptor."""
    if not array.null_count:
        return array
    return pc.fill_null(array, "" if pa.types.is_string(array.type) else 0)

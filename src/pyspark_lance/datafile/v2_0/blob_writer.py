"""Writes blob columns of 2.0 files, at any depth: pages of (position, size) records.

Source: docs/format/file-format.md, section 5.1.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.v2_0.page_buffers import validity_of
from pyspark_lance.datafile import blob_records
from pyspark_lance.datafile.blob_records import (
    RECORD_BYTES,
    BlobRecords,
    concat_records,
    write_blobs,
)
from pyspark_lance.datafile.file_metadata import ARRAY_ENCODING_URL, COLUMN_ENCODING_URL
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.format.field import Field
from pyspark_lance.proto import encodings_v2_0_pb2 as pb

_NULL_POSITION: Final = 1


class V20BlobWriter:
    """A column of blobs.

    ``field``: a blob field of the first kind.
    """

    def __init__(self, field: Field, sink: PageSink, column: int, path: str) -> None:
        self._sink, self._column, self._path = sink, column, path
        self._held: list[BlobRecords] = []
        self._held_rows = 0
        self._has_pages = False
        self.num_columns = 1
        self.column_of = {field.id: column}
        sink.set_column_encoding(column, COLUMN_ENCODING_URL, _column_encoding())

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that wait for their page; values are never held."""
        return self._held_rows * RECORD_BYTES

    def write(self, array: pa.Array) -> None:
        """Write the values, and keeps where they are."""
        for start in range(0, len(array), blob_records.PAGE_ROWS):
            values = array.slice(start, blob_records.PAGE_ROWS)
            valid = validity_of(values)
            is_null = np.zeros(len(values), np.bool_) if valid is None else ~valid
            records = write_blobs(self._sink, values, is_null, self._path)
            records.positions[is_null] = _NULL_POSITION
            self._held.append(records)
            self._held_rows += len(values)
            if self._held_rows >= blob_records.PAGE_ROWS:
                self.flush()

    def own(self) -> None:
        """Records are copies already."""

    def flush(self, *, page_needed: bool = False) -> None:
        """Write a page of the records that wait."""
        held, self._held, self._held_rows = self._held, [], 0
        if not held and page_needed and not self._has_pages:
            nothing = np.zeros(0, np.uint64)
            no_rows, none = np.zeros(0, np.bool_), np.zeros(0, np.uint32)
            held = [BlobRecords(nothing, nothing, no_rows, none.astype(np.uint8), none)]
        if held:
            records = concat_records(held)
            self._sink.write_page(
                self._column,
                [records.pairs()],
                ARRAY_ENCODING_URL,
                _page_encoding(),
                num_rows=len(records),
            )
            self._has_pages = True


def _page_encoding() -> bytes:
    buffer = pb.Buffer(buffer_index=0)
    number = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=64, buffer=buffer))
    member = pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=number)))
    packed = pb.PackedStruct(inner=[member, member], buffer=buffer)
    return pb.ArrayEncoding(packed_struct=packed).SerializeToString()


def _column_encoding() -> bytes:
    inner = pb.ColumnEncoding(values=pb.Empty())
    return pb.ColumnEncoding(blob=pb.ColumnEncoding.Blob(inner=inner)).SerializeToString()

"""Writes blob columns of 2.1 and 2.2 files, at any depth: pages that say where each value is.

Source: docs/format/file-format.md, sections 6.7 and 9.1.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.compressive.encode_fixed_width import flat, flat_chunks
from pyspark_lance.codec.encoding_requests import blob_limits
from pyspark_lance.codec.leaf_column import (
    ALL_VALID_ITEM,
    LeafColumn,
    LeafValues,
    concat_leaf_values,
    with_values,
)
from pyspark_lance.codec.structural.all_null_writer import encode_all_null
from pyspark_lance.codec.structural.full_zip_writer import encode_variable_full_zip
from pyspark_lance.codec.structural.mini_block_writer import encode_mini_block
from pyspark_lance.codec.value_chunks import EncodedPage
from pyspark_lance.datafile import blob_records
from pyspark_lance.datafile.blob_objects import BlobObjects
from pyspark_lance.datafile.blob_records import (
    RECORD_BYTES,
    BlobRecords,
    concat_records,
    write_blobs,
)
from pyspark_lance.datafile.file_metadata import PAGE_LAYOUT_URL
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


class V21BlobWriter:
    """A column of blobs; values go to the file at once, what is collected is where they are.

    ``column``: a blob of either kind; those of the first kind are not inside of lists. ``version``:
    any for the first kind (pylance makes no new tables of 2.2 with it), ``2.2`` for the second.
    ``objects``: where large blobs of the second kind go; None for the file itself.
    """

    def __init__(
        self,
        sink: PageSink,
        index: int,
        column: LeafColumn,
        version: str,
        objects: BlobObjects | None,
    ) -> None:
        self._sink, self._index, self._column = sink, index, column
        self._large_chunks = version == "2.2"
        limits = blob_limits(column.metadata, column.name)
        self._objects = None if objects is None else (objects, limits)
        self._held: list[tuple[LeafValues, BlobRecords]] = []
        self._held_entries = self._rows_written = 0

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that wait for their page."""
        return self._held_entries * RECORD_BYTES

    def add(self, rows: LeafValues) -> None:
        """Write the values of some rows."""
        if rows.num_entries > blob_records.PAGE_ROWS and rows.num_rows > 1:
            for half in rows.halves(self._column):
                self.add(half)
            return
        nulls = rows.null_mask()
        is_null = np.zeros(len(rows.values), np.bool_) if nulls is None else nulls
        records = write_blobs(self._sink, rows.values, is_null, self._column.name, self._objects)
        self._held.append((with_values(rows, pa.nulls(len(rows.values))), records))
        self._held_entries += rows.num_entries
        if self._held_entries >= blob_records.PAGE_ROWS:
            self.flush()

    def own(self) -> None:
        """Records are copies already."""

    def flush(self) -> None:
        """Write a page of the records that wait."""
        held, self._held, self._held_entries = self._held, [], 0
        if not held:
            return
        rows = concat_leaf_values([rows for rows, _ in held])
        records = concat_records([records for _, records in held])
        encode = self._descriptors if self._column.is_blob_v2 else self._pairs
        page = encode(rows, records)
        self._sink.write_page(
            self._index,
            page.buffers,
            PAGE_LAYOUT_URL,
            page.layout.SerializeToString(),
            num_rows=rows.num_rows * self._column.slots_per_row,
            priority=self._rows_written,
        )
        self._rows_written += rows.num_rows

    def _pairs(self, rows: LeafValues, records: BlobRecords) -> EncodedPage:
        """A page of blobs of the first kind: levels are in the records of what has none."""
        if rows.definition is not None:
            is_null = records.is_null
            records.positions[is_null] = rows.definition[is_null].astype(np.uint64) << np.uint64(16)
        packed = pb.PackedStruct(bits_per_value=[64, 64], values=flat(128))
        values = replace(
            flat_chunks(records.pairs(), 128), encoding=pb.CompressiveEncoding(packed_struct=packed)
        )
        column = replace(self._column, layers=(ALL_VALID_ITEM,))
        bare = replace(rows, definition=None)
        page = encode_mini_block(column, bare, values, None, large_chunks=self._large_chunks)
        assert page is not None, "chunks of records are small"
        layers = self._column.page_layers(rows)
        layout = pb.PageLayout(blob_layout=pb.BlobLayout(inner_layout=page.layout, layers=layers))
        return EncodedPage(page.buffers, layout, rows.num_rows)

    def _descriptors(self, rows: LeafValues, records: BlobRecords) -> EncodedPage:
        """A page of blobs of the second kind."""
        rows = rows.with_all_levels(self._column)
        if len(records) == 0 or (records.is_null.all() and rows.repetition is None):
            return encode_all_null(self._column, rows)
        offsets, content = records.descriptors()
        return encode_variable_full_zip(
            self._column, rows, offsets, content, _descriptor_encoding()
        )


def _descriptor_encoding() -> pb.CompressiveEncoding:
    part = pb.VariablePackedStruct.FieldEncoding
    fields = [part(value=flat(bits), bits_per_value=bits) for bits in (8, 64, 64, 32)]
    text = pb.CompressiveEncoding(variable=pb.Variable(offsets=flat(32)))
    fields.append(part(value=text, bits_per_length=32))
    return pb.CompressiveEncoding(variable_packed_struct=pb.VariablePackedStruct(fields=fields))

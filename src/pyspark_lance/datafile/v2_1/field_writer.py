"""Writer of one top-level field of a 2.1 or 2.2 file, and of blob columns at any depth.

Arrays are collected until there is enough for a page and then taken apart into the rows of each
leaf column; a column with narrow values next to wide ones collects on until it has a page of its
own. So the memory used depends on the number of columns and not on the number of rows.

Source: docs/format/file-format.md, sections 6.7 and 9.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.choose_encoding import PageEncoder
from pyspark_lance.codec.chunk_buffers import EncodedPage
from pyspark_lance.codec.compressive.fixed_width import flat, flat_chunks
from pyspark_lance.codec.encoding_requests import blob_limits
from pyspark_lance.codec.leaf_column import (
    ALL_VALID_ITEM,
    LeafColumn,
    LeafValues,
    concat_leaf_values,
    leaf_columns,
    with_values,
)
from pyspark_lance.codec.shred import data_bytes, has_dictionaries, is_counted_separately, shred
from pyspark_lance.codec.structural.all_null import encode_all_null
from pyspark_lance.codec.structural.full_zip import encode_variable_full_zip
from pyspark_lance.codec.structural.mini_block import encode_mini_block
from pyspark_lance.datafile import blob_records
from pyspark_lance.datafile.blob_records import (
    RECORD_BYTES,
    BlobObjects,
    BlobRecords,
    concat_records,
    write_blobs,
)
from pyspark_lance.datafile.field_io import ArrayBuffer
from pyspark_lance.datafile.file_metadata import PAGE_LAYOUT_URL
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.format.field import Field
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


class V21BlobWriter:
    """A column of blobs; values go to the file at once, their positions are collected.

    ``column``: a blob of either kind; those of the first kind are not inside of lists. ``version``:
    any for the first kind (pylance creates no new tables of 2.2 with it), ``2.2`` for the second.
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
        """Do nothing, as records are copies already."""

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
        """A page of blobs of the first kind: records without bytes hold their levels."""
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


PAGE_BYTES: Final = 8 << 20
"""A page is written as soon as this many bytes of Arrow data have come together."""

MAX_PAGE_BYTES: Final = 2 * PAGE_BYTES
"""A page holds no more Arrow data than this, unless one row alone does."""


class V21FieldWriter:
    """See ``FieldWriter``.

    ``first_column``: number of its first physical column; ``version``: ``2.1`` or ``2.2``;
    ``objects``: where large blobs go, None for the file itself.
    """

    def __init__(
        self,
        sink: PageSink,
        field: Field,
        *,
        first_column: int,
        version: str,
        objects: BlobObjects | None = None,
    ) -> None:
        self._field = field.to_arrow()
        leaf_ids = [part.id for part in _column_fields(field)]
        columns = list(leaf_columns(self._field))
        self._has_blobs = any(column.is_blob for column in columns)
        self._columns = [
            V21BlobWriter(sink, number, column, version, objects)
            if column.is_blob
            else _ColumnWriter(sink, number, column, version)
            for number, column in enumerate(columns, first_column)
        ]
        assert len(leaf_ids) == len(self._columns), "a leaf field is not a column"
        self._column_of = {
            field_id: first_column + index for index, field_id in enumerate(leaf_ids)
        }
        self._has_dictionaries = has_dictionaries(self._field.type)
        self._is_counted_apart = is_counted_separately(self._field.type)
        self._held = ArrayBuffer()
        self._array_bytes = 0

    @property
    def num_columns(self) -> int:
        """One column per leaf."""
        return len(self._columns)

    @property
    def column_of(self) -> dict[int, int]:
        """Field id -> physical column, leaves only."""
        return dict(self._column_of)

    @property
    def buffered_bytes(self) -> int:
        """Bytes collected and not yet written as pages."""
        return self._array_bytes + sum(column.buffered_bytes for column in self._columns)

    def write(self, array: pa.Array) -> None:
        """Append rows."""
        for piece, num_bytes in self._pieces(array):
            if num_bytes > MAX_PAGE_BYTES:
                self._distribute()  # 32-bit offsets may not reach over such a row and others
            self._held.add(piece)
            self._array_bytes += num_bytes
            # Blobs go to the file one by one: there is nothing to collect them for.
            if self._array_bytes >= PAGE_BYTES or self._has_blobs:
                self._distribute()

    def own(self) -> None:
        """Copy buffered arrays."""
        self._held.own()
        for column in self._columns:
            column.own()

    def flush(self) -> None:
        """Write the buffered rest."""
        self._distribute()
        for column in self._columns:
            column.flush()

    def _pieces(self, array: pa.Array) -> Iterator[tuple[pa.Array, int]]:
        """Slices of the array, in order, small enough for a page or of one row; their bytes."""
        num_bytes = data_bytes(array) if self._is_counted_apart else int(array.nbytes)
        if len(array) <= 1 or num_bytes <= MAX_PAGE_BYTES:
            if len(array):
                yield array, num_bytes
            return
        half = len(array) // 2
        yield from self._pieces(array.slice(0, half))
        yield from self._pieces(array.slice(half))

    def _distribute(self) -> None:
        """Shred the collected arrays."""
        arrays, self._array_bytes = self._held.take(), 0
        if len(arrays) > 1 and not self._has_dictionaries:
            arrays = [pa.concat_arrays(arrays)]
        for array in arrays:
            leaves = shred(array, self._field)
            for column, rows in zip(self._columns, leaves, strict=True):
                column.add(rows)


class _ColumnWriter:
    """Buffer of the rows of one column, which it divides into pages."""

    def __init__(self, sink: PageSink, index: int, column: LeafColumn, version: str) -> None:
        self._sink = sink
        self._index = index
        self._slots_per_row = column.slots_per_row
        self._encoder = PageEncoder.of(column, version)
        self._pieces: list[LeafValues] = []
        self._values = ArrayBuffer()
        self._rows_written = 0
        self.buffered_bytes = 0

    def add(self, rows: LeafValues) -> None:
        num_bytes = data_bytes(rows.values) + sum(
            levels.nbytes
            for levels in (rows.repetition, rows.definition, rows.visible)
            if levels is not None
        )
        if self._pieces and self.buffered_bytes + num_bytes > MAX_PAGE_BYTES:
            self.flush()
        # The values are stored apart from their levels, which no other field shares.
        self._pieces.append(with_values(rows, pa.nulls(0)))
        self._values.add(rows.values)
        self.buffered_bytes += num_bytes
        if self.buffered_bytes >= PAGE_BYTES:
            self.flush()

    def own(self) -> None:
        self._values.own()

    def flush(self) -> None:
        pieces, self._pieces, self.buffered_bytes = self._pieces, [], 0
        pieces = [with_values(*pair) for pair in zip(pieces, self._values.take(), strict=True)]
        for group in _joinable(pieces):
            for page in self._encoder.encode(concat_leaf_values(group)):
                self._sink.write_page(
                    self._index,
                    page.buffers,
                    PAGE_LAYOUT_URL,
                    page.layout.SerializeToString(),
                    # Below a fixed-size list of structs the slots are what pylance counts.
                    num_rows=page.num_rows * self._slots_per_row,
                    priority=self._rows_written,
                )
                self._rows_written += page.num_rows


def _joinable(pieces: list[LeafValues]) -> Iterator[list[LeafValues]]:
    """Groups that can become a page: with one dictionary, if there are dictionaries."""
    if len(pieces) < 2 or not pa.types.is_dictionary(pieces[0].values.type):
        if pieces:
            yield pieces
        return
    try:
        unified = pa.chunked_array([piece.values for piece in pieces]).unify_dictionaries()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # more items than the indices can name
        yield from ([piece] for piece in pieces)
        return
    yield [with_values(piece, chunk) for piece, chunk in zip(pieces, unified.chunks, strict=True)]


def _column_fields(field: Field) -> Iterator[Field]:
    """The fields below, or the field itself, that have a column."""
    if field.is_leaf or field.is_packed or field.is_blob:
        yield field
    else:
        for child in field.children:
            yield from _column_fields(child)

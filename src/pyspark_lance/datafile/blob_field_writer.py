"""Writes a top-level blob column: every value on its own, and pages of records that say where.

The bytes of all values go into the data file itself, whatever their size, so that a file that is
given up leaves nothing behind. References to objects elsewhere stay references.

Source: file-format.md sections 5, 6.7 and 9.1.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.encode_fixed_width import flat, flat_chunks
from pyspark_lance.codec.leaf_column import ALL_VALID_ITEM, NULLABLE_ITEM, LeafColumn, LeafValues
from pyspark_lance.codec.structural.all_null_writer import encode_all_null
from pyspark_lance.codec.structural.full_zip_writer import encode_variable_full_zip
from pyspark_lance.codec.structural.mini_block_writer import encode_mini_block
from pyspark_lance.codec.v2_0.variable_width import borders_of
from pyspark_lance.datafile.blob_values import EXTERNAL, INLINE
from pyspark_lance.datafile.file_metadata import (
    ARRAY_ENCODING_URL,
    COLUMN_ENCODING_URL,
    PAGE_LAYOUT_URL,
)
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.field import Field
from pyspark_lance.proto import encodings_v2_0_pb2, encodings_v2_1_pb2

PAGE_ROWS: Final = 1 << 17

# Records of nulls: 2.0 has a mark of its own, later ones a definition level above the low 16 bits.
_NULL_PLACE: Final = {"2.0": 1, "2.1": 1 << 16, "2.2": 1 << 16}
_RECORD: Final = np.dtype(
    [
        ("kind", "u1"),
        ("position", "<u8"),
        ("size", "<u8"),
        ("blob_id", "<u4"),
        ("uri_bytes", "<u4"),
    ]
)


class _Records(NamedTuple):
    """Where the blobs of some rows are."""

    positions: NDArray[np.uint64]
    sizes: NDArray[np.uint64]
    is_null: NDArray[np.bool_]
    uris: pa.Array | None = None


class BlobFieldWriter:
    """See ``FieldWriter``.

    Args:
        sink: Takes the values and the pages.
        field: A blob field of either version, not nested in another.
        column: Its physical column.
        version: Any for blob v1 (pylance makes no new tables of 2.2 with it), ``2.2`` for v2.
    """

    def __init__(self, sink: PageSink, field: Field, column: int, version: str) -> None:
        self._sink, self._field, self._column, self._version = sink, field, column, version
        self._held: list[_Records] = []
        self._held_rows = self._rows_written = 0
        self.num_columns = 1
        self.column_of = {field.id: column}
        if version == "2.0":
            sink.set_column_encoding(column, COLUMN_ENCODING_URL, _blob_column_encoding())

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the records that wait for their page; values are never held."""
        return self._held_rows * _RECORD.itemsize

    def write(self, array: pa.Array) -> None:
        """Writes the values, and keeps where they are.

        Raises:
            InvalidInputError: A blob v2 that has neither bytes nor a reference, or both.
        """
        for start in range(0, len(array), PAGE_ROWS):
            piece = array.slice(start, PAGE_ROWS)
            records = self._write_v2(piece) if self._field.is_blob_v2 else self._write_v1(piece)
            self._held.append(records)
            self._held_rows += len(piece)
            if self._held_rows >= PAGE_ROWS:
                self.flush()

    def flush(self) -> None:
        """Writes a page of the records that wait."""
        held, self._held, count, self._held_rows = self._held, [], self._held_rows, 0
        if not count:
            return
        records = _concatenated(held)
        if self._version == "2.0":
            buffers, url, encoding = _v2_0_page(records)
        elif self._field.is_blob_v2:
            buffers, url, encoding = _v2_page(self._field.name, records)
        else:
            large = self._version == "2.2"
            buffers, url, encoding = _v1_page(self._field.name, records, large_chunks=large)
        self._sink.write_page(
            self._column, buffers, url, encoding, num_rows=count, priority=self._rows_written
        )
        self._rows_written += count

    def _write_v1(self, values: pa.Array) -> _Records:
        positions, sizes = self._write_values(values)
        is_null = np.asarray(values.is_null())
        positions[is_null] = _NULL_PLACE[self._version]
        return _Records(positions, sizes, is_null)

    def _write_v2(self, values: pa.StructArray) -> _Records:
        is_null = np.asarray(values.is_null())
        data, uris = pc.struct_field(values, "data"), pc.struct_field(values, "uri")
        has_data, has_uri = np.asarray(data.is_valid()), np.asarray(uris.is_valid())
        if (has_data == has_uri)[~is_null].any():
            raise InvalidInputError(
                f"column {self._field.name!r}: a blob has either bytes or a URI",
                hint="use null for a blob that is not there",
            )
        positions, sizes = self._write_values(data)
        for name, numbers in (("position", positions), ("size", sizes)):
            if values.type.get_field_index(name) >= 0:
                given = np.asarray(pc.fill_null(pc.struct_field(values, name), 0))
                numbers[has_uri] = given[has_uri]
        return _Records(positions, sizes, is_null, uris if has_uri.any() else None)

    def _write_values(self, values: pa.Array) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
        """Each value that has bytes goes to a place of its own; where, and how many."""
        borders = borders_of(values).astype(np.int64)
        sizes = np.diff(borders)
        sizes[np.asarray(values.is_null())] = 0
        positions = np.zeros(len(values), np.uint64)
        stored = values.buffers()[2]
        content = memoryview(b"" if stored is None else stored)
        for row in np.flatnonzero(sizes).tolist():
            place = self._sink.write_buffer(content[borders[row] : borders[row + 1]])
            positions[row] = place.start
        return positions, sizes.astype(np.uint64)


def _concatenated(held: list[_Records]) -> _Records:
    uris = None
    if any(records.uris is not None for records in held):
        uris = pa.concat_arrays(
            [
                pa.nulls(len(one.sizes), pa.string()) if one.uris is None else one.uris
                for one in held
            ]
        )
    return _Records(
        np.concatenate([records.positions for records in held]),
        np.concatenate([records.sizes for records in held]),
        np.concatenate([records.is_null for records in held]),
        uris,
    )


def _pairs(records: _Records) -> NDArray[np.uint8]:
    """(position, size) records, shape (n, 16)."""
    pairs = np.stack((records.positions, records.sizes), axis=1).astype("<u8")
    return pairs.view(np.uint8).reshape(-1, 16)


def _v2_0_page(records: _Records) -> tuple[list[object], str, bytes]:
    pb = encodings_v2_0_pb2
    buffer = pb.Buffer(buffer_index=0)
    number = pb.ArrayEncoding(flat=pb.Flat(bits_per_value=64, buffer=buffer))
    member = pb.ArrayEncoding(nullable=pb.Nullable(no_nulls=pb.Nullable.NoNulls(values=number)))
    packed = pb.PackedStruct(inner=[member, member], buffer=buffer)
    encoding = pb.ArrayEncoding(packed_struct=packed)
    return [_pairs(records)], ARRAY_ENCODING_URL, encoding.SerializeToString()


def _v1_page(
    name: str, records: _Records, *, large_chunks: bool
) -> tuple[list[object], str, bytes]:
    pb = encodings_v2_1_pb2
    packed = pb.PackedStruct(bits_per_value=[64, 64], values=flat(128))
    values = replace(
        flat_chunks(_pairs(records), 128), encoding=pb.CompressiveEncoding(packed_struct=packed)
    )
    column, rows = _leaf(name, records, ALL_VALID_ITEM, definition=None)
    page = encode_mini_block(column, rows, values, None, large_chunks=large_chunks)
    assert page is not None, "chunks of records are small"
    layer = NULLABLE_ITEM if records.is_null.any() else ALL_VALID_ITEM
    layers = cast("tuple[encodings_v2_1_pb2.RepDefLayer, ...]", (layer,))
    layout = pb.PageLayout(blob_layout=pb.BlobLayout(inner_layout=page.layout, layers=layers))
    return list(page.buffers), PAGE_LAYOUT_URL, layout.SerializeToString()


def _v2_page(name: str, records: _Records) -> tuple[list[object], str, bytes]:
    has_nulls = bool(records.is_null.any())
    column, rows = _leaf(
        name,
        records,
        NULLABLE_ITEM if has_nulls else ALL_VALID_ITEM,
        definition=records.is_null.astype(np.uint8) if has_nulls else None,
    )
    if records.is_null.all():
        page = encode_all_null(column, rows)
    else:
        offsets, content = _v2_records(records)
        page = encode_variable_full_zip(column, rows, offsets, content, _v2_encoding())
    return list(page.buffers), PAGE_LAYOUT_URL, page.layout.SerializeToString()


def _v2_records(records: _Records) -> tuple[NDArray[np.int32], NDArray[np.uint8]]:
    """Descriptors as binaries; nothing for nulls."""
    kept = np.flatnonzero(~records.is_null)
    uris = records.uris
    uris = pa.repeat("", len(kept)) if uris is None else uris.take(pa.array(kept)).fill_null("")
    headers = np.zeros(len(kept), _RECORD)
    uri_bytes = np.asarray(pc.binary_length(uris))
    headers["kind"] = np.where(uri_bytes > 0, EXTERNAL, INLINE)
    headers["position"], headers["size"] = records.positions[kept], records.sizes[kept]
    headers["uri_bytes"] = uri_bytes
    plain = pa.Array.from_buffers(
        pa.binary(_RECORD.itemsize), len(kept), [None, pa.py_buffer(headers.view(np.uint8))]
    )
    whole = pc.binary_join_element_wise(
        plain.cast(pa.binary()), uris.cast(pa.binary()), pa.scalar(b"", pa.binary())
    )
    lengths = np.zeros(len(records.sizes), np.int64)
    lengths[kept] = _RECORD.itemsize + uri_bytes
    offsets = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return offsets, np.frombuffer(whole.buffers()[2], np.uint8)[: int(offsets[-1])]


def _leaf(
    name: str, records: _Records, layer: int, *, definition: NDArray[np.uint8] | None
) -> tuple[LeafColumn, LeafValues]:
    count = len(records.sizes)
    column = LeafColumn(name, pa.binary(16), (layer,), 1, {})
    return column, LeafValues(pa.nulls(count), count, count, None, definition, None)


def _v2_encoding() -> encodings_v2_1_pb2.CompressiveEncoding:
    pb = encodings_v2_1_pb2
    part = pb.VariablePackedStruct.FieldEncoding
    fields = [part(value=flat(bits), bits_per_value=bits) for bits in (8, 64, 64, 32)]
    text = pb.CompressiveEncoding(variable=pb.Variable(offsets=flat(32)))
    fields.append(part(value=text, bits_per_length=32))
    return pb.CompressiveEncoding(variable_packed_struct=pb.VariablePackedStruct(fields=fields))


def _blob_column_encoding() -> bytes:
    pb = encodings_v2_0_pb2
    inner = pb.ColumnEncoding(values=pb.Empty())
    return pb.ColumnEncoding(blob=pb.ColumnEncoding.Blob(inner=inner)).SerializeToString()

"""Writer of fields of 2.0 files: one column per node, each of which cuts its own pages.

Source: docs/format/file-format.md, sections 2.3, 5.1 and 5.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.compressive.packed_struct import packed_children
from pyspark_lance.codec.encoding_requests import encoding_request, metadata_texts
from pyspark_lance.codec.leaf_column import storage_type
from pyspark_lance.codec.v2_0.array_encoding import encode_array, encode_list_offsets
from pyspark_lance.codec.v2_0.flat import BufferCollector, bit_width_of, validity_of
from pyspark_lance.codec.v2_0.variable_width import is_large, is_variable_type, value_offsets
from pyspark_lance.datafile import blob_records
from pyspark_lance.datafile.blob_records import (
    RECORD_BYTES,
    BlobRecords,
    concat_records,
    write_blobs,
)
from pyspark_lance.datafile.field_io import ArrayBuffer, FieldWriter
from pyspark_lance.datafile.file_metadata import ARRAY_ENCODING_URL, COLUMN_ENCODING_URL
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.errors import UnsupportedFeatureError
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
        """Write the values, and keep their positions."""
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
        """Do nothing, as records are copies already."""

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


MIN_PAGE_BYTES: Final = 8 * 1024 * 1024
MAX_PAGE_BYTES: Final = 16 * 1024 * 1024
_STRUCT_HEADER: Final = pb.ArrayEncoding(struct=pb.Empty()).SerializeToString()
_USE_NEWER: Final = "write the table with file version 2.1 or 2.2"


def make_v2_0_field_writer(field: Field, sink: PageSink, first_column: int = 0) -> FieldWriter:
    """A writer for a field and everything below.

    ``field``: the field; its arrays are of type ``field.to_arrow().type``. ``first_column``: column
    of the field; those below follow depth first. Raises UnsupportedFeatureError: a type that 2.0
    files cannot hold; nothing has been written.
    """
    return _make_node(field, sink, first_column, "")


def _make_node(field: Field, sink: PageSink, first_column: int, path: str) -> _NodeWriter:
    """A writer for any node; ``path`` names the fields above, for messages."""
    path = f"{path}.{field.name}" if path else field.name
    if field.is_blob and not field.is_blob_v2:
        return V20BlobWriter(field, sink, first_column, path)
    _check_type(field, path)
    if field.is_list:
        return _ListWriter(field, sink, first_column, path)
    if field.is_struct and not field.is_packed:
        return _StructWriter(field, sink, first_column, path)
    return _LeafWriter(field, sink, first_column, path)


class _NodeWriter(FieldWriter, Protocol):
    """A writer of any node of the schema tree."""

    def flush(self, *, page_needed: bool = False) -> None:
        """Write the buffered rest.

        ``page_needed``: write an empty page if there is none, because pylance expects one for the
        items of lists that are all empty.
        """


class _LeafWriter:
    """A column of values."""

    def __init__(self, field: Field, sink: PageSink, column: int, path: str) -> None:
        self._sink, self._column, self._path = sink, column, path
        data_type = storage_type(field.to_arrow().type)
        # Nulls of no type have no bytes, but work is done for each of them.
        self._pending = _PendingRows(len) if pa.types.is_null(data_type) else _PendingRows()
        self._request = encoding_request(metadata_texts(field.to_arrow()), path, data_type, "2.0")
        if self._request.compression == "fsst" and is_large(data_type):
            # pylance reads 32-bit offsets only, and cannot write such a column itself.
            raise _refusal(path, f"a {data_type} as fsst")
        self._empty = pa.nulls(0, data_type)
        self._has_pages = False
        self.num_columns = 1
        self.column_of = {field.id: column}

    @property
    def buffered_bytes(self) -> int:
        """Bytes of the rows that wait for their page."""
        return self._pending.num_bytes

    def write(self, array: pa.Array) -> None:
        """Append values."""
        if pa.types.is_struct(array.type):
            if array.null_count:
                raise _refusal(self._path, "a null struct")
            packed_children(array, None, self._path)
        self._pending.add(array)
        if self._pending.num_bytes >= MIN_PAGE_BYTES:
            self.flush()

    def own(self) -> None:
        """Copy buffered arrays."""
        self._pending.own()

    def flush(self, *, page_needed: bool = False) -> None:
        """Write the values that wait, as pages."""
        for page in self._pending.take_pages():
            self._write_page(page)
        if page_needed and not self._has_pages:
            self._write_page(self._empty)

    def _write_page(self, values: pa.Array) -> None:
        collector = BufferCollector()
        encoding = encode_array(values, collector, self._request)
        _write_page(self._sink, self._column, collector, encoding, len(values))
        self._has_pages = True


class _StructWriter:
    """A struct whose children have columns; its own only counts the rows."""

    def __init__(self, field: Field, sink: PageSink, column: int, path: str) -> None:
        self._sink, self._column, self._path = sink, column, path
        self._num_rows = 0
        self._has_pages = False
        self.column_of = {field.id: column}
        self._children: list[_NodeWriter] = []
        for child in field.children:
            writer = _make_node(child, sink, column + len(self.column_of), path)
            self._children.append(writer)
            self.column_of |= writer.column_of
        self.num_columns = 1 + sum(child.num_columns for child in self._children)

    @property
    def buffered_bytes(self) -> int:
        """Those of the children."""
        return sum(child.buffered_bytes for child in self._children)

    def write(self, array: pa.Array) -> None:
        """Write the children."""
        if array.null_count:
            raise _refusal(self._path, "a null struct")
        self._num_rows += len(array)
        for index, child in enumerate(self._children):
            child.write(array.field(index))

    def own(self) -> None:
        """Copy buffered arrays."""
        for child in self._children:
            child.own()

    def flush(self, *, page_needed: bool = False) -> None:
        """Write the header page and the buffered rows of the children."""
        if self._num_rows or (page_needed and not self._has_pages):
            self._sink.write_page(
                self._column, [], ARRAY_ENCODING_URL, _STRUCT_HEADER, num_rows=self._num_rows
            )
            self._num_rows, self._has_pages = 0, True
        for child in self._children:
            child.flush(page_needed=page_needed)


class _ListWriter:
    """Lists: end positions in one column, the items in the next ones."""

    def __init__(self, field: Field, sink: PageSink, column: int, path: str) -> None:
        self._sink, self._column = sink, column
        self._items = _make_node(field.children[0], sink, column + 1, path)
        self._has_pages = False
        self._is_large = field.is_large_list
        self._pending = _PendingRows()
        self.num_columns = 1 + self._items.num_columns
        self.column_of = {field.id: column} | self._items.column_of

    @property
    def buffered_bytes(self) -> int:
        """Those of the offsets and of the items."""
        return self._pending.num_bytes + self._items.buffered_bytes

    def write(self, array: pa.Array) -> None:
        """Append lists; drop items of null lists."""
        offsets = value_offsets(array).astype(np.int64)
        validity = validity_of(array)
        lengths = np.diff(offsets)
        if validity is not None and bool(lengths[~validity].any()):
            items = array.flatten()
            lengths = np.where(validity, lengths, 0)
        else:
            items = array.values[int(offsets[0]) : int(offsets[-1])]
        self._items.write(items)
        self._pending.add(_bare_lists(lengths, validity))
        if self._pending.num_bytes >= MIN_PAGE_BYTES:
            self._flush_offsets()

    def own(self) -> None:
        """Copy buffered arrays."""
        self._pending.own()
        self._items.own()

    def flush(self, *, page_needed: bool = False) -> None:
        """Write the offsets that wait, and the items."""
        self._flush_offsets()
        if page_needed and not self._has_pages:
            self._write_page(_bare_lists(np.zeros(0, np.int64), None))
        self._items.flush(page_needed=self._has_pages)

    def _flush_offsets(self) -> None:
        for page in self._pending.take_pages():
            self._write_page(page)

    def _write_page(self, lists: pa.Array) -> None:
        collector = BufferCollector()
        encoding = encode_list_offsets(lists, collector)
        _write_page(self._sink, self._column, collector, encoding, len(lists))
        self._has_pages = True


class _PendingRows:
    """Rows that wait for a page to fill."""

    def __init__(self, bytes_of: Callable[[pa.Array], int] = attrgetter("nbytes")) -> None:
        self._held = ArrayBuffer()
        self._bytes_of = bytes_of
        self.num_bytes = 0

    def add(self, array: pa.Array) -> None:
        """Keep rows; they are referenced, not copied."""
        if len(array):
            self._held.add(array)
            self.num_bytes += self._bytes_of(array)

    def own(self) -> None:
        """Copy the rows."""
        self._held.own()

    def take_pages(self) -> Iterator[pa.Array]:
        """The rows, cut so that none but single rows is larger than a page should be."""
        arrays, self.num_bytes = self._held.take(), 0
        for joined in _join_arrays(arrays):
            yield from _cut(joined, self._bytes_of)


def _join_arrays(arrays: Sequence[pa.Array]) -> Iterator[pa.Array]:
    """Join to one array if possible; dictionaries may be too large for their common index type."""
    if len(arrays) == 1:
        yield arrays[0]
        return
    if not arrays:
        return
    try:
        yield pa.concat_arrays(arrays)
    except pa.ArrowException:
        yield from arrays


def _cut(array: pa.Array, bytes_of: Callable[[pa.Array], int]) -> Iterator[pa.Array]:
    parts = min(-(-bytes_of(array) // MAX_PAGE_BYTES), len(array))
    if parts <= 1:
        yield array
        return
    rows = -(-len(array) // parts)
    for start in range(0, len(array), rows):
        # Rows may differ in size, so a part may still be too large.
        yield from _cut(array[start : start + rows], bytes_of)


def _bare_lists(lengths: NDArray[np.int64], validity: NDArray[np.bool_] | None) -> pa.Array:
    """Lists of the given lengths whose items are nulls, which take no memory."""
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    bitmap = None
    if validity is not None:
        bitmap = pa.py_buffer(np.packbits(validity, bitorder="little"))
    items = pa.nulls(int(offsets[-1]))
    return pa.Array.from_buffers(
        pa.large_list(pa.null()), len(lengths), [bitmap, pa.py_buffer(offsets)], children=[items]
    )


def _write_page(
    sink: PageSink, column: int, collector: BufferCollector, encoding: pb.ArrayEncoding, rows: int
) -> None:
    sink.write_page(
        column, collector.buffers, ARRAY_ENCODING_URL, encoding.SerializeToString(), num_rows=rows
    )


def _check_type(field: Field, path: str) -> None:
    """Reject whatever the schema alone shows to be unsupported."""
    if field.is_blob:
        raise _refusal(path, "a blob of the second kind")
    if field.is_map:
        raise _refusal(path, "a map")
    if field.is_list or field.is_struct:
        return
    data_type = field.to_arrow().type
    if field.is_fixed_size_list and (field.children or not bit_width_of(data_type)):
        raise _refusal(path, f"a {data_type}")
    value_type = data_type.value_type if pa.types.is_dictionary(data_type) else data_type
    storable = bit_width_of(value_type) or is_variable_type(value_type)
    if not storable and not pa.types.is_null(value_type):
        raise _refusal(path, f"a {data_type}")


def _refusal(path: str, what: str) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"{what} cannot be written to a 2.0 file", where=f"column {path}", hint=_USE_NEWER
    )

"""Reader of fields of 2.0 files: every node of the schema has a column.

A node is a leaf, a packed struct, a struct, a list or a blob. A list names ranges of its items,
which are values of the next column; so a range of rows becomes ranges further down, and columns may
have unrelated page boundaries.

``ColumnPages`` locates values in the pages of one column, and keeps the decoders of the last few
pages.

Source: docs/format/file-format.md, sections 2.3, 5.1 and 5.2.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import concat_arrays
from pyspark_lance.codec.decode_memory import (
    BatchTooLargeError,
    charge_decode_memory,
    require_decode_memory,
)
from pyspark_lance.codec.row_selection import RowRanges, take_values
from pyspark_lance.codec.v2_0.array_encoding import (
    ListOffsetsDecoder,
    estimate_value_bytes,
    make_decoder,
    make_list_decoder,
    parse_array_encoding,
)
from pyspark_lance.codec.v2_0.dictionary import PlainDictionaryDecoder
from pyspark_lance.codec.v2_0.flat import ArrayDecoder, BufferSlice, bit_width_of
from pyspark_lance.codec.v2_0.variable_width import BinaryDecoder, Ends, FsstDecoder, variable_array
from pyspark_lance.codec.values import is_variable_width
from pyspark_lance.datafile.blob_values import locate_blobs
from pyspark_lance.datafile.file_metadata import ARRAY_ENCODING_URL, PageInfo
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.read_plan import PageStarts
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import is_blob_descriptor, is_located
from pyspark_lance.plain_values import plain_array
from pyspark_lance.proto import encodings_v2_0_pb2 as pb
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ByteRange

# What lies between two wanted ranges is read with them if it takes fewer bytes.
_MAX_GAP_BYTES: Final = 64 * 1024


def split_at_gaps(rows: RowRanges, row_bytes: int) -> Iterator[RowRanges]:
    """Groups of ranges with little between neighbours.

    ``rows``: the requested rows; may have no ranges. ``row_bytes``: bytes of a row, at least 1.
    """
    max_gap = _MAX_GAP_BYTES // row_bytes
    cuts = np.flatnonzero(rows.starts[1:] - rows.ends[:-1] > max_gap) + 1
    for first, last in pairwise([0, *cuts.tolist(), len(rows.starts)]):
        if first < last:
            yield RowRanges(rows.starts[first:last], rows.ends[first:last])


def read_coalesced(
    read: Callable[[int, int], pa.Array], rows: RowRanges, row_bytes: int
) -> pa.Array:
    """The rows as one array, of ``read(start, end)`` of groups of near ranges."""
    arrays = []
    for near in split_at_gaps(rows, row_bytes):
        array = read(near.start, near.end)
        arrays.append(array if near.is_single else take_rows(array, near, near.start))
    return concat_arrays(arrays)


def take_rows(array: pa.Array, rows: RowRanges, first: int) -> pa.Array:
    """The rows out of an array whose first value is row ``first``."""
    return take_values(array, plain_array(rows.to_positions() - first))


_INT32_MAX = (1 << 31) - 1
_SAMPLED_PAGES = 8
_BLOB_DESCRIPTION = pa.struct([("position", pa.uint64()), ("size", pa.uint64())])
_BITS_PER_BYTE = 8


class NodeReader(Protocol):
    """A reader of any node; ``start`` and ``end`` count its own values."""

    num_values: int

    def state_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges that ``byte_ranges(start, end)`` needs first."""

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges that ``read(start, end)`` reads, as far as known."""

    def read(self, start: int, end: int) -> pa.Array:
        """The values."""

    def read_rows(self, rows: RowRanges) -> pa.Array:
        """The values of all ranges, of which there is at least one."""

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one value, at least 1."""


def make_node(file: OpenFile, field: Field, column_of: Mapping[int, int]) -> NodeReader:
    """A reader for a field and everything below."""
    column = column_of.get(field.id, -1)
    if column < 0:
        raise CorruptFileError(
            f"field {field.name!r} (id {field.id}) has no column in this file", where=file.uri
        )
    if field.is_map or (field.is_fixed_size_list and field.children):
        raise UnsupportedFeatureError(
            f"column {field.name!r} of type {field.logical_type} cannot be in a 2.0 file",
            where=file.uri,
        )
    if _is_blob_column(file, column):
        return _BlobReader(file, field, column)
    if field.is_list:
        if len(field.children) != 1:
            raise CorruptFileError(
                f"list {field.name!r} (id {field.id}) has {len(field.children)} kinds of items",
                where=file.uri,
            )
        return _ListReader(file, field, column, make_node(file, field.children[0], column_of))
    if not field.is_struct:
        return LeafReader(file, field.to_arrow().type, column)
    stored_apart = all(child.id in column_of for child in field.children)
    if is_packed_column(file, column, field) or not stored_apart:
        return _PackedReader(file, field, column)
    children = [make_node(file, child, column_of) for child in field.children]
    return _StructReader(file, field, column, children)


class LeafReader:
    """A column of values."""

    def __init__(self, file: OpenFile, data_type: pa.DataType, column: int) -> None:
        self._data_type = data_type

        def make(encoding: pb.ArrayEncoding, count: int, buffers: FileBuffers) -> ArrayDecoder:
            return make_decoder(encoding, data_type, count, buffers)

        self._pages = ColumnPages(file, column, make)
        self.num_values = self._pages.num_values
        self._row_bytes: int | None = None
        self._is_local = isinstance(file.store, LocalStore)
        self._page_starts = PageStarts.of_lengths([page.num_rows for page in self._pages.pages])

    def state_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges of the offsets of the first and the last string of every page."""
        ranges: list[ByteRange] = []
        for part in self._pages.locate(start, end):
            with self._pages.errors_of(part.page):
                decoder = self._pages.decoder(part.page)
                if isinstance(decoder, BinaryDecoder | FsstDecoder):
                    pieces = decoder.end_slices(part.start, part.end)
                    ranges += self._pages.slice_ranges(part.page, pieces)
        return ranges

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """The requested slices of the pages."""
        ranges: list[ByteRange] = []
        for part in self._pages.locate(start, end):
            with self._pages.errors_of(part.page):
                decoder = self._pages.decoder(part.page)
                wider = self._align(part)
                if isinstance(decoder, BinaryDecoder | FsstDecoder):
                    pieces = decoder.all_slices(wider.start, wider.end)
                else:
                    pieces = decoder.slices(wider.start, wider.end)
                ranges += self._pages.slice_ranges(part.page, pieces)
        return ranges

    def read(self, start: int, end: int) -> pa.Array:
        """The values, page by page."""
        require_decode_memory((end - start) * bit_width_of(self._data_type) // _BITS_PER_BYTE)
        arrays = []
        for part in self._pages.locate(start, end):
            with self._pages.errors_of(part.page):
                wider = self._align(part)
                array = self._pages.ahead(wider).decode(wider.start, wider.end)
                arrays.append(charge_decode_memory(_cut_front(array, part.start - wider.start)))
        return _concat(arrays, self._data_type)

    def read_rows(self, rows: RowRanges) -> pa.Array:
        """Read near rows together; in a mapped file, views and indices cost nothing."""
        if not self._is_local:
            return read_coalesced(self.read, rows, self.average_row_bytes())
        self._pages.locate(rows.start, rows.end)
        return concat_arrays(
            [self._read_in_page(page, within) for page, within in self._page_starts.split(rows)]
        )

    def _read_in_page(self, page: int, rows: RowRanges) -> pa.Array:
        with self._pages.errors_of(page):
            decoder = self._pages.decoder(page)
            start = self._align(PageRange(page, rows.start, rows.end)).start
            if isinstance(decoder, PlainDictionaryDecoder):
                return decoder.decode_rows(start, rows.end, rows.to_positions() - start)
            if bit_width_of(self._data_type) and not pa.types.is_struct(self._data_type):
                return take_rows(decoder.decode(start, rows.end), rows, start)
        first = int(self._page_starts.starts[page])

        def read(start: int, end: int) -> pa.Array:
            return self.read(first + start, first + end)

        return read_coalesced(read, rows, self.average_row_bytes())

    def average_row_bytes(self) -> int:
        """Estimate by type, or by the descriptions of some pages and the stored bytes of all."""
        if self._row_bytes is None:
            self._row_bytes = self._estimate_row_bytes()
        return self._row_bytes

    def _estimate_row_bytes(self) -> int:
        bits = bit_width_of(self._data_type)
        if bits:
            return max(bits // _BITS_PER_BYTE, 1)
        pages = self._pages.pages
        stored = max((page.num_bytes // max(page.num_rows, 1) for page in pages), default=1)
        estimate = 0.0
        for number, page in enumerate(pages[:_SAMPLED_PAGES]):
            with self._pages.errors_of(number):
                encoding = self._pages.encoding(number)
            estimate = max(estimate, estimate_value_bytes(encoding, self._data_type, page.num_rows))
        return max(stored, int(estimate), 1)

    def _align(self, part: PageRange) -> PageRange:
        """The range itself, or from the last whole byte of bits on."""
        if self._pages.decoder(part.page).has_bits:
            return part._replace(start=part.start - part.start % _BITS_PER_BYTE)
        return part


class _PackedReader:
    """A struct stored as records in one column; unrequested children are dropped."""

    def __init__(self, file: OpenFile, field: Field, column: int) -> None:
        stored = _stored_field(file, field)
        names = [child.id for child in stored.children]
        self._wanted = [names.index(child.id) for child in field.children]
        self._type = field.to_arrow().type
        self._records = LeafReader(file, stored.to_arrow().type, column)
        self.num_values = self._records.num_values

    def state_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return no ranges."""
        return []

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Whole records."""
        return self._records.byte_ranges(start, end)

    def read(self, start: int, end: int) -> pa.Array:
        """The requested children of the records."""
        records = self._records.read(start, end)
        children = [records.field(index) for index in self._wanted]
        return pa.Array.from_buffers(self._type, end - start, [None], children=children)

    def read_rows(self, rows: RowRanges) -> pa.Array:
        """Read near rows together."""
        return read_coalesced(self.read, rows, self.average_row_bytes())

    def average_row_bytes(self) -> int:
        """Bytes of a whole record."""
        return self._records.average_row_bytes()


class _StructReader:
    """A struct whose children have columns; its own has only the number of rows."""

    def __init__(
        self, file: OpenFile, field: Field, column: int, children: list[NodeReader]
    ) -> None:
        self._type, self._children = field.to_arrow().type, children
        self.num_values = file.metadata.column(column).num_rows

    def state_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges of the children."""
        return [
            byte_range for child in self._children for byte_range in child.state_ranges(start, end)
        ]

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges of the children."""
        return [
            byte_range for child in self._children for byte_range in child.byte_ranges(start, end)
        ]

    def read(self, start: int, end: int) -> pa.Array:
        """The children, side by side; there are no null structs."""
        children = [child.read(start, end) for child in self._children]
        return pa.Array.from_buffers(self._type, end - start, [None], children=children)

    def read_rows(self, rows: RowRanges) -> pa.Array:
        """The children, each in the way that suits it."""
        children = [child.read_rows(rows) for child in self._children]
        return pa.Array.from_buffers(self._type, rows.num_rows, [None], children=children)

    def average_row_bytes(self) -> int:
        """The sum over the children."""
        return max(sum(child.average_row_bytes() for child in self._children), 1)


class _ListReader:
    """Lists: end positions in one column, items in the next ones."""

    def __init__(self, file: OpenFile, field: Field, column: int, items: NodeReader) -> None:
        self._type, self._items = field.to_arrow().type, items
        self._is_large = field.is_large_list

        def make(
            encoding: pb.ArrayEncoding, count: int, buffers: FileBuffers
        ) -> ListOffsetsDecoder:
            return make_list_decoder(encoding, count, buffers)

        self._pages: ColumnPages[ListOffsetsDecoder] = ColumnPages(file, column, make)
        self.num_values = self._pages.num_values
        self._bases: NDArray[np.int64] | None = None

    def state_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges of the first and last list offsets of every page, without items."""
        ranges: list[ByteRange] = []
        for part in self._pages.locate(start, end):
            with self._pages.errors_of(part.page):
                pieces = self._pages.decoder(part.page).end_slices(part.start, part.end)
                ranges += self._pages.slice_ranges(part.page, pieces)
        return ranges

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """The offsets, and the items between the first and the last of them."""
        ranges: list[ByteRange] = []
        for part in self._pages.locate(start, end):
            with self._pages.errors_of(part.page):
                decoder = self._pages.decoder(part.page)
                ranges += self._pages.slice_ranges(part.page, decoder.slices(part.start, part.end))
                first, last = decoder.span(part.start, part.end)
            base, _ = self._item_range(part.page)
            ranges += self._items.byte_ranges(base + first, base + last)
        return ranges

    def read(self, start: int, end: int) -> pa.Array:
        """Lists over exactly their items."""
        arrays = []
        for part in self._pages.locate(start, end):
            with self._pages.errors_of(part.page):
                ends = self._pages.ahead(part).decode(part.start, part.end)
            base, _ = self._item_range(part.page)
            first, last = int(ends.offsets[0]), int(ends.offsets[-1])
            items = self._items.read(base + first, base + last)
            arrays.append(self._lists(ends, items))
        return _concat(arrays, self._type)

    def read_rows(self, rows: RowRanges) -> pa.Array:
        """Read near rows together."""
        return read_coalesced(self.read, rows, self.average_row_bytes())

    def average_row_bytes(self) -> int:
        """Offsets, and as many items as a list has on average."""
        per_list = self._items.num_values / max(self.num_values, 1)
        return int(8 + per_list * self._items.average_row_bytes())

    def _lists(self, ends: Ends, items: pa.Array) -> pa.Array:
        offsets = ends.offsets - ends.offsets[0]
        if not self._is_large:
            if int(offsets[-1]) > _INT32_MAX:
                raise BatchTooLargeError
            offsets = offsets.astype(np.int32)
        bitmap = None
        if ends.validity is not None:
            bitmap = pa.py_buffer(np.packbits(ends.validity, bitorder="little"))
        return pa.Array.from_buffers(
            self._type, len(offsets) - 1, [bitmap, pa.py_buffer(offsets)], children=[items]
        )

    def _item_range(self, page: int) -> tuple[int, int]:
        """The values of the item column that belong to a page."""
        if self._bases is None:
            counts = []
            for number in range(len(self._pages.pages)):
                with self._pages.errors_of(number):
                    counts.append(self._pages.encoding(number).list.num_items)
            if sum(counts) > self._items.num_values:
                with self._pages.errors_of(page):
                    raise CorruptFileError(
                        f"the lists have {sum(counts)} items, {self._items.num_values} are stored"
                    )
            self._bases = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        return int(self._bases[page]), int(self._bases[page + 1])


class _BlobReader:
    """A column of (position, size) pairs that point to the values elsewhere in the file."""

    def __init__(self, file: OpenFile, field: Field, column: int) -> None:
        self._file, self._type = file, field.to_arrow().type
        self._wants_descriptors, self._wants_file = is_blob_descriptor(field), is_located(field)
        if not self._wants_descriptors and not is_variable_width(self._type):
            raise CorruptFileError(f"column {column} holds blobs, but its type is {self._type}")
        self._descriptors = LeafReader(file, _BLOB_DESCRIPTION, column)
        self.num_values = self._descriptors.num_values

    def state_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return no ranges."""
        return []

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """The pairs; the values are known only after reading them."""
        return self._descriptors.byte_ranges(start, end)

    def read(self, start: int, end: int) -> pa.Array:
        """The values themselves, or where they are."""
        descriptors = self._descriptors.read(start, end)
        positions, sizes = (np.asarray(descriptors.field(index)) for index in (0, 1))
        # A null is (1, 0), an empty value (0, 0).
        is_null = (sizes == 0) & (positions != 0)
        if self._wants_descriptors:
            positions = np.where(is_null, 0, positions)
            descriptors = pa.StructArray.from_arrays(
                [pa.array(positions), pa.array(sizes)], ["position", "size"], mask=pa.array(is_null)
            )
            if self._wants_file:
                descriptors = locate_blobs(self._file, descriptors)
            return pa.StructArray.from_arrays(
                [pc.struct_field(descriptors, member.name) for member in self._type],
                fields=list(self._type),
                mask=pa.array(is_null),
            )
        self._check(positions, sizes)
        require_decode_memory(int(sizes.sum()))
        offsets = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        stored = np.flatnonzero(sizes)
        ends = positions[stored] + sizes[stored]
        wanted = map(ByteRange, positions[stored].tolist(), ends.tolist())
        data = pa.py_buffer(b"".join(self._file.fetch(list(wanted))))
        ends_and_nulls = Ends(offsets, ~is_null if is_null.any() else None)
        return charge_decode_memory(variable_array(self._type, ends_and_nulls, data))

    def read_rows(self, rows: RowRanges) -> pa.Array:
        """Read near rows together."""
        return read_coalesced(self.read, rows, self.average_row_bytes())

    def average_row_bytes(self) -> int:
        """The values may take the whole file."""
        if self._wants_descriptors:
            return self._descriptors.average_row_bytes()
        return max(self._file.metadata.file_size // max(self.num_values, 1), 16)

    def _check(self, positions: NDArray[np.uint64], sizes: NDArray[np.uint64]) -> None:
        """Check that all values are inside the file, and in sum not larger than it."""
        limit = np.uint64(self._file.metadata.file_size)
        inside = (sizes <= limit) & (positions <= limit - np.minimum(sizes, limit))
        if not inside.all() or float(sizes.sum(dtype=np.float64)) > float(limit):
            raise CorruptFileError(
                f"blob values lie outside of the file's {limit} bytes", where=self._file.uri
            )


def _concat(arrays: list[pa.Array], data_type: pa.DataType) -> pa.Array:
    """Concatenate arrays; copy nothing if there is only one."""
    return concat_arrays(arrays) if arrays else pa.nulls(0, data_type)


def _cut_front(array: pa.Array, count: int) -> pa.Array:
    """The array without its first values."""
    if not count:
        return array
    data_type = array.type
    is_vector = pa.types.is_fixed_size_list(data_type)
    if is_vector and pa.types.is_fixed_size_list(data_type.value_type):
        # pyarrow 26 takes the wrong rows of nested fixed size lists that have an offset.
        return pa.concat_arrays([array[count:]])
    return array[count:]


def _stored_field(file: OpenFile, field: Field) -> Field:
    """The packed struct as it is stored: with all its children."""
    try:
        stored = file.metadata.schema.field_by_id(field.id)
    except LanceError:
        return field
    ids = {child.id for child in stored.children}
    return stored if all(child.id in ids for child in field.children) else field


def _is_blob_column(file: OpenFile, column: int) -> bool:
    info = file.metadata.column(column)
    try:
        encoding = pb.ColumnEncoding.FromString(info.encoding_bytes)
    except DecodeError as error:
        raise CorruptFileError(
            f"the encoding of column {column} is not a readable message", where=file.uri
        ) from error
    if encoding.WhichOneof("column_encoding") == "zone_index":
        encoding = encoding.zone_index.inner
    return bool(encoding.HasField("blob"))


def is_packed_column(file: OpenFile, column: int, field: Field) -> bool:
    """Return whether a column holds packed records, by its first page or its field."""
    pages = file.metadata.column(column).pages
    if _is_blob_column(file, column):
        return False
    if not pages:
        return field.is_packed
    try:
        encoding = pb.ArrayEncoding.FromString(pages[0].encoding_bytes)
    except DecodeError as error:
        raise CorruptFileError(
            f"the page encoding of column {column} is not a readable message", where=file.uri
        ) from error
    return bool(encoding.HasField("packed_struct"))


class V20FieldReader:
    """Reader of one field of a 2.0 file."""

    def __init__(self, node: NodeReader) -> None:
        self._node = node
        self._row_bytes = node.average_row_bytes()

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``row_byte_ranges`` needs first: offsets of strings and lists."""
        near = split_at_gaps(rows, self._row_bytes)
        return [p for part in near for p in self._node.state_ranges(part.start, part.end)]

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges that ``read(start, end)`` reads."""
        return self._node.byte_ranges(start, end)

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``read_arrays`` reads."""
        near = split_at_gaps(rows, self._row_bytes)
        return [p for part in near for p in self._node.byte_ranges(part.start, part.end)]

    def read(self, start: int, end: int) -> pa.Array:
        """The rows ``start`` to ``end`` as one array."""
        return self._node.read(start, end)

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The rows of all ranges, in order, as one array."""
        if not len(rows.starts):
            return []
        if rows.is_single:
            return [self._node.read(rows.start, rows.end)]
        return [self._node.read_rows(rows)]

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1."""
        return self._row_bytes

    def retained_bytes(self) -> int | None:
        """Return None: pages may cache what they have read."""
        return None


def make_v2_0_field_reader(
    file: OpenFile, field: Field, column_of: Mapping[int, int]
) -> V20FieldReader:
    """A reader for a field and everything below.

    ``file``: a 2.0 file. ``field``: the requested field; its children may be fewer than are stored.
    ``column_of``: field id -> physical column.
    """
    return V20FieldReader(make_node(file, field, column_of))


def v2_0_columns(file: OpenFile, fields: Iterable[Field]) -> dict[int, int]:
    """Field id -> column of a file that no manifest describes: depth first.

    A struct counts as packed if its column is stored so; metadata count only if it has no pages.
    """
    columns: dict[int, int] = {}

    def assign(field: Field) -> None:
        column = columns[field.id] = len(columns)
        if not is_packed_column(file, column, field):
            for child in field.children:
                assign(child)

    for field in fields:
        assign(field)
    return columns


# Decoders keep decompressed buffers and dictionaries, so only a few are kept.
_KEPT_DECODERS = 4
_MAX_COLUMN_VALUES = 1 << 60


class PageDecoder(Protocol):
    """Interface of page decoders."""

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices that decoding the values ``start`` to ``end`` reads."""


_D = TypeVar("_D", bound=PageDecoder)


class PageRange(NamedTuple):
    """Values ``start`` to ``end`` of page number ``page``."""

    page: int
    start: int
    end: int


class FileBuffers:
    """The buffers of a page as slices of the file.

    Prefetched bytes are returned once, so that the buffers of a page share a request.
    """

    def __init__(self, file: OpenFile, page: PageInfo) -> None:
        self._file, self._page = file, page
        self._ahead: dict[BufferSlice, pa.Buffer] = {}

    def size(self, index: int) -> int:
        """Length of a buffer."""
        if index >= len(self._page.buffers):
            raise CorruptFileError(
                f"page buffer {index} is wanted, the page has {len(self._page.buffers)}"
            )
        return self._page.buffers[index].num_bytes

    def read(self, wanted: BufferSlice) -> pa.Buffer:
        """The bytes of a slice, a view where the store has one."""
        buffer = self._ahead.pop(wanted, None)
        if buffer is None:
            buffer = pa.py_buffer(self._file.fetch([self.byte_range(wanted)])[0])
        return buffer

    def byte_range(self, wanted: BufferSlice) -> ByteRange:
        """Return the byte range of a slice in the file."""
        if not 0 <= wanted.start <= wanted.end <= self.size(wanted.buffer):
            raise CorruptFileError(
                f"bytes {wanted.start}..{wanted.end} of page buffer {wanted.buffer} are wanted, "
                f"it has {self.size(wanted.buffer)}"
            )
        start = self._page.buffers[wanted.buffer].start
        return ByteRange(start + wanted.start, start + wanted.end)

    def fetch_ahead(self, wanted: Sequence[BufferSlice]) -> None:
        """Read several slices with one request; they replace those prefetched before."""
        answers = self._file.fetch([self.byte_range(piece) for piece in wanted])
        self._ahead = {
            piece: pa.py_buffer(answer) for piece, answer in zip(wanted, answers, strict=True)
        }


DecoderFactory = Callable[[pb.ArrayEncoding, int, FileBuffers], _D]


class ColumnPages(Generic[_D]):
    """One column, read in ranges of its values."""

    def __init__(self, file: OpenFile, column: int, make_decoder: DecoderFactory[_D]) -> None:
        self._file, self._column, self._make_decoder = file, column, make_decoder
        self.pages = file.metadata.column(column).pages
        lengths = [page.num_rows for page in self.pages]
        if sum(lengths) > _MAX_COLUMN_VALUES:
            raise CorruptFileError(f"column {column} counts {sum(lengths)} values", where=file.uri)
        self._starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._starts[1:])
        self.num_values = int(self._starts[-1])
        self._decoders: OrderedDict[int, tuple[_D, FileBuffers]] = OrderedDict()

    def locate(self, start: int, end: int) -> list[PageRange]:
        """The pages that hold the values ``start`` to ``end``."""
        if end > self.num_values:
            raise CorruptFileError(
                f"column {self._column} has {self.num_values} values, {end} are expected",
                where=self._file.uri,
            )
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        ranges = []
        for page in range(first, len(self.pages)):
            base = int(self._starts[page])
            if base >= end:
                break
            stop = min(end - base, self.pages[page].num_rows)
            begin = max(start - base, 0)
            if begin < stop:
                ranges.append(PageRange(page, begin, stop))
        return ranges

    def decoder(self, page: int) -> _D:
        """The decoder of a page."""
        return self._open(page)[0]

    def ahead(self, part: PageRange) -> _D:
        """The decoder of a page, with what decoding the range reads fetched by one request."""
        decoder, buffers = self._open(part.page)
        buffers.fetch_ahead(decoder.slices(part.start, part.end))
        return decoder

    def slice_ranges(self, page: int, pieces: Sequence[BufferSlice]) -> list[ByteRange]:
        """Return the byte ranges of slices of a page."""
        buffers = self._open(page)[1]
        return [buffers.byte_range(piece) for piece in pieces]

    def encoding(self, page: int) -> pb.ArrayEncoding:
        """The encoding tree of a page."""
        info = self.pages[page]
        if info.encoding_type_url != ARRAY_ENCODING_URL:
            raise UnsupportedFeatureError(
                f"pages of a 2.0 file have the encoding {ARRAY_ENCODING_URL}, "
                f"found {info.encoding_type_url!r}"
            )
        return parse_array_encoding(info.encoding_bytes)

    @contextmanager
    def errors_of(self, page: int) -> Iterator[None]:
        """Add to errors which page they are about."""
        try:
            yield
        except LanceError as error:
            if error.where:
                raise
            raise type(error)(error.what, self._where(page), error.hint) from error
        except pa.ArrowInvalid as error:
            raise CorruptFileError(
                f"the page cannot be decoded: {error}", self._where(page)
            ) from error

    def _open(self, page: int) -> tuple[_D, FileBuffers]:
        opened = self._decoders.get(page)
        if opened is None:
            info = self.pages[page]
            buffers = FileBuffers(self._file, info)
            opened = self._make_decoder(self.encoding(page), info.num_rows, buffers), buffers
            self._decoders[page] = opened
            if len(self._decoders) > _KEPT_DECODERS:
                self._decoders.popitem(last=False)
        else:
            self._decoders.move_to_end(page)
        return opened

    def _where(self, page: int) -> str:
        buffers = self.pages[page].buffers
        span = f" bytes {buffers[0].start}..{buffers[-1].end}" if buffers else ""
        return f"{self._file.uri}{span} (column {self._column}, page {page})"

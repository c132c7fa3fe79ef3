"""Reader of fields of 2.1 and 2.2 files, where only the leaves of a schema have columns.

Structs, lists and maps are rebuilt from the levels of the leaves below them, leaf first.

``LeafColumnReader`` reads the pages of one column: which rows are in which page, what to fetch, and
the decoding. What a page needs to find rows (metadata words, repetition index, dictionary, symbol
table) is read once and kept while the page is among the most recently used ones.

Source: docs/format/file-format.md, sections 2.3, 6, 6.1, 6.7, 6.8 and 9.1.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import (
    assemble_items,
    assemble_list,
    assemble_rows,
    can_be_kept,
    concat_arrays,
    select_fields,
)
from pyspark_lance.codec.compressive.encoding_record import encoding_kind
from pyspark_lance.codec.decode_memory import charge_decode_memory
from pyspark_lance.codec.levels import Unraveler
from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.codec.structural.mini_block import MiniBlockPage
from pyspark_lance.codec.structural.page_decoder import DecodedRows, PageDecoder, PagePlan
from pyspark_lance.codec.structural.page_layout import (
    estimate_row_bytes,
    make_page_decoder,
    parse_page_layout,
)
from pyspark_lance.codec.values import FixedWidthValues, StructValues, ValuesByReference
from pyspark_lance.datafile.blob_values import (
    EXTERNAL,
    fetch_v1,
    fetch_v2,
    locate_blobs,
    logical_v2,
)
from pyspark_lance.datafile.file_metadata import PAGE_LAYOUT_URL
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.read_plan import PageStarts
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.logical_view import (
    BLOB_V1_DESCRIPTOR,
    BLOB_V2_DESCRIPTOR,
    is_blob_descriptor,
    is_located,
)
from pyspark_lance.store.object_store import Buffer, ByteRange

_KEPT_PAGES = 256
# Of the decoder of a page, beside its arrays.
_DECODER_BYTES = 2048
_SAMPLED_PAGES = 4
_MAX_JOINED_BYTES = 1 << 20
# Pages between those of which rows are wanted, to decode all of these together.
_MAX_SKIPPED = 8
_MAX_JOINS = 4
# What must be decoded for a single row of a page is a chunk of about this size.
_CHUNK_BYTES = 8192
_ERRORS = (
    LanceError, pa.ArrowException, ValueError, IndexError, OverflowError, MemoryError,
)  # fmt: skip
_NO_BYTES = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class PageRead:
    """The requested rows of a page, or of adjacent pages that are decoded together.

    ``page``: number of the (first) page; ``end``: one past the number of the last page.
    """

    page: int
    end: int
    decoder: PageDecoder
    plan: PagePlan
    ranges: tuple[ByteRange, ...]


class LeafColumnReader:
    """Reader of the rows of one column.

    ``slots_per_row``: leaf values per row: more than one below fixed-size lists of structs, where
    pages count these instead of rows.
    """

    def __init__(
        self,
        file: OpenFile,
        column: int,
        name: str,
        data_type: pa.DataType,
        slots_per_row: int,
        *,
        keep_dictionaries: bool = False,
    ) -> None:
        self._file = file
        self._keep_dictionaries = keep_dictionaries
        self._column = column
        self._name = name
        self._data_type = data_type
        self._slots_per_row = slots_per_row
        self._pages = file.metadata.column(column).pages
        file.metadata.require_rows(column, name, slots_per_row)
        self._page_starts = PageStarts.of_lengths([page.num_rows for page in self._pages])
        self._decoders: OrderedDict[int, PageDecoder] = OrderedDict()
        self._loaded: set[int] = set()
        # The decoders of pages that were decoded together lately.
        self._joined: dict[tuple[int, int], MiniBlockPage] = {}

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``load`` fetches for the rows; empty if all are loaded."""
        pages = self._page_starts.pages_of(rows.scale(self._slots_per_row))
        return [
            self._pages[page].buffers[buffer]
            for page in pages
            if page not in self._loaded
            for buffer in self._decoder(page).state_buffers
        ]

    def load(self, rows: RowRanges, buffers: Iterator[NDArray[np.uint8]]) -> None:
        """Load the bytes of ``state_ranges(rows)``."""
        page = 0
        try:
            for page in self._page_starts.pages_of(rows.scale(self._slots_per_row)):
                if page not in self._loaded:
                    decoder = self._decoder(page)
                    decoder.load([next(buffers) for _ in decoder.state_buffers])
                    self._loaded.add(page)
        except _ERRORS as error:
            self._raise_located(error, page)

    def plan(self, rows: RowRanges) -> list[PageRead]:
        """Plan the reads of the rows; call ``load`` first."""
        rows = rows.scale(self._slots_per_row)
        runs = self._runs(rows)
        bounds = sorted({page for run in runs for page in run})
        return [
            self._plan(bounds[number], bounds[number + 1], wanted)
            for number, wanted in self._page_starts.at(bounds).split(rows)
        ]

    def decode(
        self, read: PageRead, pieces: Sequence[NDArray[np.uint8]]
    ) -> tuple[pa.Array, Unraveler]:
        """The rows of one page, or of pages read together, from the bytes of its ranges."""
        try:
            with self.errors_of(read.page):
                decoded = read.decoder.decode(read.plan, pieces)
                if isinstance(decoded.values, ValuesByReference):
                    decoded = _as_records(decoded, decoded.values)
                return assemble_rows(
                    decoded, self._data_type, keep_dictionaries=self._keep_dictionaries
                )
        except LanceError:
            if read.end - read.page > 1:
                self._decode_each(read)  # which of them is it?
            raise

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of a row, from the descriptions of some pages."""
        if not self._pages:
            return 1
        step = -(-len(self._pages) // _SAMPLED_PAGES)
        total = rows = 0.0
        for number in range(0, len(self._pages), step):
            page = self._pages[number]
            with self.errors_of(number):
                layout = parse_page_layout(self._check_encoding(number))
                per_row = estimate_row_bytes(
                    layout, self._data_type, page.num_rows, [r.num_bytes for r in page.buffers]
                )
            total += per_row * page.num_rows
            rows += page.num_rows
        return max(1, int(total / max(rows, 1) * self._slots_per_row))

    def _runs(self, rows: RowRanges) -> list[tuple[int, int]]:
        """The pages that hold the rows: first and end of neighbours that are decoded together.

        These are small and of one kind: decoding costs per page.
        """
        pages = list(self._page_starts.pages_of(rows))
        wanted_bytes = _CHUNK_BYTES * (1 + rows.num_rows // max(1, len(pages)))
        runs: list[tuple[int, int]] = []
        first = end = num_bytes = 0
        kind: object = None
        for page in pages:
            size = self._pages[page].num_bytes
            if not rows.is_single:
                size = min(size, wanted_bytes)
            page_kind = self._kind_of(page)
            num_bytes += size
            if (
                not self._are_joinable(end, page, kind)
                or page_kind != kind
                or num_bytes > _MAX_JOINED_BYTES
            ):
                if first < end:
                    runs.append((first, end))
                first, kind, num_bytes = page, page_kind, size
            end = page + 1
        if first < end:
            runs.append((first, end))
        return runs

    def _are_joinable(self, first: int, end: int, kind: object) -> bool:
        """Return whether the pages [first, end), of which no row is wanted, may be joined, too."""
        between = range(first, end)
        return len(between) <= _MAX_SKIPPED and all(
            page in self._loaded and self._kind_of(page) == kind for page in between
        )

    def _kind_of(self, page: int) -> object:
        """Equal for pages that can be decoded together."""
        decoder = self._decoder(page)
        if not isinstance(decoder, MiniBlockPage):
            return decoder
        if decoder.has_dictionary and pa.types.is_dictionary(self._data_type):
            return decoder  # each page has a dictionary of its own in Arrow, too
        return decoder.kind

    def _plan(self, first: int, end: int, rows: RowRanges) -> PageRead:
        """Plan a read of rows, counted from the first of some pages of one kind."""
        with self.errors_of(first):
            decoder = self._decoder(first)
            if end - first > 1:
                decoder = self._join(first, end)
            plan = decoder.plan(rows)
        ranges = []
        for buffer, start, stop, page in plan.ranges:
            byte_range = self._pages[first + page].buffers[buffer].start
            ranges.append(ByteRange(byte_range + start, byte_range + stop))
        return PageRead(first, end, decoder, plan, tuple(ranges))

    def _join(self, first: int, end: int) -> MiniBlockPage:
        joined = self._joined.get((first, end))
        if joined is None:
            parts = [self._decoder(page) for page in range(first, end)]
            joined = MiniBlockPage.join([one for one in parts if isinstance(one, MiniBlockPage)])
            if len(self._joined) == _MAX_JOINS:
                self._joined.clear()
            self._joined[first, end] = joined
        return joined

    def _decode_each(self, read: PageRead) -> None:
        """Decode the pages of a read one by one, so that an error names its page."""
        starts = self._page_starts.starts[read.page : read.end + 1]
        within = PageStarts(starts - starts[0])
        for number, rows in within.split(read.plan.rows):
            page = read.page + number
            alone = self._plan(page, page + 1, rows)
            self.decode(alone, [as_array(buffer) for buffer in self._file.fetch(alone.ranges)])

    def _decoder(self, page: int) -> PageDecoder:
        decoder = self._decoders.get(page)
        if decoder is not None:
            self._decoders.move_to_end(page)
            return decoder
        info = self._pages[page]
        with self.errors_of(page):
            decoder = make_page_decoder(
                self._check_encoding(page),
                num_rows=info.num_rows,
                buffer_sizes=[r.num_bytes for r in info.buffers],
            )
        self._decoders[page] = decoder
        return decoder

    def retained_bytes(self) -> int:
        """Approximate memory of cached pages."""
        every = (*self._decoders.values(), *self._joined.values())
        return sum(_DECODER_BYTES + one.state_bytes for one in every)

    def forget_old_pages(self) -> None:
        """Drop the state of pages that were not used for long."""
        while len(self._decoders) > _KEPT_PAGES:
            page, _ = self._decoders.popitem(last=False)
            self._loaded.discard(page)

    def _check_encoding(self, page: int) -> bytes:
        info = self._pages[page]
        if info.encoding_type_url != PAGE_LAYOUT_URL:
            raise UnsupportedFeatureError(
                f"page layout {info.encoding_type_url!r}",
                hint="the file was written by a pre-release or a newer version of Lance",
            )
        return info.encoding_bytes

    @contextlib.contextmanager
    def errors_of(self, page: int) -> Iterator[None]:
        """Add the location to errors of the codec.

        Arrow's and numpy's own complaints mean that bytes slipped through our checks.
        """
        try:
            yield
        except _ERRORS as error:
            self._raise_located(error, page)

    def _raise_located(self, error: Exception, page: int) -> NoReturn:
        if isinstance(error, LanceError) and error.where:
            raise error
        where = self._file.metadata.where_page(self._column, self._name, page)
        if isinstance(error, LanceError):
            raise type(error)(error.what, where, error.hint) from error
        raise CorruptFileError(f"the page cannot be decoded: {error}", where) from error


def as_array(buffer: Buffer) -> NDArray[np.uint8]:
    """A view of the bytes."""
    return np.frombuffer(buffer, np.uint8) if len(buffer) else _NO_BYTES


def _as_records(decoded: DecodedRows, values: ValuesByReference) -> DecodedRows:
    """Values that are stored elsewhere in the file, as the records of their positions."""
    members = tuple(
        FixedWidthValues(values.num_values, 64, np.ascontiguousarray(member).view(np.uint8))
        for member in (values.positions, values.sizes)
    )
    return replace(decoded, values=StructValues(values.num_values, members))


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
        """The blobs of one page; their bytes are fetched on request."""
        descriptors, unraveler = super().decode(read, pieces)
        with self.errors_of(read.page):
            return self._convert(descriptors), unraveler

    def average_row_bytes(self) -> int:
        """Estimate from descriptors, or for bytes from the sizes in the first page that has any."""
        if self._wants_descriptor:
            uri_bytes = len(self._file.uri) if self._wants_file else 0
            return super().average_row_bytes() + uri_bytes
        return max(1, self._stored_bytes())

    def _convert(self, descriptors: pa.StructArray) -> pa.Array:
        if self._wants_descriptor:
            if self._wants_file:
                descriptors = locate_blobs(self._file, descriptors)
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


@dataclass(frozen=True, slots=True)
class _Piece:
    """Some rows of a node, in row order, with the levels left over for its parents."""

    array: pa.Array
    unravelers: tuple[Unraveler, ...]


class _Node(Protocol):
    """One node of the requested field's tree."""

    def leaves(self) -> Iterator[LeafColumnReader]:
        """The columns below, in order."""

    def assemble(self, pieces: Iterator[list[_Piece]]) -> list[_Piece]:
        """The node's rows, from those of its columns, in the order of ``leaves``."""


class V21FieldReader:
    """Reader of one field with all its descendants."""

    def __init__(self, file: OpenFile, field: Field, root: _Node) -> None:
        self._file = file
        self._type = field.to_arrow().type
        self._root = root
        self._leaves = tuple(root.leaves())
        self._row_bytes: int | None = None

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges to read before the rows can be located; empty if they can be."""
        return [byte_range for leaf in self._leaves for byte_range in leaf.state_ranges(rows)]

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges that ``read(start, end)`` fetches."""
        return self.row_byte_ranges(RowRanges.single(start, end)) if start < end else []

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``read_arrays(rows)`` fetches."""
        self._load(rows)
        return [
            byte_range
            for leaf in self._leaves
            for read in leaf.plan(rows)
            for byte_range in read.ranges
        ]

    def read(self, start: int, end: int) -> pa.Array:
        """The top-level rows ``start`` to ``end``."""
        arrays = self.read_arrays(RowRanges.single(start, end)) if start < end else []
        return concat_arrays(arrays) if arrays else pa.nulls(0, self._type)

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The requested rows as consecutive arrays, which spares copying them together."""
        self._load(rows)
        reads = [leaf.plan(rows) for leaf in self._leaves]
        ranges = [byte_range for leaf in reads for read in leaf for byte_range in read.ranges]
        buffers = iter([as_array(buffer) for buffer in self._file.fetch(ranges)])
        columns = (
            [_decode(leaf, read, buffers) for read in leaf_reads]
            for leaf, leaf_reads in zip(self._leaves, reads, strict=True)
        )
        pieces = self._root.assemble(iter(columns))
        num_decoded = sum(len(piece.array) for piece in pieces)
        if num_decoded != rows.num_rows:
            raise CorruptFileError(
                f"{num_decoded} rows were decoded, {rows.num_rows} are wanted", where=self._file.uri
            )
        for piece in pieces:
            for unraveler in piece.unravelers:
                unraveler.require_done()
        for leaf in self._leaves:
            leaf.forget_old_pages()
        return [piece.array for piece in pieces]

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1."""
        if self._row_bytes is None:
            self._row_bytes = max(1, sum(leaf.average_row_bytes() for leaf in self._leaves))
        return self._row_bytes

    def retained_bytes(self) -> int | None:
        """Approximate memory of cached pages."""
        return sum(leaf.retained_bytes() for leaf in self._leaves)

    def _load(self, rows: RowRanges) -> None:
        ranges = [byte_range for leaf in self._leaves for byte_range in leaf.state_ranges(rows)]
        buffers = iter([as_array(buffer) for buffer in self._file.fetch(ranges)] if ranges else [])
        for leaf in self._leaves:
            leaf.load(rows, buffers)


def _decode(
    leaf: LeafColumnReader, read: PageRead, buffers: Iterator[np.typing.NDArray[np.uint8]]
) -> _Piece:
    pieces = [next(buffers) for _ in read.ranges]
    array, unraveler = leaf.decode(read, pieces)
    return _Piece(charge_decode_memory(array), (unraveler,))


class _LeafNode:
    """A column."""

    def __init__(self, column: LeafColumnReader) -> None:
        self._column = column

    def leaves(self) -> Iterator[LeafColumnReader]:
        yield self._column

    def assemble(self, pieces: Iterator[list[_Piece]]) -> list[_Piece]:
        return next(pieces)


class _PackedNode:
    """A struct stored as records in one column; unrequested children are dropped."""

    def __init__(self, records: LeafColumnReader, data_type: pa.DataType, kept: list[int]) -> None:
        self._records = records
        self._type = data_type
        self._kept = kept

    def leaves(self) -> Iterator[LeafColumnReader]:
        yield self._records

    def assemble(self, pieces: Iterator[list[_Piece]]) -> list[_Piece]:
        return [
            _Piece(select_fields(piece.array, self._type, self._kept), piece.unravelers)
            for piece in next(pieces)
        ]


class _ListNode:
    """A list, large list or map."""

    def __init__(self, data_type: pa.DataType, item: _Node) -> None:
        self._type = data_type
        self._item = item

    def leaves(self) -> Iterator[LeafColumnReader]:
        yield from self._item.leaves()

    def assemble(self, pieces: Iterator[list[_Piece]]) -> list[_Piece]:
        return [
            _Piece(assemble_list(self._type, piece.array, piece.unravelers), piece.unravelers)
            for piece in self._item.assemble(pieces)
        ]


class _StructNode:
    """A struct, or a fixed-size list of structs."""

    def __init__(self, data_type: pa.DataType, children: Sequence[_Node], dimension: int) -> None:
        self._type = data_type
        self._children = children
        self._dimension = dimension

    def leaves(self) -> Iterator[LeafColumnReader]:
        for child in self._children:
            yield from child.leaves()

    def assemble(self, pieces: Iterator[list[_Piece]]) -> list[_Piece]:
        columns = [child.assemble(pieces) for child in self._children]
        rows = []
        for parts in _align(columns):
            unravelers = parts[0].unravelers
            if self._dimension > 1:
                for unraveler in unravelers:
                    unraveler.keep_every(self._dimension)
            array = assemble_items(self._type, [part.array for part in parts], unravelers)
            rows.append(_Piece(array, unravelers))
        return rows


def _align(columns: Sequence[list[_Piece]]) -> list[tuple[_Piece, ...]]:
    """Siblings cut at the same rows: as they are, or each joined to one piece."""
    lengths = [[len(piece.array) for piece in column] for column in columns]
    if all(column_lengths == lengths[0] for column_lengths in lengths):
        return list(zip(*columns, strict=True))
    joined = []
    for column in columns:
        unravelers = tuple(unraveler for piece in column for unraveler in piece.unravelers)
        joined.append(_Piece(concat_arrays([piece.array for piece in column]), unravelers))
    return [tuple(joined)]


def make_v2_1_field_reader(
    file: OpenFile, field: Field, column_of: Mapping[int, int], *, keep_dictionaries: bool = False
) -> V21FieldReader:
    """A reader for a field and everything below.

    ``file``: a 2.1 or 2.2 file. ``field``: the requested field; its children may be fewer than are
    stored. ``column_of``: field id -> physical column; only leaves have one. ``keep_dictionaries``:
    if the field is a column of strings, arrays may be dictionaries of them, where they are stored
    so.
    """
    data_type, column = field.to_arrow().type, column_of.get(field.id, -1)
    if keep_dictionaries and can_be_kept(data_type) and column >= 0 and not field.is_blob:
        strings = LeafColumnReader(file, column, field.name, data_type, 1, keep_dictionaries=True)
        return V21FieldReader(file, field, _LeafNode(strings))
    return V21FieldReader(file, field, _make_node(file, field, column_of, field.name, 1))


def _make_node(
    file: OpenFile, field: Field, column_of: Mapping[int, int], name: str, slots: int
) -> _Node:
    data_type = field.to_arrow().type
    column = column_of.get(field.id, -1)
    if column >= 0 and field.is_blob:
        return _LeafNode(BlobColumn(file, column, name, field, slots))
    if column >= 0 and field.is_struct:
        return _make_packed_node(file, field, column, name, slots)
    if column >= 0 and not (field.is_list or field.is_map):
        return _LeafNode(LeafColumnReader(file, column, name, data_type, slots))
    if not field.children:
        if field.is_struct:
            raise UnsupportedFeatureError(
                f"column {name!r} is a struct without fields", where=file.uri
            )
        raise CorruptFileError(
            f"field {name!r} (id {field.id}) has no column in this file", where=file.uri
        )
    dimension = data_type.list_size if field.is_fixed_size_list else 1
    children = [
        _make_node(file, child, column_of, f"{name}.{child.name}", slots * dimension)
        for child in field.children
    ]
    if field.is_list or field.is_map:
        return _ListNode(data_type, children[0])
    return _StructNode(data_type, children, dimension)


def _make_packed_node(
    file: OpenFile, field: Field, column: int, name: str, slots: int
) -> _PackedNode:
    """Create a node that decodes records with all their stored fields."""
    stored = field
    with contextlib.suppress(LanceError):
        stored = file.metadata.schema.field_by_id(field.id)
    ids = [child.id for child in stored.children]
    if not all(child.id in ids for child in field.children):
        stored, ids = field, [child.id for child in field.children]
    records = LeafColumnReader(file, column, name, stored.to_arrow().type, slots)
    kept = [ids.index(child.id) for child in field.children]
    return _PackedNode(records, field.to_arrow().type, kept)


def v2_1_columns(file: OpenFile, fields: Iterable[Field]) -> dict[int, int]:
    """Field id -> column of a file that no manifest describes: leaves, depth first.

    A struct counts as packed if its column is stored so, whatever its metadata request.
    """
    columns: dict[int, int] = {}

    def assign(field: Field, depth: int) -> None:
        column = len(columns)
        if field.children and not (field.is_packed and _is_packed_column(file, column, depth)):
            for child in field.children:
                assign(child, depth + 1)
        elif field.children or field.is_blob or not field.is_struct:
            columns[field.id] = column

    for field in fields:
        assign(field, 1)
    return columns


def _is_packed_column(file: OpenFile, column: int, depth: int) -> bool:
    """Return whether the first page of a column holds packed structs of a struct at that depth."""
    pages = file.metadata.column(column).pages
    if not pages or pages[0].encoding_type_url != PAGE_LAYOUT_URL:
        return True
    layout = parse_page_layout(pages[0].encoding_bytes)
    kind = layout.WhichOneof("layout")
    if kind is None or kind == "sparse_layout":
        return True
    part = getattr(layout, kind)
    if len(part.layers) != depth:
        return False
    if kind in ("mini_block_layout", "full_zip_layout"):
        packed = ("packed_struct", "variable_packed_struct")
        return encoding_kind(part.value_compression) in packed
    return True

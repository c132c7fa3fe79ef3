"""Reader of fields of 0.1 files: a tree of nodes over the pages of batches of rows.

A node is plain, variable-width, a dictionary, a list or a struct. It reads all requested parts of
batches into one array. No validity is stored: an empty string or binary of a nullable field is
null, everything else is valid.

Source: docs/format/file-format.md, sections 10.2 and 10.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.decode_memory import (
    BatchTooLargeError,
    charge_decode_memory,
    require_decode_memory,
)
from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.codec.v2_0.variable_width import Ends, is_variable_type, variable_array
from pyspark_lance.datafile.read_plan import PageStarts
from pyspark_lance.datafile.v0_1.metadata import LegacyFile, PageTable
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.store.object_store import Buffer, ByteRange

_OFFSET_BYTES: Final = 8
_INT32_MAX: Final = (1 << 31) - 1
_ALIGNMENT: Final = 8


class Part(NamedTuple):
    """Values ``start`` to ``end`` of a node, within one batch."""

    batch: int
    start: int
    end: int


class LegacyNode(Protocol):
    """One node of the requested field's tree."""

    def known_ranges(self, parts: Sequence[Part]) -> list[ByteRange]:
        """Return the ranges that reading the parts fetches, as far as the page table has them."""

    def read(self, parts: Sequence[Part]) -> pa.Array:
        """The values of all parts, one after another."""

    def num_bytes(self, part: Part) -> int:
        """Decoded size of a part, roughly."""


def make_legacy_node(file: LegacyFile, pages: PageTable, field: Field) -> LegacyNode:
    """The node of a field, with everything below.

    ``field``: a field of the file; its children may be fewer than are stored.
    """
    if field.is_map or field.is_blob or (field.is_fixed_size_list and field.children):
        raise UnsupportedFeatureError(
            f"column {field.name!r} of type {field.logical_type} cannot be in a 0.1 file",
            where=file.uri,
        )
    data_type = field.to_arrow().type
    if field.is_list:
        return _ListNode(file, pages, field, make_legacy_node(file, pages, field.children[0]))
    if field.is_struct:
        children = [make_legacy_node(file, pages, child) for child in field.children]
        return _StructNode(data_type, children)
    if pa.types.is_dictionary(data_type):
        return _DictionaryNode(file, pages, field)
    if is_variable_type(data_type):
        return _VariableNode(file, pages, field)
    return _PlainNode(file, pages, field.id, data_type)


class _Leaf:
    """Base of nodes with pages of their own."""

    def __init__(self, file: LegacyFile, pages: PageTable, field_id: int) -> None:
        self._file, self._pages, self._field_id = file, pages, field_id

    def _page(self, part: Part, more: int = 0) -> int:
        """Position of the page of a part; checks that the page has so many values."""
        try:
            position, count = self._pages.page(self._field_id, part.batch)
        except CorruptFileError as error:
            raise CorruptFileError(error.what, where=self._file.uri, hint=error.hint) from error
        if part.end + more > count:
            raise CorruptFileError(
                f"{part.end + more} values of field {self._field_id} are wanted in batch "
                f"{part.batch}, its page has {count}",
                where=self._file.uri,
            )
        return position

    def _offsets(self, parts: Sequence[Part], width: int, more: int = 0) -> list[NDArray[np.int64]]:
        """Read the value offsets of each part: shapes (num_values + 1,)."""
        ranges = self._offset_ranges(parts, width, more)
        of_parts = []
        for byte_range, buffer in zip(ranges, self._file.fetch_checked(ranges), strict=True):
            offsets = np.frombuffer(buffer, f"<i{width}").astype(np.int64)
            if offsets[0] < 0 or bool((np.diff(offsets) < 0).any()):
                raise CorruptFileError(
                    f"the offsets of field {self._field_id} do not ascend",
                    where=f"{self._file.uri} bytes {byte_range.start}..{byte_range.end}",
                )
            of_parts.append(offsets)
        return of_parts

    def _offset_ranges(self, parts: Sequence[Part], width: int, more: int = 0) -> list[ByteRange]:
        pages = [self._page(part, more) for part in parts]
        return [
            ByteRange(page + part.start * width, page + (part.end + 1) * width)
            for page, part in zip(pages, parts, strict=True)
        ]


class _PlainNode(_Leaf):
    """Values of fixed width, one after another; booleans are single bits."""

    def __init__(
        self, file: LegacyFile, pages: PageTable, field_id: int, data_type: pa.DataType
    ) -> None:
        super().__init__(file, pages, field_id)
        self._type = data_type
        self._bits = _plain_bits(data_type)

    def known_ranges(self, parts: Sequence[Part]) -> list[ByteRange]:
        """Return exactly the ranges that ``read`` fetches."""
        pages = [self._page(part) for part in parts]
        return [
            ByteRange(page + part.start * self._bits // 8, page + -(-part.end * self._bits // 8))
            for page, part in zip(pages, parts, strict=True)
        ]

    def read(self, parts: Sequence[Part]) -> pa.Array:
        """The values; a view of the file for a single aligned part."""
        count = sum(part.end - part.start for part in parts)
        require_decode_memory(count * self._bits // 8)
        if not self._bits:
            return _plain_array(self._type, count, pa.py_buffer(b""))
        pieces = self._file.fetch_checked(self.known_ranges(parts))
        if self._bits % 8 == 0:
            return _plain_array(self._type, count, pa.py_buffer(_join_pieces(pieces)))
        bits = [
            np.unpackbits(np.frombuffer(piece, np.uint8), bitorder="little")[skipped:][:wanted]
            for piece, skipped, wanted in (
                (piece, part.start * self._bits % 8, (part.end - part.start) * self._bits)
                for piece, part in zip(pieces, parts, strict=True)
            )
        ]
        packed = np.packbits(np.concatenate(bits) if bits else _NO_BYTES, bitorder="little")
        return _plain_array(self._type, count, pa.py_buffer(packed))

    def num_bytes(self, part: Part) -> int:
        """Return the bytes of the part, by its type."""
        return (part.end - part.start) * self._bits // 8


class _VariableNode(_Leaf):
    """Strings and binaries: offsets in the file, of bytes before them."""

    def __init__(self, file: LegacyFile, pages: PageTable, field: Field) -> None:
        super().__init__(file, pages, field.id)
        self._type = field.to_arrow().type
        self._nullable = field.nullable

    def known_ranges(self, parts: Sequence[Part]) -> list[ByteRange]:
        """The offsets."""
        return self._offset_ranges(parts, _OFFSET_BYTES)

    def read(self, parts: Sequence[Part]) -> pa.Array:
        """The offsets of all parts, then the bytes of all parts."""
        return read_strings(
            self._file, self._type, self._offsets(parts, _OFFSET_BYTES), nullable=self._nullable
        )

    def num_bytes(self, part: Part) -> int:
        """The bytes between the first and the last offset, and the offsets."""
        (offsets,) = self._offsets([part], _OFFSET_BYTES)
        return int(offsets[-1] - offsets[0]) + _OFFSET_BYTES * (part.end - part.start)


class _ListNode(_Leaf):
    """Lists: offsets of items of the same batch."""

    def __init__(self, file: LegacyFile, pages: PageTable, field: Field, items: LegacyNode) -> None:
        super().__init__(file, pages, field.id)
        self._type, self._items = field.to_arrow().type, items
        self._width = 8 if field.is_large_list else 4

    def known_ranges(self, parts: Sequence[Part]) -> list[ByteRange]:
        """The offsets."""
        return self._offset_ranges(parts, self._width, 1)

    def read(self, parts: Sequence[Part]) -> pa.Array:
        """Lists over exactly their items."""
        of_parts = self._offsets(parts, self._width, 1)
        wanted = [
            Part(part.batch, int(offsets[0]), int(offsets[-1]))
            for part, offsets in zip(parts, of_parts, strict=True)
            if offsets[0] < offsets[-1]
        ]
        joined = _join_offsets(of_parts)
        if self._width == 4 and int(joined[-1]) > _INT32_MAX:
            raise BatchTooLargeError
        stored = pa.py_buffer(joined.astype(f"<i{self._width}", copy=False))
        items = self._items.read(wanted)
        return pa.Array.from_buffers(self._type, len(joined) - 1, [None, stored], children=[items])

    def num_bytes(self, part: Part) -> int:
        """Offsets and items."""
        (offsets,) = self._offsets([part], self._width, 1)
        items = Part(part.batch, int(offsets[0]), int(offsets[-1]))
        inner = self._items.num_bytes(items) if items.start < items.end else 0
        return inner + self._width * (part.end - part.start)


class _StructNode:
    """Children side by side; a struct has no page of its own."""

    def __init__(self, data_type: pa.DataType, children: Sequence[LegacyNode]) -> None:
        self._type, self._children = data_type, children

    def known_ranges(self, parts: Sequence[Part]) -> list[ByteRange]:
        """Return the ranges of the children."""
        return [byte_range for child in self._children for byte_range in child.known_ranges(parts)]

    def read(self, parts: Sequence[Part]) -> pa.Array:
        """Read the children; a struct is never null."""
        count = sum(part.end - part.start for part in parts)
        children = [child.read(parts) for child in self._children]
        return pa.Array.from_buffers(self._type, count, [None], children=children)

    def num_bytes(self, part: Part) -> int:
        """The sum over the children."""
        return sum(child.num_bytes(part) for child in self._children)


class _DictionaryNode:
    """Indices in pages; the values once, at the location in the file's own schema.

    A table keeps a second copy of the values in its manifest files, for which its fields have
    other positions; Lance refuses to append other values, so the copies are equal.
    """

    def __init__(self, file: LegacyFile, pages: PageTable, field: Field) -> None:
        self._file, self._id, self._name = file, field.id, field.name
        self._type = field.to_arrow().type
        self._indices = _PlainNode(file, pages, field.id, self._type.index_type)
        self._values: pa.Array | None = None

    def known_ranges(self, parts: Sequence[Part]) -> list[ByteRange]:
        """The indices."""
        return self._indices.known_ranges(parts)

    def read(self, parts: Sequence[Part]) -> pa.Array:
        """Indices of values; null where there are no values at all."""
        indices = self._indices.read(parts)
        if self._values is None:
            self._values = self._read_values()
        limit = len(self._values)
        if not limit:
            # Lance writes so if all rows are null.
            indices = pa.nulls(len(indices), indices.type)
        elif len(indices):
            keys = np.asarray(indices)
            if int(keys.min()) < 0 or int(keys.max()) >= limit:
                raise CorruptFileError(
                    f"column {self._name!r} has dictionary indices {keys.min()} to {keys.max()}, "
                    f"its dictionary has {limit} values",
                    where=self._file.uri,
                )
        return pa.DictionaryArray.from_arrays(indices, self._values, safe=False)

    def num_bytes(self, part: Part) -> int:
        """The indices."""
        return self._indices.num_bytes(part)

    def _read_values(self) -> pa.Array:
        try:
            stored = self._file.metadata.schema.field_by_id(self._id).dictionary
        except LanceError:
            stored = None
        if stored is None:
            raise UnsupportedFeatureError(
                f"column {self._name!r}: the data file does not hold the values of its dictionary",
                where=self._file.uri,
            )
        position, count = stored
        value_type = self._type.value_type
        if position < 0 or count < 0:
            raise CorruptFileError(
                f"a dictionary of {count} values at {position}", where=self._file.uri
            )
        if not count:
            return pa.nulls(0, value_type)
        if not is_variable_type(value_type):
            end = position + -(-count * _plain_bits(value_type) // 8)
            (content,) = self._file.fetch_checked([ByteRange(position, end)])
            return _plain_array(value_type, count, pa.py_buffer(_join_pieces([content])))
        end = position + (count + 1) * _OFFSET_BYTES
        (content,) = self._file.fetch_checked([ByteRange(position, end)])
        positions = np.frombuffer(content, "<i8")
        if positions[0] < 0 or bool((np.diff(positions) < 0).any()):
            raise CorruptFileError(
                f"the offsets of the dictionary of column {self._name!r} do not ascend",
                where=f"{self._file.uri} bytes {position}..{end}",
            )
        # Nulls are no items, so an empty one is empty, although pylance takes it for null when it
        # opens the table again.
        return read_strings(self._file, value_type, [positions], nullable=False)


def read_strings(
    file: LegacyFile,
    data_type: pa.DataType,
    positions: Sequence[NDArray[np.int64]],
    *,
    nullable: bool,
) -> pa.Array:
    """Strings or binaries whose offsets are known.

    ``file``: the file that holds the bytes; ``positions``: for each run of values where they begin
    and end in the file, ascending; ``nullable``: whether an empty value means null.
    """
    indices = [ByteRange(int(run[0]), int(run[-1])) for run in positions if run[0] < run[-1]]
    file.check(indices)
    offsets = _join_offsets(positions)
    if int(offsets[-1]) > _INT32_MAX and not _is_large(data_type):
        raise BatchTooLargeError
    require_decode_memory(int(offsets[-1]))
    data = pa.py_buffer(_join_pieces(file.fetch(indices)))
    validity = None
    if nullable:
        filled = offsets[1:] != offsets[:-1]
        validity = None if filled.all() else filled
    return charge_decode_memory(variable_array(data_type, Ends(offsets, validity), data))


_NO_BYTES: Final = np.zeros(0, np.uint8)


def _is_large(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type))


def _join_offsets(runs: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The offsets of the values of all runs put end to end, from 0 on."""
    lengths = [np.diff(positions) for positions in runs]
    offsets = np.zeros(sum(map(len, lengths)) + 1, np.int64)
    if lengths:
        np.cumsum(np.concatenate(lengths), out=offsets[1:])
    return offsets


def _join_pieces(pieces: Sequence[Buffer]) -> NDArray[np.uint8]:
    """The bytes of all pieces; a view if it is one that Arrow can work on in place."""
    arrays = [np.frombuffer(piece, np.uint8) for piece in pieces if len(piece)]
    if len(arrays) == 1:
        array = arrays[0]
        # Pages of 0.1 files begin anywhere.
        return array if array.ctypes.data % _ALIGNMENT == 0 else array.copy()
    return np.concatenate(arrays) if arrays else _NO_BYTES


def _plain_bits(data_type: pa.DataType) -> int:
    """Bits of a value."""
    types = pa.types
    if types.is_null(data_type):
        return 0
    if types.is_fixed_size_list(data_type):
        return int(data_type.list_size) * _plain_bits(data_type.value_type)
    if types.is_fixed_size_binary(data_type):
        return int(data_type.byte_width) * 8
    try:
        return int(data_type.bit_width)
    except ValueError as error:
        raise UnsupportedFeatureError(f"values of {data_type} in a 0.1 file") from error


def _plain_array(data_type: pa.DataType, count: int, content: pa.Buffer) -> pa.Array:
    """The values that ``content`` holds, without nulls."""
    types = pa.types
    if types.is_null(data_type):
        return pa.nulls(count)
    if types.is_fixed_size_list(data_type):
        items = _plain_array(data_type.value_type, count * data_type.list_size, content)
        return pa.Array.from_buffers(data_type, count, [None], children=[items])
    return pa.Array.from_buffers(data_type, count, [None, content])


class LegacyFieldReader:
    """Reader of one field with all its descendants.

    ``field``: the requested field; it may have fewer children than are stored.
    """

    def __init__(self, file: LegacyFile, field: Field) -> None:
        self._file = file
        self._type = field.to_arrow().type
        self._root: LegacyNode = make_legacy_node(file, file.metadata.pages, field)
        self._batches = PageStarts(file.metadata.batch_starts)

    def byte_ranges(self, start: int, end: int) -> list[ByteRange]:
        """Return the ranges that ``read(start, end)`` fetches, as far as in the page table."""
        return self.row_byte_ranges(RowRanges.single(start, end)) if start < end else []

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return no ranges, as none are needed to compute the byte ranges."""
        return []

    def row_byte_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``read_arrays(rows)`` fetches, as far as in the page table."""
        return self._root.known_ranges(list(self._parts(rows)))

    def read(self, start: int, end: int) -> pa.Array:
        """The top-level rows ``start`` to ``end``."""
        if start == end:
            return pa.nulls(0, self._type)
        return self.read_arrays(RowRanges.single(start, end))[0]

    def read_arrays(self, rows: RowRanges) -> list[pa.Array]:
        """The requested rows, as one array."""
        return [self._root.read(list(self._parts(rows)))]

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of one row, at least 1, from the first batch with rows."""
        starts = self._file.metadata.batch_starts.tolist()
        for batch in range(len(starts) - 1):
            if starts[batch] < starts[batch + 1]:
                count = starts[batch + 1] - starts[batch]
                return max(1, self._root.num_bytes(Part(batch, 0, count)) // count)
        return 1

    def retained_bytes(self) -> int | None:
        """Return None: pages may cache what they have read."""
        return None

    def _parts(self, rows: RowRanges) -> Iterator[Part]:
        for batch, within in self._batches.split(rows):
            for start, end in zip(within.starts.tolist(), within.ends.tolist(), strict=True):
                yield Part(batch, start, end)

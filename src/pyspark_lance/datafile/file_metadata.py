"""FileMetadata: footer, schema, columns, pages and global buffers of a 2.x file.

One read of the tail is normally enough; ColumnMetadata messages are parsed when a column is first
requested, because wide tables have thousands of columns and few are read.
``column_metadata_bytes`` and ``file_descriptor_bytes`` encode the same messages.

Footer, the last 40 bytes, little endian: u64 position of the first ColumnMetadata, u64 position of
the CMO table, u64 position of the GBO table, u32 global buffers, u32 columns, u16 major, u16 minor,
``LANC``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Generic, TypeVar

from google.protobuf.message import DecodeError, Message

from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.feature_flags import FILES_2_3
from pyspark_lance.format.field import BLOB_KEY, PACKED_KEYS, Field
from pyspark_lance.format.logical_view import BLOB_V2_DESCRIPTOR
from pyspark_lance.format.schema import TOP_LEVEL, LanceSchema
from pyspark_lance.proto import file_pb2, schema_pb2
from pyspark_lance.store.object_store import Buffer, ByteRange, ObjectStore

TAIL_BYTES: Final = 64 * 1024
"""What one opening read asks for: enough for the metadata of almost every file."""

COLUMN_ENCODING_URL: Final = "/lance.encodings.ColumnEncoding"
ARRAY_ENCODING_URL: Final = "/lance.encodings.ArrayEncoding"
PAGE_LAYOUT_URL: Final = "/lance.encodings21.PageLayout"

# ColumnMetadata further away than the tail is read at once up to here, and by column beyond.
_EAGER_COLUMN_METADATA_BYTES: Final = 16 * 1024 * 1024

# Memory of an entry of a table, and of the description of a page.
_ENTRY_BYTES: Final = 128
_PAGE_INFO_BYTES: Final = 640

ReadRange = Callable[[int, int], Buffer]
_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class PageInfo:
    """One page of a column."""

    buffers: tuple[ByteRange, ...]
    num_rows: int  # ``Page.length``: rows, or in 2.0 the items of that column.
    encoding_type_url: str  # Which message ``encoding_bytes`` is.
    encoding_bytes: bytes  # The serialized ArrayEncoding (2.0) or PageLayout (2.1 and later).
    priority: int = 0  # First top-level row of the page; 2.0 writers may leave it 0.

    @property
    def num_bytes(self) -> int:
        """The bytes of all buffers."""
        return sum(end - start for start, end in self.buffers)


@dataclass(frozen=True, slots=True)
class ColumnInfo:
    """One column: its pages, in row order."""

    encoding_type_url: str  # Which message ``encoding_bytes`` is; '' if the file says nothing.
    encoding_bytes: bytes
    pages: tuple[PageInfo, ...]
    buffers: tuple[ByteRange, ...] = ()  # Column-level buffers; no known writer has any.

    @property
    def num_rows(self) -> int:
        """Rows of all pages."""
        return sum(page.num_rows for page in self.pages)

    @property
    def end(self) -> int:
        """End of the last of all its buffers."""
        byte_ranges = (
            *self.buffers,
            *(byte_range for page in self.pages for byte_range in page.buffers),
        )
        return max((byte_range.end for byte_range in byte_ranges), default=0)


_V = TypeVar("_V")
# Of the values that are remembered.
_MAX_ENTRIES: Final = 1024
_MAX_BYTES: Final = 4096


class ParsedBytes(Generic[_V]):
    """Values by the bytes that they were parsed from; starts empty again when it is full."""

    def __init__(self) -> None:
        self._known: dict[bytes, _V] = {}

    def get(self, data: bytes) -> _V | None:
        """Return the value that was parsed from the same bytes."""
        return self._known.get(data)

    def keep(self, data: bytes, value: _V) -> None:
        """Cache a value, unless it is large."""
        if len(data) <= _MAX_BYTES:
            if len(self._known) >= _MAX_ENTRIES:
                self._known.clear()
            self._known[data] = value


_COLUMNS: Final = ParsedBytes[tuple[ColumnInfo, int]]()
"""Columns, and where each ends."""
_DESCRIPTORS: Final = ParsedBytes[file_pb2.FileDescriptor]()


@dataclass(frozen=True, slots=True)
class FileTail:
    """The end of a file, read before it is known which format it has.

    ``file_size``: length of the whole file in bytes; ``content``: its last bytes.
    """

    store: ObjectStore
    path: str
    file_size: int
    content: Buffer

    @property
    def whole(self) -> memoryview | None:
        """All bytes of the file; None if it has more than were read."""
        return memoryview(self.content) if len(self.content) == self.file_size else None

    def read(self, start: int, end: int) -> Buffer:
        """The bytes of a range that is inside of the file."""
        tail_start = self.file_size - len(self.content)
        if start >= tail_start:
            return memoryview(self.content)[start - tail_start : end - tail_start]
        return self.store.get_range(self.path, start, end)

    @property
    def uri(self) -> str:
        """Root and path of the file, for messages."""
        return f"{self.store.uri}/{self.path}"


def read_tail(
    store: ObjectStore, path: str, size_bytes: int | None = None, most_bytes: int | None = None
) -> FileTail:
    """Read, in one request, what is normally all the metadata of a file.

    ``size_bytes``: its length according to the manifest, if known; checked, except for 0.1 files:
    releases of Lance counted only the pages of these. ``most_bytes``: bytes to request; None for
    what is normally enough.
    """
    content, file_size = store.get_tail(path, most_bytes or TAIL_BYTES)
    if size_bytes and size_bytes != file_size and not is_legacy(content):
        raise CorruptFileError(
            f"the manifest says the file has {size_bytes} bytes, it has {file_size}",
            where=f"{store.uri}/{path}",
            hint="the file was cut short or replaced",
        )
    return FileTail(store, path, file_size, content)


class FileMetadata:
    """All metadata of a 2.x file; columns are parsed on demand.

    ``path``: root and path of the file, for messages; ``file_size``: length of the file in bytes.
    """

    def __init__(self, path: str, file_size: int, footer: Footer, read: ReadRange) -> None:
        """Parse both tables and the file descriptor.

        ``file_size``: length of the file in bytes; ``footer``: the checked footer; ``read``:
        returns the bytes of a range inside the file.
        """
        self.path, self.file_size, self.footer = path, file_size, footer
        self._read = read
        self._column_table = self._read_table(
            footer.cmo_table_position, footer.num_columns, "CMO table"
        )
        self._global_buffers = self._read_table(
            footer.gbo_table_position, footer.num_global_buffers, "GBO table"
        )
        byte_range = self._global_buffers[0]
        data = bytes(self._read(*byte_range))
        descriptor = _DESCRIPTORS.get(data)
        if descriptor is None:
            descriptor = self._parse(file_pb2.FileDescriptor(), data, byte_range, "file descriptor")
            _DESCRIPTORS.keep(data, descriptor)
        self._schema_message = descriptor.schema
        self.num_rows = int(descriptor.length)
        self._schema: LanceSchema | None = None
        self._columns: dict[int, ColumnInfo] = {}
        self._column_bytes: tuple[int, Buffer] | None = None

    @classmethod
    def load(cls, store: ObjectStore, path: str, size_bytes: int | None = None) -> FileMetadata:
        """Read the metadata of a file, normally with one request.

        ``size_bytes``: its length according to the manifest, if that is known; checked.
        """
        return cls.of_tail(read_tail(store, path, size_bytes))

    @classmethod
    def of_tail(cls, tail: FileTail) -> FileMetadata:
        """The metadata of a file of which the end was read."""
        footer = Footer.from_bytes(tail.content, tail.file_size, tail.uri)
        return cls(tail.uri, tail.file_size, footer, tail.read)

    @property
    def version(self) -> str:
        """``2.0``, ``2.1`` or ``2.2``."""
        return self.footer.version

    @property
    def num_columns(self) -> int:
        """Physical columns of the file."""
        return self.footer.num_columns

    @property
    def retained_bytes(self) -> int:
        """Approximate memory that this takes, with the bytes that were read first."""
        columns = 0 if self._column_bytes is None else len(self._column_bytes[1])
        pages = sum(len(column.pages) for column in self._columns.values())
        tables = _ENTRY_BYTES * (self.num_columns + self.num_global_buffers)
        return min(self.file_size, TAIL_BYTES) + columns + _PAGE_INFO_BYTES * pages + tables

    @property
    def num_global_buffers(self) -> int:
        """Global buffers, of which number 0 is the file descriptor."""
        return self.footer.num_global_buffers

    @property
    def schema(self) -> LanceSchema:
        """The embedded schema; stale when the table's schema has changed since."""
        if self._schema is None:
            self._schema = LanceSchema.from_protos(
                list(self._schema_message.fields), dict(self._schema_message.metadata)
            )
        return self._schema

    def global_buffer(self, index: int) -> Buffer:
        """The bytes of a global buffer; those after number 0 are the user's."""
        if not 0 <= index < len(self._global_buffers):
            raise CorruptFileError(
                f"global buffer {index} is wanted, there are {len(self._global_buffers)}",
                where=self.path,
            )
        start, end = self._global_buffers[index]
        return self._read(start, end)

    def column(self, index: int) -> ColumnInfo:
        """The pages of a column."""
        info = self._columns.get(index)
        if info is None:
            if not 0 <= index < self.num_columns:
                raise CorruptFileError(
                    f"column {index} is wanted, the file has {self.num_columns}",
                    where=self.path,
                    hint="the manifest or the schema does not belong to this file",
                )
            info = self._parse_column(index)
            self._columns[index] = info
        return info

    def where(self, byte_range: ByteRange) -> str:
        """Format a byte range of this file for messages."""
        return f"{self.path} bytes {byte_range.start}..{byte_range.end}"

    def _parse_column(self, index: int) -> ColumnInfo:
        byte_range = self._column_table[index]
        data = bytes(self._read_column_bytes(byte_range))
        known = _COLUMNS.get(data)
        if known is not None and known[1] <= self.file_size:
            return known[0]
        what = f"metadata of column {index}"
        message = self._parse(file_pb2.ColumnMetadata(), data, byte_range, what)
        url, encoding = self._encoding_of(message.encoding, byte_range, what)
        pages = []
        for number, page in enumerate(message.pages):
            name = f"page {number} of column {index}"
            page_url, page_encoding = self._encoding_of(page.encoding, byte_range, name)
            buffers = self._ranges_of(page.buffer_offsets, page.buffer_sizes, byte_range, name)
            pages.append(PageInfo(buffers, page.length, page_url, page_encoding, page.priority))
        buffers = self._ranges_of(message.buffer_offsets, message.buffer_sizes, byte_range, what)
        info = ColumnInfo(url, encoding, tuple(pages), buffers)
        encodings = (message.encoding, *(page.encoding for page in message.pages))
        # An indirect encoding is in the file itself.
        if not any(encoding_proto.HasField("indirect") for encoding_proto in encodings):
            _COLUMNS.keep(data, (info, info.end))
        return info

    def require_rows(self, index: int, name: str, slots_per_row: int) -> None:
        """Check that a column has as many rows as the file.

        ``slots_per_row``: slots that pages count for each row.
        """
        num_slots = self.column(index).num_rows
        if num_slots != self.num_rows * slots_per_row:
            raise CorruptFileError(
                f"the pages of column {index} ({name}) have {num_slots // slots_per_row} rows, "
                f"the file has {self.num_rows}",
                where=self.path,
            )
        if num_slots >= 1 << 62:
            raise CorruptFileError(f"a file of {self.num_rows} rows is impossible", where=self.path)

    def where_page(self, index: int, name: str, page: int) -> str:
        """Format the location of a page of column ``index`` for messages."""
        buffers, span = self.column(index).pages[page].buffers, ""
        if buffers:
            start, end = min(r.start for r in buffers), max(r.end for r in buffers)
            span = f" bytes {start}..{end},"
        return f"{self.path}{span} column {index} ({name}) page {page}"

    def _read_column_bytes(self, byte_range: ByteRange) -> Buffer:
        """The message bytes of a column; the messages of all columns are read together."""
        first, end = self.footer.column_metadata_position, self.footer.cmo_table_position
        is_small = 0 < end - first <= _EAGER_COLUMN_METADATA_BYTES
        if not (is_small and first <= byte_range.start and byte_range.end <= end):
            return self._read(byte_range.start, byte_range.end)
        if self._column_bytes is None:
            self._column_bytes = (first, memoryview(self._read(first, end)))
        origin, data = self._column_bytes
        return data[byte_range.start - origin : byte_range.end - origin]

    def _encoding_of(
        self, encoding: file_pb2.Encoding, byte_range: ByteRange, what: str
    ) -> tuple[str, bytes]:
        """Type URL and bytes of an encoding, wherever it is stored."""
        kind = encoding.WhichOneof("location")
        if kind is None or kind == "none":
            return "", b""
        data: Buffer = encoding.direct.encoding
        if kind == "indirect":
            start = encoding.indirect.buffer_location
            byte_range = self._range(start, encoding.indirect.buffer_length, f"encoding of {what}")
            data = self._read(*byte_range)
        message = self._parse(file_pb2.AnyMessage(), data, byte_range, f"encoding of {what}")
        return message.type_url, message.value

    def _ranges_of(
        self, offsets: Sequence[int], sizes: Sequence[int], byte_range: ByteRange, what: str
    ) -> tuple[ByteRange, ...]:
        if len(offsets) != len(sizes):
            raise CorruptFileError(
                f"{what} has {len(offsets)} buffer offsets and {len(sizes)} buffer sizes",
                where=self.where(byte_range),
            )
        return tuple(
            self._range(offset, size, f"a buffer of {what}")
            for offset, size in zip(offsets, sizes, strict=True)
        )

    def _range(self, start: int, size: int, what: str) -> ByteRange:
        if start + size > self.file_size:
            raise CorruptFileError(
                f"{what} at {start} with {size} bytes is outside of the file's "
                f"{self.file_size} bytes",
                where=self.path,
            )
        return ByteRange(start, start + size)

    def _read_table(self, position: int, entries: int, what: str) -> tuple[ByteRange, ...]:
        end = position + entries * TABLE_ENTRY_BYTES
        data = bytes(self._read(position, end))
        return tuple(
            self._range(start, size, f"an entry of the {what}")
            for start, size in struct.iter_unpack("<QQ", data)
        )

    def _parse(self, message: _M, data: Buffer, byte_range: ByteRange, what: str) -> _M:
        try:
            message.ParseFromString(bytes(data))
        except DecodeError as error:
            raise CorruptFileError(
                f"the {what} is not a readable message", where=self.where(byte_range)
            ) from error
        return message


def column_metadata_bytes(column: ColumnInfo) -> bytes:
    """The serialized ColumnMetadata message of a column."""
    message = file_pb2.ColumnMetadata()
    message.encoding.direct.encoding = _any_bytes(column.encoding_type_url, column.encoding_bytes)
    for page in column.pages:
        message.pages.add(
            buffer_offsets=[start for start, _ in page.buffers],
            buffer_sizes=[end - start for start, end in page.buffers],
            length=page.num_rows,
            encoding=file_pb2.Encoding(
                direct=file_pb2.Encoding.Direct(
                    encoding=_any_bytes(page.encoding_type_url, page.encoding_bytes)
                )
            ),
            priority=page.priority,
        )
    message.buffer_offsets.extend(start for start, _ in column.buffers)
    message.buffer_sizes.extend(end - start for start, end in column.buffers)
    return message.SerializeToString()


def file_descriptor_bytes(schema: LanceSchema, num_rows: int) -> bytes:
    """The serialized FileDescriptor message: global buffer 0."""
    message = file_pb2.FileDescriptor(length=num_rows)
    for field in schema.fields:
        message.schema.fields.extend(_file_field(field))
    for key, value in schema.metadata.items():
        message.schema.metadata[key] = value
    return message.SerializeToString()


def _file_field(field: Field, parent_id: int = TOP_LEVEL) -> list[schema_pb2.Field]:
    """A field as data files state it: a blob v2 as the record of its descriptor."""
    if not field.is_blob_v2:
        below = (part for child in field.children for part in _file_field(child, field.id))
        return [field.to_proto(parent_id), *below]
    record = replace(
        field, children=(), extension_name="", metadata={BLOB_KEY: b"true", PACKED_KEYS[0]: b"true"}
    )
    return [record.to_proto(parent_id), *(part.to_proto(TOP_LEVEL) for part in BLOB_V2_DESCRIPTOR)]


def _any_bytes(type_url: str, value: bytes) -> bytes:
    return file_pb2.AnyMessage(type_url=type_url, value=value).SerializeToString()


MAGIC: Final = b"LANC"
FOOTER_BYTES: Final = 40
VERSION_BYTES: Final = 8
TABLE_ENTRY_BYTES: Final = 16

_FOOTER: Final = struct.Struct("<QQQIIHH4s")
_VERSION: Final = struct.Struct("<HH4s")

# The footer of a 2.0 file says 0.3; the manifest says 2.0 of the same file.
_VERSION_OF_NUMBERS: Final = {
    (0, 0): "0.1",
    (0, 1): "0.1",
    (0, 2): "0.1",
    (0, 3): "2.0",
    (2, 0): "2.0",
    (2, 1): "2.1",
    (2, 2): "2.2",
}
_UNSTABLE: Final = (2, 3)
_NUMBERS_OF_VERSION: Final = {"2.0": (0, 3), "2.1": (2, 1), "2.2": (2, 2)}


def file_version_of(tail: bytes | memoryview, where: str = "") -> str:
    """The format version in the last 8 bytes of a file.

    ``tail``: the end of the file, 8 bytes or more. Returns one of ``0.1``, ``2.0``, ``2.1``,
    ``2.2``.
    """
    if len(tail) < VERSION_BYTES:
        raise CorruptFileError(
            f"a data file ends with {VERSION_BYTES} bytes of version, found {len(tail)} bytes",
            where=where,
            hint="the file was cut short",
        )
    major, minor, magic = _VERSION.unpack(bytes(tail[len(tail) - VERSION_BYTES :]))
    if magic != MAGIC:
        raise CorruptFileError(
            f"a data file ends with {MAGIC!r}, found {magic!r}",
            where=where,
            hint="the file was cut short or is not a Lance data file",
        )
    version = _VERSION_OF_NUMBERS.get((major, minor))
    if (major, minor) == _UNSTABLE:
        raise FILES_2_3.refusal("data files of version 2.3 are not read", where)
    if version is None:
        raise UnsupportedFeatureError(
            f"data file version {major}.{minor} is not implemented",
            where=where,
            hint="files of the versions 0.1, 2.0, 2.1 and 2.2 are known",
        )
    return version


def is_legacy(tail: bytes | memoryview) -> bool:
    """Return whether bytes are the end of a 0.1 file; they may be anything."""
    if len(tail) < VERSION_BYTES:
        return False
    major, minor, magic = _VERSION.unpack(bytes(tail[len(tail) - VERSION_BYTES :]))
    return magic == MAGIC and _VERSION_OF_NUMBERS.get((major, minor)) == "0.1"


@dataclass(frozen=True, slots=True)
class Footer:
    """The fixed tail of a 2.x file."""

    column_metadata_position: int  # Where the ColumnMetadata of column 0 starts.
    cmo_table_position: int  # Where the table of column metadata positions starts.
    gbo_table_position: int  # Where the table of global buffer positions starts.
    num_global_buffers: int  # Entries of the GBO table, at least one.
    num_columns: int
    version: str  # ``2.0``, ``2.1`` or ``2.2``.

    @classmethod
    def from_bytes(cls, tail: bytes | memoryview, file_size: int, where: str = "") -> Footer:
        """Parse and check the last 40 bytes.

        ``tail``: the end of the file, 40 bytes or more; ``file_size``: length of the whole file in
        bytes.
        """
        version = file_version_of(tail, where)
        if version not in _NUMBERS_OF_VERSION:
            raise UnsupportedFeatureError(
                f"a file of version {version} has no 2.x footer", where=where
            )
        if len(tail) < FOOTER_BYTES:
            raise CorruptFileError(
                f"a footer of {FOOTER_BYTES} bytes was expected, the file has {len(tail)} bytes",
                where=where,
                hint="the file was cut short",
            )
        columns, cmo, gbo, num_global_buffers, num_columns, _, _, _ = _FOOTER.unpack(
            bytes(tail[len(tail) - FOOTER_BYTES :])
        )
        footer = cls(columns, cmo, gbo, num_global_buffers, num_columns, version)
        footer._check(file_size, where)
        return footer

    def to_bytes(self) -> bytes:
        """The 40 bytes."""
        major, minor = _NUMBERS_OF_VERSION[self.version]
        return _FOOTER.pack(
            self.column_metadata_position,
            self.cmo_table_position,
            self.gbo_table_position,
            self.num_global_buffers,
            self.num_columns,
            major,
            minor,
            MAGIC,
        )

    def _check(self, file_size: int, where: str) -> None:
        """Check that both tables are inside the file, so that its size bounds their reads."""
        end = file_size - FOOTER_BYTES
        for name, position, entries in (
            ("column metadata", self.column_metadata_position, 0),
            ("CMO table", self.cmo_table_position, self.num_columns),
            ("GBO table", self.gbo_table_position, self.num_global_buffers),
        ):
            if position + entries * TABLE_ENTRY_BYTES > end:
                raise CorruptFileError(
                    f"the {name} with {entries} entries at position {position} "
                    f"does not fit in the {end} bytes before the footer",
                    where=f"{where} bytes {end}..{file_size}",
                )
        if self.num_global_buffers < 1:
            raise CorruptFileError(
                "a file needs the global buffer with its schema, the footer counts none",
                where=f"{where} bytes {end}..{file_size}",
            )

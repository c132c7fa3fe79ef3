"""Deletion files: all deleted offsets of one fragment, as an Arrow array or a bitmap.

The Arrow form is an IPC file with one batch of one uint32 column. It is parsed here, because
damaged bytes can crash a general IPC reader, and every other shape has to be refused anyway. Every
position is checked before use, and the size of a buffer before it is decompressed.

Source: docs/format/table-format.md, section 5;
https://arrow.apache.org/docs/format/Columnar.html#ipc-file-format and its File.fbs, Message.fbs,
Schema.fbs; https://flatbuffers.dev/internals/
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Hashable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError, LanceError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.plain_values import plain_array
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import Buffer, ObjectStore
from pyspark_lance.store.recently_used import RecentlyUsed

_MAGIC: Final = b"ARROW1"
_CONTINUATION: Final = 0xFFFFFFFF
_INT_TYPE: Final = 2
_RECORD_BATCH: Final = 3
_CODECS: Final = {0: "lz4", 1: "zstd"}
_STORED: Final = -1
# Buffers may be padded to a multiple of this.
_PADDING: Final = 64
# Maximum size and number of cached footers.
_SHORT_BYTES: Final = 1024
_MAX_SHORT: Final = 512


@dataclass(frozen=True, slots=True)
class _Table:
    """A flatbuffer table: fields by number, each of which may be absent."""

    data: memoryview
    position: int

    @classmethod
    def root(cls, data: memoryview) -> _Table:
        return cls(data, _number(data, "<I", 0))

    def number(self, index: int, layout: str, default: int = 0) -> int:
        """A scalar."""
        position = self._field(index)
        return default if position is None else _number(self.data, layout, position)

    def table(self, index: int) -> _Table | None:
        """Return a table; None if it is absent."""
        position = self._field(index)
        if position is None:
            return None
        return _Table(self.data, position + _number(self.data, "<I", position))

    def vector(self, index: int) -> tuple[int, int]:
        """Return (number of elements, position of the first); (0, 0) if it is absent."""
        position = self._field(index)
        if position is None:
            return 0, 0
        start = position + _number(self.data, "<I", position)
        return _number(self.data, "<I", start), start + 4

    def text(self, index: int) -> bytes:
        """Return a string; empty if it is absent."""
        length, start = self.vector(index)
        return bytes(_cut(self.data, start, start + length))

    def _field(self, index: int) -> int | None:
        vtable = self.position - _number(self.data, "<i", self.position)
        entry = 4 + 2 * index
        if entry + 2 > _number(self.data, "<H", vtable):
            return None
        offset = _number(self.data, "<H", vtable + entry)
        return self.position + offset if offset else None


def read_uint32_column(
    content: Buffer, name: str, num_values: int | None, *, at_most: int
) -> NDArray[np.uint32]:
    """Return the values of the only column, in stored order.

    ``name``: the expected column name. ``num_values``: expected number of values; None if unknown.
    ``at_most``: maximum number of values to decompress.

    Raises:
        CorruptFileError: The file is damaged, or is not exactly one batch of ``num_values`` values
        of
            one column of this name, of type uint32, not nullable and without nulls.
    """
    data = memoryview(content).cast("B").toreadonly()
    try:
        footer = _footer(data)
        # Files of one writer with the same kind of content have equal footers, so parsing is
        # cached.
        find = _locate_short if len(footer) <= _SHORT_BYTES else _locate_batch
        message, body = _only_batch(data, *find(bytes(footer), name))
        return _values(message, body, num_values, at_most)
    except (struct.error, pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFileError(f"not a readable Arrow IPC file: {error}") from error


def _footer(data: memoryview) -> memoryview:
    end = len(data) - len(_MAGIC)
    if end < 12 or bytes(data[: len(_MAGIC)]) != _MAGIC or bytes(data[end:]) != _MAGIC:
        raise CorruptFileError("not an Arrow IPC file: its magic bytes are missing")
    length = _number(data, "<i", end - 4)
    return _cut(data, end - 4 - length, end - 4)


def _locate_batch(content: bytes, name: str) -> tuple[int, int, int]:
    """Return position, metadata length and body length of the only batch, from the footer."""
    footer = _Table.root(memoryview(content))
    _check_column(footer, name)
    dictionaries, _ = footer.vector(2)
    batches, start = footer.vector(3)
    if dictionaries or batches != 1:
        raise CorruptFileError(f"{batches} batches, {dictionaries} dictionaries, 1 and 0 expected")
    return (
        _number(footer.data, "<q", start),
        _number(footer.data, "<i", start + 8),
        _number(footer.data, "<q", start + 16),
    )


_locate_short = lru_cache(_MAX_SHORT)(_locate_batch)


def _check_column(footer: _Table, name: str) -> None:
    schema = footer.table(1)
    if schema is None:
        raise CorruptFileError("the Arrow file has no schema")
    count, start = schema.vector(1)
    if schema.number(0, "<h") != 0 or count != 1:
        raise CorruptFileError(f"{count} columns in the Arrow file, 1 little-endian expected")
    field = _Table(schema.data, start + _number(schema.data, "<I", start))
    found, is_nullable = field.text(0).decode("utf-8", "replace"), field.number(1, "<B")
    if found != name or is_nullable:
        raise CorruptFileError(
            f"column {found!r}{' nullable' * bool(is_nullable)}, {name!r} not null expected"
        )
    integer = field.table(3)
    is_dictionary = field.table(4) is not None
    if (
        field.number(2, "<B") != _INT_TYPE
        or integer is None
        or is_dictionary
        or (integer.number(0, "<i"), integer.number(1, "<B")) != (32, 0)
    ):
        raise CorruptFileError(f"column {name!r} is not of type uint32")


def _only_batch(
    data: memoryview, position: int, metadata_length: int, body_length: int
) -> tuple[_Table, memoryview]:
    """Return the record batch and its body."""
    metadata = _cut(data, position, position + metadata_length)
    # Before Arrow 0.15 the message started with its length alone.
    prefix = 8 if _number(metadata, "<I", 0) == _CONTINUATION else 4
    length = _number(metadata, "<i", prefix - 4)
    message = _Table.root(_cut(metadata, prefix, prefix + length))
    batch = message.table(2)
    if message.number(1, "<B") != _RECORD_BATCH or batch is None:
        raise CorruptFileError("the message in the Arrow file is no record batch")
    body_start = position + metadata_length
    return batch, _cut(data, body_start, body_start + body_length)


def _values(
    batch: _Table, body: memoryview, num_values: int | None, at_most: int
) -> NDArray[np.uint32]:
    nodes, node = batch.vector(1)
    buffers, buffer = batch.vector(2)
    if nodes != 1 or buffers != 2:
        raise CorruptFileError(f"{nodes} nodes and {buffers} buffers in the batch, not 1 and 2")
    length = batch.number(0, "<q")
    null_count = _number(batch.data, "<q", node + 8)
    if _number(batch.data, "<q", node) != length or null_count != 0:
        raise CorruptFileError(f"{null_count} nulls in a batch of {length} rows, none expected")
    if length != num_values and (num_values is not None or not 0 <= length <= at_most):
        expected = f"at most {at_most}" if num_values is None else num_values
        raise CorruptFileError(f"{length} values in the Arrow file, {expected} expected")
    # The first buffer is the validity bitmap, which is irrelevant without nulls.
    start = _number(batch.data, "<q", buffer + 16)
    stored = _cut(body, start, start + _number(batch.data, "<q", buffer + 24))
    if length == 0:
        return np.empty(0, dtype=np.uint32)
    compression = batch.table(3)
    if compression is not None:
        stored = _decompress(stored, compression, 4 * length)
    return np.frombuffer(_cut(stored, 0, 4 * length), dtype="<u4").astype(np.uint32, copy=False)


def _decompress(stored: memoryview, compression: _Table, wanted: int) -> memoryview:
    """Return a decompressed buffer; its expanded length comes first, -1 if uncompressed."""
    expanded = _number(stored, "<q", 0)
    compressed = stored[8:]
    if expanded == _STORED:
        return compressed
    if not wanted <= expanded <= wanted + _PADDING:
        raise CorruptFileError(f"a buffer claims to expand to {expanded} bytes, not {wanted}")
    codec = _CODECS.get(compression.number(0, "<b"))
    if codec is None:
        raise CorruptFileError(f"unknown compression {compression.number(0, '<b')}")
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(compressed)), codec) as stream:
        # In steps, so that memory grows with the actual and not with the claimed length.
        pieces: list[bytes] = []
        left = expanded
        while left and (piece := stream.read(min(left, 1 << 20))):
            pieces.append(piece)
            left -= len(piece)
    if left:
        raise CorruptFileError(f"a buffer ends {left} bytes early")
    return memoryview(b"".join(pieces))


def _number(data: memoryview, layout: str, position: int) -> int:
    """Return a number at a position; raise struct.error outside, also before the start."""
    if position < 0:
        raise struct.error("position before the start")
    return int(struct.unpack_from(layout, data, position)[0])


def _cut(data: memoryview, start: int, end: int) -> memoryview:
    """Return the bytes of [start, end), which must be inside the data."""
    if not 0 <= start <= end <= len(data):
        raise CorruptFileError(f"bytes {start}..{end} lie outside a part of {len(data)} bytes")
    return data[start:end]


BITMAP_THRESHOLD: Final = 5000
"""Sets with at least this many offsets are written as a bitmap."""

_COLUMN: Final = "row_id"
_MIN_COMPRESSED: Final = 128
# Limit if the number of rows is unknown: releases write larger sets as bitmaps.
_MAX_OF_AN_ARRAY: Final = 1 << 20
# Limit for a set with offsets beyond the last row, which is expanded to an array.
_MAX_EXCEEDING: Final = 1 << 24
# Cache size in bytes for files that were read or written.
_MAX_KNOWN_BYTES: Final = 16 << 20
_BYTES_OF_ONE: Final = 512
_SMALL_BYTES: Final = 64 * 1024


def _bytes_of(vector: DeletionVector) -> int:
    """Return the approximate size of a vector, at most."""
    return _BYTES_OF_ONE + 2 * len(vector)


_known = RecentlyUsed(_MAX_KNOWN_BYTES, _bytes_of)


def read_deletion_file(
    store: ObjectStore,
    fragment_id: int,
    file: DeletionFile,
    physical_rows: int,
    *,
    may_exceed: bool = False,
    may_be_known: bool = True,
) -> DeletionVector:
    """Return the deleted offsets of a fragment.

    ``file``: entry of the manifest; its type selects the parser. Releases of Lance before 0.8
    omitted the number of rows, which is 0 then. ``may_exceed``: ignore offsets beyond the last row
    as Lance does: in tables with stable row ids, releases 0.22 to 0.29 wrote row ids among the
    offsets. ``may_be_known``: False bypasses the cache of this process.
    """
    path = deletion_path(fragment_id, file)
    written = _cache_key(store, path, file) if may_be_known else None
    if written is None:
        return _read(store, path, file, physical_rows, may_exceed=may_exceed)
    # Most versions change few fragments, so most deletion files were read before.
    key = *written, physical_rows, may_exceed
    known = _known.get(key)
    if known is None:
        known = _known.get(written)
    # Vectors cached by a write were not checked against the manifest.
    if known is None or (known.max_offset or 0) >= physical_rows:
        known = _read(store, path, file, physical_rows, may_exceed=may_exceed)
        _known.put(key, known)
    return known


def _cache_key(store: ObjectStore, path: str, file: DeletionFile) -> tuple[Hashable, ...] | None:
    """Return the cache key of a file; None if it is not cached.

    Deletion files are never replaced, since their names contain a random number. In a local folder
    a ``stat`` call verifies that cheaply; in an object store it would cost as much as reading the
    file.
    """
    if isinstance(store, LocalStore):
        return store.uri, path, store.stat(path).identity, file
    return None if store.cache_key is None else (store.cache_key, path, file)


def _read(
    store: ObjectStore, path: str, file: DeletionFile, physical_rows: int, *, may_exceed: bool
) -> DeletionVector:
    content = _content(store, path)
    at_most = max(physical_rows, _MAX_OF_AN_ARRAY) if may_exceed else physical_rows
    try:
        if file.file_type is DeletionFileType.BITMAP:
            vector = DeletionVector.from_bitmap_bytes(bytes(content))
        else:
            count = None if may_exceed else file.num_deleted_rows or None
            if count is not None and count > physical_rows:
                raise CorruptFileError(f"{count} rows of {physical_rows} are deleted")
            offsets = read_uint32_column(content, _COLUMN, count, at_most=at_most)
            vector = DeletionVector.of(offsets)
            if len(vector) != len(offsets):
                raise CorruptFileError(f"{len(offsets)} offsets, {len(vector)} different ones")
        whole = len(vector)
        if vector.max_offset is not None and vector.max_offset >= physical_rows:
            if not may_exceed or whole > min(at_most, _MAX_EXCEEDING):
                raise CorruptFileError(
                    f"row {vector.max_offset} is deleted in a fragment of {physical_rows} rows, "
                    f"with {whole} offsets"
                )
            vector = _existing_offsets(vector, physical_rows)
        if file.num_deleted_rows not in (0, whole, len(vector)):
            raise CorruptFileError(f"{whole} offsets, the manifest says {file.num_deleted_rows}")
    except CorruptFileError as error:
        raise CorruptFileError(error.what, f"{store.uri}/{path}", error.hint) from error
    return vector


def _content(store: ObjectStore, path: str) -> Buffer:
    """Return the whole file.

    Small local files are read and not mapped: that is faster, and maps are left to data files.
    """
    if isinstance(store, LocalStore):
        tail, size = store.get_tail(path, _SMALL_BYTES)
        if size <= _SMALL_BYTES:
            return tail
    return store.get(path)


def _existing_offsets(vector: DeletionVector, physical_rows: int) -> DeletionVector:
    """Return the offsets of existing rows.

    Like Lance, accept offsets beyond the last row unless a run of live rows ends there.
    """
    offsets = vector.to_array().astype(np.int64)
    run_starts = np.concatenate(([0], offsets[:-1] + 1))
    run_ends = offsets[run_starts < offsets]
    behind = int(np.searchsorted(run_ends, physical_rows, side="right"))
    last_end = int(run_ends[behind - 1]) + 1 if behind else 0
    if behind < len(run_ends) and last_end < physical_rows:
        raise CorruptFileError(
            f"row {vector.max_offset} is deleted in a fragment of {physical_rows} rows"
        )
    return DeletionVector.of(offsets[offsets < physical_rows].astype(np.uint32))


def write_deletion_file(
    store: ObjectStore,
    fragment_id: int,
    read_version: int,
    vector: DeletionVector,
    *,
    id: int,  # noqa: A002  # the format's word
) -> DeletionFile:
    """Write the deleted offsets of a fragment.

    ``id``: random number below 2**64.
    """
    if vector.is_empty:
        raise InvalidInputError(f"fragment {fragment_id} has no deleted rows to write")
    is_bitmap = len(vector) >= BITMAP_THRESHOLD
    file = DeletionFile(
        file_type=DeletionFileType.BITMAP if is_bitmap else DeletionFileType.ARROW_ARRAY,
        read_version=read_version,
        id=id,
        num_deleted_rows=len(vector),
    )
    content = vector.to_bitmap_bytes() if is_bitmap else _to_arrow(vector.to_array())
    path = deletion_path(fragment_id, file)
    store.put(path, content)
    # The next change of the fragment starts from it.
    with contextlib.suppress(LanceError, OSError):
        name = _cache_key(store, path, file)
        if name is not None:
            _known.put(name, vector)
    return file


def _to_arrow(offsets: NDArray[np.uint32]) -> bytes:
    """Return an Arrow IPC file of sorted offsets."""
    schema = pa.schema([pa.field(_COLUMN, pa.uint32(), nullable=False)])
    sink = pa.BufferOutputStream()
    # For so little data, threads and compression cost more than they save.
    compression = "zstd" if len(offsets) >= _MIN_COMPRESSED else None
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_file(sink, schema, options=options) as writer:
        writer.write_batch(
            pa.record_batch([plain_array(np.asarray(offsets, np.uint32))], schema=schema)
        )
    return bytes(sink.getvalue())

"""Deletion files: the complete set of deleted offsets of one fragment, in one of two encodings.

Source: table format, section 5.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.store.object_store import Buffer, ObjectStore

BITMAP_THRESHOLD: Final = 5000
"""From so many offsets on, the set is written as a bitmap."""

_SCHEMA: Final = pa.schema([pa.field("row_id", pa.uint32(), nullable=False)])
_ARROW_MAGIC: Final = b"ARROW1\0\0"


def read_deletion_file(
    store: ObjectStore, fragment_id: int, file: DeletionFile, physical_rows: int
) -> DeletionVector:
    """The deleted offsets of a fragment.

    Args:
        store: Root that holds the file.
        fragment_id: Part of the file name.
        file: What the manifest says of the file; its type decides the parser.
        physical_rows: Rows of the fragment, deleted ones included.

    Raises:
        FileNotFoundError: It is not there.
        CorruptFileError: It contradicts the format or the manifest.
    """
    path = deletion_path(fragment_id, file)
    content = store.get(path)
    try:
        if file.file_type is DeletionFileType.BITMAP:
            vector = DeletionVector.from_bitmap_bytes(bytes(content))
        else:
            vector = _parse_arrow(content, file.num_deleted_rows)
        # The cardinality first: nothing is expanded before its size is known to be right.
        if len(vector) != file.num_deleted_rows:
            raise CorruptFileError(
                f"{len(vector)} different offsets, the manifest says {file.num_deleted_rows}"
            )
        if vector.max_offset is not None and vector.max_offset >= physical_rows:
            raise CorruptFileError(
                f"row {vector.max_offset} is deleted in a fragment of {physical_rows} rows"
            )
    except CorruptFileError as error:
        raise CorruptFileError(error.what, f"{store.uri}/{path}", error.hint) from error
    return vector


def write_deletion_file(
    store: ObjectStore,
    fragment_id: int,
    read_version: int,
    vector: DeletionVector,
    *,
    id: int,  # noqa: A002  # the format's word
) -> DeletionFile:
    """Writes the deleted offsets of a fragment.

    Args:
        store: Root of the table.
        fragment_id: Part of the file name.
        read_version: Version the deleting operation read.
        vector: All deleted offsets, those of earlier deletions included.
        id: Random number below 2**64.

    Raises:
        InvalidInputError: Nothing is deleted, so there must be no file.
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
    store.put(deletion_path(fragment_id, file), content)
    return file


def _to_arrow(offsets: NDArray[np.uint32]) -> bytes:
    """An Arrow IPC file of sorted offsets."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_file(sink, _SCHEMA, options=options) as writer:
        writer.write_batch(pa.record_batch([pa.array(offsets, pa.uint32())], schema=_SCHEMA))
    return bytes(sink.getvalue())


def _parse_arrow(content: Buffer, num_deleted_rows: int) -> DeletionVector:
    """The offsets in an Arrow IPC file, checked for everything the format says of it."""
    if len(content) < len(_ARROW_MAGIC) or bytes(content[: len(_ARROW_MAGIC)]) != _ARROW_MAGIC:
        raise CorruptFileError("not an Arrow IPC file")
    buffer = pa.py_buffer(content)
    try:
        with pa.ipc.open_file(buffer) as reader:
            _check_schema(reader.schema, reader.num_record_batches)
        # The same messages again, one by one: their sizes are looked at before they are expanded.
        messages = pa.ipc.MessageReader.open_stream(buffer.slice(len(_ARROW_MAGIC)))
        schema = pa.ipc.read_schema(messages.read_next_message())
        message = messages.read_next_message()
        if message.type != "record batch":
            raise CorruptFileError(f"a {message.type} message where the offsets should be")
        _check_expanded_size(message, num_deleted_rows)
        batch = pa.ipc.read_record_batch(message, schema)
        batch.validate(full=True)
        _check_schema(batch.schema, 1)
        column = batch.column(0)
        if column.null_count or len(column) != num_deleted_rows:
            raise CorruptFileError(
                f"{len(column)} offsets of which {column.null_count} are null, "
                f"the manifest says {num_deleted_rows}"
            )
        return DeletionVector.of(column.to_numpy())
    except (pa.ArrowException, OSError, EOFError, StopIteration, MemoryError, ValueError) as error:
        raise CorruptFileError(f"not a readable Arrow IPC file: {error}") from error


def _check_schema(schema: pa.Schema, num_batches: int) -> None:
    if not schema.equals(_SCHEMA) or num_batches != 1:
        found = ", ".join(str(field) for field in schema)
        raise CorruptFileError(
            f"{num_batches} batches of ({found}); 1 batch of (row_id: uint32 not null) expected"
        )


def _check_expanded_size(message: pa.Message, num_values: int) -> None:
    """Refuses compressed buffers that claim more than the offsets can take."""
    body = memoryview(message.body)
    try:
        buffers = _compressed_buffers(bytes(message.metadata))
        for offset, length in buffers:
            if length < 8:
                continue
            (expanded,) = struct.unpack_from("<q", body, offset)
            # -1: stored as it is. Padding is at most 64 bytes.
            if not -1 <= expanded <= 4 * num_values + 64:
                raise CorruptFileError(
                    f"a buffer claims to expand to {expanded} bytes for {num_values} offsets"
                )
    except struct.error as error:
        raise CorruptFileError("a buffer lies outside its message") from error


def _compressed_buffers(metadata: bytes) -> list[tuple[int, int]]:
    """(offset, length) of the buffers of a record batch message; none if it is not compressed.

    Source: https://arrow.apache.org/docs/format/Columnar.html, Message.fbs: Message.header is
    field 2; RecordBatch.buffers is field 2 and RecordBatch.compression field 3.
    """

    def number(layout: str, position: int) -> int:
        return int(struct.unpack_from(layout, metadata, position)[0])

    def field_position(table: int, index: int) -> int | None:
        """Where a field of a flatbuffer table is; None if it is absent."""
        vtable = table - number("<i", table)
        entry = 4 + 2 * index
        offset = number("<H", vtable + entry) if entry < number("<H", vtable) else 0
        return table + offset if offset else None

    def referred(position: int) -> int:
        return position + number("<I", position)

    header = field_position(referred(0), 2)
    if header is None:
        return []
    batch = referred(header)
    buffers, compression = field_position(batch, 2), field_position(batch, 3)
    if buffers is None or compression is None:
        return []
    vector = referred(buffers)
    count = number("<I", vector)
    layout = struct.Struct("<qq")
    return [layout.unpack_from(metadata, vector + 4 + 16 * index) for index in range(count)]

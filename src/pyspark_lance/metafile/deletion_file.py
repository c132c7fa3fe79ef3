"""Deletion files: all deleted offsets of one fragment, as an Arrow array or a bitmap.

Source: docs/format/table-format.md, section 5.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import CorruptFileError, InvalidInputError, LanceError
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType, DeletionVector
from pyspark_lance.metafile.arrow_column_file import read_uint32_column
from pyspark_lance.metafile.paths import deletion_path
from pyspark_lance.plain_values import plain_array
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import Buffer, ObjectStore
from pyspark_lance.store.recently_used import RecentlyUsed

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
    return None if store.place is None else (store.place, path, file)


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
    came_to = int(run_ends[behind - 1]) + 1 if behind else 0
    if behind < len(run_ends) and came_to < physical_rows:
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

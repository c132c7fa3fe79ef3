"""Vectorized decoding of the columns of all fragments of a manifest.

The n-th fields of all fragments are decoded together, then those of their data files and deletion
files. Fragments of an uncommon shape are left to the protobuf library: unknown fields, sequences in
files, long or damaged messages. So the columns are those that the library returns. No I/O.

Source: docs/format/table-format.md, section 4.1; https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.format.fragment import (
    MAX_FRAGMENT_ID,
    MAX_PHYSICAL_ROWS,
    check_data_file,
    fragments_from_protos,
)
from pyspark_lance.format.fragments import (
    MAJOR_UNIT,
    PARSED,
    SEVERAL_VERSIONS,
    FragmentColumns,
    file_version_code,
)
from pyspark_lance.format.wire import LENGTH_DELIMITED, VARINT, drop_unknown_fields, parse_message
from pyspark_lance.proto.table_pb2 import DataFile, DataFragment, Manifest
from pyspark_lance.proto.table_pb2 import DeletionFile as DeletionFileMessage

# For fewer fragments, the protobuf library is as fast.
_MIN_FRAGMENTS: Final = 256
# Fragments decoded at a time, so that their arrays fit into the processor's cache.
_CHUNK: Final = 1 << 14
# The common shape: maximum fields of a message, bytes of a path or list, bytes of a number.
_MAX_FIELDS: Final = 32
_MAX_BYTES: Final = 1 << 10
_MAX_VARINT: Final = 8
# Lists may have longer numbers: negative ones take ten bytes.
_LONGEST_VARINT: Final = 10
_CONTINUES: Final = 0x80
# Only damaged messages exceed this.
_MAX_SUM: Final = 2**62

_Bytes: TypeAlias = NDArray[np.uint8]
_Ints: TypeAlias = NDArray[np.int64]
_Flags: TypeAlias = NDArray[np.bool_]
_Field: TypeAlias = tuple[int, _Ints, _Ints, _Ints]

_ID = DataFragment.ID_FIELD_NUMBER << 3 | VARINT
_FILES = DataFragment.FILES_FIELD_NUMBER << 3 | LENGTH_DELIMITED
_DELETION_FILE = DataFragment.DELETION_FILE_FIELD_NUMBER << 3 | LENGTH_DELIMITED
_PHYSICAL_ROWS = DataFragment.PHYSICAL_ROWS_FIELD_NUMBER << 3 | VARINT
_ROW_IDS = DataFragment.INLINE_ROW_IDS_FIELD_NUMBER << 3 | LENGTH_DELIMITED
_LAST_UPDATED = DataFragment.INLINE_LAST_UPDATED_AT_VERSIONS_FIELD_NUMBER << 3 | LENGTH_DELIMITED
_CREATED = DataFragment.INLINE_CREATED_AT_VERSIONS_FIELD_NUMBER << 3 | LENGTH_DELIMITED

_PATH = DataFile.PATH_FIELD_NUMBER << 3 | LENGTH_DELIMITED
_FIELDS = DataFile.FIELDS_FIELD_NUMBER << 3 | LENGTH_DELIMITED
_COLUMNS = DataFile.COLUMN_INDICES_FIELD_NUMBER << 3 | LENGTH_DELIMITED
_MAJOR = DataFile.FILE_MAJOR_VERSION_FIELD_NUMBER << 3 | VARINT
_MINOR = DataFile.FILE_MINOR_VERSION_FIELD_NUMBER << 3 | VARINT
_SIZE = DataFile.FILE_SIZE_BYTES_FIELD_NUMBER << 3 | VARINT
_BASE = DataFile.BASE_ID_FIELD_NUMBER << 3 | VARINT

_TYPE = DeletionFileMessage.FILE_TYPE_FIELD_NUMBER << 3 | VARINT
_DELETED_ROWS = DeletionFileMessage.NUM_DELETED_ROWS_FIELD_NUMBER << 3 | VARINT
_OTHER_OF_DELETIONS = tuple(
    number << 3 | VARINT
    for number in (
        DeletionFileMessage.READ_VERSION_FIELD_NUMBER,
        DeletionFileMessage.ID_FIELD_NUMBER,
        DeletionFileMessage.BASE_ID_FIELD_NUMBER,
    )
)


def decode_columns(data: bytes, offsets: _Ints) -> tuple[FragmentColumns, bool]:
    """Return the columns of adjacent fragments, and whether one has unknown fields.

    Refuse a fragment that cannot be read reliably.

    ``data``: a Manifest message; ``offsets``: start of each fragment in it, and the last end; shape
    (n + 1,).
    """
    columns, has_unknown = FragmentColumns.zeros(len(offsets) - 1), False
    for first in range(0, len(offsets) - 1, _CHUNK):
        bounds = offsets[first : first + _CHUNK + 1]
        part = columns.take(slice(first, first + _CHUNK))
        is_odd = _decode_common(np.frombuffer(data, np.uint8), bounds, part)
        odd = np.flatnonzero(is_odd)
        for indices in (odd[at : at + PARSED] for at in range(0, len(odd), PARSED)):
            found, has_unknown_fields = _parse_columns(_fields_of(data, bounds, indices))
            part.put(indices, found)
            has_unknown |= has_unknown_fields
    return columns, has_unknown


def _fields_of(data: bytes, bounds: _Ints, indices: _Ints) -> bytes:
    """Return the bytes of the fragments at ascending positions."""
    first, last = indices[0], indices[-1] + 1
    if last - first == len(indices):
        return data[bounds[first] : bounds[last]]
    pairs = zip(bounds[indices].tolist(), bounds[indices + 1].tolist(), strict=True)
    return b"".join([data[start:end] for start, end in pairs])


def _parse_columns(data: bytes) -> tuple[FragmentColumns, bool]:
    """Return the columns of the fragments of a message by the library; see ``decode_columns``."""
    message = parse_message(Manifest, data)
    has_unknown_fields = drop_unknown_fields(message)
    rows = []
    for one in message.fragments:
        num_bytes = 0
        versions: tuple[tuple[int, int], ...] = ()
        for file in one.files:
            check_data_file(file.path, file.fields, file.column_indices)
            num_bytes += file.file_size_bytes
            versions += ((file.file_major_version, file.file_minor_version),)
        fragment_id, physical_rows = one.id, one.physical_rows
        has_deletions = one.HasField("deletion_file")
        num_deleted = 0
        if has_deletions:
            num_deleted = DeletionFile.from_proto(one.deletion_file).num_deleted_rows
        if fragment_id > MAX_FRAGMENT_ID or physical_rows > MAX_PHYSICAL_ROWS or one.overlays:
            fragments_from_protos([one])  # raises the specific error
        rows.append(
            (
                fragment_id,
                physical_rows,
                min(num_deleted, _MAX_SUM),
                has_deletions,
                one.HasField("inline_row_ids") or one.WhichOneof("row_id_sequence") is not None,
                min(num_bytes, _MAX_SUM),
                file_version_code(versions),
            )
        )
    return FragmentColumns.of(rows), has_unknown_fields


def _decode_common(raw: _Bytes, bounds: _Ints, columns: FragmentColumns) -> _Flags:
    """Set the columns of the fragments of the common shape; return which are of another shape."""
    count = len(bounds) - 1
    if count < _MIN_FRAGMENTS:
        return np.ones(count, bool)
    ends = bounds[1:]
    # Numbers near the end of the message could be looked for beyond it.
    is_odd = ends > len(raw) - _LONGEST_VARINT
    _, starts = _varints(raw, np.where(is_odd, 0, bounds[:-1] + 1))
    files: list[tuple[_Ints, _Ints, _Ints]] = []
    deletions: list[tuple[_Ints, _Ints, _Ints]] = []
    for tag, rows, values, begins in _fields(raw, starts, ends, is_odd):
        if tag == _ID:
            columns.ids[rows] = values
        elif tag == _FILES:
            files.append((rows, begins, begins + values))
        elif tag == _PHYSICAL_ROWS:
            columns.physical_rows[rows] = values
        elif tag == _ROW_IDS:
            columns.has_row_ids[rows] = True
        elif tag == _DELETION_FILE:
            is_odd[rows] |= columns.has_deletions[rows]  # repeated messages are merged
            columns.has_deletions[rows] = True
            deletions.append((rows, begins, begins + values))
        elif tag not in (_CREATED, _LAST_UPDATED):
            is_odd[rows] = True
    is_odd |= (columns.ids > MAX_FRAGMENT_ID) | (columns.physical_rows > MAX_PHYSICAL_ROWS)
    columns.file_version[:] = SEVERAL_VERSIONS
    if files:
        _decode_files(raw, files, columns, is_odd)
    if deletions:
        _decode_deletions(raw, deletions, columns, is_odd)
    return is_odd


def _decode_files(
    raw: _Bytes, files: list[tuple[_Ints, _Ints, _Ints]], columns: FragmentColumns, is_odd: _Flags
) -> None:
    """Set the columns that depend on data files."""
    owners, starts, ends = (np.concatenate(parts) for parts in zip(*files, strict=True))
    count = len(owners)
    is_bad, has_path = np.zeros(count, bool), np.zeros(count, bool)
    num_fields, num_columns, major, minor, size = np.zeros((5, count), np.int64)
    numbers = {_MAJOR: major, _MINOR: minor, _SIZE: size}
    lists = {_FIELDS: num_fields, _COLUMNS: num_columns}
    for tag, rows, values, begins in _fields(raw, starts, ends, is_bad):
        if tag in numbers:
            numbers[tag][rows] = values
        elif tag == _PATH:
            has_path[rows] = values > 0
            is_bad[rows] |= values > _MAX_BYTES
            for some, content in _contents(raw, begins, values):
                is_bad[rows[some]] |= ~_are_paths(content)
        elif tag in lists:
            is_bad[rows] |= values > _MAX_BYTES
            for some, content in _contents(raw, begins, values):
                count_each, are_lists = _list_lengths(content)
                lists[tag][rows[some]] += count_each
                is_bad[rows[some]] |= ~are_lists
        elif tag != _BASE:
            is_bad[rows] = True
    is_bad |= ~has_path | ((num_columns > 0) & (num_columns != num_fields))
    is_bad |= (major >= MAJOR_UNIT) | (minor >= MAJOR_UNIT)
    is_odd[owners[is_bad]] = True
    np.add.at(columns.num_bytes, owners, size)
    versions = major * MAJOR_UNIT + minor
    columns.file_version[owners] = versions
    differs = columns.file_version[owners] != versions
    columns.file_version[owners[differs]] = SEVERAL_VERSIONS


def _decode_deletions(
    raw: _Bytes,
    deletions: list[tuple[_Ints, _Ints, _Ints]],
    columns: FragmentColumns,
    is_odd: _Flags,
) -> None:
    """Set the columns that depend on deletion files."""
    owners, starts, ends = (np.concatenate(parts) for parts in zip(*deletions, strict=True))
    is_bad = np.zeros(len(owners), bool)
    for tag, rows, values, _ in _fields(raw, starts, ends, is_bad):
        if tag == _DELETED_ROWS:
            columns.num_deleted_rows[owners[rows]] = values
        elif tag == _TYPE:
            is_bad[rows] |= values > max(DeletionFileType)
        elif tag not in _OTHER_OF_DELETIONS:
            is_bad[rows] = True
    is_odd[owners[is_bad]] = True


def _fields(raw: _Bytes, starts: _Ints, ends: _Ints, is_odd: _Flags) -> Iterator[_Field]:
    """Yield the n-th fields of all messages by tag: tag, messages, values, starts of the contents.

    A value is a number or a length. Messages that cannot be split are marked in ``is_odd``, which
    the caller may do, too; it has to do so for unknown tags.
    """
    rows = np.flatnonzero((starts < ends) & ~is_odd)
    at, ends = starts[rows], ends[rows]
    for _ in range(_MAX_FIELDS):
        tags = raw[at]
        values, begins = _varints(raw, at + 1)
        after = begins + np.where(tags & 7 == LENGTH_DELIMITED, values, 0)
        is_inside = after <= ends
        is_odd[rows[~is_inside]] = True
        for tag in np.flatnonzero(np.bincount(tags)).tolist():
            here = np.flatnonzero(is_inside & (tags == tag))
            yield tag, rows[here], values[here], begins[here]
        left = np.flatnonzero((after < ends) & ~is_odd[rows])
        if not len(left):
            return
        rows, at, ends = rows[left], after[left], ends[left]
    is_odd[rows] = True


def _varints(raw: _Bytes, at: _Ints) -> tuple[_Ints, _Ints]:
    """Return the number at each position, and the position after it; a far one for long numbers."""
    values, after = raw[at].astype(np.int64), at + 1
    more = np.flatnonzero(values >= _CONTINUES)
    values &= 0x7F
    for index in range(1, _MAX_VARINT):
        if not len(more):
            break
        part = raw[at[more] + index].astype(np.int64)
        values[more] |= (part & 0x7F) << 7 * index
        after[more] += 1
        more = more[part >= _CONTINUES]
    after[more] = len(raw) + 1
    return values, after


def _contents(raw: _Bytes, starts: _Ints, lengths: _Ints) -> Iterator[tuple[_Ints, _Bytes]]:
    """Yield the contents of one length as rows of an array, with their positions in ``starts``."""
    for length in np.unique(lengths[(lengths > 0) & (lengths <= _MAX_BYTES)]).tolist():
        some = np.flatnonzero(lengths == length)
        yield some, np.lib.stride_tricks.sliding_window_view(raw, length)[starts[some]]


def _are_paths(content: _Bytes) -> _Flags:
    """Return which contents ``check_data_file`` accepts; False for all that are not ASCII."""
    dots = content == ord(".")
    is_bad = (content == 0) | (content >= _CONTINUES)
    is_bad[:, 1:] |= dots[:, 1:] & dots[:, :-1]
    is_bad[:, 0] |= content[:, 0] == ord("/")
    return ~is_bad.any(axis=1)


def _list_lengths(content: _Bytes) -> tuple[_Ints, _Flags]:
    """Return how many numbers each packed list has, and whether all of them fit 64 bits."""
    continues = content >= _CONTINUES
    length, is_bad = content.shape[1], continues[:, -1].copy()
    if length >= _LONGEST_VARINT:
        starts = range(_LONGEST_VARINT - 1)
        firsts = [continues[:, n : length - _LONGEST_VARINT + 1 + n] for n in starts]
        lasts = content[:, _LONGEST_VARINT - 1 :]
        is_bad |= (np.logical_and.reduce(firsts) & (lasts > 1)).any(axis=1)
    return length - continues.sum(axis=1), ~is_bad

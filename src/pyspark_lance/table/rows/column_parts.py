"""Find the files of the parts of a column, merge the parts, and share open files.

The columns of a fragment may be spread over several data files: a column added later has its own
file, and so does a field added to a struct. A missing part reads as null. If files have only
unrequested fields of a struct, one of these is read for the validity of the struct.

``SharedRows`` are rows of a data file that several readers need. To take one row in a hundred
decodes nearly every page of a file, and so does to take another one in a hundred. Readers that know
their rows announce them; the rows of all are decoded in one pass when the first of them is taken.

Source: docs/format/table-format.md, sections 3.3, 3.6, 4.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import is_

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.codec.shred import data_bytes
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.format.logical_view import blob_as_descriptor, stored_field
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.plain_values import numbers_with_default
from pyspark_lance.table.version.table_files import TableFiles


@dataclass(frozen=True, slots=True)
class FilePart:
    """Part of a request that one data file contributes."""

    file: DataFile
    fields: tuple[Field, ...]  # The requested top-level fields, pruned to those of this file.
    positions: tuple[int, ...]  # For each of ``fields``, its position in the request.
    column_of: Mapping[int, int]  # Field id -> column index in the file.


def find_parts(fields: Sequence[Field], files: Sequence[DataFile]) -> tuple[FilePart, ...]:
    """Return the files that have parts of ``fields``."""
    everything = frozenset().union(*(file.fields for file in files))
    fields = [_with_witnesses(field, everything) for field in fields]
    parts = []
    for file in files:
        column_of = dict(zip(file.fields, file.column_indices, strict=False))
        listed = column_of.keys() if file.column_indices else set(file.fields)
        pruned = [(position, prune_field(field, listed)) for position, field in enumerate(fields)]
        present = [(position, field) for position, field in pruned if field is not None]
        if present:
            parts.append(
                FilePart(
                    file=file,
                    fields=tuple(field for _, field in present),
                    positions=tuple(position for position, _ in present),
                    column_of=column_of,
                )
            )
    return tuple(parts)


def prune_field(field: Field, listed: Mapping[int, int] | set[int] | object) -> Field | None:
    """Prune ``field`` to the leaves whose ids are ``listed``; None if there are none."""
    if not field.children or field.is_packed or field.is_blob:
        return field if field.id in listed else None  # type: ignore[operator]
    children = [prune_field(child, listed) for child in field.children]
    present = tuple(child for child in children if child is not None)
    if not present:
        return None
    if len(present) == len(children) and all(
        new is old for new, old in zip(present, field.children, strict=True)
    ):
        return field
    return replace(field, children=present)


def _with_witnesses(field: Field, listed: frozenset[int]) -> Field:
    """Add a witness field to structs of which no file has a requested field."""
    if not field.children or field.is_packed or field.is_blob:
        return field
    children = [_with_witnesses(child, listed) for child in field.children]
    if field.left_out and all(prune_field(child, listed) is None for child in children):
        pruned = (prune_field(child, listed) for child in field.left_out)
        children += [_witness(child) for child in sorted(filter(None, pruned), key=_cost)[:1]]
    if len(children) == len(field.children) and all(map(is_, children, field.children)):
        return field
    return replace(field, children=tuple(children))


def _witness(field: Field) -> Field:
    """Return the leaf of a field that is read for the validity of its struct."""
    if field.is_blob:
        return blob_as_descriptor(field)
    if not field.children or field.is_packed or field.is_map:
        return stored_field(field)
    return field.with_only([_witness(min(field.children, key=_cost))])


def _cost(field: Field) -> int:
    """Return the sort key of candidate witnesses, the cheapest first."""
    if field.is_blob or field.is_packed:
        return 3
    return 2 if field.children else 0 if pa.types.is_primitive(field.to_arrow().type) else 1


def structs_without_nulls(files: Sequence[DataFile]) -> frozenset[int]:
    """Return ids of structs that are valid in each row, whichever of their fields files have.

    Files of older versions have no null structs, and list their structs.
    """
    older = (file.fields for file in files if file.file_version in ("0.1", "2.0"))
    return frozenset().union(*older)


def join_parts(
    field: Field, parts: Sequence[tuple[Field, pa.Array]], num_rows: int, present: frozenset[int]
) -> pa.Array:
    """Merge the parts of ``field`` in all files to one array.

    ``parts``: pruned fields and their arrays, each of ``num_rows`` rows. ``present``: of
    ``structs_without_nulls``.
    """
    if not parts:
        return _absent(field, num_rows, present)
    first_field, first = parts[0]
    if len(parts) == 1 and first_field is field:
        return first
    if field.is_struct:
        return _join_struct(field, parts, num_rows, present)
    if field.is_map or field.is_list:
        return _join_lists(field, parts, present)
    if field.children:
        return _join_fixed_size_lists(field, parts, present)
    return first


def _absent(field: Field, num_rows: int, present: frozenset[int]) -> pa.Array:
    """Return the values of a missing part: null, except for valid structs."""
    is_there = field.is_struct and field.id in present and field.children
    if not is_there or field.is_packed or field.is_blob:
        return pa.nulls(num_rows, field.to_arrow().type)
    members = [_absent(child, num_rows, present) for child in field.children]
    return pa.StructArray.from_arrays(members, fields=list(field.to_arrow().type))


def _join_struct(
    field: Field, parts: Sequence[tuple[Field, pa.Array]], num_rows: int, present: frozenset[int]
) -> pa.Array:
    arrays = []
    for child in field.children:
        child_parts = [
            (part_child, array.field(index))
            for part, array in parts
            for index, part_child in enumerate(part.children)
            if part_child.id == child.id
        ]
        if len(child_parts) > 1 and not child.children:
            child_parts = child_parts[:1]
        # An unpruned child is the same object in the request and in the part.
        arrays.append(join_parts(child, child_parts, num_rows, present))
    first = parts[0][1]
    mask = pc.is_null(first) if first.null_count else None
    return pa.StructArray.from_arrays(
        arrays, fields=[child.to_arrow() for child in field.children], mask=mask
    )


def _join_lists(
    field: Field, parts: Sequence[tuple[Field, pa.Array]], present: frozenset[int]
) -> pa.Array:
    first = parts[0][1]
    lists = [
        array.cast(pa.list_(array.type.value_type)) if pa.types.is_map(array.type) else array
        for _, array in parts
    ]
    lengths = numbers_with_default(0, pc.list_value_length(lists[0]))
    for other in lists[1:]:
        theirs = numbers_with_default(0, pc.list_value_length(other))
        if not np.array_equal(lengths, theirs):
            raise CorruptFileError(
                f"two files of one fragment disagree about the list lengths of {field.name!r}"
            )
    wide = pa.types.is_large_list(first.type)
    offsets = np.zeros(len(first) + 1, dtype=np.int64 if wide else np.int32)
    np.cumsum(lengths, out=offsets[1:])
    item = field.children[0]
    values = join_parts(
        item,
        [(part.children[0], _flat(array)) for (part, _), array in zip(parts, lists, strict=True)],
        int(offsets[-1]),
        present,
    )
    validity = pc.is_valid(first).buffers()[1] if first.null_count else None
    return pa.Array.from_buffers(
        field.to_arrow().type,
        len(first),
        [validity, pa.py_buffer(offsets)],
        null_count=first.null_count,
        children=[values],
    )


def _flat(array: pa.Array) -> pa.Array:
    """Return the concatenated items of non-null lists."""
    return array.flatten()


def _join_fixed_size_lists(
    field: Field, parts: Sequence[tuple[Field, pa.Array]], present: frozenset[int]
) -> pa.Array:
    first = parts[0][1]
    size = first.type.list_size
    values = join_parts(
        field.children[0],
        [
            (part.children[0], array.values.slice(array.offset * size, len(array) * size))
            for part, array in parts
        ],
        len(first) * size,
        present,
    )
    mask = pc.is_null(first) if first.null_count else None
    return pa.FixedSizeListArray.from_arrays(values, type=field.to_arrow().type, mask=mask)


FileKey = tuple[str, tuple[BasePath, ...], int | None, str]
"""Root of the table, its base paths, and which of them a data file is below, at which path."""


def file_key(files: TableFiles, file: DataFile) -> FileKey:
    """Return a key that is equal for the same data file in all versions."""
    return files.table.uri, files.base_paths, file.base_id, file.path


@dataclass(slots=True)
class _PendingRows:
    """Rows of a file that readers will take."""

    fields: tuple[Field, ...]
    columns: tuple[int, ...]  # Of the fields and what is below, in the file.
    requests: list[NDArray[np.uint32]] = field(default_factory=list)
    rows: pa.RecordBatch | None = None  # Those at ``offsets``, once they were decoded.
    offsets: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    is_shared: bool = True  # Whether rows are decoded together; not if they are too large.


class SharedRows:
    """Rows of data files that several readers take; for one thread.

    ``max_bytes``: decoded bytes that are kept; rows that there is no room for are decoded when they
    are taken.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._readers: dict[FileKey, DataFileReader] = {}
        self._pending: dict[FileKey, list[_PendingRows]] = {}
        self._kept_bytes = 0

    def reader(self, key: FileKey, open_file: Callable[[], DataFileReader]) -> DataFileReader:
        """The reader of a file, opened on first use."""
        known = self._readers.get(key)
        if known is None:
            known = self._readers[key] = open_file()
        return known

    def prefetch(self, key: FileKey, part: FilePart, offsets: NDArray[np.uint32]) -> None:
        """Announce rows of later ``take`` calls.

        Args:
            key: The file.
            part: The part of it to read.
            offsets: The rows, ascending; not all have to be taken at once.
        """
        wanted = self._find(key, part)
        if wanted is None:
            wanted = _PendingRows(part.fields, _columns_of(part))
            self._pending.setdefault(key, []).append(wanted)
        wanted.requests.append(offsets)

    def take(
        self,
        key: FileKey,
        reader: DataFileReader,
        part: FilePart,
        offsets: NDArray[np.uint32],
        max_bytes: int | None,
    ) -> pa.RecordBatch:
        """Return rows of a file, as ``DataFileReader.take`` does."""
        wanted = self._find(key, part)
        if wanted is not None and wanted.rows is None and wanted.is_shared:
            self._decode(wanted, reader, part, len(offsets))
        if wanted is None or wanted.rows is None:
            return reader.take(part.fields, part.column_of, offsets, max_bytes=max_bytes)
        indices = np.searchsorted(wanted.offsets, offsets)
        return take_rows(wanted.rows, indices)

    def drop(self) -> None:
        """Drop rows and files."""
        self._readers.clear()
        self._pending.clear()
        self._kept_bytes = 0

    def _find(self, key: FileKey, part: FilePart) -> _PendingRows | None:
        known = self._pending.get(key, ())
        columns = _columns_of(part) if known else ()
        for wanted in known:
            # Versions have equal fields, and often the same.
            if wanted.columns == columns and wanted.fields == part.fields:
                return wanted
        return None

    def _decode(
        self, wanted: _PendingRows, reader: DataFileReader, part: FilePart, num_taken: int
    ) -> None:
        """Decode the requested rows, unless all of them are taken now."""
        if sum(map(len, wanted.requests)) <= num_taken:
            wanted.is_shared = False
            return
        offsets = np.sort(np.concatenate(wanted.requests))
        offsets = offsets[np.diff(offsets, prepend=offsets[:1] + np.uint32(1)) != 0]
        room = self._max_bytes - self._kept_bytes
        try:
            if room <= 0:
                raise BatchTooLargeError
            rows = reader.take(part.fields, part.column_of, offsets, max_bytes=room)
        except BatchTooLargeError:
            wanted.is_shared = False
            return
        wanted.rows, wanted.offsets = rows, offsets
        wanted.requests.clear()
        self._kept_bytes += sum(map(data_bytes, rows.columns))


def _columns_of(part: FilePart) -> tuple[int, ...]:
    return tuple(part.column_of.get(one.id, -1) for whole in part.fields for one in whole.walk())

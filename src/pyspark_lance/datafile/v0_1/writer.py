"""LegacyFileWriter: write record batches as one .lance file of version 0.1.

Rows are written in groups, each with one page per field and statistics of its values, by which
readers pass over groups. The format keeps no validity, so data that would come back changed are
refused.

Source: docs/format/file-format.md, sections 10, 10.2, 10.3 and 14.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import fewest_batches
from pyspark_lance.codec.v2_0.flat import bit_width_of
from pyspark_lance.codec.v2_0.variable_width import is_large, is_variable_type, value_offsets
from pyspark_lance.datafile.v0_1.metadata import LEGACY_FOOTER, LENGTH
from pyspark_lance.datafile.v0_1.statistics import StatisticsCollector
from pyspark_lance.datafile.version_support import check_legacy_writable
from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    SchemaMismatchError,
    UnsupportedFeatureError,
)
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import file_pb2
from pyspark_lance.store.object_store import ObjectStore, OutputFile


def known_dictionaries(schema: LanceSchema, content: bytes) -> dict[int, pa.Array]:
    """The items of every dictionary that has some, by field id.

    ``schema``: columns of a table of file version 0.1.
    """
    return {
        field.id: _items(field, content)
        for field in schema.walk()
        if field.logical_type.startswith("dict:") and field.dictionary and field.dictionary[1]
    }


def indices_of(array: pa.DictionaryArray, items: pa.Array, path: str) -> pa.Array:
    """Return the indices of the values among the items of the table; nulls stay null."""
    values = array.dictionary
    indices = pc.index_in(values, value_set=items)
    unknown = pc.and_(pc.is_null(indices), pc.is_valid(values))
    used = pc.take(unknown, array.indices.drop_null())
    if bool(pc.any(used).as_py()):
        first = pc.filter(pc.take(values, array.indices.drop_null()), used)[0].as_py()
        raise UnsupportedFeatureError(
            f"column {path}: {first!r} is not in the dictionary of the table, and all files of"
            " version 0.1 share one",
            hint="rewrite the table with file version 2.0 or newer",
        )
    return pc.take(indices, array.indices).cast(array.type.index_type)


def _items(field: Field, content: bytes) -> pa.Array:
    assert field.dictionary is not None
    position, count = field.dictionary
    data_type = field.to_arrow().type.value_type
    try:
        if not is_variable_type(data_type):
            size = -(-count * (bit_width_of(data_type) or 0) // 8)
            plain = pa.py_buffer(_slice(content, position, size))
            return pa.Array.from_buffers(data_type, count, [None, plain])
        positions = np.frombuffer(_slice(content, position, 8 * (count + 1)), "<i8")
        first, end = int(positions[0]), int(positions[-1])
        if bool((np.diff(positions) < 0).any()):
            raise IndexError
        offsets = (positions - first).astype(np.int64 if is_large(data_type) else np.int32)
        data = pa.py_buffer(_slice(content, first, end - first))
        return pa.Array.from_buffers(data_type, count, [None, pa.py_buffer(offsets), data])
    except IndexError as error:
        raise CorruptFileError(
            f"the manifest does not hold the dictionary of column {field.name!r}"
        ) from error


def _slice(content: bytes, start: int, size: int) -> bytes:
    if start < 0 or size < 0 or start + size > len(content):
        raise IndexError
    return content[start : start + size]


class PageEntry(NamedTuple):
    """One entry of a page table."""

    position: int
    num_values: int


class LegacyPageWriter:
    """Writer of pages to the end of a file."""

    def __init__(self, output: OutputFile, dictionaries: Mapping[int, pa.Array]) -> None:
        self._output = output
        self._dictionaries = dictionaries

    def write(
        self,
        field: Field,
        array: pa.Array,
        entries: dict[int, PageEntry],
        *,
        is_strict: bool = True,
    ) -> None:
        """Write the pages of a field and everything below.

        ``entries``: takes where the page of each field id is.
        """
        self._write(field, field.name, array, entries, is_strict=is_strict)

    def _write(
        self,
        field: Field,
        path: str,
        array: pa.Array,
        entries: dict[int, PageEntry],
        *,
        is_strict: bool,
    ) -> None:
        if isinstance(array, pa.ExtensionArray):
            array = array.storage
        if pa.types.is_dictionary(array.type):
            array = indices_of(array, self._dictionaries[field.id], path)
        is_string = is_variable_type(array.type)
        if is_strict:
            _check_values(field, path, array, is_string=is_string)
        if field.is_struct:
            for index, child in enumerate(field.children):
                self._write(
                    child, f"{path}.{child.name}", array.field(index), entries, is_strict=is_strict
                )
            return
        if field.is_list:
            position = self._output.tell()
            offsets = value_offsets(array)
            self._put(offsets - offsets[0])
            entries[field.id] = PageEntry(position, len(array) + 1)
            (item,) = field.children
            self._write(item, f"{path}.item", array.flatten(), entries, is_strict=is_strict)
            return
        if is_string:
            entries[field.id] = self._write_strings(array)
            return
        position = self._output.tell()
        self._put(plain_bytes(array))
        entries[field.id] = PageEntry(position, len(array))

    def write_items(self, items: pa.Array) -> PageEntry:
        """Write the items of a dictionary."""
        if is_variable_type(items.type):
            return self._write_strings(items)
        position = self._output.tell()
        self._put(plain_bytes(items))
        return PageEntry(position, len(items))

    def _write_strings(self, array: pa.Array) -> PageEntry:
        """The bytes, then where each value begins in the file and the last one ends."""
        if array.null_count:
            # What lies below a null may be anything.
            array = pc.fill_null(array, pa.scalar(b"").cast(array.type))
        offsets = value_offsets(array).astype(np.int64)
        start, content = self._output.tell(), array.buffers()[2]
        if content is not None:
            self._output.write(memoryview(content)[int(offsets[0]) : int(offsets[-1])])
        position = self._output.tell()
        self._put((offsets - offsets[0] + start).astype("<i8"))
        return PageEntry(position, len(array))

    def _put(self, values: NDArray[np.generic]) -> None:
        self._output.write(np.ascontiguousarray(values).view(np.uint8))


def plain_bytes(array: pa.Array) -> NDArray[np.uint8]:
    """The values of a fixed-width array without nulls, as they are stored."""
    types = pa.types
    if types.is_null(array.type) or not len(array):
        return np.zeros(0, np.uint8)
    if types.is_fixed_size_list(array.type):
        return plain_bytes(array.flatten())
    content = np.frombuffer(array.buffers()[1], np.uint8)
    first, last = array.offset, array.offset + len(array)
    if types.is_boolean(array.type):
        bits = np.unpackbits(content[first // 8 : -(-last // 8)], bitorder="little")
        return np.packbits(bits[first % 8 :][: len(array)], bitorder="little")
    width = array.type.bit_width // 8
    return content[first * width : last * width]


def _check_values(field: Field, path: str, array: pa.Array, *, is_string: bool) -> None:
    """Reject values that would be read back differently."""
    if pa.types.is_null(array.type):
        return
    if is_string and field.nullable:
        # An empty value is how a null is stored.
        if bool(pc.any(pc.equal(pc.binary_length(array), 0)).as_py()):
            raise UnsupportedFeatureError(
                f"column {path}: files of version 0.1 cannot tell an empty value from a null",
                hint="replace empty strings, or use file version 2.0 or newer",
            )
        return
    if array.null_count or _has_null_items(array):
        raise UnsupportedFeatureError(
            f"column {path}: files of version 0.1 cannot hold nulls of type {array.type}",
            hint="replace the nulls, or use file version 2.0 or newer",
        )


def _has_null_items(array: pa.Array) -> bool:
    if not pa.types.is_fixed_size_list(array.type):
        return False
    items = array.flatten()
    return bool(items.null_count) or _has_null_items(items)


_NO_DICTIONARIES: Mapping[int, pa.Array] = MappingProxyType({})
GROUP_ROWS = 8192
GROUP_BYTES = 8 << 20
_MAX_ROWS = (1 << 31) - 1
_MAJOR, _MINOR = 0, 2


class LegacyFileWriter:
    """Writer of one data file, which becomes visible at ``finish``.

    ``path``: relative to the table root, such as ``data/x.lance``.
    """

    blob_objects = ()  # These files hold no blobs.

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        schema: LanceSchema,
        dictionaries: Mapping[int, pa.Array] = _NO_DICTIONARIES,
    ) -> None:
        check_legacy_writable(schema, dictionaries.keys())
        self._dictionaries = dictionaries
        self._path, self._schema = path, schema
        self._rows_written = 0
        self._held: list[pa.RecordBatch] = []
        self._held_rows = self._held_bytes = 0
        self._group_starts = [0]
        self._entries: list[dict[int, PageEntry]] = []
        self._statistics = StatisticsCollector(schema.fields)
        self._finished = False
        self._output = store.open_output(path)
        self._pages = LegacyPageWriter(self._output, dictionaries)

    @property
    def bytes_written(self) -> int:
        """Length of the file so far and of the rows buffered for its next group."""
        return self._output.tell() + self._held_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch whose columns are the schema's, in its order."""
        self._check_open()
        if list(self._schema.names) != batch.schema.names:
            raise SchemaMismatchError(
                f"the data file has the columns {list(self._schema.names)}, the batch has "
                f"{batch.schema.names}",
                where=self._path,
            )
        if self._rows_written + batch.num_rows > _MAX_ROWS:
            raise InvalidInputError(f"a 0.1 file of more than {_MAX_ROWS} rows", where=self._path)
        row_bytes = max(1, batch.nbytes // max(1, batch.num_rows))
        limit = max(1, min(GROUP_ROWS, GROUP_BYTES // row_bytes))
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, max(1, limit - self._held_rows))
            self._held.append(piece)
            self._held_rows += piece.num_rows
            self._held_bytes += piece.num_rows * row_bytes
            start += piece.num_rows
            if self._held_rows >= limit or self._held_bytes >= GROUP_BYTES:
                self._write_group()
        self._rows_written += batch.num_rows

    def finish(self) -> DataFile:
        """Write the buffered rows and the metadata, and publish the file."""
        self._check_open()
        self._write_group()
        self._finished = True
        size = self._write_metadata()
        self._output.close()
        ids = sorted(field.id for field in self._schema.walk())
        return DataFile(
            path=self._path.removeprefix("data/"),
            fields=tuple(ids),
            column_indices=(),
            major_version=_MAJOR,
            minor_version=_MINOR,
            size_bytes=size,
        )

    def abort(self) -> None:
        """Discard the file; do nothing after ``finish``."""
        if not self._finished:
            self._finished = True
            self._output.abort()

    def _check_open(self) -> None:
        if self._finished:
            raise InvalidInputError(f"the data file {self._path} is finished")

    def _write_group(self) -> None:
        """Write one page per field."""
        if not self._held_rows:
            return
        for group in fewest_batches(self._held):
            entries: dict[int, PageEntry] = {}
            for field, array in zip(self._schema.fields, group.columns, strict=True):
                self._pages.write(field, array, entries)
                self._statistics.add(field, array)
            self._entries.append(entries)
            self._group_starts.append(self._group_starts[-1] + group.num_rows)
        self._held, self._held_rows, self._held_bytes = [], 0, 0

    def _write_metadata(self) -> int:
        """Write everything behind the pages; return the length of the file."""
        message = file_pb2.LegacyMetadata(batch_offsets=self._group_starts)
        ids = [field.id for field in self._schema.walk()]
        message.page_table_position = self._write_page_table(min(ids), max(ids), self._entries)
        fields, arrays = self._statistics.finish()
        if fields:
            schema = LanceSchema(tuple(fields))
            entries: dict[int, PageEntry] = {}
            for field, array in zip(fields, arrays, strict=True):
                self._pages.write(field, array, entries, is_strict=False)
            message.statistics.page_table_position = self._write_page_table(
                0, schema.max_field_id, [entries]
            )
            message.statistics.schema.extend(schema.to_protos())
            message.statistics.fields.extend(field.id for field in schema.walk())
        fields_here = LanceSchema(tuple(map(self._with_dictionary, self._schema.fields)))
        embedded = file_pb2.Schema(
            fields=fields_here.to_protos(), metadata=dict(self._schema.metadata)
        )
        message.manifest_position = self._write_message(embedded.SerializeToString())
        position = self._write_message(message.SerializeToString())
        self._output.write(LEGACY_FOOTER.pack(position, _MAJOR, _MINOR, b"LANC"))
        return self._output.tell()

    def _with_dictionary(self, field: Field) -> Field:
        """The field with its dictionaries, whose items are written, where this file has them."""
        items = self._dictionaries.get(field.id)
        if items is not None:
            entry = self._pages.write_items(items)
            return replace(field, dictionary=(entry.position, entry.num_values))
        children = tuple(map(self._with_dictionary, field.children))
        return replace(field, children=children)

    def _write_page_table(
        self, first_id: int, last_id: int, batches: list[dict[int, PageEntry]]
    ) -> int:
        """Position and length of every page, by field id, then by batch; (0, 0) for none."""
        table = np.zeros((last_id - first_id + 1, len(batches), 2), "<i8")
        for batch, entries in enumerate(batches):
            for field_id, entry in entries.items():
                table[field_id - first_id, batch] = entry
        position = self._output.tell()
        self._output.write(table.tobytes())
        return position

    def _write_message(self, content: bytes) -> int:
        position = self._output.tell()
        self._output.write(LENGTH.pack(len(content)))
        self._output.write(content)
        return position

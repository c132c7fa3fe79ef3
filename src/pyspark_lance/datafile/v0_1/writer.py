"""LegacyFileWriter: record batches become one .lance file of version 0.1.

Rows are written in groups, each with one page per field and statistics of its values, by which
readers pass over groups. The format keeps no validity, so data that would come back changed are
refused.

Source: docs/format/file-format.md, section 10.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.join_rows import fewest_batches
from pyspark_lance.datafile.v0_1.metadata import LEGACY_FOOTER, LENGTH
from pyspark_lance.datafile.v0_1.page_writer import LegacyPageWriter, PageEntry
from pyspark_lance.datafile.v0_1.statistics_writer import StatisticsCollector
from pyspark_lance.datafile.version_support import check_legacy_writable
from pyspark_lance.errors import InvalidInputError, SchemaMismatchError
from pyspark_lance.format.data_file import DataFile
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import file_pb2
from pyspark_lance.store.object_store import ObjectStore

_NO_DICTIONARIES: Mapping[int, pa.Array] = MappingProxyType({})
GROUP_ROWS = 8192
GROUP_BYTES = 8 << 20
_MAX_ROWS = (1 << 31) - 1
_MAJOR, _MINOR = 0, 2


class LegacyFileWriter:
    """Writes one data file; it appears at ``finish``.

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
        """Length of the file so far and what is collected for its next group."""
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
        """Write what is held and the metadata, and makes the file appear."""
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
        """Leaves no file behind; does nothing after ``finish``."""
        if not self._finished:
            self._finished = True
            self._output.abort()

    def _check_open(self) -> None:
        if self._finished:
            raise InvalidInputError(f"the data file {self._path} is finished")

    def _write_group(self) -> None:
        """One page per field."""
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
        """Everything behind the pages; returns the length of the file."""
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

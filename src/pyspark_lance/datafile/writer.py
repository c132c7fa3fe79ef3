"""DataFileWriter: record batches become one .lance file of version 2.0, 2.1 or 2.2.

Every top-level field collects its own pages, so columns need not have the same page boundaries, and
the memory used depends on the number of columns alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from pyspark_lance.datafile.blob_records import BlobObjects
from pyspark_lance.datafile.field_io import FieldWriter
from pyspark_lance.datafile.page_sink import PageSink
from pyspark_lance.datafile.version_support import check_writable, with_inherited_encodings
from pyspark_lance.errors import InvalidInputError, SchemaMismatchError
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.object_store import ObjectStore

_MAX_REFERENCED: Final = 64 << 20
"""Bytes of batches that narrow columns may keep alive while they wait for a page."""


class DataFileWriter:
    """Writer of one data file, which becomes visible at ``finish``.

    ``path``: relative to the table root, such as ``data/x.lance``; ``version``: ``2.0``, ``2.1`` or
    ``2.2``.
    """

    def __init__(self, store: ObjectStore, path: str, schema: LanceSchema, *, version: str) -> None:
        check_writable(schema, version)
        self._path = path
        self._schema = schema
        self._version = version
        self._types = [field.to_arrow().type for field in schema.fields]
        self._rows_written = 0
        self._referenced = 0
        self._finished = False
        self._output = store.open_output(path)
        self._sink = PageSink(self._output)
        self._objects = BlobObjects(store) if schema.manages_blobs and version == "2.2" else None
        self._writers: list[FieldWriter] = []
        self._num_columns = 0
        try:
            for field in with_inherited_encodings(schema).fields:
                writer = self._make_writer(field)
                self._writers.append(writer)
                self._num_columns += writer.num_columns
        except BaseException:
            self._sink.abort()
            raise

    @property
    def bytes_written(self) -> int:
        """Length of the file so far and of the rows buffered for its next pages."""
        return self._sink.bytes_written + sum(writer.buffered_bytes for writer in self._writers)

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a batch whose columns are the schema's, in its order."""
        if self._finished:
            raise InvalidInputError(f"the data file {self._path} is finished")
        self._check_columns(batch)
        for writer, array, kind in zip(self._writers, batch.columns, self._types, strict=True):
            writer.write(_of_type(array, kind))
        self._rows_written += batch.num_rows
        self._referenced += batch.nbytes
        if self._referenced >= _MAX_REFERENCED:
            for writer in self._writers:
                writer.own()
            self._referenced = 0

    def write_global_buffer(self, data: object) -> int:
        """Append bytes of the writer's own; their number is for a reader's ``global_buffer``."""
        return self._sink.write_global_buffer(data)

    def finish(self) -> DataFile:
        """Write the buffered rows and the metadata, and publish the file."""
        if self._finished:
            raise InvalidInputError(f"the data file {self._path} is finished")
        for writer in self._writers:
            writer.flush()
        if self._objects is not None:
            self._objects.finish()
        size = self._sink.finish(self._schema, self._rows_written, self._version, self._num_columns)
        self._finished = True
        columns = {
            id_: column for writer in self._writers for id_, column in writer.column_of.items()
        }
        major, minor = self._version.split(".")
        return DataFile(
            path=self._path.removeprefix("data/"),
            fields=tuple(columns),
            column_indices=tuple(columns.values()),
            major_version=int(major),
            minor_version=int(minor),
            size_bytes=size,
        )

    @property
    def blob_objects(self) -> Sequence[str]:
        """Paths of the objects that were written for large blobs."""
        return () if self._objects is None else self._objects.paths

    def abort(self) -> None:
        """Discard the file; do nothing after ``finish``."""
        if not self._finished:
            self._finished = True
            self._sink.abort()
            if self._objects is not None:
                self._objects.abort()

    def _make_writer(self, field: Field) -> FieldWriter:
        # A process writes files of one version, and pays for what it imports.
        first = self._num_columns
        if self._version == "2.0":
            from pyspark_lance.datafile.v2_0.field_writer import make_v2_0_field_writer  # noqa: PLC0415

            return make_v2_0_field_writer(field, self._sink, first)
        from pyspark_lance.datafile.v2_1.field_writer import V21FieldWriter  # noqa: PLC0415

        return V21FieldWriter(
            self._sink, field, first_column=first, version=self._version, objects=self._objects
        )

    def _check_columns(self, batch: pa.RecordBatch) -> None:
        expected, found = list(self._schema.names), batch.schema.names
        if expected != found:
            raise SchemaMismatchError(
                f"the data file has the columns {expected}, the batch has {found}", where=self._path
            )


def _of_type(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    """The array, if it has the type but for names and nullability of nested fields."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == data_type or _same_shape(array.type, data_type):
        return array
    raise SchemaMismatchError(
        f"the data file has a column of type {data_type}, the batch has {array.type}"
    )


def _same_shape(left: pa.DataType, right: pa.DataType) -> bool:
    """Return whether two types are equal but for names and nullability of nested fields."""
    if isinstance(left, pa.BaseExtensionType):
        return _same_shape(left.storage_type, right)
    if left.id != right.id or left.num_fields != right.num_fields:
        return False
    if left.num_fields == 0:
        return bool(left == right)
    if pa.types.is_fixed_size_list(left) and left.list_size != right.list_size:
        return False
    return all(
        _same_shape(left.field(index).type, right.field(index).type)
        for index in range(left.num_fields)
    )

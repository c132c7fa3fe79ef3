"""Opening the files of an index, and reading all or some of their rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.table.version.table_files import TableFiles


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An open file of an index.

    ``where``: the file, for messages.
    """

    reader: DataFileReader
    where: str

    @classmethod
    def open(cls, files: TableFiles, entry: IndexMetadata, name: str) -> IndexFile:
        """Opens the file ``name`` of an index."""
        store, path = files.locate_index(entry.base_id, index_path(entry.uuid, name))
        size_bytes = entry.file_sizes.get(name) or None
        reader = DataFileReader.open(store, path, size_bytes=size_bytes)
        return cls(reader, f"{store.uri}/{path}")

    def expect_columns(self, columns: Sequence[tuple[str, pa.DataType | None]]) -> None:
        """Checks names, order and types of the columns; a type of None may be any."""
        own = [(field.name, field.to_arrow().type) for field in self.reader.schema.fields]
        if [name for name, _ in own] != [name for name, _ in columns] or any(
            wanted is not None and wanted != found
            for (_, found), (_, wanted) in zip(own, columns, strict=True)
        ):
            shown = ", ".join(f"{name} {kind}" for name, kind in own)
            raise CorruptFileError(f"an index file has unexpected columns: {shown}", self.where)

    def read_all(self, *names: str) -> pa.RecordBatch:
        """Some columns of all rows."""
        fields = [field for field in self.reader.schema.fields if field.name in names]
        columns = self.reader.embedded_columns()
        return self.reader.read(fields, columns, 0, self.reader.num_rows)

    def read_ranges(self, ranges: Sequence[tuple[int, int]], names: Sequence[str]) -> pa.Table:
        """Some columns of the rows of ascending ranges."""
        fields = [field for field in self.reader.schema.fields if field.name in names]
        batches = self.reader.read_batches(fields, self.reader.embedded_columns(), ranges=ranges)
        schema = pa.schema([field.to_arrow() for field in fields])
        return pa.Table.from_batches(list(batches), schema).combine_chunks()

    def take(self, name: str, rows: NDArray[np.int64], max_bytes: int | None = None) -> pa.Array:
        """The values of a column in some rows."""
        fields = [field for field in self.reader.schema.fields if field.name == name]
        columns = self.reader.embedded_columns()
        return self.reader.take(fields, columns, rows, max_bytes=max_bytes).column(0)

"""IndexFile and ColumnQuery: an open index file, and a predicate on one column to look up in it.

Row ids that an index has are mapped to addresses of the version that is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.datafile.file_metadata import TAIL_BYTES
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.metafile.paths import index_path
from pyspark_lance.predicate.conditions import (
    Bounds,
    Predicate,
    parts_that_can_match,
    parts_that_must_match,
)
from pyspark_lance.predicate.prune import ColumnPath, numbers_among
from pyspark_lance.predicate.single_column import matching_values, only_values
from pyspark_lance.table.rows.fragment_reader import row_ids_of
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_files import TableFiles

_MAX_WHOLE_BYTES: Final = 1 << 20
# Page metadata of numbers take 1/30,000 of a file, those of strings more.
_MIN_METADATA: Final = 2048
_METADATA_SHIFT: Final = 12


@dataclass(frozen=True, slots=True)
class IndexFile:
    """An open file of an index.

    ``where``: the file, for messages.
    """

    reader: DataFileReader
    where: str

    @classmethod
    def open(
        cls, files: TableFiles, entry: IndexMetadata, name: str, *, whole: bool = False
    ) -> IndexFile:
        """Open the file ``name`` of an index; ``whole``: whether all of it will be read."""
        store, path = files.locate_index(entry.base_id, index_path(entry.uuid, name))
        size_bytes = entry.file_sizes.get(name) or None
        ahead = None if size_bytes is None else _bytes_ahead(size_bytes, whole=whole)
        reader = DataFileReader.open(store, path, size_bytes=size_bytes, ahead_bytes=ahead)
        return cls(reader, f"{store.uri}/{path}")

    def expect_columns(self, columns: Sequence[tuple[str, pa.DataType | None]]) -> None:
        """Check names, order and types of the columns; None matches any type."""
        own = [(field.name, field.to_arrow().type) for field in self.reader.schema.fields]
        if [name for name, _ in own] != [name for name, _ in columns] or any(
            wanted is not None and wanted != found
            for (_, found), (_, wanted) in zip(own, columns, strict=True)
        ):
            shown = ", ".join(f"{name} {kind}" for name, kind in own)
            raise CorruptFileError(f"an index file has unexpected columns: {shown}", self.where)

    def read_all(self, *names: str) -> pa.RecordBatch:
        """Read some columns of all rows."""
        fields = [field for field in self.reader.schema.fields if field.name in names]
        columns = self.reader.embedded_columns()
        return self.reader.read(fields, columns, 0, self.reader.num_rows)

    def read_ranges(self, ranges: Sequence[tuple[int, int]], names: Sequence[str]) -> pa.Table:
        """Read some columns of ascending row ranges."""
        fields = [field for field in self.reader.schema.fields if field.name in names]
        batches = self.reader.read_batches(fields, self.reader.embedded_columns(), ranges=ranges)
        schema = pa.schema([field.to_arrow() for field in fields])
        return pa.Table.from_batches(list(batches), schema).combine_chunks()

    def take(self, name: str, rows: NDArray[np.int64], max_bytes: int | None = None) -> pa.Array:
        """Read the values of a column at some rows."""
        fields = [field for field in self.reader.schema.fields if field.name == name]
        columns = self.reader.embedded_columns()
        return self.reader.take(fields, columns, rows, max_bytes=max_bytes).column(0)


def _bytes_ahead(size: int, *, whole: bool) -> int | None:
    """Return the size of the first request for the end of a file; None for the default.

    A query may open many segments and read little of each, so requests beyond their metadata would
    dominate its reads.
    """
    if whole:
        return size if size <= _MAX_WHOLE_BYTES else None
    return min(TAIL_BYTES, _MIN_METADATA + (size >> _METADATA_SHIFT))


def row_id_index(snapshot: Snapshot) -> RowIdIndex:
    """Return the index of all rows of a version, cached with the snapshot."""
    key = "row id index"
    if key not in snapshot.memo:
        fragments = [f for f in snapshot.manifest.fragments if f.physical_rows]
        snapshot.memo[key] = row_id_index_of(snapshot, fragments)
    return snapshot.memo[key]  # type: ignore[return-value]


def row_id_index_of(snapshot: Snapshot, fragments: Sequence[Fragment]) -> RowIdIndex:
    """Return the index of some fragments."""
    return RowIdIndex.build(
        (fragment.id, row_ids_of(snapshot.files, fragment), snapshot.deletion_vector(fragment))
        for fragment in fragments
    )


@dataclass(frozen=True, slots=True)
class ColumnQuery:
    """A predicate on one column."""

    path: ColumnPath  # The only column of the predicate.
    predicate: Predicate  # It cannot raise an error for any value.

    def matches(self, values: pa.Array) -> NDArray[np.bool_]:
        """Return for which values the predicate is true."""
        return matching_values(self.predicate, self.path, values)

    def numbers(self, data_type: pa.DataType) -> NDArray[np.int64] | None:
        """Return the only stored integers that can match, for integer-encoded columns.

        ``data_type``: of predicates. The result is ascending and distinct; None if other values can
        match, or for other types.
        """
        wanted = only_values(self.predicate, self.path)
        if wanted is None:
            return None
        parts = [numbers_among(data_type, values.drop_null()) for values in wanted]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return np.unique(np.concatenate([np.empty(0, np.int64), *known]))

    def can_match(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Return which parts of an index may have matching values."""
        return parts_that_can_match(self.predicate, {self.path: bounds}, len(bounds.minimum))

    def must_match(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Return which parts of an index have only matching values."""
        return parts_that_must_match(self.predicate, {self.path: bounds}, len(bounds.minimum))


@dataclass(frozen=True, slots=True)
class Limits:
    """Cost limits of a lookup."""

    most_rows: int  # Maximum rows to read or return.
    most_searched: int = 0  # Maximum rows to search for single numbers.

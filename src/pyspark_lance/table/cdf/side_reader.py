"""SideReader: reads rows of one version, before or after their change, by address."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_bytes import data_bytes
from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.join_rows import join_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_address import fragment_ids, group_by_fragment
from pyspark_lance.table.cdf.column_source import ColumnSource
from pyspark_lance.table.rows.column_parts import SharedRows
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.version.table_files import TableFiles


@dataclass(frozen=True, slots=True)
class VersionFiles:
    """Settings to read columns from one version.

    ``sources``: source of each requested column; ``checks_text``: whether strings that are not
    UTF-8 are an error.
    """

    files: TableFiles
    sources: tuple[ColumnSource, ...]
    checks_text: bool = False


@dataclass(frozen=True, slots=True)
class BlobSides:
    """The blobs of some rows, old and new."""

    old: SideReader
    new: SideReader
    addresses_before: NDArray[np.uint64]
    addresses_after: NDArray[np.uint64]

    def in_one_file(self, column: int) -> NDArray[np.bool_]:
        """Return which rows have both blobs in the same file."""
        names: dict[object, int] = {}
        before = self.old.blob_files(column, self.addresses_before, names)
        after = self.new.blob_files(column, self.addresses_after, names)
        return before == after

    def read_bytes(self, column: int, rows: NDArray[np.intp]) -> tuple[pa.Array, pa.Array]:
        """Both, with the bytes."""
        return (
            self.old.take_bytes(column, self.addresses_before[rows]),
            self.new.take_bytes(column, self.addresses_after[rows]),
        )


class SideReader:
    """Reader of rows of one version by address, in any order.

    ``shared``: where rows of its files are read together with those of other sides.
    """

    def __init__(
        self, side: VersionFiles, fragments: Iterable[Fragment], shared: SharedRows
    ) -> None:
        self.sources = side.sources
        self._fields = fields_to_read(side.sources)
        self._with_bytes: dict[int, ColumnSource] = {}
        self._files = side.files
        self._fragments = {fragment.id: fragment for fragment in fragments}
        self._readers = {
            fragment.id: FragmentReader(
                side.files,
                fragment,
                stable_row_ids=True,
                checks_text=side.checks_text,
                shared=shared,
            )
            for fragment in self._fragments.values()
        }
        self._schema = pa.schema([source.shown.to_arrow() for source in side.sources])

    def average_row_bytes(self) -> int:
        """Bytes of one row, by one of the fragments."""
        if not self._fields:
            return 1
        return next(iter(self._readers.values())).average_row_bytes(self._fields)

    def prefetch(self, addresses: NDArray[np.uint64]) -> None:
        """Announce the rows of later ``take`` calls, some or all of them at a time."""
        for fragment_id, inside in group_by_fragment(addresses).items():
            self._readers[fragment_id].prefetch(self._fields, inside)

    def take(self, addresses: NDArray[np.uint64], most_bytes: int | None) -> pa.RecordBatch:
        """The requested columns of the rows, in the order of ``addresses``."""
        batch = self._take(self._fields, ROW_ADDRESS, addresses, most_bytes)
        columns = wanted_columns(batch.columns, self.sources, len(addresses))
        # Nulls stand for what a version did not have, also where the column allows none.
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def take_bytes(self, column: int, addresses: NDArray[np.uint64]) -> pa.Array:
        """Read one requested column of the rows, with the bytes of blobs."""
        source = self._with_bytes.setdefault(column, self.sources[column].with_blobs())
        if source.read is None:
            return source.column(None, len(addresses))
        batch = self._take((source.read,), ROW_ADDRESS, addresses)
        return source.column(batch.column(0), len(addresses))

    def blob_files(
        self, column: int, addresses: NDArray[np.uint64], names: dict[object, int]
    ) -> NDArray[np.int64]:
        """A number for each row, of the files that hold the blobs of a column."""
        read = self.sources[column].read
        ids = [] if read is None else [part.id for part in read.walk() if part.is_blob]
        fragments, inverse = np.unique(fragment_ids(addresses), return_inverse=True)
        numbers = []
        for fragment_id in fragments.tolist():
            held = tuple(
                (self._files.locate(file)[0].uri, file.path, field_id)
                for file in self._fragments[fragment_id].files
                for field_id in ids
                if field_id in file.fields
            )
            # What no file is known to hold is in none that another side has.
            numbers.append(names.setdefault(held or (id(self), fragment_id), len(names)))
        return np.array(numbers, dtype=np.int64)[inverse]

    def lineage(self, name: str, addresses: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """A lineage column of the rows."""
        return np.asarray(self._take((), name, addresses).column(name))

    def _take(
        self,
        fields: Sequence[Field],
        system_column: str,
        addresses: NDArray[np.uint64],
        most_bytes: int | None = None,
    ) -> pa.RecordBatch:
        parts = []
        for fragment_id, inside in group_by_fragment(addresses).items():
            reader = self._readers[fragment_id]
            parts.append(reader.take(fields, (system_column,), inside, max_bytes=most_bytes))
            if most_bytes is not None:
                most_bytes -= sum(map(data_bytes, parts[-1].columns))
                if most_bytes < 0:
                    raise BatchTooLargeError
        batch = join_batches(parts)
        order = np.argsort(addresses, kind="stable")
        if (order[1:] < order[:-1]).any():
            place = np.empty(len(order), dtype=np.int64)
            place[order] = np.arange(len(order))
            batch = take_rows(batch, place)
        return batch


def fields_to_read(sources: Sequence[ColumnSource]) -> tuple[Field, ...]:
    """The fields that files hold something of."""
    return tuple(source.read for source in sources if source.read is not None)


def wanted_columns(
    columns: Sequence[pa.Array], sources: Sequence[ColumnSource], count: int
) -> list[pa.Array]:
    """The requested columns, from those that were read, which come first in ``columns``."""
    arrays = iter(columns)
    return [
        source.column(None if source.read is None else next(arrays), count) for source in sources
    ]

"""Write new columns of existing fragments: one file for each fragment.

Such a file has a row for every physical row of its fragment, in the same order. A deleted row has
null or, if the column is not nullable, the value of an adjacent row.

Source: docs/format/table-format.md, section 13.
"""

from __future__ import annotations

import contextlib
import itertools
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import join_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile, new_data_file_name
from pyspark_lance.format.row_address import fragment_ids, offsets
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import data_path
from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.rows.blob_bytes import with_blob_bytes
from pyspark_lance.table.rows.conform import conform_batch
from pyspark_lance.table.unit_of_work import remove_files
from pyspark_lance.table.version.table import Table

# Gaps of deleted rows are filled in batches of at most this many rows.
_GAP_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class FragmentRows:
    """The row counts of a fragment.

    ``physical``: rows of its files, deleted ones included; ``live``: rows that are not deleted.
    """

    physical: int
    live: int


@dataclass(frozen=True, slots=True)
class ColumnFilesRequest:
    """Request to an executor to write columns of existing fragments; picklable."""

    table: Table
    read_version: int
    columns: LanceSchema  # The columns to write, with their field ids.
    file_version: str
    fragments: Mapping[int, FragmentRows]  # Fragment id -> its rows, for the fragments to write.
    is_partial: bool = False  # Whether the version has further fragments.

    def __post_init__(self) -> None:
        """Reject file versions to which columns cannot be added."""
        if self.file_version == "0.1":
            raise UnsupportedFeatureError(
                "the table's files are version 0.1; columns are not added to such files",
                where=self.table.uri,
                hint="overwrite the table with a newer fileFormatVersion",
            )


@dataclass(frozen=True, slots=True)
class ColumnFile:
    """A written file of a fragment."""

    fragment_id: int
    file: DataFile


def write_column_files(
    request: ColumnFilesRequest, batches: Iterable[pa.RecordBatch]
) -> Iterator[ColumnFile]:
    """Write the columns of complete fragments from a stream of rows.

    When anything fails, the files written by this call are removed.

    ``batches``: rows with their address (``_rowaddr``) and the columns; every live row of a
    fragment once, ascending by address.
    """
    store = request.table.store()
    finished: list[ColumnFile] = []
    current: _FragmentColumns | None = None
    try:
        batches = with_blob_bytes(request.table, batches)
        for fragment_id, indices, values in rows_by_fragment(batches):
            if current is None or current.fragment_id != fragment_id:
                if current is not None:
                    finished.append(current.finish())
                current = _FragmentColumns(request, store, fragment_id)
            current.write(indices, conform_batch(values, request.columns.fields))
        if current is not None:
            finished.append(current.finish())
    except BaseException:
        if current is not None:
            current.abort()
        remove_files(store, (data_path(column_file.file.path) for column_file in finished))
        raise
    yield from finished


def rows_by_fragment(
    batches: Iterable[pa.RecordBatch],
) -> Iterator[tuple[int, NDArray[np.int64], pa.RecordBatch]]:
    """Split batches with ``_rowaddr`` by fragment: fragment id, offsets, columns."""
    for batch in batches:
        if not batch.num_rows:
            continue
        position = batch.schema.get_field_index(ROW_ADDRESS)
        addresses = plain_numbers(batch.column(position)).astype(np.uint64)
        values = batch.drop_columns([ROW_ADDRESS])
        ids = fragment_ids(addresses)
        indices = offsets(addresses).astype(np.int64)
        breaks = (np.flatnonzero(ids[1:] != ids[:-1]) + 1).tolist()
        for start, end in itertools.pairwise([0, *breaks, len(ids)]):
            yield int(ids[start]), indices[start:end], values.slice(start, end - start)


def filler_row(row: pa.RecordBatch, fields: Sequence[Field], file_version: str) -> pa.RecordBatch:
    """Return the filler of deleted rows: null, or the value of ``row`` if not nullable."""
    columns = [
        # Files of version 2.0 have no null structs.
        pa.nulls(1, column.type)
        if field.nullable and not (field.is_struct and file_version == "2.0")
        else column
        for column, field in zip(row.columns, fields, strict=True)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=row.schema)


class _FragmentColumns:
    """The open file of one fragment."""

    def __init__(self, request: ColumnFilesRequest, store: ObjectStore, fragment_id: int) -> None:
        rows = request.fragments.get(fragment_id)
        if rows is None:
            raise InvalidInputError(
                f"rows of fragment {fragment_id}, which version {request.read_version} does not "
                "have, or whose column is written already"
            )
        self.fragment_id = fragment_id
        self._rows = rows
        self._arrow = request.columns.to_arrow()
        self._stand_in = partial(
            filler_row, fields=request.columns.fields, file_version=request.file_version
        )
        path = data_path(new_data_file_name(uuid.uuid4().bytes))
        self._writer = DataFileWriter(store, path, request.columns, version=request.file_version)
        self._filler: pa.RecordBatch | None = None
        self._next = 0
        self._seen = 0

    def write(self, indices: NDArray[np.int64], values: pa.RecordBatch) -> None:
        """Write rows at ascending offsets, and null in between."""
        steps = np.diff(indices, prepend=self._next - 1)
        if (steps <= 0).any():
            again = int(indices[int(np.flatnonzero(steps <= 0)[0])])
            raise InvalidInputError(
                f"row {again} of fragment {self.fragment_id} is repeated or out of order",
                hint="each row needs exactly one value",
            )
        if int(indices[-1]) >= self._rows.physical:
            raise InvalidInputError(
                f"row {int(indices[-1])} of fragment {self.fragment_id}, which has "
                f"{self._rows.physical} rows"
            )
        self._seen += len(indices)
        values = pa.RecordBatch.from_arrays(values.columns, schema=self._arrow)
        self._filler = self._filler or self._stand_in(values.slice(0, 1))
        self._fill(int(indices[0]))
        first, last = self._next, int(indices[-1]) + 1
        if last - first != len(indices):
            # Gaps inside a batch may be long, too.
            start = 0
            for cut in (np.flatnonzero(np.diff(indices) > _GAP_ROWS) + 1).tolist():
                self._write_spread(indices[start:cut], values.slice(start, cut - start))
                start = cut
            self._write_spread(indices[start:], values.slice(start))
        else:
            self._writer.write(values)
            self._next = last
        self._filler = self._stand_in(values.slice(values.num_rows - 1))

    def finish(self) -> ColumnFile:
        """Complete the file."""
        if self._seen != self._rows.live:
            raise InvalidInputError(
                f"{self._seen} values for the {self._rows.live} rows of fragment "
                f"{self.fragment_id}",
                hint="the values must be computed row by row",
            )
        self._fill(self._rows.physical)
        return ColumnFile(self.fragment_id, self._writer.finish())

    def abort(self) -> None:
        """Abort the file."""
        with contextlib.suppress(Exception):  # the first error is the one to report
            self._writer.abort()

    def _write_spread(self, positions: NDArray[np.int64], values: pa.RecordBatch) -> None:
        self._fill(int(positions[0]))
        first, last = self._next, int(positions[-1]) + 1
        assert self._filler is not None
        # Row 0 of the source is the filler.
        indices = np.zeros(last - first, dtype=np.int64)
        indices[positions - first] = np.arange(1, len(positions) + 1)
        self._writer.write(take_rows(join_batches([self._filler, values]), indices))
        self._next = last

    def _fill(self, end: int) -> None:
        """Write rows without a value up to row ``end``."""
        while self._next < end:
            assert self._filler is not None
            count = min(_GAP_ROWS, end - self._next)
            self._writer.write(take_rows(self._filler, np.zeros(count, dtype=np.int64)))
            self._next += count

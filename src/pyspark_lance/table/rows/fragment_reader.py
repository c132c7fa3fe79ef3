"""FragmentReader: read data columns from files and lineage columns from sequences.

Files are opened lazily, so a scan of lineage columns opens none.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from itertools import accumulate
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.row_selection import filter_rows
from pyspark_lance.codec.text_check import first_invalid_text, holds_invalid_text
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.column_names import SYSTEM_COLUMNS, system_array, system_field
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.logical_type import least_bytes
from pyspark_lance.format.logical_view import stored_field
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.predicate.conditions import Predicate
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.rows.column_parts import (
    FilePart,
    SharedRows,
    file_key,
    find_parts,
    join_parts,
    structs_without_nulls,
)
from pyspark_lance.table.rows.convert_parts import json_to_text
from pyspark_lance.table.rows.lineage import ConcatenatedLineage, FragmentLineage, Lineage
from pyspark_lance.table.version.deletion_vectors import (
    TRUSTED_ROWS,
    check_row_count,
    load_deletion_vector,
)
from pyspark_lance.table.version.reader_pool import AcquiredReaders, JoinedReaders
from pyspark_lance.table.version.table_files import TableFiles

# Rows may be larger than estimated by this factor.
_MAX_BATCHES: Final = 2
# Maximum concurrent requests for file footers.
_MAX_OPENS: Final = 64


class IncompatibleFilesError(Exception):
    """Raised on open for files that cannot be coalesced."""


class FragmentReader:
    """Reader of rows of a fragment, or of several coalesced ones, by physical offset.

    ``stable_row_ids``: whether the table has stable row ids. ``following``: coalesced fragments
    whose rows follow; their files have the same fields in the same columns. Only a read of several
    fragments raises ``IncompatibleFilesError``. ``ahead_bytes``: size of the first request;
    coalesced files must fit into it. ``checks_text``: whether strings that are not UTF-8 are an
    error. ``shared``: rows that several readers take from the same files in one pass; only for a
    single fragment. ``readers``: lends readers of data files, which are opened otherwise;
    ``JoinedReaders`` coalesce files of any size.
    """

    def __init__(
        self,
        files: TableFiles,
        fragment: Fragment,
        *,
        stable_row_ids: bool,
        following: Sequence[Fragment] = (),
        ahead_bytes: int | None = None,
        checks_text: bool = False,
        shared: SharedRows | None = None,
        readers: AcquiredReaders | JoinedReaders | None = None,
    ) -> None:
        self._files = files
        self._shared = shared
        self._lent = readers if isinstance(readers, AcquiredReaders) else None
        self._joined_readers = readers if isinstance(readers, JoinedReaders) else None
        self._checks_text = checks_text
        self._ahead_bytes = ahead_bytes if following and self._joined_readers is None else None
        self._fragment = fragment
        self._fragments = (fragment, *following)
        self._readers: dict[str, DataFileReader] = {}
        self._stored_forms: dict[tuple[int, ...], tuple[tuple[Field, ...], tuple[Field, ...]]] = {}
        self._parts: dict[tuple[int, ...], tuple[FilePart, ...]] = {}
        self._present = structs_without_nulls(fragment.files)
        self._starts = list(accumulate((f.physical_rows for f in self._fragments), initial=0))
        self._stable_row_ids = stable_row_ids

    @cached_property
    def lineage(self) -> Lineage:
        """The lineage columns of all rows."""
        lineages = [
            FragmentLineage(
                part,
                stable_row_ids=self._stable_row_ids,
                store=lambda: self._files.store_of(None),
                confirm_rows=partial(self.confirm_rows, part),
                read_hidden=partial(self._read_hidden, start, start + part.physical_rows),
            )
            for part, start in zip(self._fragments, self._starts, strict=False)
        ]
        return lineages[0] if len(lineages) == 1 else ConcatenatedLineage(lineages, self._starts)

    def confirm_rows(self, fragment: Fragment) -> None:
        """Verify the row count of a very large fragment by opening a data file.

        Call this before allocating memory of that size.
        """
        if fragment.physical_rows <= TRUSTED_ROWS:
            return
        if not fragment.files:
            check_row_count(fragment, None, self._files.table.uri)
        self._reader(self._fragment.files[0])

    def window(
        self, fields: Sequence[Field], system: Sequence[str], start: int, end: int
    ) -> pa.RecordBatch:
        """Read rows [start, end): ``fields`` as stored, then lineage columns as uint64.

        Fields in a logical view (``format/logical_view.py``) are converted to it.
        """
        batch = self._window(self._stored(fields), system, start, end)
        return self._to_logical(batch, fields, range(start, end))

    def windows(
        self, fields: Sequence[Field], system: Sequence[str], rows: tuple[int, int], most_bytes: int
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of ``window`` in parts of about ``most_bytes``."""
        stored = self._stored(fields)

        def read(start: int, end: int) -> pa.RecordBatch:
            return self._window(stored, system, start, end, _MAX_BATCHES * most_bytes)

        step = self._rows_of(most_bytes, fields)
        for first, batch in _in_parts(read, rows, step):
            yield first, self._to_logical(batch, fields, range(first, first + batch.num_rows))

    def _window(
        self,
        fields: Sequence[Field],
        system: Sequence[str],
        start: int,
        end: int,
        max_bytes: int | None = None,
    ) -> pa.RecordBatch:
        num_rows = end - start
        pieces = [
            (
                part,
                self._reader(part.file).read(
                    part.fields, part.column_of, start, end, max_bytes=max_bytes
                ),
            )
            for part in self._parts_of(fields)
        ]
        lineage = {name: self.lineage.window(name, start, end) for name in system}
        return self._assemble(fields, pieces, lineage, num_rows)

    def stream(
        self,
        fields: Sequence[Field],
        system: Sequence[str],
        rows: tuple[int, int],
        *,
        batch_rows: int,
        batch_bytes: int,
        keep_dictionaries: bool = False,
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the rows of ``window`` in batches, each with its first row number.

        ``batch_bytes``: target bytes of decoded batches; ``keep_dictionaries``: batches may have
        dictionaries of strings instead of strings.
        """
        start, end = rows
        shown, fields = fields, self._stored(fields)
        parts = self._parts_of(fields)
        if len(parts) == 1 and parts[0].fields == tuple(fields):
            (part,) = parts
            first, add_lineage = start, self._lineage_adder(system)
            for batch in self._reader(part.file).read_batches(
                part.fields,
                part.column_of,
                ranges=[rows],
                batch_rows=batch_rows,
                batch_bytes=batch_bytes,
                keep_dictionaries=keep_dictionaries,
            ):
                rows_of_batch = range(first, first + batch.num_rows)
                yield first, self._to_logical(add_lineage(batch, first), shown, rows_of_batch)
                first += batch.num_rows
            return
        for first in range(start, end, batch_rows):
            piece = first, min(first + batch_rows, end)
            yield from self.windows(shown, system, piece, batch_bytes)

    def _lineage_adder(
        self, system: Sequence[str]
    ) -> Callable[[pa.RecordBatch, int], pa.RecordBatch]:
        """Return a function that adds lineage columns to a batch, given its first row."""
        if not system:
            return lambda batch, first: batch
        names = [name for name in SYSTEM_COLUMNS if name in system]
        fields = [system_field(name) for name in names]
        known: pa.Schema | None = None
        schema: pa.Schema | None = None

        def add_lineage(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
            nonlocal known, schema
            if known is None or batch.schema != known:
                known, schema = batch.schema, pa.schema([*batch.schema, *fields])
            end = first + batch.num_rows
            values = [system_array(self.lineage.window(name, first, end)) for name in names]
            return pa.RecordBatch.from_arrays([*batch.columns, *values], schema=schema)

        return add_lineage

    def take_batches(
        self,
        fields: Sequence[Field],
        system: Sequence[str],
        offsets: NDArray[np.uint32],
        most_bytes: int,
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of ``take`` in parts of about ``most_bytes``."""

        def read(start: int, end: int) -> pa.RecordBatch:
            most = _MAX_BATCHES * most_bytes
            return self.take(fields, system, offsets[start:end], max_bytes=most)

        step = self._rows_of(most_bytes, fields)
        for _, batch in _in_parts(read, (0, len(offsets)), step):
            yield batch

    def take(
        self,
        fields: Sequence[Field],
        system: Sequence[str],
        offsets: NDArray[np.uint32],
        *,
        max_bytes: int | None = None,
    ) -> pa.RecordBatch:
        """Read the rows at ``offsets`` (ascending), in the form of ``window``."""
        shown, fields = fields, self._stored(fields)
        pieces = [
            (part, self._take_part(part, offsets, max_bytes)) for part in self._parts_of(fields)
        ]
        lineage = {name: self.lineage.take(name, offsets) for name in system}
        return self._to_logical(
            self._assemble(fields, pieces, lineage, len(offsets)), shown, offsets
        )

    def prefetch(self, fields: Sequence[Field], offsets: NDArray[np.uint32]) -> None:
        """Announce the rows of later ``take`` calls, some or all of them at a time."""
        if self._shared is not None:
            for part in self._parts_of(self._stored(fields)):
                self._shared.prefetch(file_key(self._files, part.file), part, offsets)

    def _take_part(
        self, part: FilePart, offsets: NDArray[np.uint32], max_bytes: int | None
    ) -> pa.RecordBatch:
        reader = self._reader(part.file)
        if self._shared is None:
            return reader.take(part.fields, part.column_of, offsets, max_bytes=max_bytes)
        key = file_key(self._files, part.file)
        return self._shared.take(key, reader, part, offsets, max_bytes)

    def rows_that_may_match(
        self, predicate: Predicate, fields: Sequence[Field], start: int, end: int
    ) -> NDArray[np.bool_] | None:
        """Return for each of the rows [start, end) whether its page may match; None if unknown.

        ``predicate``: on ``fields``; ``start``: first row; ``end``: one past the last row.
        """
        matching: NDArray[np.bool_] | None = None
        for part in self._parts_of(self._stored(fields)):
            if part.file.file_version != "0.1":
                continue
            from pyspark_lance.table.rows.legacy_pruning import matching_rows  # noqa: PLC0415

            rows = matching_rows(predicate, part.fields, self._reader(part.file), start, end)
            if rows is not None:
                matching = rows if matching is None else matching & rows
        return matching

    def average_row_bytes(self, fields: Sequence[Field]) -> int:
        """Estimate the bytes of one row of ``fields`` by file sizes (at least 1)."""
        parts = self._parts_of(self._stored(fields))
        sizes = (self._reader(p.file).average_row_bytes(p.fields, p.column_of) for p in parts)
        stored = {position for part in parts for position in part.positions}
        # Missing columns are null, which takes memory as well.
        absent = [field for position, field in enumerate(fields) if position not in stored]
        return max(1, sum(sizes) + sum(least_bytes(field.to_arrow().type) for field in absent))

    def _rows_of(self, num_bytes: int, fields: Sequence[Field]) -> int | None:
        """Estimate how many rows of ``fields`` fit into ``num_bytes``; None for no limit."""
        return max(1, num_bytes // self.average_row_bytes(fields)) if fields else None

    def _stored(self, fields: Sequence[Field]) -> tuple[Field, ...]:
        """Return the stored form of ``fields``; the same objects on every call."""
        key = tuple(id(field) for field in fields)
        known = self._stored_forms.get(key)
        if known is None:
            # Also keep the shown fields alive, so that their ``id()`` is not reused.
            known = tuple(fields), tuple(stored_field(field) for field in fields)
            self._stored_forms[key] = known
        return known[1]

    def _to_logical(
        self,
        batch: pa.RecordBatch,
        fields: Sequence[Field],
        rows: Sequence[int] | NDArray[np.uint32],
    ) -> pa.RecordBatch:
        """Convert a batch that begins with the stored form of ``fields`` to the logical view."""
        if self._checks_text:
            self._check_text(batch, fields, rows)
        stored = self._stored(fields)
        if all(new is old for new, old in zip(stored, fields, strict=True)):
            return batch
        columns, members = list(batch.columns), list(batch.schema)
        for index, field in enumerate(fields):
            if field is stored[index]:
                continue
            members[index] = field.to_arrow()
            try:
                column = json_to_text(columns[index], field)
            except CorruptFileError as error:
                where = f"fragment {self._fragment.id}, column {field.name!r}"
                raise CorruptFileError(error.what, error.where or where, error.hint) from error
            columns[index] = (
                column if column.type == members[index].type else column.cast(members[index].type)
            )
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(members))

    def _check_text(
        self,
        batch: pa.RecordBatch,
        fields: Sequence[Field],
        rows: Sequence[int] | NDArray[np.uint32],
    ) -> None:
        """Reject strings that are not UTF-8, except in deleted rows.

        An updated row leaves its old
        value in the file.
        """
        invalid = [
            (index, field)
            for index, field in enumerate(fields)
            if holds_invalid_text(batch.column(index))
        ]
        if not invalid:
            return
        numbers = np.asarray(rows)
        live = self._live(numbers)
        batch, numbers = filter_rows(batch, live), numbers[live]
        for index, field in invalid:
            if holds_invalid_text(batch.column(index)):
                raise self._invalid_text_error(
                    field, int(numbers[first_invalid_text(batch.column(index))])
                )

    def _live(self, rows: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Return which of ``rows``, numbered across all fragments, are not deleted; same shape."""
        live = np.ones(len(rows), np.bool_)
        for fragment, start in zip(self._fragments, self._starts, strict=False):
            # Stable row ids only affect the validation of deletion vectors, which their reader
            # does.
            vector = load_deletion_vector(self._files, fragment, stable_row_ids=True)
            if vector is not None:
                end = start + fragment.physical_rows
                is_of_fragment = (rows >= start) & (rows < end)
                offsets = (rows[is_of_fragment] - start).astype(np.uint32)
                live[is_of_fragment] = ~vector.contains_each(offsets)
        return live

    def _invalid_text_error(self, field: Field, row: int) -> CorruptFileError:
        """Return the error for a row, numbered across all fragments."""
        index = bisect_right(self._starts, row) - 1
        fragment = self._fragments[index]
        wanted = {part.id for part in field.walk()}
        paths = []
        for file in fragment.files:
            if not wanted.isdisjoint(file.fields):
                store, path = self._files.locate(file)
                paths.append(f"{store.uri}/{path}")
        return CorruptFileError(
            f"a text in row {row - self._starts[index]} of fragment {fragment.id} is not UTF-8",
            where=f"column {field.name!r}, {', '.join(paths)}",
            hint="give the row another value, or restore the file from a copy",
        )

    def _assemble(
        self,
        fields: Sequence[Field],
        pieces: Sequence[tuple[FilePart, pa.RecordBatch]],
        lineage: dict[str, NDArray[np.uint64]],
        num_rows: int,
    ) -> pa.RecordBatch:
        by_field: list[list[tuple[Field, pa.Array]]] = [[] for _ in fields]
        for part, batch in pieces:
            for index, position in enumerate(part.positions):
                by_field[position].append((part.fields[index], batch.column(index)))
        columns = [
            join_parts(field, parts, num_rows, self._present)
            for field, parts in zip(fields, by_field, strict=True)
        ]
        arrow_fields = [field.to_arrow() for field in fields]
        for name in SYSTEM_COLUMNS:
            if name in lineage:
                columns.append(system_array(lineage[name]))
                arrow_fields.append(system_field(name))
        # A missing column reads as null even if the schema says "not null" (section 3.6). Arrow
        # does not check this; consumers see the declared field.
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(arrow_fields))

    def _parts_of(self, fields: Sequence[Field]) -> tuple[FilePart, ...]:
        key = tuple(id(field) for field in fields)
        if key not in self._parts:
            self._parts[key] = find_parts(fields, self._fragment.files)
        return self._parts[key]

    def _reader(self, file: DataFile) -> DataFileReader:
        if file.path not in self._readers:
            index = self._fragment.files.index(file)
            joined = self._joined_readers
            reader = (
                self._open_or_concat(index) if joined is None else self._join_files(joined, index)
            )
            if reader is None:
                raise IncompatibleFilesError
            self._readers[file.path] = reader
        return self._readers[file.path]

    def _join_files(self, readers: JoinedReaders, index: int) -> DataFileReader | None:
        """Return a reader of the file at an index in all fragments, in place."""
        several = [fragment.files[index] for fragment in self._fragments]

        def opened(number: int) -> DataFileReader:
            fragment, (store, path) = self._fragments[number], self._files.locate(several[number])
            reader = self._new_reader(store, path, several[number])
            check_row_count(fragment, reader.num_rows, f"{store.uri}/{path}")
            return reader

        return readers.reader(self._files, several, opened)

    def _open_or_concat(self, index: int) -> DataFileReader | None:
        opened = self._open_all(index)
        return opened[0] if len(opened) == 1 else DataFileReader.concat(opened)

    def _open_all(self, index: int) -> list[DataFileReader]:
        """Open the file at an index in all fragments, in parallel for object stores."""

        def opened(fragment: Fragment) -> DataFileReader:
            return self._open(fragment, fragment.files[index])

        store, _ = self._files.locate(self._fragment.files[index])
        if len(self._fragments) == 1 or isinstance(store, LocalStore):
            return [opened(fragment) for fragment in self._fragments]
        with ThreadPoolExecutor(min(_MAX_OPENS, len(self._fragments))) as executor:
            return list(executor.map(opened, self._fragments))

    def _open(self, fragment: Fragment, file: DataFile) -> DataFileReader:
        store, path = self._files.locate(file)

        def opened() -> DataFileReader:
            return self._new_reader(store, path, file)

        try:
            if self._shared is not None:
                reader = self._shared.reader(file_key(self._files, file), opened)
            elif self._lent is not None:
                reader = self._lent.reader(self._files, file, opened)
            else:
                reader = opened()
        except FileNotFoundError as error:
            raise MissingFileError(
                f"a data file of fragment {fragment.id} is missing",
                where=f"{store.uri}/{path}",
                hint="it may have been cleaned up; read a newer version",
            ) from error
        check_row_count(fragment, reader.num_rows, f"{store.uri}/{path}")
        return reader

    def _new_reader(self, store: ObjectStore, path: str, file: DataFile) -> DataFileReader:
        return DataFileReader.open(
            store,
            path,
            size_bytes=file.size_bytes or None,
            external=self._files,
            base_id=file.base_id,
            ahead_bytes=self._ahead_bytes,
        )

    def _read_hidden(self, start: int, end: int, field_id: int) -> NDArray[np.uint64]:
        field = Field(id=field_id, name="hidden", logical_type="uint64", nullable=False)
        batch = self.window([field], (), start, end)
        if not self._parts_of([field]):
            raise CorruptFileError(
                f"fragment {self._fragment.id} says that its lineage is in hidden column "
                f"{field_id}, which no data file holds"
            )
        return np.asarray(batch.column(0).to_numpy(zero_copy_only=False), dtype=np.uint64)


def row_ids_of(files: TableFiles, fragment: Fragment) -> RowIdSequence:
    """Read the stable row ids of all rows of a fragment, including deleted rows."""
    if isinstance(fragment.row_ids, bytes) and fragment.physical_rows <= TRUSTED_ROWS:
        sequence = RowIdSequence.from_bytes(fragment.row_ids)
        return sequence.expect_length(fragment.physical_rows)
    lineage = FragmentReader(files, fragment, stable_row_ids=True).lineage
    assert isinstance(lineage, FragmentLineage)  # of one fragment
    return lineage.row_ids()


def _in_parts(
    read: Callable[[int, int], pa.RecordBatch], rows: tuple[int, int], step: int | None
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yield the results of ``read`` for ``step`` rows at a time, or fewer if they are too large.

    ``read``: raises BatchTooLargeError for more than one row. ``step``: maximum rows of a part;
    None for all.
    """
    start, end = rows
    for first in range(start, end, step or max(1, end - start)):
        last = min(first + step, end) if step else end
        try:
            batch = read(first, last)
        except BatchTooLargeError:
            yield from _in_parts(read, (first, last), (last - first) // 2)
            continue
        yield first, batch

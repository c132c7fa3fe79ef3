"""DataFileReader: rows of one .lance file as Arrow batches.

Columns are decoded in windows of some MiB, which is where numpy and Arrow are at their best; the
batches handed out are slices of a window. While a window is decoded the bytes of the next one are
fetched, unless the file is memory mapped.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import concat_arrays, of_one_type
from pyspark_lance.codec.decode_memory import BatchTooLargeError, limit_decode_memory
from pyspark_lance.codec.row_selection import RowRanges, take_values
from pyspark_lance.codec.shred import data_bytes
from pyspark_lance.datafile.blob_values import fetch_v2
from pyspark_lance.datafile.field_io import FieldReader
from pyspark_lance.datafile.file_metadata import FileMetadata, file_version_of, read_tail
from pyspark_lance.datafile.open_file import ExternalBlobs, JoinedFiles, JoinedMetadata, OpenFile
from pyspark_lance.datafile.read_plan import StoredPages, Windows
from pyspark_lance.datafile.v0_1.metadata import LegacyFile, LegacyMetadata
from pyspark_lance.errors import CorruptFileError, InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.generator_pool import GeneratorPool
from pyspark_lance.plain_values import plain_array
from pyspark_lance.store.object_store import Buffer, ByteRange, ObjectStore

if TYPE_CHECKING:
    from pyspark_lance.datafile.v0_1.statistics import PageStatistics

BATCH_ROWS = 65_536
BATCH_BYTES = 16 * 1024 * 1024
_NARROW_WINDOW = 1.5
# And so many times what a batch should have is handed out in parts.
_MAX_BATCHES = 2
# Arrays of fewer rows on average are joined: batches are cut where any column's arrays end.
_MIN_ARRAY_ROWS = 1 << 14
# Files that are read as one begin at multiples of this, as their buffers do in each.
_ALIGNMENT = 64
# Forms of a field, as pruned to some of its parts, of which readers are kept.
_MAX_FORMS = 8
# Fields of which readers are kept when a reader of the file is idle.
_MAX_FIELDS = 64
_READER_BYTES = 16 << 10
_Columns: TypeAlias = list[Sequence[pa.Array]]
_KnownField: TypeAlias = tuple[Field, dict[int, int], FieldReader]


class DataFileReader:
    """Reader of the rows of one file.

    It caches the metadata of the file's pages, so one reader should serve many reads. Not
    thread-safe.
    """

    def __init__(self, file: OpenFile | LegacyFile) -> None:
        self._file = file
        self._readers: dict[tuple[int, bool], list[_KnownField]] = {}

    @classmethod
    def open(
        cls,
        store: ObjectStore,
        path: str,
        *,
        size_bytes: int | None = None,
        external: ExternalBlobs | None = None,
        base_id: int | None = None,
        ahead_bytes: int | None = None,
    ) -> DataFileReader:
        """Read the file's metadata, normally with one request.

        ``size_bytes``: its length according to the manifest, if that is known; checked.
        ``base_id``: of the base path it is below.
        ``ahead_bytes``: size of the first request; None for its metadata.
        """
        tail = read_tail(store, path, size_bytes, ahead_bytes)
        if file_version_of(tail.content, tail.uri) == "0.1":
            return cls(LegacyFile(store, path, LegacyMetadata(tail)))
        return cls(OpenFile(store, path, FileMetadata.of_tail(tail), external, base_id, tail.whole))

    @classmethod
    def concat(cls, files: Sequence[DataFileReader]) -> DataFileReader | None:
        """Return one reader for the concatenated rows of several small files.

        ``files``: readers of files that hold the same fields in the same columns. Returns None if
        they must be read one by one: of 2.0 or before, not small, not of one version, or with other
        numbers of columns.
        """
        parts = _joinable(files)
        contents = [part.content for part in parts if part.content is not None]
        if not parts or len(contents) < len(parts):
            return None
        metadata = _joined_metadata(parts)
        joined = memoryview(bytearray(metadata.file_size))
        for content, origin in zip(contents, metadata.origins, strict=True):
            joined[origin : origin + len(content)] = content
        first = parts[0]
        return cls(OpenFile(first.store, first.path, metadata, content=joined.toreadonly()))

    @classmethod
    def concat_in_place(cls, files: Sequence[DataFileReader]) -> DataFileReader | None:
        """Return one reader for the concatenated rows of several files of any size.

        ``files``: as for ``concat``; not used otherwise any more.
        """
        parts = _joinable(files)
        if not parts:
            return None
        metadata, first = _joined_metadata(parts), parts[0]
        origins = tuple(metadata.origins)
        return cls(JoinedFiles(first.store, first.path, metadata, parts=parts, origins=origins))

    @property
    def version(self) -> str:
        """``0.1``, ``2.0``, ``2.1`` or ``2.2``."""
        return self._file.metadata.version

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return self._file.metadata.num_rows

    @property
    def num_columns(self) -> int:
        """Physical columns of the file; none in 0.1 files, where fields are found by id."""
        return self._file.metadata.num_columns

    @property
    def schema(self) -> LanceSchema:
        """The embedded schema; stale when the table's schema has changed since."""
        return self._file.metadata.schema

    def fetch_blobs(self, descriptors: pa.StructArray) -> pa.Array:
        """The bytes that descriptors of blobs of this file refer to, as large_binary.

        ``descriptors``: of the second kind; a blob may be there more than once.
        """
        if not isinstance(self._file, OpenFile):
            raise CorruptFileError("a file of version 0.1 holds no blobs", where=self._file.uri)
        return fetch_v2(self._file, descriptors, may_overlap=True)

    def embedded_columns(self) -> dict[int, int]:
        """Field id -> column of the embedded schema, for a file that no manifest describes."""
        if isinstance(self._file, LegacyFile):
            return {}
        if self.version == "2.0":
            from pyspark_lance.datafile.v2_0.field_reader import v2_0_columns  # noqa: PLC0415

            return v2_0_columns(self._file, self.schema.fields)
        from pyspark_lance.datafile.v2_1.field_reader import v2_1_columns  # noqa: PLC0415

        return v2_1_columns(self._file, self.schema.fields)

    def read_batches(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int],
        *,
        ranges: Sequence[tuple[int, int]] | None = None,
        batch_rows: int = BATCH_ROWS,
        batch_bytes: int = BATCH_BYTES,
        keep_dictionaries: bool = False,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of the ranges, in order, in batches of bounded size.

        ``fields``: requested fields or parts of them; all they hold must be stored in this file.
        ``column_of``: field id -> column, from the manifest. ``ranges``: ascending, disjoint ranges
        of rows; None for all. ``batch_rows``: at most so many rows per batch. ``batch_bytes``:
        roughly so many decoded bytes are in a batch, unless one row has more; not more than some
        times as many are held at a time. ``keep_dictionaries``: columns of strings come as
        dictionaries of them in batches for which they are stored so, with few items.
        """
        wanted = self._check_ranges([(0, self.num_rows)] if ranges is None else ranges)
        readers = [
            self._field_reader(field, column_of, keep_dictionaries=keep_dictionaries)
            for field in fields
        ]
        schema = pa.schema([field.to_arrow() for field in fields])
        row_bytes = self._row_bytes(readers)
        # Many batches of narrow rows are decoded together: a window has a fixed cost per column.
        is_narrow = row_bytes * batch_rows < batch_bytes
        window_bytes = int(batch_bytes * (_NARROW_WINDOW if is_narrow else 1))
        windows = Windows(wanted, row_bytes, window_bytes, batch_rows)
        pages = self._stored_pages(fields, column_of)
        if pages is not None and len(wanted.starts):
            decoded = self._read_groups(readers, pages, wanted, windows)
        else:
            decoded = self._read_windows(readers, windows)
        for rows, columns in decoded:
            yield from _make_batches(schema, columns, rows.num_rows, (batch_rows, batch_bytes))

    def read(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int],
        start: int,
        end: int,
        *,
        max_bytes: int | None = None,
    ) -> pa.RecordBatch:
        """The rows ``start`` to ``end`` as one batch.

        Raises UnsupportedFeatureError: an encoding or a type that is not implemented, or more than
        2 GiB of strings in a column.
        """
        rows = self._check_ranges([(start, end)])
        return self._read_one(fields, column_of, rows, max_bytes)

    def take(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int],
        offsets: NDArray[np.integer],
        *,
        max_bytes: int | None = None,
    ) -> pa.RecordBatch:
        """The rows at ``offsets``, in that order; offsets may repeat."""
        positions = np.asarray(offsets).astype(np.int64)
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < self.num_rows:
            raise InvalidInputError(
                f"offsets {positions.min()} to {positions.max()} of a file of {self.num_rows} rows",
                where=self._file.uri,
            )
        ascending = bool((positions[1:] > positions[:-1]).all())
        if ascending:
            return self._read_one(fields, column_of, RowRanges.of_offsets(positions), max_bytes)
        unique, inverse = np.unique(positions, return_inverse=True)
        batch = self._read_one(fields, column_of, RowRanges.of_offsets(unique), max_bytes)
        indices = plain_array(inverse)
        columns = [take_values(column, indices) for column in batch.columns]
        return pa.RecordBatch.from_arrays(columns, schema=batch.schema)

    def page_statistics(self, field_ids: Iterable[int]) -> dict[int, PageStatistics]:
        """Field id -> bounds of its pages, for fields that have any; only 0.1 files have some."""
        if not isinstance(self._file, LegacyFile):
            return {}
        from pyspark_lance.datafile.v0_1.statistics import read_statistics  # noqa: PLC0415

        return read_statistics(self._file, field_ids)

    def trim(self) -> int | None:
        """Drop large or unmeasurable state before the reader is idle.

        Returns the approximate bytes that are left; None for a reader that should not be kept.
        """
        if not isinstance(self._file, OpenFile):
            return None
        if len(self._readers) > _MAX_FIELDS:
            self._readers.clear()
        num_bytes = _READER_BYTES + self._file.metadata.retained_bytes
        for key, forms in list(self._readers.items()):
            sizes = [reader.retained_bytes() for _, _, reader in forms]
            known = [size for size in sizes if size is not None]
            if len(known) < len(sizes):
                del self._readers[key]
            else:
                num_bytes += sum(known)
        return num_bytes

    def global_buffer(self, index: int) -> Buffer:
        """Bytes of the writer's own, from number 1 on."""
        metadata = self._file.metadata
        if not isinstance(metadata, FileMetadata):
            raise CorruptFileError(f"global buffer {index} is wanted, there are none")
        return metadata.global_buffer(index)

    def average_row_bytes(self, fields: Sequence[Field], column_of: Mapping[int, int]) -> int:
        """Estimate of the decoded size of one row of ``fields``, at least 1."""
        return self._row_bytes(self._field_readers(fields, column_of))

    def _row_bytes(self, readers: Sequence[FieldReader]) -> int:
        return max(1, sum(reader.average_row_bytes() for reader in readers))

    def _check_ranges(self, ranges: Sequence[tuple[int, int]]) -> RowRanges:
        """The ranges without empty ones; neighbours are joined."""
        bounds = np.array([r for r in ranges if r[0] != r[1]], np.int64).reshape(-1, 2)
        starts, ends = bounds[:, 0], bounds[:, 1]
        inside = not len(bounds) or (starts[0] >= 0 and ends[-1] <= self.num_rows)
        ascending = bool((starts < ends).all()) and bool((starts[1:] >= ends[:-1]).all())
        if not (inside and ascending):
            raise InvalidInputError(
                f"row ranges must ascend inside of the file's {self.num_rows} rows: "
                f"{list(ranges)[:5]}",
                where=self._file.uri,
            )
        apart = starts[1:] != ends[:-1]
        return RowRanges(
            np.concatenate((starts[:1], starts[1:][apart])),
            np.concatenate((ends[:-1][apart], ends[-1:])),
        )

    def _field_readers(
        self, fields: Sequence[Field], column_of: Mapping[int, int]
    ) -> list[FieldReader]:
        return [self._field_reader(field, column_of) for field in fields]

    def _field_reader(
        self, field: Field, column_of: Mapping[int, int], *, keep_dictionaries: bool = False
    ) -> FieldReader:
        """Return the reader of an equal field, or a new one, which is kept."""
        columns = _columns_of(field, column_of)
        forms = self._readers.setdefault((field.id, keep_dictionaries), [])
        for known, known_columns, reader in forms:
            if (known is field or known == field) and known_columns == columns:
                return reader
        reader = self._new_field_reader(field, columns, keep_dictionaries=keep_dictionaries)
        forms.append((field, columns, reader))
        del forms[:-_MAX_FORMS]
        return reader

    def _new_field_reader(
        self, field: Field, columns: Mapping[int, int], *, keep_dictionaries: bool
    ) -> FieldReader:
        """A process reads files of one version, as a rule, and pays for what it imports."""
        if isinstance(self._file, LegacyFile):
            from pyspark_lance.datafile.v0_1.field_reader import LegacyFieldReader  # noqa: PLC0415

            return LegacyFieldReader(self._file, field)
        if self.version == "2.0":
            from pyspark_lance.datafile.v2_0.field_reader import make_v2_0_field_reader  # noqa: PLC0415

            return make_v2_0_field_reader(self._file, field, columns)
        from pyspark_lance.datafile.v2_1.field_reader import make_v2_1_field_reader  # noqa: PLC0415

        return make_v2_1_field_reader(
            self._file, field, columns, keep_dictionaries=keep_dictionaries
        )

    def _read_one(
        self,
        fields: Sequence[Field],
        column_of: Mapping[int, int],
        rows: RowRanges,
        max_bytes: int | None,
    ) -> pa.RecordBatch:
        """Read all rows in one batch."""
        readers = self._field_readers(fields, column_of)
        schema = pa.schema([field.to_arrow() for field in fields])
        if not len(rows.starts):
            nothing = [pa.nulls(0, field.type) for field in schema]
            return pa.RecordBatch.from_arrays(nothing, schema=schema) if fields else _empty_batch(0)
        if not fields:
            return _empty_batch(rows.num_rows)
        limit = max_bytes if rows.num_rows > 1 else None
        try:
            with limit_decode_memory(limit):
                self._prefetch(self._stored_pages(fields, column_of), readers, rows)
                columns = [concat_arrays(_read_arrays(reader, rows)) for reader in readers]
        except BatchTooLargeError as error:
            if limit is not None:
                raise
            raise UnsupportedFeatureError(
                f"{rows.num_rows} rows hold more than 2 GiB of strings in one column",
                where=self._file.uri,
                hint="read fewer rows at a time",
            ) from error
        finally:
            self._file.keep([], [])
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _stored_pages(
        self, fields: Sequence[Field], column_of: Mapping[int, int]
    ) -> StoredPages | None:
        """Return the fields' pages in a distant file; None if it is near or they are unknown."""
        file = self._file
        if file.has_low_latency or not isinstance(file, OpenFile) or self.version == "2.0":
            return None
        assert isinstance(file.metadata, FileMetadata)
        columns = {column for f in fields for column in _columns_of(f, column_of).values()}
        return StoredPages(file.metadata, sorted(columns)) if columns else None

    def _read_groups(
        self,
        readers: Sequence[FieldReader],
        pages: StoredPages,
        wanted: RowRanges,
        windows: Windows,
    ) -> Iterator[tuple[RowRanges, _Columns]]:
        """Windows of a distant file; many are fetched together, while those before are decoded."""
        file, seen_to = self._file, 0
        groups = pages.groups(wanted)
        likely = []
        for group in groups:
            likely.append(pages.likely_ranges(group, seen_to=seen_to))
            seen_to = group.end
        following: Future[list[Buffer]] | None = None
        # It has no thread until something is submitted, which one group never is.
        with GeneratorPool(max_workers=1) as executor:
            try:
                for number, group in enumerate(groups):
                    kept = following.result() if following else file.read_ranges(likely[number])
                    if number + 1 < len(groups):
                        following = executor.submit(file.read_ranges, likely[number + 1])
                    file.keep(likely[number], kept)
                    self._keep_exactly(readers, group)
                    windows.begin(group)
                    while (rows := windows.next_rows()) is not None:
                        yield from self._decode_window(readers, rows, windows)
            finally:
                file.keep([], [])

    def _keep_exactly(self, readers: Sequence[FieldReader], rows: RowRanges) -> None:
        """Fetch the missing bytes of the rows, with one request for all columns or two."""
        file = self._file
        file.keep_also(
            [byte_range for reader in readers for byte_range in reader.state_ranges(rows)]
        )
        with contextlib.suppress(BatchTooLargeError):  # then each of its windows looks for itself
            file.keep_also(
                [byte_range for reader in readers for byte_range in reader.row_byte_ranges(rows)]
            )

    def _read_windows(
        self, readers: Sequence[FieldReader], windows: Windows
    ) -> Iterator[tuple[RowRanges, _Columns]]:
        """Window after window; the next one's bytes are fetched while one is decoded."""
        if self._file.has_low_latency or not readers:
            while (rows := windows.next_rows()) is not None:
                yield from self._decode_window(readers, rows, windows)
            return
        with GeneratorPool(max_workers=1) as executor:
            current = self._start_fetch(executor, readers, windows)
            try:
                while current is not None:
                    following = self._start_fetch(executor, readers, windows)
                    rows, ranges, future = current
                    self._file.keep(ranges, future.result())
                    yield from self._decode_window(readers, rows, windows)
                    current = following
            finally:
                self._file.keep([], [])

    def _start_fetch(
        self, executor: GeneratorPool, readers: Sequence[FieldReader], windows: Windows
    ) -> tuple[RowRanges, list[ByteRange], Future[list[Buffer]]] | None:
        rows = windows.next_rows()
        if rows is None:
            return None
        while True:
            try:
                with limit_decode_memory(windows.window_limit(rows)):
                    ranges = self._window_ranges(readers, rows)
                break
            except BatchTooLargeError:
                rows = windows.half_of(rows)
        return rows, ranges, executor.submit(self._file.read_ranges, ranges)

    def _prefetch(
        self, pages: StoredPages | None, readers: Sequence[FieldReader], rows: RowRanges
    ) -> None:
        """Fetch all columns in one bulk request; a memory-mapped file needs none."""
        if pages is not None:
            is_known = not any(reader.state_ranges(rows) for reader in readers)
            likely = [] if is_known else pages.likely_ranges(rows)
            self._file.keep(likely, self._file.read_ranges(likely))
            self._keep_exactly(readers, rows)
        elif not self._file.has_low_latency and len(readers) > 1:
            ranges = self._window_ranges(readers, rows)
            self._file.keep(ranges, self._file.read_ranges(ranges))

    def _window_ranges(self, readers: Sequence[FieldReader], rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that all columns need, after one request for their metadata."""
        states = [byte_range for reader in readers for byte_range in reader.state_ranges(rows)]
        if states:
            self._file.keep(states, self._file.read_ranges(states))
        return [byte_range for reader in readers for byte_range in reader.row_byte_ranges(rows)]

    def _decode_window(
        self, readers: Sequence[FieldReader], rows: RowRanges, windows: Windows
    ) -> Iterator[tuple[RowRanges, _Columns]]:
        """Decode one window, or its halves if it holds more strings than an array can."""
        try:
            with limit_decode_memory(windows.window_limit(rows)):
                columns = [_read_arrays(reader, rows) for reader in readers]
        except BatchTooLargeError as error:
            if rows.num_rows == 1:
                raise UnsupportedFeatureError(
                    f"row {rows.start} holds more than 2 GiB of strings in one column",
                    where=self._file.uri,
                ) from error
            for half in _halves(rows):
                yield from self._decode_window(readers, half, windows)
            return
        windows.observe(rows.num_rows, sum(data_bytes(a) for column in columns for a in column))
        yield rows, columns


def _columns_of(field: Field, column_of: Mapping[int, int]) -> dict[int, int]:
    """Field id -> column, of a field and its descendants."""
    ids = [part.id for part in field.walk()]
    return {number: column_of[number] for number in ids if column_of.get(number, -1) >= 0}


def _read_arrays(reader: FieldReader, rows: RowRanges) -> Sequence[pa.Array]:
    """The rows of one field, in a few arrays of one type."""
    arrays = of_one_type(reader.read_arrays(rows))
    if len(arrays) > 1 and rows.num_rows < len(arrays) * _MIN_ARRAY_ROWS:
        return [concat_arrays(arrays)]
    return arrays


def _halves(rows: RowRanges) -> tuple[RowRanges, RowRanges]:
    positions = rows.to_positions()
    middle = len(positions) // 2
    return RowRanges.of_offsets(positions[:middle]), RowRanges.of_offsets(positions[middle:])


def _make_batches(
    schema: pa.Schema, columns: _Columns, num_rows: int, limits: tuple[int, int]
) -> Iterator[pa.RecordBatch]:
    """Slices of a window; cut where an array of any column ends, so that nothing is copied.

    ``num_rows``: rows of each column; ``limits``: rows and, roughly, bytes of a batch.
    """
    batch_rows, batch_bytes = limits
    if not columns:
        for start in range(0, num_rows, batch_rows):
            yield _empty_batch(min(batch_rows, num_rows - start))
        return
    chunked = [pa.chunked_array(arrays) for arrays in columns]
    kept = [field.with_type(array.type) for field, array in zip(schema, chunked, strict=True)]
    table = pa.Table.from_arrays(chunked, schema=pa.schema(kept))
    for batch in table.to_batches(max_chunksize=batch_rows):
        yield from _parts_of(batch, _MAX_BATCHES * batch_bytes)


def _parts_of(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """The batch, or parts of it that have no more bytes or one row."""
    if batch.num_rows < 2 or sum(map(data_bytes, batch.columns)) <= most_bytes:
        yield batch
        return
    half = batch.num_rows // 2
    yield from _parts_of(batch.slice(0, half), most_bytes)
    yield from _parts_of(batch.slice(half), most_bytes)


def _empty_batch(num_rows: int) -> pa.RecordBatch:
    """Rows without columns."""
    rows = pa.Array.from_buffers(pa.struct([]), num_rows, [None])
    return pa.RecordBatch.from_struct_array(rows)


def _joinable(files: Sequence[DataFileReader]) -> tuple[OpenFile, ...]:
    """Return the files if they can be read as one, else none."""
    opened = tuple(one._file for one in files if isinstance(one._file, OpenFile))
    kinds = {(one.metadata.version, one.metadata.num_columns) for one in opened}
    is_joinable = len(opened) == len(files) and len(kinds) == 1
    return opened if is_joinable and opened[0].metadata.version != "2.0" else ()


def _joined_metadata(files: Sequence[OpenFile]) -> JoinedMetadata:
    parts = [one.metadata for one in files if isinstance(one.metadata, FileMetadata)]
    assert len(parts) == len(files)
    sizes = [-(-part.file_size // _ALIGNMENT) * _ALIGNMENT for part in parts]
    *origins, end = accumulate(sizes, initial=0)
    return JoinedMetadata(parts, origins, end)

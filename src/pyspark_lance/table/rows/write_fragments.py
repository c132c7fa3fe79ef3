"""Write batches to data files and return fragments without ids; runs on executors."""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.shred import has_lists, item_counts
from pyspark_lance.commit.commit_outcome import files_of
from pyspark_lance.datafile.version_support import check_legacy_writable, version_need
from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.format.fragment import Fragment, new_data_file_name
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import data_path
from pyspark_lance.table.rows.blob_bytes import with_blob_bytes
from pyspark_lance.table.rows.conform import conform_batch
from pyspark_lance.table.unit_of_work import remove_files
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

if TYPE_CHECKING:
    from pyspark_lance.datafile.v0_1.writer import LegacyFileWriter
    from pyspark_lance.datafile.writer import DataFileWriter


# Imported lazily: planning and committing a write does not need them.

DEFAULT_MAX_ROWS_PER_FILE = 1 << 20
DEFAULT_MAX_BYTES_PER_FILE = 90_000_000_000
DEFAULT_MAX_ITEMS_PER_FILE = 2**31 - 1
"""Maximum list items in an Arrow array, which has 32-bit offsets. A reader of a whole fragment with
more would fail.
"""


@dataclass(frozen=True, slots=True)
class WriteFragmentsRequest:
    """Location and settings of data files to write."""

    table: Table
    schema: LanceSchema  # The columns of the data, with the field ids of the table.
    file_version: str  # Version of the data files, such as ``2.1``.
    # Maximum rows of a file.
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE
    # A file is closed once it exceeds this size.
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    # A file is closed before any list column, at any depth, has more items than this; a single row
    # with more gets a file of its own.
    max_items_per_file: int = DEFAULT_MAX_ITEMS_PER_FILE
    # Dictionary items by field id, for tables of file version 0.1.
    dictionaries: Mapping[int, pa.Array] = field(default_factory=dict, repr=False)
    # Longer sequences of row ids and versions are stored in hidden columns; None for none.
    inline_lineage_bytes: int | None = None

    def __post_init__(self) -> None:
        """Reject limits that are not positive."""
        if min(self.max_rows_per_file, self.max_bytes_per_file, self.max_items_per_file) < 1:
            raise InvalidInputError("the limits of a file must be positive")


def write_fragments(
    request: WriteFragmentsRequest, batches: Iterable[pa.RecordBatch | None]
) -> tuple[Fragment, ...]:
    """Write a stream of batches and return fragments with id 0 and no row ids.

    Memory is bounded by the pages being filled.  When anything fails, the files written by
    this call are removed.

    ``batches``: None ends a fragment.
    """
    files = FragmentFiles(request)
    try:
        for batch in with_blob_bytes(request.table, batches):
            if batch is None:
                files.close_file()
            elif batch.num_rows:
                files.write(conform_batch(batch, request.schema.fields))
        files.close_file()
    except BaseException:
        files.remove()
        raise
    return tuple(files.fragments)


class FragmentFiles:
    """Writer of fragments batch by batch, with at most one open file."""

    def __init__(self, request: WriteFragmentsRequest) -> None:
        self._request = request
        self._store = request.table.store()
        self._open: DataFileWriter | LegacyFileWriter | None = None
        self._open_rows = 0
        self._items = _ListItems(request)
        self._blob_objects: list[str] = []
        self.fragments: list[Fragment] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Append the rows of a conforming ``batch``, starting new files at the limits."""
        limit = self._request.max_rows_per_file
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, limit - self._open_rows)
            fitting = self._items.fitting(piece)
            if fitting < piece.num_rows:
                if not fitting and self._open_rows:
                    self.close_file()
                    continue
                piece = piece.slice(0, max(fitting, 1))
            self._items.add(piece)
            self._writer().write(piece)
            self._open_rows += piece.num_rows
            start += piece.num_rows
            if (
                self._open_rows >= limit
                or self._writer().bytes_written >= self._request.max_bytes_per_file
            ):
                self.close_file()

    def close_file(self) -> None:
        """Finish the open file, if there is one."""
        if self._open is None:
            return
        data_file = self._open.finish()
        self._blob_objects += self._open.blob_objects
        self.fragments.append(Fragment(id=0, files=(data_file,), physical_rows=self._open_rows))
        self._open, self._open_rows = None, 0
        self._items.clear()

    def remove(self) -> None:
        """Remove all written files."""
        if self._open is not None:
            with contextlib.suppress(Exception):  # the first error is the one to report
                self._open.abort()
        remove_files(self._store, [*files_of(self.fragments), *self._blob_objects])

    def _writer(self) -> DataFileWriter | LegacyFileWriter:
        if self._open is None:
            name = new_data_file_name(uuid.uuid4().bytes)
            path, schema = data_path(name), self._request.schema
            version = self._request.file_version
            if version == "0.1":
                from pyspark_lance.datafile.v0_1.writer import LegacyFileWriter  # noqa: PLC0415

                old = LegacyFileWriter(self._store, path, schema, self._request.dictionaries)
                self._open = old
            else:
                from pyspark_lance.datafile.writer import DataFileWriter  # noqa: PLC0415

                self._open = DataFileWriter(self._store, path, schema, version=version)
        return self._open


class _ListItems:
    """Item counts of the list columns of the open file."""

    def __init__(self, request: WriteFragmentsRequest) -> None:
        self._most = request.max_items_per_file
        self._columns = [
            index
            for index, field in enumerate(request.schema.fields)
            if has_lists(field.to_arrow().type)
        ]
        self.clear()

    def clear(self) -> None:
        """Reset the counts for a new file."""
        self._counts: dict[tuple[int, int], int] = {}

    def fitting(self, batch: pa.RecordBatch) -> int:
        """Return how many of the rows fit into the file."""
        rows = batch.num_rows
        for key, counts in self._counts_of(batch):
            room = self._most - self._counts.get(key, 0)
            if counts[rows] > room:
                rows = max(int(counts.searchsorted(room, side="right")) - 1, 0)
        return rows

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the items of appended rows."""
        for key, counts in self._counts_of(batch):
            self._counts[key] = self._counts.get(key, 0) + int(counts[-1])

    def _counts_of(
        self, batch: pa.RecordBatch
    ) -> Iterator[tuple[tuple[int, int], NDArray[np.int64]]]:
        """Yield for every list its position in the schema, and its cumulative items by row."""
        for column in self._columns:
            for number, counts in enumerate(item_counts(batch.column(column))):
                yield (column, number), counts


logger = logging.getLogger(__name__)

# Supported by every Lance reader since 2025; newer versions only for types that need them.
DEFAULT_FILE_VERSION = "2.1"


def new_file_version(schema: LanceSchema, requested: str | None) -> str:
    """Return the file version of a new table.

    ``requested``: the requested version; None for the default, or newer if a column needs it.
    """
    need = version_need(schema)
    needed, reason = need.version, f"{need.column}: {need.reason}"
    if requested is None:
        if needed > DEFAULT_FILE_VERSION:
            logger.info("the new table gets file version %s: %s", needed, reason)
            return needed
        return DEFAULT_FILE_VERSION
    if requested == "0.1":
        check_legacy_writable(schema)
        return requested
    if requested < needed:
        raise UnsupportedFeatureError(
            f"file version {requested} cannot hold the data: {reason}",
            hint=f"set fileFormatVersion to {needed}",
        )
    return requested


def existing_file_version(
    existing: Snapshot, columns: LanceSchema, requested: str | None, *, replaces_all: bool
) -> str:
    """Return the file version of a write to an existing table.

    ``requested``: the requested version; None for the table's own. ``replaces_all``: whether the
    write replaces all rows.
    """
    own = existing.manifest.file_version
    if requested is not None and requested != own and not replaces_all:
        raise InvalidInputError(
            f"fileFormatVersion is {requested}, but the table's files are {own}",
            where=existing.uri,
            hint="leave the option out; an append uses the table's own version",
        )
    version = requested or own
    if version == "0.1":
        dictionaries = {} if replaces_all else table_dictionaries(existing)
        check_legacy_writable(columns, dictionaries.keys())
        return version
    need = version_need(columns)
    if version < need.version:
        raise UnsupportedFeatureError(
            f"the table's files are version {version}, which cannot hold the column "
            f"{need.column!r}: {need.reason}",
            where=existing.uri,
            hint=f"overwrite the table with fileFormatVersion {need.version}",
        )
    return version


def table_dictionaries(existing: Snapshot) -> dict[int, pa.Array]:
    """Return the dictionary items of a 0.1 table, by field id."""
    # Imported lazily: other tables have no dictionaries.
    from pyspark_lance.datafile.v0_1.writer import known_dictionaries  # noqa: PLC0415

    return known_dictionaries(existing.schema, existing.manifest.dictionary_values)

"""Batches become data files become fragments without ids: the part of a write on an executor."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from pyspark_lance.commit.whereabouts import files_of
from pyspark_lance.datafile.v0_1.writer import LegacyFileWriter
from pyspark_lance.datafile.writer import DataFileWriter
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.data_file import new_data_file_name
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.metafile.paths import data_path
from pyspark_lance.table.rows.conform import conform_batch
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work.written_files import remove_files

DEFAULT_MAX_ROWS_PER_FILE = 1 << 20
DEFAULT_MAX_BYTES_PER_FILE = 90_000_000_000


@dataclass(frozen=True, slots=True)
class WriteFragmentsRequest:
    """Where and how to write data files.

    Attributes:
        table: The table or branch.
        schema: The columns that the data hold, with the field ids of the table.
        file_version: Version of the data files, such as ``2.1``.
        max_rows_per_file: A file is closed when it has this many rows.
        max_bytes_per_file: A file is closed when it has grown beyond this.
        dictionaries: Of a table of file version 0.1: the items of its dictionaries, by field id.
    """

    table: Table
    schema: LanceSchema
    file_version: str
    max_rows_per_file: int = DEFAULT_MAX_ROWS_PER_FILE
    max_bytes_per_file: int = DEFAULT_MAX_BYTES_PER_FILE
    dictionaries: Mapping[int, pa.Array] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuses limits that are not positive."""
        if self.max_rows_per_file < 1 or self.max_bytes_per_file < 1:
            raise InvalidInputError("the limits of a file must be positive")


def write_fragments(
    request: WriteFragmentsRequest, batches: Iterable[pa.RecordBatch]
) -> tuple[Fragment, ...]:
    """Writes ``batches`` as they come and returns fragments with id 0 and no row ids.

    Memory is bounded by the pages being filled.  When anything fails, the files written by
    this call are removed.

    Raises:
        SchemaMismatchError: Data that do not fit the schema.
        StorageError: The store failed.
    """
    files = FragmentFiles(request)
    try:
        for batch in batches:
            if batch.num_rows:
                files.write(conform_batch(batch, request.schema.fields))
        files.close_file()
    except BaseException:
        files.remove()
        raise
    return tuple(files.fragments)


class FragmentFiles:
    """Fragments that grow batch by batch, at most one of their files open.

    Args:
        request: Where and how to write.
    """

    def __init__(self, request: WriteFragmentsRequest) -> None:
        self._request = request
        self._store = request.table.store()
        self._open: DataFileWriter | LegacyFileWriter | None = None
        self._open_rows = 0
        self.fragments: list[Fragment] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Appends the rows of ``batch``, which conforms, starting new files at the limits."""
        limit = self._request.max_rows_per_file
        start = 0
        while start < batch.num_rows:
            piece = batch.slice(start, limit - self._open_rows)
            self._writer().write(piece)
            self._open_rows += piece.num_rows
            start += piece.num_rows
            if (
                self._open_rows >= limit
                or self._writer().bytes_written >= self._request.max_bytes_per_file
            ):
                self.close_file()

    def close_file(self) -> None:
        """Finishes the open file, if there is one."""
        if self._open is None:
            return
        data_file = self._open.finish()
        self.fragments.append(Fragment(id=0, files=(data_file,), physical_rows=self._open_rows))
        self._open, self._open_rows = None, 0

    def remove(self) -> None:
        """Removes everything this call wrote."""
        if self._open is not None:
            with contextlib.suppress(Exception):  # the first error is the one to report
                self._open.abort()
        remove_files(self._store, files_of(self.fragments))

    def _writer(self) -> DataFileWriter | LegacyFileWriter:
        if self._open is None:
            name = new_data_file_name(uuid.uuid4().bytes)
            path, schema = data_path(name), self._request.schema
            version = self._request.file_version
            self._open = (
                LegacyFileWriter(self._store, path, schema, self._request.dictionaries)
                if version == "0.1"
                else DataFileWriter(self._store, path, schema, version=version)
            )
        return self._open

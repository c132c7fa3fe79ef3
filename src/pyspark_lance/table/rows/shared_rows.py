"""Data files that several readers take rows from: opened once, and decoded in one pass.

To take one row in a hundred decodes nearly every page of a file, and so does to take another one in
a hundred.  Readers that know what they will take say so first; the rows of all are decoded together
when the first of them is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_bytes import data_bytes
from pyspark_lance.codec.decode_memory import BatchTooLargeError
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.format.data_file import DataFile
from pyspark_lance.format.field import Field
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.table.rows.column_parts import FilePart
from pyspark_lance.table.version.table_files import TableFiles

FileKey = tuple[str, tuple[BasePath, ...], int | None, str]
"""Root of the table, its base paths, and which of them a data file is below, at which path."""


def file_key(files: TableFiles, file: DataFile) -> FileKey:
    """What a data file has in common with itself in other versions."""
    return files.table.uri, files.base_paths, file.base_id, file.path


@dataclass(slots=True)
class _Wanted:
    """Rows of a file that readers will take."""

    fields: tuple[Field, ...]
    columns: tuple[int, ...]  # Of the fields and what is below, in the file.
    requests: list[NDArray[np.uint32]] = field(default_factory=list)
    rows: pa.RecordBatch | None = None  # Those at ``offsets``, once they were decoded.
    offsets: NDArray[np.uint32] = field(default_factory=lambda: np.empty(0, np.uint32))
    is_shared: bool = True  # Whether rows are decoded together; not if they are too large.


class SharedRows:
    """Rows of data files that several readers take; for one thread.

    ``max_bytes``: decoded bytes that are kept; rows that there is no room for are decoded when they
    are taken.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._readers: dict[FileKey, DataFileReader] = {}
        self._wanted: dict[FileKey, list[_Wanted]] = {}
        self._kept_bytes = 0

    def reader(self, key: FileKey, open_file: Callable[[], DataFileReader]) -> DataFileReader:
        """The reader of a file, opened when it is first asked for."""
        known = self._readers.get(key)
        if known is None:
            known = self._readers[key] = open_file()
        return known

    def want(self, key: FileKey, part: FilePart, offsets: NDArray[np.uint32]) -> None:
        """Announce that rows will be taken.

        Args:
            key: The file.
            part: What is taken of it.
            offsets: The rows, ascending; not all have to be taken at once.
        """
        wanted = self._find(key, part)
        if wanted is None:
            wanted = _Wanted(part.fields, _columns_of(part))
            self._wanted.setdefault(key, []).append(wanted)
        wanted.requests.append(offsets)

    def take(
        self,
        key: FileKey,
        reader: DataFileReader,
        part: FilePart,
        offsets: NDArray[np.uint32],
        max_bytes: int | None,
    ) -> pa.RecordBatch:
        """Return rows of a file, as ``DataFileReader.take`` does."""
        wanted = self._find(key, part)
        if wanted is not None and wanted.rows is None and wanted.is_shared:
            self._decode(wanted, reader, part, len(offsets))
        if wanted is None or wanted.rows is None:
            return reader.take(part.fields, part.column_of, offsets, max_bytes=max_bytes)
        places = np.searchsorted(wanted.offsets, offsets)
        return take_rows(wanted.rows, places)

    def drop(self) -> None:
        """Forget rows and files."""
        self._readers.clear()
        self._wanted.clear()
        self._kept_bytes = 0

    def _find(self, key: FileKey, part: FilePart) -> _Wanted | None:
        known = self._wanted.get(key, ())
        columns = _columns_of(part) if known else ()
        for wanted in known:
            # Versions have equal fields, and often the same.
            if wanted.columns == columns and wanted.fields == part.fields:
                return wanted
        return None

    def _decode(
        self, wanted: _Wanted, reader: DataFileReader, part: FilePart, num_taken: int
    ) -> None:
        """Decode the wanted rows, unless all of them are taken now."""
        if sum(map(len, wanted.requests)) <= num_taken:
            wanted.is_shared = False
            return
        offsets = np.sort(np.concatenate(wanted.requests))
        offsets = offsets[np.diff(offsets, prepend=offsets[:1] + np.uint32(1)) != 0]
        room = self._max_bytes - self._kept_bytes
        try:
            if room <= 0:
                raise BatchTooLargeError
            rows = reader.take(part.fields, part.column_of, offsets, max_bytes=room)
        except BatchTooLargeError:
            wanted.is_shared = False
            return
        wanted.rows, wanted.offsets = rows, offsets
        wanted.requests.clear()
        self._kept_bytes += sum(map(data_bytes, rows.columns))


def _columns_of(part: FilePart) -> tuple[int, ...]:
    return tuple(part.column_of.get(one.id, -1) for whole in part.fields for one in whole.walk())

"""ReaderPool: readers of data files that stay open between searches.

A search reads a few rows of many files. To open these files, and to find out where rows are in
their pages, takes longer than to decode the rows. A reader serves one search at a time.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.table_files import TableFiles

# Each reader of a local file has a map of it, which takes a descriptor.
_MAX_FILES: Final = 96
_MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _IdleReader:
    reader: DataFileReader
    identity: Hashable  # Of the file when it was opened.
    num_bytes: int


class AcquiredReaders:
    """Readers that are lent to one caller, also to several threads of it."""

    def __init__(self, pool: ReaderPool) -> None:
        self._pool = pool
        self._tables: dict[int, tuple[TableFiles, Hashable]] = {}
        self._lent: list[tuple[Hashable, Hashable, DataFileReader]] = []

    def reader(
        self, files: TableFiles, file: DataFile, open_file: Callable[[], DataFileReader]
    ) -> DataFileReader:
        """Return an idle reader of a data file, or a new one.

        Raises:
            FileNotFoundError: The file is missing.
        """
        store, path = files.locate(file)
        identity = _identity(store, path, file)
        if identity is None:
            return open_file()
        # External blobs are found by the options and base paths of the table.
        key = self._key_of(files), files.base_paths, file.base_id, store.uri, path
        reader = self._pool._borrow(key, identity) or open_file()
        self._lent.append((key, identity, reader))
        return reader

    def _key_of(self, files: TableFiles) -> Hashable:
        known = self._tables.get(id(files))
        if known is None:
            known = self._tables[id(files)] = files, files.table.key()
        return known[1]

    def _give_back(self) -> None:
        for key, identity, reader in self._lent:
            self._pool._keep(key, identity, reader)


class ReaderPool:
    """The most recently used readers, bounded by files and by approximate bytes."""

    def __init__(self, max_files: int = _MAX_FILES, max_bytes: int = _MAX_BYTES) -> None:
        self._max_files, self._max_bytes = max_files, max_bytes
        self.clear()

    def clear(self) -> None:
        """Drop all idle readers; also usable after a fork, when the lock may be held."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[Hashable, _IdleReader] = OrderedDict()
        self._num_bytes = 0

    @property
    def num_files(self) -> int:
        """Number of idle readers."""
        return len(self._idle)

    @property
    def num_bytes(self) -> int:
        """Approximate memory of the idle readers."""
        return self._num_bytes

    @contextmanager
    def acquire(self) -> Iterator[AcquiredReaders]:
        """Lend readers; those of a caller that fails are dropped."""
        lent = AcquiredReaders(self)
        yield lent
        lent._give_back()

    def _borrow(self, key: Hashable, identity: Hashable) -> DataFileReader | None:
        """Remove and return the idle reader of a file; drop one of a file that was replaced."""
        with self._lock:
            idle = self._idle.pop(key, None)
            if idle is None:
                return None
            self._num_bytes -= idle.num_bytes
        return idle.reader if idle.identity == identity else None

    def _keep(self, key: Hashable, identity: Hashable, reader: DataFileReader) -> None:
        num_bytes = reader.trim()
        if num_bytes is None or num_bytes > self._max_bytes:
            return
        with self._lock:
            known = self._idle.pop(key, None)
            if known is not None:
                self._num_bytes -= known.num_bytes
            self._idle[key] = _IdleReader(reader, identity, num_bytes)
            self._num_bytes += num_bytes
            while len(self._idle) > self._max_files or self._num_bytes > self._max_bytes:
                _, oldest = self._idle.popitem(last=False)
                self._num_bytes -= oldest.num_bytes


def _identity(store: ObjectStore, path: str, file: DataFile) -> Hashable:
    """Return an identity that changes when a file is replaced; None if unknown.

    Raises:
        FileNotFoundError: A local file is missing.
    """
    if isinstance(store, LocalStore):
        return store.stat(path).identity
    # Objects of these stores are never replaced; the key has the credentials.
    return None if store.cache_key is None else (store.cache_key, file.size_bytes)


READER_POOL: Final = ReaderPool()
"""The readers of searches in this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=READER_POOL.clear)

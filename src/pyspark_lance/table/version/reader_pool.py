"""ReaderPool: readers of data files that stay open between searches.

A search reads a few rows of many files. To open these files, and to find out where rows are in
their pages, takes longer than to decode the rows. A reader serves one search at a time.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.format.fragment import DataFile
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.version.table_files import TableFiles

# Each reader of a local file has a map of it, which takes a descriptor.
_MAX_FILES: Final = 160
_MAX_BYTES: Final = 64 << 20


@dataclass(frozen=True, slots=True)
class _IdleReader:
    reader: DataFileReader
    identities: tuple[Hashable, ...]  # Of its files when they were opened.
    num_bytes: int

    def is_of(self, identities: Mapping[int, Hashable]) -> bool:
        """Return whether some of its files, by their numbers, are still the same."""
        return all(self.identities[number] == one for number, one in identities.items())


class AcquiredReaders:
    """Readers that are lent to one caller, also to several threads of it."""

    def __init__(self, pool: ReaderPool) -> None:
        self._pool = pool
        self._tables: dict[int, tuple[TableFiles, Hashable]] = {}
        self._lent: list[tuple[Hashable, tuple[Hashable, ...], DataFileReader]] = []

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
        key = self._file_key(files, file)
        idle = self._pool._borrow(key, {0: identity})
        reader = open_file() if idle is None else idle.reader
        self._lent.append((key, (identity,), reader))
        return reader

    def borrow_joined(
        self,
        files: TableFiles,
        several: Sequence[DataFile],
        used: Sequence[int],
        open_file: Callable[[int], DataFileReader],
    ) -> DataFileReader | None:
        """Return a reader of the concatenated rows of several local files.

        See ``JoinedReaders``.
        """
        identities: dict[int, Hashable] = {}
        try:
            for number in used:
                identities[number] = _identity(*files.locate(several[number]), several[number])
        except FileNotFoundError:
            return None
        keys = tuple(self._file_key(files, file) for file in several)
        idle = self._pool._borrow(keys, identities)
        if idle is not None:
            self._lent.append((keys, idle.identities, idle.reader))
            return idle.reader
        if self._pool.count_idle(keys) < len(keys) / 2:
            return None
        try:
            own = [
                self.reader(files, file, partial(open_file, number))
                for number, file in enumerate(several)
            ]
        except FileNotFoundError:
            return None
        joined = DataFileReader.concat_in_place(own)
        if joined is not None:
            parts = self._lent[-len(own) :]
            self._lent[-len(own) :] = [(keys, tuple(one[1][0] for one in parts), joined)]
        return joined

    def _file_key(self, files: TableFiles, file: DataFile) -> Hashable:
        store, path = files.locate(file)
        # External blobs are found by the options and base paths of the table.
        return self._key_of(files), files.base_paths, file.base_id, store.uri, path

    def _key_of(self, files: TableFiles) -> Hashable:
        known = self._tables.get(id(files))
        if known is None:
            known = self._tables[id(files)] = files, files.table.key()
        return known[1]

    def _give_back(self) -> None:
        for key, identities, reader in self._lent:
            self._pool._keep(key, identities, reader)


@dataclass(frozen=True, slots=True)
class JoinedReaders:
    """Readers of several files each, which are made of their own readers.

    ``used``: the numbers of the files whose rows are taken.
    """

    acquired: AcquiredReaders
    used: tuple[int, ...]

    def reader(
        self,
        files: TableFiles,
        several: Sequence[DataFile],
        open_file: Callable[[int], DataFileReader],
    ) -> DataFileReader | None:
        """Return a reader of the concatenated rows of several local files of one layout.

        Returns None as long as less than half of the files have idle readers, since the others are
        opened, too; and if a file was removed. ``open_file``: opens a file by its number.
        """
        return self.acquired.borrow_joined(files, several, self.used, open_file)


class ReaderPool:
    """The most recently used readers, bounded by files and by approximate bytes."""

    def __init__(self, max_files: int = _MAX_FILES, max_bytes: int = _MAX_BYTES) -> None:
        self._max_files, self._max_bytes = max_files, max_bytes
        self.clear()

    def clear(self) -> None:
        """Drop all idle readers; also usable after a fork, when the lock may be held."""
        self._lock = threading.Lock()
        self._idle: OrderedDict[Hashable, _IdleReader] = OrderedDict()
        self._num_files = self._num_bytes = 0

    @property
    def num_files(self) -> int:
        """Number of files of idle readers."""
        return self._num_files

    @property
    def num_bytes(self) -> int:
        """Approximate memory of the idle readers."""
        return self._num_bytes

    def count_idle(self, keys: Iterable[Hashable]) -> int:
        """Return how many of some readers are idle."""
        return sum(key in self._idle for key in keys)

    @contextmanager
    def acquire(self) -> Iterator[AcquiredReaders]:
        """Lend readers; those of a caller that fails are dropped."""
        acquired = AcquiredReaders(self)
        yield acquired
        acquired._give_back()

    def _borrow(self, key: Hashable, identities: Mapping[int, Hashable]) -> _IdleReader | None:
        """Remove and return an idle reader; drop one of a file that was replaced."""
        with self._lock:
            idle = self._idle.pop(key, None)
            if idle is None:
                return None
            self._count(idle, -1)
        return idle if idle.is_of(identities) else None

    def _keep(
        self, key: Hashable, identities: tuple[Hashable, ...], reader: DataFileReader
    ) -> None:
        num_bytes = reader.trim()
        if num_bytes is None or num_bytes > self._max_bytes:
            return
        with self._lock:
            known = self._idle.pop(key, None)
            if known is not None:
                self._count(known, -1)
            self._idle[key] = _IdleReader(reader, identities, num_bytes)
            self._count(self._idle[key], 1)
            while self._num_files > self._max_files or self._num_bytes > self._max_bytes:
                self._count(self._idle.popitem(last=False)[1], -1)

    def _count(self, idle: _IdleReader, sign: int) -> None:
        """Count a reader that was added (1) or removed (-1)."""
        self._num_files += sign * len(idle.identities)
        self._num_bytes += sign * idle.num_bytes


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

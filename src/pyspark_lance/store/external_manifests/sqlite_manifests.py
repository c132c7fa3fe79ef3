"""External manifest store in an SQLite file, for shared folders without atomic creation of files.

The file must be where SQLite's locks work: on a local disk, or on a network file system with
working POSIX locks.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterable, Iterator

from pyspark_lance.errors import StorageError
from pyspark_lance.store.external_manifests.external_manifest_table import ManifestEntry

_WAIT_S = 30.0
_CREATE = (
    "CREATE TABLE IF NOT EXISTS manifests (base_uri TEXT NOT NULL, version INTEGER NOT NULL, "
    "path TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (base_uri, version))"
)


class SqliteManifests:
    """Versions of one table, in a file shared by any number of tables.

    ``path``: the file; created at first use.
    """

    def __init__(self, path: str, base_uri: str) -> None:
        self.name = f"sqlite:{path}"
        self._path = os.path.abspath(os.path.expanduser(path))
        self._base = base_uri

    def insert(self, entry: ManifestEntry) -> bool:
        """Add the version unless it exists."""
        with self._connection() as connection:
            row = (self._base, entry.version, entry.path, entry.size)
            done = connection.execute("INSERT OR IGNORE INTO manifests VALUES (?, ?, ?, ?)", row)
            return done.rowcount == 1

    def replace_path(self, entry: ManifestEntry) -> None:
        """Set the path of the version."""
        with self._connection() as connection:
            connection.execute(
                "UPDATE manifests SET path = ?, size = ? WHERE base_uri = ? AND version = ?",
                (entry.path, entry.size, self._base, entry.version),
            )

    def latest(self) -> ManifestEntry | None:
        """Return the highest version."""
        return self._one("ORDER BY version DESC LIMIT 1")

    def get(self, version: int) -> ManifestEntry | None:
        """A version."""
        return self._one("AND version = ?", version)

    def forget(self, versions: Iterable[int]) -> None:
        """Remove versions."""
        with self._connection() as connection:
            connection.executemany(
                "DELETE FROM manifests WHERE base_uri = ? AND version = ?",
                [(self._base, version) for version in versions],
            )

    def _one(self, which: str, *arguments: object) -> ManifestEntry | None:
        query = f"SELECT version, path, size FROM manifests WHERE base_uri = ? {which}"
        with self._connection() as connection:
            row = connection.execute(query, (self._base, *arguments)).fetchone()
        return None if row is None else ManifestEntry(*row)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open a connection per call, as forked processes and threads must not share one."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection:
                connection.execute(_CREATE)
                with connection:
                    yield connection
        except sqlite3.Error as error:
            raise StorageError(
                f"the external manifest store failed: {error}",
                where=self._path,
                hint="check that the file is an SQLite database in a writable folder",
            ) from error

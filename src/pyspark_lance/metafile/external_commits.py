"""Tables whose versions are committed by an external manifest store.

A commit has four steps: write the manifest under a staging name, insert that name into the external
store unless the version exists, copy the manifest to its final name, and update the external store.
The second step decides.  A reader that finds an incomplete version completes it.

Source: docs/format/table-format.md, section 8.5.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar
from urllib.parse import parse_qsl

from pyspark_lance.errors import CorruptFileError, InvalidInputError
from pyspark_lance.metafile.paths import (
    VERSIONS,
    final_manifest_path,
    parse_manifest_name,
    staged_manifest_path,
)
from pyspark_lance.store.credential_issuer import with_fresh_credentials
from pyspark_lance.store.external_manifest_tables import ExternalManifestTable, ManifestEntry
from pyspark_lance.store.object_store import (
    Buffer,
    ByteRange,
    Content,
    ObjectInfo,
    ObjectStore,
    OutputFile,
    as_byte_view,
)
from pyspark_lance.store.open_store import open_store
from pyspark_lance.store.storage_options import MANIFEST_STORE, PREFIX, named_options

logger = logging.getLogger(__name__)

_SCHEME: Final = "s3+ddb://"
_TABLE_PARAMETER: Final = "ddbTableName"
_FOLDER: Final = f"{VERSIONS}/"

_T = TypeVar("_T")


def split_manifest_store_uri(
    root: str, storage: Mapping[str, str]
) -> tuple[str, Mapping[str, str]]:
    """Split ``s3+ddb://bucket/path?ddbTableName=T`` into the root in S3 and a storage option."""
    if not root.lower().startswith(_SCHEME):
        return root, storage
    path, _, query = root[len(_SCHEME) :].partition("?")
    parameters = parse_qsl(query, keep_blank_values=True)
    if [name for name, _ in parameters] != [_TABLE_PARAMETER] or not parameters[0][1]:
        raise InvalidInputError(
            f"the URI {root!r} does not name one DynamoDB table",
            hint=f"write {_SCHEME}bucket/path?{_TABLE_PARAMETER}=NAME",
        )
    return f"s3://{path}", {**storage, PREFIX + MANIFEST_STORE: f"dynamodb:{parameters[0][1]}"}


def open_table_store(uri: str, storage: Mapping[str, str]) -> ObjectStore:
    """Open the store of a table or branch, with an external manifest store if configured."""
    if not storage:  # called many times per commit of a local table
        return open_store(uri)
    storage = with_fresh_credentials(storage)
    store = open_store(uri, storage)
    chosen = next((text for name, text in named_options(storage) if name == MANIFEST_STORE), "")
    if not chosen:
        return store
    kind, _, where = chosen.partition(":")
    # Imported only if needed, since one of them loads an SDK.
    if kind == "dynamodb" and where:
        from pyspark_lance.store.external_manifest_tables import DynamoDBManifests  # noqa: PLC0415

        bucket, _, path = uri.partition("://")[2].rstrip("/").partition("/")
        manifests = DynamoDBManifests(where, path, storage, bucket=bucket)
        return ExternallyCommittedStore(store, manifests)
    if kind == "sqlite" and where:
        from pyspark_lance.store.external_manifest_tables import SqliteManifests  # noqa: PLC0415

        return ExternallyCommittedStore(store, SqliteManifests(where, store.uri))
    raise InvalidInputError(
        f"{chosen!r} is not an external manifest store",
        hint=f"{PREFIX}{MANIFEST_STORE} must be dynamodb:TABLE or sqlite:FILE",
    )


class ExternallyCommittedStore(ObjectStore):
    """Store of a table in which a manifest exists as soon as the external store has it.

    Manifests are always created atomically, whatever the inner store supports.
    """

    def __init__(self, inner: ObjectStore, versions: ExternalManifestTable) -> None:
        self.uri = inner.uri
        self.lists_in_order = inner.lists_in_order
        self.lists_names_only = inner.lists_names_only
        self.unproven_server = ""
        self.server = inner.server
        # Not the inner store's key, since that store may show other versions.
        self.cache_key = None if inner.cache_key is None else (inner.cache_key, versions.name)
        self._inner = inner
        self._versions = versions

    def __repr__(self) -> str:
        return f"ExternallyCommittedStore({self._inner!r}, {self._versions.name!r})"

    # Commits ------------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: Content) -> bool:
        """Create the object unless it exists; a manifest in the four steps.

        Raises:
            StorageError: The store failed; the manifest may exist.
        """
        version, data = _version_of(path), as_byte_view(data)
        if version is None:  # tags and branches use the inner store, as in other clients
            if self._inner.exists(path):
                return False
            self._inner.put(path, data)
            return True
        if self._inner.exists(path):  # committed before the table had an external store
            return False
        staged = ManifestEntry(version, staged_manifest_path(path, str(uuid.uuid4())), len(data))
        self._inner.put(staged.path, data)
        if not self._versions.insert(staged):
            self._inner.delete(staged.path)
            return False
        try:
            self._finish(staged)
        except Exception as error:  # noqa: BLE001 - a client raises errors of its own, too
            # The version is committed; its next reader completes it.
            logger.warning("version %d of %s is not finished: %s", version, self.uri, error)
        return True

    def _finish(self, entry: ManifestEntry) -> None:
        """Copy the manifest of a version to its final name, if missing."""
        final = final_manifest_path(entry.path)
        if final == entry.path:
            return
        try:
            self._inner.copy(entry.path, final)
        except FileNotFoundError:
            # Another client has completed it and removed the staged file.
            newer = self._versions.get(entry.version)
            if newer is None or newer.path == final:
                return
            raise CorruptFileError(
                f"version {entry.version} is in the external manifest store "
                f"{self._versions.name}, but its manifest is not there",
                where=f"{self.uri}/{entry.path}",
                hint="restore that file, or remove the row if the version can be discarded",
            ) from None
        self._versions.replace_path(replace(entry, path=final))
        self._inner.delete(entry.path)

    # Reading --------------------------------------------------------------------------------------

    def get(self, path: str) -> Buffer:
        """Return the whole object."""
        return self._read(path, lambda: self._inner.get(path))

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """Return the last bytes and the object's size."""
        return self._read(path, lambda: self._inner.get_tail(path, length))

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Return exactly the bytes from ``start`` to ``end``."""
        return self._read(path, lambda: self._inner.get_range(path, start, end))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """Return the bytes of each range."""
        return self._read(path, lambda: self._inner.get_ranges(path, ranges))

    def list_names(self, folder: str) -> list[str]:
        """Return the names of the objects directly in the folder, as ``list`` does."""
        self._finish_newest(folder)
        return self._inner.list_names(folder)

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """List all objects in the folder and below, including the newest version's manifest."""
        self._finish_newest(prefix)
        return self._inner.list(prefix, first=first)

    def _finish_newest(self, prefix: str) -> None:
        """Complete the newest version if ``prefix`` contains the versions."""
        if _FOLDER.startswith(prefix.rstrip("/") + "/") or not prefix:
            latest = self._versions.latest()
            if latest is not None:
                self._finish(latest)

    def stat(self, path: str) -> ObjectInfo:
        """Return size and modification time."""
        return self._read(path, lambda: self._inner.stat(path))

    def _read(self, path: str, read: Callable[[], _T]) -> _T:
        """Read; complete the version first if its manifest is missing."""
        try:
            return read()
        except FileNotFoundError:
            version = _version_of(path)
            entry = None if version is None else self._versions.get(version)
            if entry is None or entry.path == path:
                raise
            self._finish(entry)
        return read()

    # Other methods --------------------------------------------------------------------------------

    def put(self, path: str, data: Buffer) -> None:
        """Create or replace the object."""
        self._inner.put(path, data)

    def copy(self, source: str, target: str) -> None:
        """Copy the object."""
        self._inner.copy(source, target)

    def open_output(self, path: str) -> OutputFile:
        """Start an object that is written in pieces."""
        return self._inner.open_output(path)

    def delete(self, path: str) -> None:
        """Remove the object; a manifest also from the external store."""
        self.delete_many([path])

    def delete_many(self, paths: Iterable[str]) -> None:
        """Remove the objects; manifests also from the external store."""
        # Objects first: a row without an object still counts as a version, so its number is not
        # reused.
        to_delete = list(paths)
        self._inner.delete_many(to_delete)
        versions = [version for path in to_delete if (version := _version_of(path)) is not None]
        if versions:
            self._versions.forget(versions)


def _version_of(path: str) -> int | None:
    """Return the version whose manifest has this path; None for detached versions and others."""
    if not path.startswith(_FOLDER):
        return None
    name = parse_manifest_name(path.removeprefix(_FOLDER))
    return None if name is None or name.is_detached else name.version

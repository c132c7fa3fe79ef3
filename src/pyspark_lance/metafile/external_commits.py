"""A table whose versions are decided by an external manifest store.

A version is made in four steps: its manifest is written under a staging name, that name is put into
the external store unless the version is there, the manifest is copied to its final name, and the
external store is told.  The second step decides.  Whoever reads a version that is half made does
the rest.

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
from pyspark_lance.store.byte_range import ByteRange
from pyspark_lance.store.external_manifests.external_manifest_table import (
    ExternalManifestTable,
    ManifestEntry,
)
from pyspark_lance.store.object_store import Buffer, ObjectInfo, ObjectStore, OutputFile
from pyspark_lance.store.open_store import open_store
from pyspark_lance.store.rest_client import with_fresh_credentials
from pyspark_lance.store.storage_options import MANIFEST_STORE, PREFIX, named_options

logger = logging.getLogger(__name__)

_SCHEME: Final = "s3+ddb://"
_TABLE_PARAMETER: Final = "ddbTableName"
_FOLDER: Final = f"{VERSIONS}/"

_T = TypeVar("_T")


def without_manifest_store(root: str, storage: Mapping[str, str]) -> tuple[str, Mapping[str, str]]:
    """``s3+ddb://bucket/path?ddbTableName=T`` as the root in S3 and a storage option."""
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
    """The store of a table or branch, with its external manifest store if an option names one."""
    if not storage:  # asked for a local table many times in each commit
        return open_store(uri)
    storage = with_fresh_credentials(storage)
    store = open_store(uri, storage)
    chosen = next((text for name, text in named_options(storage) if name == MANIFEST_STORE), "")
    if not chosen:
        return store
    kind, _, where = chosen.partition(":")
    # Other tables need neither of them, and one of them loads an SDK.
    if kind == "dynamodb" and where:
        from pyspark_lance.store.external_manifests.dynamodb_manifests import DynamoDBManifests  # noqa: PLC0415

        bucket, _, path = uri.partition("://")[2].rstrip("/").partition("/")
        manifests = DynamoDBManifests(where, path, storage, bucket=bucket)
        return ExternallyCommittedStore(store, manifests)
    if kind == "sqlite" and where:
        from pyspark_lance.store.external_manifests.sqlite_manifests import SqliteManifests  # noqa: PLC0415

        return ExternallyCommittedStore(store, SqliteManifests(where, store.uri))
    raise InvalidInputError(
        f"{chosen!r} is not an external manifest store",
        hint=f"{PREFIX}{MANIFEST_STORE} is dynamodb:TABLE or sqlite:FILE",
    )


class ExternallyCommittedStore(ObjectStore):
    """The store of a table, in which a manifest is there as soon as the external store has it.

    Manifests can be created only if they are absent, whatever the store below can do.
    """

    def __init__(self, inner: ObjectStore, versions: ExternalManifestTable) -> None:
        self.uri = inner.uri
        self.lists_in_order = inner.lists_in_order
        self.lists_names_only = inner.lists_names_only
        self.unproven_server = ""
        self.server = inner.server
        # Not that of the store below, which may show other versions.
        self.place = None if inner.place is None else (inner.place, versions.name)
        self._inner = inner
        self._versions = versions

    def __repr__(self) -> str:
        return f"ExternallyCommittedStore({self._inner!r}, {self._versions.name!r})"

    # Making a version ---------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: Buffer) -> bool:
        """Creates the object unless there is one; a manifest in the four steps.

        Raises StorageError: the store failed; the manifest may be there.
        """
        version = _version_of(path)
        if version is None:  # a tag or a branch: as other clients do
            if self._inner.exists(path):
                return False
            self._inner.put(path, data)
            return True
        if self._inner.exists(path):  # made before the table had an external store
            return False
        staged = ManifestEntry(version, staged_manifest_path(path, str(uuid.uuid4())), len(data))
        self._inner.put(staged.path, data)
        if not self._versions.insert(staged):
            self._inner.delete(staged.path)
            return False
        try:
            self._finish(staged)
        except Exception as error:  # noqa: BLE001 - a client raises errors of its own, too
            # The version is made, and whoever reads it next does the rest.
            logger.warning("version %d of %s is not finished: %s", version, self.uri, error)
        return True

    def _finish(self, entry: ManifestEntry) -> None:
        """Brings the manifest of a version to its final name, if it is not there."""
        final = final_manifest_path(entry.path)
        if final == entry.path:
            return
        try:
            self._inner.copy(entry.path, final)
        except FileNotFoundError:
            # Somebody else has finished it, and removed the staged file.
            newer = self._versions.get(entry.version)
            if newer is None or newer.path == final:
                return
            raise CorruptFileError(
                f"version {entry.version} is in the external manifest store "
                f"{self._versions.name}, but its manifest is not there",
                where=f"{self.uri}/{entry.path}",
                hint="restore that file, or remove the row if the version may be given up",
            ) from None
        self._versions.replace_path(replace(entry, path=final))
        self._inner.delete(entry.path)

    # Reading --------------------------------------------------------------------------------------

    def get(self, path: str) -> Buffer:
        """The whole object."""
        return self._read(path, lambda: self._inner.get(path))

    def get_tail(self, path: str, length: int) -> tuple[Buffer, int]:
        """The last bytes and the object's size."""
        return self._read(path, lambda: self._inner.get_tail(path, length))

    def get_range(self, path: str, start: int, end: int) -> Buffer:
        """Exactly the bytes from ``start`` to ``end``."""
        return self._read(path, lambda: self._inner.get_range(path, start, end))

    def get_ranges(self, path: str, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range."""
        return self._read(path, lambda: self._inner.get_ranges(path, ranges))

    def list_names(self, folder: str) -> list[str]:
        """The names of the objects right in the folder, as ``list`` shows them."""
        self._finish_newest(folder)
        return self._inner.list_names(folder)

    def list(self, prefix: str, *, first: int | None = None) -> Iterator[ObjectInfo]:
        """All objects in the folder and below, the newest version's manifest among them."""
        self._finish_newest(prefix)
        return self._inner.list(prefix, first=first)

    def _finish_newest(self, prefix: str) -> None:
        """Makes the newest version visible where ``prefix`` has the versions in it."""
        if _FOLDER.startswith(prefix.rstrip("/") + "/") or not prefix:
            latest = self._versions.latest()
            if latest is not None:
                self._finish(latest)

    def stat(self, path: str) -> ObjectInfo:
        """Size and time of change."""
        return self._read(path, lambda: self._inner.stat(path))

    def _read(self, path: str, read: Callable[[], _T]) -> _T:
        """Reads; a manifest that is not there yet is finished first."""
        try:
            return read()
        except FileNotFoundError:
            version = _version_of(path)
            entry = None if version is None else self._versions.get(version)
            if entry is None or entry.path == path:
                raise
            self._finish(entry)
        return read()

    # The rest -------------------------------------------------------------------------------------

    def put(self, path: str, data: Buffer) -> None:
        """Creates or replaces the object."""
        self._inner.put(path, data)

    def copy(self, source: str, target: str) -> None:
        """Copies the object."""
        self._inner.copy(source, target)

    def open_output(self, path: str) -> OutputFile:
        """Starts an object that is written piece by piece."""
        return self._inner.open_output(path)

    def delete(self, path: str) -> None:
        """Removes the object; a manifest from the external store, too."""
        self.delete_many([path])

    def delete_many(self, paths: Iterable[str]) -> None:
        """Removes the objects; manifests from the external store, too."""
        # First the objects: a row without one is taken for a version, and no other takes its place.
        doomed = list(paths)
        self._inner.delete_many(doomed)
        versions = [version for path in doomed if (version := _version_of(path)) is not None]
        if versions:
            self._versions.forget(versions)


def _version_of(path: str) -> int | None:
    """The version whose manifest has this path; None for other files and detached versions."""
    if not path.startswith(_FOLDER):
        return None
    name = parse_manifest_name(path.removeprefix(_FOLDER))
    return None if name is None or name.is_detached else name.version

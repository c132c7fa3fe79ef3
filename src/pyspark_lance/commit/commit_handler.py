"""CommitHandler: create the manifest of a version atomically, or report that it exists.

All other steps of a commit may be repeated or fail; this step decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark_lance.errors import StorageError, UnsupportedFeatureError
from pyspark_lance.metafile.manifest_file import ManifestLocation, read_manifest
from pyspark_lance.store.object_store import Content, ObjectStore


@dataclass(frozen=True, slots=True)
class Committed:
    """The version was created by this transaction."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """The version exists and was created by another transaction."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The store failed, and the version is missing or unreadable; it may still be created.

    The request can only create this one version, so a later look at the version resolves it.
    """

    cause: Exception


Outcome = Committed | LostRace | Undecided


class CommitHandler(Protocol):
    """Interface that creates a manifest exactly once."""

    def put(
        self, store: ObjectStore, location: ManifestLocation, data: Content, *, uuid: str
    ) -> Outcome:
        """Create the manifest at ``location``.

        ``uuid`` is that of the transaction in ``data`` and identifies our own manifest.  If the
        store fails, the result is Undecided rather than an exception.
        """


class ConditionalPutCommitHandler:
    """Handler based on put-if-absent, which local folders and object stores support."""

    def put(
        self, store: ObjectStore, location: ManifestLocation, data: Content, *, uuid: str
    ) -> Outcome:
        """Put if absent; after an unclear response, read the manifest to decide."""
        failure: StorageError | None = None
        try:
            if store.put_if_absent(location.path, data):
                return Committed()
        except StorageError as error:
            failure = error  # the put may have succeeded and its response been lost
        # A store may also repeat a request whose response was lost, and then find our own manifest.
        try:
            holder = transaction_uuid_at(store, location)
        except StorageError as error:
            return Undecided(failure or error)
        if holder is None:
            return Undecided(
                failure
                or StorageError("the store says both that the version exists and that it does not")
            )
        return Committed() if holder == uuid else LostRace()


_proven_servers: set[str] = set()


def check_conditional_puts(store: ObjectStore, path: str, data: bytes) -> None:
    """Check once per server and process that it honors the condition of a put."""
    server = store.unproven_server
    if not server or server in _proven_servers:
        return
    if store.put_if_absent(path, data):
        raise UnsupportedFeatureError(
            "the store ignores conditional writes (put if absent), so one of two writers would "
            "lose its commit",
            where=store.uri,
            hint="use an external manifest store (storage.manifest_store); with a single writer at "
            "a time, storage.allow_unsafe_put=true skips this check",
        )
    _proven_servers.add(server)


def transaction_uuid_at(store: ObjectStore, location: ManifestLocation) -> str | None:
    """Return the uuid of the transaction that created the version; None if it does not exist.

    The name of the transaction file has the uuid if the manifest has no copy of the transaction.
    """
    try:
        file = read_manifest(store, location, with_indices=False)
    except FileNotFoundError:
        return None
    transaction = file.transaction()
    if transaction is not None:
        return transaction.uuid
    name = file.manifest.transaction_file.removesuffix(".txn")
    return name.partition("-")[2]

"""CommitHandler: create a version exactly once, or say that somebody else did.

Everything else of a commit may be repeated or fail half-way; this one step decides.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pyspark_lance.errors import StorageError, UnsupportedFeatureError
from pyspark_lance.metafile.manifest_file import ManifestLocation, read_manifest
from pyspark_lance.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class Committed:
    """The version is ours."""


@dataclass(frozen=True, slots=True)
class LostRace:
    """The version is there, and not ours."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The store failed, and the version is not there or cannot be read; it may be ours.

    It can only ever create this one version, so whoever finds the version taken later knows.
    """

    cause: Exception


Outcome = Committed | LostRace | Undecided


class CommitHandler(Protocol):
    """A way to create a manifest exactly once."""

    def put(
        self, store: ObjectStore, location: ManifestLocation, data: bytes, *, uuid: str
    ) -> Outcome:
        """Creates the manifest at ``location``.

        ``uuid``: of the transaction in ``data``; tells our own manifest from another's. Returns
        undecided rather than an exception when the store fails.
        """


class ConditionalPutCommitHandler:
    """Relies on the store's put-if-absent, which local folders and object stores have."""

    def put(
        self, store: ObjectStore, location: ManifestLocation, data: bytes, *, uuid: str
    ) -> Outcome:
        """Puts if absent; whatever is unclear afterwards is settled by looking."""
        failure: StorageError | None = None
        try:
            if store.put_if_absent(location.path, data):
                return Committed()
        except StorageError as error:
            failure = error  # the request may have been carried out, and only its answer lost
        # A store may also repeat a request whose answer was lost, and then find our own manifest.
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
    """Tries once for each server and process whether it honours the condition of a put."""
    server = store.unproven_server
    if not server or server in _proven_servers:
        return
    if store.put_if_absent(path, data):
        raise UnsupportedFeatureError(
            "the store ignores conditional writes (put if absent), so one of two writers would "
            "lose its commit",
            where=store.uri,
            hint="let an external manifest store decide (storage.manifest_store); with a single "
            "writer at a time, storage.allow_unsafe_put=true allows it",
        )
    _proven_servers.add(server)


def transaction_uuid_at(store: ObjectStore, location: ManifestLocation) -> str | None:
    """The uuid of the transaction that made the version; ``None`` if it is not there.

    A manifest that names no transaction is somebody else's: ours always does.
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

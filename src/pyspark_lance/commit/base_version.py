"""BaseVersion: identity of the planned-on version, and the transactions committed since.

Version numbers restart when a table is dropped and created again under the same path, so a number
alone does not identify a version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pyspark_lance.errors import ConflictReason, RetryableCommitError
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    find_transaction,
    read_transactions,
)
from pyspark_lance.metafile.paths import NamingScheme, manifest_path
from pyspark_lance.store.object_store import ObjectStore


@dataclass(frozen=True, slots=True)
class BaseVersion:
    """Fields that together identify a version."""

    version: int
    timestamp_ns: int
    transaction_file: str  # Contains the uuid of its transaction.
    max_fragment_id: int | None  # For versions of old releases, which name no transaction.
    # Ids, names and types of all columns, for the same reason.
    fields: tuple[tuple[int, str, str], ...]

    @classmethod
    def of(cls, manifest: Manifest) -> BaseVersion:
        """Return the identity of a version."""
        return cls(
            manifest.version,
            manifest.timestamp_ns,
            manifest.transaction_file,
            manifest.max_fragment_id,
            tuple((field.id, field.name, field.logical_type) for field in manifest.schema.walk()),
        )

    @property
    def stamp(self) -> str:
        """Return a text that distinguishes the version from any other of the same number."""
        return stamp_of(self.timestamp_ns, self.transaction_file)


def stamp_of(timestamp_ns: int, transaction_file: str) -> str:
    """Return the commit time and the transaction uuid of a version; checkpoints keep this text.

    Args:
        timestamp_ns: When the version was committed.
        transaction_file: Name of its transaction; '' if it has none.
    """
    return f"{timestamp_ns}-{transaction_file.removesuffix('.txn').partition('-')[2]}"


def microseconds(stamp: str) -> int:
    """Return the commit time of a stamp in microseconds, as in the change feed; 0 if unknown."""
    return int(stamp.partition("-")[0] or 0) // 1000


@dataclass(slots=True)
class NewerVersions:
    """Transactions of a table after the version ``read_version``."""

    store: ObjectStore
    read_version: int
    num_read: int = 0  # Number of versions read by the last call.
    _known: dict[int, Transaction] = field(default_factory=dict)

    def up_to(self, latest: ManifestFile) -> list[tuple[int, Transaction]]:
        """Return all (version, transaction) after ``read_version``, ascending, up to ``latest``.

        Raises:
            RetryableCommitError: A version or its transaction is lost, so its changes are unknown;
                ignoring them could restore deleted rows.
        """
        missing = self._missing(latest.location)
        self.num_read = len(missing)
        if missing and missing[-1] == latest.manifest.version:
            self._add(missing.pop(), find_transaction(self.store, latest))
        return self._read_up_to(latest.location, missing)

    def up_to_location(self, newest: ManifestLocation) -> list[tuple[int, Transaction]]:
        """Return the same without the manifest of the newest version."""
        missing = self._missing(newest)
        self.num_read = len(missing)
        return self._read_up_to(newest, missing)

    def _missing(self, newest: ManifestLocation) -> list[int]:
        wanted = range(self.read_version + 1, newest.version + 1)
        return [version for version in wanted if version not in self._known]

    def _read_up_to(
        self, newest: ManifestLocation, missing: Sequence[int]
    ) -> list[tuple[int, Transaction]]:
        self._read(missing, newest.scheme)
        wanted = range(self.read_version + 1, newest.version + 1)
        return [(version, self._known[version]) for version in wanted]

    def _read(self, versions: Sequence[int], scheme: NamingScheme) -> None:
        """Read versions by name, as a listing would return every kept version."""
        locations = [
            ManifestLocation(manifest_path(version, scheme), version, scheme)
            for version in versions
        ]
        found = read_transactions(self.store, locations)
        for version in versions:
            try:
                _, transaction = next(found)
            except FileNotFoundError as error:
                raise _missing_version_error(f"version {version}", error) from error
            self._add(version, transaction)

    def _add(self, version: int, transaction: Transaction | None) -> None:
        if transaction is None:
            raise _missing_version_error(f"the transaction of version {version}", None)
        self._known[version] = transaction


def _missing_version_error(what: str, cause: FileNotFoundError | None) -> RetryableCommitError:
    return RetryableCommitError(
        f"{what} cannot be read, so what it changed is unknown",
        where=str(cause) if cause is not None else "",
        hint="run the operation again on the newest version",
        conflict=ConflictReason.UNKNOWN_OPERATION,
    )

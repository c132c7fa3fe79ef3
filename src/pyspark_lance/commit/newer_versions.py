"""The transactions that were committed after a version; each is read once."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark_lance.commit.whereabouts import transaction_of
from pyspark_lance.errors import RetryableCommitError
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    list_versions,
    read_manifest,
)
from pyspark_lance.store.object_store import ObjectStore


@dataclass(slots=True)
class NewerVersions:
    """What happened to a table after the version ``read_version``."""

    store: ObjectStore
    read_version: int
    _known: dict[int, Transaction] = field(default_factory=dict)

    def up_to(self, latest: ManifestFile) -> list[tuple[int, Transaction]]:
        """All (version, transaction) after ``read_version``, ascending, ``latest`` included.

        Raises:
            RetryableCommitError: A version or its transaction is gone, so that nobody can tell
                what it changed; guessing could bring deleted rows back.
        """
        wanted = range(self.read_version + 1, latest.manifest.version + 1)
        missing = [version for version in wanted if version not in self._known]
        locations: dict[int, ManifestLocation] = {}
        if missing and missing != [latest.manifest.version]:
            locations = {location.version: location for location in list_versions(self.store)}
        for version in missing:
            if version == latest.manifest.version:
                self._known[version] = self._transaction(latest)
            else:
                self._known[version] = self._read(version, locations.get(version))
        return [(version, self._known[version]) for version in wanted]

    def _read(self, version: int, location: ManifestLocation | None) -> Transaction:
        if location is None:
            raise _gone(f"version {version}", None)
        try:
            file = read_manifest(self.store, location, with_indices=False)
        except FileNotFoundError as error:
            raise _gone(f"version {version}", error) from error
        return self._transaction(file)

    def _transaction(self, file: ManifestFile) -> Transaction:
        transaction = transaction_of(self.store, file)
        if transaction is None:
            raise _gone(f"the transaction of version {file.manifest.version}", None)
        return transaction


def _gone(what: str, cause: FileNotFoundError | None) -> RetryableCommitError:
    return RetryableCommitError(
        f"{what} cannot be read, so what it changed is unknown",
        where=str(cause) if cause is not None else "",
        hint="plan the work again on the newest version",
    )

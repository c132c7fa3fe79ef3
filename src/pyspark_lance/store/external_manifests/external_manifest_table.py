"""ExternalManifestTable: the rows of one Lance table in an external manifest store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Location of the manifest of a version."""

    version: int
    path: str  # Path of the manifest, relative to the root of the table.
    size: int  # Its length in bytes; 0 if unknown.


class ExternalManifestTable(Protocol):
    """Versions of one table or branch.  Reads are never stale."""

    name: str  # Name for messages; contains no secret.

    def insert(self, entry: ManifestEntry) -> bool:
        """Add a version unless it exists, atomically for all writers.

        Returns whether the version exists with this path, which no other writer uses.
        """

    def replace_path(self, entry: ManifestEntry) -> None:
        """Set the path of a version; do nothing if it does not exist."""

    def latest(self) -> ManifestEntry | None:
        """Return the highest version; None if there is none."""

    def get(self, version: int) -> ManifestEntry | None:
        """Return a version; None if it does not exist."""

    def forget(self, versions: Iterable[int]) -> None:
        """Remove versions; ignore missing ones."""

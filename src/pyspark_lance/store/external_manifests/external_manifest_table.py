"""ExternalManifestTable: the rows of one Lance table in an external manifest store."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Where the manifest of a version is."""

    version: int
    path: str  # Path of the manifest, relative to the root of the table.
    size: int  # Its length in bytes; 0 if nobody noted it.


class ExternalManifestTable(Protocol):
    """Versions of one table or branch.  Reads are never stale."""

    name: str  # What it is, for messages; holds no secret.

    def insert(self, entry: ManifestEntry) -> bool:
        """Adds a version unless it is there, in one step for all writers.

        Returns whether the version is there with this path, which nobody else has.
        """

    def replace_path(self, entry: ManifestEntry) -> None:
        """Gives a version another path; one that is not there stays away."""

    def latest(self) -> ManifestEntry | None:
        """The highest version; None if there is none."""

    def get(self, version: int) -> ManifestEntry | None:
        """A version; None if it is not there."""

    def forget(self, versions: Iterable[int]) -> None:
        """Removes versions; missing ones are fine."""

"""BaseVersion: identity of the version that work was planned on.

Version numbers restart when a table is dropped and created again under the same path, so a number
alone does not identify a version.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.format.manifest import Manifest


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

"""BaseVersion: the version that work was planned on, told from any other of the same number.

Numbers begin anew when a table is dropped and made again under the same path, so a number alone
does not say which version somebody has read.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from pyspark_lance.format.manifest import Manifest


@dataclass(frozen=True, slots=True)
class BaseVersion:
    """What no two versions have in common."""

    version: int
    timestamp_ns: int
    transaction_file: str  # Holds the uuid of the transaction that made it.
    max_fragment_id: int | None  # For versions of old releases, which name no transaction.
    # Ids, names and types of all columns, for the same reason.
    fields: tuple[tuple[int, str, str], ...]

    @classmethod
    def of(cls, manifest: Manifest) -> BaseVersion:
        """The identity of a version."""
        return cls(
            manifest.version,
            manifest.timestamp_ns,
            manifest.transaction_file,
            manifest.max_fragment_id,
            tuple((field.id, field.name, field.logical_type) for field in manifest.schema.walk()),
        )

    def digest(self) -> str:
        """A short text that is another one for another version, for those who only hand it on."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:32]

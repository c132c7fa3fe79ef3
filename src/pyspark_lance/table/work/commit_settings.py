"""What every commit can be told, whatever it commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_lance.commit.application_versions import application_version, is_committed
from pyspark_lance.commit.retries import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """How to commit."""

    properties: Mapping[str, str] = field(default_factory=dict)  # Kept in the transaction.
    # Attempts after the first, whatever was in the way of the work or of its commit.
    retries: int = DEFAULT_RETRIES
    # Seconds after the first conflict from which on nothing is tried again.
    timeout_s: float = DEFAULT_TIMEOUT_S
    # Whether new columns may differ by case only from others.
    case_sensitive: bool = False

    def is_done_in(self, snapshot: Snapshot) -> bool:
        """Whether work with the (application, version) pair of the properties is in the table."""
        wanted = application_version(self.properties)
        return wanted is not None and is_committed(wanted, snapshot.manifest.config)

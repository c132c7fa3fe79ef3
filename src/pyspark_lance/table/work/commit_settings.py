"""CommitSettings: settings of every commit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark_lance.commit.application_versions import application_version, is_committed
from pyspark_lance.commit.retries import DEFAULT_RETRIES, DEFAULT_TIMEOUT_S
from pyspark_lance.table.version.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """Settings of a commit."""

    properties: Mapping[str, str] = field(default_factory=dict)  # Stored in the transaction.
    # Maximum retries after conflicts of any kind.
    retries: int = DEFAULT_RETRIES
    # Seconds after the first conflict after which there are no more retries.
    timeout_s: float = DEFAULT_TIMEOUT_S
    # Whether column names may differ only by case.
    case_sensitive: bool = False

    def is_committed_in(self, snapshot: Snapshot) -> bool:
        """Return whether the (application, version) pair of the properties was committed."""
        wanted = application_version(self.properties)
        return wanted is not None and is_committed(wanted, snapshot.manifest.config)

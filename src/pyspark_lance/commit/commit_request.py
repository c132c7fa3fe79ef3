"""The request to commit a transaction as a new version."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.commit.next_manifest import CreateOptions
from pyspark_lance.commit.rebase import AffectedRows
from pyspark_lance.format.transaction import Transaction


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A transaction and the state of the work that conflict detection needs."""

    transaction: Transaction  # Planned on its ``read_version``; its data files exist.
    base: BaseVersion | None = None  # Identity of the version it was planned on.
    # Options of a new table, for the Overwrite of version 1.
    create: CreateOptions | None = None
    # For a Delete or Update: offsets of the rows that it deletes or moves, by fragment. Without
    # them, a concurrent change of the same fragment is a conflict.
    affected_rows: AffectedRows | None = None
    # Read set of the work; rows that concurrent commits added to it are a conflict.
    reads: ReadSet | None = None
    # File version, for an Overwrite that changes it.
    data_storage_version: str | None = None

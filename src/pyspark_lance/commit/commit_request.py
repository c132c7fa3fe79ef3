"""What a commit is asked to make a version of."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.conflict_check import ReadSet
from pyspark_lance.commit.next_manifest import CreateOptions
from pyspark_lance.commit.rebase import AffectedRows
from pyspark_lance.format.transaction import Transaction


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """A transaction, and what has to be known of the work to judge what others did meanwhile."""

    transaction: Transaction  # Planned on its ``read_version``; its data files are written.
    base: BaseVersion | None = None  # Which version it was planned on, beyond its number.
    # To make a new table, of which the transaction is the Overwrite of version 1.
    create: CreateOptions | None = None
    # For a Delete or Update the rows that it deletes or moves, by fragment. Without it, a
    # concurrent change of the same fragment is a conflict.
    affected_rows: AffectedRows | None = None
    # What the work looked at; rows that others brought there are a conflict.
    reads: ReadSet | None = None
    # For an Overwrite that changes the file version of a table.
    data_storage_version: str | None = None

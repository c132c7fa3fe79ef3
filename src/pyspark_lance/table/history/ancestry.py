"""The ancestors of a version, on a branch including those before the fork."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from pyspark_lance.commit.commit_outcome import transaction_of
from pyspark_lance.errors import TableNotFoundError
from pyspark_lance.format.operation import Restore
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    list_versions,
    read_manifest,
    retry_if_removed,
)
from pyspark_lance.metafile.refs_file import read_branch
from pyspark_lance.store.object_store import ObjectStore, missing
from pyspark_lance.table.history.history import HistoryEntry, entries_left, history_entry
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, main_branch_of

_PARALLEL_READS = 16


@dataclass(frozen=True, slots=True)
class Ancestor:
    """An ancestor of a version."""

    table: Table
    store: ObjectStore = field(repr=False)
    location: ManifestLocation

    @property
    def number(self) -> int:
        """The version number."""
        return self.location.version

    def entry(self) -> HistoryEntry | None:
        """The history entry of the version; None if it was removed."""
        return history_entry(self.store, self.location, ())

    def is_restore(self) -> bool:
        """Return whether the version is a restore; False if unknown."""
        try:
            file = read_manifest(self.store, self.location, with_indices=False)
        except FileNotFoundError:
            return False
        transaction = transaction_of(self.store, file)
        return transaction is not None and isinstance(transaction.operation, Restore)


def ancestry_of(newest: Snapshot) -> list[Ancestor]:
    """Return the existing ancestors of ``newest``, starting with itself.

    A branch begins with a copy of the version that it was forked from; the parent's version is
    preferred if it exists.
    """
    line: list[Ancestor] = []
    table, branch, last = newest.table, newest.manifest.branch, newest.version
    root = main_branch_of(table, branch)
    while True:
        store = table.store()
        own = [Ancestor(table, store, location) for location in list_versions(store)]
        own = [version for version in reversed(own) if version.number <= last]
        if not line and table == newest.table and [one.number for one in own[:1]] != [last]:
            raise missing(store.uri, newest.file.location.path)
        if branch is None:
            return _without_copies([*line, *own])
        try:
            fork = read_branch(root.store(), branch)
        except TableNotFoundError:  # includes VersionNotFoundError: the parent was removed
            return _without_copies([*line, *own])
        line += own
        branch, last = fork.parentBranch, fork.parentVersion
        table = root.on_branch(branch)


def _without_copies(line: list[Ancestor]) -> list[Ancestor]:
    """Keep only the last version of each number, which is the parent's."""
    return list({version.number: version for version in line}.values())


def are_restores(line: Sequence[Ancestor]) -> dict[int, bool]:
    """Return by number whether a version is a restore; reads all manifests."""
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        restores = pool.map(Ancestor.is_restore, line)
        return {
            version.number: is_restore for version, is_restore in zip(line, restores, strict=True)
        }


def ancestor_history(table: Table) -> list[HistoryEntry]:
    """Return the history entries of the ancestors of the newest version, newest first."""

    def look() -> list[HistoryEntry]:
        line = ancestry_of(Snapshot.open(table))
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            entries = list(pool.map(Ancestor.entry, line))
        return entries_left(line[0].store, [one.location for one in line], entries)

    return retry_if_removed(table.store(), look)

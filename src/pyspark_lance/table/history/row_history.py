"""The history of a row, newest first, and the ancestors of a version.

Each version records for each row which version last updated it, so only versions that updated the
row are opened. A restore resets the last-updated version of rows and is not recorded there: it is
found by the transactions of the versions in between. Data files are opened only for lineage.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import groupby

import numpy as np

from pyspark_lance.errors import (
    MissingFileError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.format.column_names import CREATED_AT, LAST_UPDATED_AT
from pyspark_lance.format.operation import Restore
from pyspark_lance.format.row_address import fragment_ids, offsets
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    list_versions,
    read_transactions,
    retry_if_removed,
)
from pyspark_lance.metafile.refs_file import read_branch
from pyspark_lance.store.object_store import ObjectStore, missing
from pyspark_lance.table.history.history import HistoryEntry, entries_left, history_entries
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import FragmentLineage
from pyspark_lance.table.version.snapshot import Snapshot, VersionSpec
from pyspark_lance.table.version.table import Table, main_branch_of


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
        return next(iter(history_entries(self.store, [self.location])), None)


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


def _by_store(line: Sequence[Ancestor]) -> Iterator[tuple[ObjectStore, list[ManifestLocation]]]:
    """Split a line into the versions of each table or branch."""
    for _, run in groupby(line, key=lambda version: version.table):
        versions = list(run)
        yield versions[0].store, [version.location for version in versions]


def are_restores(line: Sequence[Ancestor]) -> dict[int, bool]:
    """Return by number whether a version is a restore, False if unknown; reads transactions."""
    restores = dict.fromkeys((version.number for version in line), False)
    for store, locations in _by_store(line):
        for number, transaction in read_transactions(store, locations, skip_removed=True):
            operation = None if transaction is None else transaction.operation
            restores[number] = isinstance(operation, Restore)
    return restores


def ancestor_history(table: Table) -> list[HistoryEntry]:
    """Return the history entries of the ancestors of the newest version, newest first."""

    def look() -> list[HistoryEntry]:
        line = ancestry_of(Snapshot.open(table))
        entries = [
            entry
            for store, locations in _by_store(line)
            for entry in history_entries(store, locations)
        ]
        return entries_left(line[0].store, [one.location for one in line], entries)

    return retry_if_removed(table.store(), look)


@dataclass(frozen=True, slots=True)
class RowState:
    """One state of a row."""

    version: int  # The version that wrote the values; the restore, if they were restored.
    seen_at: int  # The newest known version with these values.
    uri: str  # Root of the table or branch of that version.
    # When the version was committed, UTC; None if it was cleaned up.
    timestamp: datetime | None = None
    operation: str | None = None  # Operation of the version; None if unknown.
    user_metadata: str | None = None
    application_id: str | None = None


def row_history(table: Table, row_id: int, version: int | None = None) -> list[RowState]:
    """Return the states of a row, newest first.

    States from before the oldest existing version are unknown. On a branch, states from before the
    fork are included.

    ``version``: the version to begin with; None for the newest one that has the row.
    """
    return retry_if_removed(table.store(), lambda: _row_history(table, row_id, version))


def _row_history(table: Table, row_id: int, version: int | None) -> list[RowState]:
    newest = Snapshot.open(table, VersionSpec(version=version))
    if not newest.uses_stable_row_ids:
        raise UnsupportedFeatureError(
            "rows of this table have no ids that follow them",
            where=table.uri,
            hint="enableStableRowIds() gives them some",
        )
    states = list(_states(ancestry_of(newest), row_id))
    if not states:
        raise VersionNotFoundError(
            f"no remaining version has a row with the id {row_id}", where=table.uri
        )
    return states


def _states(line: Sequence[Ancestor], row_id: int) -> Iterator[RowState]:
    """Yield the states in the versions of ``line``, newest first."""
    restores = _Restores()
    left, oldest, seen = list(line), 1, None
    while left and left[0].number >= oldest:
        versions = _versions_of(left[0], row_id)
        if versions is None:  # not yet inserted, or deleted and restored later
            left = left[1:]
            continue
        oldest, updated = versions
        seen = seen or left[0]
        restore = restores.newest([version for version in left if version.number > updated])
        before = [
            version for version in left if restore is not None and version.number < restore.number
        ]
        if restore is None or not before:
            yield _state(line, updated, seen)
            left = [version for version in left if version.number < updated and updated > oldest]
        else:
            left = before
            if _versions_of(before[0], row_id) == versions:
                continue  # restored to the same values
            yield _state(line, restore.number, seen)
        seen = None


class _Restores:
    """Cached lookup of restores by version."""

    def __init__(self) -> None:
        self._known: dict[int, bool] = {}

    def newest(self, line: Sequence[Ancestor]) -> Ancestor | None:
        """Return the first restore in ``line``."""
        self._known |= are_restores(
            [version for version in line if version.number not in self._known]
        )
        return next((version for version in line if self._known[version.number]), None)


def _versions_of(at: Ancestor, row_id: int) -> tuple[int, int] | None:
    """Return the created-at and last-updated versions of a row; None if it does not exist."""
    try:
        return _lineage_of(Snapshot.open(at.table, VersionSpec(version=at.number)), row_id)
    except (VersionNotFoundError, MissingFileError) as error:
        if isinstance(error, VersionNotFoundError) or not at.store.exists(at.location.path):
            raise missing(at.store.uri, at.location.path) from error
        raise


def _lineage_of(snapshot: Snapshot, row_id: int) -> tuple[int, int] | None:
    if not snapshot.uses_stable_row_ids:
        return None
    for fragment in snapshot.manifest.fragments:
        reader = FragmentReader(snapshot.files, fragment, stable_row_ids=True)
        lineage = reader.lineage
        assert isinstance(lineage, FragmentLineage)
        row_ids = lineage.row_ids()
        bounds = row_ids.bounds()
        if bounds is None or not bounds[0] <= row_id <= bounds[1]:
            continue
        index = RowIdIndex.build([(fragment.id, row_ids, snapshot.deletion_vector(fragment))])
        addresses, found = index.addresses_of([row_id])
        if found[0]:
            assert fragment_ids(addresses)[0] == fragment.id
            offset = offsets(addresses).astype(np.uint32)
            created, updated = (
                int(lineage.take(name, offset)[0]) for name in (CREATED_AT, LAST_UPDATED_AT)
            )
            return created, updated
    return None


def _state(line: Sequence[Ancestor], version: int, seen: Ancestor) -> RowState:
    made = next((known for known in line if known.number == version), None)
    entry = None if made is None else made.entry()
    if entry is None:
        return RowState(version, seen.number, seen.table.uri)
    return RowState(
        version,
        seen.number,
        seen.table.uri,
        entry.timestamp,
        entry.operation or None,
        entry.user_metadata,
        entry.application_id,
    )

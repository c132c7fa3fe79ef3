"""Every state of a row: from the version that last changed it to the one before that, and so on.

A version tells for each row which version changed it last, so that only versions in which the row
got other values are opened, and of each only its manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import numpy as np

from pyspark_lance.errors import UnsupportedFeatureError, VersionNotFoundError
from pyspark_lance.format.row_address import fragment_ids, offsets
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.format.system_columns import CREATED_AT, LAST_UPDATED_AT
from pyspark_lance.metafile.manifest_file import list_versions
from pyspark_lance.table.rows.fragment_reader import FragmentReader
from pyspark_lance.table.rows.lineage import FragmentLineage
from pyspark_lance.table.upkeep.history import HistoryEntry, history_entry
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.time_travel import VersionSpec


@dataclass(frozen=True, slots=True)
class RowState:
    """One state of a row.

    Attributes:
        version: The version that gave the row its values.
        seen_at: A version in which the row has them; the newest that is known to.
        timestamp: When the version was committed, UTC; None if it was cleaned up.
        operation: What made it; None if nobody can tell any more.
        user_metadata: The note that was given with it.
        application_id: The Spark application that made it.
    """

    version: int
    seen_at: int
    timestamp: datetime | None = None
    operation: str | None = None
    user_metadata: str | None = None
    application_id: str | None = None


def row_history(table: Table, row_id: int, version: int | None = None) -> list[RowState]:
    """The states of a row, the newest first.

    States that are older than the oldest version that is left are not known.

    Args:
        table: The table or branch.
        row_id: Stable id of the row.
        version: The version to begin with; None for the newest one that has the row.

    Raises:
        UnsupportedFeatureError: The table has no stable row ids.
        VersionNotFoundError: No version that is left has the row.
    """
    newest = Snapshot.open(table, VersionSpec(version=version))
    if not newest.uses_stable_row_ids:
        raise UnsupportedFeatureError(
            "rows of this table have no ids that follow them",
            where=table.uri,
            hint="enableStableRowIds() gives them some",
        )
    left = [one.version for one in list_versions(newest.store) if one.version <= newest.version]
    states: list[RowState] = []
    for number in reversed(left):
        if states and number >= states[-1].version:
            continue  # nothing happened to the row in between
        versions = _versions_of(table, number, row_id)
        if versions is None:
            if states:
                break  # it was made by the version after this one
            continue
        created, updated = versions
        states.append(_state(newest, updated, number))
        if updated <= created:
            break
    if not states:
        raise VersionNotFoundError(
            f"no version that is left has a row with the id {row_id}", where=table.uri
        )
    return states


def _versions_of(table: Table, version: int, row_id: int) -> tuple[int, int] | None:
    """The versions that made and last changed a row; None if this version does not have it."""
    snapshot = Snapshot.open(table, VersionSpec(version=version))
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
            place = offsets(addresses).astype(np.uint32)
            created, updated = (
                int(lineage.take(name, place)[0]) for name in (CREATED_AT, LAST_UPDATED_AT)
            )
            return created, updated
    return None


def _state(newest: Snapshot, version: int, seen_at: int) -> RowState:
    entry = _entry(newest, version)
    if entry is None:
        return RowState(version, seen_at)
    return RowState(
        version,
        seen_at,
        entry.timestamp,
        entry.operation or None,
        entry.user_metadata,
        entry.application_id,
    )


def _entry(newest: Snapshot, version: int) -> HistoryEntry | None:
    for location in list_versions(newest.store):
        if location.version == version:
            return history_entry(newest.store, location, ())
    return None

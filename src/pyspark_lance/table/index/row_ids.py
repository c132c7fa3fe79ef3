"""Map stable row ids to row addresses."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.table.rows.fragment_reader import row_ids_of
from pyspark_lance.table.version.snapshot import Snapshot


def row_id_index(snapshot: Snapshot) -> RowIdIndex:
    """Return the index of all rows of a version, cached with the snapshot."""
    key = "row id index"
    if key not in snapshot.memo:
        fragments = [f for f in snapshot.manifest.fragments if f.physical_rows]
        snapshot.memo[key] = row_id_index_of(snapshot, fragments)
    return snapshot.memo[key]  # type: ignore[return-value]


def row_id_index_of(snapshot: Snapshot, fragments: Sequence[Fragment]) -> RowIdIndex:
    """Return the index of some fragments."""
    return RowIdIndex.build(
        (fragment.id, row_ids_of(snapshot.files, fragment), snapshot.deletion_vector(fragment))
        for fragment in fragments
    )

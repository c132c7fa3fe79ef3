"""Where rows are whose stable row ids are known."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.row_id_index import RowIdIndex
from pyspark_lance.format.row_id_sequence import RowIdSequence
from pyspark_lance.table.version.snapshot import Snapshot


def row_id_index(snapshot: Snapshot) -> RowIdIndex | None:
    """The index of all rows of a version, kept with it; None when it cannot be made."""
    key = "row id index"
    if key not in snapshot.memo:
        fragments = [f for f in snapshot.manifest.fragments if f.physical_rows]
        snapshot.memo[key] = row_id_index_of(snapshot, fragments)
    return snapshot.memo[key]  # type: ignore[return-value]


def row_id_index_of(snapshot: Snapshot, fragments: Sequence[Fragment]) -> RowIdIndex | None:
    """The index of some fragments; None when one keeps its row ids outside of the manifest."""
    parts = []
    for fragment in fragments:
        if not isinstance(fragment.row_ids, bytes):
            return None
        sequence = RowIdSequence.from_bytes(fragment.row_ids)
        sequence.expect_length(fragment.physical_rows)
        parts.append((fragment.id, sequence, snapshot.deletion_vector(fragment)))
    return RowIdIndex.build(parts)

"""Rebase ours on theirs when both changed rows of one fragment; pure but for two callbacks.

A Delete or Update was planned on a fragment that has lost other rows since.  If the rows it
changes still exist, the new deletion vector is the union of both; everything else of the fragment
is that of the newest version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.commit.fragment_changes import FragmentsById
from pyspark_lance.format.deletion_vector import DeletionFile, DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import Delete, Update

AffectedRows = Mapping[int, NDArray[np.uint32]]
"""Fragment id to the offsets of the rows that ours deletes or moves."""


@dataclass(frozen=True, slots=True)
class Rebased:
    """Ours, rebased on the newest version."""

    operation: Delete | Update


@dataclass(frozen=True, slots=True)
class RowConflict:
    """Theirs changed the same rows or replaced files of the fragment; the work must be redone."""

    fragment_id: int
    reason: str


def rebase(
    operation: Delete | Update,
    affected_rows: AffectedRows,
    common_fragment_ids: Iterable[int],
    current: Manifest,
    *,
    load_deletions: Callable[[Fragment], DeletionVector],
    write_deletions: Callable[[int, DeletionVector], DeletionFile],
) -> Rebased | RowConflict:
    """Rebase ``operation`` on ``current``.

    ``common_fragment_ids``: updated fragments that theirs changed too; ``load_deletions``: reads
    the deletion vector of a fragment of ``current``. ``write_deletions``: stores a deletion vector
    of a fragment; only called once all fragments are free of conflicts.
    """
    ours = {fragment.id: fragment for fragment in operation.updated_fragments}
    now = FragmentsById(current.fragments)
    merged: dict[int, DeletionVector] = {}
    for fragment_id in sorted(set(common_fragment_ids)):
        fragment, planned = now.get(fragment_id), ours.get(fragment_id)
        offsets = affected_rows.get(fragment_id)
        if fragment is None or planned is None or offsets is None:
            return RowConflict(fragment_id, f"fragment {fragment_id} was removed or replaced")
        if fragment.files != planned.files or fragment.physical_rows != planned.physical_rows:
            return RowConflict(
                fragment_id, f"the data files of fragment {fragment_id} were replaced"
            )
        deleted = load_deletions(fragment)
        mine = DeletionVector.of(offsets)
        if deleted.intersects(mine):
            return RowConflict(fragment_id, f"the same rows of fragment {fragment_id} were changed")
        merged[fragment_id] = deleted.union(mine)

    emptied = {i for i, vector in merged.items() if len(vector) >= now[i].physical_rows}
    for fragment_id, vector in merged.items():
        if fragment_id not in emptied:
            file = write_deletions(fragment_id, vector)
            ours[fragment_id] = replace(now[fragment_id], deletion_file=file)
    updated = tuple(fragment for i, fragment in ours.items() if i not in emptied)
    emptied_ids = tuple(sorted(emptied))
    if isinstance(operation, Delete):
        removed = (*operation.deleted_fragment_ids, *emptied_ids)
        return Rebased(replace(operation, updated_fragments=updated, deleted_fragment_ids=removed))
    removed = (*operation.removed_fragment_ids, *emptied_ids)
    return Rebased(replace(operation, updated_fragments=updated, removed_fragment_ids=removed))

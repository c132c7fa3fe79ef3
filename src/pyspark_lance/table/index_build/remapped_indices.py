"""Remap indices after a compaction: their rows get the addresses to which it moved them.

The n-th live row of the old fragments of a group is the n-th row of its new ones, so segments are
written again from their own files, one task for each, without a look at the column.  They land in a
version of their own; until then, compacted rows are read as rows that no index covers.  Zone maps
and bloom filters have ranges of rows instead of addresses, and segments that name rows by stable
ids stay as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata, reuse_index_of
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan, plan_change
from pyspark_lance.table.index.lookups import segment_state
from pyspark_lance.table.index.segments import (
    BITMAP,
    BTREE,
    INVERTED,
    LABEL_LIST,
    NGRAM,
    Segment,
    segment_of,
)
from pyspark_lance.table.index_build.column_indices import IndexResult, commit_index
from pyspark_lance.table.index_build.index_plan import IndexPlan, PlannedIndex, empty_task
from pyspark_lance.table.index_build.merged_segments import MovedRows, StoredSegment
from pyspark_lance.table.index_build.text_build import readable_segment
from pyspark_lance.table.scan.column_paths import path_to
from pyspark_lance.table.tasks import RunTasks
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.work.unit_of_work import UnitOfWork

_KINDS: Final = (BTREE, BITMAP, LABEL_LIST, NGRAM, INVERTED)


def remap_indices(
    base: DmlPlan, groups: Sequence[RewriteGroup], settings: ChangeSettings, run: RunTasks
) -> IndexResult:
    """Write segments again whose rows a compaction moved, and commit them in one version.

    ``base``: the version that was compacted; ``groups``: as rewritten, also those that conflicted.
    """

    def attempt(work: UnitOfWork) -> IndexResult:
        plan = plan_remap(base, groups, settings)
        return commit_index(plan, list(run(plan.tasks)) if plan.tasks else [], work)

    return UnitOfWork(base.table, settings).run(attempt)


def plan_remap(
    base: DmlPlan, groups: Sequence[RewriteGroup], settings: ChangeSettings
) -> IndexPlan:
    """Plan ``remap_indices``; write nothing."""
    change = plan_change(base.table, settings)
    before, now = base.snapshot(), change.snapshot()
    pending = (reuse_index_of(snapshot.indices) for snapshot in (before, now))
    moved = [] if any(pending) else _moved_rows(before, now, groups)
    if not moved:
        return IndexPlan(change)
    left = {entry.uuid: entry for entry in now.indices}
    pairs = ((entry, left[entry.uuid]) for entry in before.indices if entry.uuid in left)
    planned = (_plan_segment(before, now, *pair, moved) for pair in pairs)
    return IndexPlan(change, tuple(one for one in planned if one is not None))


def _moved_rows(before: Snapshot, now: Snapshot, groups: Sequence[RewriteGroup]) -> list[MovedRows]:
    """Return the groups of which all new fragments are there, as they were written."""
    ids = now.manifest.fragments.ids
    added = np.flatnonzero(ids > (before.manifest.max_fragment_id or 0))
    known = {_data_of(fragment): fragment for fragment in now.manifest.fragments.take(added)}
    found = []
    for group in groups:
        new = [known.get(_data_of(fragment)) for fragment in group.new_fragments]
        there = tuple(fragment for fragment in new if fragment is not None)
        if len(there) == len(group.new_fragments):
            found.append(MovedRows(group.old_fragments, there))
    return found


def _data_of(fragment: Fragment) -> tuple[object, ...]:
    return tuple((file.path, file.fields) for file in fragment.files)


def _plan_segment(
    before: Snapshot,
    now: Snapshot,
    old: IndexMetadata,
    entry: IndexMetadata,
    moved: Sequence[MovedRows],
) -> PlannedIndex | None:
    """Plan a segment; None if it covers no moved rows, or cannot be written again.

    ``old``, ``entry``: of the version that was compacted, and of the newest one.
    """
    covered = old.fragment_bitmap or ()
    own = tuple(one for one in moved if all(fragment.id in covered for fragment in one.old))
    segment = segment_of(old, stable_row_ids=before.uses_stable_row_ids)
    if not own or not isinstance(segment, Segment) or segment.kind not in _KINDS:
        return None
    path = path_to(now.schema.fields, entry.fields[0])
    if segment.names_row_ids or path is None or not segment_state(before, old).is_used:
        return None
    text = None
    if segment.kind == INVERTED:
        texts = readable_segment(before, old)
        if texts is None:
            return None
        text = texts.options
    named = entry.fragment_bitmap or frozenset[int]()
    added = {fragment.id for one in own for fragment in one.new}
    fragments = tuple(f for f in now.manifest.fragments if f.id in named or f.id in added)
    ids = tuple(fragment.id for fragment in fragments)
    stored = StoredSegment(old, fragments, moved=own)
    task = replace(
        empty_task(now, segment.kind, path),
        fragments=ids,
        joined=(stored,),
        text=text,
        removed_fragments=tuple(sorted(set(named) - set(ids))),
    )
    return PlannedIndex(entry.name, segment.kind, path[-1], (entry,), (task,))

"""Update indices after a compaction: their rows get the addresses to which it moved them.

In tables without stable row ids, indices refer to rows by address. The n-th live row of the old
fragments of a group is the n-th row of its new ones, so segments are written again from their own
files, one task for each, and the column is not read. They are committed as a separate version;
until then, no index covers the compacted rows. Zone maps and bloom filters have ranges of rows
instead of addresses, and segments that name rows by stable ids do not change.

The update can be deferred: the compaction records the new address of each row (Lance's fragment
reuse index), which index lookups use.

Source: docs/format/table-format.md, section 10.7.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from pyroaring import BitMap

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import (
    FRAGMENT_REUSE_DETAILS,
    FRAGMENT_REUSE_INDEX,
    FragmentDigest,
    IndexMetadata,
    ReuseDetails,
    ReuseGroup,
    ReuseVersion,
    ReuseVersions,
    current_coverage,
    reuse_index_of,
    versions_to_bytes,
)
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.metafile.paths import INDICES
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.dml.row_change import ChangeSettings, DmlPlan, plan_change
from pyspark_lance.table.index.lookups import segment_state
from pyspark_lance.table.index.segments import (
    BITMAP,
    BTREE,
    INVERTED,
    LABEL_LIST,
    NGRAM,
    IndexDetails,
    IndexFiles,
    Segment,
    new_index_entry,
    reuse_versions,
    segment_of,
)
from pyspark_lance.table.index_build.column_indices import IndexResult, commit_index
from pyspark_lance.table.index_build.index_plan import IndexPlan, PlannedIndex, empty_task
from pyspark_lance.table.index_build.merged_segments import MovedRows, StoredSegment
from pyspark_lance.table.index_build.text_build import readable_segment
from pyspark_lance.table.scan.column_paths import path_to
from pyspark_lance.table.tasks import RunTasks
from pyspark_lance.table.unit_of_work import UnitOfWork
from pyspark_lance.table.version.snapshot import Snapshot

MAX_INLINE_BYTES: Final = 204_800
"""Larger entries are written to a file to keep the manifest small; the limit is Lance's."""
_DETAILS_FILE: Final = "details.binpb"


def current_indices(snapshot: Snapshot) -> tuple[IndexMetadata, ...]:
    """Return the index entries with the fragments that they cover now."""
    versions = reuse_versions(snapshot)
    if not versions:
        return snapshot.indices
    return tuple(
        index
        if index.fragment_bitmap is None or not index.fields
        else index.with_fragment_bitmap(current_coverage(index.fragment_bitmap, versions))
        for index in snapshot.indices
    )


def needs_reuse_entry(indices: Sequence[IndexMetadata], fragment_ids: frozenset[int]) -> bool:
    """Return whether an index covers rows of the fragments.

    ``indices``: of ``current_indices``; ``fragment_ids``: of all fragments that are rewritten.
    """
    return any(
        index.fragment_bitmap is not None
        and not index.fragment_bitmap.isdisjoint(BitMap(fragment_ids))
        for index in indices
        if index.fields
    )


def next_reuse_index(snapshot: Snapshot, groups: Sequence[RewriteGroup]) -> IndexMetadata:
    """Return the fragment reuse index entry of the version after ``snapshot``.

    Compactions that all indices already reflect are omitted. A large entry is written to a file.

    ``groups``: with the addresses of their rows, and with the ids of the new fragments.
    """
    moved = ReuseVersion(snapshot.version, tuple(map(_group, groups)))
    versions = (*_still_needed(reuse_versions(snapshot), snapshot.indices), moved)
    return _entry(snapshot.store, snapshot.version, versions)


def file_of_entry(entry: IndexMetadata) -> str | None:
    """Return the path of the file of an entry; None if it is inline."""
    details = ReuseDetails.of(entry)
    return None if details.versions is not None else f"{INDICES}/{entry.uuid}/{details.file}"


def _group(group: RewriteGroup) -> ReuseGroup:
    assert group.row_addresses is not None, "the executor was asked for the addresses"
    return ReuseGroup(
        group.row_addresses,
        tuple(map(FragmentDigest.of, group.old_fragments)),
        tuple(map(FragmentDigest.of, group.new_fragments)),
    )


def _entry(store: ObjectStore, version: int, versions: ReuseVersions) -> IndexMetadata:
    groups = [group for reuse_version in versions for group in reuse_version.groups]
    bitmap = BitMap(frozenset().union(*(group.new_ids for group in groups)))
    name, content = uuid.uuid4(), versions_to_bytes(versions)
    details = ReuseDetails(versions)
    if len(content) > MAX_INLINE_BYTES:
        store.put(f"{INDICES}/{name}/{_DETAILS_FILE}", content)
        details = ReuseDetails(None, _DETAILS_FILE, 0, len(content))
    kind = IndexDetails(FRAGMENT_REUSE_DETAILS, 0, details.to_bytes())
    return new_index_entry(FRAGMENT_REUSE_INDEX, (), version, bitmap, kind, IndexFiles(name))


def _still_needed(versions: ReuseVersions, indices: Sequence[IndexMetadata]) -> ReuseVersions:
    """Drop the compactions that every index reflects, by their stored bitmaps."""
    touched = BitMap()
    for version in versions:
        for group in version.groups:
            touched |= BitMap(group.old_ids | group.new_ids)
    concerned = [
        index
        for index in indices
        if index.fields
        and index.fragment_bitmap is not None
        and not index.fragment_bitmap.isdisjoint(touched)
    ]
    return tuple(
        version
        for version in versions
        if not all(_has_followed(index, version) for index in concerned)
    )


def _has_followed(index: IndexMetadata, version: ReuseVersion) -> bool:
    """Return whether an index was built after a compaction, on its new fragments."""
    assert index.fragment_bitmap is not None
    old = BitMap(frozenset().union(*(group.old_ids for group in version.groups)))
    return index.dataset_version >= version.dataset_version and index.fragment_bitmap.isdisjoint(
        old
    )


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

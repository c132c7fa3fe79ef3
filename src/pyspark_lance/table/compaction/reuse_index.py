"""Fragment reuse index: defer the remapping of indices after a compaction.

In tables without stable row ids, indices refer to rows by address. Instead of dropping the
rewritten fragments from their coverage, a compaction can record the new address of each row
(Lance's fragment reuse index), which index lookups use.

Source: docs/format/table-format.md, section 10.7.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Final

from pyroaring import BitMap

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
    versions_to_bytes,
)
from pyspark_lance.format.operation import RewriteGroup
from pyspark_lance.metafile.paths import INDICES
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.table.index.segments import (
    IndexDetails,
    IndexFiles,
    new_index_entry,
    reuse_versions,
)
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

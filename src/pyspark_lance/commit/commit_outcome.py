"""Outcome of a version that was put, or may have been put, once there are newer versions.

The version number is no proof.  Between listing the newest version and the put, other writers may
have committed that version and the next one and cleaned up the first; then the put succeeds below
the newest version, where no reader sees it.  And a version whose response was lost may have been
cleaned up before it was read.  The proof is whether the versions after it were derived from it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pyspark_lance.commit.apply_operation import next_manifest
from pyspark_lance.commit.manifest_builder import TableState
from pyspark_lance.errors import LanceError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import (
    Append,
    Clone,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Project,
    Restore,
    Rewrite,
    Update,
    UpdateConfig,
)
from pyspark_lance.metafile.manifest_file import ManifestLocation, find_transaction, read_manifest
from pyspark_lance.metafile.paths import data_path, deletion_path
from pyspark_lance.store.object_store import ObjectStore


class CommitOutcome(enum.Enum):
    """Outcome of a put version."""

    IN_HISTORY = "the newest version is derived from it, or replaced the whole table after it"
    LOST = "the newest version is derived from other versions only"
    UNKNOWN = "no evidence is left"


@dataclass(frozen=True, slots=True)
class Work:
    """A version that was put, or may have been."""

    operation: Operation
    before: Manifest | None  # The version that it is derived from; None for a new table.
    ours: TableState
    # Whether the put is known to have succeeded before the versions after it were committed.
    was_put: bool = False


def outcome_of(store: ObjectStore, work: Work, newer: Sequence[ManifestLocation]) -> CommitOutcome:
    """Determine the outcome of a version; at most two manifests are read.

    ``newer``: all versions after it, ascending; at least one.
    """
    ours, files = work.ours, new_files(work.before, work.ours.manifest)
    following = read_manifest(store, newer[0])
    newest = following
    transaction = find_transaction(store, following)
    if files & files_of(following.manifest.fragments):
        return CommitOutcome.IN_HISTORY
    if len(newer) > 1:
        newest = read_manifest(store, newer[-1], with_indices=False)
        if files & files_of(newest.manifest.fragments):
            return CommitOutcome.IN_HISTORY
    # Without a confirmed put, the wanted state may be the work of another writer.
    is_done = work.was_put and _has_wanted_state(work, newest.manifest)
    unknown = CommitOutcome.IN_HISTORY if is_done else CommitOutcome.UNKNOWN
    if transaction is None:
        return unknown
    operation = transaction.operation
    if files & files_of(fragments_named(operation)):
        return CommitOutcome.IN_HISTORY
    if newer[0].version != ours.manifest.version + 1:
        return unknown
    if isinstance(operation, Overwrite | Restore | Clone):
        return CommitOutcome.IN_HISTORY
    try:
        expected = next_manifest(ours, transaction, now_ns=following.manifest.timestamp_ns)
    except LanceError:
        return CommitOutcome.LOST  # it could not have been derived from ours
    same = _content(expected.manifest) == _content(following.manifest)
    return CommitOutcome.IN_HISTORY if same else CommitOutcome.LOST


def _has_wanted_state(work: Work, newest: Manifest) -> bool:
    """Return whether the newest version has the state that declarative work requested.

    Work of the same kind leaves the same table, whichever commit was last: in some order of all
    commits, ours is in the history.
    """
    before, ours = work.before, work.ours.manifest
    if before is None:
        return False
    match work.operation:
        case Restore():
            return _is_restored(before, ours, newest)
        case Project():
            return ours.schema == newest.schema != before.schema
        case UpdateConfig():
            old, new, found = map(_properties, (before, ours, newest))
            changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
            return bool(changed) and all(new.get(key) == found.get(key) for key in changed)
        case _:
            return False


def _properties(manifest: Manifest) -> dict[tuple[object, str], object]:
    """Return everything that ``UpdateConfig`` changes, by location and name."""
    schema = manifest.schema
    maps: list[tuple[object, Mapping[str, object]]] = [
        ("config", manifest.config),
        ("table", manifest.table_metadata),
        ("schema", schema.metadata),
        *((one.id, one.metadata) for one in schema.walk()),
    ]
    return {(where, key): value for where, values in maps for key, value in values.items()}


def _is_restored(before: Manifest, ours: Manifest, newest: Manifest) -> bool:
    """Return whether rows or files exist that only a restore adds, or no rows but ours."""
    old, new, found = (
        {one.id: files_of([one]) for one in manifest.fragments}
        for manifest in (before, ours, newest)
    )
    if any(old[one] != new[one] == found[one] for one in old.keys() & new.keys() & found.keys()):
        return True
    return old.keys() != new.keys() and found.keys() <= new.keys() and newest.schema == ours.schema


def new_files(before: Manifest | None, after: Manifest) -> frozenset[str]:
    """Return the paths of files that ``after`` names and ``before`` does not."""
    return files_of(after.fragments) - files_of(before.fragments if before is not None else ())


def files_of(fragments: Iterable[Fragment], *, own: bool = False) -> frozenset[str]:
    """Return the paths of the data and deletion files of fragments.

    ``own``: without files below another root.
    """
    paths: set[str] = set()
    for fragment in fragments:
        paths.update(
            data_path(file.path) for file in fragment.files if not own or file.base_id is None
        )
        deletions = fragment.deletion_file
        if deletions is not None and (not own or deletions.base_id is None):
            paths.add(deletion_path(fragment.id, deletions))
    return frozenset(paths)


def fragments_named(operation: Operation) -> tuple[Fragment, ...]:
    """Return the fragments that an operation lists as they are before or after it."""
    match operation:
        case Append() | Overwrite() | Merge():
            return operation.fragments
        case Delete():
            return operation.updated_fragments
        case Update():
            return (*operation.updated_fragments, *operation.new_fragments)
        case Rewrite():
            return tuple(
                fragment
                for group in operation.groups
                for fragment in (*group.old_fragments, *group.new_fragments)
            )
        case _:
            return ()


def _content(manifest: Manifest) -> tuple[object, ...]:
    """Return the parts that operations copy, which identify a version's origin."""
    return (
        manifest.max_fragment_id,
        manifest.next_row_id,
        manifest.schema,
        dict(manifest.config),
        tuple(manifest.fragments.ids.tolist()),
        files_of(manifest.fragments),
    )

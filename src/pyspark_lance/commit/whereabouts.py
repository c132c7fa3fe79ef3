"""What became of a version that we put, or may have put, once there are newer ones.

A number says little.  Between a writer's look at the newest version and its put, others may have
made that version and the next and cleaned the first away; then the put succeeds below the newest
version, where nobody sees it.  And a version whose answer was lost may have been cleaned up before
anybody looked.  What tells is whether the versions after it were made of it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence

from pyspark_lance.commit.draft import TableState
from pyspark_lance.commit.next_manifest import next_manifest
from pyspark_lance.errors import CorruptFileError, LanceError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.format.operation import (
    Append,
    Clone,
    Delete,
    Merge,
    Operation,
    Overwrite,
    Restore,
    Rewrite,
    Update,
)
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.manifest_file import ManifestFile, ManifestLocation, read_manifest
from pyspark_lance.metafile.paths import data_path, deletion_path
from pyspark_lance.metafile.transaction_file import read_transaction
from pyspark_lance.store.object_store import ObjectStore


class Fate(enum.Enum):
    """What became of a version."""

    IN_HISTORY = "the newest version was made of it, or replaced the whole table after it"
    LOST = "the newest version was made of others only"
    UNKNOWN = "nothing is left that tells"


def fate_of(
    store: ObjectStore,
    ours: TableState,
    new_files: frozenset[str],
    newer: Sequence[ManifestLocation],
) -> Fate:
    """What became of ``ours``; at most two manifests are read.

    Args:
        store: The store at the table root.
        ours: The version as it was put.
        new_files: Paths of the files that no version before it named.
        newer: All versions after it, ascending; at least one.

    Raises:
        FileNotFoundError: A version was removed since it was listed.
        StorageError: The store failed.
    """
    following = read_manifest(store, newer[0])
    transaction = transaction_of(store, following)
    if new_files & files_of(following.manifest.fragments):
        return Fate.IN_HISTORY
    if len(newer) > 1:
        newest = read_manifest(store, newer[-1], with_indices=False)
        if new_files & files_of(newest.manifest.fragments):
            return Fate.IN_HISTORY
    if transaction is None:
        return Fate.UNKNOWN
    operation = transaction.operation
    if new_files & files_of(_fragments_named(operation)):
        return Fate.IN_HISTORY
    if newer[0].version != ours.manifest.version + 1:
        return Fate.UNKNOWN
    if isinstance(operation, Overwrite | Restore | Clone):
        return Fate.IN_HISTORY
    try:
        expected = next_manifest(ours, transaction, now_ns=following.manifest.timestamp_ns)
    except LanceError:
        return Fate.LOST  # it could not have been made of ours
    same = _content(expected.manifest) == _content(following.manifest)
    return Fate.IN_HISTORY if same else Fate.LOST


def new_files(before: Manifest | None, after: Manifest) -> frozenset[str]:
    """Paths of the files that ``after`` names and ``before`` does not."""
    return files_of(after.fragments) - files_of(before.fragments if before is not None else ())


def files_of(fragments: Iterable[Fragment], *, own: bool = False) -> frozenset[str]:
    """Paths of the data and deletion files of fragments.

    Args:
        fragments: Of one table.
        own: Without files that lie below another root.
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


def transaction_of(store: ObjectStore, file: ManifestFile) -> Transaction | None:
    """The transaction that made a version, from its inline copy or its file; None if it is gone."""
    transaction = file.transaction()
    if transaction is not None or not file.manifest.transaction_file:
        return transaction
    try:
        return read_transaction(store, file.manifest.transaction_file)
    except (FileNotFoundError, CorruptFileError):
        return None


def _fragments_named(operation: Operation) -> tuple[Fragment, ...]:
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
    """What a version is made of: whatever an operation leaves alone shows where it came from."""
    return (
        manifest.max_fragment_id,
        manifest.next_row_id,
        manifest.schema,
        dict(manifest.config),
        tuple(fragment.id for fragment in manifest.fragments),
        files_of(manifest.fragments),
    )

"""Remove old versions, and the files that only they refer to.

Five rules keep a table consistent (docs/format/table-format.md, section 11):

* The newest version is never removed, nor one that a tag or a branch refers to, nor one that a
  consumer has not read.
* A file is removed if old versions refer to it and no other version does.  An unreferenced file may
  belong to a write in progress; it is removed when it is a week old, also in the folder of a
  branch.
* Files are listed first; manifests are read afterwards, and again before anything is removed, so a
  concurrent commit cannot make a used file appear unused.
* Old versions are marked before references to them are checked again, so that no new reference to
  them is created (``cleanup_marks.py``). A full disk has room for an empty mark, at the latest
  after files that cannot be referenced any more are removed.
* Manifests are renamed before files are removed, and removed last, so that an interrupted cleanup
  can be repeated; missing files are ignored. A renamed manifest is invisible to readers of all
  clients, so that no client reads or restores a version with missing files.

Only files below the root of the table (or branch) are removed, never those of the origin of a
clone. Clones of the table are not searched: they refer to files of versions.

Source: docs/format/table-format.md, section 11.2.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from pyspark_lance.errors import (
    CorruptFileError,
    InvalidInputError,
    LanceError,
    StorageError,
    TableNotFoundError,
)
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import DETACHED_BIT
from pyspark_lance.format.operation import Restore
from pyspark_lance.generator_pool import GeneratorPool
from pyspark_lance.metafile.cleanup_marks import SAFE_AGE_S, CleanupMark, remove_empty_marks
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    read_transaction,
    retry_if_removed,
)
from pyspark_lance.metafile.paths import (
    TRANSACTIONS,
    TREE,
    VERSIONS,
    name_before_removal,
    parse_manifest_name,
    pending_removal_path,
)
from pyspark_lance.metafile.refs_file import list_branches, list_tags
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.store.object_store import ObjectStore, is_out_of_room, missing
from pyspark_lance.table.refs import consumers_among, is_consumer
from pyspark_lance.table.version.reader_pool import READER_POOL
from pyspark_lance.table.version.removable_files import (
    BLOB_SUFFIX,
    BlobReferences,
    FileKind,
    RemovableFile,
    manifests_below,
    manifests_of,
    paths_used_by,
    read_all_manifests,
    read_manifests,
    removable_files,
    removable_files_of_branches,
)
from pyspark_lance.table.version.table import Table, main_branch_of

logger = logging.getLogger(__name__)

DEFAULT_AGE_S = 14 * 24 * 3600.0
_BATCH = 1000
_PARALLEL_BATCHES = 4

Progress = Callable[[int, int], None]
"""Callback with the number of removed files and the total."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Selection of old versions: those that match all given conditions."""

    older_than_s: float | None = None  # Minimum age.
    before_version: int | None = None  # Exclusive upper bound of version numbers.
    retain_versions: int | None = None  # Number of newest versions to keep.
    # Also remove recent unreferenced files; only safe without concurrent writers.
    delete_unverified: bool = False
    # Raise an error if an old version is tagged or unread by a consumer, instead of keeping it.
    error_if_tagged: bool = True

    def __post_init__(self) -> None:
        """Reject invalid numbers."""
        if self.older_than_s is not None and not self.older_than_s >= 0:
            raise InvalidInputError(
                f"an age must not be negative, as {self.older_than_s} seconds are"
            )
        if self.retain_versions is not None and self.retain_versions < 1:
            raise InvalidInputError(
                f"at least one version must be kept, not {self.retain_versions}"
            )


@also_snake_case
@dataclass(frozen=True, slots=True)
class CleanupResult:
    """The files that a cleanup removed, or would remove in a dry run.

    Attributes:
        versions: Numbers of the versions, ascending.
        files: Number of files by kind: ``data``, ``deletions``, ``indices``, ``transactions``,
            ``manifests`` and ``staging`` (of interrupted writes).
        bytes: Their sizes, by kind.
        paths: All of them, below the root of the table.
    """

    versions: tuple[int, ...] = ()
    files: Mapping[str, int] = field(default_factory=dict)
    bytes: Mapping[str, int] = field(default_factory=dict)
    paths: tuple[str, ...] = field(default=(), repr=False)

    @property
    def numFiles(self) -> int:  # noqa: N802
        """Number of files of all kinds."""
        return sum(self.files.values())

    @property
    def numBytes(self) -> int:  # noqa: N802
        """Bytes of files of all kinds."""
        return sum(self.bytes.values())


def cleanup_old_versions(
    table: Table,
    policy: CleanupPolicy | None = None,
    *,
    dry_run: bool = False,
    progress: Progress | None = None,
    now_ns: int | None = None,
    newest: int | None = None,
) -> CleanupResult:
    """Remove old versions of a table or of a branch.

    ``policy``: which versions are old; without any rule, those older than two weeks. ``dry_run``:
    only return what would be removed. ``now_ns``: the time to count ages from; None for now.
    ``newest``: keep this version and all above; None for the newest. Raises CorruptFileError: a
    manifest cannot be read, so its references are unknown.
    """
    policy = policy or CleanupPolicy()
    store = table.store()
    now_ns = time.time_ns() if now_ns is None else now_ns
    files = [*removable_files(store), *_of_branches(store)]
    has_blobs = any(file.info.path.endswith(BLOB_SUFFIX) for file in files)
    reachable = retry_if_removed(
        store,
        lambda: _find_reachable_files(store, table, policy, now_ns, newest, has_blobs=has_blobs),
    )
    result = _result(reachable, files, policy, now_ns)
    if dry_run:
        return result
    if result.paths:
        result = _remove_files(store, reachable, files, policy, now_ns, progress)
    with contextlib.suppress(LanceError, OSError):  # the next cleanup does it
        remove_empty_marks(store, lambda: [one.version for one in manifests_below(store, VERSIONS)])
    logger.info(
        "removed %d versions and %d files of %s", len(result.versions), result.numFiles, store.uri
    )
    return result


def _remove_files(
    store: ObjectStore,
    reachable: _ReachableFiles,
    files: Sequence[RemovableFile],
    policy: CleanupPolicy,
    now_ns: int,
    progress: Progress | None,
) -> CleanupResult:
    """Remove files that are still unreferenced since they were looked up."""
    mark = _mark(store, reachable, files, policy, now_ns)
    try:
        _keep_referenced(store, reachable, restores=not policy.delete_unverified)
        removable = [one for one in reachable.old if one.path not in reachable.interrupted]
        move_to_pending_removal(store, removable, before_each_batch=mark.renew)
        # New versions may also refer to files of old ones, if another client restored one.
        reachable.add_references(store, lambda: manifests_of(store))
        _add_other_branches(reachable)
        result = _result(reachable, files, policy, now_ns)
        _remove(store, result, progress)
    finally:
        with contextlib.suppress(LanceError, OSError):  # the mark expires after an hour
            mark.remove()
    return result


def _mark(
    store: ObjectStore,
    reachable: _ReachableFiles,
    files: Sequence[RemovableFile],
    policy: CleanupPolicy,
    now_ns: int,
) -> CleanupMark:
    """Mark the old versions; on a full disk, free space first."""
    versions = [one.version for one in reachable.old]
    try:
        return CleanupMark(store, versions)
    except StorageError as error:
        if not is_out_of_room(error):
            raise
        logger.info("there is no room for the mark of a cleanup of %s", store.uri)
        _remove(store, _removable_without_mark(store, reachable, files, policy, now_ns), None)
        return CleanupMark(store, versions)


def _removable_without_mark(
    store: ObjectStore,
    reachable: _ReachableFiles,
    files: Sequence[RemovableFile],
    policy: CleanupPolicy,
    now_ns: int,
) -> CleanupResult:
    """Return the files that can be removed without a mark.

    These are unreferenced files and versions that an earlier cleanup has hidden from readers: tags,
    branches and restores need the manifest.
    """
    interrupted = _ReachableFiles(
        reachable.main, reachable.branch, reachable.blobs, interrupted=reachable.interrupted
    )
    interrupted.old = [one for one in reachable.old if one.path in reachable.interrupted]
    for file in read_manifests(store, [pending_location(one) for one in interrupted.old]):
        interrupted.add_uses(store.uri, file, is_needed=False)
    interrupted.add_references(store, lambda: manifests_of(store))
    _add_other_branches(interrupted)
    return _result(interrupted, files, policy, now_ns)


@dataclass(slots=True)
class _ReachableFiles:
    """The references of all manifests of a table."""

    main: ObjectStore  # Root of the main branch, which has tags and branches.
    branch: str | None = None  # Name of the branch that is cleaned up; None for main.
    blobs: BlobReferences | None = None  # None if no file can be a blob object.
    # Root -> paths of all manifests that were read.
    seen: set[tuple[str, str]] = field(default_factory=set)
    old: list[ManifestLocation] = field(default_factory=list)  # The versions to remove, ascending.
    # Paths of manifests that an earlier cleanup has renamed.
    interrupted: set[str] = field(default_factory=set)
    referenced: set[str] = field(default_factory=set)
    verified: set[str] = field(default_factory=set)  # Files that only old versions may refer to.
    # The fragments that were last added to ``referenced`` and to ``verified``.
    _added: dict[bool, Fragments] = field(default_factory=dict)

    def add_version(self, root: str, file: ManifestFile, *, is_old: bool) -> None:
        """Add a manifest that was read, and the files that its version refers to."""
        self.seen.add((root, file.location.path))
        if is_old:
            self.old.append(file.location)
        self.add_uses(root, file, is_needed=not is_old)

    def add_references(
        self, store: ObjectStore, listed: Callable[[], list[ManifestLocation]]
    ) -> None:
        """Add the references of manifests that were not read yet."""
        seen = {path for root, path in self.seen if root == store.uri}
        for file in read_all_manifests(store, listed, seen):
            self.add_version(store.uri, file, is_old=False)

    def add_uses(self, root: str, file: ManifestFile, *, is_needed: bool = True) -> None:
        """Add the files that a version refers to, to ``referenced`` or else to ``verified``."""
        paths = self.referenced if is_needed else self.verified
        fragments = file.manifest.fragments
        added = self._added.get(is_needed)
        new = None if added is None else added.differing(fragments)[1]
        paths.update(paths_used_by(file, new))
        self._added[is_needed] = fragments
        if self.blobs is not None:
            paths.update(self.blobs.used_by(root, file, is_needed=is_needed))


def _find_reachable_files(
    store: ObjectStore,
    table: Table,
    policy: CleanupPolicy,
    now_ns: int,
    newest: int | None,
    *,
    has_blobs: bool,
) -> _ReachableFiles:
    """Read all manifests and determine the old ones."""
    locations = manifests_of(store)
    rule = _Rule.of(policy, _numbers_of(store, locations), now_ns, newest)
    locations.sort(key=lambda location: location.version, reverse=True)
    files = read_manifests(store, locations)
    newest_file = next(files, None)
    if newest_file is None:
        raise missing(store.uri, VERSIONS)
    if newest_file.location.path != locations[0].path:
        raise missing(store.uri, locations[0].path)
    reachable = _new_reachable_files(store, table, newest_file.manifest.branch, has_blobs=has_blobs)
    references = _VersionReferences.of(reachable.main, reachable.branch)
    in_use: set[str] = set()
    for file in itertools.chain((newest_file,), files):
        version = file.manifest.version
        is_old = rule.is_old(file) and version not in references.forked
        referrers = references.referrers(version) if is_old else ()
        in_use.update(referrers)
        reachable.add_version(store.uri, file, is_old=is_old and not referrers)
    if policy.error_if_tagged:
        _reject_references(in_use, store.uri)
    _add_interrupted(store, reachable)
    reachable.old.sort(key=lambda location: location.version)
    _add_other_branches(reachable)
    return reachable


def _numbers_of(store: ObjectStore, locations: Iterable[ManifestLocation]) -> list[int]:
    """Return the versions of manifests without detached ones, ascending."""
    numbers = sorted(
        location.version for location in locations if not location.version & DETACHED_BIT
    )
    if not numbers:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    return numbers


def _new_reachable_files(
    store: ObjectStore, table: Table, branch: str | None, *, has_blobs: bool
) -> _ReachableFiles:
    main = main_branch_of(table, branch)
    main_store = main.store()
    blobs = BlobReferences({main_store.uri: main, store.uri: table}) if has_blobs else None
    return _ReachableFiles(main_store, branch, blobs)


def _reject_references(in_use: Collection[str], where: str) -> None:
    """Reject a cleanup of versions that tags or consumers refer to, if there are any."""
    if in_use:
        raise InvalidInputError(
            f"old versions are tagged or not yet read: {', '.join(sorted(in_use))}",
            where=where,
            hint="delete the tags, unregister the consumers, or keep what they need with "
            "errorIfTaggedOldVersions=False",
        )


def _add_interrupted(store: ObjectStore, reachable: _ReachableFiles) -> None:
    """Add versions of an interrupted cleanup, whose manifests are renamed."""
    for location in manifests_pending_removal(store):
        if (store.uri, location.path) not in reachable.seen:
            reachable.old.append(location)
            reachable.interrupted.add(location.path)
            aside = pending_location(location)
            for file in read_manifests(store, [aside]):
                reachable.add_uses(store.uri, file, is_needed=False)


def _add_other_branches(reachable: _ReachableFiles) -> None:
    own = f"{TREE}/{reachable.branch}/{VERSIONS}/"

    def others() -> list[ManifestLocation]:
        every = manifests_below(reachable.main, TREE)
        return [one for one in every if not one.path.startswith(own)]

    reachable.add_references(reachable.main, others)


@dataclass(frozen=True, slots=True)
class _Rule:
    """The policy with absolute limits instead of ages and counts."""

    below: int
    committed_before_ns: int | None

    @classmethod
    def of(
        cls, policy: CleanupPolicy, numbers: Sequence[int], now_ns: int, newest: int | None
    ) -> _Rule:
        below = numbers[-1] if newest is None else min(newest, numbers[-1])
        age_s = policy.older_than_s
        if age_s is None and policy.before_version is None and policy.retain_versions is None:
            age_s = DEFAULT_AGE_S
        if policy.before_version is not None:
            below = min(below, policy.before_version)
        if policy.retain_versions is not None:
            below = min(below, numbers[max(0, len(numbers) - policy.retain_versions)])
        return cls(below, None if age_s is None else now_ns - int(age_s * 1e9))

    def is_old(self, file: ManifestFile) -> bool:
        version = file.manifest.version
        if version & DETACHED_BIT or version >= self.below:
            return False
        committed_ns = file.manifest.timestamp_ns or file.location.modified_ns
        return self.committed_before_ns is None or committed_ns < self.committed_before_ns


@dataclass(frozen=True, slots=True)
class _VersionReferences:
    """References to old versions."""

    tagged: Mapping[int, Sequence[str]] = field(default_factory=dict)  # Version -> its tags.
    # Name of a consumer -> the last version that it has read.
    unread: Mapping[str, int] = field(default_factory=dict)
    forked: frozenset[int] = frozenset()  # The versions that branches were forked from.

    @classmethod
    def of(cls, main: ObjectStore, branch: str | None) -> _VersionReferences:
        tags = list_tags(main)
        consumers = consumers_among(tags, branch, 0)
        tagged: dict[int, list[str]] = {}
        for tag in tags:
            if tag.branch == branch:
                tagged.setdefault(tag.version, []).append(tag.name)
        branches = [child for child in list_branches(main) if child.parentBranch == branch]
        return cls(
            tagged,
            {consumer.name: consumer.version for consumer in consumers},
            frozenset(child.parentVersion for child in branches),
        )

    def referrers(self, version: int) -> tuple[str, ...]:
        """Return the tags of a version and the consumers that have not read past it."""
        waiting = (f"consumer {name}" for name, read in self.unread.items() if read <= version)
        tags = (name for name in self.tagged.get(version, ()) if not is_consumer(name))
        return (*tags, *waiting)


def _of_branches(store: ObjectStore) -> Iterator[RemovableFile]:
    """Yield unreferenced files in the folders of branches, whose age decides.

    An interrupted creation of a branch leaves files before there is a branch to clean up. Renamed
    manifests of a branch belong to the cleanup of the branch.
    """
    for file in removable_files_of_branches(store):
        if name_before_removal(file.info.path.rpartition("/")[2]) is None:
            yield replace(file, is_of_branch=True)


def _is_removed(
    file: RemovableFile, reachable: _ReachableFiles, policy: CleanupPolicy, now_ns: int
) -> bool:
    if not reachable.referenced.isdisjoint(file.kept_by):
        return False
    if not reachable.verified.isdisjoint(file.kept_by) and not file.is_of_branch:
        return True
    if policy.delete_unverified and not file.is_of_branch:
        return True
    # A store without modification times returns 0, so the age is unknown.
    return 0 < file.info.modified_ns <= now_ns - int(SAFE_AGE_S * 1e9)


def _keep_referenced(store: ObjectStore, reachable: _ReachableFiles, *, restores: bool) -> None:
    """Keep old versions that are referenced since they were looked up.

    ``restores``: whether concurrent restores are possible.
    """
    references = _VersionReferences.of(reachable.main, reachable.branch)
    restored = (
        versions_to_restore(store, reachable.referenced | reachable.verified) if restores else ()
    )
    needed = {
        location.path
        for location in reachable.old
        if location.version in references.forked
        or location.version in restored
        or references.referrers(location.version)
    } - reachable.interrupted
    reachable.old = [location for location in reachable.old if location.path not in needed]
    reachable.seen -= {(store.uri, path) for path in needed}


def _result(
    reachable: _ReachableFiles, files: Sequence[RemovableFile], policy: CleanupPolicy, now_ns: int
) -> CleanupResult:
    """Return the files in the order of their removal."""
    old = reachable.old
    aside = {pending_location(location).path for location in old}
    removable = [
        file
        for file in files
        if file.info.path not in aside and _is_removed(file, reachable, policy, now_ns)
    ]
    count: dict[str, int] = {}
    size: dict[str, int] = {}
    for kind, num_bytes in (
        *((file.kind.value, file.info.size) for file in removable),
        *((FileKind.MANIFEST.value, location.size or 0) for location in old),
    ):
        count[kind] = count.get(kind, 0) + 1
        size[kind] = size.get(kind, 0) + num_bytes
    paths = (*(file.info.path for file in removable), *(location.path for location in old))
    return CleanupResult(tuple(location.version for location in old), count, size, paths)


def _remove(store: ObjectStore, result: CleanupResult, progress: Progress | None) -> None:
    """Remove files in concurrent batches; then manifests, the oldest first."""
    READER_POOL.clear()  # an open file would keep its disk space
    first_manifest = len(result.paths) - len(result.versions)
    manifests = [pending_removal_path(path) for path in result.paths[first_manifest:]]
    done = 0
    for group, at_once in ((result.paths[:first_manifest], _PARALLEL_BATCHES), (manifests, 1)):
        for count in _remove_batches(store, group, at_once):
            done += count
            if progress is not None:
                progress(done, len(result.paths))


def _remove_batches(store: ObjectStore, paths: Sequence[str], at_once: int) -> Iterator[int]:
    """Remove files and yield the size of each batch."""
    batches = [paths[start : start + _BATCH] for start in range(0, len(paths), _BATCH)]
    if len(batches) < 2 or at_once == 1:
        for batch in batches:
            store.delete_many(batch)
            yield len(batch)
        return
    with GeneratorPool(at_once) as pool:
        for batch, _ in zip(batches, pool.map(store.delete_many, batches), strict=True):
            yield len(batch)


@dataclass(frozen=True, slots=True, order=True)
class OrphanFile:
    """A file that no version refers to.

    Attributes:
        path: Below the root of the table.
        size: Bytes.
        modified: Modification time, UTC; 1970 if the store has none.
    """

    path: str
    size: int
    modified: datetime


def find_orphan_files(table: Table, *, older_than_s: float = 0.0) -> list[OrphanFile]:
    """Return the unreferenced files of a table and its branches, by path.

    They include files of writes in progress, which only their age distinguishes. Raises
    CorruptFileError: a manifest cannot be read, so its references are unknown.
    """
    store = table.store()
    limit_ns = time.time_ns() - int(older_than_s * 1e9)
    candidates = [
        file
        for file in (*removable_files(store), *removable_files_of_branches(store))
        # A store without modification times returns 0, so the age is unknown.
        if older_than_s <= 0 or 0 < file.info.modified_ns <= limit_ns
    ]
    used: set[str] = set()
    may_be_blobs = any(file.info.path.endswith(BLOB_SUFFIX) for file in candidates)
    blobs = BlobReferences({store.uri: table}) if may_be_blobs else None
    is_there = False
    for file in read_all_manifests(
        store, lambda: [*manifests_below(store, VERSIONS), *manifests_below(store, TREE)]
    ):
        is_there = True
        used.update(paths_used_by(file))
        if blobs is not None:
            used.update(blobs.used_by(store.uri, file))
    if not is_there:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    return sorted(
        OrphanFile(file.info.path, file.info.size, _moment(file.info.modified_ns))
        for file in candidates
        if used.isdisjoint(file.kept_by)
    )


def remove_orphan_files(
    table: Table, *, older_than_s: float = SAFE_AGE_S, force: bool = False
) -> list[OrphanFile]:
    """Remove unreferenced files and return them.

    ``force``: allows less than ``SAFE_AGE_S``; only safe without concurrent writers.
    """
    if older_than_s < SAFE_AGE_S and not force:
        raise InvalidInputError(
            f"files younger than {SAFE_AGE_S / 3600:.0f} hours may belong to a write that is under "
            "way",
            where=table.uri,
            hint="use force if there are no concurrent writers",
        )
    orphans = find_orphan_files(table, older_than_s=older_than_s)
    table.store().delete_many([file.path for file in orphans])
    logger.info("removed %d files that no version refers to", len(orphans))
    return orphans


def _moment(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)


_AT_ONCE = 16


def move_to_pending_removal(
    store: ObjectStore, locations: Sequence[ManifestLocation], before_each_batch: Callable[[], None]
) -> None:
    """Hide manifests from readers, the oldest first; missing ones are ignored."""
    paths = [location.path for location in locations]

    def copy(path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # removed by a concurrent cleanup
            store.copy(path, pending_removal_path(path))

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for start in range(0, len(paths), _BATCH):
            before_each_batch()
            some = paths[start : start + _BATCH]
            list(pool.map(copy, some))
            store.delete_many(some)


def manifests_pending_removal(store: ObjectStore) -> Iterator[ManifestLocation]:
    """Yield the manifests pending removal, with their original names."""
    for info in store.list(VERSIONS):
        name = name_before_removal(info.path.removeprefix(f"{VERSIONS}/"))
        parsed = None if name is None else parse_manifest_name(name)
        if parsed is not None:
            yield ManifestLocation(
                f"{VERSIONS}/{name}", parsed.version, parsed.scheme, info.size, info.identity
            )


def pending_location(location: ManifestLocation) -> ManifestLocation:
    """Return the location of a manifest pending removal."""
    return replace(location, path=pending_removal_path(location.path))


def versions_to_restore(store: ObjectStore, finished: Iterable[str]) -> frozenset[int]:
    """Return versions with a restore in progress, according to transaction files."""
    known = set(finished)
    names = [
        info.path.removeprefix(f"{TRANSACTIONS}/")
        for info in store.list(TRANSACTIONS)
        if info.path.endswith(".txn") and info.path not in known
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = pool.map(lambda name: _restored_version(store, name), names)
        return frozenset(version for version in found if version is not None)


def _restored_version(store: ObjectStore, name: str) -> int | None:
    try:
        operation = read_transaction(store, name).operation
    except (FileNotFoundError, CorruptFileError):
        return None  # rolled back, or of a writer that cannot commit it
    return operation.version if isinstance(operation, Restore) else None

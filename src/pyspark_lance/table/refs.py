"""Tags and branches of a table, and consumers of its change feed.

A cleanup keeps the versions of tags, and all versions since the position of a consumer. A consumer
is a tag on the last version that it has read. So moving it commits no version and conflicts with
nothing, every consumer has a separate file, and Lance's own cleanup keeps at least the version that
the next changes start from. The tag also has the stamp of the version: tags may outlive the table
if only its versions and data are deleted, and a consumer of the old table has read nothing of its
replacement.

A branch is a separate version history that shares the files of its origin. It has a separate
folder; its first version is a shallow clone of the one that it was forked from: the same number and
the same files, referenced by a base path.

Source: docs/format/table-format.md, sections 12.1, 12.2, 12.5.
"""

from __future__ import annotations

import contextlib
import os
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.invariants import check_writable
from pyspark_lance.commit.manifest_builder import WRITER_VERSION, TableState
from pyspark_lance.commit.manifest_committer import table_was_replaced
from pyspark_lance.errors import (
    CommitConflictError,
    InvalidInputError,
    StorageError,
    TableReplacedError,
    VersionNotFoundError,
)
from pyspark_lance.format.feature_flags import BASE_PATHS
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.operation import Clone
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.cleanup_marks import check_not_removed
from pyspark_lance.metafile.manifest_file import (
    ManifestLocation,
    encode_manifest,
    latest_version,
    load_transaction,
    read_manifest,
    transaction_name,
    write_transaction,
)
from pyspark_lance.metafile.paths import is_branch_name, manifest_path
from pyspark_lance.metafile.refs_file import (
    Branch,
    Tag,
    check_branch_name,
    delete_branch,
    delete_tag,
    list_branches,
    list_tags,
    read_branch,
    read_tag,
    write_branch,
    write_tag,
)
from pyspark_lance.result_names import also_snake_case
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.open_store import split_uri
from pyspark_lance.table.version.removable_files import FOLDERS
from pyspark_lance.table.version.snapshot import LATEST, Snapshot, VersionSpec, open_pinned
from pyspark_lance.table.version.table import Table, main_branch_of
from pyspark_lance.table.version.table_identity import PinnedVersion, TableIdentity


def set_tag(
    table: Table,
    name: str,
    at: VersionSpec = LATEST,
    *,
    replaces: bool = False,
    metadata_of: Callable[[Snapshot], Mapping[str, Any]] = lambda _: {},
) -> Tag:
    """Create or move a tag.

    ``name``: letters, digits, ``.``, ``_``, ``-``. ``replaces``: move an existing tag; it must
    exist. ``metadata_of``: returns additional metadata for the version; may reject the version.
    """
    snapshot = Snapshot.open(table, at)
    added = metadata_of(snapshot)
    main, before = _main_store(snapshot), None
    now = datetime.now(UTC)
    tag = Tag(name, snapshot.version, snapshot.manifest.branch, now, now, dict(added))
    if replaces:
        before = read_tag(main, name)
        tag = tag.in_place_of(before)
    location = snapshot.file.location
    size = location.size if location.size is not None else snapshot.store.size(location.path)
    if not write_tag(main, tag, manifest_size=size, replace=replaces):
        raise InvalidInputError(
            f"there is a tag {name!r} already", where=main.uri, hint="replace it, or delete it"
        )
    try:
        check_not_removed(snapshot.store, snapshot.file.location)
    except VersionNotFoundError:
        _rollback(main, tag, before, size)
        raise
    return tag


def _rollback(main: ObjectStore, tag: Tag, before: Tag | None, manifest_size: int) -> None:
    if before is None:
        delete_tag(main, tag.name)
    else:
        write_tag(main, before, manifest_size=manifest_size, replace=True)


def remove_tag(table: Table, name: str) -> None:
    """Remove a tag; the version stays."""
    delete_tag(_main_store(Snapshot.open(table)), name)


def tags_of(table: Table) -> list[Tag]:
    """Return all tags of the table and its branches, by name."""
    return list_tags(_main_store(Snapshot.open(table)))


def _main_store(snapshot: Snapshot) -> ObjectStore:
    """Return the store at the root of the main branch, which has all tags."""
    return main_branch_of(snapshot.table, snapshot.manifest.branch).store()


_PREFIX = "pyspark_lance.consumer."
# Keys of the tag's metadata.
_STAMP = "pyspark_lance.stamp"


@also_snake_case
@dataclass(frozen=True, slots=True)
class Consumer:
    """A registered reader of the changes of a table.

    Attributes:
        name: Unique in the table and all its branches.
        version: The last version it has read; 0 for none, also if the table was replaced.
        lag: Number of later versions.
        updatedAt: Time of its last update, UTC; None if not recorded.
    """

    name: str
    version: int
    lag: int
    updatedAt: datetime | None = None  # noqa: N815


def register_consumer(
    table: Table, name: str, version: int | None = None, *, identity: TableIdentity | None = None
) -> Consumer:
    """Register a consumer at a version, or move an existing one.

    ``name``: letters, digits, ``.``, ``_``, ``-``. ``version``: the last version that it has read;
    None for the newest. ``identity``: of the table in which it has read that version.

    Raises TableReplacedError: ``identity`` is that of another table.
    """

    def stamp(snapshot: Snapshot) -> dict[str, str]:
        if identity is not None:
            identity.check(snapshot.manifest, snapshot.uri)
        return {_STAMP: snapshot.identity.stamp}

    newest = Snapshot.open(table)
    tag_name = _PREFIX + name
    for _ in range(2):  # another process may register the same name concurrently
        is_there = any(tag.name == tag_name for tag in _tags(newest))
        try:
            tag = set_tag(
                table, tag_name, VersionSpec(version=version), replaces=is_there, metadata_of=stamp
            )
        except TableReplacedError:
            raise
        except InvalidInputError:
            if not any(tag.name == tag_name for tag in _tags(newest)):
                raise
            continue
        return _consumer(tag, newest.version)
    raise InvalidInputError(
        f"the consumer {name!r} is being registered concurrently", where=newest.uri
    )


def unregister_consumer(table: Table, name: str) -> None:
    """Unregister a consumer; a cleanup may then remove unread versions."""
    newest = Snapshot.open(table)
    tag_name = _PREFIX + name
    if not any(tag.name == tag_name for tag in _tags(newest)):
        raise VersionNotFoundError(f"there is no consumer {name!r}", where=newest.uri)
    delete_tag(main_branch_of(newest.table, newest.manifest.branch).store(), tag_name)


def consumers_of(table: Table) -> tuple[Consumer, ...]:
    """Return the consumers of the table or branch, by name."""
    newest = Snapshot.open(table)
    tags = [_tag_in(newest, tag) if is_consumer(tag.name) else tag for tag in _tags(newest)]
    return consumers_among(tags, newest.manifest.branch, newest.version)


def _tag_in(newest: Snapshot, tag: Tag) -> Tag:
    """Return the tag of a consumer, at version 0 if it belongs to a replaced table."""
    stamp = tag.metadata.get(_STAMP)
    if tag.branch != newest.manifest.branch or not isinstance(stamp, str):
        return tag
    try:
        open_pinned(newest.table, PinnedVersion(newest.uri, tag.version, stamp))
    except TableReplacedError:
        return replace(tag, version=0)
    except VersionNotFoundError:
        pass  # unknown
    return tag


def is_consumer(tag_name: str) -> bool:
    """Return whether a tag of this name is a consumer."""
    return tag_name.startswith(_PREFIX)


def consumers_among(tags: Iterable[Tag], branch: str | None, newest: int) -> tuple[Consumer, ...]:
    """Return the consumers of a branch among tags.

    ``branch``: name of the branch; None for main.
    """
    return tuple(
        _consumer(tag, newest) for tag in tags if tag.branch == branch and is_consumer(tag.name)
    )


def _consumer(tag: Tag, newest: int) -> Consumer:
    lag = max(0, newest - tag.version)
    return Consumer(tag.name.removeprefix(_PREFIX), tag.version, lag, tag.updatedAt)


def _tags(snapshot: Snapshot) -> list[Tag]:
    return list_tags(main_branch_of(snapshot.table, snapshot.manifest.branch).store())


def create_branch(table: Table, name: str, at: VersionSpec = LATEST) -> Branch:
    """Create a branch from a version.

    An interrupted creation of the same branch is completed.

    ``name``: parts of letters, digits, ``.``, ``_``, ``-``, joined by ``/``; ``at``: the version to
    fork from.
    """
    check_branch_name(name)
    snapshot = Snapshot.open(table, at)
    check_writable(snapshot.manifest, snapshot.indices)
    parent = snapshot.manifest.branch
    root = main_branch_of(snapshot.table, parent)
    main, store = root.store(), root.on_branch(name).store()
    if any(other.name == name for other in list_branches(main)):
        raise _branch_exists(main, name)
    fork = (snapshot.version, uuid.uuid4().hex)
    before = read_branch(main, parent).versionMapping if parent else ()
    branch = Branch(name, parent, snapshot.version, _now(), (*before, fork))
    clone = Clone(
        is_shallow=True,
        ref_version=snapshot.version,
        ref_path=_absolute(snapshot.uri),
        ref_name=parent,
        branch_name=name,
    )
    first = _first_version_begun(store, clone) or _put_first_version(store, snapshot, clone)
    if not write_branch(main, branch, manifest_size=first.size or 0):
        raise _branch_exists(main, name)
    try:
        check_not_removed(snapshot.store, snapshot.file.location)
        _check_same(snapshot)
        if not store.exists(first.path):  # removed as an incomplete branch
            raise VersionNotFoundError(
                f"the branch {name!r} was removed by another process during its creation", main.uri
            )
    except (VersionNotFoundError, CommitConflictError):
        _remove_branch(root, name)
        raise
    return branch


def _now() -> datetime:
    """Return the time in whole seconds, as stored."""
    return datetime.now(UTC).replace(microsecond=0)


def _check_same(snapshot: Snapshot) -> None:
    """Raise TableReplacedError if the table was replaced since it was opened."""
    there = Snapshot.open(snapshot.table, VersionSpec(version=snapshot.version))
    if BaseVersion.of(there.manifest) != BaseVersion.of(snapshot.manifest):
        raise table_was_replaced(snapshot.store.uri)


def remove_branch(table: Table, name: str) -> None:
    """Remove a branch with all of its files, including incomplete ones."""
    snapshot = Snapshot.open(table)
    root = main_branch_of(snapshot.table, snapshot.manifest.branch)
    main = root.store()
    branches = list_branches(main)
    if not any(branch.name == name for branch in branches) and not _has_files(root, name):
        read_branch(main, name)  # raises an error, unless it was just created
    dependents = [f"tag {tag.name!r}" for tag in list_tags(main) if tag.branch == name]
    dependents += [f"branch {branch.name!r}" for branch in branches if branch.parentBranch == name]
    if dependents:
        raise InvalidInputError(
            f"the branch {name!r} is needed by {', '.join(dependents)}",
            where=main.uri,
            hint="remove them first",
        )
    _remove_branch(root, name)


def _remove_branch(root: Table, name: str) -> None:
    main, store = root.store(), root.on_branch(name).store()
    # An interrupted removal leaves no valid branch.
    with contextlib.suppress(VersionNotFoundError):
        delete_branch(main, name)
    inner = tuple(
        f"{branch.name.removeprefix(f'{name}/')}/"
        for branch in list_branches(main)
        if branch.name.startswith(f"{name}/")
    )
    store.delete_many([info.path for info in store.list("") if not info.path.startswith(inner)])
    # If another process completed the branch meanwhile, its files are removed as well.
    with contextlib.suppress(VersionNotFoundError):
        delete_branch(main, name)


def _has_files(root: Table, name: str) -> bool:
    """Return whether there are files of a branch, even without a description."""
    if not is_branch_name(name):
        return False
    store = root.on_branch(name).store()
    return any(True for folder in FOLDERS for _ in store.list(folder))


def _branch_exists(main: ObjectStore, name: str) -> InvalidInputError:
    return InvalidInputError(f"there is a branch {name!r} already", where=main.uri)


def branches_of(table: Table) -> list[Branch]:
    """Return all branches of the table except main, by name."""
    snapshot = Snapshot.open(table)
    return list_branches(main_branch_of(snapshot.table, snapshot.manifest.branch).store())


def _first_version_begun(store: ObjectStore, clone: Clone) -> ManifestLocation | None:
    """Return the first version of an incomplete branch; None without any."""
    location = latest_version(store)
    if location is None:
        return None
    transaction = load_transaction(store, read_manifest(store, location))
    if transaction is None or transaction.operation != clone:
        raise InvalidInputError(
            f"the branch {clone.branch_name!r} exists incompletely, forked from another version",
            where=store.uri,
            hint="remove it first, as a branch is removed",
        )
    write_transaction(store, transaction)  # may be missing if the branch was partly removed
    return location


def _put_first_version(store: ObjectStore, snapshot: Snapshot, clone: Clone) -> ManifestLocation:
    """Write the manifest of a branch."""
    before = TableState(snapshot.manifest, snapshot.indices)
    state = _as_clone(before, clone.ref_path, clone.branch_name)
    transaction = Transaction(snapshot.version, str(uuid.uuid4()), clone)
    write_transaction(store, transaction)
    manifest = replace(state.manifest, transaction_file=transaction_name(transaction))
    data = encode_manifest(manifest, state.indices, transaction)
    scheme = snapshot.file.location.scheme
    path = manifest_path(snapshot.version, scheme)
    if not store.put_if_absent(path, data):
        raise StorageError("another branch of this name appeared", f"{store.uri}/{path}")
    return ManifestLocation(path, snapshot.version, scheme, len(data))


def _absolute(uri: str) -> str:
    """Return the root for base paths: a URI, or an absolute local path."""
    scheme, folder = split_uri(uri)
    return os.path.abspath(folder) if scheme == "file" else uri.rstrip("/")


def _as_clone(state: TableState, origin: str, name: str | None) -> TableState:
    """Return the same version with all files below ``origin``."""
    manifest = state.manifest
    known = [base.id for base in manifest.base_paths]
    base = BasePath(max(known) + 1 if known else 0, manifest.branch, True, origin)
    indices = tuple(
        index if index.base_id is not None else index.with_base_id(base.id)
        for index in state.indices
    )
    return TableState(
        replace(
            manifest,
            fragments=Fragments.of(_move_to_base(one, base.id) for one in manifest.fragments),
            base_paths=(base, *manifest.base_paths),
            branch=name,
            timestamp_ns=max(time.time_ns(), manifest.timestamp_ns + 1),
            reader_flags=manifest.reader_flags | BASE_PATHS,
            writer_flags=manifest.writer_flags | BASE_PATHS,
            writer_version=WRITER_VERSION,
            index_section=None,
            transaction_section=None,
        ),
        indices,
    )


def _move_to_base(fragment: Fragment, base_id: int) -> Fragment:
    deletions = fragment.deletion_file
    if deletions is not None and deletions.base_id is None:
        deletions = replace(deletions, base_id=base_id)
    files: tuple[DataFile, ...] = tuple(
        file if file.base_id is not None else replace(file, base_id=base_id)
        for file in fragment.files
    )
    return replace(fragment, files=files, deletion_file=deletions)

"""Branches of a table: lines of versions of their own, which share the files of their origin.

A branch has a folder of its own.  Its first version is a shallow copy of the one that it was
forked from: the same number and the same files, which are said to lie below another root.

Source: docs/format/table-format.md, sections 12.2, 12.5.
"""

from __future__ import annotations

import os
import time
import uuid
from dataclasses import replace

from pyspark_lance.commit.draft import WRITER_VERSION, TableState
from pyspark_lance.commit.invariants import check_writable
from pyspark_lance.errors import InvalidInputError, StorageError, VersionNotFoundError
from pyspark_lance.format.data_file import DataFile
from pyspark_lance.format.feature_flags import BASE_PATHS
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.manifest import BasePath
from pyspark_lance.format.operation import Clone
from pyspark_lance.format.transaction import Transaction
from pyspark_lance.metafile.cleanup_marks import check_kept
from pyspark_lance.metafile.manifest_file import encode_manifest, latest_version
from pyspark_lance.metafile.paths import TREE, manifest_path
from pyspark_lance.metafile.refs_file import (
    Branch,
    check_branch_name,
    delete_branch,
    list_branches,
    list_tags,
    read_branch,
    write_branch,
)
from pyspark_lance.metafile.transaction_file import transaction_name, write_transaction
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.open_store import split_uri
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table, main_line
from pyspark_lance.table.version.time_travel import LATEST, VersionSpec


def create_branch(table: Table, name: str, at: VersionSpec = LATEST) -> Branch:
    """Forks a branch off a version.

    Args:
        table: The table or branch.
        name: Parts of letters, digits, ``.``, ``_``, ``-``, joined by ``/``.
        at: The version to fork from.

    Raises:
        InvalidInputError: The name is taken, or cannot be one.
        VersionNotFoundError: There is no such version.
        UnsupportedFeatureError: The version has a part that would be lost.
    """
    check_branch_name(name)
    snapshot = Snapshot.open(table, at)
    check_writable(snapshot.manifest, snapshot.indices)
    parent = snapshot.manifest.branch
    root = main_line(snapshot.table, parent)
    main, store = root.store(), root.on_branch(name).store()
    if latest_version(store) is not None or any(
        other.name == name for other in list_branches(main)
    ):
        raise InvalidInputError(f"there is a branch {name!r} already", where=main.uri)
    fork = (snapshot.version, uuid.uuid4().hex)
    before = read_branch(main, parent).version_mapping if parent else ()
    branch = Branch(name, parent, snapshot.version, int(time.time()), (*before, fork))
    size = _put_first_version(store, snapshot, name)
    if not write_branch(main, branch, manifest_size=size):
        raise InvalidInputError(f"there is a branch {name!r} already", where=main.uri)
    try:
        check_kept(snapshot.store, snapshot.file.location)
    except VersionNotFoundError:
        _remove_branch(main, name)
        raise
    return branch


def remove_branch(table: Table, name: str) -> None:
    """Removes a branch with all that was written on it.

    Args:
        table: The table or one of its branches.
        name: Name of the branch.

    Raises:
        VersionNotFoundError: There is no such branch.
        InvalidInputError: Tags or other branches stand on it.
    """
    snapshot = Snapshot.open(table)
    main = main_line(snapshot.table, snapshot.manifest.branch).store()
    read_branch(main, name)
    standing = [f"tag {tag.name!r}" for tag in list_tags(main) if tag.branch == name]
    branches = list_branches(main)
    standing += [f"branch {branch.name!r}" for branch in branches if branch.parent_branch == name]
    if standing:
        raise InvalidInputError(
            f"the branch {name!r} is needed by {', '.join(standing)}",
            where=main.uri,
            hint="remove them first",
        )
    _remove_branch(main, name)


def _remove_branch(main: ObjectStore, name: str) -> None:
    # What is left of an interrupted removal is no branch.
    delete_branch(main, name)
    prefix = f"{TREE}/{name}"
    others = tuple(
        f"{TREE}/{branch.name}/"
        for branch in list_branches(main)
        if branch.name.startswith(f"{name}/")
    )
    main.delete_many([info.path for info in main.list(prefix) if not info.path.startswith(others)])


def branches_of(table: Table) -> list[Branch]:
    """All branches of the table but main, by name."""
    snapshot = Snapshot.open(table)
    return list_branches(main_line(snapshot.table, snapshot.manifest.branch).store())


def _put_first_version(store: ObjectStore, snapshot: Snapshot, name: str) -> int:
    """Writes the manifest of a branch; returns its size in bytes."""
    origin = _absolute(snapshot.uri)
    state = _as_clone(TableState(snapshot.manifest, snapshot.indices), origin, name)
    clone = Clone(
        is_shallow=True,
        ref_version=snapshot.version,
        ref_path=origin,
        ref_name=snapshot.manifest.branch,
        branch_name=name,
    )
    transaction = Transaction(snapshot.version, str(uuid.uuid4()), clone)
    write_transaction(store, transaction)
    manifest = replace(state.manifest, transaction_file=transaction_name(transaction))
    data = encode_manifest(manifest, state.indices, transaction)
    path = manifest_path(snapshot.version, snapshot.file.location.scheme)
    if not store.put_if_absent(path, data):
        raise StorageError("another branch of this name appeared", f"{store.uri}/{path}")
    return len(data)


def _absolute(uri: str) -> str:
    """The root as other roots refer to it: a URI, or an absolute path of this machine."""
    scheme, folder = split_uri(uri)
    return os.path.abspath(folder) if scheme == "file" else uri.rstrip("/")


def _as_clone(state: TableState, origin: str, name: str) -> TableState:
    """The same version, all of whose files lie below ``origin``."""
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
            fragments=tuple(_moved(fragment, base.id) for fragment in manifest.fragments),
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


def _moved(fragment: Fragment, base_id: int) -> Fragment:
    deletions = fragment.deletion_file
    if deletions is not None and deletions.base_id is None:
        deletions = replace(deletions, base_id=base_id)
    files: tuple[DataFile, ...] = tuple(
        file if file.base_id is not None else replace(file, base_id=base_id)
        for file in fragment.files
    )
    return replace(fragment, files=files, deletion_file=deletions)

"""Files that no version refers to: what failed tasks, killed processes and lost races leave.

Only files whose name says what they are, in the folders where they belong, are ever named here.
A file is listed first and looked for in the manifests afterwards, so that a commit in between
cannot make it look unused; a writer that has not committed yet is protected by the age of its
files alone.  Clones of the table are not looked for: they refer to files of versions, not to these.

Source: docs/format/table-format.md, section 11.2.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from pyspark_lance.errors import InvalidInputError, TableNotFoundError
from pyspark_lance.metafile.manifest_file import ManifestLocation, read_manifest
from pyspark_lance.metafile.paths import (
    DATA,
    DELETIONS,
    INDICES,
    TRANSACTIONS,
    TREE,
    VERSIONS,
    data_path,
    deletion_path,
    parse_manifest_name,
)
from pyspark_lance.store.object_store import ObjectInfo, ObjectStore
from pyspark_lance.table.version.table import Table

logger = logging.getLogger(__name__)

SAFE_AGE_S = 7 * 24 * 3600.0
"""Younger files may belong to a write that is under way."""

_FOLDERS = (DATA, DELETIONS, TRANSACTIONS, INDICES, VERSIONS)
_SUFFIXES = {DATA: ("lance",), DELETIONS: ("arrow", "bin"), TRANSACTIONS: ("txn",)}
_STAGING = ".tmp"


@dataclass(frozen=True, slots=True, order=True)
class LeftoverFile:
    """A file that no version refers to.

    Attributes:
        path: Below the root of the table.
        size: Bytes.
        modified: When it was written, UTC; 1970 if the store keeps no time.
    """

    path: str
    size: int
    modified: datetime


def leftover_files(table: Table, *, older_than_s: float = 0.0) -> list[LeftoverFile]:
    """The files of a table and its branches that no version refers to, by path.

    Files of writes that are under way are among them; their age tells them apart.

    Args:
        table: The table, of whose branches all are looked at.
        older_than_s: Leaves out younger files.

    Raises:
        TableNotFoundError: There is no table.
        CorruptFileError: A manifest cannot be read, so that nobody knows what it refers to.
        UnsupportedFeatureError: The same for a manifest of a newer format.
    """
    store = table.store()
    limit_ns = time.time_ns() - int(older_than_s * 1e9)
    candidates = [
        one
        for one in _candidates(store)
        # A store that keeps no time says 0; nobody knows how young such a file is.
        if older_than_s <= 0 or 0 < one.info.modified_ns <= limit_ns
    ]
    references = _References.of(store)
    if not references.manifests:
        raise TableNotFoundError(
            "there is no Lance table here", where=store.uri, hint="check the path"
        )
    return sorted(
        LeftoverFile(one.info.path, one.info.size, _moment(one.info.modified_ns))
        for one in candidates
        if one.kept_by is None or one.kept_by not in references.paths
    )


def remove_leftover_files(
    table: Table,
    *,
    older_than_s: float = SAFE_AGE_S,
    force: bool = False,
) -> list[LeftoverFile]:
    """Removes such files, and says which.

    Args:
        table: The table, of whose branches all are looked at.
        older_than_s: Keeps younger files.
        force: Allows less than ``SAFE_AGE_S``; only right when nobody writes to the table.

    Raises:
        InvalidInputError: Too young an age without ``force``.
    """
    if older_than_s < SAFE_AGE_S and not force:
        raise InvalidInputError(
            f"files younger than {SAFE_AGE_S / 3600:.0f} hours may belong to a write that is under "
            "way",
            where=table.uri,
            hint="if nobody writes to the table, say so with force",
        )
    found = leftover_files(table, older_than_s=older_than_s)
    table.store().delete_many([one.path for one in found])
    logger.info("removed %d files that no version refers to", len(found))
    return found


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that could be left over.

    Attributes:
        info: The file.
        kept_by: What a manifest refers to if the file is in use; None if nothing can.
    """

    info: ObjectInfo
    kept_by: str | None


def _candidates(store: ObjectStore) -> Iterator[_Candidate]:
    for folder in _FOLDERS:
        for info in store.list(folder):
            yield from _candidate(info, "")
    for info in store.list(TREE):
        root = _branch_root(info.path)
        if root is not None:
            yield from _candidate(info, root)


def _candidate(info: ObjectInfo, root: str) -> Iterator[_Candidate]:
    """The file, if its name says that it could be left over."""
    folder, *parents, name = info.path.removeprefix(root).split("/")
    stem, dot, suffix = name.rpartition(".")
    kept_by: str | None = f"{folder}/{name}"
    if name.startswith(_STAGING):
        kept_by = None
    elif parents and folder == INDICES:
        kept_by = f"{INDICES}/{parents[0]}"
    elif len(parents) == 1 and folder == DATA and suffix == "blob":
        kept_by = f"{DATA}/{parents[0]}.lance"
    elif parents or not (dot and stem) or suffix not in _SUFFIXES.get(folder, ()):
        return
    yield _Candidate(info, kept_by)


def _branch_root(path: str) -> str | None:
    """The root, with a slash, of the branch that a file below ``tree/`` belongs to."""
    parts = path.split("/")
    for index, part in enumerate(parts[:-1]):
        if index > 1 and part in _FOLDERS:
            return "/".join(parts[:index]) + "/"
    return None


@dataclass(frozen=True, slots=True)
class _References:
    """What the manifests of a table and its branches refer to, below whichever root."""

    manifests: int
    paths: set[str]

    @classmethod
    def of(cls, store: ObjectStore) -> _References:
        """Reads all manifests, detached ones too."""
        count, paths = 0, set()
        for folder in (VERSIONS, TREE):
            for info in store.list(folder):
                parent, _, name = info.path.rpartition("/")
                parsed = parse_manifest_name(name)
                if parsed is None or parent.rpartition("/")[2] != VERSIONS:
                    continue
                location = ManifestLocation(info.path, parsed.version, parsed.scheme, info.size)
                file = read_manifest(store, location)
                count += 1
                paths.add(f"{TRANSACTIONS}/{file.manifest.transaction_file}")
                paths.update(f"{INDICES}/{index.uuid}" for index in file.indices)
                for fragment in file.manifest.fragments:
                    paths.update(data_path(data_file.path) for data_file in fragment.files)
                    if fragment.deletion_file is not None:
                        paths.add(deletion_path(fragment.id, fragment.deletion_file))
        return cls(count, paths)


def _moment(nanoseconds: int) -> datetime:
    return datetime.fromtimestamp(nanoseconds / 1e9, UTC)

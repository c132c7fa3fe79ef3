"""Files that a cleanup may remove, by their names, and the files that versions refer to.

Only files with a known name pattern in the expected folder are removable; everything else in the
folder of a table is left alone.

Source: docs/format/table-format.md, section 11.2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark_lance.errors import StorageError
from pyspark_lance.format.manifest import DETACHED_BIT
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    read_manifest,
    versions_not_listed,
)
from pyspark_lance.metafile.paths import (
    BLOBS,
    DATA,
    DELETIONS,
    INDICES,
    REFERENCES,
    TRANSACTIONS,
    TREE,
    VERSIONS,
    data_path,
    deletion_path,
    is_staged_manifest,
    name_before_removal,
    parse_manifest_name,
)
from pyspark_lance.store.object_store import ObjectInfo, ObjectStore

FOLDERS = (DATA, BLOBS, DELETIONS, TRANSACTIONS, INDICES, VERSIONS)
BLOB_SUFFIX = ".blob"
_SUFFIXES = {
    DATA: ("lance",),
    BLOBS: ("blob",),
    DELETIONS: ("arrow", "bin"),
    TRANSACTIONS: ("txn",),
}
_STAGING = ".tmp"
_PARALLEL_READS = 16
# Each retry means that there was a commit and a cleanup since the listing.
_MAX_LISTINGS = 100


class FileKind(enum.Enum):
    """The purpose of a file."""

    DATA = "data"
    BLOBS = "blobs"
    DELETIONS = "deletions"
    TRANSACTION = "transactions"
    INDEX = "indices"
    MANIFEST = "manifests"
    STAGING = "staging"


_KIND_OF = {
    DATA: FileKind.DATA,
    BLOBS: FileKind.BLOBS,
    DELETIONS: FileKind.DELETIONS,
    TRANSACTIONS: FileKind.TRANSACTION,
    INDICES: FileKind.INDEX,
}


@dataclass(frozen=True, slots=True)
class RemovableFile:
    """A file that may be unreferenced."""

    info: ObjectInfo  # The file; its path is below the root of the store.
    kind: FileKind
    # The file is in use if a version refers to one of these; empty if none can.
    kept_by: frozenset[str]
    # Whether it is in the folder of a branch below the root of the store.
    is_of_branch: bool = False


def removable_files(store: ObjectStore) -> Iterator[RemovableFile]:
    """Yield the removable files of a table or branch, without its branches and manifests."""
    for folder in (*FOLDERS, REFERENCES):
        for info in store.list(folder):
            yield from _as_removable(info, "")


def removable_files_of_branches(store: ObjectStore) -> Iterator[RemovableFile]:
    """Yield the removable files of all branches of a table."""
    for info in store.list(TREE):
        root = _branch_root(info.path)
        if root is not None:
            yield from _as_removable(info, root)


def manifests_below(store: ObjectStore, folder: str) -> list[ManifestLocation]:
    """List the manifests in ``_versions`` and all branches, including detached ones."""
    locations = []
    for info in store.list(folder):
        parent, _, name = info.path.rpartition("/")
        parsed = parse_manifest_name(name)
        if parsed is not None and parent.rpartition("/")[2] == VERSIONS:
            locations.append(
                ManifestLocation(
                    info.path,
                    parsed.version,
                    parsed.scheme,
                    info.size,
                    info.identity,
                    info.modified_ns,
                )
            )
    return locations


def manifests_of(store: ObjectStore) -> list[ManifestLocation]:
    """List all manifests of a table or branch, including those not yet visible in a listing."""
    listed = manifests_below(store, VERSIONS)
    numbered = [one for one in listed if not one.version & DETACHED_BIT]
    if not numbered:
        return listed
    return listed + versions_not_listed(store, max(numbered, key=lambda one: one.version))


def read_manifests(store: ObjectStore, locations: list[ManifestLocation]) -> Iterator[ManifestFile]:
    """Read manifests concurrently, in order, and skip those that were removed."""
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        # Limited concurrency, since a manifest may be large.
        for start in range(0, len(locations), _PARALLEL_READS):
            some = locations[start : start + _PARALLEL_READS]
            for file in pool.map(lambda location: _read(store, location), some):
                if file is not None:
                    yield file


def read_all_manifests(
    store: ObjectStore, listed: Callable[[], list[ManifestLocation]], seen: Container[str] = ()
) -> Iterator[ManifestFile]:
    """Read all listed manifests, and list again if some were removed meanwhile.

    A cleanup removes versions only after newer ones exist, which may use the same files.

    ``seen``: paths to skip.
    """
    read: set[str] = set()
    for _ in range(_MAX_LISTINGS):
        new = [one for one in listed() if one.path not in seen and one.path not in read]
        before = len(read)
        for file in read_manifests(store, new):
            read.add(file.location.path)
            yield file
        if len(read) == before + len(new):
            return
    raise StorageError(
        f"versions were removed faster than they could be read, {_MAX_LISTINGS} times",
        where=store.uri,
        hint="clean up less often",
    )


def _read(store: ObjectStore, location: ManifestLocation) -> ManifestFile | None:
    try:
        return read_manifest(store, location)
    except FileNotFoundError:
        return None  # another cleanup removed it


def paths_used_by(file: ManifestFile) -> Iterator[str]:
    """Yield the files of a version, relative to any root: their names are unique.

    Includes data files that have only lineage columns. Blob objects are not included: see
    ``blob_references.py``.
    """
    yield f"{TRANSACTIONS}/{file.manifest.transaction_file}"
    for index in file.indices:
        yield f"{INDICES}/{index.uuid}"
    for fragment in file.manifest.fragments:
        for data_file in fragment.files:
            yield data_path(data_file.path)
        if fragment.deletion_file is not None:
            yield deletion_path(fragment.id, fragment.deletion_file)


def _as_removable(info: ObjectInfo, root: str) -> Iterator[RemovableFile]:
    """Yield the file if its name matches a removable kind."""
    folder, *parents, name = info.path.removeprefix(root).split("/")
    stem, dot, suffix = name.rpartition(".")
    kept_by = {f"{folder}/{name}"}
    kind = _KIND_OF.get(folder, FileKind.STAGING)
    if name.startswith(_STAGING) or (folder == VERSIONS and _is_no_version(name)):
        kept_by, kind = set(), FileKind.STAGING
    elif parents and folder == INDICES:
        kept_by = {f"{INDICES}/{parents[0]}"}
    elif len(parents) == 1 and folder == DATA and suffix == "blob":
        # Referenced by its data file, and by rows that have moved to other files.
        kept_by = {f"{DATA}/{parents[0]}.lance", f"{DATA}/{parents[0]}/{name}"}
    elif parents or not (dot and stem) or suffix not in _SUFFIXES.get(folder, ()):
        return
    yield RemovableFile(info, kind, frozenset(kept_by))


def _is_no_version(name: str) -> bool:
    return is_staged_manifest(name) or name_before_removal(name) is not None


def _branch_root(path: str) -> str | None:
    """Return the root, with a slash, of the branch of a file below ``tree/``."""
    parts = path.split("/")
    for index, part in enumerate(parts[:-1]):
        if index > 1 and part in FOLDERS:
            return "/".join(parts[:index]) + "/"
    return None

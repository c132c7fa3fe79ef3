"""Files that a cleanup may remove, and the files and blobs that versions refer to.

Only files with a known name pattern in the expected folder are removable; everything else in the
folder of a table is left alone.

Objects with the blobs of live rows are found by reading the data files of a version. Rows keep
their reference to an object when they move, so neither a manifest nor the name of a data file shows
which objects are used.

Source: docs/format/file-format.md, section 9.1; docs/format/table-format.md, section 11.2.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.datafile.blob_values import MANAGED, MANAGED_IN_BASE
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import MissingFileError, StorageError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.feature_flags import MANAGED_BLOBS
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import DataFile, Fragment
from pyspark_lance.format.logical_view import blob_as_descriptor, is_blob_descriptor
from pyspark_lance.format.manifest import DETACHED_BIT, Manifest
from pyspark_lance.metafile.manifest_file import (
    ManifestFile,
    ManifestLocation,
    read_consecutive_manifests,
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
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_files import TableFiles

FOLDERS = (DATA, BLOBS, DELETIONS, TRANSACTIONS, INDICES, VERSIONS)
BLOB_SUFFIX = ".blob"
_SUFFIXES = {
    DATA: ("lance",),
    BLOBS: ("blob",),
    DELETIONS: ("arrow", "bin"),
    TRANSACTIONS: ("txn",),
}
_STAGING = ".tmp"
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


def read_manifests(
    store: ObjectStore, locations: Sequence[ManifestLocation]
) -> Iterator[ManifestFile]:
    """Read manifests in order, and skip those that were removed."""
    return read_consecutive_manifests(store, locations, with_indices=True, skip_removed=True)


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


def paths_used_by(file: ManifestFile, fragments: Iterable[Fragment] | None = None) -> Iterator[str]:
    """Yield the files of a version, relative to any root: their names are unique.

    Includes data files that have only lineage columns. Blob objects are not included: see
    ``blob_objects``.

    ``fragments``: those whose files are yielded; None for all.
    """
    yield f"{TRANSACTIONS}/{file.manifest.transaction_file}"
    for index in file.indices:
        yield f"{INDICES}/{index.uuid}"
    for fragment in file.manifest.fragments if fragments is None else fragments:
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


@dataclass(frozen=True, slots=True)
class BlobObject:
    """An object of a table that contains blobs."""

    base_id: int | None  # The base path that it is below; None for the root of the table.
    path: str


def blob_objects(
    files: TableFiles, manifest: Manifest, fragment: Fragment, deleted: DeletionVector | None
) -> dict[BlobObject, int]:
    """Return the objects that live rows of a fragment refer to, and their minimum sizes."""
    ends: dict[BlobObject, int] = {}
    for file in fragment.files:
        stored = (_stored_blobs(column, set(file.fields)) for column in manifest.schema.fields)
        fields = [column for column in stored if column is not None]
        if not fields:
            continue
        for descriptors in _descriptors(files, file, fields, deleted):
            for name, end in _ends(descriptors, file.base_id):
                ends[name] = max(end, ends.get(name, 0))
    return ends


@dataclass(slots=True)
class BlobReferences:
    """Blob objects that versions refer to; each file is read once.

    ``tables``: root -> table whose manifests are listed.
    """

    tables: Mapping[str, Table]
    _known: dict[object, frozenset[str]] = field(default_factory=dict)

    def used_by(self, root: str, file: ManifestFile, *, is_needed: bool = True) -> Iterator[str]:
        """Yield paths of objects, relative to any root: their names are unique.

        ``root``: of the manifest's path. ``is_needed``: False for a version to be removed, whose
        files may be missing.
        """
        manifest = file.manifest
        if not manifest.reader_flags & MANAGED_BLOBS:
            return
        table = self.tables[root]
        line = file.location.path.rpartition(f"{VERSIONS}/")[0]
        if line:
            table = table.on_branch(line.removeprefix(f"{TREE}/").rstrip("/"))
        files = TableFiles(table, manifest.base_paths).opened()
        for fragment in manifest.fragments:
            key = (table.uri, manifest.base_paths, fragment.files, fragment.deletion_file)
            if key not in self._known:
                try:
                    self._known[key] = _paths(files, manifest, fragment)
                except MissingFileError:
                    # A concurrent cleanup may have removed the version.
                    if is_needed and table.store().exists(file.location.path.removeprefix(line)):
                        raise
                    continue
            yield from self._known[key]


def _paths(files: TableFiles, manifest: Manifest, fragment: Fragment) -> frozenset[str]:
    stable = manifest.uses_stable_row_ids
    deleted = load_deletion_vector(files, fragment, stable_row_ids=stable)
    return frozenset(one.path for one in blob_objects(files, manifest, fragment, deleted))


def _stored_blobs(column: Field, stored: set[int]) -> Field | None:
    """Prune a column to its stored blobs, as descriptors."""
    if column.is_blob_v2:
        return blob_as_descriptor(column) if column.id in stored else None
    if column.is_packed or column.is_map:  # without blobs
        return None
    children = (_stored_blobs(child, stored) for child in column.children)
    present = tuple(child for child in children if child is not None)
    return replace(column, children=present) if present else None


def _descriptors(
    files: TableFiles, file: DataFile, fields: list[Field], deleted: DeletionVector | None
) -> Iterator[pa.StructArray]:
    store, path = files.locate(file)
    try:
        reader = DataFileReader.open(store, path, size_bytes=file.size_bytes or None)
    except FileNotFoundError as error:
        raise MissingFileError(
            "a data file is missing, so the blobs of its rows are unknown",
            where=f"{store.uri}/{path}",
            hint="restore the file from a copy, or restore an older version",
        ) from error
    column_of = dict(zip(file.fields, file.column_indices, strict=True))
    row = 0
    for batch in reader.read_batches(fields, column_of):
        end = row + batch.num_rows
        if deleted is not None:
            batch = batch.filter(pa.array(deleted.keep_mask(row, end)))
        row = end
        for column, own in zip(batch.columns, fields, strict=True):
            yield from _parts(column, own)


def _parts(array: pa.Array, column: Field) -> Iterator[pa.StructArray]:
    """Yield the descriptors in a column, at any depth."""
    if is_blob_descriptor(column):
        yield array
        return
    below = array.flatten()
    for part, child in zip(below if column.is_struct else [below], column.children, strict=True):
        yield from _parts(part, child)


def _ends(array: pa.StructArray, base_id: int | None) -> Iterator[tuple[BlobObject, int]]:
    """Yield for each referenced object the end of its last blob."""
    array = array.drop_null()
    kinds = np.asarray(pc.struct_field(array, "kind"))
    array = array.filter(pa.array((kinds == MANAGED) | (kinds == MANAGED_IN_BASE)))
    names = ("kind", "blob_id", "blob_uri", "position", "size")
    parts = pa.table({name: pc.struct_field(array, name) for name in names})
    ends = pc.add(parts["position"], parts["size"])
    grouped = parts.append_column("end", ends).group_by(list(names[:3])).aggregate([("end", "max")])
    for one in grouped.to_pylist():
        base = base_id if one["kind"] == MANAGED else one["blob_id"]
        yield BlobObject(base, one["blob_uri"]), one["end_max"]

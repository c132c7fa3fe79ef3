"""Find the objects with the blobs of live rows by reading the files of a version.

Rows keep their reference to an object when they move, so neither a manifest nor the name of a data
file shows which objects are used.

Source: docs/format/file-format.md, section 9.1; docs/format/table-format.md, section 11.2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.datafile.blob_values import MANAGED, MANAGED_IN_BASE
from pyspark_lance.datafile.reader import DataFileReader
from pyspark_lance.errors import MissingFileError
from pyspark_lance.format.data_file import DataFile
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.feature_flags import MANAGED_BLOBS
from pyspark_lance.format.field import Field
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.logical_view import blob_as_descriptor, is_blob_descriptor
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.metafile.paths import TREE, VERSIONS
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.version.table_files import TableFiles


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
    """Finds the blob objects of versions; each file is read once.

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

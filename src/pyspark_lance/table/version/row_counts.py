"""Repair missing or wrong row counts of a manifest.

Releases of Lance before 0.8 recorded neither the rows of a fragment nor the number of deleted rows;
0.8.0 recorded live rows as physical rows. None of them recorded the writer, so counts without a
writer are not trusted. Releases 0.22 to 0.29 counted deleted rows that do not exist.

Source: docs/format/table-format.md, sections 2.2, 4.1, 5.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.table.version.deletion_vectors import load_deletion_vector, rows_of_file
from pyspark_lance.table.version.table_files import TableFiles

_PARALLEL_READS = 16
_MISCOUNTING_RELEASES = tuple(f"0.{minor}." for minor in range(22, 30))


def with_row_counts(file: ManifestFile, files: TableFiles) -> ManifestFile:
    """Return the manifest with unknown row counts read from the files."""
    manifest = file.manifest
    fragments, columns = manifest.fragments, manifest.fragments.columns
    trusted = manifest.writer_version is not None
    # Check the manifest first, since accessing a fragment decodes it.
    uncounted = columns.has_deletions & ((columns.num_deleted_rows == 0) | _miscounts(manifest))
    doubtful = uncounted | (columns.physical_rows == 0) | (not trusted)
    unknown = [
        index
        for index in np.flatnonzero(doubtful).tolist()
        if _is_unknown(manifest, fragments[index])
    ]
    if not unknown:
        return file
    counted = list(fragments)
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = pool.map(lambda index: _count_rows(files, fragments[index], trusted), unknown)
        for index, fragment in zip(unknown, found, strict=True):
            counted[index] = fragment
    return replace(file, manifest=replace(manifest, fragments=Fragments.of(counted)))


def _is_unknown(manifest: Manifest, fragment: Fragment) -> bool:
    writer, deletions = manifest.writer_version, fragment.deletion_file
    if writer is None or not fragment.physical_rows:
        return bool(fragment.files)
    if deletions is None:
        return False
    is_miscounted = fragment.row_ids is not None and _miscounts(manifest)
    return not deletions.num_deleted_rows or is_miscounted


def _miscounts(manifest: Manifest) -> bool:
    """Return whether the writer counted deleted rows that do not exist."""
    writer = manifest.writer_version
    return writer is not None and writer.version.startswith(_MISCOUNTING_RELEASES)


def _count_rows(files: TableFiles, fragment: Fragment, trusted: bool) -> Fragment:
    if not trusted or not fragment.physical_rows:
        fragment = replace(fragment, physical_rows=rows_of_file(files, fragment) or 0)
    deletions = fragment.deletion_file
    if deletions is None:
        return fragment
    stated = deletions.num_deleted_rows if trusted else 0
    try:
        vector = load_deletion_vector(
            files,
            replace(fragment, deletion_file=replace(deletions, num_deleted_rows=stated)),
            stable_row_ids=fragment.row_ids is not None,
        )
    except CorruptFileError:
        if stated:
            return fragment  # reading its rows raises the error
        raise
    number = 0 if vector is None else len(vector)
    return replace(fragment, deletion_file=replace(deletions, num_deleted_rows=number))

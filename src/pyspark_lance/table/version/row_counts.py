"""Repair missing or wrong row counts of a manifest.

Releases of Lance before 0.8 recorded neither the rows of a fragment nor the number of deleted rows;
0.8.0 recorded live rows as physical rows. None of them recorded the writer, so counts without a
writer are not trusted. Releases 0.22 to 0.29 counted deleted rows that do not exist.

Source: docs/format/table-format.md, sections 2.2, 4.1, 5.

Load the deleted rows of a fragment, inline or from a deletion file.

Verify large row counts of a manifest with the data file before allocating memory.

A tiny manifest can claim four billion rows, with consistent row ids, versions and deleted rows.
Masks, row ids and versions take memory proportional to that number, so a large one must equal the
row count of a data file.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Final

import numpy as np

from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.fragments import Fragments
from pyspark_lance.format.manifest import Manifest
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.metafile.manifest_file import ManifestFile
from pyspark_lance.table.version.table_files import TableFiles

"""Larger row counts of a fragment are verified with a data file."""


_PARALLEL_READS = 16
_MISCOUNTING = tuple(f"0.{minor}." for minor in range(22, 30))


def with_row_counts(file: ManifestFile, files: TableFiles) -> ManifestFile:
    """Return the manifest with unknown row counts read from the files."""
    manifest = file.manifest
    fragments, columns = manifest.fragments, manifest.fragments.columns
    trusted = manifest.writer_version is not None
    # Check the manifest first, since accessing a fragment decodes it.
    uncounted = columns.has_deletions & ((columns.num_deleted_rows == 0) | _miscounts(manifest))
    doubtful = uncounted | (columns.physical_rows == 0) | (not trusted)
    unknown = [
        place
        for place in np.flatnonzero(doubtful).tolist()
        if _is_unknown(manifest, fragments[place])
    ]
    if not unknown:
        return file
    counted = list(fragments)
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        found = pool.map(lambda place: _counted(files, fragments[place], trusted), unknown)
        for place, fragment in zip(unknown, found, strict=True):
            counted[place] = fragment
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
    return writer is not None and writer.version.startswith(_MISCOUNTING)


def _counted(files: TableFiles, fragment: Fragment, trusted: bool) -> Fragment:
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


def load_deletion_vector(
    files: TableFiles, fragment: Fragment, *, stable_row_ids: bool, may_be_known: bool = True
) -> DeletionVector | None:
    """Return the deleted offsets of ``fragment``; None without any.

    ``may_be_known``: False bypasses the cache.
    """
    deletion_file = fragment.deletion_file
    if deletion_file is None:
        return None
    # A bitmap of all rows of a fragment is tiny, but its array is large.
    if not 0 < deletion_file.num_deleted_rows <= TRUSTED_ROWS:
        confirm_row_count(files, fragment)
    store = files.store_of(deletion_file.base_id)
    try:
        return read_deletion_file(
            store,
            fragment.id,
            deletion_file,
            fragment.physical_rows,
            may_exceed=stable_row_ids,
            may_be_known=may_be_known,
        )
    except FileNotFoundError as error:
        raise MissingFileError(
            f"the deletion file of fragment {fragment.id} is missing",
            where=store.uri,
            hint="it may have been cleaned up; read a newer version",
        ) from error


# The default maximum rows of a fragment in Lance; eight megabytes of row ids.
TRUSTED_ROWS: Final = 1 << 20
"""Larger row counts of a fragment are verified with a data file."""


def confirm_row_count(files: TableFiles, fragment: Fragment) -> None:
    """Compare a large row count with that of the first data file.

    Raises CorruptFileError: they differ, or there is no data file.
    """
    if fragment.physical_rows <= TRUSTED_ROWS:
        return
    check_row_count(fragment, rows_of_file(files, fragment), files.table.uri)


def rows_of_file(files: TableFiles, fragment: Fragment) -> int | None:
    """Return the row count of the first data file of a fragment; None without a data file."""
    if not fragment.files:
        return None
    # Imported lazily: most tables have no such fragment.
    from pyspark_lance.datafile.reader import DataFileReader

    store, path = files.locate(fragment.files[0])
    try:
        return DataFileReader.open(store, path).num_rows
    except FileNotFoundError as error:
        raise MissingFileError(
            f"a data file of fragment {fragment.id} is missing", f"{store.uri}/{path}"
        ) from error


def check_row_count(fragment: Fragment, num_rows: int | None, where: str) -> None:
    """Raise CorruptFileError if a data file of a fragment does not have as many rows as stated."""
    if num_rows is None:
        raise CorruptFileError(
            f"fragment {fragment.id} has {fragment.physical_rows} rows, but no data file", where
        )
    if num_rows != fragment.physical_rows:
        raise CorruptFileError(
            f"fragment {fragment.id} has {fragment.physical_rows} rows, "
            f"but its data file has {num_rows}",
            where,
        )

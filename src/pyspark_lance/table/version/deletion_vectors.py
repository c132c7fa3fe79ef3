"""Load the deleted rows of a fragment, inline or from a deletion file.

A tiny manifest can claim four billion rows, with consistent row ids, versions and deleted rows.
Masks, row ids and versions take memory proportional to that number, so a large one is verified
with the row count of a data file first.
"""

from __future__ import annotations

from typing import Final

from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.table.version.table_files import TableFiles


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
    from pyspark_lance.datafile.reader import DataFileReader  # noqa: PLC0415

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

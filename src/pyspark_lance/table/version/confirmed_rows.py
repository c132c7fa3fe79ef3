"""Row counts of a manifest that are compared with the data file before memory is reserved for them.

A manifest of some hundred bytes can state four billion rows, with row ids, versions and deleted
rows to match.  Masks, row ids and versions take memory by that number, so a large one has to be
the number of a data file, too.
"""

from __future__ import annotations

from typing import Final

from pyspark_lance.errors import CorruptFileError, MissingFileError
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.table.version.table_files import TableFiles

# As many as Lance writes into a fragment unless it is asked for more; eight megabytes of row ids.
TRUSTED_ROWS: Final = 1 << 20
"""So many rows of a fragment are taken from its manifest; more are compared with a data file."""


def confirm_row_count(files: TableFiles, fragment: Fragment) -> None:
    """Compare a large number of rows with that of the first data file.

    Raises CorruptFileError: they differ, or there is no data file.
    """
    if fragment.physical_rows <= TRUSTED_ROWS:
        return
    check_row_count(fragment, rows_of_file(files, fragment), files.table.uri)


def rows_of_file(files: TableFiles, fragment: Fragment) -> int | None:
    """The rows of the first data file of a fragment; None if it has none."""
    if not fragment.files:
        return None
    # Most tables have no such fragment, and need no data file to be opened, nor the code for it.
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

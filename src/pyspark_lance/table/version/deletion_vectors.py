"""Load the deleted rows of a fragment, inline or from a deletion file."""

from __future__ import annotations

from pyspark_lance.errors import MissingFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.metafile.deletion_file import read_deletion_file
from pyspark_lance.table.version.confirmed_rows import TRUSTED_ROWS, confirm_row_count
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

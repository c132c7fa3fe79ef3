"""A folder of tables, each in a folder ``<name>.lance``: list, drop and rename.

This is the layout of Lance's own directory catalog.
"""

from __future__ import annotations

import os
import shutil
import stat

from pyspark_lance.errors import (
    InvalidInputError,
    StorageError,
    TableAlreadyExistsError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from pyspark_lance.metafile.manifest_file import latest_version
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.store.local_store import retry_stale_handles
from pyspark_lance.store.open_store import split_uri
from pyspark_lance.table.version.table import Table

SUFFIX = ".lance"


def list_tables(parent: Table) -> list[str]:
    """List the names of the tables below a folder; needs a full listing of an object store."""
    scheme, folder = split_uri(parent.uri)
    if scheme == "file":
        folders = [name for name in _names_in(folder) if _is_table(os.path.join(folder, name))]
    else:
        parts = (info.path.split("/", 2) for info in parent.store().list(""))
        folders = list({part[0] for part in parts if len(part) == 3 and part[1] == VERSIONS})
    return sorted(name.removesuffix(SUFFIX) for name in folders if name.endswith(SUFFIX))


def _names_in(folder: str) -> list[str]:
    try:
        return retry_stale_handles(lambda: os.listdir(folder))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_table(folder: str) -> bool:
    try:
        status = retry_stale_handles(lambda: os.stat(os.path.join(folder, VERSIONS)))
    except (FileNotFoundError, NotADirectoryError):
        return False  # or removed concurrently
    return stat.S_ISDIR(status.st_mode)


def drop_table(table: Table) -> bool:
    """Remove a table with all its versions; returns whether there was one."""
    store = table.store()
    if latest_version(store) is None:
        return False
    scheme, folder = split_uri(table.uri)
    # Remove manifests first, so that an interrupted drop leaves no table.
    names = [info.path for info in store.list("")]
    store.delete_many([name for name in names if name.startswith(f"{VERSIONS}/")])
    store.delete_many([name for name in names if not name.startswith(f"{VERSIONS}/")])
    if scheme == "file":
        shutil.rmtree(folder, ignore_errors=True)
    return True


def rename_table(table: Table, new_uri: str) -> None:
    """Move a table of a local folder."""
    (scheme, folder), (new_scheme, new_folder) = split_uri(table.uri), split_uri(new_uri)
    if "file" not in (scheme, new_scheme) or scheme != new_scheme:
        raise UnsupportedFeatureError(
            "an object store cannot rename a table in one step",
            where=table.uri,
            hint="copy the table",
        )
    if latest_version(table.store()) is None:
        raise TableNotFoundError("there is no Lance table here", where=table.uri)
    if os.path.exists(new_folder):
        raise TableAlreadyExistsError("the new name is taken", where=new_uri)
    if not os.path.isdir(os.path.dirname(new_folder)):
        raise InvalidInputError("the new name lies in a folder that does not exist", where=new_uri)
    try:
        os.rename(folder, new_folder)
    except OSError as error:
        raise StorageError(
            f"the table cannot be renamed: {error.strerror}", where=table.uri
        ) from error

"""Suggest paths for a table that was not found."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
from collections.abc import Iterator
from itertools import islice

from pyspark_lance.errors import TableNotFoundError, VersionNotFoundError
from pyspark_lance.metafile.paths import VERSIONS
from pyspark_lance.store.open_store import split_uri
from pyspark_lance.table.version.table import Table

_LOOKED_AT = 1000
# Delta Lake syntax: a version, or a timestamp of 17 digits.
_VERSION_BEHIND = re.compile(r"(.+)@(?:v(\d+)|\d{17})")
_SHOWN = 3
# By file suffix.
_OTHER_FORMATS = ("Parquet", "ORC", "Avro", "CSV", "JSON")


@contextlib.contextmanager
def suggest_paths(table: Table) -> Iterator[None]:
    """Add a hint with similar paths to a TableNotFoundError."""
    try:
        yield
    except VersionNotFoundError:
        raise
    except TableNotFoundError as error:
        hint = _hint(table)
        if hint is None:
            raise
        raise TableNotFoundError(error.what, error.where, hint) from None


def _hint(table: Table) -> str | None:
    at = _VERSION_BEHIND.fullmatch(table.uri)
    if at is not None:
        name, value = ("versionAsOf", at[2]) if at[2] else ("timestampAsOf", "…")
        return f"the version is an option: {name} = {value}, with the path {at[1]}"
    if any(sign in table.uri for sign in "*?["):
        return "a path is that of one table; patterns such as * are not expanded"
    near = path_suggestions(table)
    if near:
        return f"did you mean {' or '.join(near)}?"
    scheme, folder = split_uri(table.uri)
    if scheme != "file":
        return None
    if os.path.isfile(folder):
        return "a table is a folder, and this is a file"
    other = _other_format(folder)
    if other is not None:
        return f"the folder holds {other} files: spark.read.format({other.lower()!r}) reads them"
    parent = os.path.dirname(folder.rstrip("/"))
    if os.path.isdir(parent):
        return None
    return f"check the path: there is no folder {parent} either"


def _other_format(folder: str) -> str | None:
    """Return the format of the first files in a folder."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        names = [entry.name for entry in islice(entries, _LOOKED_AT)]
        for of_its_own, name in (("_delta_log", "Delta"), ("metadata", "Iceberg")):
            if of_its_own in names:
                return name
        endings = {name.rpartition(".")[2].lower() for name in names}
        return next((name for name in _OTHER_FORMATS if name.lower() in endings), None)
    return None


def path_suggestions(table: Table) -> list[str]:
    """Return paths of tables in parents, children and siblings with a similar name.

    Only for local file systems, since listing an object store may be slow.
    """
    scheme, folder = split_uri(table.uri)
    if scheme != "file":
        return []
    folder = folder.rstrip("/")
    parent, name = os.path.split(folder)
    if _is_table(parent):
        return [parent]
    inside = [one for one in _folders(folder) if _is_table(one)]
    beside = {os.path.basename(one).lower(): one for one in _folders(parent)}
    like = difflib.get_close_matches(name.lower(), beside, n=len(beside) or 1)
    return [*inside, *(beside[one] for one in like if _is_table(beside[one]))][:_SHOWN]


def _folders(parent: str) -> list[str]:
    """Return some subfolders of a folder; none if it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        return sorted(one.path for one in islice(entries, _LOOKED_AT) if one.is_dir())
    return []


def _is_table(folder: str) -> bool:
    return os.path.isdir(os.path.join(folder, VERSIONS))

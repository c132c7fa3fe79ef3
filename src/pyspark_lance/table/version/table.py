"""Table: the location and storage options of a table."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

from pyspark_lance.errors import InvalidInputError, TableNotFoundError, VersionNotFoundError
from pyspark_lance.metafile.external_commits import open_table_store, split_manifest_store_uri
from pyspark_lance.metafile.paths import TREE, VERSIONS, is_branch_name
from pyspark_lance.store.hadoop_options import absolute_path
from pyspark_lance.store.object_store import ObjectStore
from pyspark_lance.store.open_store import split_uri
from pyspark_lance.store.storage_options import mask_options, unmask_options

MAIN = "main"


class TableKey(NamedTuple):
    """Cache key of a table or branch.

    Two servers may have tables with the same URI, and two users may have different permissions.
    """

    server: str  # See ``ObjectStore.server``.
    root: str
    branch: str | None
    credentials: str  # A hash of all storage options; '' if there are none.


@dataclass(frozen=True, slots=True)
class Table:
    """A table or one of its branches; picklable, since it has no clients."""

    # Absolute path or URI of the table: processes that run its tasks, such as workers of Spark
    # Connect, may have another working directory. The URI of a table with an external manifest
    # store is split into the root of its files and an option.
    root: str
    # Storage options; secret, never shown, and masked in pickles.
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str | None = None  # Name of a branch; None for the main branch.

    def __post_init__(self) -> None:
        """Normalize root and options, and the branch ``main`` to None."""
        root, storage = split_manifest_store_uri(self.root, self.storage)
        object.__setattr__(self, "root", absolute_path(root))
        object.__setattr__(self, "storage", dict(storage))
        if self.branch == MAIN:
            object.__setattr__(self, "branch", None)
        if self.branch is not None and not is_branch_name(self.branch):
            raise InvalidInputError(f"{self.branch!r} is not the name of a branch")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore_table, (self.root, mask_options(self.storage), self.branch)

    @property
    def uri(self) -> str:
        """Root of the files of the table or branch."""
        return branch_root(self.root, self.branch)

    def store(self) -> ObjectStore:
        """Return the store at ``uri``."""
        return open_table_store(self.uri, self.storage)

    def key(self, store: ObjectStore | None = None) -> TableKey:
        """Return the cache key of the table; ``store``: of ``store()``, if already open."""
        server = (store or self.store()).server
        return TableKey(server, self.root, self.branch, _digest(self.storage))

    def on_branch(self, branch: str | None) -> Table:
        """Return the same table on another branch; None for the main branch."""
        return replace(self, branch=branch)


def _digest(storage: Mapping[str, str]) -> str:
    if not storage:
        return ""
    text = repr(sorted(storage.items()))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _restore_table(root: str, storage: bytes, branch: str | None) -> Table:
    return Table(root, unmask_options(storage), branch)


def branch_root(root: str, branch: str | None) -> str:
    """Return the root of a branch of the table at ``root``; None for the main branch."""
    return root if branch is None else f"{root.rstrip('/')}/{TREE}/{branch}"


def main_branch_of(table: Table, branch: str | None) -> Table:
    """Return the main branch of a table, also if ``table`` was opened by the path of a branch."""
    if table.branch is None and branch is not None:
        root = table.root.rstrip("/").removesuffix(f"/{TREE}/{branch}")
        return replace(table, root=root)
    return table.on_branch(None)


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
        for marker, name in (("_delta_log", "Delta"), ("metadata", "Iceberg")):
            if marker in names:
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
    if _looks_like_table(parent):
        return [parent]
    inside = [one for one in _folders(folder) if _looks_like_table(one)]
    beside = {os.path.basename(one).lower(): one for one in _folders(parent)}
    like = difflib.get_close_matches(name.lower(), beside, n=len(beside) or 1)
    return [*inside, *(beside[one] for one in like if _looks_like_table(beside[one]))][:_SHOWN]


def _folders(parent: str) -> list[str]:
    """Return some subfolders of a folder; none if it cannot be read."""
    with contextlib.suppress(OSError), os.scandir(parent) as entries:
        return sorted(one.path for one in islice(entries, _LOOKED_AT) if one.is_dir())
    return []


def _looks_like_table(folder: str) -> bool:
    return os.path.isdir(os.path.join(folder, VERSIONS))

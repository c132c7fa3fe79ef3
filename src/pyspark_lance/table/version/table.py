"""Table: the location and storage options of a table."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.metafile.external_commits import open_table_store, split_manifest_store_uri
from pyspark_lance.metafile.paths import TREE, is_branch_name
from pyspark_lance.store.masked_options import mask_options, unmask_options
from pyspark_lance.store.object_store import ObjectStore

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

    # Path or URI of the table. The URI of a table with an external manifest store is split into the
    # root of its files and an option.
    root: str
    # Storage options; secret, never shown, and masked in pickles.
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str | None = None  # Name of a branch; None for the main branch.

    def __post_init__(self) -> None:
        """Takes the options as they are now, and ``main`` for what it is."""
        root, storage = split_manifest_store_uri(self.root, self.storage)
        object.__setattr__(self, "root", root)
        object.__setattr__(self, "storage", dict(storage))
        if self.branch == MAIN:
            object.__setattr__(self, "branch", None)
        if self.branch is not None and not is_branch_name(self.branch):
            raise InvalidInputError(f"{self.branch!r} is not the name of a branch")

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.root, mask_options(self.storage), self.branch)

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


def _restored(root: str, storage: bytes, branch: str | None) -> Table:
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

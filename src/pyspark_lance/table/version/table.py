"""Where a table is and how its store is opened: what every read and write begins with."""

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
    """By which a process remembers things of a table or branch.

    Two servers may have tables of the same URI, and two users may see one table differently.
    """

    server: str  # See ``ObjectStore.server``.
    root: str
    branch: str | None
    credentials: str  # A hash of all storage options; '' if there are none.


@dataclass(frozen=True, slots=True)
class Table:
    """A table, or one of its branches; picklable, since it holds names and no clients."""

    # Path or URI of the table; for its main line all there is to say. That of a table with an
    # external manifest store is kept as the root of its files and an option.
    root: str
    # Storage options; secret, never shown, and masked in pickles.
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    branch: str | None = None  # Name of a branch; None is the main line.

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
        """Root of the files: of the table, or of the branch."""
        return branch_root(self.root, self.branch)

    def store(self) -> ObjectStore:
        """The store at ``uri``."""
        return open_table_store(self.uri, self.storage)

    def key(self, store: ObjectStore | None = None) -> TableKey:
        """The key of what is remembered of the table; ``store``: that of ``store()``, if open."""
        server = (store or self.store()).server
        return TableKey(server, self.root, self.branch, _digest(self.storage))

    def on_branch(self, branch: str | None) -> Table:
        """The same table on another branch; None is the main line."""
        return replace(self, branch=branch)


def _digest(storage: Mapping[str, str]) -> str:
    if not storage:
        return ""
    text = repr(sorted(storage.items()))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _restored(root: str, storage: bytes, branch: str | None) -> Table:
    return Table(root, unmask_options(storage), branch)


def branch_root(root: str, branch: str | None) -> str:
    """Root of a branch of the table at ``root``; None is the main line."""
    return root if branch is None else f"{root.rstrip('/')}/{TREE}/{branch}"


def main_line(table: Table, branch: str | None) -> Table:
    """The table that a branch is one of, also if the branch was opened by its own path."""
    if table.branch is None and branch is not None:
        root = table.root.rstrip("/").removesuffix(f"/{TREE}/{branch}")
        return replace(table, root=root)
    return table.on_branch(None)

"""Namespace: which tables there are, and where they lie.

A name is a tuple of parts, ``("sales", "eu", "orders")``: the namespaces from the outermost one,
and last the table's own.  ``()`` is the root, which always exists.

Source: the Lance namespace specification; docs/format/namespaces.md says what pylance does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.table.version.table import Table

Name = tuple[str, ...]
DELIMITER = "$"
"""Between the parts of a name that is written as one text."""


class Namespace(Protocol):
    """Tables by their names, in namespaces that may lie in each other.

    What does not exist is told by the value that is returned, except for the namespace that
    something is looked for or made in: that is a NamespaceNotFoundError.
    """

    def namespaces(self, parent: Name) -> list[str]:
        """Names of the namespaces in a namespace, without those further down; sorted."""

    def properties(self, namespace: Name) -> Mapping[str, str] | None:
        """What is kept of a namespace; None if there is none."""

    def create_namespace(self, namespace: Name, properties: Mapping[str, str]) -> bool:
        """Makes a namespace; returns whether there was none."""

    def change_properties(self, namespace: Name, changes: Mapping[str, str | None]) -> None:
        """Sets properties of a namespace; those without a value are removed."""

    def drop_namespace(self, namespace: Name, *, cascade: bool) -> bool:
        """Removes a namespace, with ``cascade`` all that is in it, too."""

    def tables(self, namespace: Name) -> list[str]:
        """Names of the tables in a namespace; sorted."""

    def locate(self, name: Name) -> Table | None:
        """The table of this name; None if nothing has it.

        A name that was declared has a place before there is a table.
        """

    def place(self, name: Name, location: str | None = None) -> Table:
        """Where a table of this name is to be made: where it is, if it has a place already."""

    def register(self, name: Name, table: Table) -> None:
        """Gives a table its name, once it is made where ``place`` said."""

    def drop_table(self, name: Name) -> bool:
        """Removes a table with all its versions, and its name; returns whether there was one."""

    def rename_table(self, name: Name, new: Name) -> None:
        """Gives a table another name."""


def object_id(name: Name) -> str:
    """A name as one text."""
    for part in name:
        if not part or part in (".", "..") or any(sign in part for sign in f"{DELIMITER}/\\\0"):
            raise InvalidInputError(
                f"{part!r} cannot be the name of a table or namespace",
                hint=f"leave out {DELIMITER}, slashes and backslashes",
            )
    return DELIMITER.join(name)


def shown(name: Name) -> str:
    """A name for messages."""
    return ".".join(name) or "the root"

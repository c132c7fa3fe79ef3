"""TableIdentity: distinguishes a table from another one that took its place at the same path.

Lance gives a table no identity, and version numbers start again when a table is dropped and
created again.  So what remembers a version number also remembers what cannot come back: the commit
time and the transaction of that version, and those of version 1 where they were read.  An
overwrite, ``CREATE OR REPLACE`` and ``restore`` add versions, and leave these as they were.

If a cleanup removed the remembered version, version 1 decides; if that is unknown as well, the
table counts as the same one, unless its newest version is below the remembered one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark_lance.commit.base_version import stamp_of
from pyspark_lance.errors import TableReplacedError
from pyspark_lance.format.manifest import Manifest


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """A version that something remembers, and its stamps."""

    version: int
    stamp: str  # Of the version, see ``stamp_of``; '' if it is not known.
    first: str = ""  # Of version 1; '' if it was removed, or not read.

    @classmethod
    def of(cls, manifest: Manifest, first: str = "") -> TableIdentity:
        """The identity of the table that a version belongs to."""
        stamp = stamp_of(manifest.timestamp_ns, manifest.transaction_file)
        return cls(manifest.version, stamp, stamp if manifest.version == 1 else first)

    def check(self, found: Manifest, uri: str, hint: str = "") -> None:
        """Raise ``TableReplacedError`` if a version belongs to another table.

        Args:
            found: The version that is remembered, or version 1; others say nothing.
            uri: Where it was found.
            hint: What the reader of the message can do; '' for reading it again.
        """
        expected = {1: self.first, self.version: self.stamp}.get(found.version)
        if expected and expected != TableIdentity.of(found).stamp:
            raise table_replaced(self.version, uri, hint)

    def check_newest(self, newest: int, uri: str, hint: str = "") -> None:
        """Raise ``TableReplacedError`` if the table has not even reached the version.

        Args:
            newest: Its newest version.
            uri: Where it was found.
            hint: What the reader of the message can do; '' for reading it again.
        """
        if newest < self.version:
            raise table_replaced(self.version, uri, hint, newest)


class PinnedVersion(NamedTuple):
    """The version that a query reads, decided once."""

    uri: str  # Root of the table or branch.
    version: int
    stamp: str = ""  # Of the version; '' if it is not known.


def table_replaced(
    version: int, uri: str, hint: str, newest: int | None = None
) -> TableReplacedError:
    """The error for a table that is not the one whose version is remembered."""
    found = "that version is another one now" if newest is None else f"the newest is {newest} now"
    return TableReplacedError(
        f"the table was replaced by another one since its version {version} was read: {found}",
        where=uri,
        hint=hint,
    )

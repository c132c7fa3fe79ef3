"""TableIdentity: distinguish a table from its replacement at the same path.

Lance tables have no UUID, and version numbers restart when a table is dropped and created again. So
a reference to a version number also stores the commit time and the transaction of that version, and
those of version 1 if read. An overwrite, ``CREATE OR REPLACE`` and ``restore`` add versions and
keep these.

If a cleanup removed the referenced version, version 1 is compared; if that is unknown as well, the
table is considered the same, unless its newest version is lower than the referenced one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pyspark_lance.commit.base_version import stamp_of
from pyspark_lance.errors import TableReplacedError
from pyspark_lance.format.manifest import Manifest


@dataclass(frozen=True, slots=True)
class TableIdentity:
    """A referenced version and its stamps."""

    version: int
    stamp: str  # Of the version, see ``stamp_of``; '' if unknown.
    first: str = ""  # Of version 1; '' if it was removed, or not read.

    @classmethod
    def of(cls, manifest: Manifest, first: str = "") -> TableIdentity:
        """Return the identity of the table of a version."""
        stamp = stamp_of(manifest.timestamp_ns, manifest.transaction_file)
        return cls(manifest.version, stamp, stamp if manifest.version == 1 else first)

    def check(self, found: Manifest, uri: str, hint: str = "") -> None:
        """Raise ``TableReplacedError`` if a version belongs to another table.

        Args:
            found: The referenced version, or version 1; other versions are ignored.
            uri: Where it was found.
            hint: What the user can do; '' for reading it again.
        """
        expected = {1: self.first, self.version: self.stamp}.get(found.version)
        if expected and expected != TableIdentity.of(found).stamp:
            raise table_replaced(self.version, uri, hint)

    def check_newest(self, newest: int, uri: str, hint: str = "") -> None:
        """Raise ``TableReplacedError`` if the newest version is lower than this version.

        Args:
            newest: Its newest version.
            uri: Where it was found.
            hint: What the user can do; '' for reading it again.
        """
        if newest < self.version:
            raise table_replaced(self.version, uri, hint, newest)


class PinnedVersion(NamedTuple):
    """The version that a query reads, resolved once."""

    uri: str  # Root of the table or branch.
    version: int
    stamp: str = ""  # Of the version; '' if unknown.


def table_replaced(
    version: int, uri: str, hint: str, newest: int | None = None
) -> TableReplacedError:
    """Return the error for a table that was replaced."""
    found = "that version is another one now" if newest is None else f"the newest is {newest} now"
    return TableReplacedError(
        f"the table was replaced by another one since its version {version} was read: {found}",
        where=uri,
        hint=hint,
    )

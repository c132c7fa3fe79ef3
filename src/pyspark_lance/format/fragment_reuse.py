"""Fragment reuse index: where compactions moved rows, for indices with old addresses.

The index entry ``__lance_frag_reuse`` of a table has one version per compaction, oldest first, and
in it one group per set of fragments that were rewritten together.  The addresses of a group are
those that its rows had before, ascending; the k-th of them is now the k-th row of the concatenated
new fragments.  Addresses of old fragments that are not among them were deleted.

Source: docs/format/table-format.md, section 10.7; protos/table.proto, message
FragmentReuseIndexDetails.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from pyroaring import BitMap

from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.format.wire import parse_message
from pyspark_lance.proto import table_pb2

# Row addresses from indices are translated through this entry.
FRAGMENT_REUSE_INDEX: Final = "__lance_frag_reuse"
FRAGMENT_REUSE_DETAILS: Final = "/lance.table.FragmentReuseIndexDetails"

_Details = table_pb2.FragmentReuseIndexDetails


@dataclass(frozen=True, slots=True)
class FragmentDigest:
    """Recorded properties of a fragment."""

    id: int
    physical_rows: int
    num_deleted_rows: int

    @classmethod
    def of(cls, fragment: Fragment) -> FragmentDigest:
        """Return the digest of a fragment."""
        return cls(fragment.id, fragment.physical_rows, fragment.num_deleted_rows)


@dataclass(frozen=True, slots=True)
class ReuseGroup:
    """Fragments that were rewritten together."""

    row_addresses: bytes  # Old addresses of the moved rows, a 64-bit Roaring bitmap.
    old_fragments: tuple[FragmentDigest, ...]  # Their old location.
    new_fragments: tuple[FragmentDigest, ...]  # Their new location.

    @property
    def old_ids(self) -> frozenset[int]:
        """Ids of the removed fragments."""
        return frozenset(fragment.id for fragment in self.old_fragments)

    @property
    def new_ids(self) -> frozenset[int]:
        """Ids of the fragments that replaced them."""
        return frozenset(fragment.id for fragment in self.new_fragments)


@dataclass(frozen=True, slots=True)
class ReuseVersion:
    """One compaction.

    ``dataset_version``: the version that it was based on; ``groups``: independent of each other.
    """

    dataset_version: int
    groups: tuple[ReuseGroup, ...]


ReuseVersions: TypeAlias = tuple[ReuseVersion, ...]


def versions_from_bytes(data: bytes) -> ReuseVersions:
    """Decode an InlineContent message."""
    return _versions(parse_message(_Details.InlineContent, data))


def versions_to_bytes(versions: Iterable[ReuseVersion]) -> bytes:
    """The serialized InlineContent message."""
    content = _Details.InlineContent()
    for version in versions:
        target = content.versions.add(dataset_version=version.dataset_version)
        for group in version.groups:
            entry = target.groups.add(changed_row_addrs=group.row_addresses)
            for digests, fragments in (
                (group.old_fragments, entry.old_fragments),
                (group.new_fragments, entry.new_fragments),
            ):
                for digest in digests:
                    fragments.add(
                        id=digest.id,
                        physical_rows=digest.physical_rows,
                        num_deleted_rows=digest.num_deleted_rows,
                    )
    return content.SerializeToString()


@dataclass(frozen=True, slots=True)
class ReuseDetails:
    """Inline details of an entry, or their location."""

    versions: ReuseVersions | None  # Oldest first; None if they are in a file.
    file: str = ""  # The file's name in the directory of the index; '' if there is none.
    start: int = 0  # Position in the file.
    size: int = 0  # Number of bytes.

    @classmethod
    def of(cls, index: IndexMetadata) -> ReuseDetails:
        """The details of an entry."""
        message = parse_message(table_pb2.IndexMetadata, index.raw)
        details = parse_message(_Details, message.index_details.value)
        if details.WhichOneof("content") == "external":
            place = details.external
            return cls(None, place.path, place.offset, place.size)
        return cls(_versions(details.inline))

    def to_bytes(self) -> bytes:
        """The serialized FragmentReuseIndexDetails message."""
        if self.versions is None:
            place = table_pb2.ExternalFile(path=self.file, offset=self.start, size=self.size)
            return _Details(external=place).SerializeToString()
        content = _Details.InlineContent.FromString(versions_to_bytes(self.versions))
        return _Details(inline=content).SerializeToString()


def reuse_index_of(indices: Iterable[IndexMetadata]) -> IndexMetadata | None:
    """Return the entry if it exists."""
    return next((index for index in indices if index.name == FRAGMENT_REUSE_INDEX), None)


def current_coverage(bitmap: BitMap, versions: Iterable[ReuseVersion]) -> BitMap:
    """Return the coverage of an index whose bitmap may be older than some of the compactions.

    An index that covers all old fragments of a group covers the new ones; one that covers only some
    of them covers none.
    """
    covered = BitMap(bitmap)
    for version in versions:
        for group in version.groups:
            known = [fragment_id in covered for fragment_id in group.old_ids]
            if any(known):
                covered -= BitMap(group.old_ids)
                if all(known):
                    covered |= BitMap(group.new_ids)
    return covered


def addresses_of_live_rows(
    fragments: Sequence[Fragment], deleted: Sequence[DeletionVector | None]
) -> bytes:
    """The addresses of all live rows as a 64-bit Roaring bitmap in the portable format.

    ``fragments``: with ascending ids; ``deleted``: the deleted rows of each.
    """
    parts = []
    for fragment, vector in zip(fragments, deleted, strict=True):
        rows = BitMap(range(fragment.physical_rows))
        if vector is not None:
            rows -= vector.bitmap
        if rows:
            rows.run_optimize()
            parts.append(struct.pack("<I", fragment.id) + rows.serialize())
    return struct.pack("<Q", len(parts)) + b"".join(parts)


def _versions(content: _Details.InlineContent) -> ReuseVersions:
    return tuple(
        ReuseVersion(
            version.dataset_version,
            tuple(
                ReuseGroup(
                    bytes(group.changed_row_addrs),
                    tuple(map(_digest, group.old_fragments)),
                    tuple(map(_digest, group.new_fragments)),
                )
                for group in version.groups
            ),
        )
        for version in content.versions
    )


def _digest(message: _Details.Fragment) -> FragmentDigest:
    return FragmentDigest(message.id, message.physical_rows, message.num_deleted_rows)

"""IndexMetadata: one index entry, preserved byte for byte; and the fragment reuse index.

Writers must keep the entry of an index of unknown type, unknown fields included, and remove
fragments from its coverage whose indexed values they change.

The fragment reuse index, entry ``__lance_frag_reuse``, shows where compactions moved rows, for
indices with old addresses. It has one version per compaction, oldest first, and in it one group per
set of fragments that were rewritten together. The addresses of a group are those that its rows had
before, ascending; the k-th of them is now the k-th row of the concatenated new fragments. Addresses
of old fragments that are not among them were deleted.

Source: docs/format/table-format.md, sections 10.6 and 10.7; protos/table.proto, messages
IndexMetadata and FragmentReuseIndexDetails.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias
from uuid import UUID

from pyroaring import BitMap

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionVector
from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.wire import LENGTH_DELIMITED, length_delimited, parse_message, wire_fields
from pyspark_lance.proto import table_pb2

_INDICES_FIELD: Final = 1
_BITMAP_FIELD: Final = 5
_BASE_ID_FIELD: Final = 9


@dataclass(frozen=True, slots=True)
class IndexMetadata:
    """One segment of an index."""

    raw: bytes  # The whole serialized message; what is written back.
    uuid: UUID  # Names the directory below ``_indices/``.
    name: str  # Entries of one name are segments of one index.
    fields: tuple[int, ...]  # Ids of the indexed fields; empty for system indices.
    dataset_version: int  # Version the segment was built from.
    # Ids of the covered fragments; None if unknown. Must not be modified.
    fragment_bitmap: BitMap | None
    details_type: str  # Type URL of the kind of index; '' if absent.
    base_id: int | None  # Base path the index lives under; None for the table's own root.
    index_version: int = 0  # Layout version of the kind of index; 0 if absent.
    # File name below the directory -> bytes, as recorded by the writer; older writers record none.
    file_sizes: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def from_bytes(cls, raw: bytes) -> IndexMetadata:
        """Decode a serialized IndexMetadata message."""
        message = parse_message(table_pb2.IndexMetadata, raw)
        if len(message.uuid.uuid) != 16:
            raise CorruptFileError(
                f"the uuid of index {message.name!r} has {len(message.uuid.uuid)} bytes, not 16"
            )
        bitmap = None
        if message.fragment_bitmap:
            bitmap = BitMap(DeletionVector.from_bitmap_bytes(message.fragment_bitmap).bitmap)
        return cls(
            raw=bytes(raw),
            uuid=UUID(bytes=message.uuid.uuid),
            name=message.name,
            fields=tuple(message.fields),
            dataset_version=message.dataset_version,
            fragment_bitmap=bitmap,
            details_type=message.index_details.type_url,
            base_id=message.base_id if message.HasField("base_id") else None,
            index_version=message.index_version,
            file_sizes={file.path: file.size_bytes for file in message.files},
        )

    def with_fragment_bitmap(self, bitmap: BitMap | None) -> IndexMetadata:
        """Return this entry with another coverage; all other bytes are kept.

        ``bitmap``: covered fragment ids; None removes the field, which means "unknown".
        """
        new = b"" if bitmap is None else length_delimited(_BITMAP_FIELD, bitmap.serialize())
        kept = None if bitmap is None else BitMap(bitmap)
        raw = self._with_field(_BITMAP_FIELD, new)
        return dataclasses.replace(self, raw=raw, fragment_bitmap=kept)

    def with_base_id(self, base_id: int) -> IndexMetadata:
        """Return this entry below another root; all other bytes are kept."""
        new = table_pb2.IndexMetadata(base_id=base_id).SerializeToString()
        raw = self._with_field(_BASE_ID_FIELD, new)
        return dataclasses.replace(self, raw=raw, base_id=base_id)

    def _with_field(self, number: int, new: bytes) -> bytes:
        """Return the message with ``new`` in place of all fields of this number."""
        pieces: list[bytes] = []
        for field in wire_fields(self.raw):
            if field.number >= number and new:
                pieces.append(new)
                new = b""
            if field.number != number:
                pieces.append(self.raw[field.start : field.end])
        return b"".join([*pieces, new])


def indices_from_section(section: bytes) -> tuple[IndexMetadata, ...]:
    """The entries of a serialized IndexSection message."""
    section = bytes(section)
    return tuple(
        IndexMetadata.from_bytes(section[field.value_start : field.end])
        for field in wire_fields(section)
        if field.number == _INDICES_FIELD and field.wire_type == LENGTH_DELIMITED
    )


def section_of_indices(indices: Iterable[IndexMetadata]) -> bytes:
    """The serialized IndexSection message that holds ``indices``."""
    return b"".join(length_delimited(_INDICES_FIELD, index.raw) for index in indices)


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
            external = details.external
            return cls(None, external.path, external.offset, external.size)
        return cls(_versions(details.inline))

    def to_bytes(self) -> bytes:
        """The serialized FragmentReuseIndexDetails message."""
        if self.versions is None:
            index = table_pb2.ExternalFile(path=self.file, offset=self.start, size=self.size)
            return _Details(external=index).SerializeToString()
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

"""IndexMetadata: one index entry, preserved byte for byte.

Writers must keep the entry of an index of unknown type, unknown fields included, and remove
fragments from its coverage whose indexed values they change.

Source: docs/format/table-format.md, section 10.6; protos/table.proto, message IndexMetadata.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from pyroaring import BitMap

from pyspark_lance.errors import CorruptFileError
from pyspark_lance.format.deletion_vector import DeletionVector
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

"""The entry of an index, or of a segment of one, that was made now."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from uuid import UUID

from pyroaring import BitMap

from pyspark_lance.format.index_metadata import IndexMetadata
from pyspark_lance.proto import table_pb2


@dataclass(frozen=True, slots=True)
class IndexDetails:
    """What kind of index it is."""

    type_url: str
    index_version: int
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """Where it is stored."""

    uuid: UUID
    # File name in the folder to bytes; none for what is stored in the entry alone.
    sizes: Mapping[str, int] = field(default_factory=dict)


def entry_made_now(
    name: str,
    field_ids: Iterable[int],
    version: int,
    fragments: Iterable[int],
    details: IndexDetails,
    files: IndexFiles,
) -> IndexMetadata:
    """The entry for a manifest.

    ``field_ids``: what it indexes; nothing for those of the system.
    """
    message = table_pb2.IndexMetadata(
        uuid=table_pb2.Uuid(uuid=files.uuid.bytes),
        fields=field_ids,
        name=name,
        dataset_version=version,
        fragment_bitmap=BitMap(fragments).serialize(),
        index_details=table_pb2.AnyMessage(type_url=details.type_url, value=details.value),
        index_version=details.index_version,
        created_at=time.time_ns() // 1_000_000,
        files=[
            table_pb2.IndexFile(path=path, size_bytes=size) for path, size in files.sizes.items()
        ],
    )
    return IndexMetadata.from_bytes(message.SerializeToString())

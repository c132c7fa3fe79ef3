"""Create manifest entries of new indices and segments."""

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
    """The type of an index."""

    type_url: str
    index_version: int
    value: bytes = b""


@dataclass(frozen=True, slots=True)
class IndexFiles:
    """The files of an index."""

    uuid: UUID
    # File name -> bytes; empty for an index stored only in the entry.
    sizes: Mapping[str, int] = field(default_factory=dict)


def new_index_entry(
    name: str,
    field_ids: Iterable[int],
    version: int,
    fragments: Iterable[int],
    details: IndexDetails,
    files: IndexFiles,
) -> IndexMetadata:
    """Return a manifest entry with the current time.

    ``field_ids``: indexed fields; empty for system indices.
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

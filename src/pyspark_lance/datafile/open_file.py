"""OpenFile: one data file while it is being read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark_lance.datafile.file_metadata import FileMetadata
from pyspark_lance.store.byte_range import ByteRange
from pyspark_lance.store.object_store import Buffer, ObjectStore


@dataclass(frozen=True, slots=True)
class OpenFile:
    """A file with its metadata and a way to its bytes.

    Attributes:
        store: Where the file is.
        path: Path of the file in the store.
        metadata: What the file says of itself.
    """

    store: ObjectStore
    path: str
    metadata: FileMetadata

    def fetch(self, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range, in the order given."""
        return self.store.get_ranges(self.path, ranges)

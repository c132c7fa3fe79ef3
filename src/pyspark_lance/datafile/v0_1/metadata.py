"""LegacyMetadata: footer, metadata message, page table and schema of a 0.1 file.

Rows come in batches, and every field has one page per batch. The page table holds, for each
field id from the lowest to the highest, for each batch, a position and a number of values.

Source: docs/format/file-format.md, section 10.1.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message
from numpy.typing import NDArray

from pyspark_lance.datafile.file_metadata import FileTail
from pyspark_lance.datafile.open_file import FileBytes
from pyspark_lance.errors import CorruptFileError, UnsupportedFeatureError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.proto import file_pb2
from pyspark_lance.store.object_store import Buffer, ByteRange

LEGACY_FOOTER: Final = struct.Struct("<QHH4s")
"""Position of the metadata message's length, major and minor version, magic."""

LENGTH: Final = struct.Struct("<I")
PAGE_ENTRY_BYTES: Final = 16

_M = TypeVar("_M", bound=Message)


@dataclass(frozen=True, slots=True)
class PageTable:
    """Positions of the pages of each field and batch.

    ``entries``: position and number of values, shape (ids, batches, 2), int64; ``first_id``: field
    id of the first row of the table.
    """

    entries: NDArray[np.int64]
    first_id: int

    def page(self, field_id: int, batch: int) -> tuple[int, int]:
        """Position of a page in the file, and how many values it has.

        Raises CorruptFileError: the table has no such page. The caller adds the location.
        """
        row = field_id - self.first_id
        if not 0 <= row < len(self.entries):
            raise CorruptFileError(
                f"field {field_id} has no page; the file's page table covers the fields "
                f"{self.first_id} to {self.first_id + len(self.entries) - 1}"
            )
        position, num_values = self.entries[row, batch].tolist()
        if position < 0 or num_values < 0:
            raise CorruptFileError(f"a page of {num_values} values at {position}")
        return position, num_values


class LegacyMetadata:
    """All metadata of a 0.1 file.

    ``tail``: the end of the file, 16 bytes or more.

    Attributes:
        path: Root and path of the file, for messages.
        file_size: Length of the file in bytes.
        batch_starts: First row of each batch, and the number of rows after the last one.
    """

    version: Final = "0.1"
    num_columns: Final = 0
    """Fields of 0.1 files are found by id, not by column."""

    def __init__(self, tail: FileTail) -> None:
        self.path, self.file_size, self._read = tail.uri, tail.file_size, tail.read
        end = self.file_size - LEGACY_FOOTER.size
        if end < 0:
            raise CorruptFileError(
                f"a footer of {LEGACY_FOOTER.size} bytes was expected, "
                f"the file has {self.file_size} bytes",
                where=self.path,
                hint="the file was cut short",
            )
        footer = bytes(self._read(end, self.file_size))
        (position, *_) = LEGACY_FOOTER.unpack(footer)
        self._message = self._read_message(file_pb2.LegacyMetadata(), position, "metadata message")
        self.batch_starts = _batch_starts(self._message.batch_offsets, self.path)

    @property
    def num_rows(self) -> int:
        """Rows of the file."""
        return int(self.batch_starts[-1])

    @property
    def num_batches(self) -> int:
        """Batches of the file; every field has so many pages."""
        return len(self.batch_starts) - 1

    @cached_property
    def schema(self) -> LanceSchema:
        """The embedded schema, whose dictionaries are in this file."""
        position = self._message.manifest_position
        if not position:
            raise UnsupportedFeatureError(
                "the 0.1 file has no schema of its own",
                where=self.path,
                hint="the table was written by very old software; rewrite it with Lance",
            )
        message = self._read_message(file_pb2.Schema(), position, "embedded schema")
        return LanceSchema.from_protos(list(message.fields), dict(message.metadata))

    @cached_property
    def pages(self) -> PageTable:
        """Page table of the schema's fields."""
        ids = [field.id for field in self.schema.walk()]
        return self.read_page_table(
            self._message.page_table_position,
            min(ids, default=0),
            max(ids, default=-1),
            self.num_batches,
        )

    @property
    def statistics(self) -> file_pb2.LegacyMetadata.Statistics | None:
        """Location of the page statistics; None if there are none."""
        return self._message.statistics if self._message.HasField("statistics") else None

    def read_page_table(
        self, position: int, first_id: int, last_id: int, num_batches: int
    ) -> PageTable:
        """A page table of the file, for the fields ``first_id`` to ``last_id``."""
        num_ids = last_id - first_id + 1
        size = num_ids * num_batches * PAGE_ENTRY_BYTES
        if num_ids < 0 or position + size > self.file_size:
            raise CorruptFileError(
                f"the page table of {num_ids} fields and {num_batches} batches at {position} does "
                f"not fit in the file's {self.file_size} bytes",
                where=self.path,
            )
        content = bytes(self._read(position, position + size)) if size else b""
        entries = np.frombuffer(content, "<i8").reshape(num_ids, num_batches, 2)
        return PageTable(entries, first_id)

    def _read_message(self, message: _M, position: int, what: str) -> _M:
        """The message whose length in four bytes is at ``position``."""
        start = position + LENGTH.size
        if start > self.file_size:
            raise self._corrupt_position(what, position, LENGTH.size)
        (length,) = LENGTH.unpack(bytes(self._read(position, start)))
        if start + length > self.file_size:
            raise self._corrupt_position(what, start, length)
        content: Buffer = self._read(start, start + length)
        try:
            message.ParseFromString(bytes(content))
        except DecodeError as error:
            raise CorruptFileError(
                f"the {what} is not a readable message",
                where=f"{self.path} bytes {start}..{start + length}",
            ) from error
        return message

    def _corrupt_position(self, what: str, position: int, length: int) -> CorruptFileError:
        return CorruptFileError(
            f"the {what} of {length} bytes at {position} is outside of the file's "
            f"{self.file_size} bytes",
            where=self.path,
        )


@dataclass(frozen=True, slots=True)
class LegacyFile(FileBytes):
    """A 0.1 file with its metadata and a way to its bytes."""

    metadata: LegacyMetadata

    def fetch_checked(self, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of ranges that come out of the file and may be nonsense."""
        self.check(ranges)
        return self.fetch(ranges)

    def check(self, ranges: Sequence[ByteRange]) -> None:
        """Ranges that come out of the file can be what the file holds.

        Pages do not share bytes, so ranges of different values cannot exceed the file together;
        this bounds what a damaged page table can cause to allocate.
        """
        size, total = self.metadata.file_size, 0
        for start, end in ranges:
            if not 0 <= start <= end <= size:
                raise CorruptFileError(
                    f"bytes {start}..{end} of a file of {size} bytes are wanted", where=self.path
                )
            total += end - start
        if total > size:
            raise CorruptFileError(
                f"{len(ranges)} pages hold {total} bytes, the file has {size}", where=self.path
            )


def _batch_starts(offsets: Sequence[int], path: str) -> NDArray[np.int64]:
    """The first row of each batch, and the end of the last; a file without rows may have none."""
    starts = np.array(offsets or (0,), dtype=np.int64)
    if starts[0] != 0 or bool((np.diff(starts) < 0).any()):
        raise CorruptFileError("the batches of the file do not ascend from row 0", where=path)
    return starts

"""OpenFile: one data file during a read, or several small files of one layout.

``JoinedMetadata`` presents small files of one layout as if their pages were those of one file.
Pages of one kind are decoded together, which costs little more than to decode one of them.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from pyspark_lance.datafile.file_metadata import ColumnInfo, FileMetadata, PageInfo
from pyspark_lance.errors import MissingFileError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.object_store import Buffer, ByteRange, ObjectStore, too_short


class JoinedMetadata:
    """Metadata of concatenated files.

    ``parts``: the metadata of each; all have equally many columns. ``origins``: the start of each
    file in the concatenated bytes; ``file_size``: their number.
    """

    def __init__(
        self, parts: Sequence[FileMetadata], origins: Sequence[int], file_size: int
    ) -> None:
        self.path = f"{parts[0].path} and {len(parts) - 1} more"
        self.file_size = file_size
        self.num_rows = sum(part.num_rows for part in parts)
        self.num_columns = parts[0].num_columns
        self.version = parts[0].version
        self._parts = parts
        self.origins = origins
        self._columns: dict[int, ColumnInfo] = {}

    @property
    def schema(self) -> LanceSchema:
        """The schema of the first file."""
        return self._parts[0].schema

    def column(self, index: int) -> ColumnInfo:
        """The pages of a column of all files."""
        if index not in self._columns:
            pages = [
                _shift_page(page, origin)
                for part, origin in zip(self._parts, self.origins, strict=True)
                for page in part.column(index).pages
            ]
            first = self._parts[0].column(index)
            self._columns[index] = ColumnInfo(
                first.encoding_type_url, first.encoding_bytes, tuple(pages)
            )
        return self._columns[index]

    @cached_property
    def retained_bytes(self) -> int:
        """Approximate memory that this and the parts take, once columns were read."""
        return 2 * sum(part.retained_bytes for part in self._parts)

    def require_rows(self, index: int, name: str, slots_per_row: int) -> None:
        """Check that a column has as many rows as the file, in each of them."""
        for part in self._parts:
            part.require_rows(index, name, slots_per_row)

    def where_page(self, index: int, name: str, page: int) -> str:
        """Format the location of a page of column ``index`` for messages, within its own file."""
        for part in self._parts:
            count = len(part.column(index).pages)
            if page < count:
                return part.where_page(index, name, page)
            page -= count
        raise IndexError(page)


def _shift_page(page: PageInfo, by: int) -> PageInfo:
    buffers = tuple([ByteRange(start + by, end + by) for start, end in page.buffers])
    return PageInfo(
        buffers, page.num_rows, page.encoding_type_url, page.encoding_bytes, page.priority
    )


class ExternalBlobs(Protocol):
    """Resolver of the references in blob columns."""

    def locate_external(self, uri: str, base_id: int) -> tuple[ObjectStore, str]:
        """The store that holds an object, and the object's path in it.

        ``uri``: absolute, or relative to a base path of the table.
        """

    def absolute(self, uri: str, base_id: int) -> str:
        """The reference on its own, without the table."""


@dataclass(frozen=True, slots=True)
class FileBytes:
    """A way to the bytes of a file."""

    store: ObjectStore
    path: str
    _ahead: _FetchedRanges = field(
        default_factory=lambda: _FetchedRanges([], []), init=False, compare=False
    )

    @property
    def uri(self) -> str:
        """Root and path of the file, for messages."""
        return f"{self.store.uri}/{self.path}"

    @property
    def has_low_latency(self) -> bool:
        """Return whether bytes come so fast that nothing is won by asking for many at once."""
        return isinstance(self.store, LocalStore)

    def fetch(self, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range, in the order given."""
        if not self._ahead.ranges:
            return self.read_ranges(ranges)
        known = [self._ahead.find(wanted) for wanted in ranges]
        missing = [wanted for wanted, buffer in zip(ranges, known, strict=True) if buffer is None]
        fetched = iter(self.read_ranges(missing))
        return [next(fetched) if buffer is None else buffer for buffer in known]

    def read_ranges(self, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range, from the store."""
        if not ranges:
            return []
        try:
            return self.store.get_ranges(self.path, ranges)
        except FileNotFoundError as error:
            # It was there when it was opened.
            raise MissingFileError(
                "a data file went away while it was read",
                where=self.uri,
                hint="its version may have been cleaned up; read a newer one",
            ) from error

    def keep(self, ranges: Sequence[ByteRange], buffers: Sequence[Buffer]) -> None:
        """Serve later calls of ``fetch`` from these bytes; drop those kept before."""
        order = sorted(range(len(ranges)), key=lambda i: ranges[i])
        self._ahead.ranges[:] = [ranges[i] for i in order]
        self._ahead.buffers[:] = [buffers[i] for i in order]

    def keep_also(self, ranges: Sequence[ByteRange]) -> None:
        """Fetch the missing parts of the ranges, and keep them, too."""
        known = self._ahead
        missing = [wanted for wanted in ranges if wanted.num_bytes and known.find(wanted) is None]
        if not missing:
            return
        gaps = [known.missing_range(wanted) for wanted in missing]
        buffers = list(known.buffers)
        for wanted, gap, fetched in zip(missing, gaps, self.read_ranges(gaps), strict=True):
            buffers.append(fetched if gap == wanted else known.join_fetched(wanted, gap, fetched))
        self.keep([*known.ranges, *missing], buffers)


@dataclass(frozen=True, slots=True)
class OpenFile(FileBytes):
    """A 2.x file, or several small ones that are read as one, with a way to its bytes."""

    metadata: FileMetadata | JoinedMetadata
    # Finds blobs outside of the table; None if there is no table.
    external: ExternalBlobs | None = None
    base_id: int | None = None  # The base path that the file is below; None for the table itself.
    content: memoryview | None = None  # All of its bytes, if the read of its metadata brought them.

    @property
    def has_low_latency(self) -> bool:
        """Return whether bytes come so fast that nothing is won by asking for many at once."""
        return self.content is not None or isinstance(self.store, LocalStore)

    def fetch(self, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range, in the order given."""
        content = self.content
        if content is None:
            return FileBytes.fetch(self, ranges)
        size = len(content)
        for start, end in ranges:
            if not 0 <= start <= end <= size:
                raise too_short(self.store.uri, self.path, start, end, size)
        return [content[start:end] for start, end in ranges]


@dataclass(frozen=True, slots=True)
class JoinedFiles(OpenFile):
    """Files that are read as one, but whose bytes stay where they are."""

    parts: tuple[OpenFile, ...] = ()
    origins: tuple[int, ...] = ()  # The start of each in the positions of ``metadata``.

    def fetch(self, ranges: Sequence[ByteRange]) -> list[Buffer]:
        """The bytes of each range, in the order given."""
        by_file: dict[int, list[int]] = {}
        for index, wanted in enumerate(ranges):
            number = bisect.bisect_right(self.origins, wanted.start) - 1
            by_file.setdefault(number, []).append(index)
        found: list[Buffer] = [b""] * len(ranges)
        for number, own in by_file.items():
            by = self.origins[number]
            moved = [ByteRange(ranges[index].start - by, ranges[index].end - by) for index in own]
            for index, content in zip(own, self.parts[number].fetch(moved), strict=True):
                found[index] = content
        return found


@dataclass(frozen=True, slots=True)
class _FetchedRanges:
    """Prefetched bytes, sorted by their start."""

    ranges: list[ByteRange]
    buffers: list[Buffer]

    def find(self, wanted: ByteRange) -> Buffer | None:
        """The bytes, if one fetched range holds them all."""
        # An equal start sorts by its end, so that a longer range comes behind.
        index = bisect.bisect_right(self.ranges, (wanted.start, self._far)) - 1
        if index < 0 or self.ranges[index].end < wanted.end:
            return None
        return self._cut(index, wanted)

    def missing_range(self, wanted: ByteRange) -> ByteRange:
        """Return the missing part of a range of which at most one end was fetched."""
        before = bisect.bisect_right(self.ranges, (wanted.start, self._far)) - 1
        start = max(wanted.start, self.ranges[before].end) if before >= 0 else wanted.start
        if start > wanted.start:
            return ByteRange(start, wanted.end)
        behind = bisect.bisect_left(self.ranges, (wanted.end, 0)) - 1
        if behind > before and self.ranges[behind].end >= wanted.end:
            return ByteRange(wanted.start, self.ranges[behind].start)
        return wanted

    def join_fetched(self, wanted: ByteRange, gap: ByteRange, fetched: Buffer) -> Buffer:
        """A range of which one end is here, and the gap was fetched."""
        if gap.start > wanted.start:
            before = bisect.bisect_right(self.ranges, (wanted.start, self._far)) - 1
            return b"".join((self._cut(before, ByteRange(wanted.start, gap.start)), fetched))
        behind = bisect.bisect_left(self.ranges, (wanted.end, 0)) - 1
        return b"".join((fetched, self._cut(behind, ByteRange(gap.end, wanted.end))))

    def _cut(self, index: int, wanted: ByteRange) -> Buffer:
        """Bytes of a fetched range; few of many are copied, so that they do not pin the rest."""
        start = wanted.start - self.ranges[index].start
        whole = memoryview(self.buffers[index])
        piece = whole[start : start + wanted.num_bytes]
        return bytes(piece) if 2 * len(piece) < memoryview(whole.obj).nbytes else piece

    _far = 1 << 63

"""LeafColumnReader: the pages of one column of a 2.1 or 2.2 file.

Which rows are in which page, what must be fetched to decode them, and the decoding itself. What a
page needs to find rows (metadata words, repetition index, dictionary, symbol table) is read once
and kept while the page is among those used last.

Source: docs/format/file-format.md, sections 2.3, 6 and 6.8.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import assemble_rows
from pyspark_lance.codec.levels import Unraveler
from pyspark_lance.codec.row_ranges import RowRanges
from pyspark_lance.codec.structural.mini_block import MiniBlockPage
from pyspark_lance.codec.structural.page_decoder import DecodedRows, PageDecoder, PagePlan
from pyspark_lance.codec.structural.page_layout import make_page_decoder, parse_page_layout
from pyspark_lance.codec.structural.size_estimate import estimate_row_bytes
from pyspark_lance.codec.values import FixedWidthValues, PlacedValues, StructValues
from pyspark_lance.datafile.file_metadata import PAGE_LAYOUT_URL
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.read_plan import PageBorders
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.store.byte_range import ByteRange
from pyspark_lance.store.object_store import Buffer

_KEPT_PAGES = 256
_SAMPLED_PAGES = 4
_MAX_JOINED_BYTES = 1 << 20
_NO_BYTES = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class PageRead:
    """The wanted rows of one page, with the plan to read them.

    Attributes:
        page: Number of the page.
        decoder: Decodes it.
        plan: What is wanted of it.
        ranges: Where that is in the file.
        parts: The reads of several pages that this one stands for.
    """

    page: int
    decoder: PageDecoder
    plan: PagePlan
    ranges: tuple[ByteRange, ...]
    parts: tuple[PageRead, ...] = ()


class LeafColumnReader:
    """Reads rows of one column.

    Args:
        file: The open file.
        column: Number of the column.
        name: Dotted path of the leaf, for messages.
        data_type: Arrow type of the leaf.
        slots_per_row: Leaf values per row: more than one below fixed-size lists of structs, where
            pages count these instead of rows.

    Raises:
        CorruptFileError: The pages do not hold as many rows as the file.
    """

    def __init__(
        self, file: OpenFile, column: int, name: str, data_type: pa.DataType, slots_per_row: int
    ) -> None:
        self._file = file
        self._column = column
        self._name = name
        self._data_type = data_type
        self._slots_per_row = slots_per_row
        self._pages = file.metadata.column(column).pages
        file.metadata.require_rows(column, name, slots_per_row)
        self._borders = PageBorders.of_lengths([page.num_rows for page in self._pages])
        self._decoders: OrderedDict[int, PageDecoder] = OrderedDict()
        self._loaded: set[int] = set()

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """What ``load`` will fetch for the rows; empty if it is known already."""
        return [
            self._pages[page].buffers[buffer]
            for page in self._borders.pages_of(rows.scaled(self._slots_per_row))
            if page not in self._loaded
            for buffer in self._decoder(page).state_buffers
        ]

    def load(self, rows: RowRanges, buffers: Iterator[NDArray[np.uint8]]) -> None:
        """Takes the bytes of ``state_ranges(rows)``."""
        for page in self._borders.pages_of(rows.scaled(self._slots_per_row)):
            if page in self._loaded:
                continue
            decoder = self._decoder(page)
            state = [next(buffers) for _ in decoder.state_buffers]
            with self.errors_of(page):
                decoder.load(state)
            self._loaded.add(page)

    def plan(self, rows: RowRanges) -> list[PageRead]:
        """How to read the rows; ``load`` comes first."""
        reads = []
        for page, page_rows in self._split(rows):
            decoder = self._decoder(page)
            with self.errors_of(page):
                plan = decoder.plan(page_rows)
            ranges = tuple(self._place(page, r.buffer, r.start, r.end) for r in plan.ranges)
            reads.append(PageRead(page, decoder, plan, ranges))
        return _joined_reads(reads) if len(reads) > 1 else reads

    def decode(
        self, read: PageRead, pieces: Sequence[NDArray[np.uint8]]
    ) -> tuple[pa.Array, Unraveler]:
        """The rows of one page, or of pages read together, from the bytes of its ranges."""
        try:
            with self.errors_of(read.page):
                decoded = read.decoder.decode(read.plan, pieces)
                if isinstance(decoded.values, PlacedValues):
                    decoded = _as_records(decoded, decoded.values)
                return assemble_rows(decoded, self._data_type)
        except LanceError:
            rest = iter(pieces)
            for part in read.parts:  # which of them is it?
                self.decode(part, [next(rest) for _ in part.ranges])
            raise

    def average_row_bytes(self) -> int:
        """Estimate of the decoded size of a row, from the descriptions of some pages."""
        if not self._pages:
            return 1
        step = -(-len(self._pages) // _SAMPLED_PAGES)
        total = rows = 0.0
        for number in range(0, len(self._pages), step):
            page = self._pages[number]
            with self.errors_of(number):
                layout = parse_page_layout(self._checked_encoding(number))
                per_row = estimate_row_bytes(
                    layout, self._data_type, page.num_rows, [r.num_bytes for r in page.buffers]
                )
            total += per_row * page.num_rows
            rows += page.num_rows
        return max(1, int(total / max(rows, 1) * self._slots_per_row))

    def _split(self, rows: RowRanges) -> Iterator[tuple[int, RowRanges]]:
        """The pages that hold the rows, each with what is wanted of it."""
        return self._borders.split(rows.scaled(self._slots_per_row))

    def _decoder(self, page: int) -> PageDecoder:
        decoder = self._decoders.get(page)
        if decoder is not None:
            self._decoders.move_to_end(page)
            return decoder
        info = self._pages[page]
        with self.errors_of(page):
            decoder = make_page_decoder(
                self._checked_encoding(page),
                num_rows=info.num_rows,
                buffer_sizes=[r.num_bytes for r in info.buffers],
            )
        self._decoders[page] = decoder
        return decoder

    def forget_old_pages(self) -> None:
        """Drops the state of pages that were not used for long."""
        while len(self._decoders) > _KEPT_PAGES:
            page, _ = self._decoders.popitem(last=False)
            self._loaded.discard(page)

    def _checked_encoding(self, page: int) -> bytes:
        info = self._pages[page]
        if info.encoding_type_url != PAGE_LAYOUT_URL:
            raise UnsupportedFeatureError(
                f"page layout {info.encoding_type_url!r}",
                hint="the file was written by a pre-release or a newer version of Lance",
            )
        return info.encoding_bytes

    def _place(self, page: int, buffer: int, start: int, end: int) -> ByteRange:
        """Bytes of a buffer as a range of the file."""
        whole = self._pages[page].buffers[buffer]
        return ByteRange(whole.start + start, whole.start + end)

    @contextlib.contextmanager
    def errors_of(self, page: int) -> Iterator[None]:
        """Adds the place to errors of the codec, which knows none.

        Arrow's and numpy's own complaints mean that bytes slipped through our checks.
        """
        try:
            yield
        except LanceError as error:
            if error.where:
                raise
            raise type(error)(error.what, self._where(page), error.hint) from error
        except (pa.ArrowException, ValueError, IndexError, OverflowError, MemoryError) as error:
            raise CorruptFileError(
                f"the page cannot be decoded: {error}", self._where(page)
            ) from error

    def _where(self, page: int) -> str:
        return self._file.metadata.where_page(self._column, self._name, page)


def _joined_reads(reads: list[PageRead]) -> list[PageRead]:
    """Neighbours of one kind as one read, as long as they are small: decoding costs per page."""
    joined: list[PageRead] = []
    for _, same in groupby(reads, key=_kind_of):
        group: list[PageRead] = []
        num_bytes = 0
        for read in same:
            size = sum(place.num_bytes for place in read.ranges)
            if group and num_bytes + size > _MAX_JOINED_BYTES:
                joined.append(_join(group))
                group, num_bytes = [], 0
            group.append(read)
            num_bytes += size
        joined.append(_join(group))
    return joined


def _kind_of(read: PageRead) -> object:
    kind = read.decoder.kind if isinstance(read.decoder, MiniBlockPage) else None
    return read.page if kind is None else kind


def _join(group: list[PageRead]) -> PageRead:
    if len(group) == 1:
        return group[0]
    pages = [read.decoder for read in group if isinstance(read.decoder, MiniBlockPage)]
    both = MiniBlockPage.join(pages, [read.plan for read in group])
    ranges = tuple(place for read in group for place in read.ranges)
    return PageRead(group[0].page, both.page, both.plan, ranges, tuple(group))


def as_array(buffer: Buffer) -> NDArray[np.uint8]:
    """A view of the bytes."""
    return np.frombuffer(buffer, np.uint8) if len(buffer) else _NO_BYTES


def _as_records(decoded: DecodedRows, values: PlacedValues) -> DecodedRows:
    """Values that lie elsewhere in the file as the records that say where."""
    members = tuple(
        FixedWidthValues(values.num_values, 64, np.ascontiguousarray(member).view(np.uint8))
        for member in (values.places, values.sizes)
    )
    return replace(decoded, values=StructValues(values.num_values, members))

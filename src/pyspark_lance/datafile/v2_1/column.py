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
from typing import NoReturn

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.array_assembly import assemble_rows
from pyspark_lance.codec.levels import Unraveler
from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.codec.structural.mini_block import MiniBlockPage
from pyspark_lance.codec.structural.page_decoder import DecodedRows, PageDecoder, PagePlan
from pyspark_lance.codec.structural.page_layout import (
    estimate_row_bytes,
    make_page_decoder,
    parse_page_layout,
)
from pyspark_lance.codec.values import FixedWidthValues, StructValues, ValuesByReference
from pyspark_lance.datafile.file_metadata import PAGE_LAYOUT_URL
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.datafile.read_plan import PageStarts
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.store.object_store import Buffer, ByteRange

_KEPT_PAGES = 256
# Of the decoder of a page, beside its arrays.
_DECODER_BYTES = 2048
_SAMPLED_PAGES = 4
_MAX_JOINED_BYTES = 1 << 20
# What must be decoded for a single row of a page is a chunk of about this size.
_CHUNK_BYTES = 8192
_ERRORS = (
    LanceError, pa.ArrowException, ValueError, IndexError, OverflowError, MemoryError,
)  # fmt: skip
_NO_BYTES = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True)
class PageRead:
    """The requested rows of a page, or of adjacent pages that are decoded together.

    ``page``: number of the (first) page; ``end``: one past the number of the last page.
    """

    page: int
    end: int
    decoder: PageDecoder
    plan: PagePlan
    ranges: tuple[ByteRange, ...]


class LeafColumnReader:
    """Reader of the rows of one column.

    ``slots_per_row``: leaf values per row: more than one below fixed-size lists of structs, where
    pages count these instead of rows.
    """

    def __init__(
        self,
        file: OpenFile,
        column: int,
        name: str,
        data_type: pa.DataType,
        slots_per_row: int,
        *,
        keep_dictionaries: bool = False,
    ) -> None:
        self._file = file
        self._keep_dictionaries = keep_dictionaries
        self._column = column
        self._name = name
        self._data_type = data_type
        self._slots_per_row = slots_per_row
        self._pages = file.metadata.column(column).pages
        file.metadata.require_rows(column, name, slots_per_row)
        self._page_starts = PageStarts.of_lengths([page.num_rows for page in self._pages])
        self._decoders: OrderedDict[int, PageDecoder] = OrderedDict()
        self._loaded: set[int] = set()

    def state_ranges(self, rows: RowRanges) -> list[ByteRange]:
        """Return the ranges that ``load`` fetches for the rows; empty if all are loaded."""
        pages = self._page_starts.pages_of(rows.scaled(self._slots_per_row))
        return [
            self._pages[page].buffers[buffer]
            for page in pages
            if page not in self._loaded
            for buffer in self._decoder(page).state_buffers
        ]

    def load(self, rows: RowRanges, buffers: Iterator[NDArray[np.uint8]]) -> None:
        """Load the bytes of ``state_ranges(rows)``."""
        page = 0
        try:
            for page in self._page_starts.pages_of(rows.scaled(self._slots_per_row)):
                if page not in self._loaded:
                    decoder = self._decoder(page)
                    decoder.load([next(buffers) for _ in decoder.state_buffers])
                    self._loaded.add(page)
        except _ERRORS as error:
            self._raise_located(error, page)

    def plan(self, rows: RowRanges) -> list[PageRead]:
        """Plan the reads of the rows; call ``load`` first."""
        rows = rows.scaled(self._slots_per_row)
        runs = self._runs(rows)
        bounds = sorted({page for run in runs for page in run})
        return [
            self._plan(bounds[number], bounds[number + 1], wanted)
            for number, wanted in self._page_starts.at(bounds).split(rows)
        ]

    def decode(
        self, read: PageRead, pieces: Sequence[NDArray[np.uint8]]
    ) -> tuple[pa.Array, Unraveler]:
        """The rows of one page, or of pages read together, from the bytes of its ranges."""
        try:
            with self.errors_of(read.page):
                decoded = read.decoder.decode(read.plan, pieces)
                if isinstance(decoded.values, ValuesByReference):
                    decoded = _as_records(decoded, decoded.values)
                return assemble_rows(
                    decoded, self._data_type, keep_dictionaries=self._keep_dictionaries
                )
        except LanceError:
            if read.end - read.page > 1:
                self._decode_each(read)  # which of them is it?
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

    def _runs(self, rows: RowRanges) -> list[tuple[int, int]]:
        """The pages that hold the rows: first and end of neighbours that are decoded together.

        These are small and of one kind: decoding costs per page.
        """
        pages = list(self._page_starts.pages_of(rows))
        wanted_bytes = _CHUNK_BYTES * (1 + rows.num_rows // max(1, len(pages)))
        runs: list[tuple[int, int]] = []
        first = end = num_bytes = 0
        kind: object = None
        for page in pages:
            size = self._pages[page].num_bytes
            if not rows.is_single:
                size = min(size, wanted_bytes)
            page_kind = self._kind_of(page)
            num_bytes += size
            if page != end or page_kind != kind or num_bytes > _MAX_JOINED_BYTES:
                if first < end:
                    runs.append((first, end))
                first, kind, num_bytes = page, page_kind, size
            end = page + 1
        if first < end:
            runs.append((first, end))
        return runs

    def _kind_of(self, page: int) -> object:
        """Equal for pages that can be decoded together."""
        decoder = self._decoder(page)
        if not isinstance(decoder, MiniBlockPage):
            return decoder
        if decoder.has_dictionary and pa.types.is_dictionary(self._data_type):
            return decoder  # each page has a dictionary of its own in Arrow, too
        return decoder.kind

    def _plan(self, first: int, end: int, rows: RowRanges) -> PageRead:
        """Plan a read of rows, counted from the first of some pages of one kind."""
        with self.errors_of(first):
            decoder = self._decoder(first)
            if end - first > 1:
                parts = [self._decoder(page) for page in range(first, end)]
                decoder = MiniBlockPage.join([p for p in parts if isinstance(p, MiniBlockPage)])
            plan = decoder.plan(rows)
        ranges = []
        for buffer, start, stop, page in plan.ranges:
            place = self._pages[first + page].buffers[buffer].start
            ranges.append(ByteRange(place + start, place + stop))
        return PageRead(first, end, decoder, plan, tuple(ranges))

    def _decode_each(self, read: PageRead) -> None:
        """Decode the pages of a read one by one, so that an error names its page."""
        starts = self._page_starts.starts[read.page : read.end + 1]
        within = PageStarts(starts - starts[0])
        for number, rows in within.split(read.plan.rows):
            page = read.page + number
            alone = self._plan(page, page + 1, rows)
            self.decode(alone, [as_array(buffer) for buffer in self._file.fetch(alone.ranges)])

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

    def retained_bytes(self) -> int:
        """Approximate memory of cached pages."""
        return sum(_DECODER_BYTES + one.state_bytes for one in self._decoders.values())

    def forget_old_pages(self) -> None:
        """Drop the state of pages that were not used for long."""
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

    @contextlib.contextmanager
    def errors_of(self, page: int) -> Iterator[None]:
        """Add the location to errors of the codec.

        Arrow's and numpy's own complaints mean that bytes slipped through our checks.
        """
        try:
            yield
        except _ERRORS as error:
            self._raise_located(error, page)

    def _raise_located(self, error: Exception, page: int) -> NoReturn:
        if isinstance(error, LanceError) and error.where:
            raise error
        where = self._file.metadata.where_page(self._column, self._name, page)
        if isinstance(error, LanceError):
            raise type(error)(error.what, where, error.hint) from error
        raise CorruptFileError(f"the page cannot be decoded: {error}", where) from error


def as_array(buffer: Buffer) -> NDArray[np.uint8]:
    """A view of the bytes."""
    return np.frombuffer(buffer, np.uint8) if len(buffer) else _NO_BYTES


def _as_records(decoded: DecodedRows, values: ValuesByReference) -> DecodedRows:
    """Values that are stored elsewhere in the file, as the records of their positions."""
    members = tuple(
        FixedWidthValues(values.num_values, 64, np.ascontiguousarray(member).view(np.uint8))
        for member in (values.places, values.sizes)
    )
    return replace(decoded, values=StructValues(values.num_values, members))

"""The pages of one 2.0 column: which page holds a value, and the decoders of the last few pages."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa

from pyspark_lance.codec.v2_0.array_decoder import BufferSlice
from pyspark_lance.codec.v2_0.array_encoding import parse_array_encoding
from pyspark_lance.datafile.file_metadata import ARRAY_ENCODING_URL, PageInfo
from pyspark_lance.datafile.open_file import OpenFile
from pyspark_lance.errors import CorruptFileError, LanceError, UnsupportedFeatureError
from pyspark_lance.proto import encodings_v2_0_pb2 as pb
from pyspark_lance.store.object_store import ByteRange

# Decoders keep decompressed buffers and dictionaries, so only a few are kept.
_KEPT_DECODERS = 4
_MAX_COLUMN_VALUES = 1 << 60


class PageDecoder(Protocol):
    """Interface of page decoders."""

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices that decoding the values ``start`` to ``end`` reads."""


_D = TypeVar("_D", bound=PageDecoder)


class PageRange(NamedTuple):
    """Values ``start`` to ``end`` of page number ``page``."""

    page: int
    start: int
    end: int


class FileBuffers:
    """The buffers of a page as slices of the file.

    Prefetched bytes are returned once, so that the buffers of a page share a request.
    """

    def __init__(self, file: OpenFile, page: PageInfo) -> None:
        self._file, self._page = file, page
        self._ahead: dict[BufferSlice, pa.Buffer] = {}

    def size(self, index: int) -> int:
        """Length of a buffer."""
        if index >= len(self._page.buffers):
            raise CorruptFileError(
                f"page buffer {index} is wanted, the page has {len(self._page.buffers)}"
            )
        return self._page.buffers[index].num_bytes

    def read(self, wanted: BufferSlice) -> pa.Buffer:
        """The bytes of a slice, a view where the store has one."""
        buffer = self._ahead.pop(wanted, None)
        if buffer is None:
            buffer = pa.py_buffer(self._file.fetch([self.place(wanted)])[0])
        return buffer

    def place(self, wanted: BufferSlice) -> ByteRange:
        """Return the byte range of a slice in the file."""
        if not 0 <= wanted.start <= wanted.end <= self.size(wanted.buffer):
            raise CorruptFileError(
                f"bytes {wanted.start}..{wanted.end} of page buffer {wanted.buffer} are wanted, "
                f"it has {self.size(wanted.buffer)}"
            )
        start = self._page.buffers[wanted.buffer].start
        return ByteRange(start + wanted.start, start + wanted.end)

    def fetch_ahead(self, wanted: Sequence[BufferSlice]) -> None:
        """Read several slices with one request; they replace those prefetched before."""
        answers = self._file.fetch([self.place(piece) for piece in wanted])
        self._ahead = {
            piece: pa.py_buffer(answer) for piece, answer in zip(wanted, answers, strict=True)
        }


DecoderFactory = Callable[[pb.ArrayEncoding, int, FileBuffers], _D]


class ColumnPages(Generic[_D]):
    """One column, read in ranges of its values."""

    def __init__(self, file: OpenFile, column: int, make_decoder: DecoderFactory[_D]) -> None:
        self._file, self._column, self._make_decoder = file, column, make_decoder
        self.pages = file.metadata.column(column).pages
        lengths = [page.num_rows for page in self.pages]
        if sum(lengths) > _MAX_COLUMN_VALUES:
            raise CorruptFileError(
                f"column {column} counts {sum(lengths)} values", where=file.place
            )
        self._starts = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=self._starts[1:])
        self.num_values = int(self._starts[-1])
        self._decoders: OrderedDict[int, tuple[_D, FileBuffers]] = OrderedDict()

    def locate(self, start: int, end: int) -> list[PageRange]:
        """The pages that hold the values ``start`` to ``end``."""
        if end > self.num_values:
            raise CorruptFileError(
                f"column {self._column} has {self.num_values} values, {end} are expected",
                where=self._file.place,
            )
        first = int(np.searchsorted(self._starts, start, side="right")) - 1
        ranges = []
        for page in range(first, len(self.pages)):
            base = int(self._starts[page])
            if base >= end:
                break
            stop = min(end - base, self.pages[page].num_rows)
            begin = max(start - base, 0)
            if begin < stop:
                ranges.append(PageRange(page, begin, stop))
        return ranges

    def decoder(self, page: int) -> _D:
        """The decoder of a page."""
        return self._open(page)[0]

    def ahead(self, part: PageRange) -> _D:
        """The decoder of a page, with what decoding the range reads fetched by one request."""
        decoder, buffers = self._open(part.page)
        buffers.fetch_ahead(decoder.slices(part.start, part.end))
        return decoder

    def places(self, page: int, pieces: Sequence[BufferSlice]) -> list[ByteRange]:
        """Slices of a page as places in the file."""
        buffers = self._open(page)[1]
        return [buffers.place(piece) for piece in pieces]

    def encoding(self, page: int) -> pb.ArrayEncoding:
        """The encoding tree of a page."""
        info = self.pages[page]
        if info.encoding_type_url != ARRAY_ENCODING_URL:
            raise UnsupportedFeatureError(
                f"pages of a 2.0 file have the encoding {ARRAY_ENCODING_URL}, "
                f"found {info.encoding_type_url!r}"
            )
        return parse_array_encoding(info.encoding_bytes)

    @contextmanager
    def errors_of(self, page: int) -> Iterator[None]:
        """Add to errors which page they are about."""
        try:
            yield
        except LanceError as error:
            if error.where:
                raise
            raise type(error)(error.what, self._where(page), error.hint) from error
        except pa.ArrowInvalid as error:
            raise CorruptFileError(
                f"the page cannot be decoded: {error}", self._where(page)
            ) from error

    def _open(self, page: int) -> tuple[_D, FileBuffers]:
        opened = self._decoders.get(page)
        if opened is None:
            info = self.pages[page]
            buffers = FileBuffers(self._file, info)
            opened = self._make_decoder(self.encoding(page), info.num_rows, buffers), buffers
            self._decoders[page] = opened
            if len(self._decoders) > _KEPT_DECODERS:
                self._decoders.popitem(last=False)
        else:
            self._decoders.move_to_end(page)
        return opened

    def _where(self, page: int) -> str:
        buffers = self.pages[page].buffers
        place = f" bytes {buffers[0].start}..{buffers[-1].end}" if buffers else ""
        return f"{self._file.place}{place} (column {self._column}, page {page})"

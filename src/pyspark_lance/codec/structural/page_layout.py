"""Page layouts: select the decoder of a page, and estimate its decoded size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from pyspark_lance.codec.checks import reject_unsupported, require
from pyspark_lance.codec.compressive.encoding_record import encoding_kind
from pyspark_lance.codec.levels import Layers
from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.codec.structural.all_null import ConstantPage
from pyspark_lance.codec.structural.full_zip import FullZipPage
from pyspark_lance.codec.structural.mini_block import CHUNK_BUFFER, MiniBlockForm, MiniBlockPage
from pyspark_lance.codec.structural.page_decoder import DecodedRows, PageDecoder, PagePlan
from pyspark_lance.codec.values import FixedWidthValues, StructValues, ValuesByReference
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.proto import encodings_v2_1_pb2


class BlobPage:
    """Decoder of one page of blobs of the first kind: each value is a byte range of the file.

    A record is (position, size). Size 0 with a position is a level word: repetition in the low 16
    bits, definition in the next 16. Source: docs/format/file-format.md, section 6.7.

    ``buffer_sizes``: bytes of each buffer of the page.
    """

    def __init__(
        self, layout: encodings_v2_1_pb2.BlobLayout, num_rows: int, buffer_sizes: Sequence[int]
    ) -> None:
        self.num_rows = num_rows
        self._layers = Layers.from_message(layout.layers)
        if self._layers.num_lists:
            reject_unsupported("blobs inside of lists")
        inner = layout.inner_layout
        require(inner.WhichOneof("layout") == "mini_block_layout", "blob records in no mini-blocks")
        form = MiniBlockForm(inner.mini_block_layout, len(buffer_sizes))
        self._inner = MiniBlockPage(form, num_rows, buffer_sizes[CHUNK_BUFFER])
        self.state_buffers = self._inner.state_buffers

    def load(self, buffers: Sequence[NDArray[np.uint8]]) -> None:
        """Parse the state of the records' page."""
        self._inner.load(buffers)

    @property
    def state_bytes(self) -> int:
        """Memory of the state of the records' page."""
        return self._inner.state_bytes

    def plan(self, rows: RowRanges) -> PagePlan:
        """The chunks that hold the records."""
        return self._inner.plan(rows)

    def decode(self, plan: PagePlan, pieces: Sequence[NDArray[np.uint8]]) -> DecodedRows:
        """Return the byte ranges of the values; the caller fetches them."""
        decoded = self._inner.decode(plan, pieces)
        records = decoded.values
        require(isinstance(records, StructValues), "blob records are not packed")
        assert isinstance(records, StructValues)
        positions, sizes = (_numbers(child) for child in records.children)
        is_level = (sizes == 0) & (positions != 0)
        definition = np.where(is_level, (positions >> np.uint64(16)) & np.uint64(0xFFFF), 0)
        definition = definition.astype(np.uint16)
        highest = int(definition.max()) if len(definition) else 0
        require(highest <= self._layers.max_definition, f"a blob has definition level {highest}")
        values = ValuesByReference(
            records.num_values, np.where(is_level, 0, positions), np.where(is_level, 0, sizes)
        )
        return replace(
            decoded, values=values, repetition=None, definition=definition, layers=self._layers
        )


def _numbers(values: object) -> NDArray[np.uint64]:
    fits = isinstance(values, FixedWidthValues) and values.bits_per_value == 64
    require(fits, "blob records are not pairs of 64-bit numbers")
    assert isinstance(values, FixedWidthValues)
    return values.buffer.view("<u8")


@lru_cache(maxsize=512)
def parse_page_layout(encoding: bytes) -> encodings_v2_1_pb2.PageLayout:
    """The description of a page; pages of equal descriptions share it."""
    try:
        return encodings_v2_1_pb2.PageLayout.FromString(encoding)
    except DecodeError as error:
        raise CorruptFileError("the description of a page is not readable") from error


def make_page_decoder(
    encoding: bytes, *, num_rows: int, buffer_sizes: Sequence[int]
) -> PageDecoder:
    """The decoder for a page.

    ``num_rows``: rows of the page; below fixed-size lists of structs their items. ``buffer_sizes``:
    bytes of each buffer of the page.
    """
    layout = parse_page_layout(encoding)
    kind = layout.WhichOneof("layout")
    if kind == "mini_block_layout":
        form = _mini_block_form(encoding, len(buffer_sizes))
        return MiniBlockPage(form, num_rows, buffer_sizes[CHUNK_BUFFER])
    if kind == "full_zip_layout":
        return FullZipPage(layout.full_zip_layout, num_rows, buffer_sizes)
    if kind == "constant_layout":
        return ConstantPage(layout.constant_layout, num_rows, buffer_sizes)
    if kind == "blob_layout":
        return BlobPage(layout.blob_layout, num_rows, buffer_sizes)
    require(kind is not None, "the page has no layout, or one of an unknown kind")
    return reject_unsupported(f"page layout {kind}")


@lru_cache(maxsize=512)
def _mini_block_form(encoding: bytes, num_buffers: int) -> MiniBlockForm:
    """Return the form that pages of one description share: small files have many of them."""
    return MiniBlockForm(parse_page_layout(encoding).mini_block_layout, num_buffers)


# Decoded bytes per stored byte of strings, roughly; a reader corrects itself by what it sees.
_GROWTH = {"variable": 1.0, "fsst": 2.5, "general": 4.0}
_OFFSET_BYTES = 4
_UNKNOWN_WIDTH = 32


def estimate_row_bytes(
    layout: encodings_v2_1_pb2.PageLayout,
    data_type: pa.DataType,
    num_rows: int,
    buffer_sizes: Sequence[int],
) -> float:
    """Bytes of a decoded row of the page.

    ``buffer_sizes``: bytes of each buffer of the page.
    """
    rows = max(num_rows, 1)
    kind = layout.WhichOneof("layout")
    part: Any = getattr(layout, kind) if kind else None
    items = float(rows)
    if kind == "mini_block_layout":
        items = max(part.num_items, 1)
    elif kind == "full_zip_layout":
        items = max(part.num_visible_items, 1)
    width = _fixed_width(data_type)
    if width:
        return items / rows * width
    if kind == "mini_block_layout" and part.HasField("dictionary"):
        growth = 3.0 if encoding_kind(part.dictionary) == "general" else 1.0
        per_item = growth * buffer_sizes[2] / max(part.num_dictionary_items, 1)
        return items / rows * (per_item + _OFFSET_BYTES)
    if kind in ("mini_block_layout", "full_zip_layout"):
        growth = _GROWTH.get(encoding_kind(part.value_compression), 2.0)
        return growth * sum(buffer_sizes) / rows + _OFFSET_BYTES
    if kind == "blob_layout":
        return float(1 << 16)
    if len(buffer_sizes) > 1:  # levels of two bytes, of lists of nulls
        return sum(buffer_sizes) / rows + _OFFSET_BYTES
    return items / rows * (sum(buffer_sizes) or _OFFSET_BYTES)


def _fixed_width(data_type: pa.DataType) -> float:
    """Bytes of a value, 0 if they differ."""
    if pa.types.is_fixed_size_list(data_type):
        return float(data_type.list_size * _fixed_width(data_type.value_type))
    if pa.types.is_dictionary(data_type):
        return float(data_type.index_type.bit_width / 8)
    if pa.types.is_struct(data_type):
        widths = [_fixed_width(field.type) for field in data_type]
        return sum(width or _UNKNOWN_WIDTH for width in widths)
    if pa.types.is_null(data_type):
        return 0.125
    try:
        return max(float(data_type.bit_width / 8), 0.125)
    except ValueError:
        return 0.0

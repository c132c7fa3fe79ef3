"""Which decoder reads a page, by its layout."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from google.protobuf.message import DecodeError

from pyspark_lance.codec.checks import require, unsupported
from pyspark_lance.codec.structural.all_null import ConstantPage
from pyspark_lance.codec.structural.blob import BlobPage
from pyspark_lance.codec.structural.full_zip import FullZipPage
from pyspark_lance.codec.structural.mini_block import CHUNK_BUFFER, MiniBlockForm, MiniBlockPage
from pyspark_lance.codec.structural.page_decoder import PageDecoder
from pyspark_lance.errors import CorruptFileError
from pyspark_lance.proto import encodings_v2_1_pb2


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
    return unsupported(f"page layout {kind}")


@lru_cache(maxsize=512)
def _mini_block_form(encoding: bytes, num_buffers: int) -> MiniBlockForm:
    """What pages of one description share: small files have many of them."""
    return MiniBlockForm(parse_page_layout(encoding).mini_block_layout, num_buffers)

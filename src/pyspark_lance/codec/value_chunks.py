"""ValueChunks and DictionaryBlock: the encoded values of a mini-block page.

Value encoders make them, the page layout puts them together with the levels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.chunk_segments import ChunkBuffer
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


@dataclass(frozen=True, slots=True, eq=False)
class EncodedPage:
    """Buffers and their description.

    ``buffers``: page buffers: bytes or contiguous arrays.
    """

    buffers: Sequence[object]
    layout: pb.PageLayout
    num_rows: int


@dataclass(frozen=True, slots=True, eq=False)
class ValueChunks:
    """The values of a page, encoded and cut into chunks."""

    encoding: pb.CompressiveEncoding
    log2_values: int  # Every chunk but the last holds two to the power of this many values.
    num_values: int  # Values of all chunks; more than 0.
    buffers: tuple[ChunkBuffer, ...]

    def value_ends(self) -> NDArray[np.int64]:
        """One past the last value of each chunk."""
        size = 1 << self.log2_values
        ends = np.arange(size, self.num_values + size, size, dtype=np.int64)
        ends[-1] = self.num_values
        return ends


@dataclass(frozen=True, slots=True, eq=False)
class DictionaryBlock:
    """The distinct values that the page's values are indices of."""

    encoding: pb.CompressiveEncoding
    content: bytes
    num_items: int

"""List: the end positions of lists whose items are another column.

Source: docs/format/file-format.md, section 5.1.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.v2_0.flat import BufferCollector, BufferSlice, FlatDecoder, validity_of
from pyspark_lance.codec.v2_0.variable_width import (
    EndPositions,
    Ends,
    encode_positions,
    value_offsets,
)
from pyspark_lance.proto import encodings_v2_0_pb2 as pb

_MAX_ITEMS = 1 << 62


class ListOffsetsDecoder:
    """The lists of one page."""

    def __init__(self, message: pb.List, offsets: FlatDecoder) -> None:
        self.num_values, self.num_items = offsets.num_values, message.num_items
        require(message.num_items < _MAX_ITEMS, f"a page counts {message.num_items} list items")
        self._ends = EndPositions(offsets, message.null_offset_adjustment)

    def slices(self, start: int, end: int) -> list[BufferSlice]:
        """The offsets, and the one before."""
        return self._ends.slices(start, end)

    def end_slices(self, start: int, end: int) -> list[BufferSlice]:
        """Return the slices that ``span(start, end)`` reads."""
        return self._ends.end_slices(start, end)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """The items of the lists ``start`` to ``end``, counted from the first one of the page."""
        return self._ends.span(start, end, self.num_items)

    def decode(self, start: int, end: int) -> Ends:
        """Offsets of the lists ``start`` to ``end``, counted from the first item of the page."""
        return self._ends.decode(start, end, self.num_items)


def encode_list_offsets(array: pa.Array, collector: BufferCollector) -> pb.ArrayEncoding:
    """List of an array whose null lists have no items; it may be a slice."""
    offsets = value_offsets(array).astype(np.int64)
    num_items = int(offsets[-1] - offsets[0])
    positions: NDArray[np.uint64] = (offsets[1:] - offsets[0]).astype("<u8")
    validity = validity_of(array)
    if validity is not None:
        positions[~validity] += np.uint64(num_items + 1)
    return pb.ArrayEncoding(
        list=pb.List(
            offsets=encode_positions(positions, collector),
            null_offset_adjustment=num_items + 1,
            num_items=num_items,
        )
    )

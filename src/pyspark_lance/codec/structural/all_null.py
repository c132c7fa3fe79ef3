"""Constant pages: every visible slot is null, or has the same value; only levels are stored.

Source: docs/format/file-format.md, section 6.6.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import EncodedPage
from pyspark_lance.codec.encoding_tree import decode_level_block
from pyspark_lance.codec.leaf_column import NULLABLE_ITEM, LeafColumn, LeafValues
from pyspark_lance.codec.levels import Layers, LevelArray, check_levels
from pyspark_lance.codec.row_selection import RowRanges
from pyspark_lance.codec.structural.page_decoder import (
    DecodedRows,
    PagePlan,
    select_all,
    select_ranges,
    select_rows,
)
from pyspark_lance.codec.values import (
    ArrowBuffersValue,
    NullValues,
    Values,
    bits_per_value,
    boolean_values,
    fixed_width_values,
    is_variable_width,
    variable_width_values,
)
from pyspark_lance.proto import encodings_v2_1_pb2
from pyspark_lance.proto import encodings_v2_1_pb2 as pb


class ConstantPage:
    """Decoder of one constant page.

    ``buffer_sizes``: bytes of each buffer of the page.
    """

    def __init__(
        self, layout: encodings_v2_1_pb2.ConstantLayout, num_rows: int, buffer_sizes: Sequence[int]
    ) -> None:
        self.num_rows = num_rows
        self._layout = layout
        self._layers = Layers.from_message(layout.layers)
        count = len(buffer_sizes)
        require(count <= 3, f"a constant page has {count} buffers")
        self._has_block = count in (1, 3)
        self.state_buffers = tuple(range(count))
        self._block: NDArray[np.uint8] | None = None
        self._repetition: LevelArray | None = None
        self._definition: LevelArray | None = None
        self._row_starts: NDArray[np.int64] | None = None

    def load(self, buffers: Sequence[NDArray[np.uint8]]) -> None:
        """Parse the value and the levels."""
        rest = list(buffers)
        if self._has_block:
            self._block = rest.pop(0)
        layout = self._layout
        if rest:
            encoding = layout.rep_compression if layout.HasField("rep_compression") else None
            self._repetition = _levels(rest[0], encoding, int(layout.num_rep_values))
            encoding = layout.def_compression if layout.HasField("def_compression") else None
            self._definition = _levels(rest[1], encoding, int(layout.num_def_values))
        check_levels(self._repetition, self._definition, self._layers)
        if self._repetition is not None:
            starts = np.flatnonzero(self._repetition == self._layers.num_lists)
            found, expected = len(starts), self.num_rows
            require(found == expected, f"the levels have {found} rows, the page {expected}")
            self._row_starts = np.append(starts, len(self._repetition))
        elif self._definition is not None:
            found = len(self._definition)
            require(found == self.num_rows, f"{found} levels for {self.num_rows} rows")

    @property
    def state_bytes(self) -> int:
        """Memory of the value and the levels."""
        kept = self._block, self._repetition, self._definition, self._row_starts
        return sum(one.nbytes for one in kept if one is not None)

    def plan(self, rows: RowRanges) -> PagePlan:
        """Return a plan without buffers to fetch."""
        return PagePlan(rows, ())

    def decode(self, plan: PagePlan, pieces: Sequence[NDArray[np.uint8]]) -> DecodedRows:
        """Decode the levels of exactly the requested rows, and one value for each slot."""
        rows = plan.rows
        visible: NDArray[np.bool_] | None = None
        if self._row_starts is None:
            entries = select_ranges(rows)
        else:
            if self._definition is not None:
                visible = self._definition <= self._layers.max_visible
            begin, end = self._row_starts[rows.starts], self._row_starts[rows.ends]
            entries, _ = select_rows(begin, end, None)
        repetition = None if self._repetition is None else self._repetition[entries]
        definition = None if self._definition is None else self._definition[entries]
        if isinstance(entries, slice):
            num_entries = entries.stop - entries.start
        else:
            num_entries = len(entries)
        num_slots = num_entries if visible is None else int(np.count_nonzero(visible[entries]))
        return DecodedRows(
            self._values(num_slots),
            repetition,
            definition,
            self._layers,
            select_all(num_entries),
            select_all(num_slots),
        )

    def _values(self, num_slots: int) -> Values:
        if self._layout.HasField("inline_value"):
            value = np.frombuffer(self._layout.inline_value, np.uint8)
            return ArrowBuffersValue(num_slots, (value,))
        if self._block is not None:
            return decode_value_block(self._block, num_slots)
        return NullValues(num_slots)


def _levels(
    block: NDArray[np.uint8],
    encoding: encodings_v2_1_pb2.CompressiveEncoding | None,
    num_levels: int,
) -> LevelArray | None:
    if encoding is not None and num_levels:
        return decode_level_block(encoding, block, num_levels)
    if len(block) == 0:
        return None
    require(len(block) % 2 == 0, "levels are cut short")
    return block.view("<u2")


MAX_BUFFERS = 16


def decode_value_block(block: NDArray[np.uint8], num_values: int) -> ArrowBuffersValue:
    """A value as the Arrow buffers of an array of length one, without validity."""
    require(len(block) >= 4, "a constant value has no header")
    count = int(block[:4].view("<u4")[0])
    require(count <= MAX_BUFFERS, f"a constant value has {count} buffers")
    position = 4 + 4 * count
    require(len(block) >= position, "a constant value is cut short")
    buffers = []
    for size in block[4:position].view("<u4").tolist():
        require(position + size <= len(block), "a constant value is cut short")
        buffers.append(block[position : position + size])
        position += size
    return ArrowBuffersValue(num_values, tuple(buffers))


MAX_INLINE_BYTES: Final = 32
_FIRST_LOOK: Final = 64


def only_value(values: pa.Array) -> tuple[NDArray[np.uint8], ...] | None:
    """The Arrow buffers, without validity, of the one value that all of these are.

    ``values``: at least one, none null. Returns None if there are several, or if the type is
    nested.
    """
    data_type = values.type
    if pa.types.is_nested(data_type) or pa.types.is_dictionary(data_type):
        return None
    if is_variable_width(data_type):
        return _only_string(values)
    if pa.types.is_boolean(data_type):
        flags = boolean_values(values, None)
        return (flags[:1].copy(),) if (flags == flags[0]).all() else None
    if bits_per_value(data_type) == 0:
        return None
    numbers = fixed_width_values(values, None)
    return (numbers[:1].copy().view(np.uint8).reshape(-1),) if _all_equal(numbers) else None


def _only_string(values: pa.Array) -> tuple[NDArray[np.uint8], ...] | None:
    offsets, content = variable_width_values(values, None)
    first, length = int(offsets[0]), int(offsets[1]) - int(offsets[0])
    if (np.diff(offsets) != length).any():
        return None
    if length and not _all_equal(content[first : int(offsets[-1])].reshape(-1, length)):
        return None
    own = np.array([0, length], offsets.dtype)
    return own.view(np.uint8), content[first : first + length].copy()


def _all_equal(values: NDArray[Any]) -> bool:
    """Return whether all values, or rows of bytes, are as the first one; bits are compared."""
    look = values[:_FIRST_LOOK]
    return bool((look == values[0]).all()) and bool((values == values[0]).all())


def value_block(buffers: tuple[NDArray[np.uint8], ...]) -> bytes:
    """The buffers behind their number and sizes."""
    sizes = [len(buffer) for buffer in buffers]
    header = struct.pack(f"<I{len(sizes)}I", len(sizes), *sizes)
    return header + b"".join(buffer.tobytes() for buffer in buffers)


def encode_all_null(column: LeafColumn, rows: LeafValues) -> EncodedPage:
    """The levels alone; not even those if every row is one null."""
    layout = pb.PageLayout(constant_layout=pb.ConstantLayout(layers=column.page_layers(rows)))
    if column.layers == (NULLABLE_ITEM,):
        return EncodedPage([], layout, rows.num_rows)
    levels = [
        b"" if part is None else part.astype("<u2").view(np.uint8)
        for part in (rows.repetition, rows.definition)
    ]
    return EncodedPage(levels, layout, rows.num_rows)


def encode_constant(
    column: LeafColumn, rows: LeafValues, value: tuple[NDArray[np.uint8], ...]
) -> EncodedPage:
    """Encode one value for all rows; only files of version 2.2 have these pages.

    ``rows``: without any levels; ``value``: the Arrow buffers of the value, without validity.
    """
    layout = pb.ConstantLayout(layers=column.page_layers(rows))
    buffers: list[object] = []
    if len(value) == 1 and len(value[0]) <= MAX_INLINE_BYTES:
        layout.inline_value = value[0].tobytes()
    else:
        buffers.append(value_block(value))
    return EncodedPage(buffers, pb.PageLayout(constant_layout=layout), rows.num_rows)

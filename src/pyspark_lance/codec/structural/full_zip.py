"""Full-zip pages: large values, each row a byte range of its own.

The writer puts the levels of each value in front of it. So the position of an entry follows only
from the entries before it in its row. A reader walks all rows in step: one pass handles one entry
of every row. When few long rows are left, they are walked one by one.

Source: docs/format/file-format.md, sections 6.3 and 6.8.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.chunk_buffers import EncodedPage, Segments
from pyspark_lance.codec.compressive.encoding_record import ValueDecoder, encoding_kind, flat_bits
from pyspark_lance.codec.compressive.fixed_size_list import (
    ListLayer,
    decode_list_rows,
    decode_null_rows,
    list_layers,
    row_bytes,
)
from pyspark_lance.codec.compressive.fixed_width import require_width
from pyspark_lance.codec.compressive.variable_width import offset_type
from pyspark_lance.codec.decode_memory import as_bytes, require_decode_memory
from pyspark_lance.codec.encoding_tree import value_decoder
from pyspark_lance.codec.gather import gather, read_words
from pyspark_lance.codec.leaf_column import LeafColumn, LeafValues
from pyspark_lance.codec.levels import Layers, LevelArray, check_levels
from pyspark_lance.codec.row_selection import RowRanges, expand_ranges
from pyspark_lance.codec.structural.page_decoder import (
    BufferRange,
    DecodedRows,
    PagePlan,
    select_all,
)
from pyspark_lance.codec.values import FixedWidthValues, Values, VariableWidthValues
from pyspark_lance.plain_values import plain_scalar
from pyspark_lance.proto import encodings_v2_1_pb2
from pyspark_lance.proto import encodings_v2_1_pb2 as pb

# Fewer rows than this are walked one by one.
_SMALL_ROW_COUNT = 12
_FORMATS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


@dataclass(frozen=True, slots=True)
class EntryShape:
    """Layout of an entry."""

    control_bytes: int  # Bytes of the control word: 0, 1, 2 or 4.
    definition_bits: int  # Low bits of the control word that are the definition level.
    max_visible: int  # Highest definition level of an entry with a slot.
    value_bytes: int  # Bytes of a fixed-width value; every visible entry has one. 0 otherwise.
    # Bytes of the length before a value of variable width, which only valid entries have. 0 if the
    # width is fixed.
    length_bytes: int

    def definition_of(self, control: NDArray[np.unsignedinteger]) -> NDArray[np.unsignedinteger]:
        """The definition levels in control words."""
        return control & control.dtype.type((1 << self.definition_bits) - 1)

    @property
    def max_with_value(self) -> int:
        """Highest definition level of an entry that is followed by a value."""
        return 0 if self.length_bytes else self.max_visible


@dataclass(frozen=True, slots=True)
class Entries:
    """The entries of some rows, in order."""

    control: NDArray[np.uint32]  # Control words; empty if there are none.
    starts: NDArray[np.int64]  # Where each entry's value begins, behind its length.
    sizes: NDArray[np.int64]  # Bytes of the value; 0 if there is none.


def walk(
    data: NDArray[np.uint8],
    row_starts: NDArray[np.int64],
    row_ends: NDArray[np.int64],
    shape: EntryShape,
) -> Entries:
    """Parse all entries of the rows.

    ``data``: the bytes; ``row_starts``: where each row begins, ascending.
    """
    inside = bool(((row_starts <= row_ends) & (row_ends <= len(data))).all())
    require(inside, "a row reaches out of its page")
    positions, rows = row_starts.copy(), np.arange(len(row_starts))
    parts: list[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]]
    parts = []
    while True:
        going = positions < row_ends[rows]
        if not going.all():
            positions, rows = positions[going], rows[going]
        if len(rows) == 0:
            break
        if len(rows) < _SMALL_ROW_COUNT:
            parts += _walk_rows(data, positions, row_ends[rows], rows, shape)
            break
        control, starts, sizes = _step(data, positions, row_ends[rows], shape)
        parts.append((rows, control, starts, sizes))
        positions = starts + sizes
    if not parts:
        empty = np.zeros(0, np.int64)
        return Entries(np.zeros(0, np.uint32), empty, empty)
    order = np.argsort(np.concatenate([part[0] for part in parts]), kind="stable")
    return Entries(
        np.concatenate([part[1] for part in parts])[order],
        np.concatenate([part[2] for part in parts])[order],
        np.concatenate([part[3] for part in parts])[order],
    )


def _step(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    row_ends: NDArray[np.int64],
    shape: EntryShape,
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
    """The entries at ``positions``: control words, where their values begin, and their sizes."""
    starts = positions + shape.control_bytes
    require(bool((starts <= row_ends).all()), "an entry exceeds its row")
    if shape.control_bytes:
        control = read_words(data, positions, shape.control_bytes).astype(np.uint32)
    else:
        control = np.zeros(len(positions), np.uint32)
    has_value = shape.definition_of(control) <= shape.max_with_value
    if not shape.length_bytes:
        sizes = np.where(has_value, shape.value_bytes, 0)
    else:
        starts = starts + np.where(has_value, shape.length_bytes, 0)
        require(bool((starts <= row_ends).all()), "an entry exceeds its row")
        sizes = np.zeros(len(positions), np.int64)
        lengths = read_words(data, starts[has_value] - shape.length_bytes, shape.length_bytes)
        require(not len(lengths) or int(lengths.max()) <= len(data), "a value exceeds its page")
        sizes[has_value] = lengths
    require(bool((starts + sizes <= row_ends).all()), "an entry exceeds its row")
    return control, starts, sizes


def _walk_rows(
    data: NDArray[np.uint8],
    positions: NDArray[np.int64],
    row_ends: NDArray[np.int64],
    rows: NDArray[np.int64],
    shape: EntryShape,
) -> list[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]]:
    """Parse each row to its end."""
    parts = []
    for row, position, end in zip(
        rows.tolist(), positions.tolist(), row_ends.tolist(), strict=True
    ):
        control, starts, sizes = _walk_row(data.data, position, end, shape)
        parts.append(
            (
                np.full(len(starts), row),
                np.array(control, np.uint32),
                np.array(starts, np.int64),
                np.array(sizes, np.int64),
            )
        )
    return parts


def _walk_row(
    data: memoryview, position: int, end: int, shape: EntryShape
) -> tuple[list[int], list[int], list[int]]:
    """Parse one row, which is possible only entry by entry."""
    read_control = struct.Struct(_FORMATS.get(shape.control_bytes, "<B")).unpack_from
    read_length = struct.Struct(_FORMATS.get(shape.length_bytes, "<B")).unpack_from
    mask = (1 << shape.definition_bits) - 1
    controls: list[int] = []
    starts: list[int] = []
    sizes: list[int] = []
    if shape.control_bytes and shape.length_bytes:
        position = _walk_values(data, position, end, shape, (controls, starts, sizes))
    while position < end:
        control = 0
        if shape.control_bytes:
            require(position + shape.control_bytes <= end, "an entry exceeds its row")
            control = read_control(data, position)[0]
            position += shape.control_bytes
        size = 0
        if control & mask <= shape.max_with_value:
            size = shape.value_bytes
            if shape.length_bytes:
                require(position + shape.length_bytes <= end, "an entry exceeds its row")
                size = read_length(data, position)[0]
                position += shape.length_bytes
        require(position + size <= end, "an entry exceeds its row")
        controls.append(control)
        starts.append(position)
        sizes.append(size)
        position += size
    return controls, starts, sizes


def _walk_values(
    data: memoryview,
    position: int,
    end: int,
    shape: EntryShape,
    found: tuple[list[int], list[int], list[int]],
) -> int:
    """Walk entries of a row that have control words and values of any length.

    Returns where the first other entry begins, or one that is damaged. ``found``: takes the control
    words, where the values begin, and their sizes.
    """
    controls, starts, sizes = found
    formats = _FORMATS[shape.control_bytes] + _FORMATS[shape.length_bytes][1:]
    read = struct.Struct(formats).unpack_from
    num_bytes, mask = shape.control_bytes + shape.length_bytes, (1 << shape.definition_bits) - 1
    last, most = end - num_bytes, shape.max_with_value
    while position <= last:
        control, size = read(data, position)
        start = position + num_bytes
        if control & mask > most or start + size > end:
            break
        controls.append(control)
        starts.append(start)
        sizes.append(size)
        position = start + size
    return position


def collect(data: NDArray[np.uint8], entries: Entries) -> NDArray[np.uint8]:
    """The values of all entries, one after another."""
    return gather(data, entries.starts, entries.sizes)


DATA_BUFFER, INDEX_BUFFER = 0, 1
# Fetching what lies between two rows costs less than another piece.
_MAX_GAP = 8192
_INDEX_TYPES = {1: "<u1", 2: "<u2", 4: "<u4", 8: "<u8"}


def control_word_bytes(repetition_bits: int, definition_bits: int) -> int:
    """Bytes of the control word for so many level bits."""
    bits = repetition_bits + definition_bits
    return 0 if bits == 0 else 1 if bits <= 8 else 2 if bits <= 16 else 4


def _join_ranges(
    starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return first and last of the ranges that are fetched together."""
    far = np.flatnonzero(starts[1:] - ends[:-1] > _MAX_GAP)
    return np.append(0, far + 1), np.append(far, len(starts) - 1)


class FullZipPage:
    """Decoder of one full-zip page.

    ``buffer_sizes``: bytes of each buffer of the page.
    """

    def __init__(
        self, layout: encodings_v2_1_pb2.FullZipLayout, num_rows: int, buffer_sizes: Sequence[int]
    ) -> None:
        self.num_rows = num_rows
        self._layers = Layers.from_message(layout.layers)
        self._repetition_bits, self._definition_bits = layout.bits_rep, layout.bits_def
        require(layout.bits_rep + layout.bits_def <= 32, "control words of more than 32 bits")
        has_lists = self._layers.num_lists > 0
        # A page of rows that all have one entry may leave the repetition bits out.
        require(has_lists or layout.bits_rep == 0, "repetition levels without a list")
        require(len(buffer_sizes) >= 1, "a full-zip page has no data")
        self._data_bytes = buffer_sizes[DATA_BUFFER]
        self._all_visible = layout.num_visible_items == layout.num_items
        encoding = layout.value_compression
        details = layout.WhichOneof("details")
        require(details is not None, "a full-zip page does not say how wide its values are")
        self._is_fixed = details == "bits_per_value"
        self._list_layers: tuple[ListLayer, ...] = ()
        self._item_bits = 0
        self._holds_values = True
        self._decode_variable: ValueDecoder | None = None
        value_bytes = length_bytes = 0
        if self._is_fixed:
            value_bytes = self._prepare_fixed(encoding, int(layout.bits_per_value))
        else:
            length_bytes = offset_type(int(layout.bits_per_offset)).itemsize
            self._decode_variable = value_decoder(encoding)
        self._shape = EntryShape(
            control_word_bytes(layout.bits_rep, layout.bits_def),
            layout.bits_def,
            self._layers.max_visible,
            value_bytes,
            length_bytes,
        )
        self._needs_index = has_lists or not self._is_fixed
        self.state_buffers: tuple[int, ...] = (INDEX_BUFFER,) if self._needs_index else ()
        self._row_starts: NDArray[np.int64] | None = None
        if self._needs_index:
            require(len(buffer_sizes) > INDEX_BUFFER, "a full-zip page has no repetition index")
        else:
            stride = value_bytes + self._shape.control_bytes
            fits = num_rows * stride <= self._data_bytes
            require(fits, f"{num_rows} rows of {stride} bytes in {self._data_bytes} bytes")

    def _prepare_fixed(
        self, encoding: encodings_v2_1_pb2.CompressiveEncoding, bits_per_value: int
    ) -> int:
        """Bytes per value, after comparing both fields that specify it."""
        self._list_layers, items = list_layers(encoding)
        kind = encoding_kind(items)
        if kind == "constant" and not items.constant.HasField("value"):
            self._holds_values = False
            validity_bytes, _ = row_bytes(self._list_layers, 0)
            if bits_per_value:
                # Vectors of nulls: no items, but bits that say so, which limit the memory.
                same = bits_per_value == validity_bytes * 8 and self._list_layers[-1].has_validity
                require(same, f"null values of {bits_per_value} bits without levels")
                return validity_bytes
            # Releases of Lance before 9 write vectors of nulls so: control words, if there are
            # levels, and nothing else.
            self._list_layers = ()
            return 0
        require(kind == "flat", f"full-zip values are {kind or 'not described'}")
        self._item_bits = flat_bits(items, "full-zip values")
        require_width(self._item_bits)
        value_bytes = sum(row_bytes(self._list_layers, self._item_bits))
        same = value_bytes * 8 == bits_per_value
        require(same, f"values of {value_bytes * 8} bits, the page says {bits_per_value}")
        return value_bytes

    def load(self, buffers: Sequence[NDArray[np.uint8]]) -> None:
        """Parse the repetition index: the start of each row."""
        if not self._needs_index:
            return
        index = buffers[0]
        width, rest = divmod(len(index), self.num_rows + 1)
        require(width in _INDEX_TYPES and rest == 0, "the repetition index does not fit the rows")
        starts = index.view(_INDEX_TYPES[width])
        require(int(starts.max()) <= self._data_bytes, "the repetition index leaves the page")
        positions = starts.astype(np.int64)
        ascending = bool((positions[1:] >= positions[:-1]).all())
        require(ascending, "the repetition index does not ascend")
        self._row_starts = positions

    @property
    def state_bytes(self) -> int:
        """Memory of the repetition index."""
        return 0 if self._row_starts is None else self._row_starts.nbytes

    def plan(self, rows: RowRanges) -> PagePlan:
        """The bytes of each range of rows."""
        starts, ends = self._bytes_of_rows(rows)
        require_decode_memory(int((ends - starts).sum()))
        first, last = _join_ranges(starts, ends)
        bounds = zip(starts[first].tolist(), ends[last].tolist(), strict=True)
        ranges = tuple(BufferRange(DATA_BUFFER, start, end) for start, end in bounds)
        return PagePlan(rows, ranges)

    def decode(self, plan: PagePlan, pieces: Sequence[NDArray[np.uint8]]) -> DecodedRows:
        """Decode exactly the planned rows."""
        data = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        data = self._without_gaps(plan, data)
        if self._row_starts is None:
            return self._decode_grid(data, plan.rows.num_rows)
        row_starts, row_ends = self._rows_in_pieces(plan)
        if self._is_fixed and self._all_visible:
            entry = self._shape.control_bytes + self._shape.value_bytes
            whole = entry > 0 and len(data) % entry == 0
            require(whole, "the rows of a full-zip page end within an entry")
            return self._decode_grid(data, len(data) // entry)
        if not self._is_fixed and not self._layers.num_lists:
            entries = self._one_entry_per_row(data, row_starts, row_ends)
        else:
            entries = walk(data, row_starts, row_ends, self._shape)
        return self._decode_entries(data, entries)

    def _bytes_of_rows(self, rows: RowRanges) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Begin and end of each range of rows in the data."""
        if self._row_starts is not None:
            return self._row_starts[rows.starts], self._row_starts[rows.ends]
        stride = self._shape.control_bytes + self._shape.value_bytes
        return rows.starts * stride, rows.ends * stride

    def _without_gaps(self, plan: PagePlan, data: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """The bytes of the planned rows alone."""
        if len(plan.ranges) == len(plan.rows.starts):
            return data
        starts, ends = self._bytes_of_rows(plan.rows)
        piece_starts = np.array([piece.start for piece in plan.ranges])
        piece_sizes = np.array([piece.end - piece.start for piece in plan.ranges])
        piece = np.searchsorted(piece_starts, starts, side="right") - 1
        shift = (np.cumsum(piece_sizes) - piece_sizes - piece_starts)[piece]
        return gather(data, starts + shift, ends - starts)

    def _rows_in_pieces(self, plan: PagePlan) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Begin and end of every planned row within the concatenated ranges of rows."""
        assert self._row_starts is not None
        rows = plan.rows
        begin, end = self._row_starts[rows.starts], self._row_starts[rows.ends]
        sizes = end - begin
        shift = np.repeat(np.cumsum(sizes) - sizes - begin, rows.ends - rows.starts)
        positions = expand_ranges(rows.starts, rows.ends - rows.starts)
        return self._row_starts[positions] + shift, self._row_starts[positions + 1] + shift

    def _decode_grid(self, data: NDArray[np.uint8], num_entries: int) -> DecodedRows:
        """Decode entries that all have a value of fixed width, as a matrix of bytes."""
        control_bytes = self._shape.control_bytes
        width = control_bytes + self._shape.value_bytes
        require(len(data) >= num_entries * width, "the rows of a full-zip page are cut short")
        grid = data[: num_entries * width].reshape(num_entries, width)
        repetition = definition = None
        if control_bytes:
            words = np.ascontiguousarray(grid[:, :control_bytes])
            control = words.view(_INDEX_TYPES[control_bytes]).reshape(-1)
            repetition, definition = self._split(control)
        values = self._fixed_values(grid[:, control_bytes:])
        return self._finish(values, repetition, definition, num_entries)

    def _fixed_values(self, grid: NDArray[np.uint8]) -> Values:
        if not self._holds_values:
            return decode_null_rows(grid, self._list_layers)
        if self._list_layers:
            return decode_list_rows(grid, self._list_layers, self._item_bits)
        width = 8 if self._item_bits == 1 else self._item_bits
        content = as_bytes(np.ascontiguousarray(grid).reshape(-1))
        return FixedWidthValues(len(grid), width, content)

    def _one_entry_per_row(
        self, data: NDArray[np.uint8], row_starts: NDArray[np.int64], row_ends: NDArray[np.int64]
    ) -> Entries:
        """Locate the entries by the index alone, which suffices without lists."""
        shape = self._shape
        bare = row_starts + shape.control_bytes
        require(bool((bare <= row_ends).all()), "a row is too small for its control word")
        control = np.zeros(len(row_starts), np.uint32)
        if shape.control_bytes:
            control = read_words(data, row_starts, shape.control_bytes).astype(np.uint32)
        valid = shape.definition_of(control) == 0
        starts = np.where(valid, bare + shape.length_bytes, row_ends)
        require(bool((starts <= row_ends).all()), "a row is too small for its length")
        lengths = read_words(data, starts[valid] - shape.length_bytes, shape.length_bytes)
        sizes = row_ends - starts
        agree = bool((lengths == sizes[valid].astype(lengths.dtype)).all())
        require(agree, "a value has another length than its row")
        return Entries(control, starts, sizes)

    def _decode_entries(self, data: NDArray[np.uint8], entries: Entries) -> DecodedRows:
        """Entries at irregular positions; those without a slot are left out of the values."""
        num_entries = len(entries.starts)
        repetition, definition = self._split(entries.control)
        starts, sizes = entries.starts, entries.sizes
        valid = np.ones(num_entries, bool) if definition is None else definition == 0
        if definition is not None and not self._all_visible:
            visible = definition <= self._layers.max_visible
            starts, sizes, valid = starts[visible], sizes[visible], valid[visible]
        if self._is_fixed:
            content = gather(data, starts, sizes)
            values = self._fixed_values(content.reshape(len(starts), self._shape.value_bytes))
        else:
            content = gather(data, starts, sizes)
            offsets = np.zeros(len(starts) + 1, np.int64)
            np.cumsum(sizes, out=offsets[1:])
            assert self._decode_variable is not None
            raw = VariableWidthValues(len(starts), offsets, pa.py_buffer(content))
            values = self._decode_variable(raw, valid)
        return self._finish(values, repetition, definition, num_entries)

    def _split(
        self, control: NDArray[np.unsignedinteger]
    ) -> tuple[LevelArray | None, LevelArray | None]:
        """Repetition and definition levels of control words."""
        repetition: LevelArray | None = None
        if self._repetition_bits:
            repetition = control >> control.dtype.type(self._definition_bits)
        definition = self._shape.definition_of(control) if self._definition_bits else None
        return repetition, definition

    def _finish(
        self,
        values: Values,
        repetition: LevelArray | None,
        definition: LevelArray | None,
        num_entries: int,
    ) -> DecodedRows:
        check_levels(repetition, definition, self._layers)
        return DecodedRows(
            values,
            repetition,
            definition,
            self._layers,
            select_all(num_entries),
            select_all(values.num_values),
        )


def encode_fixed_full_zip(
    column: LeafColumn,
    rows: LeafValues,
    values: NDArray[np.uint8],
    encoding: pb.CompressiveEncoding,
) -> EncodedPage:
    """Values of equal width; every visible entry has one, null or not.

    ``values``: bytes, shape (values, width); ``encoding``: of the bytes of a value.
    """
    control, bits = _control_words(rows)
    layout = pb.PageLayout(
        full_zip_layout=pb.FullZipLayout(
            bits_rep=bits[0],
            bits_def=bits[1],
            bits_per_value=values.shape[1] * 8,
            num_items=rows.num_entries,
            num_visible_items=len(values),
            value_compression=encoding,
            layers=column.page_layers(rows),
        )
    )
    size = control.shape[1]
    if size == 0:
        return EncodedPage([np.ascontiguousarray(values)], layout, rows.num_rows)
    if rows.visible is None:
        zipped = np.concatenate((control, values), axis=1)
        starts = np.arange(len(control)) * zipped.shape[1]
    else:
        sizes = np.full(rows.num_entries, size, np.int64)
        sizes[rows.visible] += values.shape[1]
        starts = np.cumsum(sizes) - sizes
        zipped = np.empty(int(sizes.sum()), np.uint8)
        zipped[starts[:, None] + np.arange(size)] = control
        width = values.shape[1]
        source = np.arange(len(values), dtype=np.int64) * width
        flat = np.ascontiguousarray(values).reshape(-1)
        Segments(flat, source, np.full(len(values), width, np.int64)).copy_to(
            zipped, starts[rows.visible] + size
        )
    buffers: list[object] = [zipped]
    if rows.repetition is not None:
        buffers.append(_index(starts[rows.row_starts(column)], zipped.size))
    return EncodedPage(buffers, layout, rows.num_rows)


def encode_variable_full_zip(
    column: LeafColumn,
    rows: LeafValues,
    offsets: NDArray[np.signedinteger[Any]],
    content: NDArray[np.uint8],
    encoding: pb.CompressiveEncoding,
) -> EncodedPage:
    """Strings and binaries; only valid values have a length and bytes.

    ``offsets``: one more than values; nulls are empty. ``content``: the bytes they count into;
    ``encoding``: of the bytes of a value.
    """
    control, bits = _control_words(rows)
    layout = pb.PageLayout(
        full_zip_layout=pb.FullZipLayout(
            bits_rep=bits[0],
            bits_def=bits[1],
            bits_per_offset=offsets.itemsize * 8,
            num_items=rows.num_entries,
            num_visible_items=len(offsets) - 1,
            value_compression=encoding,
            layers=column.page_layers(rows),
        )
    )
    prefixes = _prefixes(rows, control, offsets)
    payloads = _payloads(rows, offsets, content)
    # Arrow's kernel puts prefix and payload side by side for all entries; its offsets say where.
    zipped = pc.binary_join_element_wise(prefixes, payloads, plain_scalar(b"", pa.large_binary()))
    starts = np.frombuffer(zipped.buffers()[1], np.int64)[: rows.num_entries + 1]
    data = np.frombuffer(zipped.buffers()[2], np.uint8)[: int(starts[-1])]
    if rows.repetition is not None:
        starts = np.append(starts[rows.row_starts(column)], starts[-1])
    return EncodedPage([data, _index(starts[:-1], len(data))], layout, rows.num_rows)


def _control_words(rows: LeafValues) -> tuple[NDArray[np.uint8], tuple[int, int]]:
    """The control word of each entry, shape (entries, bytes), and the bits of its two parts."""
    bits = [
        0 if levels is None else max(1, int(levels.max()).bit_length())
        for levels in (rows.repetition, rows.definition)
    ]
    words = np.zeros(rows.num_entries, "<u2")
    if rows.repetition is not None:
        words |= rows.repetition.astype("<u2") << np.uint16(bits[1])
    if rows.definition is not None:
        words |= rows.definition
    size = 0 if sum(bits) == 0 else 1 if sum(bits) <= 8 else 2
    return words.view(np.uint8).reshape(-1, 2)[:, :size], (bits[0], bits[1])


def _prefixes(
    rows: LeafValues, control: NDArray[np.uint8], offsets: NDArray[np.signedinteger[Any]]
) -> pa.Array:
    """Control word and, for valid values, length of each entry, as binaries."""
    size, width = control.shape[1], offsets.itemsize
    lengths = np.diff(offsets).view(np.uint8).reshape(-1, width)
    if rows.definition is None:
        prefixes = np.concatenate((control, lengths), axis=1).reshape(-1)
        starts = np.arange(rows.num_entries + 1, dtype=np.int64) * (size + width)
    else:
        valid = rows.definition == 0
        starts = np.zeros(rows.num_entries + 1, np.int64)
        np.cumsum(size + valid * width, out=starts[1:])
        prefixes = np.empty(int(starts[-1]), np.uint8)
        prefixes[starts[:-1, None] + np.arange(size)] = control
        is_value = valid if rows.visible is None else valid[rows.visible]
        prefixes[(starts[:-1][valid] + size)[:, None] + np.arange(width)] = lengths[is_value]
    return _binaries(starts, prefixes)


def _payloads(
    rows: LeafValues, offsets: NDArray[np.signedinteger[Any]], content: NDArray[np.uint8]
) -> pa.Array:
    """The bytes of each entry, as binaries; empty where it has none."""
    if rows.visible is None:
        return _binaries(offsets.astype(np.int64), content)
    starts = np.full(rows.num_entries + 1, int(offsets[0]), np.int64)
    lengths = np.zeros(rows.num_entries, np.int64)
    lengths[rows.visible] = np.diff(offsets)
    starts[1:] += np.cumsum(lengths)
    return _binaries(starts, content)


def _binaries(starts: NDArray[np.int64], content: NDArray[np.uint8]) -> pa.Array:
    buffers = [None, pa.py_buffer(starts), pa.py_buffer(content)]
    return pa.Array.from_buffers(pa.large_binary(), len(starts) - 1, buffers)


def _index(starts: NDArray[np.int64], end: int) -> NDArray[np.uint8]:
    """Encode the row starts and the end in the narrowest integer type that fits."""
    kinds = ("u1", "<u2", "<u4", "<u8")
    kind = next(kind for kind in kinds if end <= np.iinfo(kind).max)
    return np.append(starts, end).astype(kind).view(np.uint8)

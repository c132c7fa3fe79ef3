"""Finding the entries of full-zip rows, whose places follow only from the entries before.

All rows are walked in step, so that one pass handles one entry of every row; when few long rows
are left, these are walked one by one.

Source: docs/format/file-format.md, section 6.3.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.gather import gather, read_words

# Fewer rows than this are walked one by one.
_SMALL_ROW_COUNT = 12
_FORMATS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}


@dataclass(frozen=True, slots=True)
class EntryShape:
    """What an entry is made of."""

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
    """All entries of the rows.

    ``data``: the bytes; ``row_starts``: where each row begins, ascending.
    """
    inside = bool(((row_starts <= row_ends) & (row_ends <= len(data))).all())
    require(inside, "a row reaches out of its page")
    places, rows = row_starts.copy(), np.arange(len(row_starts))
    parts: list[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]]
    parts = []
    while True:
        going = places < row_ends[rows]
        if not going.all():
            places, rows = places[going], rows[going]
        if len(rows) == 0:
            break
        if len(rows) < _SMALL_ROW_COUNT:
            parts += _walk_rows(data, places, row_ends[rows], rows, shape)
            break
        control, starts, sizes = _step(data, places, row_ends[rows], shape)
        parts.append((rows, control, starts, sizes))
        places = starts + sizes
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
    places: NDArray[np.int64],
    row_ends: NDArray[np.int64],
    shape: EntryShape,
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]:
    """The entries at ``places``: control words, where their values begin, and their sizes."""
    starts = places + shape.control_bytes
    require(bool((starts <= row_ends).all()), "an entry exceeds its row")
    if shape.control_bytes:
        control = read_words(data, places, shape.control_bytes).astype(np.uint32)
    else:
        control = np.zeros(len(places), np.uint32)
    has_value = shape.definition_of(control) <= shape.max_with_value
    if not shape.length_bytes:
        sizes = np.where(has_value, shape.value_bytes, 0)
    else:
        starts = starts + np.where(has_value, shape.length_bytes, 0)
        require(bool((starts <= row_ends).all()), "an entry exceeds its row")
        sizes = np.zeros(len(places), np.int64)
        lengths = read_words(data, starts[has_value] - shape.length_bytes, shape.length_bytes)
        require(not len(lengths) or int(lengths.max()) <= len(data), "a value exceeds its page")
        sizes[has_value] = lengths
    require(bool((starts + sizes <= row_ends).all()), "an entry exceeds its row")
    return control, starts, sizes


def _walk_rows(
    data: NDArray[np.uint8],
    places: NDArray[np.int64],
    row_ends: NDArray[np.int64],
    rows: NDArray[np.int64],
    shape: EntryShape,
) -> list[tuple[NDArray[np.int64], NDArray[np.uint32], NDArray[np.int64], NDArray[np.int64]]]:
    """Walks each row to its end."""
    parts = []
    for row, place, end in zip(rows.tolist(), places.tolist(), row_ends.tolist(), strict=True):
        control, starts, sizes = _walk_row(data.data, place, end, shape)
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
    data: memoryview, place: int, end: int, shape: EntryShape
) -> tuple[list[int], list[int], list[int]]:
    """One row: there is no other way than entry by entry."""
    read_control = struct.Struct(_FORMATS.get(shape.control_bytes, "<B")).unpack_from
    read_length = struct.Struct(_FORMATS.get(shape.length_bytes, "<B")).unpack_from
    mask = (1 << shape.definition_bits) - 1
    controls, starts, sizes = [], [], []
    while place < end:
        control = 0
        if shape.control_bytes:
            require(place + shape.control_bytes <= end, "an entry exceeds its row")
            control = read_control(data, place)[0]
            place += shape.control_bytes
        size = 0
        if control & mask <= shape.max_with_value:
            size = shape.value_bytes
            if shape.length_bytes:
                require(place + shape.length_bytes <= end, "an entry exceeds its row")
                size = read_length(data, place)[0]
                place += shape.length_bytes
        require(place + size <= end, "an entry exceeds its row")
        controls.append(control)
        starts.append(place)
        sizes.append(size)
        place += size
    return controls, starts, sizes


def collect(data: NDArray[np.uint8], entries: Entries) -> NDArray[np.uint8]:
    """The values of all entries, one after another."""
    return gather(data, entries.starts, entries.sizes)

"""Arrow arrays to repetition and definition levels.

From the root inwards: every row starts as one live entry; an item layer marks the entries that are
null, a list layer replaces every live entry by one entry per item and leaves the null and the empty
ones behind as entries that go no further.  Siblings share the work of their parents: levels are
numbered from the outside while descending and renumbered once, at the leaf.

Source: docs/format/file-format.md, section 6.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.codec.leaf_column import (
    ALL_VALID_ITEM,
    DEFINITIONS_OWNED,
    EMPTYABLE_LIST,
    LIST_LAYERS,
    NULL_AND_EMPTY_LIST,
    NULLABLE_ITEM,
    LeafValues,
    is_listlike,
    is_one_column,
    is_struct_list,
    item_field,
    storage_type,
)
from pyspark_lance.codec.row_selection import expand_ranges, take_values
from pyspark_lance.codec.values import without_null_items
from pyspark_lance.errors import SchemaMismatchError
from pyspark_lance.plain_values import plain_array


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """The level entries so far; arrays are never changed in place."""

    num_rows: int
    count: int
    # For every entry the number of the list it continues, counted from the outside; 0 for a new
    # row. None before the first list.
    depths: NDArray[np.uint8] | None = None
    # Definition values counted from the outside; None if all are 0.
    codes: NDArray[np.uint8] | None = None
    # Positions of the entries that the current array has a slot for; None if all.
    slots: NDArray[np.int64] | None = None
    layers: tuple[int, ...] = ()  # The layers passed, outermost first.

    @property
    def codes_given(self) -> int:
        return sum(DEFINITIONS_OWNED[layer] for layer in self.layers)

    @property
    def lists_passed(self) -> int:
        return sum(layer in LIST_LAYERS for layer in self.layers)

    def slot_codes(self) -> NDArray[np.uint8] | None:
        """The codes of the slots of the current array."""
        if self.codes is None or self.slots is None:
            return self.codes
        return self.codes[self.slots]


def shred(array: pa.Array, field: pa.Field) -> list[LeafValues]:
    """The rows of every leaf column of ``field``, in the order of ``leaf_columns(field)``.

    ``field``: has the nullability; its type is the array's but for nullability and names.
    """
    return list(_shred(array, field, field.name, _Entries(len(array), len(array))))


def _shred(array: pa.Array, field: pa.Field, name: str, entries: _Entries) -> Iterator[LeafValues]:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if pa.types.is_dictionary(array.type):
        array = without_null_items(array)
    data_type = storage_type(field.type)
    if is_listlike(data_type):
        item = item_field(data_type)
        items, inner = _enter_list(array, field, name, entries)
        yield from _shred(items, item, f"{name}.{item.name}", inner)
        return
    entries = _enter_item(array, field, name, entries)
    if pa.types.is_struct(data_type) and not is_one_column(field):
        for index, child in enumerate(data_type):
            yield from _shred(array.field(index), child, f"{name}.{child.name}", entries)
    elif is_struct_list(data_type):
        item = item_field(data_type)
        repeated = _repeat(entries, data_type.list_size)
        yield from _shred(_fixed_size_items(array), item, f"{name}.{item.name}", repeated)
    else:
        yield _leaf(array, entries)


def _enter_item(array: pa.Array, field: pa.Field, name: str, entries: _Entries) -> _Entries:
    """Mark the slots that are null and not already inside something null."""
    layer = NULLABLE_ITEM if field.nullable else ALL_VALID_ITEM
    entered = replace(entries, layers=(*entries.layers, layer))
    nulls = null_flags(array)
    if nulls is None:
        return entered
    outer = entries.slot_codes()
    own = nulls if outer is None else nulls & (outer == 0)
    if not field.nullable:
        _require_no_nulls(own, name)
        return entered
    code = np.uint8(entries.codes_given + 1)
    if entries.slots is None:
        marks = own.view(np.uint8) * code
        return replace(entered, codes=marks if outer is None else outer | marks)
    codes = np.zeros(entries.count, np.uint8) if entries.codes is None else entries.codes.copy()
    codes[entries.slots[own]] = code
    return replace(entered, codes=codes)


def _enter_list(
    array: pa.Array, field: pa.Field, name: str, entries: _Entries
) -> tuple[pa.Array, _Entries]:
    """Open the live, non-empty lists.

    Returns the items of the lists that were opened, and their entries.
    """
    layer = NULL_AND_EMPTY_LIST if field.nullable else EMPTYABLE_LIST
    offsets = list_offsets(array)
    lengths = np.diff(offsets)
    nulls, outer = null_flags(array), entries.slot_codes()
    live = None if outer is None else outer == 0
    if nulls is not None and live is not None:
        nulls &= live
    if nulls is not None and not field.nullable:
        _require_no_nulls(nulls, name)
    opened = lengths > 0
    if nulls is not None:
        opened &= ~nulls
    if live is not None:
        opened &= live
    kept = lengths if opened.all() else np.where(opened, lengths, 0)
    marks = _closed_slot_codes(entries, layer, nulls, live, opened)
    items = _gather_items(array, offsets, lengths, kept)
    return items, _expand(entries, layer, kept, opened, marks)


def _closed_slot_codes(
    entries: _Entries,
    layer: int,
    nulls: NDArray[np.bool_] | None,
    live: NDArray[np.bool_] | None,
    opened: NDArray[np.bool_],
) -> NDArray[np.uint8]:
    """Return, for every slot that is not opened, the code of the reason; 0 for opened slots."""
    empty_code = entries.codes_given + DEFINITIONS_OWNED[layer]
    marks = (~opened).view(np.uint8) * np.uint8(empty_code)
    if nulls is not None:
        marks[nulls] = entries.codes_given + 1
    if live is not None:
        outer = entries.slot_codes()
        assert outer is not None
        marks[~live] = outer[~live]
    return marks


def _expand(
    entries: _Entries,
    layer: int,
    kept: NDArray[np.int64],
    opened: NDArray[np.bool_],
    marks: NDArray[np.uint8],
) -> _Entries:
    """Create one entry per item, and one for each slot that was not opened; keep dead entries."""
    depth = np.uint8(entries.lists_passed + 1)
    layers = (*entries.layers, layer)
    if entries.slots is None:
        counts, closed_codes = np.where(opened, kept, 1), marks
        open_entries = opened
    else:
        counts = np.ones(entries.count, np.int64)
        counts[entries.slots[opened]] = kept[opened]
        assert entries.depths is not None
        closed_codes = np.zeros(entries.count, np.uint8) if entries.codes is None else entries.codes
        closed_codes = closed_codes.copy()
        closed_codes[entries.slots] = marks
        open_entries = np.zeros(entries.count, np.bool_)
        open_entries[entries.slots[opened]] = True
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    depths = np.full(total, depth, np.uint8)
    depths[firsts] = 0 if entries.depths is None else entries.depths
    if open_entries.all():
        return _Entries(entries.num_rows, total, depths, None, None, layers)
    closed = firsts[~open_entries]
    codes = np.zeros(total, np.uint8)
    codes[closed] = closed_codes[~open_entries]
    has_slot = np.ones(total, np.bool_)
    has_slot[closed] = False
    return _Entries(entries.num_rows, total, depths, codes, np.flatnonzero(has_slot), layers)


def _repeat(entries: _Entries, size: int) -> _Entries:
    """The entries below a fixed-size list of structs; there are no lists above it."""
    codes = None if entries.codes is None else np.repeat(entries.codes, size)
    return replace(entries, count=entries.count * size, codes=codes)


def _gather_items(
    array: pa.Array,
    offsets: NDArray[np.signedinteger],
    lengths: NDArray[np.int64],
    kept: NDArray[np.int64],
) -> pa.Array:
    """The items of the lists that are kept: a slice, unless a null list has items."""
    items = list_items(array)
    if kept is lengths or not (lengths != kept).any():
        return items.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))
    return take_values(items, plain_array(expand_ranges(offsets[:-1].astype(np.int64), kept)))


def _leaf(values: pa.Array, entries: _Entries) -> LeafValues:
    owned = [DEFINITIONS_OWNED[layer] for layer in entries.layers]
    num_lists = entries.lists_passed
    repetition = None if entries.depths is None else np.uint8(num_lists) - entries.depths
    definition = entries.codes
    if definition is not None and not definition.any():
        definition = None
    if definition is not None and sum(owned) > 1:
        definition = _inner_first(owned)[definition]
    return LeafValues(
        values, entries.num_rows, entries.count, repetition, definition, entries.slots
    )


def _inner_first(owned: list[int]) -> NDArray[np.uint8]:
    """Renumber definition values: index = counted from the outside, value = from the inside.

    Keep the order within one layer: null before empty.
    """
    numbers = np.zeros(sum(owned) + 1, np.uint8)
    before, behind = 0, sum(owned)
    for count in owned:
        behind -= count
        for value in range(1, count + 1):
            numbers[before + value] = behind + value
        before += count
    return numbers


def null_flags(array: pa.Array) -> NDArray[np.bool_] | None:
    """Return true where a slot is null, also through a dictionary; None if nowhere."""
    if pa.types.is_null(array.type):
        return np.ones(len(array), np.bool_) if len(array) else None
    if array.null_count == 0:
        return None
    validity = np.frombuffer(array.buffers()[0], np.uint8)
    first, skip = divmod(array.offset, 8)
    inverted = ~validity[first : (array.offset + len(array) + 7) // 8]
    bits = np.unpackbits(inverted, count=skip + len(array), bitorder="little")
    return bits[skip:].view(np.bool_)


def list_offsets(array: pa.Array) -> NDArray[np.int64]:
    """The offsets of a list, large list or map, slices respected."""
    if len(array) == 0:
        return np.zeros(1, np.int64)
    data_type = np.int64 if pa.types.is_large_list(array.type) else np.int32
    offsets = np.frombuffer(array.buffers()[1], data_type)
    return offsets[array.offset : array.offset + len(array) + 1].astype(np.int64)


def list_items(array: pa.Array) -> pa.Array:
    """Return all items of a list, large list or map, as its offsets count them."""
    if pa.types.is_map(array.type):
        data_type = array.type
        return pa.StructArray.from_arrays(
            [array.keys, array.items], fields=[data_type.key_field, data_type.item_field]
        )
    return array.values


def _require_no_nulls(nulls: NDArray[np.bool_], name: str) -> None:
    if nulls.any():
        raise SchemaMismatchError(
            f"column {name} is not nullable but has {int(nulls.sum())} null values",
            hint="make the column nullable or replace the nulls",
        )


def has_dictionaries(data_type: pa.DataType) -> bool:
    """Return whether the type is or holds a dictionary."""
    data_type = storage_type(data_type)
    if pa.types.is_dictionary(data_type):
        return True
    return any(
        has_dictionaries(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def is_counted_separately(data_type: pa.DataType) -> bool:
    """Return whether Arrow's own byte count of an array differs from ``data_bytes``."""
    data_type = storage_type(data_type)
    if pa.types.is_dictionary(data_type) or pa.types.is_null(data_type):
        return True
    return any(
        is_counted_separately(data_type.field(index).type) for index in range(data_type.num_fields)
    )


def data_bytes(array: pa.Array) -> int:
    """Bytes of the rows of an array.

    Dictionaries do not count, slices share them.  Values of the type null, which have no bytes,
    count one each: flattening lists of them needs as much.
    """
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    if not is_counted_separately(data_type):
        return int(array.nbytes)
    if pa.types.is_null(data_type):
        return len(array)
    if pa.types.is_dictionary(data_type):
        return int(array.indices.nbytes)
    if pa.types.is_struct(data_type):
        return sum(data_bytes(array.field(index)) for index in range(data_type.num_fields))
    if is_listlike(data_type):
        offsets = list_offsets(array)
        first, end = int(offsets[0]), int(offsets[-1])
        return offsets.nbytes + data_bytes(list_items(array).slice(first, end - first))
    return data_bytes(_fixed_size_items(array))


def _fixed_size_items(array: pa.FixedSizeListArray) -> pa.Array:
    """Return the items of all rows, those of null rows, too."""
    size = array.type.list_size
    return array.values.slice(array.offset * size, len(array) * size)


def item_counts(array: pa.Array) -> Iterator[NDArray[np.int64]]:
    """Yield, for every list at any depth, the number of items before each row, and in all.

    Each result has one number more than the array has rows: the items before each row, and the
    total. Items below a null list count, too.
    """
    yield from _item_counts(array, np.arange(len(array) + 1))


def _item_counts(array: pa.Array, bounds: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    """The same for values between ``bounds``, which ascend."""
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    data_type = array.type
    if is_listlike(data_type):
        inside = list_offsets(array)[bounds]
        yield inside - inside[0]
        yield from _item_counts(list_items(array), inside)
    elif pa.types.is_struct(data_type):
        for index in range(data_type.num_fields):
            yield from _item_counts(array.field(index), bounds)
    elif pa.types.is_fixed_size_list(data_type):
        yield from _item_counts(array.values, (bounds + array.offset) * data_type.list_size)


def has_lists(data_type: pa.DataType) -> bool:
    """Return whether the type is or holds a list of any length."""
    data_type = storage_type(data_type)
    return is_listlike(data_type) or any(
        has_lists(data_type.field(index).type) for index in range(data_type.num_fields)
    )

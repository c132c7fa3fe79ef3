"""Assemble Arrow arrays from decoded values and levels, and concatenate arrays of partial rows.

A stored dictionary stays one where the consumer takes dictionaries, as the JVM plugin does: to look
up its items for every row costs much more than to decode its indices, and the consumer copies less.
Other pages of the column may hold plain strings, so the arrays of a column may differ in type.

An Arrow array has limits: strings and lists have 32-bit offsets, and the indices of a dictionary
address a limited number of items. Concatenation merges dictionaries; what does not fit into one
array stays in several batches.

Source: docs/format/file-format.md, section 6.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.codec.checks import require
from pyspark_lance.codec.decode_memory import (
    BatchTooLargeError,
    require_decode_memory,
    require_memory_for_items,
)
from pyspark_lance.codec.gather import take_items
from pyspark_lance.codec.levels import Unraveler
from pyspark_lance.codec.structural.page_decoder import DecodedRows, Selection
from pyspark_lance.codec.v2_0.flat import bit_width_of
from pyspark_lance.codec.values import (
    ArrowBuffersValue,
    DictionaryValues,
    EncodedStrings,
    FixedSizeListValues,
    FixedWidthValues,
    NullItems,
    NullValues,
    StructValues,
    Values,
    VariableWidthValues,
    is_variable_width,
)
from pyspark_lance.plain_values import plain_array, plain_numbers

# With more items, or with fewer rows for each of them, rows without a dictionary are no larger.
_MAX_ITEMS = 4096
_ROWS_PER_ITEM = 4
# Every batch has all items.
_MAX_BYTES = 1 << 20
# A batch with the items of all rows, which some conditions need, must not be too large.
_LONGEST_ITEM = 1 << 10
_INDEX_TYPES = {8: pa.uint8(), 16: pa.uint16(), 32: pa.int32()}


def can_be_kept(data_type: pa.DataType) -> bool:
    """Return whether values of the type, which is not that of a dictionary, may come as one."""
    return bool(pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def kept_type(values: Values, data_type: pa.DataType) -> pa.DataType:
    """The type of a dictionary of ``data_type`` if ``values`` are one worth keeping."""
    if not can_be_kept(data_type):
        return data_type
    if isinstance(values, ArrowBuffersValue):
        return pa.dictionary(pa.int32(), data_type)
    if not isinstance(values, DictionaryValues):
        return data_type
    index_type = _INDEX_TYPES.get(values.indices.bits_per_value)
    most = min(_MAX_ITEMS, values.num_values // _ROWS_PER_ITEM)
    if index_type is None or values.items.num_values > most:
        return data_type
    return pa.dictionary(index_type, data_type)


def is_small_dictionary(array: pa.Array) -> bool:
    """Return whether ``array`` is a dictionary so small that each batch may have all its items."""
    return (
        pa.types.is_dictionary(array.type)
        and len(array.dictionary) <= _MAX_ITEMS
        and array.dictionary.nbytes <= _MAX_BYTES
        and _longest(array.dictionary) <= _LONGEST_ITEM
    )


def _longest(items: pa.Array) -> int:
    """Bytes of the longest string; 0 if there is none."""
    return pc.max(pc.binary_length(items)).as_py() or 0 if is_variable_width(items.type) else 0


def of_one_type(arrays: Sequence[pa.Array]) -> Sequence[pa.Array]:
    """The same values, without dictionaries unless all arrays are dictionaries of one type."""
    if len({array.type for array in arrays}) < 2:
        return arrays
    return [
        expand_dictionary(array) if pa.types.is_dictionary(array.type) else array
        for array in arrays
    ]


def expand_dictionary(array: pa.DictionaryArray) -> pa.Array:
    """The items that the indices of ``array`` name."""
    used = array.indices.drop_null() if array.null_count else array.indices
    require_memory_for_items(array.dictionary, plain_numbers(used))
    try:
        return take_items(array.dictionary, array.indices)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise BatchTooLargeError from error


_MAX_INT32 = 2**31 - 1


def assemble_rows(
    decoded: DecodedRows, data_type: pa.DataType, *, keep_dictionaries: bool = False
) -> tuple[pa.Array, Unraveler]:
    """The leaf array of the requested rows, and their levels with the leaf's layer consumed.

    ``keep_dictionaries``: return strings that are stored as a dictionary of few items as one, of
    ``data_type`` and any type of indices.
    """
    values = decoded.values
    everything = Unraveler(
        decoded.repetition, decoded.definition, decoded.layers, values.num_values
    )
    valid = everything.item_validity()
    slots = decoded.slots
    # Looking items up and decoding strings cost much more than choosing what is wanted first.
    chosen = _select_values(values, slots)
    wanted = data_type
    if keep_dictionaries:
        data_type = kept_type(values if chosen is None else chosen, wanted)
    if chosen is not None:
        array = assemble_leaf(chosen, data_type, None if valid is None else valid[slots])
    else:
        array = _select(assemble_leaf(values, data_type, valid), slots)
    if keep_dictionaries and data_type != wanted and not is_small_dictionary(array):
        array = expand_dictionary(array)
    unraveler = Unraveler(
        _select_levels(decoded.repetition, decoded.entries),
        _select_levels(decoded.definition, decoded.entries),
        decoded.layers,
        len(array),
    )
    unraveler.skip_item()
    return array, unraveler


def _select(array: pa.Array, slots: Selection) -> pa.Array:
    if not isinstance(slots, slice):
        return pc.take(array, plain_array(slots), boundscheck=False)
    if slots.start == 0 and slots.stop == len(array):
        return array
    return array.slice(slots.start, slots.stop - slots.start)


def _select_values(values: Values, slots: Selection) -> Values | None:
    """The values at ``slots``, of the kinds that are not yet in their final form; else None."""
    if isinstance(values, DictionaryValues):
        return _select_indices(values, slots)
    if isinstance(values, EncodedStrings) and not isinstance(slots, slice):
        stored = values.stored
        data_type = pa.large_binary() if stored.offsets.dtype == np.int64 else pa.binary()
        array = pc.take(
            _assemble_plain(stored, data_type, None), plain_array(slots), boundscheck=False
        )
        _, ends, content = array.buffers()
        offsets = np.frombuffer(ends, stored.offsets.dtype)[: len(slots) + 1]
        codes = VariableWidthValues(len(slots), offsets, content or pa.py_buffer(b""))
        return EncodedStrings(codes, values.decode)
    return None


def _select_indices(values: DictionaryValues, slots: Selection) -> DictionaryValues:
    chosen = _index_words(values.indices)[slots]
    indices = FixedWidthValues(len(chosen), values.indices.bits_per_value, chosen.view(np.uint8))
    return DictionaryValues(len(chosen), indices, values.items)


def _index_words(indices: FixedWidthValues) -> NDArray[np.unsignedinteger]:
    size = indices.bits_per_value // 8
    return indices.buffer[: indices.num_values * size].view(f"<u{size}")


def _select_levels(
    levels: NDArray[np.unsignedinteger] | None, entries: Selection
) -> NDArray[np.unsignedinteger] | None:
    return None if levels is None else levels[entries]


def assemble_leaf(
    values: Values, data_type: pa.DataType, valid: NDArray[np.bool_] | None
) -> pa.Array:
    """An array of ``data_type``.

    ``values``: one per slot. ``valid``: which slots are valid; None for all.
    """
    if isinstance(values, NullItems) and pa.types.is_fixed_size_list(data_type):
        validity = None if valid is None else pack_validity(valid)
        require_decode_memory(values.num_values * bit_width_of(data_type) // 8)
        items = pa.nulls(values.num_values * data_type.list_size, data_type.value_type)
        return pa.Array.from_buffers(data_type, values.num_values, [validity], children=[items])
    if isinstance(values, NullValues | NullItems) or pa.types.is_null(data_type):
        require_decode_memory(values.num_values * bit_width_of(data_type) // 8)
        return pa.nulls(values.num_values, data_type)
    if isinstance(values, ArrowBuffersValue):
        return _repeat_value(values, data_type, valid)
    if isinstance(values, EncodedStrings):
        values = values.decode(values.stored)
    if isinstance(values, DictionaryValues):
        return _assemble_dictionary(values, data_type, valid)
    if pa.types.is_dictionary(data_type):
        return (
            assemble_leaf(values, data_type.value_type, valid).dictionary_encode().cast(data_type)
        )
    validity = None if valid is None else pack_validity(valid)
    return _assemble_plain(values, data_type, validity)


def pack_validity(valid: NDArray[np.bool_]) -> pa.Buffer:
    """A validity bitmap."""
    return pa.py_buffer(np.packbits(valid, bitorder="little"))


def _assemble_plain(values: Values, data_type: pa.DataType, validity: pa.Buffer | None) -> pa.Array:
    count = values.num_values
    if isinstance(values, NullValues) or pa.types.is_null(data_type):
        return pa.nulls(count, data_type)
    if isinstance(values, FixedWidthValues):
        buffer = _fixed_width_buffer(values, data_type)
        return pa.Array.from_buffers(data_type, count, [validity, buffer])
    if isinstance(values, VariableWidthValues):
        offsets = _offsets_for(values.offsets, data_type)
        buffers = [validity, pa.py_buffer(offsets), values.data]
        return pa.Array.from_buffers(data_type, count, buffers)
    if isinstance(values, FixedSizeListValues):
        fits = pa.types.is_fixed_size_list(data_type) and data_type.list_size == values.dimension
        require(fits, f"lists of {values.dimension} items where {data_type} is expected")
        bitmap = None if values.item_validity is None else pa.py_buffer(values.item_validity)
        items = _assemble_plain(values.items, data_type.value_type, bitmap)
        return pa.Array.from_buffers(data_type, count, [validity], children=[items])
    require(isinstance(values, StructValues), f"values that make no {data_type}")
    assert isinstance(values, StructValues)
    return _assemble_packed_struct(values, data_type, validity)


def _fixed_width_buffer(values: FixedWidthValues, data_type: pa.DataType) -> pa.Buffer:
    bits = values.bits_per_value
    if pa.types.is_boolean(data_type) and bits == 8:
        # Full-zip pages spend a byte on a boolean.
        return pa.py_buffer(np.packbits(values.buffer[: values.num_values], bitorder="little"))
    require(
        _is_fixed_width(data_type) and data_type.bit_width == bits,
        f"values of {bits} bits where {data_type} is expected",
    )
    return pa.py_buffer(values.buffer)


def _is_fixed_width(data_type: pa.DataType) -> bool:
    return (
        pa.types.is_primitive(data_type)
        or pa.types.is_fixed_size_binary(data_type)
        or (pa.types.is_decimal(data_type) or pa.types.is_boolean(data_type))
    )


def _offsets_for(
    offsets: NDArray[np.signedinteger], data_type: pa.DataType
) -> NDArray[np.signedinteger]:
    """The offsets in the width that the type has."""
    if pa.types.is_string(data_type) or pa.types.is_binary(data_type):
        if len(offsets) and int(offsets[-1]) > _MAX_INT32:
            raise BatchTooLargeError
        return offsets.astype(np.int32, copy=False)
    large = pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type)
    require(large, f"strings where {data_type} is expected")
    return offsets.astype(np.int64, copy=False)


def _assemble_packed_struct(
    values: StructValues, data_type: pa.DataType, validity: pa.Buffer | None
) -> pa.Array:
    fits = pa.types.is_struct(data_type) and data_type.num_fields == len(values.children)
    require(fits, f"a packed struct of {len(values.children)} fields is not {data_type}")
    children = [
        assemble_leaf(child, field.type, None)
        for child, field in zip(values.children, data_type, strict=True)
    ]
    if values.present is not None:
        indices = np.cumsum(values.present) - 1
        spread = plain_array(indices, ~values.present)
        children = [pc.take(child, spread) for child in children]
    return pa.Array.from_buffers(data_type, values.num_values, [validity], children=children)


def _assemble_dictionary(
    values: DictionaryValues, data_type: pa.DataType, valid: NDArray[np.bool_] | None
) -> pa.Array:
    is_dictionary = pa.types.is_dictionary(data_type)
    items = assemble_leaf(values.items, data_type.value_type if is_dictionary else data_type, None)
    if is_dictionary:
        index_type = data_type.index_type
        require(
            index_type.bit_width == values.indices.bits_per_value,
            f"indices of {values.indices.bits_per_value} bits where {data_type} is expected",
        )
        indices = _index_array(values, index_type, valid)
        return pa.DictionaryArray.from_arrays(indices, items, ordered=data_type.ordered, safe=False)
    bits = values.indices.bits_per_value
    signed = {8: pa.int8(), 16: pa.int16(), 32: pa.int32(), 64: pa.int64()}[bits]
    # Indices are checked, so that reading them as signed changes nothing; Arrow is faster then.
    too_many = values.items.num_values > 1 << (bits - 1)
    unsigned = {8: pa.uint8(), 16: pa.uint16(), 32: pa.uint32(), 64: pa.uint64()}[bits]
    indices = _index_array(values, unsigned if too_many else signed, valid)
    require_memory_for_items(items, _index_words(values.indices))
    try:
        return take_items(items, indices)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise BatchTooLargeError from error


def _index_array(
    values: DictionaryValues, index_type: pa.DataType, valid: NDArray[np.bool_] | None
) -> pa.Array:
    validity = None if valid is None else pack_validity(valid)
    buffer = pa.py_buffer(values.indices.buffer)
    return pa.Array.from_buffers(index_type, values.num_values, [validity, buffer])


def _repeat_value(
    value: ArrowBuffersValue, data_type: pa.DataType, valid: NDArray[np.bool_] | None
) -> pa.Array:
    single = _single_value(value, data_type)
    require_decode_memory(single.nbytes * value.num_values)
    zeros = np.zeros(value.num_values, np.int8)
    try:
        indices = plain_array(zeros, None if valid is None else ~valid)
        return pc.take(single, indices, boundscheck=False)
    except (pa.ArrowInvalid, pa.ArrowCapacityError) as error:
        raise BatchTooLargeError from error


def _single_value(value: ArrowBuffersValue, data_type: pa.DataType) -> pa.Array:
    """The value as an array of length one."""
    if pa.types.is_dictionary(data_type):
        return _single_value(value, data_type.value_type).dictionary_encode().cast(data_type)
    kind, buffers, length = data_type, list(value.buffers), 1
    children: list[pa.DataType] = []
    while pa.types.is_fixed_size_list(kind):
        children.append(kind)
        length *= kind.list_size
        kind = kind.value_type
    if _is_fixed_width(kind):
        require(len(buffers) == 1, f"a constant {data_type} of {len(buffers)} buffers")
        size = (kind.bit_width * length + 7) // 8
        require(len(buffers[0]) >= size, f"a constant {data_type} of {len(buffers[0])} bytes")
        array = pa.Array.from_buffers(kind, length, [None, pa.py_buffer(buffers[0])])
    else:
        array = _single_string(buffers, kind)
    for list_type in reversed(children):
        length //= list_type.list_size
        array = pa.Array.from_buffers(list_type, length, [None], children=[array])
    return array


def _single_string(buffers: Sequence[NDArray[np.uint8]], data_type: pa.DataType) -> pa.Array:
    large = pa.types.is_large_string(data_type) or pa.types.is_large_binary(data_type)
    small = pa.types.is_string(data_type) or pa.types.is_binary(data_type)
    require(large or small, f"a constant value of type {data_type}")
    require(len(buffers) == 2, f"a constant {data_type} of {len(buffers)} buffers")
    size = 16 if large else 8
    require(len(buffers[0]) >= size, f"a constant {data_type} without offsets")
    # The copy aligns them.
    offsets = buffers[0][:size].copy().view("<i8" if large else "<i4")
    fits = 0 <= offsets[0] <= offsets[1] <= len(buffers[1])
    require(bool(fits), f"a constant {data_type} that points outside of its bytes")
    content = [None, pa.py_buffer(offsets), pa.py_buffer(buffers[1])]
    return pa.Array.from_buffers(data_type, 1, content)


def assemble_list(
    data_type: pa.DataType, items: pa.Array, unravelers: Sequence[Unraveler]
) -> pa.Array:
    """A list, large list or map around ``items``; passes one list layer.

    ``items``: the items of all pieces, one after another; ``unravelers``: the levels of each piece.
    """
    large = pa.types.is_large_list(data_type)
    parts = [unraveler.list_offsets() for unraveler in unravelers]
    total = sum(int(offsets[-1]) for offsets, _ in parts)
    require(total == len(items), f"the levels make {total} list items, there are {len(items)}")
    if not large and total > _MAX_INT32:
        raise BatchTooLargeError
    offsets = np.empty(sum(len(part) - 1 for part, _ in parts) + 1, np.int64 if large else np.int32)
    base = position = 0
    for part, _ in parts:
        np.add(part, base, out=offsets[position : position + len(part)], casting="unsafe")
        base += int(part[-1])
        position += len(part) - 1
    valid = join_validity([valid for _, valid in parts], [u.num_slots for u in unravelers])
    validity = None if valid is None else pack_validity(valid)
    return pa.Array.from_buffers(
        data_type, len(offsets) - 1, [validity, pa.py_buffer(offsets)], children=[items]
    )


def assemble_items(
    data_type: pa.DataType, children: Sequence[pa.Array], unravelers: Sequence[Unraveler]
) -> pa.Array:
    """A struct, or a fixed-size list of structs, around its children; passes one item layer.

    ``children``: the children of all pieces; ``unravelers``: the levels of each piece, of any one
    child.
    """
    counts = [unraveler.num_slots for unraveler in unravelers]
    valid = join_validity([unraveler.item_validity() for unraveler in unravelers], counts)
    count = sum(counts)
    size = data_type.list_size if pa.types.is_fixed_size_list(data_type) else 1
    fits = all(len(child) == count * size for child in children)
    require(fits, f"the parts of {data_type} are unequally long")
    require(
        valid is None or len(valid) == count, f"unequally many levels and values of {data_type}"
    )
    validity = None if valid is None else pack_validity(valid)
    return pa.Array.from_buffers(data_type, count, [validity], children=list(children))


def select_fields(array: pa.Array, data_type: pa.DataType, kept: Sequence[int]) -> pa.Array:
    """The struct ``array`` with only the fields at ``kept``, of type ``data_type``."""
    if list(kept) == list(range(array.type.num_fields)):
        return array
    children = [array.field(index) for index in kept]
    validity = None
    if array.null_count:
        valid = array.is_valid()
        validity = pc.take(valid, plain_array(np.arange(len(valid)))).buffers()[1]
    return pa.Array.from_buffers(data_type, len(array), [validity], children=children)


def join_validity(
    parts: Sequence[NDArray[np.bool_] | None], counts: Sequence[int]
) -> NDArray[np.bool_] | None:
    """Join the validity of pieces, of which some may be all valid; None if all are."""
    if all(part is None for part in parts):
        return None
    filled = [
        np.ones(count, bool) if part is None else part
        for part, count in zip(parts, counts, strict=True)
    ]
    return filled[0] if len(filled) == 1 else np.concatenate(filled)


_CANNOT_JOIN = (pa.ArrowInvalid, pa.ArrowCapacityError, pa.ArrowNotImplementedError)


def concat_arrays(arrays: Sequence[pa.Array]) -> pa.Array:
    """The values of all arrays, which have one type, in one; there is at least one."""
    if len(arrays) == 1:
        return arrays[0]
    try:
        return pa.concat_arrays(arrays)
    except _CANNOT_JOIN as error:
        raise BatchTooLargeError from error


def fewest_batches(batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The rows of all batches, which have one schema, in one if they fit; no batch is empty."""
    filled = [batch for batch in batches if batch.num_rows]
    if len(filled) < 2:
        return filled
    try:
        # Columns that do not fit into one array stay in several, and rows are cut at all of them.
        joined: list[pa.RecordBatch] = pa.Table.from_batches(filled).combine_chunks().to_batches()
    except _CANNOT_JOIN:
        return filled
    return joined


def join_columns(batches: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """``fewest_batches`` of rows that are not needed otherwise; clears the list.

    Columns are joined one after another, so that only one of them takes twice its memory.
    """
    filled = [batch for batch in batches if batch.num_rows]
    batches.clear()
    if len(filled) < 2:
        return filled
    schema = filled[0].schema
    parts = [[batch.column(index) for batch in filled] for index in range(len(schema))]
    filled.clear()
    columns: list[pa.ChunkedArray] = []
    for index, member in enumerate(schema):
        one = pa.Table.from_arrays([pa.chunked_array(parts[index])], schema=pa.schema([member]))
        parts[index].clear()
        with suppress(*_CANNOT_JOIN):
            one = one.combine_chunks()
        columns.append(one.column(0))
    joined: list[pa.RecordBatch] = pa.Table.from_arrays(columns, schema=schema).to_batches()
    return joined


def join_batches(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """The rows of all batches, which have one schema, in one; there is at least one batch."""
    joined = fewest_batches(batches)
    if len(joined) > 1:
        rows = sum(batch.num_rows for batch in joined)
        raise BatchTooLargeError(f"{rows} rows of {joined[0].schema.names} are to be joined")
    return joined[0] if joined else batches[0]

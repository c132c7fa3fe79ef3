from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from random_tables import random_array, random_type

from pyspark_lance.codec.leaf_column import (
    DEFINITIONS_OWNED,
    LIST_LAYERS,
    LeafValues,
    concat_leaf_values,
    is_listlike,
    item_field,
    leaf_columns,
)
from pyspark_lance.codec.shred import shred
from pyspark_lance.errors import SchemaMismatchError


def slow_shred(values: list, field: pa.Field) -> list[list[tuple[int, int, object]]]:
    """Levels and values of every leaf, entry by entry; None is a null, MISSING no slot."""
    columns = list(leaf_columns(field))
    return [
        [
            entry
            for value in values
            for entry in _entries(value, field, column, 0, len(column.layers), columns, number)
        ]
        for number, column in enumerate(columns)
    ]


MISSING = object()


def _entries(value, field, column, rep_done, depth, columns, number):
    """Entries of one value of ``field``; the layers at ``depth - 1`` and below are still inside."""
    layers, kind = column.layers, field.type
    own = depth - 1
    base = sum(DEFINITIONS_OWNED[layer] for layer in layers[:own])
    max_rep = column.max_repetition
    start = max_rep - rep_done
    if is_listlike(kind):
        if value is None:
            return [(start, base + 1, MISSING)]
        if len(value) == 0:
            return [(start, base + DEFINITIONS_OWNED[layers[own]], MISSING)]
        inside = sum(layer in LIST_LAYERS for layer in layers[:own])
        item = item_field(kind)
        found = []
        for position, child in enumerate(value):
            if pa.types.is_map(kind):
                child = {item.type.field(0).name: child[0], item.type.field(1).name: child[1]}
            part = _entries(child, item, column, max_rep - inside, own, columns, number)
            found += [(start, *part[0][1:]), *part[1:]] if position == 0 else part
        return found
    if value is None:
        code = base + 1
        if any(layer in LIST_LAYERS for layer in layers[:own]):
            return [(start, code, MISSING)]
        return [(start, code, None)]
    if not pa.types.is_struct(kind):
        return [(start, 0, value)]
    chosen = number
    for child in kind:
        inner = len(list(leaf_columns(child)))
        if chosen < inner:
            return _entries(value[child.name], child, column, rep_done, own, columns, chosen)
        chosen -= inner
    raise AssertionError


def fast_entries(rows: LeafValues) -> list[tuple[int, int, object]]:
    visible = np.arange(rows.num_entries) if rows.visible is None else rows.visible
    values: list[object] = [MISSING] * rows.num_entries
    for position, value in zip(visible.tolist(), rows.values.to_pylist(), strict=True):
        values[position] = value
    zeros = np.zeros(rows.num_entries, np.uint8)
    repetition = zeros if rows.repetition is None else rows.repetition
    definition = zeros if rows.definition is None else rows.definition
    return [
        (rep, code, None if code and value is not MISSING else value)
        for rep, code, value in zip(repetition.tolist(), definition.tolist(), values, strict=True)
    ]


def comparable(entries):
    return [
        (rep, code, "missing" if value is MISSING else repr(value)) for rep, code, value in entries
    ]


@pytest.mark.parametrize("seed", range(120))
def test_shredded_levels_equal_reference(seed):
    rng = np.random.default_rng(seed)
    array = random_array(rng, random_type(rng, "2.2"), 40)[seed % 5 :]
    field = pa.field("c", array.type)
    expected = slow_shred(array.to_pylist(), field)
    found = [fast_entries(rows) for rows in shred(array, field)]
    assert [comparable(part) for part in found] == [comparable(part) for part in expected]


def test_shred_matches_format_example():
    kind = pa.list_(pa.field("item", pa.int32(), nullable=False))
    field = pa.field("c", kind, nullable=False)
    (rows,) = shred(pa.array([[1, 2], [], [3]], kind), field)
    assert rows.repetition.tolist() == [1, 0, 1, 1]
    assert rows.definition.tolist() == [0, 0, 1, 0]
    assert rows.visible.tolist() == [0, 1, 3]
    assert rows.values.to_pylist() == [1, 2, 3]


def test_definition_levels_match_format_example():
    # [NULLABLE_ITEM, NULL_AND_EMPTY_LIST, NULLABLE_ITEM]: null int, null list, empty list,
    # null struct.
    kind = pa.struct([("l", pa.list_(pa.int32()))])
    array = pa.array([{"l": [None]}, {"l": None}, {"l": []}, None, {"l": [5]}], kind)
    (rows,) = shred(array, pa.field("s", kind))
    assert rows.definition.tolist() == [1, 2, 3, 4, 0]


def test_items_of_null_lists_are_dropped():
    lists = pa.ListArray.from_arrays(
        pa.array([0, 2, 4, 6], pa.int32()), pa.array(range(6)), mask=pa.array([False, True, False])
    )
    (rows,) = shred(lists, pa.field("c", lists.type))
    assert rows.values.to_pylist() == [0, 1, 4, 5]


def test_items_below_null_structs_are_dropped():
    lists = pa.array([[1], [2, 3], [4]])
    structs = pa.StructArray.from_arrays([lists], ["l"], mask=pa.array([False, True, False]))
    (rows,) = shred(structs, pa.field("c", structs.type))
    assert rows.values.to_pylist() == [1, 4]
    assert rows.definition.tolist() == [0, 4, 0]


def test_null_in_required_field_error_names_field():
    field = pa.field("c", pa.struct([pa.field("a", pa.int32(), nullable=False)]))
    with pytest.raises(SchemaMismatchError, match=r"c\.a"):
        shred(pa.array([{"a": None}], pa.struct([("a", pa.int32())])), field)


def test_required_field_below_null_struct_is_accepted():
    field = pa.field("c", pa.struct([pa.field("a", pa.int32(), nullable=False)]))
    (rows,) = shred(pa.array([None, {"a": 1}], pa.struct([("a", pa.int32())])), field)
    assert rows.definition.tolist() == [2 - 1, 0]


def test_dictionary_nulls_become_index_nulls():
    array = pa.DictionaryArray.from_arrays(
        pa.array([0, 1, None, 2], pa.int8()), pa.array(["a", None, "b"])
    )
    (rows,) = shred(array, pa.field("c", array.type))
    assert rows.definition.tolist() == [0, 1, 1, 0]
    assert rows.values.dictionary.to_pylist() == ["a", "b"]
    assert rows.values.to_pylist() == ["a", None, None, "b"]


@pytest.mark.parametrize("seed", range(20))
def test_leaf_values_can_be_halved_and_joined(seed):
    rng = np.random.default_rng(seed)
    field = pa.field("c", pa.list_(random_type(rng, "2.2", depth=1)))
    array = random_array(rng, field.type, 30)
    for column, rows in zip(leaf_columns(field), shred(array, field), strict=True):
        first, second = rows.halves(column)
        assert first.num_rows + second.num_rows == 30
        joined = concat_leaf_values([first, second])
        assert comparable(fast_entries(joined)) == comparable(fast_entries(rows))

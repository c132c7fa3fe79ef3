"""The comparison of data file tests distinguishes values exactly as their text does."""

from __future__ import annotations

from decimal import Decimal
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from column_cases import column_cases, with_nulls
from same_text import assert_same_text, has_same_text, have_same_bits

NAN = float("nan")
# Columns of two rows, whose first ones have equal types but mostly different values.
VALUES = [
    pa.array([1, 7], pa.int8()),
    pa.array([2, 7], pa.int8()),
    pa.array([None, 7], pa.int8()),
    pa.array([1.0, 7.0]),
    pa.array([True, True]),
    pa.array([0.0, 7.0]),
    pa.array([-0.0, 7.0]),
    pa.array([NAN, 7.0]),
    pa.array([None, 7.0]),
    pa.array([0.0, 7.0], pa.float32()),
    pa.array([-0.0, 7.0], pa.float16()),
    pa.array([Decimal("1.0"), Decimal("7.0")], pa.decimal128(9, 1)),
    pa.array([Decimal("1.00"), Decimal("7.00")], pa.decimal128(9, 2)),
    pa.array([Decimal("1.00"), Decimal("7.00")], pa.decimal256(40, 2)),
    pa.array([1, 7], pa.timestamp("us")),
    pa.array([1, 7], pa.timestamp("us", "UTC")),
    pa.array([1, 7], pa.timestamp("us", "+01:00")),
    pa.array([1, 7], pa.date32()),
    pa.array([1, 7], pa.duration("us")),
    pa.array(["1", "7"]),
    pa.array(["", "7"]),
    pa.array([None, "7"]),
    pa.array([b"1", b"7"]),
    pa.array([b"1", b"7"], pa.binary(1)),
    pa.array(["1", "7"]).dictionary_encode(),
    pa.array([1.0, 7.0]).dictionary_encode(),
    pa.array([0.0, 7.0]).dictionary_encode(),
    pa.array([-0.0, 7.0]).dictionary_encode(),
    pa.nulls(2),
    pa.nulls(2, pa.int64()),
    pa.array([bytes(16), bytes(16)], pa.uuid()),
]
SHAPES = {
    "plain": lambda one: one,
    "list": lambda one: pa.ListArray.from_arrays([0, 1, 2], one),
    "large_list": lambda one: pa.LargeListArray.from_arrays([0, 1, 2], one),
    "longer_list": lambda one: pa.ListArray.from_arrays([0, 0, 2], one),
    "null_list": lambda one: pa.ListArray.from_arrays(pa.array([None, 0, 2], pa.int32()), one),
    "vector": lambda one: pa.FixedSizeListArray.from_arrays(one, 1),
    "struct": lambda one: pa.StructArray.from_arrays([one], ["a"]),
    "struct_b": lambda one: pa.StructArray.from_arrays([one], ["b"]),
    "null_struct": lambda one: pa.StructArray.from_arrays(
        [one], ["a"], mask=pa.array([True, False])
    ),
    "map": lambda one: pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "l"]), one),
    "key": lambda one: pa.MapArray.from_arrays([0, 1, 2], pa.array(["j", "l"]), one),
    "deep": lambda one: pa.ListArray.from_arrays(
        [0, 2], pa.StructArray.from_arrays([pa.FixedSizeListArray.from_arrays(one, 1)], ["a"])
    ),
}


def texts(column: pa.Array) -> list[str]:
    return [str({"c": value}) for value in column.to_pylist()]


@pytest.mark.parametrize("shape", SHAPES)
def test_columns_compare_equal_exactly_if_text_is_equal(shape):
    found = [SHAPES[shape](one) for one in VALUES]
    for left, right in product(found, found):
        assert has_same_text(left, right) == (texts(left) == texts(right)), (left, right)


def test_equal_bits_have_equal_text():
    every = [make(one) for make in SHAPES.values() for one in VALUES]
    for left, right in product(every, every):
        if have_same_bits(left, right):
            assert texts(left) == texts(right), (left, right)
    # Arrow is not asked for dictionaries of floats and for extensions.
    alone = [one for one in every if not have_same_bits(one, one)]
    assert {str(one.type) for one in alone} >= {"extension<arrow.uuid>"}
    assert len(alone) == 4 * len(SHAPES)


def test_changed_row_of_any_type_is_detected():
    for name, column in column_cases(300).items():
        column = with_nulls(column, 0.1)
        for row in (0, len(column) - 1):
            rows = np.arange(len(column))
            other = column.take(pa.array(np.where(rows == row, (row + 1) % len(column), rows)))
            null = column.take(pa.array(rows, mask=rows == row))
            for changed in (other, null):
                assert has_same_text(column, changed) == (texts(column) == texts(changed)), name
        assert has_same_text(column[3:], pa.concat_arrays([column[3:7], column[7:]])), name


def test_comparison_covers_names_and_row_counts():
    table = pa.table({"a": [1, 2], "b": [NAN, -0.0]})
    assert_same_text(table, pa.concat_tables([table[:1], table[1:]]))
    for other in (
        table[:1],
        table.rename_columns(["a", "c"]),
        table.select(["b", "a"]),
        table.take([1, 0]),
    ):
        with pytest.raises(AssertionError):
            assert_same_text(table, other)

"""Items of dictionaries, looked up: as Arrow's own kernel gives them."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.codec.array_assembly import assemble_leaf
from pyspark_lance.codec.gather import take_items
from pyspark_lance.codec.values import DictionaryValues, FixedWidthValues, VariableWidthValues

STRINGS = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]


@st.composite
def dictionaries(draw):
    """Items, of one size or of several, and indices of them."""
    size = draw(st.integers(0, 20))
    of_one_size = st.binary(min_size=size, max_size=size)
    items = draw(st.lists(st.one_of(of_one_size, st.binary(max_size=3)) if draw(st.booleans())
                          else of_one_size, min_size=1, max_size=10))  # fmt: skip
    first = draw(st.integers(0, len(items) - 1))
    array = pa.array([item.hex()[:size] for item in items], draw(st.sampled_from(STRINGS)))
    index = st.integers(0, len(items) - first - 1)
    indices = draw(st.lists(st.one_of(index, st.none()) if draw(st.booleans()) else index))
    return array.slice(first), pa.array(indices, draw(st.sampled_from([pa.int8(), pa.uint16()])))


@given(dictionaries())
def test_take_items_equals_arrow_take(given):
    items, indices = given
    taken = take_items(items, indices)
    taken.validate(full=True)
    assert taken.equals(items.take(indices))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8, 16, 17])
def test_take_items_with_equal_sizes(size):
    items = pa.array([f"{i:0{size}}"[:size] for i in range(10)])
    indices = pa.array([i * 7 % 10 for i in range(5000)], pa.int16())
    taken = take_items(items, indices[3:])
    assert taken.to_pylist() == [items[i * 7 % 10].as_py() for i in range(3, 5000)]


@pytest.mark.parametrize("kind", STRINGS)
def test_take_items_of_slice_ignores_earlier_items(kind):
    items = pa.array(["", "longer", "a", "b"]).cast(kind).slice(2)
    indices = pa.array([1, 0, 1], pa.int8())
    assert take_items(items, indices).equals(items.take(indices))


def test_items_beyond_128_are_found_by_bytes():
    items = pa.array([f"{n:03}" for n in range(250)], pa.string())
    ends = np.arange(0, 3 * 250 + 1, 3, dtype=np.int32)
    indices = np.array([249, 0, 128, 127], np.uint8)
    values = DictionaryValues(
        4, FixedWidthValues(4, 8, indices), VariableWidthValues(250, ends, items.buffers()[2])
    )
    assert assemble_leaf(values, pa.string(), None).to_pylist() == ["249", "000", "128", "127"]

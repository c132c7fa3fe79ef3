"""Rows that differ, for generated types, against Python's own comparison."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_tables import random_array, random_type

from pyspark_lance.table.cdf.row_differences import differing_values


def shown(array: pa.Array) -> list[str]:
    """Text of each value: NaN is like NaN, and 0.0 is not like -0.0."""
    return [repr(value) for value in array.to_pylist()]


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), version=st.sampled_from(["2.0", "2.1", "2.2"]))
def test_values_differ_exactly_if_texts_differ(seed, version):
    rng = np.random.default_rng(seed)
    kind = random_type(rng, version)
    rows = int(rng.integers(1, 60))
    one = random_array(rng, kind, rows, null_structs=version >= "2.1")
    other = random_array(rng, kind, rows, null_structs=version >= "2.1")
    # Most rows stay as they are, and both sides begin somewhere in their buffers.
    chosen = np.where(rng.random(rows) < 0.7, np.arange(rows), np.arange(rows) + rows)
    other = pa.concat_arrays([one, other]).take(pa.array(chosen))
    start = int(rng.integers(0, rows))
    one, other = one.slice(start), other.slice(start)
    expected = [left != right for left, right in zip(shown(one), shown(other), strict=True)]
    assert differing_values(one, other).tolist() == expected


@pytest.mark.parametrize(
    ("kind", "one", "other", "expected"),
    [
        (pa.float64(), [0.0, float("nan"), None], [-0.0, float("nan"), 1.0], [True, False, True]),
        (pa.list_(pa.int32()), [[], None, [1]], [None, None, [1, 2]], [True, False, True]),
        (pa.list_(pa.float32(), 2), [[1, None], None], [[1, 2], [0, 0]], [True, True]),
        (pa.map_(pa.string(), pa.int8()), [[("a", 1)], []], [[("a", 2)], []], [True, False]),
        (pa.struct([("a", pa.null())]), [{"a": None}, None], [None, None], [True, False]),
        (pa.dictionary(pa.int8(), pa.string()), ["a", "b"], ["b", "b"], [True, False]),
    ],
)
def test_row_differences_in_corner_cases(kind, one, other, expected):
    assert differing_values(pa.array(one, kind), pa.array(other, kind)).tolist() == expected


def test_values_under_nulls_are_ignored():
    values = pa.array([1, 2]), pa.array([1, 3])
    mask = pa.array([False, True])
    one, other = (pa.StructArray.from_arrays([v], names=["a"], mask=mask) for v in values)
    assert differing_values(one, other).tolist() == [False, False]

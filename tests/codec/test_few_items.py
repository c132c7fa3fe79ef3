"""Which values are few enough for a dictionary, found out by samples."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from pyspark_lance.codec.compressive.dictionary import few_items

RNG = np.random.default_rng(4)


def texts(count: int, distinct: int) -> pa.Array:
    """``count`` long strings, all of ``distinct`` ones among them."""
    numbers = np.concatenate((np.arange(distinct), RNG.integers(0, distinct, count - distinct)))
    return pa.array([f"{number:0300}" for number in RNG.permutation(numbers).tolist()])


@pytest.mark.parametrize(
    ("count", "distinct"), [(5000, 2500), (20_000, 9000), (5000, 30), (3000, 1), (150, 75)]
)
def test_values_repeated_twice_are_dictionary_encoded(count, distinct):
    values = texts(count, distinct)
    encoded = few_items(values, values.nbytes)
    assert encoded is not None
    assert len(encoded.dictionary) == distinct
    assert encoded.cast(pa.string()).equals(values)


@pytest.mark.parametrize("count", [150, 2000, 5000, 20_000])
def test_distinct_values_are_not_dictionary_encoded(count):
    values = texts(count, count)
    assert few_items(values, values.nbytes) is None

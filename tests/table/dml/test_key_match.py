"""Matching of source rows and target rows by equal keys."""

from __future__ import annotations

import datetime

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.table.dml.key_filter import KeyTable, key_buckets

NUMBERS = st.one_of(st.none(), st.integers(-3, 3))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "a" * 300, "a" * 299 + "b"]))


def naive_pairs(source, target):
    return sorted(
        (i, j)
        for i, one in enumerate(source)
        for j, other in enumerate(target)
        if one == other and None not in one
    )


@given(
    st.lists(st.tuples(NUMBERS, TEXTS), max_size=12),
    st.lists(st.tuples(NUMBERS, TEXTS), max_size=12),
)
def test_pairs_equal_naive_join(source, target):
    def columns(rows, number, text):
        return [
            pa.array([row[0] for row in rows], number),
            pa.array([row[1] for row in rows], text),
        ]

    table = KeyTable(columns(target, pa.int64(), pa.string()))
    rows, places = table.pairs(columns(source, pa.int16(), pa.large_string()))
    assert sorted(zip(rows.tolist(), places.tolist(), strict=True)) == naive_pairs(source, target)
    assert (np.diff(rows) >= 0).all()


@pytest.mark.parametrize(
    ("mine", "theirs", "equal"),
    [
        (pa.array([2**64 - 1], pa.uint64()), pa.array([-1], pa.int64()), False),
        (pa.array([2**63 + 5], pa.uint64()), pa.array([2**63 + 5], pa.uint64()), True),
        (pa.array([7], pa.uint64()), pa.array([7], pa.int8()), True),
        (pa.array([True]), pa.array([True]), True),
        (pa.array([datetime.date(2020, 1, 2)]), pa.array([datetime.date(2020, 1, 2)]), True),
    ],
)
def test_values_of_similar_types_compare_exactly(mine, theirs, equal):
    rows, _ = KeyTable([mine]).pairs([theirs])
    assert len(rows) == equal


def test_keys_with_equal_hash_are_distinguished():
    # Of long texts only the first characters are hashed.
    texts = pa.array(["x" * 400 + str(i) for i in range(50)])
    rows, places = KeyTable([texts]).pairs([texts])
    assert rows.tolist() == places.tolist() == list(range(50))


def test_equal_keys_share_bucket_and_nulls_are_spread():
    keys = pa.array([*range(100), *[None] * 64], pa.int32())
    buckets = key_buckets([keys], 8)
    assert set(buckets.tolist()) == set(range(8))
    assert np.bincount(buckets[100:], minlength=8).tolist() == [8] * 8
    assert (key_buckets([keys.cast(pa.int64())], 8)[:100] == buckets[:100]).all()


def test_empty_side_has_no_pairs():
    empty, one = pa.array([], pa.int64()), pa.array([1], pa.int64())
    assert len(KeyTable([empty]).pairs([one])[0]) == 0
    assert len(KeyTable([one]).pairs([empty])[0]) == 0

"""KeyFilter: no key is ever missed, equal keys of two types are equal, few others pass."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_access import write_table

from pyspark_lance.predicate.conditions import matching
from pyspark_lance.table.dml import key_filter
from pyspark_lance.table.dml.key_filter import (
    KeyCollector,
    KeyFilter,
    hash_keys,
    is_hashable,
    keys_condition,
    same_hashes,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table

TEXTS = st.lists(st.one_of(st.none(), st.text(max_size=40)), min_size=1, max_size=30)


@given(texts=TEXTS, start=st.integers(0, 5))
def test_text_hash_is_independent_of_offset_and_type(texts, start):
    hashes = hash_keys([pa.array(texts, pa.string())])
    wide = pa.array(["?" * start, *texts, "x"], pa.large_string()).slice(1, len(texts))
    assert (hash_keys([wide]) == hashes).all()
    assert len(np.unique(hashes)) == len({("null",) if t is None else t for t in texts})


@given(numbers=st.lists(st.one_of(st.none(), st.integers(0, 127)), min_size=1, max_size=30))
def test_equal_integers_of_any_width_have_equal_hash(numbers):
    wanted = hash_keys([pa.array(numbers, pa.int64())])
    for kind in (pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint32(), pa.uint64()):
        assert (hash_keys([pa.array(numbers, kind)]) == wanted).all()


def test_filter_passes_all_keys_and_few_others():
    ids = pa.array(np.arange(200_000))
    names = pa.array([f"n{i % 1000}" for i in range(200_000)])
    whole = [
        hash_keys([ids.slice(i, 50_000), names.slice(i, 50_000)]) for i in range(0, 200_000, 50_000)
    ]
    keys = KeyFilter.of(whole[:2]).union(KeyFilter.of(whole[2:]))
    assert keys.may_contain(np.concatenate(whole)).all()
    others = hash_keys([pa.array(np.arange(200_000, 400_000)), names])
    assert keys.may_contain(others).mean() < 0.001
    swapped = hash_keys([pa.array(np.roll(np.arange(200_000), 7)), names])
    assert keys.may_contain(swapped).mean() < 0.001
    assert keys.share() < 0.001


@pytest.mark.parametrize("counts", [(0, 0), (0, 900), (30, 70_000), (40_000, 40_000), (1, 1)])
@pytest.mark.parametrize("is_turned", [False, True])
def test_filter_union_passes_all_keys_and_few_others(counts, is_turned):
    numbers = np.arange(sum(counts))
    parts = np.split(numbers, [counts[0]])
    hashes = [hash_keys([pa.array(part)]) for part in parts]
    filters = [KeyFilter.of([one]) for one in hashes][:: -1 if is_turned else 1]
    both = filters[0].union(filters[1])
    assert both == KeyFilter.of(hashes) and both == both.union(both)
    assert both.may_contain(np.concatenate(hashes)).all()
    others = hash_keys([pa.array(np.arange(sum(counts), sum(counts) + 50_000))])
    assert both.may_contain(others).mean() <= (0.001 if sum(counts) > 1000 else 0)
    assert not both.may_contain(others[:0]).any()


def test_small_filter_is_as_large_as_its_hashes():
    hashes = hash_keys([pa.array([7, 8, 9, 8, None])])
    keys = KeyFilter.of([hashes[:3], hashes[3:]])
    assert len(keys.content) == 4 * 8
    assert KeyFilter.of([]).content == b"" and KeyFilter.of([]).share() == keys.share() == 0


@given(
    keys=st.lists(st.integers(0, 300), max_size=60),
    looked_for=st.lists(st.integers(0, 300), max_size=60),
    few=st.sampled_from([0, 3, 1 << 16]),
)
def test_filter_built_in_parts_misses_no_key(keys, looked_for, few):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_filter, "_SMALL_KEY_COUNT", few)
        hashes = hash_keys([pa.array(keys, pa.int64())])
        parts = [KeyFilter.of([hashes[at : at + 5]]) for at in range(0, len(keys), 5)]
        together = reduce(KeyFilter.union, parts, KeyFilter.of([]))
        found = together.may_contain(hash_keys([pa.array(looked_for, pa.int64())]))
    assert found.tolist() == [key in keys for key in looked_for]


def test_long_texts_and_extreme_values_are_hashed():
    texts = ["a" * 255, "a" * 256, "a" * 300, "a" * 255 + "b", ""]
    assert len(np.unique(hash_keys([pa.array(texts)]))) == 5
    limits = pa.array([2**63 - 1, -(2**63), -1, 0])
    assert len(np.unique(hash_keys([limits]))) == 4
    assert len(hash_keys([pa.array([], pa.string())])) == 0
    assert hash_keys([pa.array([2**64 - 1], pa.uint64())]) == hash_keys([pa.array([-1])])


@pytest.mark.parametrize(
    ("one", "other", "comparable"),
    [
        (pa.int8(), pa.uint64(), True),
        (pa.string(), pa.large_string(), True),
        (pa.bool_(), pa.bool_(), True),
        (pa.date32(), pa.date32(), True),
        (pa.int64(), pa.string(), False),
        (pa.int64(), pa.float64(), False),
        (pa.float64(), pa.float64(), False),
    ],
)
def test_same_hashes_requires_comparable_types(one, other, comparable):
    assert same_hashes(one, other) is comparable
    assert not comparable or (is_hashable(one) and is_hashable(other))


def test_condition_of_keys_includes_both_ends_of_type(tmp_path):
    path, ends = str(tmp_path / "t"), [-(2**31), 2**31 - 1]
    write_table(path, pa.table({"id": pa.array(ends, pa.int32())}))
    keys = KeyCollector()
    keys.add([pa.array([*ends, -(2**31) - 1, 2**31], pa.int64())])
    condition = keys_condition(Snapshot.open(Table(path)), ["id"], keys.result())
    batch = pa.record_batch({"id": pa.array([*ends, 0], pa.int32())})
    assert matching(condition, batch).tolist() == [True, True, False]

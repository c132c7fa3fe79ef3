"""What pruning rules out can never match, and what it should rule out it does."""

import time

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.predicate.conditions import (
    Bounds,
    can_match,
    evaluate,
    fragments_that_can_match,
    matches_everywhere,
    row_address_candidates,
    row_id_candidates,
    rows_that_can_match,
)
from pyspark_lance.predicate.parse import parse_predicate

CREATED, UPDATED = "_row_created_at_version", "_row_last_updated_at_version"
SCHEMA = pa.schema({"x": pa.int64(), "s": pa.string()})


def parse(text):
    return parse_predicate(text.replace("$c", CREATED).replace("$u", UPDATED), SCHEMA)


def between(low, high, values=None):
    return Bounds(low, high, None if values is None else np.array(values, np.uint64))


@pytest.mark.parametrize(
    ("text", "possible", "certain"),
    [
        ("$c > 4", True, False),
        ("$c > 7", False, False),
        ("$c >= 3", True, True),
        ("$c < 3", False, False),
        ("$c <= 7.5", True, True),
        ("$c <= 2.5", False, False),
        ("7.5 > $c", True, True),
        ("$c = 2", False, False),
        ("$c = 5", True, False),
        ("$c = 5.5", False, False),
        ("$c <> 9", True, True),
        ("$c <=> 9", False, False),
        ("$c <=> NULL", False, False),
        ("$c IS NULL", False, False),
        ("$c IS NOT NULL", True, True),
        ("$c IN (1, 2, 8)", False, False),
        ("$c IN (1, 2, 8, NULL)", False, False),
        ("$c IN (1, 4)", True, False),
        ("$c IN (3, 4, 5, 6, 7, 99)", True, True),
        ("$c NOT IN (3, 4, 5, 6, 7)", False, False),
        ("$c NOT IN (1, NULL)", False, False),
        ("$c BETWEEN 8 AND 100", False, False),
        ("$c BETWEEN 0 AND 100", True, True),
        ("NOT $c > 2", False, False),
        ("$c > 2 AND x = 1", True, False),
        ("$c > 7 AND x = 1", False, False),
        ("$c > 7 OR x = 1", True, False),
        ("$c > 7 OR x = 1 AND $c < 3", False, False),
        ("NOT ($c > 7 OR x = 1)", True, False),
        ("$c > 7e0", False, False),
        ("$c < -1", False, False),
        ("$c < 99999999999999999999", True, True),
        ("$c = '5'", True, False),
        ("$c = '9'", False, False),
        ("$c < $u", True, True),
        ("$u <= $c", False, False),
        ("$u <> $c", True, True),
        ("$u = $c", False, False),
        ("$c <= 7 AND $u > 9 AND $u <= 12", True, True),
        ("$c + 1 > 100", True, False),
        ("x = 1", True, False),
        ("TRUE", True, True),
        ("FALSE", False, False),
        ("NULL", False, False),
    ],
)
def test_bounds_decide_what_they_can(text, possible, certain):
    bounds = {CREATED: between(3, 7), UPDATED: between(10, 12)}
    assert can_match(parse(text), bounds) is possible
    assert matches_everywhere(parse(text), bounds) is certain


def test_known_values_decide_more_than_their_bounds():
    bounds = {CREATED: between(3, 7, [3, 7])}
    assert not can_match(parse("$c = 5"), bounds)
    assert not can_match(parse("$c > 3 AND $c < 7 AND x = 1"), {CREATED: between(3, 3, [3])})
    assert not can_match(parse("$c % 4 = 1"), bounds)
    assert matches_everywhere(parse("$c % 4 = 3"), bounds)
    assert can_match(parse("1 / ($c - 3) = 1"), bounds)


NAMES = ("_rowid", CREATED, UPDATED)
NUMBERS = st.sampled_from([0, 1, 2, 3, 5, 2**53, 2**53 + 1, 2**62])
LEAVES = st.one_of(
    st.builds(
        "{} {} {}".format,
        st.sampled_from(NAMES),
        st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"]),
        st.one_of(
            st.sampled_from([*NAMES, "2.5", "-1", "NULL", "9007199254740993e0", "1e19", "x"]),
            NUMBERS.map(str),
        ),
    ),
    st.builds(
        "{} {}IN ({})".format,
        st.sampled_from(NAMES),
        st.sampled_from(["", "NOT "]),
        st.lists(
            st.one_of(NUMBERS.map(str), st.sampled_from(["2.5", "NULL", "3e0"])), min_size=1
        ).map(", ".join),
    ),
    st.sampled_from(["x = 1", "x IS NULL", "TRUE", "NULL"]),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds("({} AND {})".format, inner, inner),
        st.builds("({} OR {})".format, inner, inner),
        st.builds("NOT ({})".format, inner),
        st.builds("(({}) <=> ({}))".format, inner, inner),
    ),
    max_leaves=6,
)
ROWS = st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS, st.sampled_from([None, 0, 1])), min_size=1)


def batch_of(rows):
    columns = list(zip(*rows, strict=True))
    arrays = [pa.array(column, pa.uint64()) for column in columns[:3]]
    return pa.record_batch([*arrays, pa.array(columns[3], pa.int64())], [*NAMES, "x"])


@given(text=CONDITIONS, rows=ROWS)
def test_nothing_that_matches_is_ruled_out(text, rows):
    predicate, batch = parse(text), batch_of(rows)
    matches = np.asarray(evaluate(predicate, batch).fill_null(False))
    values = {name: np.asarray(batch.column(name)) for name in NAMES}
    for known in (None, values):
        bounds = {
            name: Bounds(int(v.min()), int(v.max()), None if known is None else np.unique(v))
            for name, v in values.items()
        }
        assert can_match(predicate, bounds) or not matches.any()
        assert matches.all() or not matches_everywhere(predicate, bounds)
    intervals = {name: (np.array([v.min()]), np.array([v.max()])) for name, v in values.items()}
    assert fragments_that_can_match(predicate, intervals, 1)[0] or not matches.any()
    for names in ([], ["_rowid"], list(NAMES), batch.schema.names):
        possible = rows_that_can_match(predicate, batch.select(names)) if names else None
        assert possible is None or not np.any(matches & ~possible)
    assert np.array_equal(rows_that_can_match(predicate, batch), matches)
    ids = row_id_candidates(predicate)
    assert ids is None or np.all(np.isin(values["_rowid"][matches], ids))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("_rowid = 5", [5]),
        ("5 <=> _rowid", [5]),
        ("_rowid = 5.5", []),
        ("_rowid = -1", []),
        ("_rowid = '7'", [7]),
        ("_rowid = 7e0", [7]),
        ("_rowid IN (3, 1, 3, NULL, -4)", [1, 3]),
        ("_rowid IN (1, 2.5, 4.0)", [1, 4]),
        ("_rowid IN (1, 2, 3) AND _rowid IN (2, 3, 4) AND x = 1", [2, 3]),
        ("_rowid = 9 OR _rowid IN (1, 2)", [1, 2, 9]),
        ("_rowid = 4294967296", [2**32]),
        ("(_rowid = 1 AND x = 1) OR (_rowid = 2 AND x = 2)", [1, 2]),
        ("_rowid = 1 OR x = 2", None),
        ("NOT _rowid = 1", None),
        ("_rowid NOT IN (1)", None),
        ("_rowid > 3", None),
        ("_rowid = 9007199254740993e0", None),
        ("x = 1", None),
        ("FALSE", []),
    ],
)
def test_row_ids_that_a_condition_names(text, expected):
    found = row_id_candidates(parse(text))
    assert (found is None) == (expected is None)
    assert found is None or (found.tolist() == expected and found.dtype == np.uint64)
    addresses = row_address_candidates(parse(text.replace("_rowid", "_rowaddr")))
    assert (addresses is None) == (expected is None)


def test_a_hundred_thousand_fragments_are_judged_at_once():
    count = 100_000
    versions = np.arange(1, count + 1, dtype=np.uint64)
    intervals = {CREATED: (versions, versions), UPDATED: (versions, versions + np.uint64(1))}
    started = time.perf_counter()
    keep = fragments_that_can_match(
        parse(f"$u > {count - 3} AND (x = 1 OR s LIKE 'a%') AND $c IN ({count}, {count - 1}, 5)"),
        intervals,
        count,
    )
    assert np.flatnonzero(keep).tolist() == [count - 2, count - 1]
    assert time.perf_counter() - started < 0.5


def test_an_empty_fragment_never_matches():
    empty = {"_rowid": (np.array([2**64 - 1], np.uint64), np.array([0], np.uint64))}
    for text in ("_rowid = 5", "_rowid IN (0, 5)", "_rowid > 1", "_rowid < 100"):
        assert not fragments_that_can_match(parse(text), empty, 1)[0]

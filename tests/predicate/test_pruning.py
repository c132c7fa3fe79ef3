"""What pruning rules out can never match, and what it should rule out it does."""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.predicate.conditions import (
    Bounds,
    evaluate,
    parts_that_can_match,
    row_address_candidates,
    row_id_candidates,
)
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.tree import Column, In, Match, Not

CREATED, UPDATED = "_row_created_at_version", "_row_last_updated_at_version"
SCHEMA = pa.schema({"x": pa.int64(), "s": pa.string()})


def parse(text):
    return parse_predicate(text.replace("$c", CREATED).replace("$u", UPDATED), SCHEMA)


def lineage(low, high):
    return Bounds.of_lineage(*(np.array(ends, np.uint64).reshape(-1) for ends in (low, high)))


def can_match(predicate, bounds):
    return bool(parts_that_can_match(predicate, bounds, 1)[0])


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
        ("$c = 5.5", True, False),
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
def test_lineage_bounds_prune(text, possible, certain):
    bounds = {(CREATED,): lineage(3, 7), (UPDATED,): lineage(10, 12)}
    assert can_match(parse(text), bounds) is possible
    # What is false nowhere may still be unknown everywhere.
    assert (possible and not can_match(Not(parse(text)), bounds)) is certain


def page(low, high, kind, **options):
    return Bounds(pa.array([low], kind), pa.array([high], kind), **options)


@pytest.mark.parametrize(
    ("text", "possible", "possible_not"),
    [
        ("x < 10", True, False),
        ("x < 3", False, True),
        ("x = 5", True, True),
        ("x IN (1, 2, 8)", False, True),
        ("x IN (3, 4, 5)", True, False),
        ("x IN (-1.0, 5.0)", True, True),
        ("x IN (-1.0, 1e18, 8.5)", False, True),
        ("x NOT IN (4, NULL)", False, True),
        ("x IS NULL", True, True),
        ("x <=> 9", False, True),
        ("x <=> 4", True, True),
        ("s < 'k'", True, True),
        ("s < 'c'", False, True),
        ("s >= 'd'", True, False),
        ("s IN ('a', 'b')", False, True),
        ("s NOT IN ('a', 'b')", True, False),
        ("s LIKE 'a%'", False, True),
        ("s LIKE 'da%'", True, True),
        ("s LIKE 'm%'", True, True),
        ("s LIKE 'ma%'", False, True),
        ("s LIKE '%a'", True, True),
        ("x > $c", True, True),
        ("x < $c - 0 OR s = 'zz'", True, True),
        ("$c > x + 0 AND s > 'm'", False, True),
    ],
)
def test_page_bounds_prune(text, possible, possible_not):
    bounds = {
        ("x",): page(3, 5, pa.int64()),
        ("s",): page("d", "m", pa.string()),
        (CREATED,): lineage(4, 4),
    }
    assert can_match(parse(text), bounds) is possible
    assert can_match(Not(parse(text)), bounds) is possible_not


@pytest.mark.parametrize(
    ("text", "possible"),
    [
        ("x IS NULL", [True, True, False]),
        ("x IS NOT NULL", [False, True, True]),
        ("x = 4", [False, True, True]),
        ("x <> 9", [False, True, True]),
        ("NOT x = 9", [False, True, True]),
        ("x <=> 9", [False, False, False]),
        ("NOT x <=> 9", [True, True, True]),
        ("x <=> NULL", [True, True, False]),
        ("x IN (4, 9)", [False, True, True]),
        ("x NOT IN (3, 4, 5)", [False, False, False]),
        ("x < 9 OR x IS NULL", [True, True, True]),
        ("x > 9 OR x IS NULL", [True, True, False]),
        ("x < $c", [False, True, True]),
    ],
)
def test_null_parts_prune_by_null_checks(text, possible):
    ends = pa.array([None, 3, 3], pa.int64()), pa.array([None, 5, 5], pa.int64())
    of_x = Bounds(*ends, nullable=np.array([1, 1, 0], bool), all_null=np.array([1, 0, 0], bool))
    bounds = {("x",): of_x, (CREATED,): lineage([7] * 3, [7] * 3)}
    assert parts_that_can_match(parse(text), bounds, 3).tolist() == possible


@pytest.mark.parametrize("data_type", [pa.int32(), pa.int8(), pa.date32(), pa.timestamp("us")])
def test_long_integer_lists_prune_each_part(data_type):
    listed = In(Column(("x",), data_type), pa.array([2 * n for n in range(1, 40)] * 2, data_type))
    low, high = ([1, 3, 77, 79, 4], [1, 3, 79, 90, 4])
    of_x = Bounds(pa.array(low, data_type), pa.array(high, data_type))
    found = parts_that_can_match(listed, {("x",): of_x}, 5)
    assert found.tolist() == [False, False, True, False, True]


TEXTS = st.text(alphabet="ab\U0010ffff\x00", max_size=3)


@given(prefix=TEXTS, values=st.lists(TEXTS, min_size=1))
def test_prefix_prunes_by_text_bounds(prefix, values):
    texts = pa.array(values, pa.string())
    predicate = Match("starts_with", Column(("s",), pa.string()), prefix)
    ends = (pa.array([getattr(pc, end)(texts).as_py()]) for end in ("min", "max"))
    possible = can_match(predicate, {("s",): Bounds(*ends)})
    assert possible or not any(value.startswith(prefix) for value in values)
    alone = parts_that_can_match(predicate, {("s",): Bounds(texts, texts)}, len(values))
    assert alone.tolist() == [value.startswith(prefix) for value in values]


def test_column_comparison_prunes_by_bounds():
    for text, possible in (("x < $c", True), ("x <= $c", True), ("x > $c", False)):
        bounds = {("x",): page(1, 4, pa.int64()), (CREATED,): lineage(4, 9)}
        assert can_match(parse(text), bounds) is possible, text


def test_null_safe_comparison_of_nullable_columns_never_prunes():
    schema = pa.schema({"x": pa.int64(), "y": pa.int64()})
    bounds = {("x",): page(1, 4, pa.int64()), ("y",): page(8, 9, pa.int64())}
    assert can_match(parse_predicate("x <=> y", schema), bounds)
    assert not can_match(parse_predicate("x = y", schema), bounds)


def test_unknown_bound_prunes_nothing():
    bounds = {("x",): page(None, 5, pa.int64())}
    assert can_match(parse("x = -7"), bounds)
    assert not can_match(parse("x = 7"), bounds)
    assert not can_match(parse("x IN (6, 7)"), bounds)


@pytest.mark.parametrize("kind", [pa.string(), pa.binary()])
def test_many_texts_prune_parts_without_any_of_them(kind):
    rng = np.random.default_rng(5)
    letters = ["", "a", "b", "é", "\U0001f600"]

    def some(count):
        return np.array(["".join(rng.choice(letters, 3)) for _ in range(count)], object)

    ends = np.sort(some(400)).reshape(200, 2).T
    low, high = (pa.array(end, pa.string(), mask=rng.random(200) < 0.1).cast(kind) for end in ends)
    nullable = rng.random(200) < 0.3
    wanted = pa.array(np.unique(np.append(some(20), [f"z{n:02}" for n in range(60)])), pa.string())
    bounds = {("s",): Bounds(low, high, nullable, False)}
    condition = In(Column(("s",), kind), wanted.cast(kind))

    def as_bytes(ends, unknown):
        return [unknown if end is None else end for end in ends.cast(pa.binary()).to_pylist()]

    texts = wanted.cast(pa.binary()).to_pylist()
    of_parts = zip(as_bytes(low, b""), as_bytes(high, b"\xff"), strict=True)
    expected = [any(first <= text <= last for text in texts) for first, last in of_parts]
    assert 20 < sum(expected) < 180
    assert parts_that_can_match(condition, bounds, 200).tolist() == expected
    assert parts_that_can_match(Not(condition), bounds, 200).all()


def test_many_decimals_prune_by_their_range():
    numbers = pa.array(range(200, 300)).cast(pa.decimal128(24, 2))
    condition = In(Column(("c",), numbers.type), numbers)
    one, two = pa.array([100, 250]).cast(numbers.type), pa.array([150, 400]).cast(numbers.type)
    assert parts_that_can_match(condition, {("c",): Bounds(one, two)}, 2).tolist() == [False, True]
    # No number is 250.5, which lies within their range.
    between = {("c",): page(Decimal("250.5"), Decimal("250.5"), numbers.type, nullable=False)}
    assert can_match(Not(condition), between)


def test_row_id_candidates_respect_type_precision():
    assert row_id_candidates(parse("CAST(_rowid AS float) = CAST(16777216 AS float)")) is None
    found = row_id_candidates(parse("CAST(_rowid AS float) = CAST(7 AS float)"))
    assert found is not None and found.tolist() == [7]


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


def one_value(scalar):
    return pa.array([scalar.as_py()], pa.int64())


@given(text=CONDITIONS, rows=ROWS)
def test_pruning_keeps_every_match(text, rows):
    predicate, batch = parse(text), batch_of(rows)
    matches = np.asarray(evaluate(predicate, batch).fill_null(False))
    values = {name: np.asarray(batch.column(name)) for name in NAMES}
    bounds = {
        (name,): Bounds.of_lineage(np.array([v.min()]), np.array([v.max()]))
        for name, v in values.items()
    }
    # Each row alone, too: then bounds are exact, except for x.
    alone = {(name,): Bounds.of_lineage(v, v) for name, v in values.items()}
    numbers = batch.column("x")
    x_ends = Bounds(one_value(pc.min(numbers)), one_value(pc.max(numbers)))
    for of_x in ({}, {("x",): x_ends}):
        assert can_match(predicate, bounds | of_x) or not matches.any()
    is_null = np.asarray(numbers.is_null())
    with_nulls = Bounds(numbers, numbers, nullable=is_null, all_null=is_null)
    for of_x in ({}, {("x",): Bounds(numbers, numbers)}, {("x",): with_nulls}):
        possible = parts_that_can_match(predicate, alone | of_x, len(matches))
        assert not np.any(matches & ~possible)
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
def test_row_id_candidates_of_condition(text, expected):
    found = row_id_candidates(parse(text))
    assert (found is None) == (expected is None)
    assert found is None or (found.tolist() == expected and found.dtype == np.uint64)
    addresses = row_address_candidates(parse(text.replace("_rowid", "_rowaddr")))
    assert (addresses is None) == (expected is None)


def test_pruning_handles_100_000_fragments():
    count = 100_000
    versions = np.arange(1, count + 1, dtype=np.uint64)
    bounds = {
        (CREATED,): lineage(versions, versions),
        (UPDATED,): lineage(versions, versions + np.uint64(1)),
    }
    text = f"$u > {count - 3} AND (x = 1 OR s LIKE 'a%') AND $c IN ({count}, {count - 1}, 5)"
    keep = parts_that_can_match(parse(text), bounds, count)
    assert np.flatnonzero(keep).tolist() == [count - 2, count - 1]


def test_empty_fragment_never_matches():
    empty = {("_rowid",): lineage(2**63 - 1, 0)}
    for text in ("_rowid = 5", "_rowid IN (0, 5)", "_rowid > 1", "_rowid < 100"):
        assert not can_match(parse(text), empty)


def test_row_ids_beyond_bigint_are_not_pruned():
    far = {("_rowid",): lineage(0, 2**64 - 1)}
    for text in ("_rowid = 5", "_rowid IN (0, 5)", "_rowid > 1", "_rowid < 100"):
        assert can_match(parse(text), far)


def test_wrapping_integers_are_not_pruned():
    bounds = {("x",): Bounds(pa.array([1000]), pa.array([2000]))}
    for text in ("CAST(x AS tinyint) = 5", "CAST(x AS tinyint) + 0 IS NULL", "abs(x) < 0"):
        assert can_match(parse_predicate(text, SCHEMA, ansi=False), bounds), text
    assert not can_match(parse_predicate("CAST(x AS float) = 5", SCHEMA, ansi=False), bounds)

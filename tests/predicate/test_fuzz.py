"""Conditions of any shape and type are answered or refused cleanly, for any rows."""

# ruff: noqa: E501 - tables of cases read better with one case per line

from decimal import Decimal

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pyspark_lance.errors import LanceError
from pyspark_lance.predicate.conditions import evaluate, matching
from pyspark_lance.predicate.parse import parse_predicate

NAN = float("nan")
ROWS = pa.record_batch(
    {
        "b": [True, False, None, True],
        "tiny": pa.array([-128, 0, None, 5], pa.int8()),
        "big": pa.array([2**63 - 1, -1, None, 5], pa.int64()),
        "half": pa.array([0.5, NAN, None, -0.0], pa.float16()),
        "x": pa.array([NAN, float("-inf"), None, -0.0]),
        "dec": pa.array([Decimal("1.50"), Decimal("-9.99"), None, Decimal(5)], pa.decimal128(3, 2)),
        "huge": pa.array([Decimal("1.5"), Decimal(10) ** 30, None, Decimal(5)], pa.decimal256(60, 5)),
        "s": ["", "ß5", None, "5"],
        "word": pa.array(["a", "5", None, "a"]).dictionary_encode(),
        "bin": pa.array([b"", b"\xff", None, b"5"], pa.large_binary()),
        "day": pa.array([0, 19_000, None, -800_000], pa.date32()),
        "ts": pa.array([0, 10**15, None, -(2**62)], pa.timestamp("us", "UTC")),
        "far": pa.array([0, 10**15, None, 5], pa.timestamp("s")),
        "clock": pa.array([0, 10**9, None, 5], pa.time64("ns")),
        "span": pa.array([0, 10**9, None, 5], pa.duration("s")),
        "list": pa.array([[1], [], None, [None]]),
        "st": pa.array([{"a": 1}, {"a": None}, None, {"a": 5}]),
        "nothing": pa.nulls(4),
        "_rowid": pa.array([0, 1, 2, 2**40], pa.uint64()),
    }
)  # fmt: skip
ATOMS = st.sampled_from(
    [*ROWS.schema.names, "st.a", "1", "-5L", "0", "2.50", "1e300", "double('NaN')", "'5'", "''",
     "'2020-01-01'", "NULL", "TRUE", "X'35'", "DATE '2020-02-29'", "TIMESTAMP '2020-01-01 00:00:00'",
     "TIME '10:00'", "'12:00:00'", "99999999999999999999", "3Y"]
)  # fmt: skip
OPERATORS = st.sampled_from(
    ["=", "<>", "<", ">=", "<=>", "+", "-", "*", "/", "%", "DIV", "||", "AND", "OR", "IS DISTINCT FROM"]
)  # fmt: skip
TYPES = st.sampled_from(
    ["boolean", "tinyint", "int", "bigint", "float", "double", "decimal(5,2)", "decimal(38,18)",
     "string", "binary", "date", "timestamp", "timestamp_ntz", "time"]
)  # fmt: skip
FUNCTIONS = st.sampled_from(
    ["abs", "lower", "upper", "length", "trim", "year", "month", "hour", "second", "isnan", "isnull",
     "NOT ", "-", "coalesce", "concat"]
)  # fmt: skip


def larger(inner):
    return st.one_of(
        st.builds("({} {} {})".format, inner, OPERATORS, inner),
        st.builds("{}({})".format, FUNCTIONS, inner),
        st.builds("CAST({} AS {})".format, inner, TYPES),
        st.builds("coalesce({}, {})".format, inner, inner),
        st.builds("({} IN ({}, {}))".format, inner, inner, inner),
        st.builds("({} BETWEEN {} AND {})".format, inner, inner, inner),
        st.builds("substring({}, -2, 1)".format, inner),
        st.builds("startswith({}, {})".format, inner, inner),
        st.builds("({} LIKE '%5_')".format, inner),
        st.builds("({} ILIKE 'ß%')".format, inner),
        st.builds("({} RLIKE '^.$')".format, inner),
        st.builds("({} IS NULL)".format, inner),
    )


EXPRESSIONS = st.recursive(ATOMS, larger, max_leaves=6)
CONDITIONS = st.one_of(
    EXPRESSIONS, EXPRESSIONS.map("({}) IS NOT NULL".format), st.builds("{} <=> {}".format, EXPRESSIONS, EXPRESSIONS)
)  # fmt: skip


def answers(predicate, batch):
    try:
        found = evaluate(predicate, batch)
    except LanceError:
        return None
    assert (len(found), found.type) == (batch.num_rows, pa.bool_())
    return found.to_pylist()


@settings(max_examples=800)
@given(CONDITIONS)
def test_batch_evaluation_equals_row_evaluation(text):
    try:
        predicate = parse_predicate(text, ROWS.schema, time_zone="Europe/Berlin")
    except LanceError:
        return
    together = answers(predicate, ROWS)
    alone = [answers(predicate, ROWS.slice(n, 1)) for n in range(ROWS.num_rows)]
    if together is None:
        assert None in alone
    else:
        assert [[one] for one in together] == alone


MANY_ROWS = pa.Table.from_batches([ROWS] * 6).combine_chunks().to_batches()[0]
WITH_DICTIONARIES = pa.record_batch(
    {
        name: MANY_ROWS[name].dictionary_encode() if name in ("tiny", "big", "x", "s", "bin", "day", "ts") else MANY_ROWS[name]
        for name in ROWS.schema.names
    }
)  # fmt: skip


@settings(max_examples=800)
@given(CONDITIONS, st.integers(0, 3))
def test_dictionary_evaluation_equals_plain_evaluation(text, first):
    try:
        predicate = parse_predicate(text, ROWS.schema, time_zone="Europe/Berlin")
    except LanceError:
        return
    plain = answers(predicate, MANY_ROWS.slice(first))
    assert answers(predicate, WITH_DICTIONARIES.slice(first)) == plain


def matching_rows(predicate, batch):
    try:
        return matching(predicate, batch).tolist()
    except LanceError:
        return None


@settings(max_examples=200)
@given(st.lists(CONDITIONS, min_size=2, max_size=5), st.sampled_from(["", "NOT "]))
def test_matching_rows_equals_evaluation_in_any_order(texts, negated):
    text = " AND ".join(f"{negated}({one})" for one in texts)
    try:
        predicate = parse_predicate(text, ROWS.schema, time_zone="Europe/Berlin")
    except LanceError:
        return
    for batch in (MANY_ROWS, WITH_DICTIONARIES):
        found = answers(predicate, batch)
        assert matching_rows(predicate, batch) == (found and [one is True for one in found])

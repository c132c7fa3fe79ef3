"""Answers to conditions on batches: Spark's rules, stored types, errors only where they matter."""

# ruff: noqa: E501 - tables of cases read better with one case per line

import datetime as dt
import pickle
from decimal import Decimal

import pyarrow as pa
import pytest

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.predicate.conditions import all_of, conjuncts, evaluate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.types import TIMESTAMP, type_name

NAN = float("nan")


def answers(text, *, ansi=True, **columns):
    batch = pa.record_batch(
        {name: v if isinstance(v, pa.Array) else pa.array(v) for name, v in columns.items()}
    )
    predicate = pickle.loads(pickle.dumps(parse_predicate(text, batch.schema, ansi=ansi)))
    return evaluate(predicate, batch).to_pylist()


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = double('NaN')", [False, False, True, False, None]),
        ("x > 1e9", [False, False, True, False, None]),
        ("x <= double('NaN')", [True, True, True, True, None]),
        ("x < double('NaN')", [True, True, False, True, None]),
        ("x >= x", [True, True, True, True, None]),
        ("x = 0.0D", [True, True, False, False, None]),
        ("x < 0.0D", [False, False, False, False, None]),
        ("x IN (-0.0D, double('NaN'))", [True, True, True, False, None]),
        ("x NOT IN (0.0D, NULL)", [False, False, None, None, None]),
        ("x <=> NULL", [False, False, False, False, True]),
        ("x <=> double('NaN')", [False, False, True, False, False]),
        ("isnan(x)", [False, False, True, False, False]),
    ],
)
def test_nan_is_greatest_and_minus_zero_equals_zero(kind, text, expected):
    assert answers(text, x=pa.array([0.0, -0.0, NAN, 2.0, None]).cast(kind)) == expected


def test_nan_sign_is_ignored():
    assert answers("-x IN (double('NaN'), 1)", x=[NAN, 1.0]) == [True, False]
    assert answers("-x = double('NaN')", x=[NAN, 1.0]) == [True, False]


def test_float_and_double_compare_as_double():
    assert answers("x = 0.1F", x=pa.array([0.1], pa.float32())) == [True]
    assert answers("x = 0.1D", x=pa.array([0.1], pa.float32())) == [False]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("array_contains(x, 2)", [True, False, None, None, True, False]),
        ("NOT array_contains(x, 2)", [False, True, None, None, False, True]),
        ("array_contains(x, 5)", [False, False, None, None, None, False]),
        ("array_contains(x, NULL)", [None] * 6),
    ],
)
def test_array_contains_with_null_elements(text, expected):
    lists = [[1, 2], [3], None, [None, 1], [None, 2], []]
    assert answers(text, x=pa.array(lists, pa.list_(pa.int64()))) == expected
    sliced = pa.array([[9], *lists, [2]], pa.list_(pa.int64())).slice(1, 6)
    assert answers(text, x=sliced) == expected


def test_array_contains_compares_like_equality():
    lists = pa.array([[0.0], [-0.0, None], [-NAN], [1.5]], pa.list_(pa.float64()))
    assert answers("array_contains(x, 0.0D)", x=lists) == [True, True, False, False]
    assert answers("array_contains(x, double('NaN'))", x=lists) == [False, None, True, False]
    texts = pa.array([["a", "b"], ["A"]], pa.large_list(pa.large_string()))
    assert answers("array_contains(x, 'a')", x=texts) == [True, False]
    small = pa.array([[1, 2], [3]], pa.list_(pa.uint8()))
    assert answers("array_contains(x, 2S)", x=small) == [True, False]


@pytest.mark.parametrize(
    "text",
    [
        "array_contains(x, 1.5D)",
        "array_contains(1, 1)",
        "array_contains(x, x)",
        "array_contains(x)",
    ],
)
def test_array_contains_refuses_wrong_types(text):
    with pytest.raises(InvalidInputError, match="array_contains"):
        answers(text, x=pa.array([[1]], pa.list_(pa.int64())))


def test_logic_is_three_valued():
    a = [True, True, True, False, False, False, None, None, None]
    b = [True, False, None] * 3
    assert answers("a AND b", a=a, b=b) == [
        True, False, None, False, False, False, None, False, None,
    ]  # fmt: skip
    assert answers("a OR b", a=a, b=b) == [True, True, True, True, False, None, True, None, None]
    assert answers("NOT a", a=a) == [False] * 3 + [True] * 3 + [None] * 3


def test_text_is_ordered_by_bytes():
    values = ["Z", "a", "é", "ﬀ", "😀"]
    assert answers("s < '😀'", s=values) == [True, True, True, True, False]
    assert answers("s > 'z'", s=values) == [False, False, True, True, True]


STORED = [
    (pa.array([0, 255, None], pa.uint8()), "x > 254", [False, True, None]),
    (pa.array([0, 2**16 - 1, None], pa.uint16()), "x = 65535", [False, True, None]),
    (pa.array([0, 2**32 - 1, None], pa.uint32()), "x - 1 >= 4294967294", [False, True, None]),
    (pa.array([0, 2**64 - 1, None], pa.uint64()), "x = 18446744073709551615", [False, True, None]),
    (pa.array([0, 2**64 - 1, None], pa.uint64()), "x IN (0, 1.5)", [True, False, None]),
    (pa.array(["a", "b", None], pa.large_string()), "x = 'b'", [False, True, None]),
    (pa.array(["a", "b", None]).dictionary_encode(), "upper(x) IN ('B')", [False, True, None]),
    (pa.array([b"ab", b"cd", None], pa.binary(2)), "x > X'6162'", [False, True, None]),
    (pa.array([b"ab", b"cd", None], pa.large_binary()), "x = 'cd'", [False, True, None]),
    (pa.array([0, 1, None], pa.timestamp("s", "UTC")), "x > '1970-01-01 00:00:00'", [False, True, None]),
    (pa.array([0, 1000, None], pa.timestamp("ns")), "x >= TIMESTAMP_NTZ '1970-01-01 00:00:00.000001'",
     [False, True, None]),
    (pa.array([0, 1, None], pa.timestamp("ms", "Asia/Tokyo")), "hour(x) = 0", [True, True, None]),
    (pa.array([0, 86_400_000, None], pa.date64()), "x = DATE '1970-01-02'", [False, True, None]),
    (pa.array([0, 3600, None], pa.time32("s")), "x = TIME '01:00:00'", [False, True, None]),
    (pa.array([0, 1, None], pa.time64("us")), "x < '00:00:00.000001'", [True, False, None]),
    (pa.array([0, 1, None], pa.duration("ms")), "x = x", [True, True, None]),
    (pa.array([Decimal("1.5"), Decimal("2.5"), None], pa.decimal256(20, 3)), "x > 2", [False, True, None]),
    (pa.nulls(3), "x = 1", [None, None, None]),
    (pa.array([[1], [], None]), "x IS NULL", [False, False, True]),
]  # fmt: skip


@pytest.mark.parametrize(("stored", "text", "expected"), STORED, ids=lambda one: str(one)[:30])
def test_stored_types_evaluate_as_spark_types(stored, text, expected):
    assert answers(text, x=stored) == expected
    # A slice has offsets into the buffers.
    batch = pa.record_batch([pa.concat_arrays([stored, stored])], ["x"]).slice(2, 3)
    found = evaluate(parse_predicate(text, batch.schema), batch).to_pylist()
    assert found == [expected[2], *expected[:2]]


@pytest.mark.parametrize(
    ("stored", "shown"),
    [
        (pa.decimal128(23, 1), "decimal(23,1)"),
        (pa.large_list(pa.large_string()), "array<string>"),
        (pa.list_(pa.float32(), 3), "array<float> of length 3"),
        (pa.map_(pa.string(), pa.list_(pa.int64())), "map<string, array<bigint>>"),
        (pa.struct([("a", pa.int8()), ("b", pa.date64())]), "struct<a: tinyint, b: date>"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.timestamp("us", "UTC"), "timestamp"),
        (pa.uint16(), "uint16"),  # which Spark does not have
    ],
)
def test_type_names_are_those_of_spark(stored, shown):
    assert type_name(stored) == shown


def test_nanoseconds_without_exact_microseconds_are_refused():
    with pytest.raises(InvalidInputError, match="'x'"):
        answers("x > '2020-01-01'", x=pa.array([1], pa.timestamp("ns")))


def test_null_struct_has_null_fields():
    struct = pa.StructArray.from_arrays(
        [pa.array([1, 2, 3])], ["a"], mask=pa.array([False, True, False])
    )
    assert answers("s.a > 0", s=struct) == [True, None, True]


def test_lineage_columns_are_bigint():
    assert answers("_rowid = 4294967296", _rowid=pa.array([2**32, 1], pa.uint64())) == [True, False]


def test_decimals_beyond_38_digits_compare_rounded_as_in_spark():
    wide = pa.array([Decimal("1e-18"), Decimal(10) ** 19], pa.decimal128(38, 18))
    narrow = pa.array([Decimal("0.00"), Decimal(10) ** 20], pa.decimal128(38, 2))
    assert answers("a = b", a=wide, b=narrow) == [True, False]
    assert answers("a > 99999999999999999999999999999999999999", a=wide) == [False, False]
    whole = pa.array([Decimal(1), Decimal(2), Decimal("9" * 38), None], pa.decimal128(38, 0))
    # The constant becomes 2.
    assert answers("x <= 1.5", x=whole) == [True, True, False, None]
    assert answers("x = 1.5", x=whole) == [False, True, False, None]
    assert answers("x IN (1.4)", x=whole) == [True, False, False, None]
    assert answers("coalesce(x, 1.5) = 2", x=whole) == [False, True, False, True]
    # Spark knows no longer decimals, so they compare exactly.
    longer = pa.array([Decimal("1.00001"), Decimal(10) ** 50], pa.decimal256(60, 5))
    assert answers("x > 1.000001", x=longer) == [True, True]


ERRORS = [
    ("1 / x > 0", "division by zero"),
    ("1 % x > 0", "division by zero"),
    ("y + 1 > 0", "does not fit int64"),
    ("y * 2 > 0", "does not fit int64"),
    ("abs(z) > 0", "does not fit int8"),
    ("CAST(y AS int) > 0", "does not fit int"),
    ("t = 5", "'abc' is not a valid bigint"),
    ("CAST(t AS date) > DATE '2020-01-01'", "'5' is not a valid date"),
]
COLUMNS = {
    "x": pa.array([0, 1, None]),
    "y": pa.array([2**63 - 1, 1, None]),
    "z": pa.array([-128, 1, None], pa.int8()),
    "t": pa.array(["5", "abc", None]),
    "ok": pa.array([False, False, True]),
    "bad": pa.array([True, True, False]),
}


@pytest.mark.parametrize(("text", "message"), ERRORS)
def test_failing_expressions_raise_like_spark(text, message):
    with pytest.raises(InvalidInputError, match=message):
        answers(text, **COLUMNS)
    with pytest.raises(InvalidInputError, match=message):
        answers(f"({text}) AND ok", **COLUMNS)


@pytest.mark.parametrize("text", [text for text, _ in ERRORS])
def test_decided_rows_do_not_fail(text):
    assert answers(f"ok AND ({text})", **COLUMNS) == [False, False, None]
    assert answers(f"bad OR ({text})", **COLUMNS) == [True, True, None]
    assert answers(f"coalesce(bad, {text})", **COLUMNS) == [True, True, False]
    assert answers(text, **{name: v.slice(0, 0) for name, v in COLUMNS.items()}) == []


def test_failing_constant_raises_only_if_needed():
    assert answers("x > 5 AND 1 / 0 = 1", x=[1, 2]) == [False, False]
    with pytest.raises(InvalidInputError, match="division by zero"):
        answers("x > 1 AND 1 / 0 = 1", x=[1, 2])


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("%", [True] * 5),
        ("", [True, False, False, False, False]),
        ("a_c", [False, True, True, False, False]),
        ("a%c", [False, True, True, True, False]),
        ("%\\\\%%", [False, False, False, False, True]),
        ("_", [False, False, False, False, False]),
    ],
)
def test_like_matches_whole_text_with_line_ends(pattern, expected):
    assert answers(f"s LIKE '{pattern}'", s=["", "abc", "a\nc", "a😀bc", "5%."]) == expected


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("c$", [True, True, False]),
        ("^a.c", [True, False, True]),
        (r"a\\sc", [False, False, False]),
        ("[^b]c", [False, False, False]),
    ],
)
def test_rlike_uses_java_line_ends(pattern, expected):
    assert answers(f"s RLIKE '{pattern}'", s=["abc", "a\rbc\n", "abc\nx"]) == expected


def test_case_conversion_and_substring_support_unicode():
    assert answers("upper(s) = 'STRASSE'", s=["straße", "strasse"]) == [True, True]
    assert answers("substring(s, -2, 1) = '😀'", s=["a😀b", "ab"]) == [True, False]
    assert answers("length(s) = 3", s=["a😀b", "ab"]) == [True, False]


def test_dates_become_instants_in_session_zone():
    batch = pa.record_batch({"d": pa.array([dt.date(2024, 7, 1)])})
    for zone, expected in (("Europe/Berlin", True), ("-03:00", False), ("UTC", False)):
        predicate = parse_predicate(
            "d = TIMESTAMP '2024-06-30T22:00:00Z'", batch.schema, time_zone=zone
        )
        assert evaluate(predicate, batch).to_pylist() == [expected]


def test_predicate_pickles():
    batch = pa.record_batch({"a": [1, 2, None], "s": ["x", None, "y"]})
    text = "a IN (1, 5) AND s LIKE 'x%' OR a BETWEEN 1.5 AND 9 OR s = CAST(a AS string)"
    predicate = parse_predicate(text, batch.schema)
    again = pickle.loads(pickle.dumps(predicate))
    assert again == predicate
    assert hash(again) == hash(predicate)
    assert evaluate(again, batch).equals(evaluate(predicate, batch))


def test_all_of_inverts_conjuncts():
    schema = pa.schema({"a": pa.int64(), "b": pa.bool_()})
    predicate = parse_predicate("a > 1 AND b AND (a < 9 OR b)", schema)
    assert all_of(conjuncts(predicate)) == predicate
    assert all_of(conjuncts(predicate)[:1]) == parse_predicate("a > 1", schema)
    assert all_of([]) is None


def test_evaluation_needs_only_referenced_columns():
    batch = pa.record_batch({"b": [1, 2]})
    assert evaluate(parse_predicate("b > 1", pa.schema({"a": pa.int8(), "b": pa.int64()})), batch)
    with pytest.raises(InvalidInputError, match="no column 'a'"):
        evaluate(parse_predicate("a > 1", pa.schema({"a": pa.int8()})), batch)


def test_concat_without_arguments_is_empty():
    batch = pa.record_batch({"s": ["", "x", None]})
    found = evaluate(parse_predicate("s = concat()", batch.schema), batch)
    assert found.to_pylist() == [True, False, None]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CAST(s AS int) > 5", [None, True, None, False]),
        ("CAST(s AS tinyint) = 7", [None, True, None, False]),
        ("s = 7", [None, True, None, False]),
        ("s + 1 = 8.9D", [None, True, None, False]),
        ("CAST(s AS decimal(2,1)) = 7.9", [None, True, None, False]),
        ("CAST(s AS decimal(1,1)) IS NULL", [True, True, True, False]),
        ("i NOT IN ('01', 2)", [True, False, None, True]),
        ("i + 1 < 0", [False, False, None, True]),
        ("CAST(i AS tinyint) = -1", [False, False, None, True]),
        ("i / 0 IS NULL AND i % 0 IS NULL AND i DIV 0 IS NULL", [True] * 4),
        ("CAST(d AS bigint) = 9223372036854775807", [False, True, False, None]),
        ("CAST(d AS int) = 0", [True, False, False, None]),
        ("CAST(d AS decimal(3,1)) = -3.7", [None, None, True, None]),
        ("CAST(m AS smallint) = -1", [True, False, None, False]),
        ("-t = -128Y AND abs(t) = -128Y AND t DIV -1 = 128", [True, False, None, False]),
        ("(l DIV -1) = l", [True, False, None, False]),
    ],
)
def test_non_ansi_mode_returns_null_or_wraps(text, expected):
    columns = {
        "s": ["x", " 7.9 ", None, "-.5"],
        "i": pa.array([1, 2, None, 2**31 - 1], pa.int32()),
        "d": [NAN, 1e30, -3.7, None],
        "m": pa.array([Decimal(2**64 - 1), Decimal(1), None, Decimal("0.9")], pa.decimal128(38, 1)),
        "t": pa.array([-128, 1, None, 127], pa.int8()),
        "l": [-(2**63), 1, None, 2**63 - 1],
    }
    assert answers(text, ansi=False, **columns) == expected


@pytest.mark.parametrize("text", ["CAST(s AS double) > 1", "s IN (1.5D)", "s IN (d)"])
def test_non_ansi_ambiguous_expressions_are_left_to_spark(text):
    with pytest.raises(InvalidInputError) as caught:
        answers(text, ansi=False, s=["0x1p3"], d=[1.5], ts=pa.array([0], TIMESTAMP))
    assert "df.where(" in caught.value.hint


def test_ansi_mode_changes_only_affected_trees():
    schema = pa.schema({"i": pa.int32(), "l": pa.int64(), "d": pa.float64(), "s": pa.string()})
    same = ["d + 1 > 2", "i > 3 AND i < l", "s LIKE 'a%' OR s IN ('a')", "CAST(i AS bigint) = 5"]
    other = ["i NOT IN ('01', 2)", "s = 1", "i / 2 > 1", "coalesce(i, '01') = '1'", "l > 0.5F"]
    for text in [*same, *other]:
        loose = parse_predicate(text, schema, ansi=False)
        assert (parse_predicate(text, schema) == loose) == (text in same), text

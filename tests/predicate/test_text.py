"""What a SQL condition parses to, and how a wrong one is refused."""

import tracemalloc

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.predicate.conditions import columns_of, evaluate
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.predicate.tokens import tokenize_all
from pyspark_lance.predicate.tree import And, Column, Comparison, In, Literal, Not, Or

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "Name": pa.string(),
        "price": pa.decimal128(10, 2),
        "x": pa.float64(),
        "day": pa.date32(),
        "date": pa.date32(),
        "we.ird `col": pa.int32(),
        "st": pa.struct({"A": pa.int32(), "in ner": pa.struct({"b": pa.string()})}),
        "items": pa.list_(pa.int32()),
        "dup": pa.int32(),
        "DUP": pa.int32(),
        "flag": pa.bool_(),
    }
)


def parse(text, **options):
    return parse_predicate(text, SCHEMA, **options)


def value_of(text):
    """The value of a condition or expression without columns."""
    return evaluate(parse(text), pa.record_batch([pa.nulls(1)], ["row"]))[0].as_py()


def test_names_match_in_any_case():
    assert parse("NAME = 'a'") == Comparison("=", Column(("Name",), pa.string()), string("a"))


def string(text):
    return Literal(pa.scalar(text))


def test_backquoted_names_may_contain_dots_and_backquotes():
    assert columns_of(parse("`we.ird ``col` > 1")) == {"we.ird `col"}


def test_struct_field_is_found_by_path():
    assert parse("ST.a = 1").left == Column(("st", "A"), pa.int32())
    assert parse("st.`in ner`.B = 'x'").left == Column(("st", "in ner", "b"), pa.string())


def test_column_may_have_type_name():
    assert columns_of(parse("date > DATE '2020-01-01' AND day < date")) == {"date", "day"}


def test_lineage_columns_are_bigint_without_schema_field():
    tree = parse("_ROWID = 5")
    assert tree == Comparison(
        "=", Column(("_rowid",), pa.int64()), Literal(pa.scalar(5, pa.int64()))
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nam = 'a'", "did you mean 'Name'"),
        ("nosuch = 1", "there is no column 'nosuch'"),
        ("Dup = 1", "ambiguous, it could be dup, DUP"),
        ("id.a = 1", "not a struct"),
        ("st.zz = 1", "no field of st 'zz'"),
        ("id = 'abc'", "'abc' is not a valid bigint"),
        ("id = true", "does not work on bigint and boolean"),
        ("items = 1", "does not work on array"),
        ("id = ", "expected a value, found the end"),
        ("id = 1 2", "unexpected '2'"),
        ("id IN ()", "expected a value"),
        ("id IN (1, 2", "expected ), found the end"),
        ("id BETWEEN 1", "expected AND"),
        ("id IS 5", "expected NULL, TRUE"),
        ("Name = 'abc", "never closed"),
        ("id & 1 = 0", "'&' is not a valid token"),
        ("frobnicate(id) = 1", "function frobnicate is not supported"),
        ("id", "needs a condition"),
        ("id AND flag", "needs a condition, not a value of type bigint"),
        ("Name LIKE Name", "must be a string literal"),
        ("Name LIKE 'a\\\\b'", "escape character"),
        ("Name RLIKE '(?=a)'", "'(?=a' at position 0"),
        ("Name RLIKE 'a++'", "not supported here"),
        ("Name RLIKE '(a'", "invalid"),
        ("CASE WHEN flag THEN 1 END = 1", "expected a value, found 'CASE'"),
        ("day > INTERVAL '1' DAY", "expected a value, found 'INTERVAL'"),
        ("CAST(id AS blob) = 1", "type 'blob' is unknown"),
        ("id = 1a", "not a number"),
        ("id = 300Y", "300Y does not fit int8"),
        ("day > '2021-02-29'", "'2021-02-29' is not a valid date"),
        ("price / 2 > 1", "cast to double"),
        ("", "found the end"),
    ],
)
def test_parse_error_shows_location_and_hint(text, message):
    with pytest.raises(LanceError) as error:
        parse(text)
    assert message in str(error.value)
    assert "▶" in error.value.where
    assert error.value.hint


def test_parse_error_names_position_and_supported_functions():
    with pytest.raises(InvalidInputError) as error:
        parse("id = 1 AND regexp_extract(Name, 'a') = 'b'")
    assert "position 11" in str(error.value)
    assert "coalesce" in error.value.hint


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("5", pa.int32(), 5),
        ("-2147483648", pa.int32(), -(2**31)),
        ("2147483648", pa.int64(), 2**31),
        ("-9223372036854775808", pa.int64(), -(2**63)),
        ("5L", pa.int64(), 5),
        ("5s", pa.int16(), 5),
        ("-5Y", pa.int8(), -5),
        ("1e2", pa.float64(), 100.0),
        ("5F", pa.float32(), 5.0),
        ("5d", pa.float64(), 5.0),
        (r"'a\tb\\\'\u00e9\x'", pa.string(), "a\tb\\'éx"),
        (r"'\ud83d\ude00'", pa.string(), "😀"),
        (r"'100\%'", pa.string(), r"100\%"),
        ("'it''s'", pa.string(), "it's"),
        ('"say ""hi"" it\'\'s"', pa.string(), "say \"hi\" it''s"),
        ("'a' 'b'", pa.string(), "ab"),
        (r"r'\d'", pa.string(), r"\d"),
        ("X'0aF'", pa.binary(), b"\x00\xaf"),
    ],
)
def test_literals_have_spark_types(text, type_, value):
    from pyspark_lance.predicate.parse import _Parser

    literal = _Parser(text, SCHEMA, "UTC")._value()
    assert (literal.type, literal.value) == (type_, value)


def test_large_and_fractional_numbers_are_decimals():
    assert value_of("18446744073709551616 = 18446744073709551616.0")
    assert value_of("0.1 + 0.2 = 0.3")
    assert not value_of("0.1D + 0.2D = 0.3D")


def test_not_precedes_and_but_follows_comparison():
    tree = parse("NOT id = 1 AND flag OR id = 2")
    assert isinstance(tree, Or)
    assert isinstance(tree.terms[0], And)
    assert tree.terms[0].terms[0] == Not(parse("id = 1"))


def test_between_includes_both_ends():
    assert parse("id BETWEEN 1 AND 3 AND flag").terms[:2] == parse("id >= 1 AND id <= 3").terms


def test_integer_comparison_with_fraction_rounds_literal():
    assert parse("id > 5.5") == parse("id > 5L")
    assert parse("5.5 > id") == parse("id < 6L")
    assert parse("id <= 5.0") == parse("id <= 5L")


def test_equalities_joined_by_or_become_one_list():
    tree = parse("id = 1 OR id = 2 OR id = 3 OR flag")
    assert isinstance(tree, Or)
    assert tree.terms[0] == In(Column(("id",), pa.int64()), pa.array([1, 2, 3]))


def test_constants_are_folded():
    assert parse("flag AND 1 = 2").value is False
    assert parse("flag OR 2 > 1").value is True
    assert parse("id = NULL").value is None
    assert parse("id < 1 + 2 * 3 - 1") == parse("id < 6")


def test_timestamp_without_zone_uses_session_zone():
    schema = pa.schema({"t": pa.timestamp("us", "UTC")})
    berlin = parse_predicate("t = '2024-07-01 12:00:00'", schema, time_zone="Europe/Berlin")
    utc = parse_predicate("t = TIMESTAMP '2024-07-01 10:00:00Z'", schema)
    assert berlin == utc
    offset = parse_predicate("t = '2024-07-01 12:00:00'", schema, time_zone="+02:00")
    assert offset == utc
    with pytest.raises(InvalidInputError, match="not a time zone"):
        parse_predicate("t = '2024-07-01 12:00:00'", schema, time_zone="Mars/Base")


@pytest.mark.parametrize(
    "text",
    [
        "(" * 10_000 + "id = 1" + ")" * 10_000,
        "id" + " + 1" * 10_000 + " > 0",
        "-" * 10_000 + "id > 0",
        "- " * 10_000 + "(id) > 0",
        "abs(" * 10_000 + "id" + ")" * 10_000 + " > 1",
        "coalesce(" * 1_000 + "id" + ")" * 1_000 + " > 1",
    ],
    ids=lambda text: text[:6],
)
def test_deep_nesting_is_refused_without_recursion(text):
    with pytest.raises(InvalidInputError):
        parse(text)


def test_forty_parentheses_are_accepted():
    assert parse("(" * 40 + "id = 1" + ")" * 40) == parse("id = 1")


def test_ten_thousand_nots_cancel_out():
    assert parse("NOT " * 10_000 + "flag") == parse("flag")


@pytest.mark.parametrize(
    ("text", "kinds"),
    [
        ("x IN (1, -2 ,3 )", "word word integers end"),
        ("x IN (1,)", "word word operator number operator operator end"),
        ("x IN (1 2)", "word word operator number number operator end"),
        ("x IN (1,,2)", "word word operator number operator operator number operator end"),
        ("x /* a * b */ = '--'", "word operator string end"),
        ("x /* a **/ = '\\''", "word operator string end"),
        ("x /* a * /", "word bad end"),
        ("`a``b` = 'it''s'", "quoted operator string end"),
    ],
)
def test_tokens_are_equal_on_every_python_release(text, kinds):
    assert " ".join(token.kind for token in tokenize_all(text)) == kinds


def test_long_chains_and_lists_are_accepted():
    batch = pa.record_batch({"id": np.arange(10_000), "x": np.arange(10_000.0)})
    chain = parse(" OR ".join(f"id = {n}" for n in range(10_000)))
    assert evaluate(chain, batch).true_count == 10_000
    mixed = parse(" OR ".join(f"id > {n} AND x < {n}" for n in range(1_000)))
    assert evaluate(mixed, batch).true_count == 0
    many = parse(f"id IN ({', '.join(map(str, range(0, 200_000, 2)))})")
    assert evaluate(many, batch).true_count == 5_000


@given(
    st.text(alphabet="idflagNxst.'\"`()=<>!-+*/%, 0159eLBD:\\", max_size=40)
    | st.lists(
        st.sampled_from(
            [
                "id",
                "flag",
                "Name",
                "x",
                "(",
                ")",
                "=",
                "<",
                "NOT",
                "AND",
                "OR",
                "IN",
                "BETWEEN",
                "IS",
                "NULL",
                "LIKE",
                "'a'",
                "1",
                "2.5",
                ",",
                "CAST",
                "AS",
                "int",
                "+",
                "-",
                "/",
                "TRUE",
                "::",
                "||",
                "abs",
                "DATE",
                "'2020-01-01'",
                ".",
                "day",
                "<=>",
            ]
        ),
        max_size=12,
    ).map(" ".join)
)
def test_arbitrary_text_parses_or_raises_lance_error(text):
    try:
        predicate = parse(text)
    except LanceError:
        return
    assert predicate.type == pa.bool_()


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("s = '" + "x" * 1_000_000 + "'", None),
        ("s = '" + "\\n" * 500_000 + "'", None),
        ("s = '" + "''" * 500_000 + "'", None),
        ('s = "' + "x" * 1_000_000 + '"', None),
        ("`" + "x" * 1_000_000 + "` = 1", "there is no column 'xxx"),
        ("s = '" + "x" * 1_000_000, "position 4: the ' is never closed"),
        ("s = '" + "''" * 500_000, "position 4: the ' is never closed"),
        ("n > 1 /*" + "*" * 1_000_000, "position 6: the /\\* is never closed"),
        ("n = 1" + "/* " * 300_000, "position 5: the /\\* is never closed"),
        ("n = " + "1" * 100_000 + "x", "this is not a number"),
    ],
    ids=lambda value: None if value is None else value[:12],
)
def test_parser_memory_is_proportional_to_text(text, complaint):
    schema = pa.schema([("s", pa.string()), ("n", pa.int64())])
    tracemalloc.start()
    try:
        if complaint is None:
            parse_predicate(text, schema)
        else:
            with pytest.raises(InvalidInputError, match=complaint) as caught:
                parse_predicate(text, schema)
            assert len(str(caught.value)) < 1000
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 20 * len(text) + 1_000_000  # of escapes there are many at once


@pytest.mark.parametrize("around", ["", "n IN ", "length", "NOT "])
def test_excess_parentheses_are_refused_early(around):
    text = f"{around}(" * 400_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidInputError, match="more than 50 levels deep"):
            parse_predicate(text, pa.schema([("n", pa.int64())]))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 200_000

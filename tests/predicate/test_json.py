"""The typed JSON tree of a pushed-down condition means what the same SQL means."""

# ruff: noqa: E501 - tables of cases read better with one case per line

import base64
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.predicate.json import predicate_from_json
from pyspark_lance.predicate.parse import parse_predicate

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "x": pa.float64(),
        "s": pa.string(),
        "bin": pa.binary(),
        "price": pa.decimal128(10, 2),
        "day": pa.date32(),
        "ts": pa.timestamp("us", "UTC"),
        "flag": pa.bool_(),
        "st": pa.struct({"we.ird": pa.int32()}),
    }
)


def column(*path):
    return {"column": list(path)}


def literal(value, kind):
    return {"literal": value, "type": kind}


def op(name, *arguments, **more):
    return {"op": name, "args": list(arguments), **more}


@pytest.mark.parametrize(
    ("tree", "text"),
    [
        (op("=", column("id"), literal(5, "bigint")), "id = 5"),
        (op("=", column("id"), literal("9223372036854775807", "bigint")), "id = 9223372036854775807"),
        (op(">", column("x"), literal("-0.0", "double")), "x > -0.0D"),
        (op("<", column("x"), literal("Infinity", "double")), "x < double('inf')"),
        (op("<>", column("price"), literal("1.50", "decimal(10,2)")), "price <> 1.50"),
        (op("<=", column("day"), literal(19_000, "date")), "day <= DATE '2022-01-08'"),
        (op(">=", column("ts"), literal(1_000_000, "timestamp")), "ts >= TIMESTAMP '1970-01-01 00:00:01'"),
        (op("=", column("bin"), literal(base64.b64encode(b"\x00a").decode(), "binary")), "bin = X'0061'"),
        (op("=", column("s"), literal("it's 'x' \\ `", "string")), r"s = 'it\'s \'x\' \\ `'"),
        (op("IN", column("id"), literal(1, "int"), literal(None, "void")), "id IN (1, NULL)"),
        (op("IN", column("id")), "FALSE"),
        (op("AND", column("flag"), op("NOT", op("IS_NULL", column("s")))), "flag AND s IS NOT NULL"),
        (op("OR", column("flag"), op("IS_NOT_NULL", column("st"))), "flag OR st IS NOT NULL"),
        (op("<=>", column("st", "we.ird"), literal(1, "int")), "st.`we.ird` <=> 1"),
        (op("STARTS_WITH", column("s"), literal("a%", "string")), "startswith(s, 'a%')"),
        (op("LIKE", column("s"), pattern="a!%%", escape="!"), "s LIKE 'a!%%' ESCAPE '!'"),
        (op("RLIKE", column("s"), pattern="^a"), "s RLIKE '^a'"),
        (op("ALWAYS_TRUE"), "TRUE"),
        (op("BOOLEAN_EXPRESSION", column("flag")), "flag"),
        (op(">", op("+", column("id"), literal(1, "bigint")), literal(5, "bigint")), "id + 1 > 5"),
        (op("=", {"cast": column("id"), "type": "string"}, literal("5", "string")),
         "CAST(id AS string) = '5'"),
        (op("=", op("YEAR", column("day")), literal(2024, "int")), "year(day) = 2024"),
        (op("=", op("-", column("id")), literal(3, "bigint")), "-id = 3"),
        (op("=", column("_rowid"), literal(3, "bigint")), "_rowid = 3"),
    ],
)  # fmt: skip
def test_json_tree_equals_parsed_text(tree, text):
    assert predicate_from_json(json.dumps(tree), SCHEMA) == parse_predicate(text, SCHEMA)


def test_same_json_condition_is_parsed_once():
    """Planning one scan asks for its condition several times; a long list takes a while to parse."""
    text = json.dumps(op("IS_NULL", column("id")))
    first = predicate_from_json(text, SCHEMA)
    again = json.dumps(json.loads(text))
    assert predicate_from_json(again, pa.schema(list(SCHEMA))) is first
    other = predicate_from_json(text, pa.schema([("id", pa.string())]))
    assert other != first


def test_json_columns_match_exact_case_first():
    members = pa.struct({"b": pa.int32(), "B": pa.string()})
    schema = pa.schema({"a": pa.int32(), "A": pa.string(), "bB": pa.int32(), "st": members})
    meant = {
        ("a",): ("a",),
        ("bb",): ("bB",),
        ("A",): ("A",),
        ("ST", "b"): ("st", "b"),
        ("st", "B"): ("st", "B"),
    }
    for path, found in meant.items():
        tree = json.dumps(op("IS_NULL", column(*path)))
        assert predicate_from_json(tree, schema).value.path == found


@pytest.mark.parametrize(
    "tree",
    [
        op("FROBNICATE", column("id")),
        op("=", column("id")),
        {"surprise": 1},
        [],
        None,
        op("AND", op("NOT", column("flag")), {"column": []}),
    ],
)
def test_unknown_json_nodes_are_refused(tree):
    with pytest.raises(UnsupportedFeatureError):
        predicate_from_json(json.dumps(tree), SCHEMA)


@pytest.mark.parametrize(
    "tree",
    [
        op("=", column("nosuch"), literal(1, "int")),
        op("=", column("id"), literal("x", "bigint")),
        op("=", column("id"), literal(2**70, "bigint")),
        op("=", column("bin"), literal("?", "binary")),
        op("=", column("price"), literal("x", "decimal(3,1)")),
        op("=", column("price"), literal("1.55", "decimal(2,1)")),
        op("LIKE", column("s")),
        column("id"),
    ],
)
def test_invalid_json_values_are_refused(tree):
    with pytest.raises(InvalidInputError):
        predicate_from_json(json.dumps(tree), SCHEMA)


def test_json_depth_is_bounded():
    for depth in (200, 100_000):
        text = '{"op": "NOT", "args": [' * depth + '{"column": ["flag"]}' + "]}" * depth
        with pytest.raises(InvalidInputError):
            predicate_from_json(text, SCHEMA)


NODES = st.recursive(
    st.one_of(
        st.sampled_from(SCHEMA.names).map(column),
        st.builds(
            literal,
            st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.floats()),
            st.sampled_from(["int", "bigint", "string", "double", "date", "timestamp", "boolean",
                             "decimal(5,2)", "binary", "void", "array<int>", "float"]),
        ),
        st.integers(),
    ),
    lambda inner: st.builds(
        lambda name, arguments: op(name, *arguments),
        st.sampled_from(["=", "<", "AND", "OR", "NOT", "IN", "IS_NULL", "+", "/", "ABS", "LOWER",
                         "CONTAINS", "COALESCE", "SUBSTRING", "CAST", "IS_NAN"]),
        st.lists(inner, max_size=3),
    ),
    max_leaves=6,
)  # fmt: skip


@given(NODES)
def test_arbitrary_json_tree_parses_or_raises_lance_error(tree):
    try:
        predicate = predicate_from_json(json.dumps(tree), SCHEMA)
    except LanceError:
        return
    assert predicate.type == pa.bool_()


@pytest.mark.parametrize("place", ["literal", "pattern", "column"])
def test_lone_surrogates_are_refused(place):
    half = "\ud800"
    value = literal(half if place == "literal" else "x", "string")
    tree = op("=", column(half if place == "column" else "s"), value)
    if place == "pattern":
        tree = op("LIKE", column("s"), pattern=half)
    with pytest.raises(InvalidInputError):
        predicate_from_json(json.dumps(tree), SCHEMA)
    with pytest.raises(InvalidInputError):
        parse_predicate(f"s = '{half}'", SCHEMA)

"""Conditions as a typed JSON tree, in which the JVM plugin sends pushed-down predicates.

A node is one of::

    {"column": ["address", "street"]}
    {"literal": value, "type": "bigint"}        value null, or see below
    {"cast": node, "type": "decimal(10,2)"}
    {"op": name, "args": [node, ...]}           further "pattern" and "escape" for LIKE and RLIKE
    {"op": "IN", "args": [node], "values": base64 of little-endian int64, "type": "int"}

Literal values: boolean as such; integers as numbers or text; float and double as text (``"NaN"``,
``"-Infinity"``, ``"1.5"``) or numbers; decimal as text; string as such; binary as base64; date as
days since 1970; timestamps as microseconds since 1970; time as nanoseconds of the day.  Names of
operators are those of Spark's V2 expressions.  No I/O.
"""

from __future__ import annotations

import base64
import binascii
import decimal
import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from pyspark_lance.errors import InvalidInputError, LanceError, UnsupportedFeatureError
from pyspark_lance.plain_values import plain_array, plain_scalar
from pyspark_lance.predicate import builder as build
from pyspark_lance.predicate import values
from pyspark_lance.predicate.builder import resolve_column
from pyspark_lance.predicate.tree import FALSE, TRUE, Expression, Literal, Predicate
from pyspark_lance.predicate.types import BINARY, parse_type, type_name

_MAX_DEPTH = 100


def predicate_from_json(text: str, schema: pa.Schema, *, time_zone: str = "UTC") -> Predicate:
    """Parse the condition in a JSON text."""
    return _parse(text, schema, time_zone)


# Planning a scan needs its condition several times; those of long lists take memory.
@lru_cache(maxsize=2)
def _parse(text: str, schema: pa.Schema, time_zone: str) -> Predicate:
    try:
        tree = json.loads(text)
        # Half of a surrogate pair is valid in JSON only.
        json.dumps(tree, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise InvalidInputError(f"a pushed-down condition is not JSON: {error}") from error
    return build.condition(_Reader(schema, time_zone).expression(tree, 1), "a filter")


class _Reader:
    """Conversion of nodes to expressions of one schema."""

    def __init__(self, schema: pa.Schema, time_zone: str) -> None:
        self._schema, self._time_zone = schema, time_zone

    def expression(self, node: Any, depth: int) -> Expression:
        if depth > _MAX_DEPTH:
            raise InvalidInputError(f"a condition is nested more than {_MAX_DEPTH} levels deep")
        try:
            match node:
                case {"column": [*path]} if path:
                    names = tuple(str(name) for name in path)
                    return resolve_column(names, self._schema)
                case {"literal": value, "type": str(kind)}:
                    return _literal(value, parse_type(kind))
                case {"cast": inner, "type": str(kind)}:
                    value = self.expression(inner, depth + 1)
                    return values.cast(value, parse_type(kind), self._time_zone)
                case {"op": "IN", "args": [value], "values": str(numbers), "type": str(kind)}:
                    tested = self.expression(value, depth + 1)
                    wanted = _numbers(numbers, parse_type(kind))
                    return build.membership(tested, (), wanted, self._time_zone)
                case {"op": str(name), "args": [*arguments]}:
                    given = [self.expression(argument, depth + 1) for argument in arguments]
                    return self._operation(name.upper(), given, node)
        except (TypeError, ValueError, OverflowError, pa.ArrowException) as error:
            if isinstance(error, LanceError):
                raise
            raise InvalidInputError(
                f"a pushed-down condition has an invalid value: {str(node)[:100]}: {error}"
            ) from error
        raise UnsupportedFeatureError(f"a condition has an unknown node: {str(node)[:100]}")

    def _operation(self, name: str, given: list[Expression], node: dict[str, Any]) -> Expression:
        zone = self._time_zone
        if name in _COMPARISONS and len(given) == 2:
            return build.comparison(_COMPARISONS[name], given[0], given[1], zone)
        if name in ("+", "-", "*", "/", "%") and len(given) == 2:
            return values.arithmetic(name, given[0], given[1])
        if name == "IN" and given:
            return build.membership(given[0], given[1:], None, zone) if given[1:] else FALSE
        if name in ("LIKE", "ILIKE", "RLIKE") and len(given) == 1:
            return _pattern(name, given[0], node)
        known = _OPERATIONS.get(name)
        if known is not None and known[0] in (len(given), None):
            return known[1](given)
        if name.lower() in values.FUNCTION_NAMES:
            return values.call(name.lower(), given, zone)
        raise UnsupportedFeatureError(
            f"the operation {name!r} with {len(given)} arguments is not supported in a condition"
        )


_COMPARISONS = {name: name for name in ("=", "<>", "<", "<=", ">", ">=", "<=>")} | {"!=": "<>"}
_OPERATIONS: dict[str, tuple[int | None, Callable[[list[Expression]], Expression]]] = {
    "ALWAYS_TRUE": (0, lambda _: TRUE),
    "ALWAYS_FALSE": (0, lambda _: FALSE),
    "AND": (None, build.conjunction),
    "OR": (None, build.disjunction),
    "NOT": (1, lambda given: build.negation(given[0])),
    "IS_NULL": (1, lambda given: build.is_null(given[0])),
    "IS_NOT_NULL": (1, lambda given: build.negation(build.is_null(given[0]))),
    "IS_NAN": (1, lambda given: build.is_nan(given[0])),
    "STARTS_WITH": (2, lambda given: build.match("starts_with", given[0], given[1])),
    "ENDS_WITH": (2, lambda given: build.match("ends_with", given[0], given[1])),
    "CONTAINS": (2, lambda given: build.match("contains", given[0], given[1])),
    "CONTAINS_TOKENS": (2, lambda given: build.contains_tokens(given[0], given[1])),
    "BOOLEAN_EXPRESSION": (1, lambda given: build.condition(given[0], "a filter")),
    "-": (1, lambda given: values.call("negative", given)),
}


def _pattern(name: str, value: Expression, node: dict[str, Any]) -> Predicate:
    pattern, escape = node.get("pattern"), node.get("escape", "\\")
    if not isinstance(pattern, str) or not isinstance(escape, str) or len(escape) != 1:
        raise InvalidInputError(f"{name} needs a pattern, and an escape of one character")
    if name == "RLIKE":
        return build.rlike(value, pattern)
    return (build.like if name == "LIKE" else build.ilike)(value, pattern, escape)


def _numbers(packed: str, data_type: pa.DataType) -> pa.Array:
    """Return many constants, stored as integers, as one array."""
    stored = pa.types.is_integer(data_type)
    as_stored = data_type if stored else pa.int32() if pa.types.is_date32(data_type) else pa.int64()
    numbers = np.frombuffer(base64.b64decode(packed, validate=True), "<i8")
    return plain_array(numbers).cast(as_stored).view(data_type)


def literal_node(scalar: pa.Scalar) -> dict[str, Any]:
    """Return the node of a non-null constant, in a type that columns have in conditions."""
    data_type = scalar.type
    value: Any
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        value = scalar.cast(pa.int64()).as_py()
    elif pa.types.is_date32(data_type):
        value = scalar.cast(pa.int32()).as_py()
    elif pa.types.is_floating(data_type):
        value = repr(scalar.as_py())
    elif pa.types.is_decimal(data_type):
        value = str(scalar.as_py())
    elif data_type == BINARY:
        value = base64.b64encode(scalar.as_py()).decode()
    else:
        value = scalar.as_py()
    return {"literal": value, "type": type_name(data_type)}


def literal_scalar(value: Any, data_type: pa.DataType) -> pa.Scalar:
    """Return the constant of a node with the literal ``value``."""
    return _literal(value, data_type).scalar


def _literal(value: Any, data_type: pa.DataType) -> Literal:
    if value is None:
        return values.literal(None, data_type)
    if pa.types.is_boolean(data_type) or pa.types.is_string(data_type):
        return values.literal(value, data_type)
    if pa.types.is_floating(data_type):
        return Literal(plain_scalar(float(value), data_type))
    if pa.types.is_decimal(data_type):
        try:
            return values.literal(decimal.Decimal(str(value)), data_type)
        except decimal.InvalidOperation as error:
            raise InvalidInputError(f"{value!r} is not a decimal") from error
    if data_type == BINARY:
        try:
            return values.literal(base64.b64decode(value, validate=True), data_type)
        except binascii.Error as error:
            raise InvalidInputError("a binary literal is not base64") from error
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise InvalidInputError(f"{value!r} is not an integer")
    number = int(value)
    if pa.types.is_integer(data_type):
        return values.literal(number, data_type)
    if pa.types.is_date32(data_type):
        return Literal(plain_scalar(number, pa.int32()).cast(data_type))
    return Literal(plain_scalar(number, pa.int64()).cast(data_type))

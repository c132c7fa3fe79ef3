"""Making typed conditions: finds common types as Spark does, folds constants, refuses the rest.

Both front doors (SQL text and the JVM companion's tree) build their conditions with these
functions, so a comparison means the same wherever it came from.  No I/O.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.table.predicate_casts import can_cast, cast_array
from pyspark_lance.table.predicate_evaluation import evaluate_expression
from pyspark_lance.table.predicate_patterns import like_pieces, like_regex, rlike_regex
from pyspark_lance.table.predicate_tree import (
    BOOLEAN,
    FALSE,
    TRUE,
    UNKNOWN,
    And,
    Arithmetic,
    Call,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    IsNaN,
    IsNull,
    Literal,
    Match,
    Not,
    Or,
    Predicate,
)
from pyspark_lance.table.predicate_types import (
    BINARY,
    STRING,
    common_type,
    decimal_of_integer,
    is_comparable,
    is_integral,
    is_numeric,
    type_name,
)

_NO_ROWS_NEEDED = pa.record_batch([pa.nulls(1)], ["row"])
_EXACT = decimal.Context(prec=200)


def literal(value: object, kind: pa.DataType) -> Literal:
    """The constant ``value`` of the Spark type ``kind``."""
    return Literal(pa.scalar(value, kind))


def decimal_literal(value: decimal.Decimal) -> Literal:
    """A decimal constant with the precision and scale that Spark gives it."""
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidInputError(f"{value} is not a decimal number")
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > 38:
        raise InvalidInputError(f"the decimal {value} has more than 38 digits")
    return literal(value.scaleb(0, _EXACT), pa.decimal128(precision, scale))


def integer_literal(value: int) -> Literal:
    """An integer constant: int, else bigint, else decimal, as Spark types it."""
    for kind in (pa.int32(), pa.int64()):
        if -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1):
            return literal(value, kind)
    return decimal_literal(decimal.Decimal(value))


def cast(value: Expression, kind: pa.DataType, time_zone: str = "UTC") -> Expression:
    """``CAST(value AS kind)``, done at once for a constant.

    Raises:
        InvalidInputError: The types cannot be cast, or the constant does not fit.
    """
    if value.type == kind:
        return value
    if not can_cast(value.type, kind):
        raise InvalidInputError(f"{type_name(value.type)} cannot be cast to {type_name(kind)} here")
    if isinstance(value, Literal):
        return Literal(cast_array(pa.repeat(value.scalar, 1), kind, time_zone)[0])
    return Cast(value, kind, time_zone)


def comparison(
    operator: str, left: Expression, right: Expression, time_zone: str = "UTC"
) -> Predicate:
    """``left operator right`` for ``= <> < <= > >= <=>``, in the type Spark would compare in."""
    decided = _integer_against_decimal(operator, left, right)
    if decided is None and operator in _MIRRORED:
        decided = _integer_against_decimal(_MIRRORED[operator], right, left)
    if decided is not None:
        return decided
    left, right = _to_common(left, right, time_zone, f"{operator!r}")
    if pa.types.is_null(left.type):
        return TRUE if operator == "<=>" else UNKNOWN
    if operator == "<=>":
        for one, other in ((left, right), (right, left)):
            if isinstance(one, Literal) and one.is_null:
                return is_null(other)
    elif _is_null_literal(left) or _is_null_literal(right):
        return UNKNOWN
    return _fold(Comparison(operator, left, right))


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _integer_against_decimal(
    operator: str, value: Expression, bound: Expression
) -> Predicate | None:
    """``integer operator decimal constant`` as a comparison of integers, as Spark rewrites it.

    Like Spark, a constant beyond bigint decides the comparison even for NULL.
    """
    if (
        operator not in _MIRRORED
        or isinstance(value, Literal)
        or not is_integral(value.type)
        or not isinstance(bound, Literal)
        or not pa.types.is_decimal(bound.type)
        or bound.is_null
    ):
        return None
    limit = bound.value
    if limit < -(2**63):
        return TRUE if operator in (">", ">=") else FALSE
    if limit > 2**63 - 1:
        return TRUE if operator in ("<", "<=") else FALSE
    whole = math.floor(limit) if operator in (">", "<=") else math.ceil(limit)
    if not -(2**63) <= whole < 2**63:
        return None
    return comparison(operator, value, literal(whole, pa.int64()))


def _is_null_literal(value: Expression) -> bool:
    return isinstance(value, Literal) and value.is_null


def _to_common(
    left: Expression, right: Expression, time_zone: str, what: str
) -> tuple[Expression, Expression]:
    left, right = _tight_decimal(left, right), _tight_decimal(right, left)
    kind = common_type(left.type, right.type)
    if kind is None or not is_comparable(kind):
        raise InvalidInputError(
            f"{what} does not work on {type_name(left.type)} and {type_name(right.type)}",
            hint="cast one of the two, as in: CAST(x AS string)",
        )
    return cast(left, kind, time_zone), cast(right, kind, time_zone)


def _tight_decimal(value: Expression, other: Expression) -> Expression:
    """An integer constant beside a decimal becomes a decimal of just its digits, as in Spark."""
    constant = (
        isinstance(value, Literal) and is_integral(value.type) and not _is_null_literal(value)
    )
    if constant and pa.types.is_decimal(other.type):
        assert isinstance(value, Literal)
        return decimal_literal(decimal.Decimal(value.value))
    return value


def membership(value: Expression, items: Sequence[Expression], time_zone: str = "UTC") -> Predicate:
    """``value IN (items…)``; the items may be expressions."""
    kind: pa.DataType = value.type
    for other in dict.fromkeys(item.type for item in items):
        wider = common_type(kind, other)
        if wider is None or not is_comparable(wider):
            raise InvalidInputError(
                f"IN does not work on {type_name(value.type)} and {type_name(other)}"
            )
        kind = wider
    if pa.types.is_null(kind) or _is_null_literal(value):
        return UNKNOWN
    value = cast(value, kind, time_zone)
    constants = [item for item in items if isinstance(item, Literal)]
    terms: list[Predicate] = []
    if constants:
        values = _constants(constants, kind, time_zone)
        known = values.drop_null()
        terms.append(_fold(In(value, known, has_null=len(known) < len(values))))
    terms += [
        comparison("=", value, item, time_zone) for item in items if not isinstance(item, Literal)
    ]
    return disjunction(terms)


def _constants(items: Sequence[Literal], kind: pa.DataType, time_zone: str) -> pa.Array:
    """The constants as one array of type ``kind``; a cast per distinct type, not per item."""
    by_type: dict[pa.DataType, list[pa.Scalar]] = {}
    for item in items:
        by_type.setdefault(item.type, []).append(item.scalar)
    parts = [
        cast_array(pa.array([one.as_py() for one in scalars], own), kind, time_zone)
        if own not in _BEYOND_PYTHON
        else pa.concat_arrays([cast_array(pa.repeat(one, 1), kind, time_zone) for one in scalars])
        for own, scalars in by_type.items()
    ]
    return pa.concat_arrays(parts)


# Their scalars may lie outside of what datetime can hold.
_BEYOND_PYTHON = (pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.duration("us"))


def is_null(value: Expression) -> Predicate:
    """``value IS NULL``."""
    return _fold(IsNull(value))


def is_nan(value: Expression) -> Predicate:
    """``isnan(value)``; other numbers and texts become doubles first, as in Spark."""
    if not pa.types.is_floating(value.type):
        value = cast(value, pa.float64())
    return _fold(IsNaN(value))


def like(value: Expression, pattern: str, escape: str = "\\") -> Predicate:
    """``value LIKE pattern``, as the cheapest test that answers it."""
    value = text(value)
    pieces = like_pieces(pattern, escape)
    match pieces:
        case []:
            return comparison("=", value, literal("", STRING))
        case [str(whole)] if whole:
            return comparison("=", value, literal(whole, STRING))
        case [str(prefix), None] if prefix:
            return match("starts_with", value, literal(prefix, STRING))
        case [None, str(suffix)] if suffix:
            return match("ends_with", value, literal(suffix, STRING))
        case [None, str(part), None] if part:
            return match("contains", value, literal(part, STRING))
    return _fold(Match("regex", value, like_regex(pieces)))


def ilike(value: Expression, pattern: str, escape: str = "\\") -> Predicate:
    """``value ILIKE pattern``: both sides in lower case, which is how Spark defines it."""
    return like(call("lower", [text(value)]), pattern.lower(), escape)


def rlike(value: Expression, pattern: str) -> Predicate:
    """``value RLIKE pattern``."""
    return _fold(Match("regex", text(value), rlike_regex(pattern)))


def match(kind: str, value: Expression, part: Expression) -> Predicate:
    """``startswith``, ``endswith`` or ``contains`` with a constant part."""
    if not isinstance(part, Literal):
        raise InvalidInputError(f"{kind} needs a constant to look for")
    if value.type == BINARY == part.type:
        if part.is_null:
            return UNKNOWN
        return _fold(Match(kind, value, part.value))
    part = text(part)
    if _is_null_literal(part):
        return UNKNOWN
    assert isinstance(part, Literal)
    return _fold(Match(kind, text(value), part.value))


def text(value: Expression) -> Expression:
    """``value`` as a string, as functions of strings take their arguments."""
    return cast(value, STRING)


def negation(term: Expression) -> Predicate:
    """``NOT term``."""
    term = condition(term, "NOT")
    return term.term if isinstance(term, Not) else _fold(Not(term))


def conjunction(terms: Sequence[Expression]) -> Predicate:
    """``AND`` of all terms; TRUE for none."""
    kept: list[Expression] = []
    for term in terms:
        term = condition(term, "AND")
        if term == FALSE:
            return FALSE
        kept.extend(term.terms if isinstance(term, And) else () if term == TRUE else (term,))
    if not kept:
        return TRUE
    return kept[0] if len(kept) == 1 else And(tuple(kept))


def disjunction(terms: Sequence[Expression]) -> Predicate:
    """``OR`` of all terms; FALSE for none.  Equalities on one column become one IN."""
    kept: list[Expression] = []
    for term in terms:
        term = condition(term, "OR")
        if term == TRUE:
            return TRUE
        kept.extend(term.terms if isinstance(term, Or) else () if term == FALSE else (term,))
    if len(kept) > 2:
        kept = _merge_equalities(kept)
    if not kept:
        return FALSE
    return kept[0] if len(kept) == 1 else Or(tuple(kept))


def _merge_equalities(terms: list[Expression]) -> list[Expression]:
    """``a = 1 OR a = 2 OR …`` as ``a IN (1, 2, …)``: the same answers, one pass over ``a``."""
    found: dict[tuple[Column, pa.DataType], list[pa.Scalar]] = {}
    result: list[Expression | tuple[Column, pa.DataType]] = []
    for term in terms:
        match term:
            case Comparison("=", Column() as column, Literal(scalar)):
                key = (column, scalar.type)
                if key not in found:
                    result.append(key)
                found.setdefault(key, []).append(scalar)
            case _:
                result.append(term)
    return [
        _equal_to_any(item[0], found[item]) if isinstance(item, tuple) else item for item in result
    ]


def _equal_to_any(column: Column, scalars: list[pa.Scalar]) -> Predicate:
    if len(scalars) == 1:
        return Comparison("=", column, Literal(scalars[0]))
    return In(column, _constants([Literal(scalar) for scalar in scalars], column.type, "UTC"))


def condition(value: Expression, what: str) -> Predicate:
    """``value`` as a condition.

    Raises:
        InvalidInputError: It is neither a boolean nor NULL.
    """
    if value.type == BOOLEAN:
        return value
    if pa.types.is_null(value.type):
        return UNKNOWN
    if isinstance(value, Literal) and pa.types.is_string(value.type):
        return cast(value, BOOLEAN)
    raise InvalidInputError(
        f"{what} needs a condition, not a value of type {type_name(value.type)}",
        hint="compare it with something, as in: x <> 0",
    )


def arithmetic(operator: str, left: Expression, right: Expression) -> Expression:
    """``left operator right`` for ``+ - * / % div``, typed as Spark's ANSI mode does."""
    what = f"{operator!r}"
    if pa.types.is_null(left.type) and pa.types.is_null(right.type):
        return literal(None, pa.float64())
    left, right = _tight_decimal(left, right), _tight_decimal(right, left)
    kind = common_type(left.type, right.type)
    if kind is None or not (is_numeric(kind) or pa.types.is_decimal(kind)):
        raise InvalidInputError(
            f"{what} does not work on {type_name(left.type)} and {type_name(right.type)}",
            hint="arithmetic is supported on numbers only",
        )
    if pa.types.is_decimal(kind):
        return _decimal_arithmetic(operator, left, right)
    if operator == "/":
        kind = pa.float64()
    if operator == "div":
        if not is_integral(kind):
            raise InvalidInputError("'div' is supported on integers only", hint="use / instead")
        kind = pa.int64()
    return _fold(Arithmetic(operator, cast(left, kind), cast(right, kind), kind))


def _decimal_arithmetic(operator: str, left: Expression, right: Expression) -> Expression:
    left, right = _as_decimal(left), _as_decimal(right)
    one, two = left.type, right.type
    whole = max(one.precision - one.scale, two.precision - two.scale)
    if operator in ("+", "-"):
        scale = max(one.scale, two.scale)
        precision = whole + scale + 1
    elif operator == "*":
        scale, precision = one.scale + two.scale, one.precision + two.precision + 1
    else:
        scale, precision = 0, 39
    if precision > 38:
        raise InvalidInputError(
            f"{operator!r} on {type_name(one)} and {type_name(two)} is not supported here",
            hint="cast to double first, as in: CAST(x AS double)",
        )
    return _fold(Arithmetic(operator, left, right, pa.decimal128(precision, scale)))


def _as_decimal(value: Expression) -> Expression:
    if pa.types.is_null(value.type):
        return cast(value, pa.decimal128(1, 0))
    return value if pa.types.is_decimal(value.type) else cast(value, decimal_of_integer(value.type))


@dataclass(frozen=True, slots=True)
class _Signature:
    """What a function takes (None: see ``_typed_argument``) and returns (None: as it takes)."""

    arguments: tuple[str, ...]
    result: pa.DataType | None


_SIGNATURES = {
    "abs": _Signature(("number",), None),
    "negative": _Signature(("number",), None),
    "lower": _Signature(("text",), STRING),
    "upper": _Signature(("text",), STRING),
    "length": _Signature(("text or bytes",), pa.int32()),
    "trim": _Signature(("text",), STRING),
    "ltrim": _Signature(("text",), STRING),
    "rtrim": _Signature(("text",), STRING),
    "year": _Signature(("date",), pa.int32()),
    "month": _Signature(("date",), pa.int32()),
    "day": _Signature(("date",), pa.int32()),
    "hour": _Signature(("timestamp",), pa.int32()),
    "minute": _Signature(("timestamp",), pa.int32()),
    "second": _Signature(("timestamp",), pa.int32()),
}
FUNCTION_NAMES = (*sorted(_SIGNATURES), "coalesce", "concat", "substring")


def call(name: str, arguments: Sequence[Expression], time_zone: str = "UTC") -> Expression:
    """A function call, its arguments cast as Spark casts them.

    Raises:
        InvalidInputError: No such function, or arguments it does not take.
    """
    if name == "coalesce":
        return _coalesce(arguments, time_zone)
    if name == "concat":
        return _fold(Call("concat", tuple(text(argument) for argument in arguments), STRING))
    if name == "substring":
        return _substring(arguments)
    signature = _SIGNATURES[name]
    if len(arguments) != len(signature.arguments):
        raise InvalidInputError(
            f"{name} takes {len(signature.arguments)} argument, not {len(arguments)}"
        )
    typed = _typed_argument(name, signature.arguments[0], arguments[0], time_zone)
    return _fold(Call(name, (typed,), signature.result or typed.type, (time_zone,)))


def _typed_argument(name: str, wanted: str, value: Expression, time_zone: str) -> Expression:
    kind = value.type
    if wanted == "number":
        if is_numeric(kind):
            return value
        if pa.types.is_string(kind) or pa.types.is_null(kind):
            return cast(value, pa.float64())
    elif wanted in ("text", "text or bytes"):
        return value if wanted == "text or bytes" and kind == BINARY else text(value)
    elif wanted == "date":
        return cast(value, pa.date32(), time_zone)
    elif pa.types.is_timestamp(kind):
        return value
    else:
        return cast(value, pa.timestamp("us", "UTC"), time_zone)
    raise InvalidInputError(f"{name} needs a {wanted}, not a value of type {type_name(kind)}")


def _coalesce(arguments: Sequence[Expression], time_zone: str) -> Expression:
    if not arguments:
        raise InvalidInputError("coalesce needs an argument")
    kind = arguments[0].type
    for argument in arguments[1:]:
        wider = common_type(kind, argument.type)
        if wider is None or not is_comparable(wider):
            raise InvalidInputError(
                f"coalesce does not work on {type_name(kind)} and {type_name(argument.type)}"
            )
        kind = wider
    typed = tuple(cast(argument, kind, time_zone) for argument in arguments)
    return _fold(Call("coalesce", typed, kind))


def _substring(arguments: Sequence[Expression]) -> Expression:
    if len(arguments) not in (2, 3):
        raise InvalidInputError("substring takes two or three arguments")
    bounds: list[int | None] = []
    for bound in arguments[1:]:
        value = bound.value if isinstance(bound, Literal) and is_integral(bound.type) else None
        if value is None:
            raise InvalidInputError("substring needs constant integers as position and length")
        bounds.append(value)
    options = (bounds[0], bounds[1] if len(bounds) == 2 else None)
    return _fold(Call("substring", (text(arguments[0]),), STRING, options))


def _fold(node: Expression) -> Expression:
    """A constant for a node whose parts are all constants; the node itself if that fails.

    A failing constant (``1 / 0``) must fail only for a row that needs it.
    """
    match node:
        case (
            Comparison(left=Literal(), right=Literal())
            | Arithmetic(left=Literal(), right=Literal())
        ):
            pass
        case In(value=Literal()) | Match(value=Literal()):
            pass
        case IsNull(Literal()) | IsNaN(Literal()) | Not(Literal()):
            pass
        case Call(arguments=arguments) if all(isinstance(one, Literal) for one in arguments):
            pass
        case _:
            return node
    try:
        return Literal(evaluate_expression(node, _NO_ROWS_NEEDED)[0])
    except LanceError:
        return node

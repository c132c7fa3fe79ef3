"""Builders of typed values: constants, casts, arithmetic and function calls, with constant folding.

Types follow Spark's ANSI mode, or a session without it if ``ansi`` is false.  No I/O.
"""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError, LanceError
from pyspark_lance.plain_values import plain_scalar, plain_values
from pyspark_lance.predicate.casts import (
    LEAVE_TO_SPARK,
    can_cast,
    cast_array,
    cast_or_null,
    differs_without_ansi,
)
from pyspark_lance.predicate.evaluate import evaluate_expression
from pyspark_lance.predicate.time_texts import is_name_of_moment
from pyspark_lance.predicate.tree import (
    BOOLEAN,
    Arithmetic,
    Call,
    Cast,
    Comparison,
    Expression,
    In,
    IsNaN,
    IsNull,
    Literal,
    Match,
    Not,
    can_raise,
)
from pyspark_lance.predicate.types import (
    BINARY,
    STRING,
    common_type,
    decimal_of_integer,
    is_comparable,
    is_integral,
    is_numeric,
    type_name,
    wider_type,
)

_NO_ROWS_NEEDED = pa.record_batch([pa.nulls(1)], ["row"])


def literal(value: object, data_type: pa.DataType) -> Literal:
    """Return the constant ``value`` of the Spark type ``data_type``."""
    try:
        return Literal(plain_scalar(value, data_type))
    except UnicodeEncodeError as error:
        raise InvalidInputError(f"the text {value!r} is not valid Unicode") from error


def decimal_literal(value: decimal.Decimal) -> Literal:
    """Return a decimal constant with the precision and scale that Spark assigns."""
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise InvalidInputError(f"{value} is not a decimal number")
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale, 1)
    if precision > 38:
        raise InvalidInputError(f"the decimal {value} has more than 38 digits")
    return literal(value, pa.decimal128(precision, scale))


def integer_literal(value: int) -> Literal:
    """Return an integer constant: int, else bigint, else decimal, as in Spark."""
    for kind in (pa.int32(), pa.int64()):
        if -(2 ** (kind.bit_width - 1)) <= value < 2 ** (kind.bit_width - 1):
            return literal(value, kind)
    return decimal_literal(decimal.Decimal(value))


def integer_array(numbers: Sequence[int]) -> pa.Array:
    """Return integer constants as one array of the type that fits them all."""
    low, high = min(numbers), max(numbers)
    if low >= -(2**63) and high < 2**63:
        fits = low >= -(2**31) and high < 2**31
        return plain_values(numbers, pa.int32() if fits else pa.int64())
    return pa.array([decimal.Decimal(number) for number in numbers], pa.decimal128(38, 0))


def cast(
    value: Expression, data_type: pa.DataType, time_zone: str = "UTC", ansi: bool = True
) -> Expression:
    """Return ``CAST(value AS kind)``, evaluated for a constant."""
    if value.type == data_type:
        return value
    if not can_cast(value.type, data_type):
        raise InvalidInputError(
            f"{type_name(value.type)} cannot be cast to {type_name(data_type)} here",
            hint=LEAVE_TO_SPARK,
        )
    ansi = ansi or not differs_without_ansi(value.type, data_type)
    if isinstance(value, Literal):
        if pa.types.is_temporal(data_type) and is_name_of_moment(str(value.value)):
            raise InvalidInputError(
                f"{value.value!r} is not cast to {type_name(data_type)} here", hint=LEAVE_TO_SPARK
            )
        convert = cast_array if ansi else cast_or_null
        return Literal(convert(pa.repeat(value.scalar, 1), data_type, time_zone)[0])
    return Cast(value, data_type, time_zone, ansi)


def fold(node: Expression) -> Expression:
    """Return a constant for a node with constant operands; the node itself if evaluation fails.

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
        case Call(arguments=arguments) if all(
            isinstance(argument, Literal) for argument in arguments
        ):
            pass
        case _:
            return node
    try:
        return Literal(evaluate_expression(node, _NO_ROWS_NEEDED)[0])
    except LanceError:
        return node


def tight_decimal(value: Expression, other: Expression) -> Expression:
    """Return an integer constant next to a decimal as a decimal of just its digits, as in Spark."""
    constant = isinstance(value, Literal) and is_integral(value.type) and not value.is_null
    if constant and pa.types.is_decimal(other.type):
        assert isinstance(value, Literal)
        return decimal_literal(decimal.Decimal(value.value))
    return value


def text(value: Expression) -> Expression:
    """Return ``value`` as a string, as string functions cast their arguments."""
    return cast(value, STRING)


def arithmetic(operator: str, left: Expression, right: Expression, ansi: bool = True) -> Expression:
    """Return ``left operator right`` for ``+ - * / % div``, typed as in Spark."""
    what = f"{operator!r}"
    if pa.types.is_null(left.type) and pa.types.is_null(right.type):
        return literal(None, pa.float64())
    if not ansi:
        left, right = _number_of_text(left), _number_of_text(right)
    left, right = tight_decimal(left, right), tight_decimal(right, left)
    data_type = common_type(left.type, right.type, ansi=ansi)
    if data_type is None or not (is_numeric(data_type) or pa.types.is_decimal(data_type)):
        raise InvalidInputError(
            f"{what} does not work on {type_name(left.type)} and {type_name(right.type)}",
            hint="arithmetic is supported on numbers only",
        )
    if pa.types.is_decimal(data_type):
        return _decimal_arithmetic(operator, left, right)
    if operator == "/":
        data_type = pa.float64()
    if operator == "div":
        if not is_integral(data_type):
            raise InvalidInputError("'div' is supported on integers only", hint="use / instead")
        data_type = pa.int64()
    typed = Arithmetic(operator, cast(left, data_type), cast(right, data_type), data_type)
    # Both modes share a node if they do not differ.
    return fold(typed if ansi or not can_raise(typed) else replace(typed, ansi=False))


def _number_of_text(value: Expression) -> Expression:
    """Return a string as double, for arithmetic without ANSI mode."""
    return cast(value, pa.float64(), ansi=False) if pa.types.is_string(value.type) else value


def _decimal_arithmetic(operator: str, left: Expression, right: Expression) -> Expression:
    left, right = _as_decimal(left), _as_decimal(right)
    left_type, right_type = left.type, right.type
    whole = max(left_type.precision - left_type.scale, right_type.precision - right_type.scale)
    if operator in ("+", "-"):
        scale = max(left_type.scale, right_type.scale)
        precision = whole + scale + 1
    elif operator == "*":
        scale = left_type.scale + right_type.scale
        precision = left_type.precision + right_type.precision + 1
    else:
        scale, precision = 0, 39
    if precision > 38:
        raise InvalidInputError(
            f"{operator!r} on {type_name(left_type)} and {type_name(right_type)} "
            "is not supported here",
            hint="cast to double first, as in: CAST(x AS double)",
        )
    return fold(Arithmetic(operator, left, right, pa.decimal128(precision, scale)))


def _as_decimal(value: Expression) -> Expression:
    if pa.types.is_null(value.type):
        return cast(value, pa.decimal128(1, 0))
    return value if pa.types.is_decimal(value.type) else cast(value, decimal_of_integer(value.type))


@dataclass(frozen=True, slots=True)
class _Signature:
    """Types of arguments (None: see ``_typed_argument``) and result (None: the same)."""

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
FUNCTION_NAMES = (*sorted(_SIGNATURES), "array_contains", "coalesce", "concat", "substring")


def call(
    name: str, arguments: Sequence[Expression], time_zone: str = "UTC", ansi: bool = True
) -> Expression:
    """Return a function call, its arguments cast as in Spark."""
    if name == "coalesce":
        return _coalesce(arguments, time_zone, ansi)
    if name == "concat":
        return fold(Call("concat", tuple(text(argument) for argument in arguments), STRING))
    if name == "substring":
        return _substring(arguments)
    if name == "array_contains":
        return _array_contains(arguments, time_zone, ansi)
    signature = _SIGNATURES[name]
    if len(arguments) != len(signature.arguments):
        raise InvalidInputError(
            f"{name} takes {len(signature.arguments)} argument, not {len(arguments)}"
        )
    typed = _typed_argument(name, signature.arguments[0], arguments[0], time_zone, ansi)
    if name in ("abs", "negative") and not ansi and is_integral(typed.type):
        return fold(Call(f"wrapping_{name}", (typed,), typed.type))
    return fold(Call(name, (typed,), signature.result or typed.type, (time_zone,)))


def _typed_argument(
    name: str, wanted: str, value: Expression, time_zone: str, ansi: bool
) -> Expression:
    data_type = value.type
    if wanted == "number":
        if is_numeric(data_type):
            return value
        if pa.types.is_string(data_type) or pa.types.is_null(data_type):
            return cast(value, pa.float64(), time_zone, ansi)
    elif wanted in ("text", "text or bytes"):
        return value if wanted == "text or bytes" and data_type == BINARY else text(value)
    elif wanted == "date":
        return cast(value, pa.date32(), time_zone, ansi)
    elif pa.types.is_timestamp(data_type):
        return value
    else:
        return cast(value, pa.timestamp("us", "UTC"), time_zone, ansi)
    raise InvalidInputError(f"{name} needs a {wanted}, not a value of type {type_name(data_type)}")


def _coalesce(arguments: Sequence[Expression], time_zone: str, ansi: bool) -> Expression:
    if not arguments:
        raise InvalidInputError("coalesce needs an argument")
    kind = wider_type([argument.type for argument in arguments], ansi=ansi)
    if kind is None:
        names = dict.fromkeys(type_name(argument.type) for argument in arguments)
        raise InvalidInputError(f"coalesce does not work on {' and '.join(names)}")
    typed = tuple(cast(argument, kind, time_zone, ansi) for argument in arguments)
    return fold(Call("coalesce", typed, kind))


def _array_contains(arguments: Sequence[Expression], time_zone: str, ansi: bool) -> Expression:
    """Return whether a list has a constant, by the rules of ``=``; unknown for null elements."""
    lists, wanted = arguments if len(arguments) == 2 else (None, None)
    if lists is None or not isinstance(wanted, Literal):
        raise InvalidInputError("array_contains takes an array and a constant")
    if not pa.types.is_list(lists.type):
        raise InvalidInputError(
            f"array_contains needs an array, not a value of type {type_name(lists.type)}"
        )
    element = lists.type.value_type
    if not is_comparable(element) or wider_type([element, wanted.type], ansi=ansi) != element:
        raise InvalidInputError(
            f"array_contains does not look for {type_name(wanted.type)} among {type_name(element)}",
            hint="cast the constant to the type of the elements",
        )
    if wanted.is_null:
        return literal(None, BOOLEAN)
    return Call("array_contains", (lists, cast(wanted, element, time_zone, ansi)), BOOLEAN)


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
    return fold(Call("substring", (text(arguments[0]),), STRING, options))

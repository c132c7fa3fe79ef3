"""Builders of typed conditions: resolve columns, find common types as Spark does, refuse others.

Both parsers (of SQL text and of the JVM plugin's tree) build conditions with these functions, so a
comparison has the same meaning in both.  No I/O.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pyarrow as pa

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import LONG_NAME, SYSTEM_COLUMNS, find_named, name_hint
from pyspark_lance.plain_values import plain_values
from pyspark_lance.predicate.casts import cast_array
from pyspark_lance.predicate.functions import like_pieces, like_regex, required_text, rlike_regex
from pyspark_lance.predicate.time_texts import day_begun_at
from pyspark_lance.predicate.tree import (
    BOOLEAN,
    FALSE,
    TRUE,
    UNKNOWN,
    And,
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
from pyspark_lance.predicate.types import (
    BINARY,
    DATE,
    STRING,
    TIMESTAMP,
    TIMESTAMP_NTZ,
    common_type,
    is_comparable,
    is_integral,
    spark_type_of,
    type_name,
    wider_type,
)
from pyspark_lance.predicate.values import call, cast, fold, literal, text, tight_decimal


def comparison(
    operator: str, left: Expression, right: Expression, time_zone: str = "UTC", ansi: bool = True
) -> Predicate:
    """Return ``left operator right`` for ``= <> < <= > >= <=>``, in the type Spark compares in."""
    decided = _integer_against_decimal(operator, left, right)
    if decided is None and operator in _MIRRORED:
        decided = _integer_against_decimal(_MIRRORED[operator], right, left)
    if decided is not None:
        return decided
    decided = _date_against_timestamp(operator, left, right, time_zone)
    if decided is None:
        swapped = _MIRRORED.get(operator, operator)
        decided = _date_against_timestamp(swapped, right, left, time_zone)
    if decided is not None:
        return decided
    left, right = _to_common(left, right, time_zone, ansi, f"{operator!r}")
    if pa.types.is_null(left.type):
        return TRUE if operator == "<=>" else UNKNOWN
    if operator == "<=>":
        for side, other in ((left, right), (right, left)):
            if isinstance(side, Literal) and side.is_null:
                return is_null(other)
    elif _is_null_literal(left) or _is_null_literal(right):
        return UNKNOWN
    return fold(Comparison(operator, left, right))


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _integer_against_decimal(
    operator: str, value: Expression, bound: Expression
) -> Predicate | None:
    """Return ``integer operator decimal constant`` as a comparison of integers.

    As in Spark, a constant beyond bigint decides the comparison even for NULL.
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


def _date_against_timestamp(
    operator: str, value: Expression, bound: Expression, time_zone: str
) -> Predicate | None:
    """Return ``date operator timestamp constant`` as a comparison of dates, as in Spark.

    Dates reach further than timestamps, so not every date can be cast.
    """
    if (
        isinstance(value, Literal)
        or value.type != DATE
        or not isinstance(bound, Literal)
        or bound.type not in (TIMESTAMP, TIMESTAMP_NTZ)
        or bound.is_null
    ):
        return None
    day, is_midnight = day_begun_at(bound.scalar, time_zone)
    if is_midnight:
        return comparison(operator, value, Literal(day))
    if operator == "<=>":
        return FALSE
    if operator in ("=", "<>"):  # false or true for every date, but NULL
        equal = In(value, pa.array([], DATE), has_null=False)
        return equal if operator == "=" else Not(equal)
    return comparison("<=" if operator in ("<", "<=") else ">", value, Literal(day))


def _is_null_literal(value: Expression) -> bool:
    return isinstance(value, Literal) and value.is_null


def _to_common(
    left: Expression, right: Expression, time_zone: str, ansi: bool, what: str
) -> tuple[Expression, Expression]:
    left, right = tight_decimal(left, right), tight_decimal(right, left)
    data_type = common_type(left.type, right.type, ansi=ansi)
    if data_type is None or not is_comparable(data_type):
        raise InvalidInputError(
            f"{what} does not work on {type_name(left.type)} and {type_name(right.type)}",
            hint="cast one of the two, as in: CAST(x AS string)",
        )
    return cast(left, data_type, time_zone, ansi), cast(right, data_type, time_zone, ansi)


def membership(
    value: Expression,
    items: Sequence[Expression],
    constants: pa.Array | None = None,
    time_zone: str = "UTC",
    ansi: bool = True,
) -> Predicate:
    """Return ``value IN (items…, constants…)``; the items may be expressions."""
    types = [item.type for item in items] + ([] if constants is None else [constants.type])
    kind = wider_type([value.type, *types], ansi=ansi)
    if kind is None:
        others = dict.fromkeys(map(type_name, types))
        raise InvalidInputError(
            f"IN does not work on {type_name(value.type)} and {', '.join(others)}"
        )
    if pa.types.is_null(kind) or _is_null_literal(value):
        return UNKNOWN
    if value.type == DATE and pa.types.is_timestamp(kind) and not isinstance(value, Literal):
        every = [*items, *map(Literal, () if constants is None else constants)]
        return disjunction([comparison("=", value, item, time_zone, ansi) for item in every])
    value = cast(value, kind, time_zone, ansi)
    listed = [item for item in items if isinstance(item, Literal)]
    arrays = [] if constants is None else [cast_array(constants, kind, time_zone)]
    if listed:
        arrays.append(_constants(listed, kind, time_zone))
    terms: list[Predicate] = []
    if arrays:
        values = pa.concat_arrays(arrays)
        known = values.drop_null()
        terms.append(fold(In(value, known, has_null=len(known) < len(values))))
    terms += [
        comparison("=", value, item if ansi else cast(item, kind, time_zone, ansi), time_zone, ansi)
        for item in items
        if not isinstance(item, Literal)
    ]
    return disjunction(terms)


def _constants(items: Sequence[Literal], data_type: pa.DataType, time_zone: str) -> pa.Array:
    """Return the constants as an array of ``data_type``; one cast per type, not per item."""
    by_type: dict[pa.DataType, list[pa.Scalar]] = {}
    for item in items:
        by_type.setdefault(item.type, []).append(item.scalar)
    parts = [
        cast_array(_array_of(own, scalars), data_type, time_zone)
        for own, scalars in by_type.items()
    ]
    return pa.concat_arrays(parts)


def _array_of(data_type: pa.DataType, scalars: Sequence[pa.Scalar]) -> pa.Array:
    """Return scalars of one type as an array with unchanged bits."""
    if pa.types.is_temporal(data_type):  # Python supports years 1 to 9999 only, and no nanoseconds.
        return pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])
    return plain_values([scalar.as_py() for scalar in scalars], data_type)


def is_null(value: Expression) -> Predicate:
    """Return ``value IS NULL``; FALSE for values that are never NULL, as in Spark's optimizer."""
    return FALSE if _is_never_null(value) else fold(IsNull(value))


def _is_never_null(value: Expression) -> bool:
    match value:
        case IsNull() | IsNaN() | Comparison("<=>"):
            return True
        case Not(term):
            return _is_never_null(term)
        case And(terms) | Or(terms):
            return all(_is_never_null(term) for term in terms)
        case _:
            return False


def is_nan(value: Expression, ansi: bool = True) -> Predicate:
    """Return ``isnan(value)``; other numbers and texts become doubles first, as in Spark."""
    if not pa.types.is_floating(value.type):
        value = cast(value, pa.float64(), ansi=ansi)
    return fold(IsNaN(value))


def like(value: Expression, pattern: str, escape: str = "\\") -> Predicate:
    """Return ``value LIKE pattern``, as the cheapest equivalent test."""
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
    longest = max((piece for piece in pieces if piece), key=len, default="")
    return fold(Match("regex", value, like_regex(pieces), longest))


def ilike(value: Expression, pattern: str, escape: str = "\\") -> Predicate:
    """Return ``value ILIKE pattern``: both sides in lower case, which is how Spark defines it."""
    return like(call("lower", [text(value)]), pattern.lower(), escape)


def rlike(value: Expression, pattern: str) -> Predicate:
    """``value RLIKE pattern``."""
    return fold(Match("regex", text(value), rlike_regex(pattern), required_text(pattern)))


def match(kind: str, value: Expression, part: Expression) -> Predicate:
    """Return a test for a constant part, of a kind of ``Match``."""
    if not isinstance(part, Literal):
        name = "contains_tokens" if kind == "tokens" else kind
        raise InvalidInputError(f"{name} needs a constant to look for")
    if value.type == BINARY == part.type:
        if part.is_null:
            return UNKNOWN
        return fold(Match(kind, value, part.value))
    part = text(part)
    if _is_null_literal(part):
        return UNKNOWN
    assert isinstance(part, Literal)
    return fold(Match(kind, text(value), part.value))


def contains_tokens(value: Expression, words: Expression) -> Predicate:
    """Return ``contains_tokens(value, 'words')``, as Lance means it."""
    if value.type == BINARY or words.type == BINARY:
        raise InvalidInputError("contains_tokens looks for words in texts, not in bytes")
    return match("tokens", value, words)


def negation(term: Expression) -> Predicate:
    """``NOT term``."""
    term = condition(term, "NOT")
    return term.term if isinstance(term, Not) else fold(Not(term))


def conjunction(terms: Sequence[Expression]) -> Predicate:
    """Return ``AND`` of all terms; TRUE for none."""
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
    """Return ``OR`` of all terms; FALSE for none.  Equalities on one column become one IN."""
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
    """Rewrite ``a = 1 OR a = 2 OR …`` to ``a IN (1, 2, …)``, which needs one pass over ``a``."""
    equalities: dict[tuple[Column, pa.DataType], list[pa.Scalar]] = {}
    result: list[Expression | tuple[Column, pa.DataType]] = []
    for term in terms:
        match term:
            case Comparison("=", Column() as column, Literal(scalar)):
                key = (column, scalar.type)
                if key not in equalities:
                    result.append(key)
                equalities.setdefault(key, []).append(scalar)
            case _:
                result.append(term)
    return [
        _equal_to_any(item[0], equalities[item]) if isinstance(item, tuple) else item
        for item in result
    ]


def _equal_to_any(column: Column, scalars: list[pa.Scalar]) -> Predicate:
    if len(scalars) == 1:
        return Comparison("=", column, Literal(scalars[0]))
    return In(column, _constants([Literal(scalar) for scalar in scalars], column.type, "UTC"))


def condition(value: Expression, what: str) -> Predicate:
    """Return ``value`` as a condition."""
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


def resolve_column(path: tuple[str, ...], schema: pa.Schema) -> Column:
    """Return the column or struct field that ``path`` names."""
    lineage = [name for name in SYSTEM_COLUMNS if name not in schema.names]
    fields = [*schema, *(pa.field(name, pa.uint64()) for name in lineage)]
    field = _find_field(path[0], fields, "column")
    if field.name in SYSTEM_COLUMNS and pa.types.is_uint64(field.type):
        data_type = pa.int64()
    else:
        data_type = field.type
    names = [field.name]
    for name in path[1:]:
        if not pa.types.is_struct(data_type):
            raise InvalidInputError(
                f"{'.'.join(names)!r} is not a struct, so it has no field {_format_name(name)}",
                hint="write a column name that contains a dot in `backquotes`",
            )
        field = _find_field(name, list(data_type), f"field of {'.'.join(names)}")
        data_type = field.type
        names.append(field.name)
    return Column(tuple(names), spark_type_of(data_type))


def _find_field(name: str, fields: list[pa.Field], what: str) -> pa.Field:
    field = find_named(fields, name)
    if field is not None:
        return field
    hint = name_hint(name, [field.name for field in fields])
    raise InvalidInputError(f"there is no {what} {_format_name(name)}", hint=hint)


def _format_name(name: str) -> str:
    """Return the name in quotes, truncated if very long."""
    return repr(name) if len(name) <= LONG_NAME else f"{name[:LONG_NAME]!r}…"

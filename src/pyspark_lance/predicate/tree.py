"""Nodes of a typed SQL condition: immutable values with a type.

A tree is built by ``builder`` (which finds the common types as Spark does and inserts casts) and
read by evaluation and pruning.  A type is the Arrow form of a Spark type, so an int column compared
with a bigint is inside a cast, and evaluation needs no type rules.  No I/O.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa

from pyspark_lance.plain_values import pack_scalar, plain_scalar, unpack_scalar

BOOLEAN = pa.bool_()


@dataclass(frozen=True, slots=True)
class Column:
    """A column, or a field of a struct column."""

    path: tuple[str, ...]  # Names from the top-level column down, spelled as in the schema.
    # The Spark type of its values; the stored type may be another (uint8, dictionary, …).
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    scalar: pa.Scalar  # The value with its type; may be null.

    def __reduce__(self) -> tuple[Any, ...]:
        return _literal, pack_scalar(self.scalar)

    @property
    def type(self) -> pa.DataType:
        """The type of the constant."""
        return self.scalar.type

    @property
    def is_null(self) -> bool:
        """Return whether the constant is NULL."""
        return not self.scalar.is_valid

    @property
    def value(self) -> Any:
        """The constant as a Python value; dates and times as their integers."""
        scalar = self.scalar
        return scalar.value if isinstance(scalar, _RAW_SCALARS) else scalar.as_py()


_RAW_SCALARS = (pa.Date32Scalar, pa.TimestampScalar, pa.Time64Scalar, pa.DurationScalar)


@dataclass(frozen=True, slots=True)
class Cast:
    """``CAST(value AS type)``.

    ``time_zone``: zone for converting dates and zoneless text to instants. ``ansi``: a value that
    does not fit is an error; otherwise it becomes NULL or wraps around. True for casts that always
    fit.
    """

    value: Expression
    type: pa.DataType
    time_zone: str = "UTC"
    ansi: bool = True


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """``left operator right`` for ``+ - * / % div``; both sides have the type of the operation.

    ``ansi``: overflow and division by zero are errors; otherwise they wrap around and give NULL.
    """

    operator: str
    left: Expression
    right: Expression
    type: pa.DataType
    ansi: bool = True


@dataclass(frozen=True, slots=True)
class Call:
    """A scalar function of ``functions``.

    ``options``: constant arguments (time zone, substring bounds).
    """

    name: str
    arguments: tuple[Expression, ...]
    type: pa.DataType
    options: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Comparison:
    """``left operator right``; both sides have one type."""

    operator: str
    left: Expression
    right: Expression
    type: ClassVar[pa.DataType] = BOOLEAN


@dataclass(frozen=True, slots=True, eq=False)
class In:
    """``value IN (values…)``.

    ``values``: the constants without NULL, of the type of ``value``; ``has_null``: whether NULL is
    in the list, which changes false to unknown.
    """

    value: Expression
    values: pa.Array
    has_null: bool = False
    type: ClassVar[pa.DataType] = BOOLEAN

    def __eq__(self, other: object) -> bool:
        """Compare the expression, and the values in order."""
        if not isinstance(other, In):
            return NotImplemented
        same = self.value == other.value and self.has_null == other.has_null
        return same and bool(self.values.equals(other.values))

    def __hash__(self) -> int:
        """Hash the expression and the number of values, which is cheap."""
        return hash((self.value, len(self.values), self.has_null))


@dataclass(frozen=True, slots=True)
class IsNull:
    """``value IS NULL``; never unknown."""

    value: Expression
    type: ClassVar[pa.DataType] = BOOLEAN


@dataclass(frozen=True, slots=True)
class IsNaN:
    """``isnan(value)``; false for NULL."""

    value: Expression
    type: ClassVar[pa.DataType] = BOOLEAN


@dataclass(frozen=True, slots=True)
class Match:
    """``value LIKE …``, ``RLIKE``, a prefix, suffix or substring test, or a test for words."""

    # ``starts_with``, ``ends_with``, ``contains`` (plain text or bytes), ``regex`` (RE2 syntax) or
    # ``tokens`` (all words of a text).
    kind: str
    value: Expression  # A string (or, for the plain kinds, binary) expression.
    pattern: str | bytes  # The text or the expression to find.
    part: str = ""  # Of ``regex``: a text that every match contains, if known.
    type: ClassVar[pa.DataType] = BOOLEAN


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT term``."""

    term: Expression
    type: ClassVar[pa.DataType] = BOOLEAN


@dataclass(frozen=True, slots=True)
class And:
    """All ``terms`` (two or more), evaluated from left to right."""

    terms: tuple[Expression, ...]
    type: ClassVar[pa.DataType] = BOOLEAN


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction of ``terms`` (two or more), evaluated from left to right."""

    terms: tuple[Expression, ...]
    type: ClassVar[pa.DataType] = BOOLEAN


Expression = (
    Column
    | Literal
    | Cast
    | Arithmetic
    | Call
    | Comparison
    | In
    | IsNull
    | IsNaN
    | Match
    | Not
    | And
    | Or
)
# A predicate is an expression of type boolean; parse_predicate returns no other.
Predicate = Expression


def _literal(data_type: pa.DataType, content: Any) -> Literal:
    return Literal(unpack_scalar(data_type, content))


TRUE = Literal(plain_scalar(True, BOOLEAN))
FALSE = Literal(plain_scalar(False, BOOLEAN))
UNKNOWN = Literal(plain_scalar(None, BOOLEAN))


def children_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the operands of ``expression``, in the order they are written."""
    match expression:
        case And(terms) | Or(terms):
            return terms
        case Call(arguments=arguments):
            return arguments
        case Comparison(left=left, right=right) | Arithmetic(left=left, right=right):
            return (left, right)
        case Cast(value=value) | In(value=value) | Match(value=value):
            return (value,)
        case IsNull(value) | IsNaN(value) | Not(value):
            return (value,)
        case _:
            return ()


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield ``expression`` and all its descendants; without recursion, for any depth."""
    waiting = [expression]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(children_of(node))


def conjuncts(predicate: Predicate) -> tuple[Predicate, ...]:
    """Return the conditions that ``predicate`` joins with AND; itself if it joins none."""
    return predicate.terms if isinstance(predicate, And) else (predicate,)


def all_of(predicates: Sequence[Predicate]) -> Predicate | None:
    """Return the conjunction of ``predicates``; None for none."""
    terms = tuple(term for predicate in predicates for term in conjuncts(predicate))
    return And(terms) if len(terms) > 1 else terms[0] if terms else None


def depth_of(expression: Expression) -> int:
    """Return the number of nodes on the longest path from root to leaf; without recursion."""
    deepest, waiting = 0, [(expression, 1)]
    while waiting:
        node, depth = waiting.pop()
        deepest = max(deepest, depth)
        waiting.extend((child, depth + 1) for child in children_of(node))
    return deepest


def column_paths_of(expression: Expression) -> frozenset[tuple[str, ...]]:
    """Return the path of every column or struct field that ``expression`` reads."""
    return frozenset(node.path for node in walk(expression) if isinstance(node, Column))


def columns_of(expression: Expression) -> frozenset[str]:
    """Return the top-level columns (lineage columns too) that ``expression`` reads."""
    return frozenset(path[0] for path in column_paths_of(expression))


# Neither overflow nor invalid input is possible in these.
_SAFE_FLOAT_OPERATORS = frozenset("+-*")


def can_raise(expression: Expression) -> bool:
    """Return whether ``expression`` may fail on a row: overflow, bad cast, division by zero."""
    return any(_node_can_raise(node) for node in walk(expression))


def _node_can_raise(node: Expression) -> bool:
    match node:
        case Cast(ansi=False) | Arithmetic(ansi=False):
            return False
        case Cast(value=value, type=wanted):
            return not always_fits(value.type, wanted)
        case Arithmetic(operator=operator, type=kind):
            return not (pa.types.is_floating(kind) and operator in _SAFE_FLOAT_OPERATORS)
        case Call(name="abs" | "negative", type=kind):
            return not pa.types.is_floating(kind)
        case _:
            return False


def always_fits(source: pa.DataType, wanted: pa.DataType) -> bool:
    """Return whether a cast of ``source`` to ``wanted`` cannot fail for any value."""
    kinds = pa.types
    if source == wanted or kinds.is_null(source):
        return True
    if kinds.is_floating(wanted):
        return bool(kinds.is_integer(source) or kinds.is_floating(source) or _decimal(source))
    if kinds.is_integer(source) and kinds.is_integer(wanted):
        return bool(source.bit_width <= wanted.bit_width)
    if _decimal(wanted) and _decimal(source):
        whole = wanted.precision - wanted.scale
        return bool(wanted.scale >= source.scale and whole >= source.precision - source.scale)
    if kinds.is_integer(source) and _decimal(wanted):
        return bool(wanted.precision - wanted.scale >= _INTEGER_DIGITS[source.bit_width])
    return bool(kinds.is_string(source) and kinds.is_binary(wanted))


_INTEGER_DIGITS = {8: 3, 16: 5, 32: 10, 64: 19}


def _decimal(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_decimal(data_type))

"""Which fragments and rows a condition can match, from what is known without reading data.

The lineage columns of a fragment are known from its metadata: versions as runs, row ids and
addresses as ranges.  A condition is evaluated on such bounds to the set of answers it may give
(true, false, unknown); everything that is not understood may give any answer.  Pure functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import LanceError
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID, SYSTEM_COLUMNS
from pyspark_lance.predicate.evaluate import evaluate
from pyspark_lance.predicate.tree import (
    And,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
    columns_of,
)

# A set of possible answers as bits, one byte per fragment or row.
_Outcomes = NDArray[np.uint8]
_TRUE, _FALSE, _UNKNOWN, _ANY = 1, 2, 4, 7
_LIMIT = 2**64
# Doubles below it stand for exactly one integer each.
_EXACT_DOUBLES = 2**53

Intervals = Mapping[str, tuple[NDArray[np.uint64], NDArray[np.uint64]]]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known about a lineage column of one fragment.

    Attributes:
        minimum: Smallest value, or something below it.
        maximum: Largest value, or something above it.
        values: Every value that occurs (such as the versions of the runs), if that is known.
    """

    minimum: int
    maximum: int
    values: NDArray[np.uint64] | None = None


def fragments_that_can_match(
    predicate: Predicate, intervals: Intervals, num_fragments: int
) -> NDArray[np.bool_]:
    """For each fragment whether any of its rows can satisfy ``predicate``.

    Args:
        predicate: Any condition.
        intervals: Lineage column -> smallest and largest value per fragment, both of shape
            (num_fragments,); columns that are left out may hold anything.
        num_fragments: How many fragments there are.
    """

    def leaf(node: Expression) -> _Outcomes:
        return _leaf_on_intervals(node, intervals, num_fragments)

    return _may_be_true(_outcomes(predicate, num_fragments, leaf))


def can_match(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """Whether a fragment of these bounds can hold a row that satisfies ``predicate``."""
    return bool(_outcomes_of_one(predicate, bounds) & _TRUE)


def matches_everywhere(predicate: Predicate, bounds: Mapping[str, Bounds]) -> bool:
    """Whether every row of a fragment of these bounds satisfies ``predicate``."""
    return _outcomes_of_one(predicate, bounds) == _TRUE


def rows_that_can_match(predicate: Predicate, known: pa.RecordBatch) -> NDArray[np.bool_]:
    """For each row whether it can satisfy ``predicate``, when only some columns are known.

    With the lineage columns of each row (or of each run of equal versions) in ``known``, this
    tells which rows must be read at all.

    Args:
        predicate: Any condition.
        known: Some of the columns it reads, in their stored types.
    """
    names = frozenset(known.schema.names)

    def leaf(node: Expression) -> _Outcomes:
        if columns_of(node) <= names:
            return _leaf_on_rows(node, known)
        return _constant(_ANY, known.num_rows)

    return _may_be_true(_outcomes(predicate, known.num_rows, leaf))


def row_id_candidates(predicate: Predicate) -> NDArray[np.uint64] | None:
    """The row ids that rows satisfying ``predicate`` must have, ascending; None if any."""
    return _candidates(predicate, ROW_ID)


def row_address_candidates(predicate: Predicate) -> NDArray[np.uint64] | None:
    """The row addresses that rows satisfying ``predicate`` must have, ascending; None if any."""
    return _candidates(predicate, ROW_ADDRESS)


# Sets of answers, combined by three-valued logic.


def _outcomes(
    predicate: Predicate, length: int, leaf: Callable[[Expression], _Outcomes]
) -> _Outcomes:
    match predicate:
        case Not(term):
            return _negated(_outcomes(term, length, leaf))
        case And(terms):
            return _all_of([_outcomes(term, length, leaf) for term in terms])
        case Or(terms):
            negated = [_negated(_outcomes(term, length, leaf)) for term in terms]
            return _negated(_all_of(negated))
        case Literal() as constant:
            value = constant.value
            bit = _UNKNOWN if value is None else _TRUE if value else _FALSE
            return _constant(bit, length)
        case _:
            return leaf(predicate)


def _may_be_true(outcomes: _Outcomes) -> NDArray[np.bool_]:
    possible: NDArray[np.bool_] = (outcomes & _TRUE) != 0
    return possible


def _constant(bits: int, length: int) -> _Outcomes:
    return np.full(length, bits, dtype=np.uint8)


def _negated(outcomes: _Outcomes) -> _Outcomes:
    return (((outcomes & _TRUE) << 1) | ((outcomes & _FALSE) >> 1) | (outcomes & _UNKNOWN)).astype(
        np.uint8
    )


def _all_of(parts: Sequence[_Outcomes]) -> _Outcomes:
    may_be_true = parts[0] & _TRUE
    may_be_false = parts[0] & _FALSE
    some_unknown = parts[0] & _UNKNOWN
    none_must_fail = (parts[0] & (_TRUE | _UNKNOWN)) != 0
    for part in parts[1:]:
        may_be_true &= part
        may_be_false |= part & _FALSE
        some_unknown |= part & _UNKNOWN
        none_must_fail &= (part & (_TRUE | _UNKNOWN)) != 0
    unknown = np.where(none_must_fail, some_unknown, 0)
    return (may_be_true | may_be_false | unknown).astype(np.uint8)


def _bits(
    may_be_true: NDArray[np.bool_], may_be_other: NDArray[np.bool_], other: int = _FALSE
) -> _Outcomes:
    return (np.where(may_be_true, _TRUE, 0) | np.where(may_be_other, other, 0)).astype(np.uint8)


# Leaves: on intervals, on known values, on rows.


def _outcomes_of_one(predicate: Predicate, bounds: Mapping[str, Bounds]) -> int:
    def leaf(node: Expression) -> _Outcomes:
        names = columns_of(node)
        if len(names) == 1:
            (name,) = names
            found = bounds.get(name)
            if found is not None and found.values is not None:
                return _leaf_on_values(node, name, found.values)
        return _leaf_on_intervals(node, intervals, 1)

    intervals = {
        name: (np.array([one.minimum], np.uint64), np.array([one.maximum], np.uint64))
        for name, one in bounds.items()
    }
    return int(_outcomes(predicate, 1, leaf)[0])


def _leaf_on_values(node: Expression, name: str, values: NDArray[np.uint64]) -> _Outcomes:
    rows = pa.record_batch([pa.array(values, pa.uint64())], [name])
    return np.bitwise_or.reduce(_leaf_on_rows(node, rows), keepdims=True)


def _leaf_on_rows(node: Expression, rows: pa.RecordBatch) -> _Outcomes:
    try:
        answers = evaluate(node, rows)
    except LanceError:
        # The error belongs to the read, and only if it meets such a row.
        return _constant(_ANY, rows.num_rows)
    true = np.asarray(answers.fill_null(False))
    unknown = np.asarray(answers.is_null())
    return np.where(unknown, _UNKNOWN, np.where(true, _TRUE, _FALSE)).astype(np.uint8)


def _leaf_on_intervals(node: Expression, intervals: Intervals, length: int) -> _Outcomes:
    found: _Outcomes | None = None
    match node:
        case IsNull(value) if (name := _lineage_column(value)) and name in intervals:
            return _constant(_FALSE, length)
        case Comparison(operator, left, Literal() as bound):
            found = _against_constant(operator, left, bound, intervals)
        case Comparison(operator, Literal() as bound, right):
            found = _against_constant(_MIRRORED.get(operator, operator), right, bound, intervals)
        case Comparison(operator, left, right):
            found = _against_column(operator, left, right, intervals)
        case In(value, values, has_null):
            found = _against_set(value, values, intervals, _UNKNOWN if has_null else _FALSE)
    return _constant(_ANY, length) if found is None else found


_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _lineage_column(value: Expression) -> str | None:
    """The lineage column that ``value`` is, possibly cast to a wider number."""
    while isinstance(value, Cast) and _is_wider(value.value.type, value.type):
        value = value.value
    if isinstance(value, Column) and len(value.path) == 1 and value.path[0] in SYSTEM_COLUMNS:
        return value.path[0]
    return None


def _is_wider(source: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether the cast of a bigint keeps the order of all values."""
    kinds = pa.types
    if not kinds.is_int64(source) and not kinds.is_decimal(source):
        return False
    if kinds.is_decimal(wanted):
        return bool(wanted.precision - wanted.scale >= 19)
    return bool(kinds.is_float64(wanted))


def _exact(bound: Literal) -> Fraction | None:
    """The constant as an exact number that integers can be compared with; None if it is none."""
    value = bound.value
    if isinstance(value, float):
        # From here on, several integers become the same double.
        return Fraction(value) if abs(value) < _EXACT_DOUBLES else None
    return None if value is None else Fraction(value)


def _at_most(values: NDArray[np.uint64], limit: int) -> NDArray[np.bool_]:
    if limit < 0 or limit >= _LIMIT:
        return np.full(len(values), limit >= 0)
    return values <= np.uint64(limit)


def _against_constant(
    operator: str, value: Expression, bound: Literal, intervals: Intervals
) -> _Outcomes | None:
    name = _lineage_column(value)
    exact = _exact(bound) if name in intervals else None
    if name is None or exact is None:
        return None
    low, high = intervals[name]
    match operator:
        case "<=" | ">":
            limit = math.floor(exact)
        case "<" | ">=":
            limit = math.ceil(exact) - 1
        case _:
            return _equal_to(operator, exact, low, high)
    # Now the question is whether the values are at most ``limit``.
    outcomes = _bits(_at_most(low, limit), ~_at_most(high, limit))
    return _negated(outcomes) if operator in (">", ">=") else outcomes


def _equal_to(
    operator: str, exact: Fraction, low: NDArray[np.uint64], high: NDArray[np.uint64]
) -> _Outcomes:
    whole = math.floor(exact)
    if exact != whole:
        outcomes = _constant(_FALSE, len(low))
    else:
        inside = _at_most(low, whole) & ~_at_most(high, whole - 1)
        outcomes = _bits(inside, ~inside | (low != high))
    return _negated(outcomes) if operator == "<>" else outcomes


def _against_column(
    operator: str, left: Expression, right: Expression, intervals: Intervals
) -> _Outcomes | None:
    first, second = _lineage_column(left), _lineage_column(right)
    if first not in intervals or second not in intervals or first is None or second is None:
        return None
    if operator in (">", ">="):
        return _against_column(_MIRRORED[operator], right, left, intervals)
    if pa.types.is_floating(left.type):
        return None
    (low, high), (other_low, other_high) = intervals[first], intervals[second]
    match operator:
        case "<":
            return _bits(low < other_high, high >= other_low)
        case "<=":
            return _bits(low <= other_high, high > other_low)
    meet = (low <= other_high) & (other_low <= high)
    same = (low == high) & (other_low == other_high) & (low == other_low)
    outcomes = _bits(meet, ~same)
    return _negated(outcomes) if operator == "<>" else outcomes


def _whole_numbers(values: pa.Array) -> NDArray[np.uint64] | None:
    """The values that a lineage column can have, ascending, each once; None if not exact."""
    if pa.types.is_int64(values.type):
        numbers = np.asarray(values)
        return np.unique(numbers[numbers >= 0].astype(np.uint64))
    exact = [_exact(Literal(value)) for value in values]
    if any(one is None for one in exact):
        return None
    whole = {int(one) for one in exact if one is not None and one.denominator == 1}
    return np.array(sorted(one for one in whole if 0 <= one < _LIMIT), dtype=np.uint64)


def _against_set(
    value: Expression, values: pa.Array, intervals: Intervals, otherwise: int
) -> _Outcomes | None:
    name = _lineage_column(value)
    numbers = _whole_numbers(values) if name in intervals else None
    if name is None or numbers is None:
        return None
    low, high = intervals[name]
    inside = np.searchsorted(numbers, high, "right") - np.searchsorted(numbers, low, "left")
    # Subtracting first: high - low + 1 could overflow.
    all_of_them = (inside > 0) & ((inside - 1).astype(np.uint64) == high - low)
    return _bits(inside > 0, ~all_of_them, otherwise)


# Values that a conjunct restricts a column to.


def _candidates(predicate: Predicate, column: str) -> NDArray[np.uint64] | None:
    match predicate:
        case Comparison("=" | "<=>", left, Literal() as bound) if _lineage_column(left) == column:
            return _whole_numbers(pa.array([bound.scalar.as_py()], bound.type))
        case Comparison("=" | "<=>", Literal() as bound, right) if _lineage_column(right) == column:
            return _whole_numbers(pa.array([bound.scalar.as_py()], bound.type))
        case In(value, values) if _lineage_column(value) == column:
            return _whole_numbers(values)
        case Literal() as constant:
            return None if constant.value else np.empty(0, np.uint64)
        case And(terms):
            found = [
                one for one in (_candidates(term, column) for term in terms) if one is not None
            ]
            if not found:
                return None
            result = found[0]
            for other in found[1:]:
                result = np.intersect1d(result, other, assume_unique=True)
            return result
        case Or(terms):
            parts = [_candidates(term, column) for term in terms]
            known = [part for part in parts if part is not None]
            return np.unique(np.concatenate(known)) if len(known) == len(parts) else None
        case _:
            return None

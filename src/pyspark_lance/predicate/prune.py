"""Pruning: which parts of a table a condition can match, from bounds of their values.

A part is a fragment, whose lineage is in the manifest, a zone of an index, or a page of a file with
statistics.  A condition is evaluated on bounds to the set of possible results for the rows of a
part (true, false, unknown); unsupported expressions may have any result.  All parts are evaluated
together, as arrays of shape (num_parts,); pure functions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.format.column_names import ROW_ADDRESS, ROW_ID
from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar, single_value
from pyspark_lance.predicate.evaluate import evaluate
from pyspark_lance.predicate.tree import (
    TRUE,
    And,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    IsNull,
    Literal,
    Match,
    Not,
    Or,
    Predicate,
    can_raise,
)

ColumnPath: TypeAlias = tuple[str, ...]

# A set of possible results as bits, one uint8 per part.
_Results: TypeAlias = NDArray[np.uint8]
_TRUE, _FALSE, _UNKNOWN, _ANY = 1, 2, 4, 7

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# From this magnitude on, several integers convert to the same double.
_EXACT_INTEGERS: Final = {16: 2**11, 32: 2**24, 64: 2**53}
_INT64: Final = np.iinfo(np.int64)
# Above this number of constants that are neither integers nor texts, only the range is used.
_MAX_CONSTANTS: Final = 64


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a column's values in each part, in the column's stored type."""

    minimum: pa.Array  # Lower bound; null where unknown.
    maximum: pa.Array  # Upper bound; null where unknown.
    nullable: bool | NDArray[np.bool_] = True  # Whether nulls are possible, overall or per part.
    # Whether all values are null, overall or per part.
    all_null: bool | NDArray[np.bool_] = False

    @classmethod
    def of_lineage(cls, low: NDArray[np.uint64], high: NDArray[np.uint64]) -> Bounds:
        """Return bounds of a lineage column, which Spark sees as bigint; shapes (num_parts,)."""

        def as_bigint(values: NDArray[np.uint64]) -> pa.Array:
            too_large = values > np.uint64(_INT64.max)
            return plain_array(values.astype(np.int64), too_large)

        return cls(as_bigint(low), as_bigint(high), nullable=False)

    def take(self, positions: NDArray[np.int64]) -> Bounds:
        """Return the bounds of some parts; those of a negative position are unknown."""
        unknown = positions < 0
        indices = plain_array(positions, unknown)

        nullable, all_null = (
            np.broadcast_to(flags, len(self.minimum))[positions]
            for flags in (self.nullable, self.all_null)
        )
        return Bounds(
            self.minimum.take(indices),
            self.maximum.take(indices),
            nullable | unknown,
            all_null & ~unknown,
        )


def parts_that_can_match(
    predicate: Predicate, bounds: Mapping[ColumnPath, Bounds], num_parts: int
) -> NDArray[np.bool_]:
    """Return for each part whether any of its rows can satisfy ``predicate``.

    ``predicate``: any condition. ``bounds``: known bounds of columns and fields of structs; others
    may have any value.
    """
    answers = _Parts(bounds, num_parts).answers(predicate)
    possible: NDArray[np.bool_] = (answers & _TRUE) != 0
    return possible


def parts_that_must_match(
    predicate: Predicate, bounds: Mapping[ColumnPath, Bounds], num_parts: int
) -> NDArray[np.bool_]:
    """Return for each part whether all of its rows satisfy ``predicate``."""
    certain: NDArray[np.bool_] = _Parts(bounds, num_parts).answers(predicate) == _TRUE
    return certain


def row_id_candidates(predicate: Predicate) -> NDArray[np.uint64] | None:
    """Return the row ids of rows that may satisfy ``predicate``, ascending; None if any."""
    return _candidates(predicate, ROW_ID)


def row_address_candidates(predicate: Predicate) -> NDArray[np.uint64] | None:
    """Return the row addresses of rows that may satisfy ``predicate``, ascending; None if any."""
    return _candidates(predicate, ROW_ADDRESS)


class _Parts:
    """Evaluation of conditions on the bounds of all parts."""

    def __init__(self, bounds: Mapping[ColumnPath, Bounds], num_parts: int) -> None:
        self._bounds, self._num_parts = bounds, num_parts

    def answers(self, predicate: Predicate) -> _Results:
        """Return the possible results for the rows of each part."""
        answers: _Results | None = None
        match predicate:
            case Not(term):
                answers = _negate(self.answers(term))
            case And(terms):
                answers = _all_of([self.answers(term) for term in terms])
            case Or(terms):
                answers = _negate(_all_of([_negate(self.answers(term)) for term in terms]))
            case Literal() as constant:
                answers = self._always(_result_of(constant))
            case IsNull(value):
                answers = self._is_null(value)
            case Comparison(operator, left, right):
                answers = self._compare(operator, left, right)
            case In(value, values, has_null):
                answers = self._among(value, values, has_null)
            case Match("starts_with", value, prefix):
                answers = self._begins_with(value, prefix)
        return self._always(_ANY) if answers is None else answers

    def _always(self, answers: int) -> _Results:
        return np.full(self._num_parts, answers, dtype=np.uint8)

    def _is_null(self, value: Expression) -> _Results | None:
        bounds = self._bounds_of(value)
        if bounds is None:
            return None
        is_null = np.broadcast_to(bounds.nullable, self._num_parts)
        is_value = np.broadcast_to(np.logical_not(bounds.all_null), self._num_parts)
        return _bits(is_null, is_value, nullable=False)

    def _compare(self, operator: str, left: Expression, right: Expression) -> _Results | None:
        """Return the results of ``left operator right``; None if nothing is known about a side."""
        if operator in (">", ">="):
            return self._compare(_MIRRORED[operator], right, left)
        sides = _Sides.of(left, right, self._bounds)
        if sides is None or (operator == "<=>" and sides.may_both_be_null):
            return None
        if operator in ("<", "<="):
            # The smallest against the largest, and vice versa.
            may_be_true = sides.test(operator, "minimum", "maximum", unknown=True)
            is_true = sides.test(operator, "maximum", "minimum", unknown=False)
        else:
            may_be_true = sides.test("<=", "minimum", "maximum", unknown=True)
            may_be_true &= sides.test(">=", "maximum", "minimum", unknown=True)
            is_true = sides.test(">=", "minimum", "maximum", unknown=False)
            is_true &= sides.test("<=", "maximum", "minimum", unknown=False)
        answers = _bits(may_be_true, ~is_true, sides.nullable, sides.all_null)
        if operator == "<=>":
            return _false_for_unknown(answers)
        return _negate(answers) if operator == "<>" else answers

    def _among(self, value: Expression, values: pa.Array, has_null: bool) -> _Results | None:
        bounds = self._bounds_of(value)
        if bounds is None:
            return None
        numbers = numbers_among(bounds.minimum.type, values)
        if numbers is not None:
            answers = _among_integers(bounds, numbers)
        elif len(values) <= _MAX_CONSTANTS:
            answers = self._among_values(value, values)
        elif values.type == bounds.minimum.type and values.type in (pa.string(), pa.binary()):
            answers = _among_texts(bounds, values)
        else:
            ends = pc.min_max(values)
            above = self._compare(">=", value, Literal(ends["min"]))
            below = self._compare("<=", value, Literal(ends["max"]))
            if above is None or below is None:
                return None
            # The range may have gaps.
            answers = _all_of([above, below]) | np.uint8(_FALSE)
        return _unknown_for_false(answers) if has_null else answers

    def _begins_with(self, value: Expression, prefix: str | bytes) -> _Results | None:
        bounds = self._bounds_of(value)
        if bounds is None or bounds.minimum.type not in (pa.string(), pa.binary()):
            return None
        start = prefix.encode() if isinstance(prefix, str) else prefix
        smallest, largest = (end.cast(pa.binary()) for end in (bounds.minimum, bounds.maximum))
        may_be_true = pc.greater_equal(largest, single_value(start, pa.binary())[0])
        after = _next_after(start)
        if after is not None:
            is_before = pc.less(smallest, single_value(after, pa.binary())[0])
            may_be_true = pc.and_kleene(may_be_true, is_before)
        may_be_false = np.ones(self._num_parts, dtype=np.bool_)
        # If a bound is unknown, so is the result.
        may_be_true = may_be_true.fill_null(TRUE.scalar)
        return _bits(plain_numbers(may_be_true), may_be_false, bounds.nullable, bounds.all_null)

    def _among_values(self, value: Expression, values: pa.Array) -> _Results:
        unequal = [self._always(_TRUE)]
        for constant in values:
            equal = self._compare("=", value, Literal(constant))
            unequal.append(self._always(_ANY) if equal is None else _negate(equal))
        return _negate(_all_of(unequal))

    def _bounds_of(self, value: Expression) -> Bounds | None:
        column = ordered_column(value)
        return None if column is None else self._bounds.get(column.path)


@dataclass(frozen=True, slots=True)
class _Sides:
    """The two sides of a comparison, each a constant or a column with known bounds."""

    left: Expression
    right: Expression
    # Paths of the columns of both; None for a constant.
    columns: tuple[ColumnPath | None, ColumnPath | None]
    bounds: tuple[Bounds | None, Bounds | None]  # Of the columns of both; None for a constant.

    @classmethod
    def of(
        cls, left: Expression, right: Expression, bounds: Mapping[ColumnPath, Bounds]
    ) -> _Sides | None:
        """Return None if nothing is known about a side, or both read one column."""
        paths: list[ColumnPath | None] = []
        for side in (left, right):
            column = ordered_column(side)
            is_constant = isinstance(side, Literal) and not side.is_null
            if not is_constant and (column is None or column.path not in bounds):
                return None
            paths.append(None if column is None else column.path)
        left_path, right_path = paths
        if left_path is not None and right_path is not None and left_path[0] == right_path[0]:
            return None
        of_both = tuple(None if path is None else bounds[path] for path in paths)
        return cls(left, right, (left_path, right_path), (of_both[0], of_both[1]))

    @property
    def nullable(self) -> bool | NDArray[np.bool_]:
        """Return whether a side may be null."""
        known = [bounds.nullable for bounds in self.bounds if bounds is not None]
        return np.logical_or.reduce(np.broadcast_arrays(*known)) if known else False

    @property
    def all_null(self) -> bool | NDArray[np.bool_]:
        """Return whether all values of a side are null."""
        known = [bounds.all_null for bounds in self.bounds if bounds is not None]
        return np.logical_or.reduce(np.broadcast_arrays(*known)) if known else False

    @property
    def may_both_be_null(self) -> bool:
        """Return whether the sides may be null together."""
        return all(bounds is not None and np.any(bounds.nullable) for bounds in self.bounds)

    def test(
        self, operator: str, left_end: str, right_end: str, *, unknown: bool
    ) -> NDArray[np.bool_]:
        """Compare one end of each side; ``unknown`` where an end is unknown."""
        names, ends = [], []
        for path, bounds, end in zip(self.columns, self.bounds, (left_end, right_end), strict=True):
            if path is not None and bounds is not None:
                names.append(path[0])
                ends.append(nest_at_path(path, getattr(bounds, end)))
        rows = pa.record_batch(ends, names)
        holds = evaluate(Comparison(operator, self.left, self.right), rows)
        return plain_numbers(pc.fill_null(holds, plain_scalar(unknown, pa.bool_())))


def nest_at_path(path: ColumnPath, values: pa.Array) -> pa.Array:
    """Return a top-level column that contains only the values at ``path``."""
    for name in reversed(path[1:]):
        values = pa.StructArray.from_arrays([values], [name])
    return values


def ordered_column(value: Expression) -> Column | None:
    """Return the column of ``value``, possibly inside casts that preserve the order of values."""
    while isinstance(value, Cast) and _keeps_order(value):
        value = value.value
    return value if isinstance(value, Column) else None


def _keeps_order(cast: Cast) -> bool:
    # Numbers that do not fit wrap around without ANSI mode.
    if not cast.ansi or can_raise(replace(cast, value=Literal(pa.scalar(None, cast.value.type)))):
        return False
    return all(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        for kind in (cast.value.type, cast.type)
    )


# Sets of results, combined by three-valued logic.


def _result_of(constant: Literal) -> int:
    value = constant.value
    return _UNKNOWN if value is None else _TRUE if value else _FALSE


def _negate(answers: _Results) -> _Results:
    return (((answers & _TRUE) << 1) | ((answers & _FALSE) >> 1) | (answers & _UNKNOWN)).astype(
        np.uint8
    )


def _all_of(parts: Sequence[_Results]) -> _Results:
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
    may_be_true: NDArray[np.bool_],
    may_be_false: NDArray[np.bool_],
    nullable: bool | NDArray[np.bool_],
    all_null: bool | NDArray[np.bool_] = False,
) -> _Results:
    bits = np.where(may_be_true, _TRUE, 0) | np.where(may_be_false, _FALSE, 0)
    bits = np.where(all_null, 0, bits)
    return (bits | np.where(nullable, _UNKNOWN, 0)).astype(np.uint8)


def _false_for_unknown(answers: _Results) -> _Results:
    """Return results for a comparison with a list in which null equals any value."""
    is_false = np.where(answers & (_FALSE | _UNKNOWN), _FALSE, 0).astype(np.uint8)
    return (answers & np.uint8(_TRUE)) | is_false


def _unknown_for_false(answers: _Results) -> _Results:
    """Return results for a list with NULL, in which a missing value may equal that NULL."""
    unknown = np.where(answers & _FALSE, _UNKNOWN, 0).astype(np.uint8)
    return (answers & np.uint8(_TRUE | _UNKNOWN)) | unknown


# Lists of integers.


def _among_integers(bounds: Bounds, numbers: NDArray[np.int64]) -> _Results:
    """Return the results of a test whether values are among ``numbers``, which ascend."""
    low = _as_numbers(bounds.minimum, _INT64.min)
    high = _as_numbers(bounds.maximum, _INT64.max)
    inside = np.searchsorted(numbers, high, "right") - np.searchsorted(numbers, low, "left")
    # Modulo 2**64 the difference of the ends is correct even if int64 overflows.
    width = high.view(np.uint64) - low.view(np.uint64)
    every_value = (inside > 0) & ((inside - 1).astype(np.uint64) == width)
    return _bits(inside > 0, ~every_value, bounds.nullable, bounds.all_null)


def _among_texts(bounds: Bounds, values: pa.Array) -> _Results:
    """Return the results for texts among ``values``; any other text may be between two of them."""
    num_parts = len(bounds.minimum)
    # In a sorted list of all, the position of an end is the number of smaller values; a stable
    # sort puts a minimum before, and a maximum after an equal value.
    together = pa.concat_arrays([bounds.minimum, values, bounds.maximum])
    order = np.asarray(pc.sort_indices(together))
    is_value = (order >= num_parts) & (order < num_parts + len(values))
    before = np.empty(len(order), np.int64)
    before[order] = np.cumsum(is_value)
    low = np.where(bounds.minimum.is_valid(), before[:num_parts], 0)
    high = np.where(bounds.maximum.is_valid(), before[-num_parts:], len(values))
    may_be_false = np.ones(num_parts, dtype=np.bool_)
    return _bits(high > low, may_be_false, bounds.nullable, bounds.all_null)


def _as_numbers(ends: pa.Array, otherwise: int) -> NDArray[np.int64]:
    numbers = as_integers(ends).fill_null(plain_scalar(int(otherwise), pa.int64()))
    known: NDArray[np.int64] = plain_numbers(numbers)
    return known


def numbers_among(column: pa.DataType, values: pa.Array) -> NDArray[np.int64] | None:
    """Return the constants as integers in the range of the column, ascending; None if not exact."""
    if pa.types.is_signed_integer(column):
        return _whole_numbers(values)
    if values.type == column and (pa.types.is_date32(column) or pa.types.is_timestamp(column)):
        return np.unique(plain_numbers(as_integers(values)))
    return None


def as_integers(values: pa.Array) -> pa.Array:
    """Return integers, days and instants as integers of 64 bits."""
    if pa.types.is_date32(values.type):
        values = values.view(pa.int32())
    return values.cast(pa.int64())


def _whole_numbers(values: pa.Array) -> NDArray[np.int64] | None:
    """Return the constants that an integer can equal, ascending, unique; None if not exact."""
    if pa.types.is_signed_integer(values.type):
        return np.unique(plain_numbers(values.cast(pa.int64())))
    exact = [_exact(Literal(value)) for value in values]
    if any(number is None for number in exact):
        return None
    whole = {int(number) for number in exact if number is not None and number.denominator == 1}
    fitting = sorted(number for number in whole if _INT64.min <= number <= _INT64.max)
    return np.array(fitting, dtype=np.int64)


def _next_after(prefix: bytes) -> bytes | None:
    """Return the smallest bytes greater than all with ``prefix``; None if there are none."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else None


def _exact(constant: Literal) -> Fraction | None:
    """Return the constant as an exact number to compare with integers; None if it is none."""
    value = constant.value
    if isinstance(value, float):
        limit = _EXACT_INTEGERS[constant.type.bit_width]
        return Fraction(value) if abs(value) < limit else None
    return None if value is None else Fraction(value)


# Values that a conjunct restricts a column to.


def _candidates(predicate: Predicate, column: str) -> NDArray[np.uint64] | None:
    match predicate:
        case Comparison("=" | "<=>", left, Literal() as bound) if _is_column(left, column):
            return _row_numbers(pa.repeat(bound.scalar, 1))
        case Comparison("=" | "<=>", Literal() as bound, right) if _is_column(right, column):
            return _row_numbers(pa.repeat(bound.scalar, 1))
        case In(value, values) if _is_column(value, column):
            return _row_numbers(values)
        case Literal() as constant:
            return None if constant.value else np.empty(0, np.uint64)
        case And(terms):
            parts = [_candidates(term, column) for term in terms]
            known = [part for part in parts if part is not None]
            return _in_all(known) if known else None
        case Or(terms):
            parts = [_candidates(term, column) for term in terms]
            known = [part for part in parts if part is not None]
            return np.unique(np.concatenate(known)) if len(known) == len(parts) else None
        case _:
            return None


def _is_column(value: Expression, name: str) -> bool:
    column = ordered_column(value)
    return column is not None and column.path == (name,)


def _row_numbers(values: pa.Array) -> NDArray[np.uint64] | None:
    """Return the row ids or addresses among ``values``, ascending; None if not exact."""
    numbers = _whole_numbers(values)
    return None if numbers is None else numbers[numbers >= 0].astype(np.uint64)


def _in_all(sets: Sequence[NDArray[np.uint64]]) -> NDArray[np.uint64]:
    common = sets[0]
    for other in sets[1:]:
        common = np.intersect1d(common, other, assume_unique=True)
    return common

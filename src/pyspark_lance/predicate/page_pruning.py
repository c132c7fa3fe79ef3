"""Which pages a condition can match, from the smallest and largest value of each.

Only 0.1 files know such bounds. A condition is followed down to comparisons of a column with a
constant, which are evaluated on the bounds; everything else may be true or false. Pure: no I/O.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.predicate.evaluate import evaluate
from pyspark_lance.predicate.tree import (
    And,
    Cast,
    Column,
    Comparison,
    Expression,
    In,
    Literal,
    Not,
    Or,
    Predicate,
    can_raise,
)

ColumnPath: TypeAlias = tuple[str, ...]
# For each page: whether the condition may be true of a row, and whether it may be false.
_Answers: TypeAlias = tuple[NDArray[np.bool_], NDArray[np.bool_]]

_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
# With more constants only their range is looked at.
_MOST_CONSTANTS: Final = 64


@dataclass(frozen=True, slots=True)
class PageBounds:
    """Bounds of one column's values in each page, in the column's stored type.

    Attributes:
        minimum: Nothing is smaller; null where that is not known.
        maximum: Nothing is larger; null where that is not known.
    """

    minimum: pa.Array
    maximum: pa.Array


def pages_that_can_match(
    predicate: Predicate, bounds: Mapping[ColumnPath, PageBounds], num_pages: int
) -> NDArray[np.bool_]:
    """For each page whether a row of it can satisfy ``predicate``.

    Args:
        predicate: Any condition.
        bounds: What is known, for columns and fields of structs; others may hold anything.
        num_pages: How many pages there are.
    """
    return _Pages(bounds, num_pages).answers(predicate)[0]


class _Pages:
    def __init__(self, bounds: Mapping[ColumnPath, PageBounds], num_pages: int) -> None:
        self._bounds, self._num_pages = bounds, num_pages

    def answers(self, predicate: Predicate) -> _Answers:
        match predicate:
            case Not(term):
                true, false = self.answers(term)
                return false, true
            case And(terms):
                parts = [self.answers(term) for term in terms]
                may_be_true = np.logical_and.reduce([true for true, _ in parts])
                return may_be_true, np.logical_or.reduce([false for _, false in parts])
            case Or(terms):
                parts = [self.answers(term) for term in terms]
                may_be_true = np.logical_or.reduce([true for true, _ in parts])
                return may_be_true, np.logical_and.reduce([false for _, false in parts])
            case Comparison(operator, left, Literal() as constant):
                return self._compared(operator, left, constant)
            case Comparison(operator, Literal() as constant, right):
                return self._compared(_MIRRORED.get(operator, operator), right, constant)
            case In(value, values):
                return self._among(value, values)
            case _:
                return self._anything()

    def _anything(self) -> _Answers:
        return np.ones(self._num_pages, np.bool_), np.ones(self._num_pages, np.bool_)

    def _compared(self, operator: str, value: Expression, constant: Literal) -> _Answers:
        column = _ordered_column(value)
        if column is None or column.path not in self._bounds or constant.is_null:
            return self._anything()
        bounds = self._bounds[column.path]

        def holds(operator: str, of: pa.Array, otherwise: bool) -> NDArray[np.bool_]:
            """The comparison on a bound; ``otherwise`` where there is none."""
            rows = _batch_of(column.path, of)
            matches = evaluate(Comparison(operator, value, constant), rows)
            found = pc.if_else(of.is_null(), otherwise, pc.fill_null(matches, otherwise))
            return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)

        match operator:
            case "<" | "<=":
                return holds(operator, bounds.minimum, True), ~holds(
                    operator, bounds.maximum, False
                )
            case ">" | ">=":
                return holds(operator, bounds.maximum, True), ~holds(
                    operator, bounds.minimum, False
                )
        meets = holds("<=", bounds.minimum, True) & holds(">=", bounds.maximum, True)
        anything = np.ones(self._num_pages, np.bool_)
        return (anything, meets) if operator == "<>" else (meets, anything)

    def _among(self, value: Expression, values: pa.Array) -> _Answers:
        if not len(values):
            return self._anything()
        if len(values) <= _MOST_CONSTANTS:
            found = [self._compared("=", value, Literal(one))[0] for one in values]
            return np.logical_or.reduce(found), self._anything()[1]
        ends = pc.min_max(values)
        above = self._compared(">=", value, Literal(ends["min"]))[0]
        below = self._compared("<=", value, Literal(ends["max"]))[0]
        return above & below, self._anything()[1]


def _ordered_column(value: Expression) -> Column | None:
    """The column that ``value`` is, possibly cast in a way that keeps the order of values."""
    while isinstance(value, Cast) and _keeps_order(value):
        value = value.value
    return value if isinstance(value, Column) else None


def _keeps_order(cast: Cast) -> bool:
    if can_raise(replace(cast, value=Literal(pa.scalar(None, cast.value.type)))):
        return False
    return all(
        pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)
        for kind in (cast.value.type, cast.type)
    )


def _batch_of(path: ColumnPath, values: pa.Array) -> pa.RecordBatch:
    """Rows in which only the column at ``path`` is there."""
    for name in reversed(path[1:]):
        values = pa.StructArray.from_arrays([values], [name])
    return pa.record_batch([values], [path[0]])

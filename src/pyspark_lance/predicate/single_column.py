"""Conditions that read one column: where in a condition they are, and their answers on values.

An index knows the values of one column.  What it says of a whole condition is put together from
the parts that read nothing else: the rows that a part leaves are all for which it may be true.
Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.predicate.evaluate import evaluate
from pyspark_lance.predicate.prune import ColumnPath, at_path, ordered_column
from pyspark_lance.predicate.tree import (
    FALSE,
    And,
    Call,
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
    column_paths_of,
)

Rows = TypeVar("Rows")
Ask: TypeAlias = Callable[[ColumnPath, Predicate], Rows | None]
"""The rows for which a condition on one column may be true; None if that is not known."""
Combine: TypeAlias = Callable[[Rows, Rows], Rows]


def rows_that_may_match(
    predicate: Predicate, ask: Ask[Rows], both: Combine[Rows], either: Combine[Rows]
) -> Rows | None:
    """The rows for which ``predicate`` may be true, from those for which its parts may be.

    ``predicate``: any condition. Returns None if nothing is known.
    """
    if isinstance(predicate, Not):
        pushed = _pushed_down(predicate.term)
        if pushed is not None:
            return rows_that_may_match(pushed, ask, both, either)
    path = _only_column(predicate)
    if path is not None:
        answer = ask(path, predicate)
        if answer is not None:
            return answer
    match predicate:
        case And(terms):
            return _of_all([*_by_column(terms, And)], ask, both, either)
        case Or(terms):
            return _of_any([*_by_column(terms, Or)], ask, both, either)
    return None


def matching_values(predicate: Predicate, path: ColumnPath, values: pa.Array) -> NDArray[np.bool_]:
    """For which values of the one column that ``predicate`` reads it is true."""
    if not len(values):
        return np.zeros(0, np.bool_)
    answers = evaluate(predicate, pa.record_batch([at_path(path, values)], [path[0]]))
    mask: NDArray[np.bool_] = plain_numbers(answers.fill_null(FALSE.scalar))
    return mask


def only_values(predicate: Predicate, path: ColumnPath) -> list[pa.Array] | None:
    """The values that the one column must equal for ``predicate`` to be true; None if any may be.

    Each array has a type in which the condition compares: the column's own, or a wider one.
    """
    match predicate:
        case Comparison("=" | "<=>", left, Literal(scalar)) if _is_column(left, path):
            return [pa.repeat(scalar, 1)]
        case Comparison("=" | "<=>", Literal(scalar), right) if _is_column(right, path):
            return [pa.repeat(scalar, 1)]
        case In(value, values) if _is_column(value, path):
            return [values]
        case And(terms):
            known = (only_values(term, path) for term in terms)
            return next((values for values in known if values is not None), None)
        case Or(terms):
            parts = [only_values(term, path) for term in terms]
            if any(part is None for part in parts):
                return None
            return [values for part in parts if part is not None for values in part]
        case _:
            return None


def is_only_of_null(predicate: Predicate, path: ColumnPath) -> bool:
    """Return whether ``predicate`` asks for nothing but nulls of the column."""
    return isinstance(predicate, IsNull) and _is_column(predicate.value, path)


def element_wanted(predicate: Predicate, path: ColumnPath) -> pa.Scalar | None:
    """The element that the lists of a column must have for ``predicate`` to be true, if one."""
    match predicate:
        case Call("array_contains", (Column(own), Literal(scalar))) if own == path:
            return scalar
        case _:
            return None


def texts_wanted(predicate: Predicate, path: ColumnPath) -> tuple[str, ...]:
    """Texts that the strings of a column must have for ``predicate`` to be true; empty if none."""
    match predicate:
        case Match("contains" | "starts_with" | "ends_with", Column(own), str(part)) if own == path:
            return (part,)
        case Match("regex", Column(own), part=part) if own == path and part:
            return (part,)
        case Comparison("=" | "<=>", Column(own), Literal() as whole) if own == path:
            return (whole.value,) if isinstance(whole.value, str) else ()
        case And(terms):
            return tuple(text for term in terms for text in texts_wanted(term, path))
        case _:
            return ()


def _is_column(value: Expression, path: ColumnPath) -> bool:
    column = ordered_column(value)
    return column is not None and column.path == path


def is_true_of_null(predicate: Predicate, path: ColumnPath, data_type: pa.DataType) -> bool:
    """Return whether ``predicate`` is true where the one column that it reads is null."""
    return bool(matching_values(predicate, path, pa.nulls(1, data_type))[0])


def _of_all(
    terms: Sequence[Predicate], ask: Ask[Rows], both: Combine[Rows], either: Combine[Rows]
) -> Rows | None:
    known: Rows | None = None
    for term in terms:
        rows = rows_that_may_match(term, ask, both, either)
        if rows is not None:
            known = rows if known is None else both(known, rows)
    return known


def _of_any(
    terms: Sequence[Predicate], ask: Ask[Rows], both: Combine[Rows], either: Combine[Rows]
) -> Rows | None:
    known: Rows | None = None
    for term in terms:
        rows = rows_that_may_match(term, ask, both, either)
        if rows is None:
            return None
        known = rows if known is None else either(known, rows)
    return known


def _pushed_down(term: Predicate) -> Predicate | None:
    """``NOT term`` with the NOT further down; None if it cannot go there."""
    match term:
        case Not(inner):
            return inner
        case And(terms):
            return Or(tuple(Not(inner) for inner in terms))
        case Or(terms):
            return And(tuple(Not(inner) for inner in terms))
        case _:
            return None


def _only_column(predicate: Predicate) -> ColumnPath | None:
    """The one column that a condition reads, if it cannot fail on a value."""
    paths = column_paths_of(predicate)
    return next(iter(paths)) if len(paths) == 1 and not can_raise(predicate) else None


def _by_column(terms: Sequence[Predicate], join: type[And] | type[Or]) -> list[Predicate]:
    """The terms, those of one column joined; each by itself if there is one column only."""
    groups: dict[ColumnPath, list[Predicate]] = {}
    others: list[Predicate] = []
    for term in terms:
        path = _only_column(term)
        if path is None:
            others.append(term)
        else:
            groups.setdefault(path, []).append(term)
    if len(groups) <= 1 and not others:
        return list(terms)
    joined = [join(tuple(group)) if len(group) > 1 else group[0] for group in groups.values()]
    return [*joined, *others]

"""Terms of a condition that read a single column, and their results on values.

An index has the values of one column.  Its result for a whole condition is combined from the terms
that read no other column: the matching rows are those for which the terms may be true.  Pure
functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.plain_values import plain_numbers
from pyspark_lance.predicate.evaluate import evaluate
from pyspark_lance.predicate.functions import words_of
from pyspark_lance.predicate.prune import ColumnPath, nest_at_path, ordered_column
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
"""The rows for which a condition on one column may be true; None if unknown."""
Combine: TypeAlias = Callable[[Rows, Rows], Rows]


def rows_that_may_match(
    predicate: Predicate, ask: Ask[Rows], both: Combine[Rows], either: Combine[Rows]
) -> Rows | None:
    """Return the rows for which ``predicate`` may be true, from those of its terms.

    ``predicate``: any condition. Returns None if nothing is known.
    """
    if isinstance(predicate, Not):
        pushed = _push_down_not(predicate.term)
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
    """Return for which values of the only column that ``predicate`` reads it is true."""
    if not len(values):
        return np.zeros(0, np.bool_)
    answers = evaluate(predicate, pa.record_batch([nest_at_path(path, values)], [path[0]]))
    mask: NDArray[np.bool_] = plain_numbers(answers.fill_null(FALSE.scalar))
    return mask


def only_values(predicate: Predicate, path: ColumnPath) -> list[pa.Array] | None:
    """Return the only values of the column that satisfy ``predicate``; None if unknown.

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


def matches_only_null(predicate: Predicate, path: ColumnPath) -> bool:
    """Return whether ``predicate`` matches only nulls of the column."""
    return isinstance(predicate, IsNull) and _is_column(predicate.value, path)


def required_element(predicate: Predicate, path: ColumnPath) -> pa.Scalar | None:
    """Return the element that lists of a column must have for ``predicate``, if any."""
    match predicate:
        case Call("array_contains", (Column(own), Literal(scalar))) if own == path:
            return scalar
        case _:
            return None


def required_texts(predicate: Predicate, path: ColumnPath) -> tuple[str, ...]:
    """Return texts that the strings of a column must contain for ``predicate``; empty if none."""
    match predicate:
        case Match("contains" | "starts_with" | "ends_with", Column(own), str(part)) if own == path:
            return (part,)
        case Match("regex", Column(own), part=part) if own == path and part:
            return (part,)
        case Match("tokens", Column(own), str(words)) if own == path:
            return tuple(words_of(words))
        case Comparison("=" | "<=>", Column(own), Literal() as whole) if own == path:
            return (whole.value,) if isinstance(whole.value, str) else ()
        case And(terms):
            return tuple(text for term in terms for text in required_texts(term, path))
        case _:
            return ()


def required_words(predicate: Predicate, path: ColumnPath) -> tuple[str, ...]:
    """Return words that the texts of a column must have for ``predicate``; empty if none."""
    match predicate:
        case Match("tokens", Column(own), str(words)) if own == path:
            return tuple(words_of(words))
        case And(terms):
            return tuple(word for term in terms for word in required_words(term, path))
        case _:
            return ()


def _is_column(value: Expression, path: ColumnPath) -> bool:
    column = ordered_column(value)
    return column is not None and column.path == path


def is_true_for_null(predicate: Predicate, path: ColumnPath, data_type: pa.DataType) -> bool:
    """Return whether ``predicate`` is true where the only column that it reads is null."""
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


def _push_down_not(term: Predicate) -> Predicate | None:
    """Return ``NOT term`` with the NOT pushed down; None if it cannot be."""
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
    """Return the only column that a condition reads, if it cannot fail on a value."""
    paths = column_paths_of(predicate)
    return next(iter(paths)) if len(paths) == 1 and not can_raise(predicate) else None


def _by_column(terms: Sequence[Predicate], join: type[And] | type[Or]) -> list[Predicate]:
    """Combine the terms of each column; return them unchanged if there is only one column."""
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

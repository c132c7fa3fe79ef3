"""Evaluation of a condition on an Arrow batch, with the results of Spark.

Three-valued logic; NaN equals NaN and is greater than everything; -0.0 equals 0.0; text and bytes
compare bytewise.  A term that may fail (overflow, bad cast, division by zero) is evaluated only on
the rows that still need it, so ``x <> 0 AND 1 / x > 2`` never divides by zero.  Vectorized; no I/O.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.logical_type import to_plain
from pyspark_lance.plain_values import plain_array, plain_numbers, plain_scalar
from pyspark_lance.predicate.casts import cast_array, cast_or_null
from pyspark_lance.predicate.functions import FUNCTIONS, contains, contains_words, is_in, matches
from pyspark_lance.predicate.tree import (
    FALSE,
    TRUE,
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
    can_raise,
    columns_of,
    conjuncts,
    walk,
)

# Costs of the nodes of a condition; a comparison of numbers costs three.
_COSTS: dict[type[Expression], int] = {Match: 32, Call: 16, Cast: 16}
_COST_OF_COPY = 4  # Of a column, for the remaining rows.
# Below this share of remaining rows, they are copied for the next terms.
_FEW = 1 / 4

# An array of one value per row, or a scalar for all rows.
_Values: TypeAlias = pa.Array | pa.Scalar


def evaluate(predicate: Predicate, batch: pa.RecordBatch) -> pa.BooleanArray:
    """Return for each row of ``batch`` whether ``predicate`` is true, false or (null) unknown.

    Args:
        predicate: As returned by ``parse_predicate``.
        batch: Has at least the columns ``columns_of(predicate)``, in their stored types; lineage
            columns as uint64.

    Raises:
        InvalidInputError: Spark would fail on a row as well: overflow, division by zero, a text
        that
            is not a number.
    """
    return evaluate_expression(predicate, batch)


def evaluate_expression(expression: Expression, batch: pa.RecordBatch) -> pa.Array:
    """Return the value of ``expression`` for each row, of type ``expression.type``."""
    if batch.num_rows == 0:
        return pa.nulls(0, expression.type)
    return _as_array(_evaluate(expression, _Rows(batch)), batch.num_rows)


def matching(predicate: Predicate, batch: pa.RecordBatch) -> NDArray[np.bool_]:
    """Return for each row of ``batch`` whether ``predicate`` is true; shape (rows,).

    As ``evaluate``, with false for null.  Terms of a conjunction are evaluated on the remaining
    rows, cheapest first, unless one of them may fail.
    """
    terms = conjuncts(predicate)
    if len(terms) == 1 or not batch.num_rows or any(map(can_raise, terms)):
        return _as_mask(evaluate(predicate, batch))
    rows = _Rows(batch)
    mask = indices = None
    waiting = sorted(((rows.cost(term), term) for term in terms), key=itemgetter(0))
    while waiting:
        _, term = waiting.pop(0)
        found = _mask(term, rows)
        mask = found if mask is None else mask & found
        count = np.count_nonzero(mask)
        if not count:
            return np.zeros(batch.num_rows, np.bool_)
        if waiting and count < _FEW * len(rows):
            names = frozenset().union(*(columns_of(other) for _, other in waiting))
            if sum(cost for cost, _ in waiting) < _COST_OF_COPY * len(names):
                continue
            chosen = np.flatnonzero(mask)
            indices = chosen if indices is None else indices[chosen]
            rows, mask = rows.where(plain_array(mask), names), None
    assert mask is not None
    if indices is None:
        return mask
    result = np.zeros(batch.num_rows, np.bool_)
    result[indices[mask]] = True
    return result


def _mask(predicate: Predicate, rows: _Rows) -> NDArray[np.bool_]:
    column = rows.only_dictionary(predicate)
    if column is None:
        return _as_mask(_as_array(_evaluate(predicate, rows), len(rows)))
    answers, indices = _evaluate_distinct_items(predicate, *column)
    mask: NDArray[np.bool_] = _as_mask(answers)[plain_numbers(indices)]
    return mask


def _as_mask(matches: pa.BooleanArray) -> NDArray[np.bool_]:
    """Return a mask in which NULL does not match."""
    if matches.null_count:
        matches = pc.fill_null(matches, FALSE.scalar)
    mask: NDArray[np.bool_] = plain_numbers(matches)
    return mask


class _Rows:
    """Rows under evaluation; converts each column to its Spark type once."""

    def __init__(self, batch: pa.RecordBatch) -> None:
        self.batch = batch
        self._converted: dict[tuple[str, ...], pa.Array] = {}
        self._dictionaries = {
            field.name: batch.column(index)
            for index, field in enumerate(batch.schema)
            if pa.types.is_dictionary(field.type)
        }

    def __len__(self) -> int:
        return int(self.batch.num_rows)

    def column(self, column: Column) -> pa.Array:
        values = self._converted.get(column.path)
        if values is None:
            values = _as_spark(_stored_column(self.batch, column.path), column)
            self._converted[column.path] = values
        return values

    def only_dictionary(self, expression: Expression) -> tuple[str, pa.DictionaryArray] | None:
        """Return the only column read by ``expression``, if it has fewer items than rows."""
        names = columns_of(expression) if self._dictionaries else frozenset()
        if len(names) != 1:
            return None
        (name,) = names
        values = self._dictionaries.get(name)
        return None if values is None or len(values.dictionary) >= len(self) else (name, values)

    def cost(self, expression: Expression) -> int:
        """Return the approximate relative cost of ``expression``."""
        if self.only_dictionary(expression) is not None:
            return 0
        return sum(_COSTS.get(type(node), 1) for node in walk(expression))

    def where(self, mask: pa.BooleanArray, names: frozenset[str]) -> _Rows:
        """Return the rows where ``mask`` is true, with only the columns ``names``."""
        kept = [name for name in self.batch.schema.names if name in names]
        if not kept:
            # No column to filter: the number of rows is sufficient.
            count = pc.sum(mask).as_py() or 0
            return _Rows(pa.record_batch([pa.nulls(count)], ["rows"]))
        return _Rows(self.batch.select(kept).filter(mask))


def _stored_column(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    index = batch.schema.get_field_index(path[0])
    if index < 0:
        raise InvalidInputError(f"the rows have no column {path[0]!r}")
    values = batch.column(index)
    for name in path[1:]:
        # Unlike StructArray.field, this propagates the nulls of the struct.
        values = pc.struct_field(values, name)
    return values


def _as_spark(stored: pa.Array, column: Column) -> pa.Array:
    """Return the stored values in the Spark type of ``column``."""
    source, wanted = stored.type, column.type
    if source == wanted:
        return stored
    if pa.types.is_dictionary(source):
        return _as_spark(stored.dictionary_decode(), column)
    if pa.types.is_uint64(source) and pa.types.is_int64(wanted):
        return stored.view(wanted)
    return to_plain(stored, wanted, ".".join(column.path))


def _evaluate(expression: Expression, rows: _Rows) -> _Values:
    column = rows.only_dictionary(expression)
    # The expression may fail on an item that no row has.
    if column is not None and not isinstance(expression, Column) and not can_raise(expression):
        return _evaluate_items(expression, *column)
    return _RULES[type(expression)](expression, rows)


def _evaluate_items(expression: Expression, name: str, values: pa.DictionaryArray) -> pa.Array:
    """Evaluate ``expression`` on dictionary items, which are fewer than rows, and on null."""
    answers, indices = _evaluate_distinct_items(expression, name, values)
    return answers.take(indices)


def _evaluate_distinct_items(
    expression: Expression, name: str, values: pa.DictionaryArray
) -> tuple[pa.Array, pa.Array]:
    """Return the result for each item and for null, and the item of each row."""
    items = pa.concat_arrays([values.dictionary, pa.nulls(1, values.type.value_type)])
    batch = pa.record_batch([items], [name])
    answers = _as_array(_evaluate(expression, _Rows(batch)), len(items))
    indices = values.indices
    if indices.null_count:
        indices = indices.cast(pa.int64()).fill_null(len(items) - 1)
    return answers, indices


def _evaluate_where(expression: Expression, rows: _Rows, mask: pa.Array) -> _Values:
    """Evaluate ``expression`` where ``mask`` is true (never null); null on other rows."""
    if pc.all(mask).as_py():
        return _evaluate(expression, rows)
    if not pc.any(mask).as_py():
        return plain_scalar(None, expression.type)
    kept = rows.where(mask, columns_of(expression))
    some = _as_array(_evaluate(expression, kept), len(kept))
    chosen = plain_numbers(mask)
    indices = np.cumsum(chosen, dtype=np.int64) - 1
    return some.take(plain_array(indices, ~chosen))


def _as_array(values: _Values, length: int) -> pa.Array:
    return pa.repeat(values, length) if isinstance(values, pa.Scalar) else values


def _on_arrays(values: _Values) -> pa.Array:
    return _as_array(values, 1)


def _like(result: pa.Array, source: _Values) -> _Values:
    """Return ``result`` as a scalar if it was computed from one."""
    return result[0] if isinstance(source, pa.Scalar) else result


def _has_null(values: _Values) -> bool:
    return not values.is_valid if isinstance(values, pa.Scalar) else values.null_count > 0


def _operands(first: Expression, second: Expression, rows: _Rows) -> tuple[_Values, _Values]:
    """Return both values; as in Spark, ``second`` is not evaluated where ``first`` is null."""
    left = _evaluate(first, rows)
    if _has_null(left) and can_raise(second):
        valid = pc.is_valid(_as_array(left, len(rows)))
        return left, _evaluate_where(second, rows, valid)
    return left, _evaluate(second, rows)


def _comparison(node: Comparison, rows: _Rows) -> _Values:
    if node.operator == "<=>":
        left, right = _evaluate(node.left, rows), _evaluate(node.right, rows)
        return _null_safe_equal(left, right)
    left, right = _operands(node.left, node.right, rows)
    return compare(node.operator, left, right)


def compare(operator: str, left: _Values, right: _Values) -> _Values:
    """Return ``left operator right`` for ``= <> < <= > >=``; both of one type."""
    if operator == "<>":
        return pc.invert(compare("=", left, right))
    if operator in (">", ">="):
        return compare("<" if operator == ">" else "<=", right, left)
    result = _PLAIN_COMPARISONS[operator](left, right)
    if not pa.types.is_floating(left.type):
        return result
    # NaN is equal to itself and greater than everything else.
    left_nan, right_nan = _nan(left), _nan(right)
    if operator == "=":
        extra = _both(left_nan, right_nan)
    elif operator == "<":
        extra = _both(pc.invert(left_nan) if left_nan is not None else TRUE.scalar, right_nan)
    else:
        extra = right_nan
    return result if extra is None else pc.or_(result, extra)


_PLAIN_COMPARISONS: dict[str, Callable[[_Values, _Values], _Values]] = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
}


def _nan(values: _Values) -> _Values | None:
    """Return where ``values`` are NaN; None if nowhere."""
    is_nan = pc.is_nan(values)
    if isinstance(is_nan, pa.Scalar):
        return is_nan if is_nan.as_py() else None
    return is_nan if is_nan.true_count else None


def _both(left: _Values | None, right: _Values | None) -> _Values | None:
    return None if left is None or right is None else pc.and_(left, right)


def _null_safe_equal(left: _Values, right: _Values) -> _Values:
    equal = pc.coalesce(compare("=", left, right), FALSE.scalar)
    return pc.or_(equal, pc.and_(pc.is_null(left), pc.is_null(right)))


def _in(node: In, rows: _Rows) -> _Values:
    values = _evaluate(node.value, rows)
    wanted = node.values
    if pa.types.is_floating(wanted.type):
        # The set distinguishes -0.0 from 0.0; adding zero normalizes them.
        zero = pa.scalar(0, wanted.type)
        values, wanted = pc.add(values, zero), pc.add(wanted, zero)
    found = is_in(_on_arrays(values), wanted)
    if pa.types.is_floating(wanted.type) and _nan(wanted) is not None:
        # It also distinguishes NaN from -NaN, the result of -x.
        found = pc.or_(found, pc.is_nan(_on_arrays(values)).fill_null(False))
    known = pc.is_valid(_on_arrays(values))
    if node.has_null:
        known = pc.and_(known, found)
    return _like(pc.if_else(known, found, plain_scalar(None, pa.bool_())), values)


def _is_null(node: IsNull, rows: _Rows) -> _Values:
    return pc.is_null(_evaluate(node.value, rows))


def _is_nan(node: IsNaN, rows: _Rows) -> _Values:
    return pc.coalesce(pc.is_nan(_evaluate(node.value, rows)), FALSE.scalar)


_MATCHES: dict[str, Callable[[_Values, Match], _Values]] = {
    "starts_with": lambda values, node: pc.starts_with(values, pattern=node.pattern),
    "ends_with": lambda values, node: pc.ends_with(values, pattern=node.pattern),
    "contains": lambda values, node: contains(values, node.pattern),
    "tokens": lambda values, node: contains_words(values, str(node.pattern)),
    "regex": lambda values, node: matches(values, str(node.pattern), node.part),
}


def _match(node: Match, rows: _Rows) -> _Values:
    return _MATCHES[node.kind](_evaluate(node.value, rows), node)


def _not(node: Not, rows: _Rows) -> _Values:
    return pc.invert(_evaluate(node.term, rows))


def _and(node: And, rows: _Rows) -> _Values:
    return _connect(node.terms, rows, combine=pc.and_kleene, decided=False)


def _or(node: Or, rows: _Rows) -> _Values:
    return _connect(node.terms, rows, combine=pc.or_kleene, decided=True)


def _connect(
    terms: tuple[Expression, ...],
    rows: _Rows,
    *,
    combine: Callable[[_Values, _Values], _Values],
    decided: bool,
) -> _Values:
    """Fold ``terms`` from left to right; a result ``decided`` ends the evaluation."""
    result = _evaluate(terms[0], rows)
    for term in terms[1:]:
        if can_raise(term):
            deciding = (TRUE if decided else FALSE).scalar
            undecided = pc.not_equal(_as_array(result, len(rows)), deciding)
            other = _evaluate_where(term, rows, undecided.fill_null(True))
        elif _all_are(result, decided):
            return result
        else:
            other = _evaluate(term, rows)
        result = combine(result, other)
    return result


def _all_are(values: _Values, wanted: bool) -> bool:
    if isinstance(values, pa.Scalar):
        return values.as_py() is wanted
    if values.null_count:
        return False
    return bool(values.true_count == (len(values) if wanted else 0))


def _cast(node: Cast, rows: _Rows) -> _Values:
    values = _evaluate(node.value, rows)
    cast = cast_array if node.ansi else cast_or_null
    return _like(cast(_on_arrays(values), node.type, node.time_zone), values)


_CHECKED = {"+": pc.add_checked, "-": pc.subtract_checked, "*": pc.multiply_checked}
_WRAPPING = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}


def _arithmetic(node: Arithmetic, rows: _Rows) -> _Values:
    if node.operator in _CHECKED:
        left, right = _operands(node.left, node.right, rows)
        is_checked = node.ansi and not pa.types.is_floating(node.type)
        kernels = _CHECKED if is_checked else _WRAPPING
        try:
            return kernels[node.operator](left, right).cast(node.type)
        except pa.ArrowInvalid as error:
            raise _overflow(node) from error
    # Spark evaluates the divisor first: NULL / 0 is NULL and no error.
    right, left = _operands(node.right, node.left, rows)
    dividend, divisor = _as_array(left, len(rows)), _as_array(right, len(rows))
    both = pc.and_(pc.is_valid(dividend), pc.is_valid(divisor))
    zero = pc.equal(divisor, plain_scalar(0, divisor.type))
    if not node.ansi:
        both = pc.and_not(both, zero.fill_null(True))
    elif pc.any(pc.and_(both, zero)).as_py():
        raise InvalidInputError(
            f"division by zero in {node.operator!r}",
            hint="exclude zero first, as in: x <> 0 AND y / x > 1",
        )
    return _divide(node, dividend, pc.if_else(both, divisor, plain_scalar(None, divisor.type)))


def _divide(node: Arithmetic, dividend: pa.Array, divisor: pa.Array) -> pa.Array:
    """Return the quotient or remainder; ``divisor`` is never zero."""
    if node.operator == "/":
        return pc.divide(dividend, divisor)
    if node.operator == "div" and not node.ansi:
        # The least integer divided by -1 wraps around; Arrow returns 0.
        by_minus_one = pc.equal(divisor, plain_scalar(-1, divisor.type))
        return pc.if_else(by_minus_one, pc.negate(dividend), pc.divide(dividend, divisor))
    if node.operator == "div":
        try:
            return pc.divide_checked(dividend.cast(pa.int64()), divisor.cast(pa.int64()))
        except pa.ArrowInvalid as error:
            raise _overflow(node) from error
    ones = plain_numbers(divisor.fill_null(plain_scalar(1, divisor.type)))
    zeros = plain_numbers(dividend.fill_null(plain_scalar(0, dividend.type)))
    unknown = plain_numbers(pc.or_(dividend.is_null(), divisor.is_null()))
    with np.errstate(invalid="ignore"):
        return plain_array(np.fmod(zeros, ones), unknown)


def _overflow(node: Arithmetic) -> InvalidInputError:
    return InvalidInputError(
        f"the result of {node.operator!r} does not fit {node.type}",
        hint="cast an operand to a wider type first, for example bigint or double",
    )


def _call(node: Call, rows: _Rows) -> _Values:
    if node.name == "coalesce":
        return _coalesce(node, rows)
    if node.name == "array_contains":
        return _array_contains(node, rows)
    arguments: list[_Values] = []
    valid: pa.Array | None = None
    for argument in node.arguments:
        if valid is not None and can_raise(argument):
            arguments.append(_evaluate_where(argument, rows, valid))
        else:
            arguments.append(_evaluate(argument, rows))
        if _has_null(arguments[-1]):
            known = pc.is_valid(_as_array(arguments[-1], len(rows)))
            valid = known if valid is None else pc.and_(valid, known)
    if all(isinstance(argument, pa.Scalar) for argument in arguments):
        result = FUNCTIONS[node.name](node, [_on_arrays(argument) for argument in arguments])
        return result if isinstance(result, pa.Scalar) else result[0]
    whole = [_as_array(argument, len(rows)) for argument in arguments]
    return FUNCTIONS[node.name](node, whole)


def _coalesce(node: Call, rows: _Rows) -> _Values:
    result = _as_array(_evaluate(node.arguments[0], rows), len(rows))
    for argument in node.arguments[1:]:
        missing = result.is_null()
        result = pc.coalesce(result, _evaluate_where(argument, rows, missing))
    return result


def _array_contains(node: Call, rows: _Rows) -> _Values:
    lists = _as_array(_evaluate(node.arguments[0], rows), len(rows))
    wanted = _evaluate(node.arguments[1], rows)
    lengths = plain_numbers(pc.list_value_length(lists).fill_null(0))
    indices = np.repeat(np.arange(len(lists)), lengths)
    equal = compare("=", lists.flatten(), wanted)
    has_it, is_unknown = (np.zeros(len(lists), np.bool_) for _ in range(2))
    is_unknown[indices[plain_numbers(equal.is_null())]] = True
    has_it[indices[plain_numbers(equal.fill_null(False))]] = True
    is_unknown |= plain_numbers(lists.is_null())
    return plain_array(has_it, is_unknown & ~has_it)


_RULES: dict[type, Callable[..., _Values]] = {
    Column: lambda node, rows: rows.column(node),
    Literal: lambda node, _: node.scalar,
    Cast: _cast,
    Arithmetic: _arithmetic,
    Call: _call,
    Comparison: _comparison,
    In: _in,
    IsNull: _is_null,
    IsNaN: _is_nan,
    Match: _match,
    Not: _not,
    And: _and,
    Or: _or,
}

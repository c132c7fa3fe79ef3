"""Vector columns and query vectors as matrices, and the distances that Lance defines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import find_named
from pyspark_lance.format.field import Field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_dtype, plain_numbers
from pyspark_lance.predicate.types import type_name


class Metric(StrEnum):
    """The metric of ``_distance``; less is nearer."""

    L2 = "l2"
    """The sum of squared differences."""
    COSINE = "cosine"
    """1 - x·q / (‖x‖ ‖q‖)."""
    DOT = "dot"
    """1 - x·q."""

    @classmethod
    def parse(cls, name: str) -> Metric:
        """Parse the name of a metric, ignoring case."""
        word = str(name).strip().lower()
        try:
            return cls(_OTHER_NAMES.get(word, word))
        except ValueError:
            raise InvalidInputError(
                f"{name!r} is not a vector metric", hint=f"the metrics are {', '.join(cls)}"
            ) from None


_OTHER_NAMES = {"euclidean": "l2"}


_KINDS = (pa.float16(), pa.float32(), pa.float64())
_Floats = NDArray[np.floating[Any]]


EXACT_NUMBERS: Final = (1 << 24) // (255 * 255 * 2)
"""Sums of so many products of two bytes are exact in single precision."""
# Numbers that are converted at once: a partition of 4,000 vectors of 128 numbers.
_CONVERTED_NUMBERS: Final = 1 << 19


@dataclass(frozen=True, slots=True)
class Queries:
    """Query vectors."""

    vectors: _Floats  # Shape (m, d), of the type of the column.
    # The number of each query, shape (m,); queries without neighbours are omitted.
    numbers: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.vectors)

    def part(self, first: int, last: int) -> Queries:
        """Return a range of the queries."""
        return Queries(self.vectors[first:last], self.numbers[first:last])


def is_vector(field: Field) -> bool:
    """Return whether a column holds vectors: lists of one length of floats."""
    kind = field.to_arrow().type
    return pa.types.is_fixed_size_list(kind) and kind.value_type in _KINDS


def vector_column(schema: LanceSchema, name: str | None) -> Field:
    """Return the vector column to search.

    ``name``: case-insensitive; None for the only vector column.
    """
    known = [field for field in schema.fields if is_vector(field)]
    shown = f"columns of vectors: {', '.join(field.name for field in known) or 'none'}"
    if name is not None:
        field = find_named(schema.fields, name)
        if field is None:
            raise InvalidInputError(f"there is no column {name!r}", hint=shown)
        if not is_vector(field):
            raise InvalidInputError(
                f"the column {name!r} ({type_name(field.to_arrow().type)}) holds no "
                "vectors, which are arrays of one length of half floats, float or double",
                hint=shown,
            )
        return field
    if len(known) == 1:
        return known[0]
    if known:
        raise InvalidInputError("the table has several columns of vectors: say which", hint=shown)
    raise InvalidInputError(
        "the table has no column of vectors, which are lists of one length of floats",
        hint="write one with the option <column>.fixed_size_list",
    )


def width_of(column: Field) -> int:
    """Return the dimension of a vector column."""
    return int(column.to_arrow().type.list_size)


def dtype_of(column: Field) -> np.dtype[Any]:
    """Return the numpy type of a vector column."""
    return plain_dtype(column.to_arrow().type.value_type)


def matrix_of(column: pa.Array) -> tuple[_Floats, NDArray[np.bool_] | None]:
    """Convert an array of fixed-size lists to a matrix and a mask of valid rows.

    Returns:
        Shape (n, d), zero-copy; shape (n,), None if all have. A vector with a null number is none.
    """
    width = column.type.list_size
    items = column.values.slice(column.offset * width, len(column) * width)
    vectors = _numbers(items).reshape(-1, width)
    if not column.null_count and not items.null_count:
        return vectors, None
    has_numbers = _valid(items).reshape(-1, width).all(axis=1)
    return vectors, _valid(column) & has_numbers


def check_one_length(vectors: Sequence[Any], width: int) -> None:
    """Reject queries whose length differs from the vectors of the column."""
    if len(vectors) != width:
        raise InvalidInputError(
            f"a query has length {len(vectors)}, but the column's vectors have length {width}"
        )


def parse_queries(given: object, column: Field, metric: Metric) -> tuple[Queries, bool]:
    """Convert numbers of a caller to queries.

    The second result is whether it is a single vector.
    """
    try:
        numbers = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidInputError(
            "the queries are not vectors",
            hint="give one vector, several of one length, or a DataFrame with a column of them",
        ) from None
    if numbers.ndim not in (1, 2) or not numbers.size:
        raise InvalidInputError(
            f"the queries have the shape {numbers.shape}",
            hint="give one vector, several of one length, or a DataFrame with a column of them",
        )
    is_one = numbers.ndim == 1
    numbers = np.atleast_2d(numbers)
    check_one_length(numbers[0], width_of(column))
    queries = comparable(numbers, None, column, metric)
    if len(queries) < len(numbers):
        missing = int(np.setdiff1d(np.arange(len(numbers)), queries.numbers)[0])
        flaw = "has no direction, or holds NaN" if metric is Metric.COSINE else "holds NaN"
        raise InvalidInputError(
            f"query {missing} {flaw}, so that nothing is near to it by {metric}",
            hint="leave it out",
        )
    return queries, is_one


def queries_in(array: pa.Array, column: Field, metric: Metric) -> Queries:
    """Convert a column of lists to queries; drop those that cannot have neighbours.

    ``array``: lists, of any type.
    """
    width = width_of(column)
    if pa.types.is_fixed_size_list(array.type):
        array = array.cast(pa.list_(array.type.value_type))
    is_valid = _valid(array)
    lengths = np.diff(plain_numbers(array.offsets))
    wrong = np.flatnonzero(is_valid & (lengths != width))
    if len(wrong):
        check_one_length(range(int(lengths[wrong[0]])), width)
    at = np.flatnonzero(is_valid)
    items = array.filter(array.is_valid()).flatten()
    numbers = _numbers(items.cast(pa.float64())).reshape(-1, width)
    complete = _valid(items).reshape(-1, width).all(axis=1)
    return comparable(numbers[complete], at[complete], column, metric)


def comparable(
    numbers: _Floats, names: NDArray[np.integer] | None, column: Field, metric: Metric
) -> Queries:
    """Return the vectors that can have neighbours, converted to the column type as in Lance.

    ``numbers``: shape (m, d). ``names``: query numbers; None for 0, 1, ….
    """
    with np.errstate(over="ignore"):
        vectors = numbers.astype(dtype_of(column))
    sound = ~np.isnan(vectors).any(axis=1)
    if metric is Metric.COSINE:
        sound &= np.isfinite(vectors).all(axis=1) & vectors.any(axis=1)
    names = np.arange(len(vectors)) if names is None else names
    return Queries(vectors[sound], names[sound].astype(np.int64))


def row_products(rows: NDArray[Any], query: _Floats) -> _Floats:
    """Return the product of each row with a query, computed in the type of the query.

    Threads of BLAS would cost more than they save, as a row is used once. ``rows``: numbers of any
    type, shape (n, d).
    """
    if rows.dtype == query.dtype:
        return _dot_rows(rows, query)
    products: _Floats = np.empty(len(rows), query.dtype)
    step = max(1, _CONVERTED_NUMBERS // max(1, len(query)))
    for first in range(0, len(rows), step):
        part = slice(first, first + step)
        products[part] = _dot_rows(rows[part].astype(query.dtype), query)
    return products


def _dot_rows(rows: _Floats, query: _Floats) -> _Floats:
    found: _Floats
    if hasattr(np, "vecdot"):  # numpy 2, a fifth faster
        found = np.vecdot(rows, query)
    else:
        found = np.einsum("ij,j->i", rows, query)
    return found


def row_squares(rows: NDArray[Any], work: type[np.floating[Any]]) -> _Floats:
    """Return the square of the length of each row; shape (n,)."""
    squares: _Floats = np.empty(len(rows), work)
    step = max(1, _CONVERTED_NUMBERS // max(1, rows.shape[1]))
    for first in range(0, len(rows), step):
        part = rows[first : first + step].astype(work, copy=False)
        np.einsum("ij,ij->i", part, part, out=squares[first : first + step])
    return squares


def level_squares(rows: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the exact square of the length of each row of bytes; shape (n,)."""
    squares = np.zeros(len(rows))
    for first in range(0, rows.shape[1], EXACT_NUMBERS):
        squares += row_squares(rows[:, first : first + EXACT_NUMBERS], np.float32)
    return squares


def is_usual(squares: Any, metric: Metric, work: type[np.floating[Any]]) -> Any:
    """Return for which squared lengths products have a bounded error in a type."""
    largest = 1e300 if work is np.float64 else 1e30
    usual = squares <= largest
    return usual & (squares >= 1 / largest) if metric is Metric.COSINE else usual


def _numbers(items: pa.Array) -> _Floats:
    """Return the numbers of an array, ignoring its nulls."""
    dtype = plain_dtype(items.type)
    content = items.buffers()[1]
    if content is None:
        return np.zeros(len(items), dtype)
    return np.frombuffer(content, dtype, count=items.offset + len(items))[items.offset :]


def _valid(array: pa.Array) -> NDArray[np.bool_]:
    if not array.null_count:
        return np.ones(len(array), np.bool_)
    return plain_numbers(array.is_valid())

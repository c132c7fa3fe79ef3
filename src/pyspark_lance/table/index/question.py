"""Question: a condition on one column, as segments of indices are asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from pyspark_lance.predicate.conditions import (
    Bounds,
    Predicate,
    parts_that_can_match,
    parts_that_must_match,
)
from pyspark_lance.predicate.prune import ColumnPath, numbers_among
from pyspark_lance.predicate.single_column import matching_values, only_values


@dataclass(frozen=True, slots=True)
class Question:
    """Which rows can satisfy a condition."""

    path: ColumnPath  # The only column that the condition reads.
    predicate: Predicate  # The condition; it cannot fail on any value.

    def matches(self, values: pa.Array) -> NDArray[np.bool_]:
        """For which values of the column the condition is true."""
        return matching_values(self.predicate, self.path, values)

    def numbers(self, data_type: pa.DataType) -> NDArray[np.int64] | None:
        """Of a column that is stored as integers, the only values that can satisfy the condition.

        ``data_type``: in which conditions see the column. Gives them ascending, each once; None
        if others can, or if the type has no such values.
        """
        wanted = only_values(self.predicate, self.path)
        if wanted is None:
            return None
        parts = [numbers_among(data_type, values.drop_null()) for values in wanted]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        return np.unique(np.concatenate([np.empty(0, np.int64), *known]))

    def can_match(self, bounds: Bounds) -> NDArray[np.bool_]:
        """In which parts of an index values can be for which it is true."""
        return parts_that_can_match(self.predicate, {self.path: bounds}, len(bounds.minimum))

    def must_match(self, bounds: Bounds) -> NDArray[np.bool_]:
        """In which parts of an index it is true for all values."""
        return parts_that_must_match(self.predicate, {self.path: bounds}, len(bounds.minimum))


@dataclass(frozen=True, slots=True)
class Limits:
    """What an answer may cost."""

    most_rows: int  # Rows that are worth reading or naming.
    most_searched: int = 0  # Rows that are worth searching for single numbers.

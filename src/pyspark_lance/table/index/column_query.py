"""ColumnQuery: a predicate on one column for index lookups."""

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
class ColumnQuery:
    """A predicate on one column."""

    path: ColumnPath  # The only column of the predicate.
    predicate: Predicate  # It cannot raise an error for any value.

    def matches(self, values: pa.Array) -> NDArray[np.bool_]:
        """Return for which values the predicate is true."""
        return matching_values(self.predicate, self.path, values)

    def numbers(self, data_type: pa.DataType) -> NDArray[np.int64] | None:
        """Return the only stored integers that can match, for integer-encoded columns.

        ``data_type``: of predicates. The result is ascending and distinct; None if other values can
        match, or for other types.
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
        """Return which parts of an index may have matching values."""
        return parts_that_can_match(self.predicate, {self.path: bounds}, len(bounds.minimum))

    def must_match(self, bounds: Bounds) -> NDArray[np.bool_]:
        """Return which parts of an index have only matching values."""
        return parts_that_must_match(self.predicate, {self.path: bounds}, len(bounds.minimum))


@dataclass(frozen=True, slots=True)
class Limits:
    """Cost limits of a lookup."""

    most_rows: int  # Maximum rows to read or return.
    most_searched: int = 0  # Maximum rows to search for single numbers.

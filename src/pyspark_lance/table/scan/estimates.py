"""Estimate column statistics and selectivity for query optimizers.

Estimates never answer queries. Bitmap indices and zone maps have priority, since they are up to
date; ANALYZE statistics give the number of distinct values, and everything else for columns without
an index. Zone maps that do not cover all rows are ignored, since a partial range misleads more than
none.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pyspark_lance.predicate.json import literal_scalar
from pyspark_lance.predicate.tree import (
    And,
    Column,
    Comparison,
    In,
    IsNull,
    Literal,
    Not,
    Or,
    Predicate,
)
from pyspark_lance.predicate.types import spark_type_of
from pyspark_lance.table.scan.index_only_aggregates import ValueCounts, value_counts
from pyspark_lance.table.scan.scan_statistics import (
    StoredStatistics,
    is_exact,
    stored_statistics,
    zone_statistics,
)
from pyspark_lance.table.version.snapshot import Snapshot

_RANGES = ("<", "<=", ">", ">=")
_TINY = 1e-12
_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True, slots=True)
class ColumnEstimate:
    """Estimated statistics of a column."""

    minimum: pa.Scalar  # Lower bound; null if unknown.
    maximum: pa.Scalar  # Upper bound; null if unknown.
    num_values: int  # Rows that are not null, of ``num_rows``.
    num_rows: int
    # From bitmap indices, ANALYZE or, without these, the width of the bounds.
    num_distinct: int
    average_bytes: int | None = None  # Of strings and binary values, if analyzed.
    most_bytes: int | None = None

    @property
    def share_of_values(self) -> float:
        """Fraction of rows that are not null."""
        return self.num_values / max(1, self.num_rows)

    @property
    def ends(self) -> tuple[float, float] | None:
        """The bounds as numbers; None if unknown."""
        if not self.minimum.is_valid:
            return None
        return float(Literal(self.minimum).value), float(Literal(self.maximum).value)

    @property
    def step(self) -> int:
        """Minimum distance between two values."""
        return 1 if is_exact(self.minimum.type) else 0


def column_estimate(snapshot: Snapshot, name: str) -> ColumnEstimate | None:
    """Estimate a top-level column; None without an index or ANALYZE statistics."""
    kept = stored_statistics(snapshot, name)
    counted = value_counts(snapshot, name)
    if counted is not None and len(counted.values):
        known = _estimate_of_counts(counted)
    else:
        zones = _of_zones(snapshot, name)
        if zones is None:
            return None if kept is None else _estimate_of_analysis(snapshot, name, kept)
        distinct = zones.num_distinct
        known = (
            zones
            if kept is None
            else replace(zones, num_distinct=max(1, min(distinct, kept.num_distinct)))
        )
    return (
        known
        if kept is None
        else replace(known, average_bytes=kept.average_bytes, most_bytes=kept.most_bytes)
    )


def _estimate_of_analysis(snapshot: Snapshot, name: str, kept: StoredStatistics) -> ColumnEstimate:
    kind = spark_type_of(snapshot.schema.field(name).to_arrow().type)
    low, high = (
        pa.scalar(None, kind) if text is None else literal_scalar(text, kind)
        for text in (kept.minimum, kept.maximum)
    )
    values, distinct = kept.num_rows - kept.num_nulls, max(1, kept.num_distinct)
    return ColumnEstimate(
        low, high, values, kept.num_rows, distinct, kept.average_bytes, kept.most_bytes
    )


def _of_zones(snapshot: Snapshot, name: str) -> ColumnEstimate | None:
    """Estimate from zone maps; None if they do not cover all rows."""
    facts = zone_statistics(snapshot, name)
    if facts is None or not facts.minimum.is_valid:
        return None
    columns = snapshot.manifest.fragments.columns
    rows = int(columns.physical_rows[columns.num_rows > 0].sum())
    low, high = Literal(facts.minimum).value, Literal(facts.maximum).value
    distinct = max(1, min(facts.num_values, high - low + 1))
    return ColumnEstimate(facts.minimum, facts.maximum, facts.num_values, rows, distinct)


def _estimate_of_counts(counted: ValueCounts) -> ColumnEstimate:
    is_value = np.asarray(counted.values.is_valid())
    values, rows = counted.values.drop_null(), int(counted.counts.sum())
    low = high = pa.scalar(None, values.type)
    if is_exact(values.type):
        low, high = pc.min(values), pc.max(values)
    num_values = int(counted.counts[is_value].sum())
    return ColumnEstimate(low, high, num_values, rows, max(1, len(values)))


def rows_estimate(snapshot: Snapshot, predicate: Predicate, most: int) -> int:
    """Estimate the number of matching rows, out of ``most`` that were not pruned."""
    known: dict[str, ColumnEstimate | None] = {}

    def estimate(name: str) -> ColumnEstimate | None:
        if name not in known:
            known[name] = column_estimate(snapshot, name)
        return known[name]

    share = _share(predicate, estimate)
    live = snapshot.manifest.fragments.num_rows
    return most if share is None else min(most, max(1, math.ceil(live * share)))


_Estimates = Callable[[str], ColumnEstimate | None]


def _share(term: Predicate, estimate: _Estimates) -> float | None:
    """Return the selectivity of a predicate; None if unknown."""
    match term:
        case And(terms):
            return _share_of_all(terms, estimate)
        case Or(terms):
            others = 1.0
            for one in terms:
                share = _share(one, estimate)
                if share is None:
                    return None
                others *= 1 - share
            return 1 - others
        case Not(inner):
            share = _share(inner, estimate)
            return None if share is None else 1 - share
        case IsNull(Column((name,))):
            known = estimate(name)
            return None if known is None else 1 - known.share_of_values
        case In(Column((name,)), values):
            known = estimate(name)
            if known is None:
                return None
            return known.share_of_values * min(1.0, len(values) / known.num_distinct)
        case Comparison():
            return _comparison_share(term, estimate)
    return None


def _share_of_all(terms: tuple[Predicate, ...], estimate: _Estimates) -> float | None:
    """Combine two bounds on one column to a range; assume independence of all other terms."""
    shares: list[float] = []
    cut: dict[str, float] = defaultdict(float)
    for one in terms:
        share = _share(one, estimate)
        if share is None:
            continue
        parts = _parts(one) if isinstance(one, Comparison) else None
        known = None if parts is None else estimate(parts[1])
        if parts is not None and known is not None and parts[0] in _RANGES:
            # Fractions of non-null values: both bounds exclude nulls, which must count once.
            cut[parts[1]] += 1 - share / max(known.share_of_values, share, _TINY)
        else:
            shares.append(share)
    for name, away in cut.items():
        known = estimate(name)
        assert known is not None
        shares.append(known.share_of_values * max(1 - away, 1 / known.num_distinct))
    return math.prod(shares) if shares else None


def _comparison_share(term: Comparison, estimate: _Estimates) -> float | None:
    parts = _parts(term)
    known = None if parts is None else estimate(parts[1])
    if parts is None or known is None:
        return None
    operator, _, value = parts
    equal = 1 / known.num_distinct
    if value is not None and known.ends is not None:
        low, high = known.ends
        equal = equal if low <= value <= high else 0.0
    if operator in ("=", "<>"):
        share = equal if operator == "=" else 1 - equal
    elif value is None or known.ends is None:
        return None
    else:
        below = min(1.0, max(0.0, (value - low) / (high - low + known.step or 1)))
        upto = min(1.0, below + equal)
        share = {"<": below, "<=": upto, ">": 1 - upto, ">=": 1 - below}[operator]
    return known.share_of_values * share


def _parts(term: Comparison) -> tuple[str, str, float | None] | None:
    """Split a comparison into operator, column and number; None for other constants."""
    match term.left, term.right:
        case Column((name,)), Literal() as literal:
            operator = term.operator
        case Literal() as literal, Column((name,)):
            operator = _MIRRORED.get(term.operator, term.operator)
        case _:
            return None
    if operator not in (*_RANGES, "=", "<>") or literal.is_null:
        return None
    is_number = isinstance(literal.value, int | float | Decimal) and math.isfinite(literal.value)
    return operator, name, float(literal.value) if is_number else None

"""Detect plain merges: rows match by equal columns, and all values are columns of the source."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import DataType, IntegralType

from pyspark_lance.format.column_names import sources_of, spellings
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.predicate.name_parts import NameParts
from pyspark_lance.spark.expressions.column_expressions import Expression, node_of, reference
from pyspark_lance.spark.expressions.expressions import quote_name, with_values
from pyspark_lance.spark.jobs.semi_join import MergeCondition, SourceNames, usable_pairs
from pyspark_lance.spark.jobs.update_job import AssignedTargets
from pyspark_lance.spark.types.spark_types import (
    has_descriptors,
    same_type,
    spark_field,
    with_descriptors,
)
from pyspark_lance.table.dml.merge import Match, MergeClause
from pyspark_lance.table.dml.plain_merge import PlainMerge
from pyspark_lance.table.dml.row_change import DmlPlan

# Since this version, Spark limits the bytes of a batch that it sends to Python.
_MIN_SPARK = (4, 1)


def plain_merge(
    spark: SparkSession,
    plan: DmlPlan,
    source: DataFrame,
    condition: MergeCondition,
    alias: str,
    clauses: Sequence[MergeClause[Expression, Expression]],
    every: Mapping[str, Expression],
) -> tuple[PlainMerge, DataFrame] | None:
    """Return the plain merge and the source columns that it needs; None if it is not plain.

    ``clauses``: in order; ``every``: the marker of all source columns in ``clauses``.
    """
    is_plain = condition.is_whole and condition.pairs
    if not is_plain or _spark_version(spark) < _MIN_SPARK:
        return None
    if any(clause.condition is not None for clause in clauses):
        return None
    by_match = {clause.match: clause for clause in clauses}
    if Match.NOT_MATCHED_BY_SOURCE in by_match:
        return None
    columns = _SourceColumns(source, plan.schema, alias)
    keys = [columns.position(pair.source) for pair in condition.pairs]
    values: dict[Match, dict[str, int]] = {}
    for match, clause in by_match.items():
        positions = (
            columns.every()
            if clause.values is every
            else columns.resolve_assignments(clause.values)
        )
        if positions is None:
            return None
        values[match] = positions
    source_keys = tuple(position for position in keys if position is not None)
    if len(source_keys) < len(keys) or not _fits(columns, values.values(), plan.schema):
        return None
    if len(usable_pairs(plan, source, condition.pairs)) < len(condition.pairs):
        return None
    matched, new = by_match.get(Match.MATCHED), by_match.get(Match.NOT_MATCHED)
    merge = PlainMerge(
        source_keys=source_keys,
        target_keys=tuple(pair.target for pair in condition.pairs),
        matched=None if matched is None else matched.action,
        updates=values.get(Match.MATCHED, {}),
        inserts=None if new is None else values[Match.NOT_MATCHED],
    )
    return merge, columns.select_columns()


def _spark_version(spark: SparkSession) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", spark.version)[:2])


class _SourceColumns:
    """The columns of the source that a merge names, each once."""

    def __init__(self, source: DataFrame, schema: LanceSchema, alias: str) -> None:
        self._source = source
        self._schema = schema
        self._alias = alias.lower()
        self._names = spellings(source.columns)
        self._meanings = SourceNames(source)
        self._targets = spellings(field.name for field in schema.fields)
        self._sources = sources_of(self._targets, source.columns)
        self._positions: dict[str, int] = {}

    def position(self, parts: NameParts | None) -> int | None:
        """Return the position of a column; None if it is no plain column of the source."""
        if parts is None or len(parts) > 2:
            return None
        qualifier, name = ("", *parts)[-2:]
        is_target = qualifier.lower() == self._alias
        if qualifier in self._names or is_target or name not in self._names:
            return None
        if not qualifier and name in self._targets:
            return None  # ambiguous in Spark
        if self._meanings.find(parts) is None:
            return None
        return self._position_of(name)

    def _position_of(self, name: str) -> int | None:
        """Return the position of a source column; None if the name is ambiguous."""
        column = self._meanings.find((name,))
        if column is None:
            return None
        return self._positions.setdefault(column.name, len(self._positions))

    def every(self) -> dict[str, int] | None:
        """Return all columns of the table that the source has."""
        positions: dict[str, int] = {}
        for field in self._schema.fields:
            if field.name in self._sources:
                position = self._position_of(self._sources[field.name])
                if position is None:
                    return None
                positions[field.name] = position
        return positions or None

    def resolve_assignments(self, values: Mapping[str, Expression]) -> dict[str, int] | None:
        """Return the values that a clause assigns; None if some are not plain."""
        positions: dict[str, int] = {}
        targets = AssignedTargets(self._schema)
        for key, value in values.items():
            name, *members = targets.of(key)
            position = self.position(reference(node_of(value)))
            if members or name in positions or position is None:
                return None
            positions[name] = position
        return positions

    def select_columns(self) -> DataFrame:
        """Select the columns in the order of their positions, named by number."""
        names = {f"c{position}": quote_name(name) for name, position in self._positions.items()}
        return with_values(self._source, names)


def _fits(
    columns: _SourceColumns, values: Iterable[Mapping[str, int]], schema: LanceSchema
) -> bool:
    """Return whether all values have the stored types of their columns."""
    selected = columns.select_columns().schema.fields
    fields = {field.name: field for field in schema.fields}
    given = [
        (name, selected[position].dataType) for one in values for name, position in one.items()
    ]
    kinds = dict(given)
    return all(
        _is_stored_as(kind, spark_field(logical_field(fields[name], binary_blobs=True)).dataType)
        # The rows of all clauses are in the same DataFrame.
        and (
            same_type(kind, kinds[name])
            or not (has_descriptors(kind) or has_descriptors(kinds[name]))
        )
        for name, kind in given
    )


def _is_stored_as(data_type: DataType, wanted: DataType) -> bool:
    wanted = with_descriptors(wanted, data_type)
    both_whole = isinstance(data_type, IntegralType) and isinstance(wanted, IntegralType)
    return both_whole or same_type(data_type, wanted)

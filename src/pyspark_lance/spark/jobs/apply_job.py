"""Apply a batch of a change feed to a target table: the last change of each key.

A key exists after the batch if the last change of some row with it is an insert or an update; all
other keys in the batch, including old keys of updated rows, are deleted.  So keys may move between
rows, and the rule also applies to net changes, which have no order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from pyspark_lance.commit.application_versions import FeedWindow, SourceIdentity
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import ROW_ID, sources_of, spellings
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.spark.expressions.expressions import quote_name
from pyspark_lance.spark.jobs.merge_job import MergeRequest, SparkClause, merge_once
from pyspark_lance.spark.source.change_feed_reader import SOURCE_KEY, WINDOW_KEY
from pyspark_lance.table.cdf.change_feed_task import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from pyspark_lance.table.cdf.changed_rows import ChangeType
from pyspark_lance.table.dml.commit_changes import PreparedCommit, with_applied_version
from pyspark_lance.table.dml.merge import Match, MergeClause
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan, RowAction

_OF_FEED = frozenset((ROW_ID, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))
_IS_PRESENT = "__lance_is_there"
_POSITION = "__lance_position"
_SOURCE = "__lance_changes"


@dataclass(frozen=True, slots=True)
class LastChanges:
    """The last change of each key."""

    # One row per key: the columns of the changes, and whether the key exists now.
    rows: DataFrame
    keys: Mapping[str, str]  # Column of the table -> column of ``rows`` that it must equal.
    newest: int | None  # The last version among the changes; None if there is no change.
    has_rows: bool  # Whether some keys exist.
    has_deleted: bool  # Whether some keys are deleted.
    source: SourceIdentity  # The table that the changes come from.
    window: FeedWindow | None  # The requested versions; None if unknown.

    def reached(self, applied: int) -> int:
        """Return the version that is reached by a table to which ``applied`` is applied before."""
        applied = applied if self.newest is None else self.newest
        return applied if self.window is None else self.window.reached(applied)

    def source_at(self, version: int) -> SourceIdentity:
        """Return the source, with the commit time of ``version`` if that is its last one."""
        if self.window is None or self.window.end != version:
            return self.source
        return replace(self.source, applied_us=self.window.end_us)


def last_changes(changes: DataFrame, keys: Mapping[str, str]) -> LastChanges:
    """Evaluate the changes once and return the last change of each key.

    ``keys``: column of the target table -> column of the changes.
    """
    names = spellings(changes.columns)
    for name in (CHANGE_TYPE, COMMIT_VERSION, *keys.values()):
        if name not in names:
            raise InvalidInputError(
                f"the changes have no column {name}",
                hint="pass a DataFrame of changes() or readChangeFeed, with the key columns",
            )
    keys = {target: names[column] for target, column in keys.items()}
    last = last_change_per_key(changes, tuple(keys.values())).localCheckpoint()
    without_key = sf.lit(False)
    for column in keys.values():
        without_key = without_key | sf.col(quote_name(column)).isNull()
    time = sf.lit(None)
    if COMMIT_TIMESTAMP in names:
        time = sf.max_by(sf.unix_micros(sf.col(names[COMMIT_TIMESTAMP])), sf.col(COMMIT_VERSION))
    totals = last.agg(
        sf.max(COMMIT_VERSION),
        sf.max(_IS_PRESENT),
        sf.min(_IS_PRESENT),
        sf.count_if(without_key),
        time,
    ).first()
    newest, has_rows, are_all_present, num_without_key, time_us = totals or (None, None, None, 0, 0)
    if num_without_key:
        raise InvalidInputError(
            f"the key ({', '.join(keys.values())}) of a changed row is null",
            hint="filter such rows out, or apply changes by rowIdColumn",
        )
    metadata = changes.schema[names[COMMIT_VERSION]].metadata or {}
    source = replace(SourceIdentity.parse(metadata.get(SOURCE_KEY, "{}")), applied_us=time_us or 0)
    window = FeedWindow.parse(metadata[WINDOW_KEY]) if WINDOW_KEY in metadata else None
    return LastChanges(last, keys, newest, bool(has_rows), are_all_present is False, source, window)


def last_change_per_key(changes: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """Return the last row of each key, with ``_IS_PRESENT``."""
    key = [sf.col(quote_name(name)) for name in keys]
    has_rows = ROW_ID in changes.columns
    identity = [sf.col(ROW_ID)] if has_rows else key
    is_present = sf.col(CHANGE_TYPE).isin(
        ChangeType.INSERT.value, ChangeType.UPDATE_POSTIMAGE.value
    )
    version = sf.col(COMMIT_VERSION).desc()
    of_row = Window.partitionBy(*identity).orderBy(version, is_present.desc())
    # Of the rows with a key, the one that has it now comes first.
    of_key = Window.partitionBy(*key).orderBy(
        sf.col(_IS_PRESENT).desc(), version, *([sf.col(ROW_ID).desc()] if has_rows else [])
    )
    return (
        changes.withColumn(_POSITION, sf.row_number().over(of_row))
        .withColumn(_IS_PRESENT, is_present & (sf.col(_POSITION) == 1))
        .withColumn(_POSITION, sf.row_number().over(of_key))
        .where(sf.col(_POSITION) == 1)
        .drop(_POSITION)
    )


def apply_once(
    spark: SparkSession, plan: DmlPlan, last: LastChanges, alias: str, after: int
) -> PreparedCommit:
    """Run one attempt to apply changes, without the commit.

    ``after``: changes up to this version are already applied.
    """
    if last.newest is None:
        return with_applied_version(plan, lambda work: ChangeResult())
    rows = last.rows.where(sf.col(COMMIT_VERSION) > after) if after else last.rows
    keys = _keys(last.keys, plan.schema)
    values = _values(last.rows, keys, plan.schema)
    clauses = tuple(_clauses(last, keys, values))
    condition = " AND ".join(
        f"{quote_name(alias, target)} = {quote_name(_SOURCE, column)}"
        for target, column in keys.items()
    )
    merge = MergeRequest(rows.alias(_SOURCE), condition, clauses, alias)
    return with_applied_version(plan, merge_once(spark, plan, merge))


def _keys(given: Mapping[str, str], schema: LanceSchema) -> dict[str, str]:
    """Return the keys by the table's spelling of the columns."""
    names = spellings(field.name for field in schema.fields)
    for name in given:
        if name not in names:
            raise InvalidInputError(
                f"the table has no column {name}", hint="keys must be columns of the table"
            )
    return {names[name]: column for name, column in given.items()}


def _values(rows: DataFrame, keys: Mapping[str, str], schema: LanceSchema) -> dict[str, str]:
    """Map columns of the table to the values of inserted rows."""
    values = sources_of((field.name for field in schema.fields), rows.columns)
    values |= keys
    unknown = set(rows.columns) - set(values.values()) - _OF_FEED - {_IS_PRESENT}
    if unknown:
        raise InvalidInputError(
            f"the table has no column {min(unknown)}",
            hint="add it with addColumns, or drop it from the changes",
        )
    return {target: quote_name(_SOURCE, column) for target, column in values.items()}


def _clauses(
    last: LastChanges, keys: Mapping[str, str], values: Mapping[str, str]
) -> list[SparkClause]:
    is_present = quote_name(_SOURCE, _IS_PRESENT)
    clauses: list[SparkClause] = []
    if last.has_deleted:
        removed = f"NOT {is_present}" if last.has_rows else None
        clauses.append(MergeClause(Match.MATCHED, RowAction.DELETE, removed))
    if last.has_rows:
        updates = {name: value for name, value in values.items() if name not in keys}
        if updates:
            clauses.append(MergeClause(Match.MATCHED, RowAction.UPDATE, None, updates))
        there = is_present if last.has_deleted else None
        clauses.append(MergeClause(Match.NOT_MATCHED, RowAction.INSERT, there, values))
    return clauses

"""Applies a batch of a change feed to the table that follows: for each key its last change.

A key is there after the batch if a row has it whose last change in the batch is an insert or an
update; any other key that the batch mentions, be it as the old key of a row, is gone.  So keys may
move from row to row, and the rule is the same for net changes, which come in no order.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.window import Window

from pyspark_lance.commit.application_versions import SourceIdentity
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import sources_of, spellings
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.format.system_columns import ROW_ID
from pyspark_lance.spark.expressions.expressions import quoted
from pyspark_lance.spark.jobs.merge_job import MergeRequest, SparkClause, merge_once
from pyspark_lance.spark.source.change_feed_plan import SOURCE_KEY
from pyspark_lance.table.cdf.change_feed_task import CHANGE_TYPE, COMMIT_TIMESTAMP, COMMIT_VERSION
from pyspark_lance.table.cdf.changed_rows import ChangeType
from pyspark_lance.table.dml.applied_changes import recorded
from pyspark_lance.table.dml.commit_changes import Prepared
from pyspark_lance.table.dml.merge import Match, MergeClause
from pyspark_lance.table.dml.row_change import DmlPlan, RowAction

_OF_FEED = frozenset((ROW_ID, CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP))
_IS_THERE = "__lance_is_there"
_PLACE = "__lance_place"
_SOURCE = "__lance_changes"


@dataclass(frozen=True, slots=True)
class LastChanges:
    """What becomes of each key that some changes mention."""

    # One for each key: the columns of the changes, and whether there is such a row now.
    rows: DataFrame
    keys: Mapping[str, str]  # Column of the table -> column of ``rows`` that it must equal.
    newest: int | None  # The last version among the changes; None if there is no change.
    has_rows: bool  # Whether some keys are there.
    has_gone: bool  # Whether some keys are not.
    source: SourceIdentity  # The table that the changes come from.


def last_changes(changes: DataFrame, keys: Mapping[str, str]) -> LastChanges:
    """Evaluates the changes, once.

    ``keys``: column of the table that follows -> column of the changes.
    """
    names = spellings(changes.columns)
    for name in (CHANGE_TYPE, COMMIT_VERSION, *keys.values()):
        if name not in names:
            raise InvalidInputError(
                f"the changes have no column {name}",
                hint="they are what changes() or readChangeFeed gives, with the columns of the key",
            )
    keys = {target: names[column] for target, column in keys.items()}
    last = of_each_key(changes, tuple(keys.values())).localCheckpoint()
    without_key = sf.lit(False)
    for column in keys.values():
        without_key = without_key | sf.col(quoted(column)).isNull()
    time = sf.lit(None)
    if COMMIT_TIMESTAMP in names:
        time = sf.max_by(sf.unix_micros(sf.col(names[COMMIT_TIMESTAMP])), sf.col(COMMIT_VERSION))
    totals = last.agg(
        sf.max(COMMIT_VERSION), sf.max(_IS_THERE), sf.min(_IS_THERE), sf.count_if(without_key), time
    ).first()
    newest, has_rows, are_all_there, num_without_key, time_us = totals or (None, None, None, 0, 0)
    if num_without_key:
        raise InvalidInputError(
            f"the key ({', '.join(keys.values())}) of a changed row is null",
            hint="leave such rows out, or follow the table by rowIdColumn",
        )
    text = (changes.schema[names[COMMIT_VERSION]].metadata or {}).get(SOURCE_KEY, "{}")
    source = replace(SourceIdentity.parse(text), applied_us=time_us or 0)
    return LastChanges(last, keys, newest, bool(has_rows), are_all_there is False, source)


def of_each_key(changes: DataFrame, keys: tuple[str, ...]) -> DataFrame:
    """One row for each key, the last one, with ``_IS_THERE``."""
    key = [sf.col(quoted(name)) for name in keys]
    has_rows = ROW_ID in changes.columns
    identity = [sf.col(ROW_ID)] if has_rows else key
    is_there = sf.col(CHANGE_TYPE).isin(ChangeType.INSERT.value, ChangeType.UPDATE_POSTIMAGE.value)
    version = sf.col(COMMIT_VERSION).desc()
    of_row = Window.partitionBy(*identity).orderBy(version, is_there.desc())
    # The rows of one key: the one that has it now comes first.
    of_key = Window.partitionBy(*key).orderBy(
        sf.col(_IS_THERE).desc(), version, *([sf.col(ROW_ID).desc()] if has_rows else [])
    )
    return (
        changes.withColumn(_PLACE, sf.row_number().over(of_row))
        .withColumn(_IS_THERE, is_there & (sf.col(_PLACE) == 1))
        .withColumn(_PLACE, sf.row_number().over(of_key))
        .where(sf.col(_PLACE) == 1)
        .drop(_PLACE)
    )


def apply_once(
    spark: SparkSession, plan: DmlPlan, last: LastChanges, alias: str, after: int
) -> PreparedCommit:
    """One attempt to apply changes, all but its commit.

    ``after``: changes up to this version are applied already.
    """
    rows = last.rows.where(sf.col(COMMIT_VERSION) > after) if after else last.rows
    keys = _keys(last.keys, plan.schema)
    values = _values(last.rows, keys, plan.schema)
    clauses = tuple(_clauses(last, keys, values))
    condition = " AND ".join(
        f"{quoted(alias, target)} = {quoted(_SOURCE, column)}" for target, column in keys.items()
    )
    merge = MergeRequest(rows.alias(_SOURCE), condition, clauses, alias)
    return with_applied_version(plan, merge_once(spark, plan, merge))


def _keys(given: Mapping[str, str], schema: LanceSchema) -> dict[str, str]:
    """The keys, by the names that the columns have in the table."""
    names = spellings(field.name for field in schema.fields)
    for name in given:
        if name not in names:
            raise InvalidInputError(f"the table has no column {name}", hint="it is to be a key")
    return {names[name]: column for name, column in given.items()}


def _values(rows: DataFrame, keys: Mapping[str, str], schema: LanceSchema) -> dict[str, str]:
    """Column of the table -> its value, by which a row is inserted."""
    values = sources_of((field.name for field in schema.fields), rows.columns)
    values |= keys
    unknown = set(rows.columns) - set(values.values()) - _OF_FEED - {_IS_THERE}
    if unknown:
        raise InvalidInputError(
            f"the table has no column {min(unknown)}",
            hint="add it with addColumns, or drop it from the changes",
        )
    return {target: quoted(_SOURCE, column) for target, column in values.items()}


def _clauses(
    last: LastChanges, keys: Mapping[str, str], values: Mapping[str, str]
) -> list[SparkClause]:
    is_there = quoted(_SOURCE, _IS_THERE)
    clauses: list[SparkClause] = []
    if last.has_gone:
        gone = f"NOT {is_there}" if last.has_rows else None
        clauses.append(MergeClause(Match.MATCHED, RowAction.DELETE, gone))
    if last.has_rows:
        updates = {name: value for name, value in values.items() if name not in keys}
        if updates:
            clauses.append(MergeClause(Match.MATCHED, RowAction.UPDATE, None, updates))
        there = is_there if last.has_gone else None
        clauses.append(MergeClause(Match.NOT_MATCHED, RowAction.INSERT, there, values))
    return clauses

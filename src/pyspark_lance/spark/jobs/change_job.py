"""Rows that change, as a DataFrame, become one version: the distributed half of every change.

One Spark job, in which the changes are evaluated once, runs the stages of
``table/change/change_stages.py``.  The driver receives one description for each file.  Only the
DataFrame API is used, so it is the same in Spark Connect.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.spark.expressions.expressions import quoted
from pyspark_lance.spark.jobs.stages import map_rows, numbered_stage, stage
from pyspark_lance.spark.options.parse_options import storage_options_of
from pyspark_lance.table.change.change_stages import (
    FRAGMENT,
    PART,
    PAYLOAD,
    finish_stage,
    gather,
    note_stage,
    settle_stage,
    sort_stage,
    write_stage,
    writes_rows,
)
from pyspark_lance.table.change.commit_changes import RowChanges
from pyspark_lance.table.change.moved_rows import Clause
from pyspark_lance.table.change.row_change import ChangePlan
from pyspark_lance.table.change.sort_changes import Parts

_FRAGMENTS_PER_TASK = 64
_MOST_TASKS = 64
_MESSAGE_TYPE = f"{FRAGMENT} bigint, {PAYLOAD} binary"

PIECE_TYPE = f"{PART} bigint, {PAYLOAD} binary"
"""Rows that change, packed, and the part of the table that they are in."""


def pinned_scan(
    spark: SparkSession, plan: ChangePlan, columns: Sequence[str], condition: str | None = None
) -> DataFrame:
    """Some columns (lineage columns among them) of the version that the plan pins.

    ``columns``: at least one; ``condition``: rows that are surely not wanted are left out.
    """
    options = storage_options_of(plan.table)
    options["version"] = str(plan.read_version)
    options["columns"] = ",".join(quoted(name) for name in columns)
    if condition is not None:
        options["filter"] = condition
    return spark.read.format("lance").options(**options).load(plan.table.uri)


def run_change_job(
    plan: ChangePlan, clauses: Sequence[Clause], changes: DataFrame, *, one_match_each: bool = False
) -> RowChanges:
    """Runs the job; commits nothing.

    ``clauses``: what the numbers in ``changes`` mean; ``changes``: as
    ``table.moved_rows.write_changes`` wants them, in any order; ``one_match_each``: report target
    rows that have more than one row here.
    """
    if not writes_rows(clauses):
        note = stage(partial(note_stage, plan, tuple(clauses)))
        noted = map_rows(changes, note, _MESSAGE_TYPE)
        return _settled(plan, noted, one_match_each=one_match_each)
    pieces = packed_changes(plan, clauses, changes)
    return run_pieces(plan, clauses, pieces, one_match_each=one_match_each)


def packed_changes(plan: ChangePlan, clauses: Sequence[Clause], changes: DataFrame) -> DataFrame:
    """The changes packed, as ``PIECE_TYPE``; inserted rows are perhaps written already."""
    parts = Parts.of(plan.snapshot().manifest.fragments)
    sort = partial(sort_stage, plan, tuple(clauses), parts)
    return map_rows(changes, numbered_stage(sort), PIECE_TYPE)


def run_pieces(
    plan: ChangePlan,
    clauses: Sequence[Clause],
    pieces: DataFrame,
    *,
    one_match_each: bool,
    are_few: bool = False,
) -> RowChanges:
    """Runs the job for changes that are packed already; commits nothing.

    ``pieces``: what ``sort_stage`` yields, as ``PIECE_TYPE``; ``one_match_each``: report target
    rows that have more than one row here; ``are_few``: so few rows change that those of a part need
    not be spread over tasks.
    """
    if are_few:
        # Who has all rows of a fragment can write its deletion file as well.
        together = pieces.repartition(PART).sortWithinPartitions(PART)
        finish = partial(finish_stage, plan, tuple(clauses), one_match_each)
        return _gathered(plan, together.mapInArrow(stage(finish), _MESSAGE_TYPE))
    together = pieces.hint("rebalance", sf.col(PART)).sortWithinPartitions(PART)
    write = partial(write_stage, plan, tuple(clauses))
    written = together.mapInArrow(stage(write), _MESSAGE_TYPE)
    return _settled(plan, written, one_match_each=one_match_each)


def _settled(plan: ChangePlan, written: DataFrame, *, one_match_each: bool) -> RowChanges:
    num_fragments = len(plan.snapshot().manifest.fragments)
    tasks = min(_MOST_TASKS, 1 + num_fragments // _FRAGMENTS_PER_TASK)
    settle = partial(settle_stage, plan, one_match_each)
    together = written.repartition(tasks, FRAGMENT)
    return _gathered(plan, together.mapInArrow(stage(settle), _MESSAGE_TYPE))


def _gathered(plan: ChangePlan, settled: DataFrame) -> RowChanges:
    return gather(plan, (bytes(row[PAYLOAD]) for row in settled.collect()))

"""Plain merges without a join of Spark: rows of both sides are matched in Python, packed.

The source is evaluated once and kept packed; the stages are in
``table/change/plain_merge_stages.py``.  Then it goes on as every change does.

The driver holds the filter of the keys and a few rows of the target, both of a bounded size.
"""

from __future__ import annotations

import math
from functools import partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.spark.jobs.change_job import PIECE_TYPE
from pyspark_lance.spark.jobs.source_filter import collected_filter
from pyspark_lance.spark.jobs.stages import numbered_stage, over_tasks, stage
from pyspark_lance.table.change.change_stages import PAYLOAD
from pyspark_lance.table.change.key_filter import KeyFilter
from pyspark_lance.table.change.plain_merge import PlainMerge
from pyspark_lance.table.change.plain_merge_stages import (
    BUCKET,
    FILTER,
    KIND,
    SOURCE,
    few_of_target,
    few_of_task,
    found_by_few,
    match_stage,
    pack_source,
    parts_of_few,
    split_source,
    split_target,
    target_tasks,
)
from pyspark_lance.table.change.row_change import ChangePlan
from pyspark_lance.table.change.sort_changes import Parts

_MOST_BUCKETS = 512
# So many filters, of up to 2 MB each, are sent to the driver; more are united on their way.
_FEW_FILTERS = 8
_STAGED = f"{BUCKET} bigint, {KIND} int, {PAYLOAD} binary"


def plain_pieces(
    spark: SparkSession,
    plan: ChangePlan,
    merge: PlainMerge,
    source: DataFrame,
    target_filter: str | None,
) -> tuple[DataFrame, bool, KeyFilter | None]:
    """What becomes of the rows, packed, as ``PIECE_TYPE``, and whether few rows of the target can.

    Third comes the filter of the source's keys, unless it would let too much through.

    The source is evaluated, and keys of the target are read.

    ``target_filter``: only target rows that fulfil it can match.
    """
    # Evaluated once: whatever the source is made of, all that follows must see the same rows.  The
    # job that asks for the filter fills the checkpoint.
    staged = source.mapInArrow(stage(partial(pack_source, merge)), _STAGED).localCheckpoint(
        eager=False
    )
    keys = _key_filter(staged)
    rows = staged.where(sf.col(KIND) == SOURCE)
    fragments = plan.snapshot().manifest.fragments
    tasks = target_tasks(plan, merge, keys, target_filter)
    hashes = None if keys is None else keys.without_values()
    look = partial(few_of_target, merge, hashes, few_of_task(len(tasks)))
    few = over_tasks(spark, tasks, look, _STAGED).select(KIND, PAYLOAD).collect()
    packed_target = found_by_few((row[KIND], bytes(row[PAYLOAD])) for row in few)
    if packed_target is not None:
        parts = parts_of_few(fragments, packed_target)
        match = partial(match_stage, plan, merge, parts, packed_target)
        return rows.mapInArrow(numbered_stage(match), PIECE_TYPE), True, keys
    buckets = _num_buckets(spark)
    of_target = partial(split_target, merge, hashes, buckets)
    of_source = stage(partial(split_source, merge, buckets))
    together = over_tasks(spark, tasks, of_target, _STAGED).union(
        rows.mapInArrow(of_source, _STAGED)
    )
    # The rows of the target come first, since those of the source are matched as they come.
    arranged = together.repartition(BUCKET).sortWithinPartitions(KIND)
    match = partial(match_stage, plan, merge, Parts.of(fragments), ())
    return arranged.mapInArrow(numbered_stage(match), PIECE_TYPE), False, keys


def _num_buckets(spark: SparkSession) -> int:
    asked = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    return max(1, min(_MOST_BUCKETS, int(asked)))


def _key_filter(staged: DataFrame) -> KeyFilter | None:
    """The filter of the source's keys; None if it would let too much through."""
    parts = staged.where(sf.col(KIND) == FILTER).select(PAYLOAD)
    return collected_filter(parts, unite_first=_num_partitions(staged) > _FEW_FILTERS)


def _num_partitions(frame: DataFrame) -> float:
    """Unknown, and so taken to be many, in Spark Connect and where RDDs are forbidden."""
    try:
        return frame.rdd.getNumPartitions()
    except Exception:  # noqa: BLE001 - each kind of session has an error of its own
        return math.inf

"""Rows that change, as a DataFrame, become one version: the distributed half of every change.

One Spark job, in which the changes are evaluated once.  The first stage writes the rows that move
or are inserted and notes the addresses of those that go, as one bitmap for each fragment; the
second gets all bitmaps of a fragment and writes its deletion file.  The driver receives one
description for each file.  Only the DataFrame API is used, so it is the same in Spark Connect.
"""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.spark.clean_errors import clean_iterator
from pyspark_lance.spark.expressions import quoted
from pyspark_lance.spark.option_table import STORAGE_PREFIX
from pyspark_lance.table.commit_changes import RowChanges, gathered
from pyspark_lance.table.deletions import FragmentLoss, TouchedRows, write_deletions
from pyspark_lance.table.moved_rows import (
    CHANGED_ADDRESS,
    Clause,
    WrittenChanges,
    write_changes,
)
from pyspark_lance.table.row_change import ChangePlan, RowAction

_PART = "__lance_part"
_FRAGMENTS_PER_TASK = 64
_MOST_TASKS = 64
_NOT_OF_A_FRAGMENT = -1
_MESSAGE = pa.schema([pa.field("fragment", pa.int64()), pa.field("payload", pa.binary())])
_MESSAGE_TYPE = "fragment bigint, payload binary"


def pinned_scan(
    spark: SparkSession, plan: ChangePlan, columns: Sequence[str], condition: str | None = None
) -> DataFrame:
    """Some columns (lineage columns among them) of the version that the plan pins.

    Args:
        spark: The session.
        plan: Pins the version.
        columns: At least one.
        condition: Rows that are surely not wanted are left out.
    """
    options = {f"{STORAGE_PREFIX}{name}": value for name, value in plan.options.items()}
    options["version"] = str(plan.read_version)
    options["columns"] = ",".join(quoted(name) for name in columns)
    if condition is not None:
        options["filter"] = condition
    return spark.read.format("lance").options(**options).load(plan.uri)


def run_change_job(
    plan: ChangePlan,
    clauses: Sequence[Clause],
    changes: DataFrame,
    *,
    one_match_each: bool = False,
) -> RowChanges:
    """Runs the job; commits nothing.

    Args:
        plan: Pins the version.
        clauses: What the numbers in ``changes`` mean.
        changes: As ``table.moved_rows.write_changes`` wants them, in any order.
        one_match_each: Report target rows that have more than one row here.
    """
    if any(clause.action in (RowAction.UPDATE, RowAction.INSERT) for clause in clauses):
        changes = _arranged(changes)
    written = changes.mapInArrow(partial(_write, plan, tuple(clauses)), _MESSAGE_TYPE)
    num_fragments = len(plan.snapshot().manifest.fragments)
    tasks = min(_MOST_TASKS, 1 + num_fragments // _FRAGMENTS_PER_TASK)
    settle = partial(_settle, plan, one_match_each)
    messages = [
        pickle.loads(row["payload"])
        for row in written.repartition(tasks, "fragment")
        .mapInArrow(settle, _MESSAGE_TYPE)
        .collect()
    ]
    return gathered(
        plan,
        [message for message in messages if isinstance(message, WrittenChanges)],
        [message for message in messages if isinstance(message, FragmentLoss)],
    )


def _arranged(changes: DataFrame) -> DataFrame:
    """Rows of one fragment together and in order, inserts last, in partitions of a good size."""
    fragment = sf.shiftright(sf.col(CHANGED_ADDRESS), 32)
    part = sf.coalesce(fragment, (sf.lit(-1) - sf.spark_partition_id()).cast("bigint"))
    together = changes.withColumn(_PART, part).hint("rebalance", sf.col(_PART))
    return together.sortWithinPartitions(sf.col(CHANGED_ADDRESS).asc_nulls_last())


@clean_iterator
def _write(
    plan: ChangePlan, clauses: tuple[Clause, ...], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The first stage."""
    gc.freeze()
    written = write_changes(plan, clauses, batches)
    own = WrittenChanges(written.fragments, (), written.num_inserted_rows, written.num_updated_rows)
    yield _messages(
        [(_NOT_OF_A_FRAGMENT, own), *((rows.fragment_id, rows) for rows in written.touched)]
    )


@clean_iterator
def _settle(
    plan: ChangePlan, one_match_each: bool, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The second stage; what the first stage wrote passes through."""
    gc.freeze()
    touched: list[TouchedRows] = []
    passed: list[tuple[int, object]] = []
    for batch in batches:
        for payload in batch.column("payload").to_pylist():
            message = pickle.loads(payload)
            if isinstance(message, TouchedRows):
                touched.append(message)
            elif message.fragments or message.num_updated_rows or message.num_inserted_rows:
                passed.append((_NOT_OF_A_FRAGMENT, message))
    losses = write_deletions(plan, touched, one_match_each=one_match_each)
    yield _messages([*passed, *((loss.fragment_id, loss) for loss in losses)])


def _messages(messages: Sequence[tuple[int, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([fragment for fragment, _ in messages], pa.int64()),
            pa.array([pickle.dumps(message) for _, message in messages], pa.binary()),
        ],
        schema=_MESSAGE,
    )

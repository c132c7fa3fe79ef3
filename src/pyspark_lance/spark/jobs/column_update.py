"""Updates rows by rewriting the columns that change, where that is cheaper than moving the rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.system_columns import ROW_ADDRESS
from pyspark_lance.spark.expressions.column_expressions import Expression
from pyspark_lance.spark.expressions.expressions import (
    as_column,
    named_columns,
    pushable_filter,
    quoted,
    readable_columns,
    reads_of,
    stored_values,
)
from pyspark_lance.spark.jobs.change_job import pinned_scan
from pyspark_lance.spark.jobs.stages import map_rows
from pyspark_lance.spark.jobs.update_job import assigned_columns, struct_columns, update_once
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.table.change.choose_rewrite import (
    RewriteMode,
    can_rewrite_columns,
    choose_rewrite,
    rewrite_cost,
)
from pyspark_lance.table.change.commit_changes import Prepared
from pyspark_lance.table.change.rewrite_columns import (
    RewriteColumnsRequest,
    RewrittenColumns,
    commit_rewrite,
    paths_of,
    plan_rewrite,
    rewrite_columns,
)
from pyspark_lance.table.change.row_change import ChangePlan
from pyspark_lance.table.work.written_files import remove_files

# To count the rows that change is a job of its own; below this cost it is not worth it.
WORTH_COUNTING_S = 2.0
_PAYLOAD = "payload binary"


class RepeatedRowError(Exception):
    """A row would get two new values; never leaves this package."""

    def __init__(self, address: int) -> None:
        super().__init__(f"the row at address {address} would get two new values")
        self.address = address


def update_by(
    mode: RewriteMode,
    spark: SparkSession,
    plan: ChangePlan,
    condition: Expression | None,
    assignments: Mapping[str, Expression],
    *,
    alias: str,
) -> Prepared:
    """One attempt to update rows, all but its commit, by ``mode`` or by what is cheaper."""
    if not assignments:
        raise InvalidInputError("an update needs at least one column to set")
    if mode is RewriteMode.ROWS:
        return update_once(spark, plan, condition, assignments, alias)
    names = readable_columns(plan.schema)
    texts = [*assignments.values(), *map(quoted, struct_columns(assignments, plan.schema))]
    conditions = [] if condition is None else [condition]
    named = named_columns([*texts, *conditions], names)
    columns = [*(name for name in named if name != ROW_ADDRESS), ROW_ADDRESS]
    rows = pinned_scan(spark, plan, columns, pushable_filter(condition, plan.schema)).alias(alias)
    if condition is not None:
        rows = rows.where(as_column(condition))
    values = stored_values(rows, assigned_columns(assignments, plan.schema, alias), plan.schema)
    if _chosen(mode, plan, tuple(values), rows, is_everything=condition is None) is (
        RewriteMode.ROWS
    ):
        return update_once(spark, plan, condition, assignments, alias)
    changes = rows.select(ROW_ADDRESS, *(value.alias(name) for name, value in values.items()))
    request, rewritten = run_rewrite_job(plan, tuple(values), changes)
    return partial(commit_rewrite, plan, request, rewritten, reads=reads_of(plan, condition))


def run_rewrite_job(
    plan: ChangePlan, names: Sequence[str], changes: DataFrame
) -> tuple[RewriteColumnsRequest, list[RewrittenColumns]]:
    """Writes the new files of touched fragments on the executors; commits nothing.

    ``changes``: ``_rowaddr`` of each row that changes, once, and all of ``names``; in any order.

    Raises:
        RepeatedRowError: A row comes twice; the new files are removed.
    """
    request = plan_rewrite(plan.snapshot(), names)
    together = changes.repartition(sf.shiftright(sf.col(ROW_ADDRESS), 32))
    ordered = together.sortWithinPartitions(ROW_ADDRESS)
    messages = map_rows(ordered, partial(_write, request), _PAYLOAD).collect()
    done = [result for message in messages for result in pickle.loads(message["payload"])]
    rewritten = [result for result in done if isinstance(result, RewrittenColumns)]
    if len(rewritten) < len(done):
        remove_files(request.files.store_of(None), paths_of(rewritten))
        raise RepeatedRowError(next(result for result in done if isinstance(result, int)))
    return request, rewritten


def _chosen(
    mode: RewriteMode,
    plan: ChangePlan,
    names: tuple[str, ...],
    rows: DataFrame,
    *,
    is_everything: bool,
) -> RewriteMode:
    snapshot = plan.snapshot()
    everything = {fragment.id: fragment.num_rows for fragment in snapshot.manifest.fragments}
    if mode is not RewriteMode.AUTO or is_everything:
        return choose_rewrite(snapshot, names, everything, asked=mode)
    if not can_rewrite_columns(snapshot, names):
        return RewriteMode.ROWS
    if rewrite_cost(snapshot, names, everything).rows_s < WORTH_COUNTING_S:
        return RewriteMode.ROWS
    fragment = sf.shiftright(sf.col(ROW_ADDRESS), 32).alias("fragment")
    counts = rows.groupBy(fragment).agg(sf.count("*").alias("changed")).collect()
    return choose_rewrite(snapshot, names, {row["fragment"]: row["changed"] for row in counts})


@clean_iterator
def _write(
    request: RewriteColumnsRequest, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """The task: writes the new files of the fragments whose rows come, or names a repeated row."""
    trim_worker_overhead()
    done: list[RewrittenColumns | int]
    try:
        done = list(rewrite_columns(request, _once_each(batches)))
    except RepeatedRowError as error:
        done = [error.address]
    yield pa.RecordBatch.from_pydict({"payload": pa.array([pickle.dumps(done)], pa.binary())})


def _once_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, whose rows are in order of their address."""
    last = -1
    for batch in batches:
        addresses = np.asarray(batch.column(ROW_ADDRESS).to_numpy(zero_copy_only=False))
        again = np.flatnonzero(np.diff(addresses, prepend=last) == 0)
        if len(again):
            raise RepeatedRowError(int(addresses[again[0]]))
        if len(addresses):
            last = int(addresses[-1])
        yield batch

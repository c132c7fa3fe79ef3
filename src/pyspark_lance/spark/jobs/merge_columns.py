"""Merge that only updates: rewrite the changed columns if that is cheaper."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StructField, StructType

from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.format.logical_view import logical_field
from pyspark_lance.format.row_address import fragment_ids
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_array, plain_numbers
from pyspark_lance.spark.jobs.stages import map_in_arrow
from pyspark_lance.spark.jobs.update_job import SparkStages, run_rewrite_job
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.spark.types.spark_types import arrow_schema_of, spark_field
from pyspark_lance.table.dml.commit_changes import RowChanges
from pyspark_lance.table.dml.key_filter import unpack_rows
from pyspark_lance.table.dml.merge import SourceKeys
from pyspark_lance.table.dml.moved_rows import CHANGED_ADDRESS, Clause
from pyspark_lance.table.dml.rewrite_columns import RewriteColumnsRequest, RewrittenColumns
from pyspark_lance.table.dml.row_change import (
    DmlPlan,
    RewriteChoice,
    RewriteMode,
    RowAction,
    choose_rewrite,
)
from pyspark_lance.table.dml.run_changes import pack_changes, run_changes, run_pieces
from pyspark_lance.table.rows.blob_bytes import with_blob_bytes
from pyspark_lance.table.rows.conform import conform_array
from pyspark_lance.table.version.table import Table


@dataclass(frozen=True, slots=True)
class MergeChanges:
    """The changes of a merge."""

    clauses: tuple[Clause, ...]
    frame: DataFrame  # The changes as ``run_changes`` expects them, or packed.
    is_packed: bool
    unchanged: frozenset[str] = frozenset()  # Columns whose new values are surely the old ones.
    is_small: bool = False  # Few rows of the table change; only known of packed ones.
    keys: SourceKeys | None = None  # Of the source, if they are known.

    def move_rows(self, plan: DmlPlan, *, one_match_each: bool) -> RowChanges:
        """Move changed rows to new files; commit nothing."""
        run = partial(run_pieces, is_small=self.is_small) if self.is_packed else run_changes
        runner = SparkStages(self.frame.sparkSession)
        return run(runner, plan, self.clauses, self.frame, one_match_each=one_match_each)


def rewritten_columns(
    clauses: Sequence[Clause], schema: LanceSchema, unchanged: Collection[str] = ()
) -> tuple[str, ...] | None:
    """Return the columns to rewrite for a merge; None if it does more than update."""
    if any(clause.action is not RowAction.UPDATE for clause in clauses):
        return None
    updated = {name for clause in clauses for name in clause.columns} - set(unchanged)
    return tuple(field.name for field in schema.fields if field.name in updated)


def run_by_columns(
    plan: DmlPlan, requested: RewriteMode, changes: MergeChanges
) -> tuple[RewriteChoice, MergeChanges | tuple[RewriteColumnsRequest, list[RewrittenColumns]]]:
    """Rewrite columns if that is requested or cheaper; commits nothing.

    Returns the rewritten columns, or the changes, evaluated once, if moving rows is cheaper.
    """
    names = rewritten_columns(changes.clauses, plan.schema, changes.unchanged)
    counted: DataFrame | None = None

    def packed() -> DataFrame:
        if changes.is_packed:
            return changes.frame
        return pack_changes(
            SparkStages(changes.frame.sparkSession), plan, changes.clauses, changes.frame
        )

    def count() -> dict[int, int]:
        nonlocal counted
        # The count fills the checkpoint.
        counted = packed().localCheckpoint(eager=False)
        counts = map_in_arrow(counted, _count, "fragment bigint, changed bigint")
        rows = counts.groupBy("fragment").agg(sf.sum("changed").alias("changed")).collect()
        return {row["fragment"]: row["changed"] for row in rows}

    choice = choose_rewrite(plan.snapshot(), names, requested, count)
    if choice.mode is RewriteMode.ROWS or names is None:
        if counted is None:
            return choice, changes
        return choice, replace(changes, frame=counted, is_packed=True)
    frame = packed() if counted is None else counted
    chosen = plan.schema.select(names)
    kinds = [
        spark_field(logical_field(field, binary_blobs=True)).dataType for field in chosen.fields
    ]
    values = [StructField(name, kind) for name, kind in zip(names, kinds, strict=True)]
    schema = StructType([StructField(ROW_ADDRESS, LongType()), *values])
    unpacked = map_in_arrow(frame, partial(_unpack_changes, plan.table, schema), schema)
    return choice, run_rewrite_job(plan, names, unpacked)


def _unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for payload in batch.column("payload"):
            yield from unpack_rows(payload.as_py())


@clean_iterator
def _count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    trim_worker_overhead()
    for rows in _unpack(batches):
        addresses = pc.cast(rows.column(CHANGED_ADDRESS), pa.uint64())
        fragments, changed = np.unique(fragment_ids(plain_numbers(addresses)), return_counts=True)
        yield pa.RecordBatch.from_pydict(
            {
                "fragment": plain_array(fragments.astype(np.int64)),
                "changed": plain_array(changed.astype(np.int64)),
            }
        )


@clean_iterator
def _unpack_changes(
    table: Table, schema: StructType, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    trim_worker_overhead()
    target = arrow_schema_of(schema)
    for rows in with_blob_bytes(table, _unpack(batches)):
        columns = [pc.cast(rows.column(CHANGED_ADDRESS), pa.int64())]
        columns += [
            conform_array(rows.column(field.name), field.type, field.name)
            for field in list(target)[1:]
        ]
        yield pa.RecordBatch.from_arrays(columns, schema=target)

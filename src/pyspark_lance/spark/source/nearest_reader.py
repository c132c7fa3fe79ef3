"""Batch reads of the rows nearest to a vector: one task looks for them.

They are ordered and few, which more tasks could not do without a shuffle; ``LanceTable.nearest``
has one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import FloatType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.options.nearest_option import DISTANCE, NearestOption
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.batch_reader import spark_batches
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.pushed_down import NOTHING_PUSHED, PushedDown
from pyspark_lance.spark.source.read_plan import open_pinned, shown_columns, spark_schema_of
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.nearest.ivf_plan import usable_segments
from pyspark_lance.table.nearest.metric import Metric
from pyspark_lance.table.nearest.search_plan import NearestPlan, NearestRequest, plan_nearest
from pyspark_lance.table.nearest.search_task import join_found, read_found, search
from pyspark_lance.table.nearest.vectors import Queries, given_queries, vector_column
from pyspark_lance.table.scan.plan_scan import predicate_schema


class NearestPartition(InputPartition):
    """The search."""

    def __init__(self, plan: NearestPlan, queries: Queries) -> None:
        self.plan = plan
        self.queries = queries

    def __repr__(self) -> str:
        return f"NearestPartition(tasks={len(self.plan.tasks)})"


def nearest_schema_of(options: ReadOptions, pinned: tuple[str, int]) -> StructType:
    """The columns of the read, then the distance."""
    schema = spark_schema_of(options, pinned)
    if DISTANCE in (name.lower() for name in schema.names):
        raise InvalidInputError(
            f"the column {DISTANCE!r} would be twice in the answer", hint="choose others by columns"
        )
    return StructType([*schema.fields, StructField(DISTANCE, FloatType(), nullable=False)])


class LanceNearestReader(DataSourceReader):
    """Reads the rows of one pinned version that are nearest to a vector.

    As ``LanceBatchReader``, it does not override ``pushFilters``.

    ``pushed``: what the JVM companion pushed down: at most a limit.
    """

    def __init__(
        self,
        options: ReadOptions,
        asked: NearestOption,
        pinned: tuple[str, int],
        schema: StructType,
        pushed: PushedDown = NOTHING_PUSHED,
    ) -> None:
        self._schema = schema
        self._limit = pushed.limit
        snapshot = open_pinned(options, pinned)
        column = vector_column(snapshot.schema, asked.column)
        kind = None if asked.metric is None else Metric.parse(asked.metric)
        segments = usable_segments(snapshot, column, kind) if asked.use_index else ()
        kind = kind or (segments[0].metric if segments else Metric.L2)
        own = StructType([field for field in schema.fields if field.name.lower() != DISTANCE])
        columns, lineage = narrow(shown_columns(options, snapshot), own)
        predicate = (
            None
            if options.filter is None
            else parse_predicate(options.filter, predicate_schema(snapshot.schema))
        )
        request = NearestRequest(
            column,
            kind,
            asked.k,
            predicate,
            columns,
            lineage,
            segments,
            asked.nprobes,
            asked.refine_factor,
        )
        queries, _ = given_queries(list(asked.key), column, kind)
        self._partition = NearestPartition(plan_nearest(snapshot, request), queries)

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """One."""
        return [self._partition]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, the nearest first."""
        if isinstance(partition, NearestPartition):
            yield from spark_batches(_found(partition), self._schema, self._limit)


def _found(partition: NearestPartition) -> Iterator[pa.RecordBatch]:
    plan, queries = partition.plan, partition.queries
    found = join_found(plan.joining, [search(plan.tasks, queries)] if plan.tasks else [], queries)
    for part, rows in read_found(plan.fetch, found):
        distances = plain_array(found.distance[part])
        columns = [] if rows is None else rows.columns
        names = [] if rows is None else rows.schema.names
        yield pa.RecordBatch.from_arrays([*columns, distances], names=[*names, DISTANCE])

"""Batch reads of the rows nearest to a vector, or to several.

A search for one vector runs as one task, since the result is ordered; if the plugin sorts the
result, as ``vector_search`` does, each task returns the nearest of its own rows.  A search for many
vectors divides the vectors among tasks, and each task searches all rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import FloatType, IntegerType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.options.search_options import DISTANCE, QUERY_INDEX, NearestOption
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.read_plan import (
    NOTHING_PUSHED,
    PushedDown,
    condition_of,
    open_analyzed,
    spark_schema_of,
    visible_columns,
)
from pyspark_lance.spark.source.scan_rows import spark_batches
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.nearest.ivf_search import metric_and_segments
from pyspark_lance.table.nearest.search_plan import (
    NearestPlan,
    NearestRequest,
    SearchSize,
    SearchTask,
    VectorSearch,
    estimate_nearest,
    merge_matches,
    plan_nearest,
    read_found,
)
from pyspark_lance.table.nearest.vectors import Queries, parse_queries, vector_column
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.version.table_identity import PinnedVersion

_QUERIES_OF_TASK: Final = 1024


class NearestPartition(InputPartition):
    """A part of the search: some rows for all queries, or all rows for some queries."""

    def __init__(self, plan: NearestPlan, queries: Queries) -> None:
        self.plan = plan
        self.queries = queries

    def __repr__(self) -> str:
        return f"NearestPartition(tasks={len(self.plan.tasks)}, queries={len(self.queries)})"


def nearest_schema_of(options: ReadOptions, pinned: PinnedVersion) -> StructType:
    """Return the schema: the query number if there are several, the columns, then the distance."""
    assert options.nearest is not None
    schema = spark_schema_of(options, pinned)
    first = [] if options.nearest.is_one else [StructField(QUERY_INDEX, IntegerType(), False)]
    last = StructField(DISTANCE, FloatType(), nullable=False)
    taken = {name.lower() for name in schema.names}
    for field in (*first, last):
        if field.name in taken:
            raise InvalidInputError(
                f"the column {field.name!r} would be in the result twice",
                hint="select other columns with the option columns",
            )
    return StructType([*first, *schema.fields, last])


class LanceNearestReader(DataSourceReader):
    """Reader of the rows of one pinned version that are nearest to a vector.

    As ``LanceBatchReader``, it does not override ``pushFilters``.

    ``pushed``: at most a limit.
    ``in_parts``: whether the plugin sorts the rows of several tasks.
    """

    def __init__(
        self,
        options: ReadOptions,
        requested: NearestOption,
        pinned: PinnedVersion,
        schema: StructType,
        pushed: PushedDown = NOTHING_PUSHED,
        *,
        in_parts: bool = False,
    ) -> None:
        self._schema = schema
        self._limit = pushed.limit
        snapshot = open_analyzed(options, pinned)
        column = vector_column(snapshot.schema, requested.column)
        kind, segments = metric_and_segments(
            snapshot, column, requested.metric, use_index=requested.use_index
        )
        added = (DISTANCE,) if requested.is_one else (DISTANCE, QUERY_INDEX)
        own = StructType([field for field in schema.fields if field.name.lower() not in added])
        columns, lineage = narrow(visible_columns(options, snapshot), own)
        predicate = condition_of(options, NOTHING_PUSHED, predicate_schema(snapshot.schema))
        request = NearestRequest(
            column,
            kind,
            requested.k,
            predicate,
            columns,
            lineage,
            segments,
            requested.nprobes,
            requested.refine_factor,
        )
        plan = plan_nearest(snapshot, request)
        queries, _ = parse_queries(requested.key, column, kind)
        is_split = in_parts and all(isinstance(task, SearchTask) for task in plan.tasks)
        if is_split and requested.is_one:
            parts = [(replace(plan, tasks=(task,)), queries) for task in plan.tasks]
        else:
            firsts = range(0, len(queries), _QUERIES_OF_TASK)
            parts = [(plan, queries.part(first, first + _QUERIES_OF_TASK)) for first in firsts]
        self._partitions = [NearestPartition(*part) for part in parts]

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for one vector, unless the plugin sorts the rows of several."""
        return self._partitions

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows by query, the nearest first."""
        if isinstance(partition, NearestPartition):
            yield from spark_batches(_search(partition), self._schema, self._limit)

    @property
    def size(self) -> SearchSize:
        """Estimate of the work."""
        sizes = [estimate_nearest(one.plan, len(one.queries)) for one in self._partitions]
        return sum(sizes, SearchSize(0, 0))

    def read_local(self) -> Iterator[pa.RecordBatch]:
        """Return the rows of all partitions, found in this process."""
        batches = (batch for one in self._partitions for batch in _search(one))
        return spark_batches(batches, self._schema, self._limit)


def _search(partition: NearestPartition) -> Iterator[pa.RecordBatch]:
    plan, queries = partition.plan, partition.queries
    found = merge_matches(
        plan.merge, [VectorSearch(plan.tasks, queries).run()] if plan.tasks else [], queries
    )
    for part, rows in read_found(plan.fetch, found):
        named = {} if rows is None else dict(zip(rows.schema.names, rows.columns, strict=True))
        named[QUERY_INDEX] = plain_array(found.query[part].astype(np.int32))
        named[DISTANCE] = plain_array(found.distance[part])
        yield pa.RecordBatch.from_arrays(list(named.values()), names=list(named))

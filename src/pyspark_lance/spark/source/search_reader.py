"""Batch reads of the rows that a full-text query finds; one task, since they come in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import FloatType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.options.search_option import SCORE, SearchOption
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.pushed_down import NOTHING_PUSHED, PushedDown
from pyspark_lance.spark.source.read_plan import (
    condition_of,
    open_analyzed,
    shown_columns,
    spark_schema_of,
)
from pyspark_lance.spark.source.scan_rows import spark_batches
from pyspark_lance.spark.types.spark_types import narrow
from pyspark_lance.table.nearest.search_task import read_found
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.text.queries import parse_query
from pyspark_lance.table.text.search_plan import (
    SearchRequest,
    TextPlan,
    merge_found,
    plan_search,
    search_task,
)
from pyspark_lance.table.version.table_identity import PinnedVersion


class SearchPartition(InputPartition):
    """The whole search."""

    def __init__(self, plan: TextPlan) -> None:
        self.plan = plan

    def __repr__(self) -> str:
        return f"SearchPartition(tasks={len(self.plan.tasks)})"


def search_schema_of(options: ReadOptions, pinned: PinnedVersion) -> StructType:
    """The columns of the read, then the score."""
    schema = spark_schema_of(options, pinned)
    if SCORE in {name.lower() for name in schema.names}:
        raise InvalidInputError(
            f"the column {SCORE!r} would be in the result twice", hint="choose others by columns"
        )
    return StructType([*schema.fields, StructField(SCORE, FloatType(), nullable=False)])


class LanceSearchReader(DataSourceReader):
    """Reads the rows of one pinned version that a query finds.

    As ``LanceBatchReader``, it does not override ``pushFilters``. ``pushed``: what the plugin
    pushed down: at most a limit.
    """

    def __init__(
        self,
        options: ReadOptions,
        asked: SearchOption,
        pinned: PinnedVersion,
        schema: StructType,
        pushed: PushedDown = NOTHING_PUSHED,
    ) -> None:
        self._schema = schema
        self._limit = pushed.limit
        snapshot = open_analyzed(options, pinned)
        own = StructType([field for field in schema.fields if field.name.lower() != SCORE])
        columns, lineage = narrow(shown_columns(options, snapshot), own)
        request = SearchRequest(
            parse_query(asked.query, asked.columns, asked.operator),
            asked.k,
            condition_of(options, NOTHING_PUSHED, predicate_schema(snapshot.schema)),
            columns,
            lineage,
            asked.covered_only,
        )
        self._plan = plan_search(snapshot, request)

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """One."""
        return [SearchPartition(self._plan)]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, the best first."""
        if isinstance(partition, SearchPartition):
            yield from spark_batches(_found(partition.plan), self._schema, self._limit)


def _found(plan: TextPlan) -> Iterator[pa.RecordBatch]:
    found = merge_found(plan.merge, [search_task(task) for task in plan.tasks])
    for part, rows in read_found(plan.fetch, found):
        named = {} if rows is None else dict(zip(rows.schema.names, rows.columns, strict=True))
        named[SCORE] = plain_array(found.score[part])
        yield pa.RecordBatch.from_arrays(list(named.values()), names=list(named))

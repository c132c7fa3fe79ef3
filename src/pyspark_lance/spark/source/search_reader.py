"""Batch reads of the rows that a full-text query finds, or words and a vector together.

One task, since they come in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import cast

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import FloatType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plain_values import plain_array
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.options.search_options import DISTANCE, SCORE, TEXT_SCORE, SearchOption
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
from pyspark_lance.table.nearest.search_plan import SearchSize, read_found
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.text.hybrid import (
    Fusion,
    HybridOptions,
    HybridPlan,
    estimate_hybrid_search,
    plan_hybrid,
    search_both,
)
from pyspark_lance.table.text.queries import parse_query
from pyspark_lance.table.text.search_plan import (
    SearchRequest,
    TextPlan,
    estimate_text_search,
    merge_matches,
    plan_search,
)
from pyspark_lance.table.version.table_identity import PinnedVersion


class SearchPartition(InputPartition):
    """The whole search."""

    def __init__(self, plan: TextPlan | HybridPlan) -> None:
        self.plan = plan

    def __repr__(self) -> str:
        text = self.plan.text if isinstance(self.plan, HybridPlan) else self.plan
        return f"SearchPartition(tasks={len(text.tasks)})"


def search_schema_of(options: ReadOptions, pinned: PinnedVersion) -> StructType:
    """The columns of the read, then the score; of a hybrid search, the scores of both, too."""
    schema = spark_schema_of(options, pinned)
    added = [StructField(SCORE, FloatType(), nullable=False)]
    if options.search is not None and options.search.vector is not None:
        added += [StructField(name, FloatType()) for name in (TEXT_SCORE, DISTANCE)]
    taken = {name.lower() for name in schema.names}
    for field in added:
        if field.name in taken:
            raise InvalidInputError(
                f"the column {field.name!r} would be in the result twice",
                hint="choose others by columns",
            )
    return StructType([*schema.fields, *added])


class LanceSearchReader(DataSourceReader):
    """Reader of the rows of one pinned version that match a query.

    As ``LanceBatchReader``, it does not override ``pushFilters``. ``pushed``: what the plugin
    pushed down: at most a limit.
    """

    def __init__(
        self,
        options: ReadOptions,
        requested: SearchOption,
        pinned: PinnedVersion,
        schema: StructType,
        pushed: PushedDown = NOTHING_PUSHED,
    ) -> None:
        self._schema = schema
        self._limit = pushed.limit
        snapshot = open_analyzed(options, pinned)
        added = (SCORE,) if requested.vector is None else (SCORE, TEXT_SCORE, DISTANCE)
        own = StructType([field for field in schema.fields if field.name.lower() not in added])
        columns, lineage = narrow(visible_columns(options, snapshot), own)
        request = SearchRequest(
            parse_query(requested.query, requested.columns, requested.operator),
            requested.k,
            condition_of(options, NOTHING_PUSHED, predicate_schema(snapshot.schema)),
            columns,
            lineage,
            requested.covered_only,
        )
        self._plan: TextPlan | HybridPlan = (
            plan_search(snapshot, request)
            if requested.vector is None
            else plan_hybrid(snapshot, request, _hybrid_options(requested))
        )

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition."""
        return [SearchPartition(self._plan)]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows, the best first."""
        if isinstance(partition, SearchPartition):
            yield from spark_batches(_search(partition.plan), self._schema, self._limit)

    @property
    def size(self) -> SearchSize:
        """Estimate of the work."""
        plan = self._plan
        return (
            estimate_hybrid_search(plan)
            if isinstance(plan, HybridPlan)
            else estimate_text_search(plan)
        )

    def read_local(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, found in this process."""
        return spark_batches(_search(self._plan), self._schema, self._limit)


def _hybrid_options(requested: SearchOption) -> HybridOptions:
    fusion: object = requested.fusion
    if isinstance(requested.fusion, tuple):
        fusion = dict(zip(("text", "vector"), requested.fusion, strict=True))
    return HybridOptions(
        requested.vector,
        cast(int, requested.k),  # None is refused
        Fusion.parse(fusion),
        requested.vector_column,
        requested.metric,
        requested.candidates,
    )


def _search(plan: TextPlan | HybridPlan) -> Iterator[pa.RecordBatch]:
    if isinstance(plan, HybridPlan):
        both = search_both(plan)
        found, fetch = both.rows, plan.text.fetch
        more = {TEXT_SCORE: both.text_score, DISTANCE: both.distance}
    else:
        found = merge_matches(plan.merge, [task.run() for task in plan.tasks])
        fetch, more = plan.fetch, {}
    for part, rows in read_found(fetch, found):
        named = {} if rows is None else dict(zip(rows.schema.names, rows.columns, strict=True))
        named[SCORE] = plain_array(found.score[part])
        for name, numbers in more.items():
            named[name] = plain_array(numbers[part], np.isnan(numbers[part]))
        yield pa.RecordBatch.from_arrays(list(named.values()), names=list(named))

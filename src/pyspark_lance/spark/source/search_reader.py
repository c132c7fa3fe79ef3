"""Batch reads of the rows that a full-text query finds, or words and a vector, or a whole text.

One task, since they come in order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias, cast

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import FloatType, StructField, StructType

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.schema import LanceSchema
from pyspark_lance.plain_values import plain_array, single_value
from pyspark_lance.predicate.conditions import Predicate
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
from pyspark_lance.table.nearest.exact_search import concat_found
from pyspark_lance.table.nearest.search_plan import HasAddresses, SearchSize, read_found
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.text.hybrid import (
    Fusion,
    HybridOptions,
    HybridPlan,
    estimate_hybrid_search,
    plan_hybrid,
    search_both,
)
from pyspark_lance.table.text.near_duplicates import (
    MinHashTask,
    NearDuplicatesPlan,
    NearDuplicatesRequest,
    estimate_near_duplicates,
    near_duplicates,
    near_duplicates_column,
    plan_near_duplicates,
)
from pyspark_lance.table.text.queries import parse_query
from pyspark_lance.table.text.search_plan import (
    SearchRequest,
    TextPlan,
    estimate_text_search,
    merge_matches,
    plan_search,
)
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table_identity import PinnedVersion


@dataclass(frozen=True, slots=True)
class _TextDuplicates:
    """A search for the near-duplicates of a text."""

    plan: NearDuplicatesPlan
    query: str

    @property
    def tasks(self) -> tuple[MinHashTask, ...]:
        """Parts of the search."""
        return self.plan.tasks


_Plan: TypeAlias = TextPlan | HybridPlan | _TextDuplicates


class SearchPartition(InputPartition):
    """The whole search."""

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan

    def __repr__(self) -> str:
        text = self.plan.text if isinstance(self.plan, HybridPlan) else self.plan
        return f"SearchPartition(tasks={len(text.tasks)})"


def search_schema_of(
    options: ReadOptions, requested: SearchOption, pinned: PinnedVersion
) -> StructType:
    """The columns of the read, then the score; of a hybrid search, the scores of both, too."""
    schema = spark_schema_of(options, pinned)
    first, *others = requested.added_columns
    added = [StructField(first, FloatType(), nullable=False)]
    added += [StructField(name, FloatType()) for name in others]
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
        added = requested.added_columns
        own = StructType([field for field in schema.fields if field.name.lower() not in added])
        columns, lineage = narrow(visible_columns(options, snapshot), own)
        condition = condition_of(options, NOTHING_PUSHED, predicate_schema(snapshot.schema))
        self._plan = _plan(snapshot, requested, condition, columns, lineage)

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
        if isinstance(self._plan, _TextDuplicates):
            return estimate_near_duplicates(self._plan.plan)
        if isinstance(self._plan, HybridPlan):
            return estimate_hybrid_search(self._plan)
        return estimate_text_search(self._plan)

    def read_local(self) -> Iterator[pa.RecordBatch]:
        """Return the rows, found in this process."""
        return spark_batches(_search(self._plan), self._schema, self._limit)


def _plan(
    snapshot: Snapshot,
    requested: SearchOption,
    condition: Predicate | None,
    columns: LanceSchema,
    lineage: tuple[str, ...],
) -> _Plan:
    if requested.near_duplicates:
        column = near_duplicates_column(snapshot, next(iter(requested.columns), None))
        duplicates = NearDuplicatesRequest(
            column, requested.k, requested.max_distance, condition, columns, lineage
        )
        return _TextDuplicates(plan_near_duplicates(snapshot, duplicates), requested.query)
    request = SearchRequest(
        parse_query(requested.query, requested.columns, requested.operator),
        requested.k,
        condition,
        columns,
        lineage,
        requested.covered_only,
    )
    if requested.vector is None:
        return plan_search(snapshot, request)
    return plan_hybrid(snapshot, request, _hybrid_options(requested))


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


def _search(plan: _Plan) -> Iterator[pa.RecordBatch]:
    rows_found: HasAddresses
    if isinstance(plan, HybridPlan):
        both = search_both(plan)
        rows_found, fetch = both.rows, plan.text.fetch
        added = {SCORE: both.rows.score, TEXT_SCORE: both.text_score, DISTANCE: both.distance}
    elif isinstance(plan, _TextDuplicates):
        texts = single_value(plan.query.encode(), pa.string())
        near = concat_found(list(near_duplicates(plan.plan, texts)))
        rows_found, fetch, added = near, plan.plan.fetch, {DISTANCE: near.distance}
    else:
        scored = merge_matches(plan.merge, [task.run() for task in plan.tasks])
        rows_found, fetch, added = scored, plan.fetch, {SCORE: scored.score}
    for part, rows in read_found(fetch, rows_found):
        named = {} if rows is None else dict(zip(rows.schema.names, rows.columns, strict=True))
        for name, numbers in added.items():
            named[name] = plain_array(numbers[part], np.isnan(numbers[part]))
        yield pa.RecordBatch.from_arrays(list(named.values()), names=list(named))

"""Searches of texts on the executors: by words, by words and a vector, for near-duplicates.

A small search needs no task; see ``local_search``. Of a large one, each segment of an index is a
task, and so are some of the rows that no index covers; one more task merges the results, and reads
the rows. Queries of a DataFrame stay partitioned: each task searches all rows for its own ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import FloatType, IntegerType, LongType, StructField, StructType

from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.column_names import ROW_ID, system_array
from pyspark_lance.plain_values import plain_array
from pyspark_lance.spark.jobs.local_search import search_locally
from pyspark_lance.spark.jobs.nearest_job import DISTANCE, FOUND_COLUMNS, RANK, result_batches
from pyspark_lance.spark.jobs.stages import (
    Batches,
    load_payloads,
    map_in_arrow,
    map_rows,
    over_tasks,
    payloads_of_tasks,
    stage,
)
from pyspark_lance.table.nearest.exact_search import Found, FoundRows
from pyspark_lance.table.nearest.search_plan import LateMaterialization, VectorSearch
from pyspark_lance.table.nearest.search_plan import merge_matches as merge_nearest
from pyspark_lance.table.text.hybrid import HybridPlan, HybridRows, estimate_hybrid_search, fuse
from pyspark_lance.table.text.hybrid import search_both as search_hybrid
from pyspark_lance.table.text.near_duplicates import (
    NearDuplicatesPlan,
    NearDuplicatesSearch,
    SignedQueries,
    near_duplicates,
)
from pyspark_lance.table.text.near_duplicates import merge_matches as merge_duplicates
from pyspark_lance.table.text.scoring import ScoredRows
from pyspark_lance.table.text.search_plan import (
    BatchPlan,
    RowsByQuery,
    TextPlan,
    TextTask,
    estimate_text_search,
    merge_matches,
    search_batch,
)
from pyspark_lance.table.text.segment_search import TextMatches

SCORE: Final = "_score"
SEARCH_COLUMNS: Final = (
    StructField(RANK, IntegerType(), nullable=False),
    StructField(SCORE, FloatType(), nullable=False),
    StructField(ROW_ID, LongType(), nullable=False),
)
"""Columns of the result of a search by words, before those of the table."""
TEXT_SCORE: Final = "_text_score"
HYBRID_COLUMNS: Final = (
    *SEARCH_COLUMNS,
    StructField(TEXT_SCORE, FloatType(), nullable=True),
    StructField(DISTANCE, FloatType(), nullable=True),
)
"""Columns of the result of a search by both, before those of the table."""
# So many rows are searched by one task.
_SMALL_ROWS: Final = 1 << 18


@dataclass(frozen=True, slots=True)
class TextOutput:
    """The plan of a search for one query, and the schema of its result."""

    plan: TextPlan
    schema: StructType  # ``SEARCH_COLUMNS`` and columns of the table.


@dataclass(frozen=True, slots=True)
class BatchOutput:
    """The plan of a search for several queries, and the schema of its result."""

    plan: BatchPlan
    schema: StructType  # Columns of the queries, ``SEARCH_COLUMNS``, columns of the table.
    num_own: int  # How many of them are of the queries.
    query: str  # The column with the texts of the queries.


def search_partitioned_texts(output: BatchOutput, queries: DataFrame) -> DataFrame:
    """Return the rows that the texts of a DataFrame of any size find; its columns come first."""
    return map_rows(queries, stage(partial(_search_by_batch, output)), output.schema)


def search_texts(spark: SparkSession, output: TextOutput) -> DataFrame:
    """Return the rows that a planned search finds, the best first."""
    tasks = output.plan.tasks
    search = partial(_search_at_once, output, [tasks])
    found = search_locally(spark, estimate_text_search(output.plan), output.schema, search)
    if found is not None:
        return found
    if len(tasks) < 2 or sum(task.num_rows for task in tasks) <= _SMALL_ROWS:
        at_once = [tasks] if tasks else []
        return over_tasks(spark, at_once, partial(_search_at_once, output), output.schema)
    found = payloads_of_tasks(spark, tasks).repartition(1)
    return map_in_arrow(found, stage(partial(_merge_results, output)), output.schema)


@dataclass(frozen=True, slots=True)
class HybridOutput:
    """The plan of both searches, and the schema of the result."""

    plan: HybridPlan
    schema: StructType  # ``HYBRID_COLUMNS`` and columns of the table.


def search_both(spark: SparkSession, output: HybridOutput) -> DataFrame:
    """Return the rows that words and a vector find, the best first."""
    plan = output.plan
    local = search_locally(
        spark, estimate_hybrid_search(plan), output.schema, partial(_search_by_both, output)
    )
    if local is not None:
        return local
    vectors = [VectorSearch((task,), plan.queries) for task in plan.vector.tasks]
    found = payloads_of_tasks(spark, [*plan.text.tasks, *vectors]).repartition(1)
    return map_in_arrow(found, stage(partial(_fuse_results, output)), output.schema)


@dataclass(frozen=True, slots=True)
class NearDuplicatesOutput:
    """The plan of a search, and the schema of its result."""

    plan: NearDuplicatesPlan
    schema: StructType  # Columns of the queries, ``FOUND_COLUMNS``, columns of the table.
    num_own: int  # How many of them are of the queries.


def search_partitioned_duplicates(
    output: NearDuplicatesOutput, queries: DataFrame, text: str
) -> DataFrame:
    """Return the near-duplicates of the texts of a DataFrame of any size; its columns come first.

    ``text``: the column of the texts.
    """
    return map_rows(queries, stage(partial(_duplicates_by_batch, output, text)), output.schema)


def search_duplicates(spark: SparkSession, output: NearDuplicatesOutput, text: str) -> DataFrame:
    """Return the near-duplicates of one text, the nearest first."""
    plan = output.plan
    queries = SignedQueries.of(pa.array([text], pa.string()), plan.limits.options)
    searches = plan.searches(queries) if len(queries.numbers) else []
    if len(searches) < 2:
        return over_tasks(spark, searches, partial(_duplicates_once, output), output.schema)
    found = payloads_of_tasks(spark, searches).repartition(1)
    return map_in_arrow(found, stage(partial(_merge_duplicates, output)), output.schema)


# On executors ----------------------------------------------------------------------------------


def _search_at_once(output: TextOutput, units: Iterable[tuple[TextTask, ...]]) -> Batches:
    for tasks in units:
        rows = merge_matches(output.plan.merge, [task.run() for task in tasks])
        yield from ranked_batches(output.plan.fetch, output.schema, rows)


def _merge_results(output: TextOutput, batches: Batches) -> Batches:
    parts: list[TextMatches] = load_payloads(batches)
    rows = merge_matches(output.plan.merge, parts)
    yield from ranked_batches(output.plan.fetch, output.schema, rows)


def _search_by_batch(output: BatchOutput, batches: Batches) -> Batches:
    for batch in batches:
        texts = batch.column(batch.schema.names.index(output.query)).to_pylist()
        own = batch.select(list(range(output.num_own)))
        for found in search_batch(output.plan, texts):
            yield from _of_queries(output, own, found)


def _of_queries(output: BatchOutput, own: pa.RecordBatch, found: RowsByQuery) -> Batches:
    """Return the rows of some queries, with the columns of these."""
    ranks = found.ranks().astype(np.int32)

    def leading(part: slice) -> list[pa.Array]:
        columns = take_rows(own, found.query[part]).columns
        return [*columns, *_result_columns(ranks[part], found.rows.at(part))]

    num_leading = output.num_own + len(SEARCH_COLUMNS)
    return result_batches(output.plan.fetch, output.schema, num_leading, found.rows, leading)


def _result_columns(ranks: NDArray[np.int32], rows: ScoredRows) -> tuple[pa.Array, ...]:
    """Return the columns of ``SEARCH_COLUMNS``."""
    return plain_array(ranks), plain_array(rows.score), system_array(rows.row_id)


def ranked_batches(
    fetch: LateMaterialization, schema: StructType, found: ScoredRows, more: Sequence[pa.Array] = ()
) -> Batches:
    """Return the rows of one query.

    ``more``: columns between the row ids and those of the table.
    """
    ranks = np.arange(1, len(found) + 1, dtype=np.int32)

    def leading(part: slice) -> list[pa.Array]:
        columns = _result_columns(ranks[part], found.at(part))
        return [*columns, *(column[part] for column in more)]

    num_leading = len(SEARCH_COLUMNS) + len(more)
    return result_batches(fetch, schema, num_leading, found, leading)


def _search_by_both(output: HybridOutput) -> Batches:
    yield from _hybrid_batches(output, search_hybrid(output.plan))


def _fuse_results(output: HybridOutput, batches: Batches) -> Batches:
    plan = output.plan
    parts: list[Found | TextMatches] = load_payloads(batches)
    words = merge_matches(plan.text.merge, [one for one in parts if isinstance(one, TextMatches)])
    near = [one for one in parts if isinstance(one, Found)]
    vector = merge_nearest(plan.vector.merge, near, plan.queries)
    yield from _hybrid_batches(output, fuse(words, vector, plan.fusion, plan.k))


def _hybrid_batches(output: HybridOutput, found: HybridRows) -> Batches:
    more = (_nullable(found.text_score), _nullable(found.distance))
    yield from ranked_batches(output.plan.text.fetch, output.schema, found.rows, more)


def _nullable(numbers: NDArray[np.float32]) -> pa.Array:
    return plain_array(numbers, np.isnan(numbers))


def _duplicates_once(
    output: NearDuplicatesOutput, searches: Iterable[NearDuplicatesSearch]
) -> Batches:
    for search in searches:
        yield from _duplicates(output, None, search.run())


def _merge_duplicates(output: NearDuplicatesOutput, batches: Batches) -> Batches:
    yield from _duplicates(
        output, None, merge_duplicates(output.plan.limits, load_payloads(batches))
    )


def _duplicates_by_batch(output: NearDuplicatesOutput, text: str, batches: Batches) -> Batches:
    for batch in batches:
        own = batch.select(list(range(output.num_own)))
        texts = batch.column(batch.schema.names.index(text))
        for found in near_duplicates(output.plan, texts):
            yield from _duplicates(output, own, found)


def _duplicates(
    output: NearDuplicatesOutput, own: pa.RecordBatch | None, found: FoundRows
) -> Iterator[pa.RecordBatch]:
    """Return the rows of the result, with the columns of the queries."""
    ranks = found.ranks().astype(np.int32)

    def leading(part: slice) -> list[pa.Array]:
        rows = found.at(part)
        columns = [] if own is None else take_rows(own, rows.query).columns
        found_columns = plain_array(ranks[part]), plain_array(rows.distance)
        return [*columns, *found_columns, system_array(rows.row_id)]

    num_leading = output.num_own + len(FOUND_COLUMNS)
    return result_batches(output.plan.fetch, output.schema, num_leading, found, leading)

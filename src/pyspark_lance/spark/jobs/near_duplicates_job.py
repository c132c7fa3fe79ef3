"""Searches near-duplicates of texts on the executors.

One text is searched by one task for each segment of an index and for some of the rows that none
covers; one more task merges the results. Several texts stay partitioned: each task searches all
rows for its own ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.column_names import system_array
from pyspark_lance.plain_values import plain_array
from pyspark_lance.spark.jobs.nearest_job import FOUND_COLUMNS, result_batches
from pyspark_lance.spark.jobs.stages import (
    Batches,
    load_payloads,
    map_in_arrow,
    map_rows,
    over_tasks,
    payloads_of_tasks,
    stage,
)
from pyspark_lance.table.nearest.found_rows import FoundRows
from pyspark_lance.table.text.near_duplicates import (
    NearDuplicatesPlan,
    NearDuplicatesSearch,
    SignedQueries,
    merge_found,
    near_duplicates,
)


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
    return map_rows(queries, stage(partial(_search_by_batch, output, text)), output.schema)


def search_duplicates(spark: SparkSession, output: NearDuplicatesOutput, text: str) -> DataFrame:
    """Return the near-duplicates of one text, the nearest first."""
    plan = output.plan
    queries = SignedQueries.of(pa.array([text], pa.string()), plan.limits.options)
    searches = plan.searches(queries) if len(queries.numbers) else []
    if len(searches) < 2:
        return over_tasks(spark, searches, partial(_found_once, output), output.schema)
    found = payloads_of_tasks(spark, searches).repartition(1)
    return map_in_arrow(found, stage(partial(_merged, output)), output.schema)


# On executors ----------------------------------------------------------------------------------


def _found_once(output: NearDuplicatesOutput, searches: Iterable[NearDuplicatesSearch]) -> Batches:
    for search in searches:
        yield from _result(output, None, search.run())


def _merged(output: NearDuplicatesOutput, batches: Batches) -> Batches:
    yield from _result(output, None, merge_found(output.plan.limits, load_payloads(batches)))


def _search_by_batch(output: NearDuplicatesOutput, text: str, batches: Batches) -> Batches:
    for batch in batches:
        own = batch.select(list(range(output.num_own)))
        texts = batch.column(batch.schema.names.index(text))
        for found in near_duplicates(output.plan, texts):
            yield from _result(output, own, found)


def _result(
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

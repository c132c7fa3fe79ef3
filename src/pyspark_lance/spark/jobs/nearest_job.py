"""Vector search on the executors.

A small number of queries is broadcast to all tasks, which compare them with some of the rows each;
a shuffle merges the results by query.  Many queries stay partitioned: each task compares its own
queries with all rows, block by block, so no shuffle is needed.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import FloatType, IntegerType, LongType, StructField, StructType

from pyspark_lance.codec.array_assembly import fewest_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.column_names import ROW_ID, system_array
from pyspark_lance.plain_values import plain_array, single_value
from pyspark_lance.spark.jobs.local_search import search_locally
from pyspark_lance.spark.jobs.stages import Batches, map_in_arrow, map_rows, over_tasks, stage
from pyspark_lance.spark.source.scan_rows import to_spark_batch
from pyspark_lance.spark.types.spark_types import arrow_schema_of
from pyspark_lance.table.nearest.exact_search import Found, FoundRows, concat_found
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.nearest.search_plan import (
    HasAddresses,
    LateMaterialization,
    NearestPlan,
    SearchTask,
    VectorSearch,
    estimate_nearest,
    merge_matches,
    read_found,
)
from pyspark_lance.table.nearest.vectors import Queries, queries_in
from pyspark_lance.table.tasks import run_local

RANK: Final = "_rank"
DISTANCE: Final = "_distance"
FOUND_COLUMNS: Final = (
    StructField(RANK, IntegerType(), nullable=False),
    StructField(DISTANCE, FloatType(), nullable=False),
    StructField(ROW_ID, LongType(), nullable=False),
)
"""The columns of the result after those of the query."""

_Task = SearchTask | SegmentTask
# Queries that one task searches in a segment, so that several cores share the work.
_QUERIES_OF_SEGMENT: Final = 1 << 9
_Finish = Callable[[Sequence[Found]], Batches]
# Pairs of a query and a row that one task merges and reads.
_PAIRS_OF_BUCKET: Final = 1 << 14
# A task compares one block of queries at a time with all rows.
_QUERIES_OF_BLOCK: Final = 1 << 13
_BYTES_OF_BLOCK: Final = 32 << 20
_PAIRS_OF_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SearchOutput:
    """The plan of a search, and the schema of its result."""

    plan: NearestPlan  # The search.
    schema: StructType  # Columns of the queries, ``FOUND_COLUMNS``, columns of the table.
    num_own: int  # How many of them are columns of the queries.


@dataclass(frozen=True, slots=True)
class _Unit:
    """The work of one Spark task: the queries from ``first`` to ``end``."""

    task: _Task
    first: int
    end: int


def search_broadcast_queries(
    spark: SparkSession, output: SearchOutput, queries: Queries, own: pa.RecordBatch
) -> DataFrame:
    """Search the rows nearest to queries that are broadcast to all tasks.

    ``queries``: numbered by their position in ``own``.
    """
    tasks = _units(output.plan.tasks, len(queries))
    per_bucket = max(1, _PAIRS_OF_BUCKET // output.plan.merge.k)
    buckets = int(queries.numbers[-1]) // per_bucket + 1 if tasks else 1
    finish = partial(_merge_found, output, queries, own)
    search = partial(_search_once, queries, finish, tasks)
    local = search_locally(
        spark, estimate_nearest(output.plan, len(queries)), output.schema, search
    )
    if local is not None:
        return local
    if len(tasks) < 2 and buckets < 2:
        return over_tasks(spark, tasks, partial(_search_once, queries, finish), output.schema)
    work = partial(_search_in_buckets, queries, per_bucket)
    found = over_tasks(spark, tasks, work, "bucket int, payload binary")
    together = found.repartition(buckets, "bucket")
    return map_in_arrow(together, stage(partial(_merge_by_bucket, finish)), output.schema)


def search_partitioned_queries(output: SearchOutput, queries: DataFrame, vector: str) -> DataFrame:
    """Search the rows nearest to the rows of a DataFrame of any size.

    ``queries``: the column ``vector`` and the first columns of the result.
    """
    return map_rows(queries, stage(partial(_search_by_block, output, vector)), output.schema)


def _units(tasks: Sequence[_Task], num_queries: int) -> tuple[_Unit, ...]:
    """Divide the work among tasks: some rows for all queries, or a segment for some queries."""
    found = []
    for task in tasks:
        step = _QUERIES_OF_SEGMENT if task.splits_queries else max(1, num_queries)
        found += [_Unit(task, first, first + step) for first in range(0, num_queries, step)]
    return tuple(found)


# On executors ----------------------------------------------------------------------------------


def _search(units: Iterable[_Unit], queries: Queries) -> Found:
    searches = (VectorSearch((unit.task,), queries.part(unit.first, unit.end)) for unit in units)
    found = list(run_local(searches))
    return Found(
        concat_found([one.exact for one in found]), concat_found([one.candidates for one in found])
    )


def _search_once(queries: Queries, finish: _Finish, units: Iterable[_Unit]) -> Batches:
    every = tuple(units)
    if every:
        yield from finish([_search(every, queries)])


def _search_in_buckets(queries: Queries, per_bucket: int, units: Iterable[_Unit]) -> Batches:
    found = _search(units, queries)
    exact, candidates = found.exact.query // per_bucket, found.candidates.query // per_bucket
    for number in np.union1d(exact, candidates).tolist():
        own = Found(found.exact.at(exact == number), found.candidates.at(candidates == number))
        yield pa.RecordBatch.from_pydict(
            {
                "bucket": plain_array(np.array([number], np.int32)),
                "payload": single_value(pickle.dumps(own), pa.binary()),
            }
        )


def _merge_by_bucket(finish: _Finish, batches: Batches) -> Batches:
    by_bucket: dict[int, list[Found]] = {}
    for batch in batches:
        payloads = batch.column(1)
        for index, number in enumerate(batch.column(0).to_pylist()):
            by_bucket.setdefault(number, []).append(pickle.loads(payloads[index].as_buffer()))
    for number in sorted(by_bucket):
        yield from finish(by_bucket.pop(number))


def _merge_found(
    output: SearchOutput, queries: Queries, own: pa.RecordBatch, parts: Sequence[Found]
) -> Batches:
    yield from _result_batches(output, own, merge_matches(output.plan.merge, parts, queries))


def _search_by_block(output: SearchOutput, vector: str, batches: Batches) -> Batches:
    plan = output.plan
    if not plan.tasks:
        return
    most = max(1, min(_QUERIES_OF_BLOCK, _PAIRS_OF_BLOCK // plan.merge.k))
    for block in _blocks(batches, most):
        index = block.schema.names.index(vector)
        queries = queries_in(block.column(index), plan.column, plan.merge.metric)
        own = block.select([n for n in range(block.num_columns) if n != index])
        if len(queries):
            yield from _merge_found(output, queries, own, [VectorSearch(plan.tasks, queries).run()])


def _blocks(batches: Batches, most: int) -> Iterator[pa.RecordBatch]:
    """Merge the rows of all batches into as few blocks as possible."""
    pending: list[pa.RecordBatch] = []
    rows = num_bytes = 0
    for batch in batches:
        for first in range(0, batch.num_rows, most):
            piece = batch.slice(first, most)
            if pending and (
                rows + piece.num_rows > most or num_bytes + piece.nbytes > _BYTES_OF_BLOCK
            ):
                yield from fewest_batches(pending)
                pending, rows, num_bytes = [], 0, 0
            pending.append(piece)
            rows += piece.num_rows
            num_bytes += piece.nbytes
    yield from fewest_batches(pending)


def _result_batches(output: SearchOutput, own: pa.RecordBatch, found: FoundRows) -> Batches:
    """Return the rows of the result, with the columns of the queries."""
    ranks = found.ranks().astype(np.int32)

    def leading(part: slice) -> list[pa.Array]:
        rows = found.at(part)
        columns = take_rows(own, rows.query).columns if output.num_own else []
        found_columns = plain_array(ranks[part]), plain_array(rows.distance)
        return [*columns, *found_columns, system_array(rows.row_id)]

    num_leading = output.num_own + len(FOUND_COLUMNS)
    return result_batches(output.plan.fetch, output.schema, num_leading, found, leading)


def result_batches(
    fetch: LateMaterialization,
    schema: StructType,
    num_leading: int,
    found: HasAddresses,
    leading: Callable[[slice], list[pa.Array]],
) -> Batches:
    """Yield the rows of a search, part by part.

    ``leading``: returns the first ``num_leading`` columns, before those of the table, for a part of
    the rows.
    """
    target = arrow_schema_of(schema)
    table_fields = schema.fields[num_leading:]
    of_table = arrow_schema_of(StructType(table_fields))
    for part, read in read_found(fetch, found):
        columns = leading(part)
        columns += to_spark_batch(read, of_table).columns if table_fields else []
        columns = [column.cast(field.type) for column, field in zip(columns, target, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=target)

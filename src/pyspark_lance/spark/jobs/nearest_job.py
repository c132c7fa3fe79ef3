"""Finds nearest rows on the executors.

Few queries are sent to all tasks, each of which compares them with some of the rows; their answers
meet by query.  Many queries stay where they are: each task has some of them, and compares them with
all rows, block by block, so that nothing needs to meet.
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

from pyspark_lance.codec.join_rows import fewest_batches
from pyspark_lance.codec.row_selection import take_rows
from pyspark_lance.format.system_columns import ROW_ID, system_array
from pyspark_lance.plain_values import plain_array, single_value
from pyspark_lance.spark.jobs.map_in_arrow import map_in_arrow
from pyspark_lance.spark.jobs.stages import Batches, map_rows, over_tasks, stage
from pyspark_lance.spark.source.scan_rows import to_spark_batch
from pyspark_lance.spark.types.spark_types import arrow_schema_of
from pyspark_lance.table.nearest.found_rows import Found, FoundRows, joined
from pyspark_lance.table.nearest.ivf_search import SegmentTask
from pyspark_lance.table.nearest.search_plan import NearestPlan
from pyspark_lance.table.nearest.search_task import SearchTask, merge_found, read_found, search
from pyspark_lance.table.nearest.vectors import Queries, queries_in

RANK: Final = "_rank"
DISTANCE: Final = "_distance"
FOUND_COLUMNS: Final = (
    StructField(RANK, IntegerType(), nullable=False),
    StructField(DISTANCE, FloatType(), nullable=False),
    StructField(ROW_ID, LongType(), nullable=False),
)
"""What the answer says of each row, behind the columns of its query."""

_Task = SearchTask | SegmentTask
# Queries of a segment that one task looks for: all would be the work of one core.
_QUERIES_OF_SEGMENT: Final = 1 << 9
_Finish = Callable[[Sequence[Found]], Batches]
# Pairs of a query and a row that one task brings together and reads.
_PAIRS_OF_BUCKET: Final = 1 << 14
# A block of queries, of which one task compares one at a time with all rows.
_QUERIES_OF_BLOCK: Final = 1 << 13
_BYTES_OF_BLOCK: Final = 32 << 20
_PAIRS_OF_BLOCK: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Answer:
    """What the answer looks like."""

    plan: NearestPlan  # The search.
    schema: StructType  # Columns of the queries, ``FOUND_COLUMNS``, columns of the table.
    num_own: int  # How many of them are columns of the queries.


@dataclass(frozen=True, slots=True)
class _Unit:
    """What one task of Spark looks for: the queries from ``first`` to ``end``."""

    task: _Task
    first: int
    end: int


def nearest_to_few(
    spark: SparkSession, answer: Answer, queries: Queries, own: pa.RecordBatch
) -> DataFrame:
    """The rows nearest to queries that all tasks get.

    ``queries``: named by their place in ``own``.
    """
    tasks = _units(answer.plan.tasks, len(queries))
    per_bucket = max(1, _PAIRS_OF_BUCKET // answer.plan.merge.k)
    buckets = int(queries.numbers[-1]) // per_bucket + 1 if tasks else 1
    finish = partial(_joined, answer, queries, own)
    if len(tasks) < 2 and buckets < 2:
        return over_tasks(spark, tasks, partial(_found_at_once, queries, finish), answer.schema)
    work = partial(_found_in_buckets, queries, per_bucket)
    found = over_tasks(spark, tasks, work, "bucket int, payload binary")
    together = found.repartition(buckets, "bucket")
    return map_in_arrow(together, stage(partial(_joined_by_bucket, finish)), answer.schema)


def nearest_to_many(answer: Answer, queries: DataFrame, vector: str) -> DataFrame:
    """The rows nearest to the rows of a DataFrame, which go on as they are, in any number.

    ``queries``: the column ``vector`` and those that the answer begins with.
    """
    return map_rows(queries, stage(partial(_found_by_block, answer, vector)), answer.schema)


def _units(tasks: Sequence[_Task], num_queries: int) -> tuple[_Unit, ...]:
    """What each task of Spark does: some rows for all queries, or a segment for some of them."""
    found = []
    for task in tasks:
        step = _QUERIES_OF_SEGMENT if isinstance(task, SegmentTask) else max(1, num_queries)
        found += [_Unit(task, first, first + step) for first in range(0, num_queries, step)]
    return tuple(found)


# On executors ----------------------------------------------------------------------------------


def _search(units: Iterable[_Unit], queries: Queries) -> Found:
    found = [search((unit.task,), queries.part(unit.first, unit.end)) for unit in units]
    return Found(joined([one.exact for one in found]), joined([one.candidates for one in found]))


def _found_at_once(queries: Queries, finish: _Finish, units: Iterable[_Unit]) -> Batches:
    every = tuple(units)
    if every:
        yield from finish([_search(every, queries)])


def _found_in_buckets(queries: Queries, per_bucket: int, units: Iterable[_Unit]) -> Batches:
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


def _joined_by_bucket(finish: _Finish, batches: Batches) -> Batches:
    by_bucket: dict[int, list[Found]] = {}
    for batch in batches:
        payloads = batch.column(1)
        for index, number in enumerate(batch.column(0).to_pylist()):
            by_bucket.setdefault(number, []).append(pickle.loads(payloads[index].as_buffer()))
    for number in sorted(by_bucket):
        yield from finish(by_bucket.pop(number))


def _joined(
    answer: Answer, queries: Queries, own: pa.RecordBatch, parts: Sequence[Found]
) -> Batches:
    yield from _finished(answer, own, merge_found(answer.plan.merge, parts, queries))


def _found_by_block(answer: Answer, vector: str, batches: Batches) -> Batches:
    plan = answer.plan
    if not plan.tasks:
        return
    most = max(1, min(_QUERIES_OF_BLOCK, _PAIRS_OF_BLOCK // plan.merge.k))
    for block in _blocks(batches, most):
        place = block.schema.names.index(vector)
        queries = queries_in(block.column(place), plan.column, plan.merge.metric)
        own = block.select([n for n in range(block.num_columns) if n != place])
        if len(queries):
            yield from _joined(answer, queries, own, [search(plan.tasks, queries)])


def _blocks(batches: Batches, most: int) -> Iterator[pa.RecordBatch]:
    """The rows of all batches in blocks, as few as may be."""
    held: list[pa.RecordBatch] = []
    rows = num_bytes = 0
    for batch in batches:
        for first in range(0, batch.num_rows, most):
            piece = batch.slice(first, most)
            if held and (
                rows + piece.num_rows > most or num_bytes + piece.nbytes > _BYTES_OF_BLOCK
            ):
                yield from fewest_batches(held)
                held, rows, num_bytes = [], 0, 0
            held.append(piece)
            rows += piece.num_rows
            num_bytes += piece.nbytes
    yield from fewest_batches(held)


def _finished(answer: Answer, own: pa.RecordBatch, found: FoundRows) -> Batches:
    """The rows of the answer, given the columns of the queries."""
    target = arrow_schema_of(answer.schema)
    table_fields = answer.schema.fields[answer.num_own + len(FOUND_COLUMNS) :]
    of_table = arrow_schema_of(StructType(table_fields))
    ranks = found.ranks().astype(np.int32)
    for part, read in read_found(answer.plan.fetch, found):
        rows = found.at(part)
        columns = take_rows(own, rows.query).columns if answer.num_own else []
        columns += [plain_array(ranks[part]), plain_array(rows.distance), system_array(rows.row_id)]
        columns += to_spark_batch(read, of_table).columns if table_fields else []
        columns = [column.cast(field.type) for column, field in zip(columns, target, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=target)

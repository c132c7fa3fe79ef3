"""Plain merges without a join of Spark: rows of both sides are matched in Python, packed.

The source is evaluated once and kept packed, together with a small filter of its keys.  Scans of
the target yield keys and addresses of rows that pass the filter.  If these are few, every task
gets them all and matches its rows of the source (``table/change/plain_merge.py``); else
both sides meet in a shuffle of packed rows, by buckets of their keys.  Then it goes on as every
change does.

The driver holds the filter and those few rows, both of a bounded size.
"""

from __future__ import annotations

import gc
import math
import pickle
from collections.abc import Callable, Iterable, Iterator
from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf

from pyspark_lance.codec.row_selection import filter_rows
from pyspark_lance.format.system_columns import ROW_ADDRESS, ROW_ID
from pyspark_lance.predicate.parse import parse_predicate
from pyspark_lance.spark.jobs.change_job import PIECE_TYPE, packed_pieces
from pyspark_lance.spark.jobs.source_filter import collected_filter
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.table.change.key_filter import KeyFilter, hash_keys
from pyspark_lance.table.change.key_match import key_buckets
from pyspark_lance.table.change.plain_merge import (
    PlainMerge,
    keys_of,
    plain_changes,
    target_keys_of,
)
from pyspark_lance.table.change.row_change import ChangePlan
from pyspark_lance.table.change.sort_changes import Parts
from pyspark_lance.table.rows.empty_parts import with_offsets
from pyspark_lance.table.rows.packed_rows import (
    RowBuffer,
    join_batches,
    pack_rows,
    split_rows,
    unpack_rows,
)
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan, predicate_schema, project
from pyspark_lance.table.scan.scan_task import run

_MOST_BUCKETS = 512
# Rows that are packed at a time.
_BATCH_ROWS = 1 << 17
_BATCH_BYTES = 32 << 20

# So many rows of the target, or as many bytes as such rows with short keys have, are sent to every
# task that matches; more of them meet the source in a shuffle.
_FEW_ROWS = 250_000
# A task of the scan may have so many times its share of them.
_FEW_SKEW = 4
_FEW_ROW_BYTES = 64
# So many filters, of 2 MB each, are sent to the driver; more of them are united on their way.
_FEW_FILTERS = 8

_TARGET, _SOURCE, _FILTER, _TOO_MANY = range(4)
_NO_BUCKETS = 0
_STAGED = "bucket bigint, kind int, payload binary"


def plain_pieces(
    spark: SparkSession,
    plan: ChangePlan,
    merge: PlainMerge,
    source: DataFrame,
    target_filter: str | None,
) -> tuple[DataFrame, bool, KeyFilter | None]:
    """What becomes of the rows, packed, as ``PIECE_TYPE``, and whether few rows of the target can.

    Third comes the filter of the source's keys, unless it would let too much through.

    The source is evaluated, and keys of the target are read.

    Args:
        spark: The session.
        plan: Pins the version.
        merge: What happens.
        source: Its columns.
        target_filter: Only target rows that fulfil it can match.
    """
    # Evaluated once: whatever the source is made of, all that follows must see the same rows.  The
    # job that asks for the filter fills the checkpoint.
    staged = source.mapInArrow(partial(_stage, merge), _STAGED).localCheckpoint(eager=False)
    keys = _key_filter(staged)
    rows = staged.where(sf.col("kind") == _SOURCE)
    parts = Parts.of(plan.snapshot().manifest.fragments)
    scan = partial(_target_scan, spark, plan, merge, keys, target_filter)
    found = _few_target_rows(scan)
    if found is not None:
        return rows.mapInArrow(partial(_match, plan, merge, parts, found), PIECE_TYPE), True, keys
    buckets = _num_buckets(spark)
    together = scan(buckets).union(rows.mapInArrow(partial(_split, merge, buckets), _STAGED))
    # The rows of the target come first, since those of the source are matched as they come.
    arranged = together.repartition("bucket").sortWithinPartitions("kind")
    return arranged.mapInArrow(partial(_match, plan, merge, parts, ()), PIECE_TYPE), False, keys


def _num_buckets(spark: SparkSession) -> int:
    asked = spark.conf.get("spark.sql.shuffle.partitions") or "200"
    return max(1, min(_MOST_BUCKETS, int(asked)))


def _key_filter(staged: DataFrame) -> KeyFilter | None:
    """The filter of the source's keys; None if it would let too much through."""
    parts = staged.where(sf.col("kind") == _FILTER).select("payload")
    return collected_filter(parts, unite_first=_num_partitions(staged) > _FEW_FILTERS)


def _num_partitions(frame: DataFrame) -> float:
    """Unknown, and so taken to be many, in Spark Connect and where RDDs are forbidden."""
    try:
        return frame.rdd.getNumPartitions()
    except Exception:  # noqa: BLE001 - each kind of session has an error of its own
        return math.inf


def _few_target_rows(scan: Callable[[int], DataFrame]) -> tuple[bytes, ...] | None:
    """The target rows that may match, packed; None if they are too many for every task to hold."""
    found = scan(_NO_BUCKETS).select("kind", "payload").collect()
    packed = tuple(bytes(row["payload"]) for row in found)
    if any(row["kind"] == _TOO_MANY for row in found):
        return None
    return packed if sum(map(len, packed)) <= _FEW_ROWS * _FEW_ROW_BYTES else None


def _target_scan(
    spark: SparkSession,
    plan: ChangePlan,
    merge: PlainMerge,
    keys: KeyFilter | None,
    target_filter: str | None,
    buckets: int,
) -> DataFrame:
    """Keys and addresses of the target rows that may match.

    With ``_NO_BUCKETS``, a task that has too many of them says only that.
    """
    snapshot = plan.snapshot()
    request = ScanRequest(
        schema=project(snapshot.schema, tuple(dict.fromkeys(merge.target_keys))),
        system_columns=(ROW_ID, ROW_ADDRESS),
        predicate=None
        if target_filter is None
        else parse_predicate(target_filter, predicate_schema(snapshot.schema)),
    )
    tasks = tuple(pickle.dumps(task) for task in plan_scan(snapshot, request))
    count = max(1, len(tasks))
    numbers = spark.range(0, count, 1, count)
    few = min(_FEW_ROWS, _FEW_SKEW * _FEW_ROWS // count)
    return numbers.mapInArrow(partial(_scan, tasks, merge, keys, buckets, few), _STAGED)


def _staged(bucket: int, kind: int, payload: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([bucket], pa.int64()),
            pa.array([kind], pa.int32()),
            pa.array([payload], pa.binary()),
        ],
        names=["bucket", "kind", "payload"],
    )


def _full_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows, as many at a time as a piece holds."""
    buffer = RowBuffer(_BATCH_ROWS, _BATCH_BYTES)
    for batch in batches:
        if buffer.add(batch) and (rows := buffer.take()) is not None:
            yield rows
    if (rows := buffer.take()) is not None:
        yield rows


@clean_iterator
def _stage(merge: PlainMerge, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Packs the source, and makes the filter of its keys."""
    gc.freeze()
    hashes = []
    for rows in _full_batches(map(with_offsets, batches)):
        hashes.append(hash_keys(keys_of(rows, merge)))
        yield _staged(0, _SOURCE, pack_rows(rows))
    if hashes:
        yield _staged(0, _FILTER, KeyFilter.of(hashes).bits)


@clean_iterator
def _split(
    merge: PlainMerge, buckets: int, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Sorts packed rows of the source into buckets."""
    gc.freeze()
    for _, payload in _payloads(batches):
        for rows in unpack_rows(payload):
            for bucket, piece in split_rows(rows, key_buckets(keys_of(rows, merge), buckets)):
                yield _staged(bucket, _SOURCE, pack_rows(piece))


@clean_iterator
def _scan(
    tasks: tuple[bytes, ...],
    merge: PlainMerge,
    keys: KeyFilter | None,
    buckets: int,
    few: int,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Yields target rows that may match."""
    gc.freeze()
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]

    def matching() -> Iterator[pa.RecordBatch]:
        for number in numbers:
            for rows in run(pickle.loads(tasks[number])) if number < len(tasks) else ():
                if keys is None:
                    yield rows
                else:
                    hashes = hash_keys(target_keys_of(rows, merge))
                    yield filter_rows(rows, keys.may_contain(hashes))

    if buckets != _NO_BUCKETS:
        for rows in _full_batches(matching()):
            places = key_buckets(target_keys_of(rows, merge), buckets)
            for bucket, piece in split_rows(rows, places):
                yield _staged(bucket, _TARGET, pack_rows(piece))
        return
    found, count, size = [], 0, 0
    for rows in matching():
        found.append(rows)
        count += rows.num_rows
        size += rows.nbytes
        if count > few or size > few * _FEW_ROW_BYTES:
            yield _staged(0, _TOO_MANY, b"")
            return
    if count:
        yield _staged(0, _TARGET, pack_rows(join_batches(found)))


def _payloads(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        for kind, payload in zip(batch.column("kind"), batch.column("payload"), strict=True):
            yield kind.as_py(), payload.as_py()


@clean_iterator
def _match(
    plan: ChangePlan,
    merge: PlainMerge,
    parts: Parts,
    found: tuple[bytes, ...],
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Matches rows of the source, and sorts out what becomes of them.

    The rows of the target are those in ``found``, and those that come before the source's.
    """
    gc.freeze()
    pieces = _payloads(batches)
    target = [rows for packed in found for rows in unpack_rows(packed)]
    first: bytes | None = None
    for kind, payload in pieces:
        if kind != _TARGET:
            first = payload
            break
        target += unpack_rows(payload)

    def source() -> Iterator[pa.RecordBatch]:
        if first is not None:
            yield from unpack_rows(first)
        for _, payload in pieces:
            yield from unpack_rows(payload)

    yield from packed_pieces(plan, merge.clauses, parts, plain_changes(merge, target, source()))

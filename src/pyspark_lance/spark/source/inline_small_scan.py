"""Read the rows of a small scan while it is planned.

For a small table, starting a Python task costs Spark more than reading the rows.  The JVM plugin
requests these rows with the plan of a scan and sends them with a task that needs no Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_lance.cancellation import check_cancelled
from pyspark_lance.errors import LanceError
from pyspark_lance.predicate.tree import columns_of
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.batch_reader import LanceBatchReader
from pyspark_lance.spark.source.read_plan import PushedDown
from pyspark_lance.spark.source.shared_batches import stream_of
from pyspark_lance.table.scan.column_widths import memory_widths
from pyspark_lance.table.scan.plan_scan import predicate_schema
from pyspark_lance.table.scan.scan_statistics import PrunedScan
from pyspark_lance.table.version.snapshot import Snapshot

if TYPE_CHECKING:
    from pyspark_lance.spark.source.nearest_reader import LanceNearestReader
    from pyspark_lance.spark.source.search_reader import LanceSearchReader

# Each takes one or two requests to the store, one after another; tasks would run in parallel.
_MAX_FRAGMENTS = 16
# With a limit, the columns of a condition are read until enough rows match; few may.
_MAX_CONDITION_BYTES = 16 << 20


def inline_small_scan(
    read: ReadOptions,
    snapshot: Snapshot,
    columns: StructType,
    pushed: PushedDown,
    left: PrunedScan,
    *,
    max_bytes: int,
) -> list[pa.Buffer] | None:
    """Return the rows as Arrow streams; None if the scan is not small.

    If the read fails, tasks read the rows, as Spark shows the errors of tasks.

    ``left``: the rows that remain of the scan; ``max_bytes``: how large a small scan is.
    """
    read.check_batch()
    # The option that sets the number of partitions applies to tasks.
    if left.fragments > _MAX_FRAGMENTS or read.fragments_per_partition is not None:
        return None
    # Without a condition, the plugin has already compared the size with the limit.
    if pushed.filter is not None and left.rows * _row_bytes(snapshot) > max_bytes:
        most_bytes = _MAX_CONDITION_BYTES / left.rows  # of a row
        if pushed.limit is None or _condition_bytes(snapshot, pushed) > most_bytes:
            return None
    try:
        reader = LanceBatchReader(read, snapshot.pinned, columns, pushed, keep_dictionaries=True)
        return _streams(reader.read_local(), max_bytes)
    except (LanceError, OSError, pa.ArrowException):
        return None


def inline_small_search(
    read: ReadOptions,
    snapshot: Snapshot,
    columns: StructType,
    pushed: PushedDown,
    *,
    max_bytes: int,
) -> list[pa.Buffer] | None:
    """Return the rows that a search finds as Arrow streams; None if the search is not small.

    As of a small scan; ``max_bytes``: how large the result of a small search is.
    """
    read.check_batch()
    if max_bytes <= 0:
        return None
    try:
        reader = _search_reader(read, snapshot, columns, pushed)
        if not reader.size.is_small:
            return None
        return _streams(reader.read_local(), max_bytes)
    except (LanceError, OSError, pa.ArrowException):
        return None


def _search_reader(
    read: ReadOptions, snapshot: Snapshot, columns: StructType, pushed: PushedDown
) -> LanceSearchReader | LanceNearestReader:
    """Create the reader of a search; import it here, as most reads are no searches."""
    if read.search is not None:
        from pyspark_lance.spark.source.search_reader import LanceSearchReader  # noqa: PLC0415

        return LanceSearchReader(read, read.search, snapshot.pinned, columns, pushed)
    from pyspark_lance.spark.source.nearest_reader import LanceNearestReader  # noqa: PLC0415

    assert read.nearest is not None
    return LanceNearestReader(read, read.nearest, snapshot.pinned, columns, pushed)


def _streams(batches: Iterator[pa.RecordBatch], max_bytes: int) -> list[pa.Buffer] | None:
    """Return batches as Arrow streams; None if they have more than ``max_bytes``."""
    found: list[pa.Buffer] = []
    for batch in batches:
        check_cancelled()
        if not batch.num_rows:
            continue
        stream = stream_of(batch)
        max_bytes -= stream.size
        if max_bytes < 0:
            return None
        found.append(stream)
    return found


def _row_bytes(snapshot: Snapshot) -> float:
    """Estimate the bytes of a whole row, as a condition may read any column."""
    return 8 + sum(memory_widths(snapshot).values())


def _condition_bytes(snapshot: Snapshot, pushed: PushedDown) -> float:
    """Estimate the bytes of a row in the columns that the condition reads."""
    predicate = pushed.predicate(predicate_schema(snapshot.schema))
    names = columns_of(predicate) if predicate is not None else ()
    return sum(width for name, width in memory_widths(snapshot).items() if name in names)

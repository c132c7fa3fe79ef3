"""Read the rows of a small scan while it is planned.

For a small table, starting a Python task costs Spark more than reading the rows.  The JVM plugin
requests these rows with the plan of a scan and sends them with a task that needs no Python.
"""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_lance.cancellation import check_cancelled
from pyspark_lance.errors import LanceError
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.batch_reader import LanceBatchReader
from pyspark_lance.spark.source.pushed_down import PushedDown
from pyspark_lance.spark.source.shared_batches import stream_of
from pyspark_lance.table.scan.plan_scan import column_width
from pyspark_lance.table.scan.scan_statistics import PrunedScan
from pyspark_lance.table.version.snapshot import Snapshot

# Each takes one or two requests to the store, one after another; tasks would run in parallel.
_MAX_FRAGMENTS = 16


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
        return None
    batches: list[pa.Buffer] = []
    try:
        reader = LanceBatchReader(read, snapshot.pinned, columns, pushed, keep_dictionaries=True)
        for batch in reader.read_local():
            check_cancelled()
            if not batch.num_rows:
                continue
            stream = stream_of(batch)
            max_bytes -= stream.size
            if max_bytes < 0:
                return None
            batches.append(stream)
    except (LanceError, OSError, pa.ArrowException):
        return None
    return batches


def _row_bytes(snapshot: Snapshot) -> float:
    """Estimate the bytes of a whole row, as a condition may read any column."""
    return 8 + sum(column_width(field) for field in snapshot.schema.fields)

"""Rows of a scan that returns few, which are read where it is planned.

A task that runs Python costs Spark more than the rows of a small table do.  The JVM plugin asks
for these rows when it asks what is left of a scan; they go with its task, which needs no Python.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from pyspark_lance.errors import LanceError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.batch_reader import LanceBatchReader
from pyspark_lance.spark.source.cancellation import check_cancelled
from pyspark_lance.spark.source.pushed_down import PushedDown
from pyspark_lance.spark.source.shared_batches import columns_of_batches, stream_of, transfer_mode
from pyspark_lance.table.scan.plan_scan import column_width
from pyspark_lance.table.scan.scan_statistics import PrunedScan
from pyspark_lance.table.version.snapshot import Snapshot

# Each is a request or two to a store; tasks make theirs at the same time.
_MAX_FRAGMENTS = 16


def inline_small_scan(
    options: Mapping[str, str],
    read: ReadOptions,
    snapshot: Snapshot,
    left: PrunedScan,
    *,
    is_tested: bool,
) -> dict[str, list[pa.Buffer]]:
    """``{"batches": […]}``, Arrow streams; nothing where there are too many rows.

    What cannot be read is left to the tasks, which say so where Spark shows it.

    ``options``: those of the plugin; they say how many bytes are few, and which columns;
    ``is_tested``: whether a condition is still to choose among the rows that are left.
    """
    transfer_mode(options)
    read.check_batch()
    # Who chooses partitions means those that tasks read.
    if left.fragments > _MAX_FRAGMENTS or read.fragments_per_partition is not None:
        return {}
    most_bytes = int(options[keys.SMALL_BYTES])
    pushed = PushedDown.parse(options)
    # Without a condition, the plugin has weighed the rows.
    if is_tested and left.rows * _row_bytes(snapshot) > most_bytes:
        return {}
    columns = columns_of_batches(options)
    batches: list[pa.Buffer] = []
    try:
        reader = LanceBatchReader(read, snapshot.pinned, columns, pushed, keep_dictionaries=True)
        for batch in reader.read_local():
            check_cancelled()
            if not batch.num_rows:
                continue
            stream = stream_of(batch)
            most_bytes -= stream.size
            if most_bytes < 0:
                return {}
            batches.append(stream)
    except (LanceError, OSError, pa.ArrowException):
        return {}
    return {"batches": batches}


def _row_bytes(snapshot: Snapshot) -> float:
    """Of a whole row, roughly: a condition may read any column."""
    return 8 + sum(column_width(field) for field in snapshot.schema.fields)

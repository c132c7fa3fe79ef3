"""Read the rows of a small scan while it is planned.

For a small table, starting a Python task costs Spark more than reading the rows.  The JVM plugin
requests these rows with the plan of a scan and sends them with a task that needs no Python.
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

# Each takes one or two requests to the store, one after another; tasks would run in parallel.
_MAX_FRAGMENTS = 16


def inline_small_scan(
    options: Mapping[str, str],
    read: ReadOptions,
    snapshot: Snapshot,
    left: PrunedScan,
    *,
    has_condition: bool,
) -> dict[str, list[pa.Buffer]]:
    """Return ``{"batches": […]}``, Arrow streams; empty if the scan is not small.

    If the read fails, tasks read the rows, as Spark shows the errors of tasks.

    ``options``: those of the plugin, with the size limit and the columns; ``has_condition``:
    whether a condition filters the rows that are left.
    """
    transfer_mode(options)
    read.check_batch()
    # The option that sets the number of partitions applies to tasks.
    if left.fragments > _MAX_FRAGMENTS or read.fragments_per_partition is not None:
        return {}
    max_bytes = int(options[keys.SMALL_BYTES])
    pushed = PushedDown.parse(options)
    # Without a condition, the plugin has already compared the size with the limit.
    if has_condition and left.rows * _row_bytes(snapshot) > max_bytes:
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
            max_bytes -= stream.size
            if max_bytes < 0:
                return {}
            batches.append(stream)
    except (LanceError, OSError, pa.ArrowException):
        return {}
    return {"batches": batches}


def _row_bytes(snapshot: Snapshot) -> float:
    """Estimate the bytes of a whole row, as a condition may read any column."""
    return 8 + sum(column_width(field) for field in snapshot.schema.fields)

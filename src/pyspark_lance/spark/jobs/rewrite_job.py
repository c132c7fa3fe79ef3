"""Rewrite the changed columns of the fragments that have changed rows."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from functools import partial

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from pyspark_lance.format.column_names import ROW_ADDRESS
from pyspark_lance.plain_values import plain_numbers, single_value
from pyspark_lance.spark.jobs.stages import map_rows
from pyspark_lance.spark.source.clean_errors import clean_iterator
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.table.dml.rewrite_columns import (
    RewriteColumnsRequest,
    RewrittenColumns,
    paths_of,
    plan_rewrite,
    rewrite_columns,
)
from pyspark_lance.table.dml.row_change import DmlPlan
from pyspark_lance.table.work.written_files import remove_files

_PAYLOAD = "payload binary"


class RepeatedRowError(Exception):
    """A row would get two new values; raised only within this package."""

    def __init__(self, address: int) -> None:
        super().__init__(f"the row at address {address} would get two new values")
        self.address = address


def run_rewrite_job(
    plan: DmlPlan, names: Sequence[str], changes: DataFrame
) -> tuple[RewriteColumnsRequest, list[RewrittenColumns]]:
    """Write the new files of touched fragments on the executors; commits nothing.

    ``changes``: ``_rowaddr`` of each row that changes, once, and all of ``names``; in any order.
    Raises RepeatedRowError: a row comes twice; the new files are removed.
    """
    request = plan_rewrite(plan.snapshot(), names)
    together = changes.repartition(sf.shiftright(sf.col(ROW_ADDRESS), 32))
    ordered = together.sortWithinPartitions(ROW_ADDRESS)
    messages = map_rows(ordered, partial(_write, request), _PAYLOAD).collect()
    done = [result for message in messages for result in pickle.loads(message["payload"])]
    rewritten = [result for result in done if isinstance(result, RewrittenColumns)]
    if len(rewritten) < len(done):
        remove_files(request.files.store_of(None), paths_of(rewritten))
        raise RepeatedRowError(next(result for result in done if isinstance(result, int)))
    return request, rewritten


@clean_iterator
def _write(
    request: RewriteColumnsRequest, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """Write the new files of fragments in a task, or return the address of a repeated row."""
    trim_worker_overhead()
    done: list[RewrittenColumns | int]
    try:
        done = list(rewrite_columns(request, _once_each(batches)))
    except RepeatedRowError as error:
        done = [error.address]
    yield pa.RecordBatch.from_pydict({"payload": single_value(pickle.dumps(done), pa.binary())})


def _once_each(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Check that no address is repeated in batches that are sorted by address."""
    last = -1
    for batch in batches:
        addresses = plain_numbers(batch.column(ROW_ADDRESS))
        again = np.flatnonzero(np.diff(addresses, prepend=last) == 0)
        if len(again):
            raise RepeatedRowError(int(addresses[again[0]]))
        if len(addresses):
            last = int(addresses[-1])
        yield batch

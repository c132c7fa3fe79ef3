"""Collect the keys of a merge's source as one small filter, from the partitions of a job."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce

import pyarrow as pa
from pyspark.sql import DataFrame

from pyspark_lance.plain_values import single_value
from pyspark_lance.spark.jobs.map_in_arrow import map_in_arrow
from pyspark_lance.spark.source.worker_overhead import trim_worker_overhead
from pyspark_lance.table.dml.key_filter import KeyFilter

# A filter with more hits saves nothing.
_MAX_SHARE = 0.5


def collected_filter(parts: DataFrame, *, unite_first: bool) -> KeyFilter | None:
    """Merge the filters of all partitions; None if the result would not be selective.

    ``parts``: one filter per partition, in the binary column ``payload``; ``unite_first``: whether
    an executor merges them, if there are many.
    """
    if unite_first:
        parts = map_in_arrow(parts.repartition(1), _united, "payload binary")
    filters = (KeyFilter.of_bytes(bytes(row["payload"])) for row in parts.collect())
    together = reduce(KeyFilter.union, filters, KeyFilter.of([]))
    return together if together.share() <= _MAX_SHARE else None


def _united(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    trim_worker_overhead()
    parts = (KeyFilter.of_bytes(one) for batch in batches for one in batch.column(0).to_pylist())
    first = next(parts, None)
    if first is not None:
        yield as_payload(reduce(KeyFilter.union, parts, first))


def as_payload(keys: KeyFilter) -> pa.RecordBatch:
    """Convert a filter to the row that ``collected_filter`` reads."""
    return pa.RecordBatch.from_pydict({"payload": single_value(keys.to_bytes(), pa.binary())})

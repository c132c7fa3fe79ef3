"""Batch reads of a change feed: plans on the driver, reads on the executors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.change_feed_plan import (
    PinnedFeed,
    feed_envelope_of,
    feed_request_of,
    feed_tasks,
)
from pyspark_lance.spark.source.clean_errors import clean_errors, clean_iterator
from pyspark_lance.spark.source.messages import ChangePartition
from pyspark_lance.spark.source.read_plan import NOTHING_PUSHED, PushedDown
from pyspark_lance.spark.source.scan_rows import spark_batches


class LanceChangeReader(DataSourceReader):
    """Reader of the rows that a range of versions changed.

    As ``LanceBatchReader``, it does not override ``pushFilters``.
    """

    def __init__(
        self,
        options: ReadOptions,
        feed: PinnedFeed,
        schema: StructType,
        pushed: PushedDown = NOTHING_PUSHED,
    ) -> None:
        self._options = options
        self._feed = feed
        self._schema = schema
        self._limit = pushed.limit
        # Errors of planning are raised during analysis rather than in the first task.
        self._request = feed_request_of(options, feed, schema, pushed)
        self._envelope = feed_envelope_of(options, feed, schema, pushed)

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task."""
        tasks = feed_tasks(self._options, self._feed, self._request)
        return [ChangePartition(task, self._envelope) for task in tasks]

    @clean_iterator
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Return the rows of one partition, in the Arrow types that Spark requires."""
        # A plan without partitions still runs one task, on a placeholder.
        if isinstance(partition, ChangePartition):
            yield from spark_batches(partition.changes(), self._schema, self._limit)

"""Batch reads: plans on the driver, reads on the executors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from pyspark_lance.errors import StorageError
from pyspark_lance.spark.options.parse_options import ReadOptions
from pyspark_lance.spark.source.clean_errors import clean_errors
from pyspark_lance.spark.source.messages import ScanPartition
from pyspark_lance.spark.source.read_plan import (
    NOTHING_PUSHED,
    PushedDown,
    open_analyzed,
    scan_request_of,
)
from pyspark_lance.spark.source.scan_rows import ScanRows
from pyspark_lance.table.scan.key_groups import KeyGroupedTasks, plan_key_grouped
from pyspark_lance.table.scan.plan_scan import plan_scan
from pyspark_lance.table.scan.scan_statistics import limit_tasks
from pyspark_lance.table.scan.scan_task import ScanTask, first_rows
from pyspark_lance.table.scan.top_rows import TopRows
from pyspark_lance.table.version.table_identity import PinnedVersion


class LanceBatchReader(ScanRows):
    """Reader of one pinned version; its pickle contains only what tasks need.

    It does not override ``pushFilters``: on Spark 4.1 to 4.3 a source whose rows depend on a pushed
    filter returns wrong rows as soon as two scans share one DataFrame.

    ``keep_dictionaries``: string columns may be dictionary arrays, which Spark itself cannot read.
    """

    def __init__(
        self,
        options: ReadOptions,
        pinned: PinnedVersion,
        schema: StructType,
        pushed: PushedDown = NOTHING_PUSHED,
        *,
        keep_dictionaries: bool = False,
    ) -> None:
        top = None if pushed.top is None else TopRows(**json.loads(pushed.top))
        super().__init__(schema, pushed.limit, top)
        self._options = options
        self._keys = pushed.key_columns, pushed.key_tasks
        self._pinned = pinned
        # Errors of planning are raised during analysis rather than in the first task.
        snapshot = open_analyzed(options, pinned)
        request = scan_request_of(options, schema, snapshot, pushed)
        self._request = replace(request, keep_dictionaries=keep_dictionaries)

    def __reduce__(self) -> tuple[type[ScanRows], tuple[object, ...]]:
        return ScanRows, (self._schema, self._limit, self._top)

    @clean_errors
    def partitions(self) -> Sequence[InputPartition]:
        """Return one partition for each task of the scan."""
        return [ScanPartition(task) for task in self._tasks()]

    def tasks_by_key(self) -> KeyGroupedTasks | None:
        """The tasks by key; None where zone maps do not prove that each has one."""
        columns, _ = self._keys
        return plan_key_grouped(open_analyzed(self._options, self._pinned), self._request, columns)

    def _tasks(self) -> Sequence[ScanTask]:
        if self._keys[1] is not None:
            # A join would lose the rows of a task with another key than the one Spark knows.
            planned = self.tasks_by_key()
            if planned is None or planned.digest() != self._keys[1]:
                raise StorageError(
                    "the zone maps cannot be read again as they were read during analysis",
                    self._options.table.uri,
                    hint="try again, or set spark.sql.sources.v2.bucketing.enabled to false",
                )
            return planned.tasks
        tasks = plan_scan(open_analyzed(self._options, self._pinned), self._request)
        return tasks if self._limit is None else limit_tasks(tasks, self._limit)

    def read_local(self) -> Iterator[pa.RecordBatch]:
        """Read the rows of all tasks in this process."""
        batches = (batch for task in self._tasks() for batch in self._rows(task))
        return first_rows(self._limit, batches)
